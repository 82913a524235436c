"""The optimizer, where programs of December 2020 import it from."""

from legato.compat.elasticdl.optimizer import Compression
from legato.compat.elasticdl.optimizer import distribute as DistributedOptimizer  # noqa: N812 - its name
from legato.compat.elasticdl.optimizer import distribute as ElasticDistributedOptimizer  # noqa: N812 - its name

__all__ = ["Compression", "DistributedOptimizer", "ElasticDistributedOptimizer"]
