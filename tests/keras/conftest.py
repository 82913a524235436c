"""What the tests of Keras models share. They need TensorFlow, which has an environment of its own."""

from __future__ import annotations

import importlib
import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest
from tests.integration.conftest import reference, stage

from legato.compat.wmla.fabric.keras_settings import configure_tensorflow, environment_for_tensorflow

__all__ = ["reference", "stage"]

collect_ignore_glob = ["programs/*"]  # they train when they are imported
HAS_TENSORFLOW = importlib.util.find_spec("tensorflow") is not None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here not in item.path.parents:
            continue
        # TensorFlow and Keras warn of their own past.
        item.add_marker(pytest.mark.filterwarnings("default"))
        if not HAS_TENSORFLOW:
            item.add_marker(pytest.mark.skip(reason="there is no TensorFlow here: make test-tensorflow has it"))


@pytest.fixture(scope="session")
def tf() -> Any:
    for name, value in environment_for_tensorflow(1).items():
        os.environ.setdefault(name, value)
    tensorflow = importlib.import_module("tensorflow")
    configure_tensorflow()
    return tensorflow


@pytest.fixture
def keras(tf: Any) -> Any:
    module = importlib.import_module("keras")
    module.utils.set_random_seed(5)
    return module
