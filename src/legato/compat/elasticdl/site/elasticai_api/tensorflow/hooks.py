"""Names for TensorFlow: not supported."""

from legato.compat.elasticdl.unsupported import refuse_tensorflow as __getattr__

__all__ = ["__getattr__"]
