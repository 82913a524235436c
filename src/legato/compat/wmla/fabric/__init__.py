"""The code that runs in a worker: `FabricModel` on the elastic runtime, loggers and files. Imports no server."""
