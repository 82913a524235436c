"""Handwritten digits with TensorFlow, Keras and FabricModel, as programs for IBM WMLA are written.

Submit:  legato submit --framework edtTensorflow --workers 1..4 --data pytorch-mnist tensorflow_mnist_EDT.py
The server needs TensorFlow: pip install 'legato[tensorflow]', or a Python environment that has it (--python).
The data are MNIST's files as they are downloaded and unzipped, in DATA_DIR/MNIST/raw.
"""

import argparse
import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from fabric_model import FabricModel


def read_idx(name: str) -> Any:
    """Return the array in a file of MNIST."""
    content = Path(os.environ["DATA_DIR"], "MNIST", "raw", name).read_bytes()
    num_axes = content[3]
    shape = np.frombuffer(content, ">i4", num_axes, 4).tolist()
    return np.frombuffer(content, np.uint8, -1, 4 + 4 * num_axes).reshape(shape)


def get_datasets() -> tuple[Any, Any]:
    """Return iterators over the digits for training and for testing. FabricModel calls this function in each worker."""

    def read(part: str) -> Any:
        images = read_idx(f"{part}-images-idx3-ubyte")[..., None].astype("float32") / 255
        digits = tf.keras.utils.to_categorical(read_idx(f"{part}-labels-idx1-ubyte"), 10)
        return tf.keras.preprocessing.image.ImageDataGenerator().flow(images, digits, batch_size=64)

    return read("train"), read("t10k")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batchsize", type=int, default=16, help="of each worker")
    parser.add_argument("--numWorker", type=int, default=4, help="maximum number of GPUs")
    arguments = parser.parse_args()

    layers = tf.keras.layers
    model = tf.keras.models.Sequential()
    model.add(layers.Conv2D(16, kernel_size=(3, 3), strides=2, activation="relu", input_shape=(28, 28, 1)))
    model.add(layers.BatchNormalization())
    model.add(layers.Flatten())
    model.add(layers.Dropout(0.25))
    model.add(layers.Dense(10, activation="softmax"))
    fabric = FabricModel(
        model,
        get_datasets,
        loss_function="categorical_crossentropy",
        optimizer=tf.keras.optimizers.Adam(learning_rate=0.002),
    )
    fabric.train(arguments.epochs, arguments.batchsize, arguments.numWorker)

    digest = hashlib.sha256(b"".join(np.asarray(weight).tobytes() for weight in model.get_weights()))
    print(f"weights sha256 {digest.hexdigest()}", flush=True)


if __name__ == "__main__":
    main()
