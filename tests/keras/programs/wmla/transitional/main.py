"""As the TensorFlow sample of WMLA 4.0: an optimizer of Keras 2's past, iterators of Keras, a helper brought along."""

from __future__ import annotations

import os

os.environ["CUDA_VISIBLE_DEVICES"] = ""

import argparse
from typing import Any

import numpy as np
import tensorflow as tf
from edtcallback import EDTLoggerCallback
from fabric_model import FabricModel
from tensorflow.keras.layers import Conv2D, Dense, Dropout, Flatten
from tensorflow.keras.models import Sequential
from tensorflow.keras.preprocessing.image import ImageDataGenerator


def get_dataset() -> tuple[Any, Any]:
    def read(num_samples: int, start: int) -> tuple[Any, Any]:
        draw = np.random.default_rng(start)
        y = draw.integers(4, size=num_samples)
        x = draw.random((num_samples, 8, 8, 1), dtype="float32") + y[:, None, None, None].astype("float32") / 2
        return x, tf.keras.utils.to_categorical(y, 4)

    return ImageDataGenerator().flow(*read(53, 1), batch_size=16), ImageDataGenerator().flow(
        *read(21, 2), batch_size=16
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="TensorFlow")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    model = Sequential()
    model.add(Conv2D(4, kernel_size=(3, 3), activation="relu", input_shape=(8, 8, 1)))
    model.add(Dropout(0.25))
    model.add(Flatten())
    model.add(Dense(4, activation="softmax"))
    optimizer = tf.keras.optimizers.legacy.Adam(learning_rate=0.01)
    loss_function = "categorical_crossentropy"
    edt_m = FabricModel(model, get_dataset, loss_function, optimizer, driver_logger=EDTLoggerCallback())
    edt_m.train(args.epochs, 16, 16)


if __name__ == "__main__":
    main()
