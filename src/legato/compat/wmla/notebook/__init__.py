"""FabricModel for notebooks, outside of a job: it submits a job to the platform and shows its progress."""
