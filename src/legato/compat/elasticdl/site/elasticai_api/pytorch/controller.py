"""``from elasticai_api.pytorch.controller import …``, as programs write it."""

from legato.compat.elasticdl.controller import PyTorchAllReduceController, create_elastic_controller

__all__ = ["PyTorchAllReduceController", "create_elastic_controller"]
