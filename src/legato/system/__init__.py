"""What every package needs of the operating system: processes, files, CPUs. Knows nothing of jobs."""
