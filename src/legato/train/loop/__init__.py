"""The elastic training loop: what users call, steps, evaluation, and a worker's session."""
