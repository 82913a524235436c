"""The data of a training: order, seeds, samples, loaders."""
