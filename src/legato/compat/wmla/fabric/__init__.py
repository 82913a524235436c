"""What runs in a worker: `FabricModel` on the elastic runtime, and what surrounds it. Reaches no server."""
