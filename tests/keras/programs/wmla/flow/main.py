"""As a TensorFlow sample of WMLA 2.x: iterators of Keras, one-hot labels, no GPU, a logger, positional ``train``."""

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
from callbacks import LoggerCallback
from fabric_model import FabricModel

REINS = os.environ.get("LEGATO_TEST_REINS")


class Logger(LoggerCallback):
    """Of generation 1."""

    def __init__(self) -> None:
        self.path = Path(os.environ["LOG_DIR"])

    def log_train_metrics(self, loss: float, acc: float, completed_batch: int, worker: int = 0) -> None:
        self.write(f"train {completed_batch} {loss:.6f} {acc:.4f}")

    def log_test_metrics(self, loss: float, acc: float, completed_batch: int, worker: int = 0) -> None:
        self.write(f"test {completed_batch} {loss:.6f} {acc:.4f}")

    def write(self, line: str) -> None:
        with Path(os.environ["LOG_DIR"], "own.txt").open("a") as file:
            file.write(line + "\n")


def pace(image: Any) -> Any:
    """Hold the reading of an image back as the test wants it."""
    if REINS is not None:
        with contextlib.suppress(FileNotFoundError):
            time.sleep(float(Path(REINS, "pace").read_text()) / 2)
    # Who comes later reads a sample before it joins; it is the first worker that holds all others back.
    while "HOLD" in os.environ and os.environ["TASK_ID"] == "0" and Path(os.environ["HOLD"]).exists():
        time.sleep(0.02)
    return image


def read(num_samples: int, start: int) -> tuple[Any, Any]:
    draw = np.random.default_rng(start)
    y = draw.integers(4, size=num_samples)
    x = draw.random((num_samples, 8, 8, 1), dtype="float32") + y[:, None, None, None].astype("float32") / 2
    return x, tf.keras.utils.to_categorical(y, 4)


def get_datasets() -> tuple[Any, Any]:
    generator = tf.keras.preprocessing.image.ImageDataGenerator(horizontal_flip=True, preprocessing_function=pace)
    plain = tf.keras.preprocessing.image.ImageDataGenerator()
    return generator.flow(*read(53, 1), batch_size=16), plain.flow(*read(21, 2), batch_size=16)


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
        optimizer=tf.keras.optimizers.Adam(learning_rate=0.01),
        driver_logger=Logger(),
    )
    edt.train(args.epochs, 4, 4, checkpoint_freq=2)
    digest = hashlib.sha256(b"".join(np.asarray(weight).tobytes() for weight in model.get_weights()))
    print(f"sha256 {digest.hexdigest()} steps {args.epochs * 4}", flush=True)


if __name__ == "__main__":
    main()
