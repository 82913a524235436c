"""The exact sum of gradients and buffers over all workers."""
