"""Checkpoint files: when they are due, how they are written and read."""
