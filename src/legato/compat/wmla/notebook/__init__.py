"""FabricModel outside of a job, as in a notebook: it submits itself to the platform, and shows its progress."""
