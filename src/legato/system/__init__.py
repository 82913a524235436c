"""Functions of the operating system that all packages use: processes, files, CPUs. Knows nothing of jobs."""
