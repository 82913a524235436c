"""``from elasticai_api.pytorch.optimizer import DistributedOptimizer``, as programs write it."""

from legato.compat.elasticdl.optimizer import Compression
from legato.compat.elasticdl.optimizer import distribute as DistributedOptimizer  # noqa: N812 - its name

__all__ = ["Compression", "DistributedOptimizer"]
