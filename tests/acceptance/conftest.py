"""What the acceptance tests share: one server for all programs of WMLA's users, and their data."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from benchmarks.platform import Platform, platform
from PIL import Image
from tests import fork_server
from tests.mnist_files import write_mnist
from tests.shared import Shared

collect_ignore_glob = ["wmla/*"]  # they train when they are imported

NUM_SLOTS = 10
GROUP = "wml-ig-edt"
USER, PASSWORD = "ann", "correct horse battery"


_shared: Final = Shared(Path(__file__).parent)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Iterator[None]:
    try:
        yield
    finally:
        _shared.end_before(nextitem)


@contextlib.contextmanager
def start_wmla() -> Iterator[Platform]:
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "data")
        write_mnist(data / "mnist", every=10)
        write_insects(data / "insects")
        settings = {"loop_interval_s": 0.2, "stability_s": 0.2, "cooldown_factor": 0, "wmla_data_root": data}
        with platform(
            Path(folder, "home"), slots=NUM_SLOTS, prefix=fork_server.prefix_of_server(), **settings
        ) as running:
            running.client.add_user(USER, password=PASSWORD)
            running.client.set_queue(GROUP)
            yield running


@pytest.fixture
def wmla() -> Platform:
    """A server with a user and a group; 600 real digits as torchvision reads them, and a folder of images."""
    found: Platform = _shared.get(start_wmla)
    return found


def write_insects(root: Path) -> None:
    """Write pictures of noise, those of bees brighter than those of ants."""
    draw = np.random.default_rng(5)
    for part, number in (("train", 30), ("val", 11)):
        for label, name in enumerate(("ants", "bees")):
            folder = root / part / name
            folder.mkdir(parents=True)
            for index in range(number):
                pixels = draw.integers(0, 160, size=(32, 36, 3)) + 60 * label
                Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{index}.png")
