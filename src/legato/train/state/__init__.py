"""The training state: what belongs to it, how it is encoded, whether all ranks agree on it."""
