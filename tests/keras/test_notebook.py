"""A Keras model in a notebook: it arrives in a job as it was, and its weights come home, with Keras 2 and 3."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import legato

NOTEBOOK = """
import sys
from pathlib import Path
import numpy as np
import tensorflow as tf
from legato.compat.wmla.fabric.keras_variables import is_keras_2, keras_of
from legato.compat.wmla.notebook.model import FabricModel
from legato.compat.wmla.notebook.parcel import Parcel, make_files

folder = Path(sys.argv[1])

class Twice(tf.keras.layers.Layer):
    def call(self, x):
        return 2 * x

def datasets():
    x = np.random.default_rng(1).normal(size=(30, 4)).astype("float32")
    class Samples:
        def __len__(self):
            return 30
        def __getitem__(self, index):
            return x[index], np.int64(x[index].sum() > 0)
    return Samples(), Samples()

def squares(targets, outputs):
    return tf.reduce_mean(tf.square(outputs), axis=-1)

def make_model():
    tf.keras.utils.set_random_seed(3)
    layers = tf.keras.layers
    parts = [layers.Input((4,)), layers.Dense(3), Twice(), layers.Dense(2, activation="softmax")]
    return tf.keras.Sequential(parts)

model = make_model()
made = FabricModel(
    model,
    datasets,
    tf.keras.losses.SparseCategoricalCrossentropy(),
    tf.keras.optimizers.Adam(learning_rate=0.02),
    metrics=[tf.keras.metrics.SparseCategoricalAccuracy(), squares],
    keras_custom_objects={"Twice": Twice},
)
asked = {"epoch_number": 2, "batch_size": 4, "engines_number": 2}
if sys.argv[2] == "send":
    assert is_keras_2(keras_of(model)) == (sys.argv[3] == "1")
    for name, content in make_files(Parcel(made._given, asked), folder).items():
        (folder / name).write_bytes(content)
else:
    # As in a job: it trains here.
    made.train(**asked)
    from legato.compat.wmla.notebook.results import load_keras
    home = make_model()
    assert any((mine != want).any() for mine, want in zip(model.get_weights(), home.get_weights(), strict=True))
    load_keras(Path(sys.argv[3]), home, {"Twice": Twice}, print)
    assert all((mine == want).all() for mine, want in zip(model.get_weights(), home.get_weights(), strict=True))
"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("legacy", ["0", "1"])
def test_a_model_is_trained_there_as_a_program_would_train_it(tmp_path: Path, legacy: str) -> None:
    if legacy == "1":
        pytest.importorskip("tf_keras")
    (tmp_path / "notebook.py").write_text(NOTEBOOK)

    def run(*words: object, **environment: str) -> None:
        given = {name: value for name, value in os.environ.items() if not name.startswith("LEGATO_")}
        given |= {"PYTHONPATH": str(Path(legato.__file__).parents[1]), "TF_USE_LEGACY_KERAS": legacy}
        given |= {"CUDA_VISIBLE_DEVICES": "", "FABRIC_BACKEND": "tensorflow", "LEGATO_DEVICE": "cpu"}
        done = subprocess.run(
            [sys.executable, *map(str, words)],
            env=given | environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    (tmp_path / "job").mkdir()
    run("notebook.py", tmp_path, "send", legacy)
    run("main.py", RESULT_DIR=str(tmp_path / "job"))
    sent = tmp_path / "job/model/train/model_epoch_final.keras"
    run("notebook.py", tmp_path, "compare", sent, LEGATO_WORKER="0", RESULT_DIR=str(tmp_path / "program"))
