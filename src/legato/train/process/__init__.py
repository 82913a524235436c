"""Processes of a job: the warm parent, workers, and what they run."""
