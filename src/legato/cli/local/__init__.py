"""Commands on jobs of this machine: run, watch, scale, stop, verify. They need no server."""
