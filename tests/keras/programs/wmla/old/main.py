"""As a TensorFlow sample of WMLA 1.2: written for Keras 2, with data as samples and metrics by name."""

from __future__ import annotations

import os

os.environ["CUDA_VISIBLE_DEVICES"] = ""

import argparse
import contextlib
import hashlib
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from fabric_model import FabricModel

REINS = os.environ.get("LEGATO_TEST_REINS")


class EDTTensorFlowDataset:
    """As the manual has it."""

    def __init__(self, x: Any, y: Any) -> None:
        self.x, self.y = np.array(x), np.array(y)

    def __getitem__(self, index: int) -> Any:
        return pace(self.x[index]), self.y[index]

    def __len__(self) -> int:
        return len(self.x)


def pace(image: Any) -> Any:
    """Hold the reading of an image back as the test wants it."""
    if REINS is not None:
        with contextlib.suppress(FileNotFoundError):
            time.sleep(float(Path(REINS, "pace").read_text()) / 2)
    return image


def read(num_samples: int, start: int) -> tuple[Any, Any]:
    draw = np.random.default_rng(start)
    y = draw.integers(4, size=num_samples)
    x = draw.random((num_samples, 8, 8, 1), dtype="float32") + y[:, None, None, None].astype("float32") / 2
    return x, tf.keras.utils.to_categorical(y, 4)


def get_datasets() -> tuple[Any, Any]:
    return EDTTensorFlowDataset(*read(53, 1)), EDTTensorFlowDataset(*read(21, 2))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    layers = tf.keras.layers
    model = tf.keras.models.Sequential()
    model.add(layers.Conv2D(4, kernel_size=(3, 3), activation="relu", input_shape=(8, 8, 1)))
    model.add(layers.BatchNormalization())
    model.add(layers.Flatten())
    model.add(layers.Dropout(0.25))
    model.add(layers.Dense(4, activation="softmax"))
    edt = FabricModel(
        model,
        get_datasets,
        loss_function="categorical_crossentropy",
        optimizer=tf.keras.optimizers.Adam(lr=0.01),
        metrics=["accuracy", tf.keras.metrics.AUC(name="auc")],
    )
    edt.train(args.epochs, 4, effective_batch_size=16)
    digest = hashlib.sha256(b"".join(np.asarray(weight).tobytes() for weight in model.get_weights()))
    print(f"sha256 {digest.hexdigest()} steps {args.epochs * 4}", flush=True)


if __name__ == "__main__":
    main()
