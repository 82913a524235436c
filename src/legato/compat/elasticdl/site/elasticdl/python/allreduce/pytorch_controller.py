"""Controllers, where programs of December 2020 import them from."""

from legato.compat.elasticdl.controller import (
    PyTorchAllReduceController,
    create_elastic_controller,
    get_elastic_controller,
)

__all__ = ["PyTorchAllReduceController", "create_elastic_controller", "get_elastic_controller"]
