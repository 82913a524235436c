"""What runs in a worker: `FabricModel` on the elastic runtime, and its surroundings. Imports no server."""
