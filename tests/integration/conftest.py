"""What the integration tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.harness import Reference, Stage

collect_ignore_glob = ["programs/*"]  # they train when they are imported


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setenv("LEGATO_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for name in [name for name in os.environ if name.startswith("LEGATO_") and name != "LEGATO_HOME"]:
        monkeypatch.delenv(name)
    made = Stage(tmp_path, monkeypatch)
    yield made
    made.clear()


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    own = tmp_path_factory.getbasetemp()
    return Reference((own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "alone")
