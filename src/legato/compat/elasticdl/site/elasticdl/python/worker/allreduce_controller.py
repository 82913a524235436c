"""Controllers, where programs of autumn 2020 import them from."""

from legato.compat.elasticdl.controller import (
    AllReduceController,
    PyTorchAllReduceController,
    create_elastic_controller,
)

__all__ = ["AllReduceController", "PyTorchAllReduceController", "create_elastic_controller"]
