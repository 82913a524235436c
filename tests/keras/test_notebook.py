"""A Keras model in a notebook: it arrives in a job as it was, and its weights come home, with Keras 2 and 3."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.serving import Asker, Server, servers_of

import legato
from legato.compat.wmla.notebook.kernel import find_environment

NOTEBOOK = """
import sys
from pathlib import Path
import numpy as np
import tensorflow as tf
from legato.compat.wmla.fabric.keras_variables import is_keras_2, keras_of
from legato.compat.wmla.notebook.model import FabricModel
from legato.compat.wmla.notebook.notebook_bundle import NotebookBundle, make_files

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
    for name, content in make_files(NotebookBundle(made._given, asked), folder).items():
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


ON_THE_PLATFORM = """
import os, sys
import numpy as np
import tensorflow as tf
from pyedt.fabric_model import FabricModel

def make():
    tf.keras.utils.set_random_seed(3)
    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Input((4,)), layers.Dropout(0.2), layers.Dense(2, activation="softmax")])
    return model, tf.keras.optimizers.Adam(learning_rate=0.02)

def datasets():
    x = np.random.default_rng(1).normal(size=(40, 4)).astype("float32")
    y = np.eye(2, dtype="float32")[(x.sum(1) > 0).astype(int)]
    class Samples:
        def __len__(self):
            return 40
        def __getitem__(self, index):
            return x[index], y[index]
    return Samples(), Samples()

model, optimizer = make()
edt = FabricModel(model, datasets, "categorical_crossentropy", optimizer)
before = [value.copy() for value in model.get_weights()]
edt.train(3, 4, 2, worker_memory="16G", driver_memory="1G")
edt.download(sys.argv[1])

# The same, here.
from legato.compat.wmla.fabric.model import FabricModel as Alone
os.environ |= {"RESULT_DIR": sys.argv[1] + "/alone", "LEGATO_DEVICE": "cpu"}
other, optimizer = make()
Alone(other, datasets, "categorical_crossentropy", optimizer).train(3, 4, 2)
for mine, theirs, first in zip(model.get_weights(), other.get_weights(), before, strict=True):
    assert np.array_equal(mine, theirs) and not np.array_equal(mine, first)
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    settings = {"slots": 2, "loop_interval_s": 0.2, "stability_s": 0.2, "cooldown_factor": 0}
    with servers_of(tmp_path / "home", monkeypatch) as made:
        made.append(Server(tmp_path / "home", wmla_data_root=str(tmp_path), **settings))
        made[0].start()
        yield made[0]


@pytest.mark.timeout(600)
def test_a_notebook_trains_a_model_on_a_server(server: Server, tmp_path: Path) -> None:
    admin = Asker(server)
    (tmp_path / "notebook").mkdir()
    (tmp_path / "notebook/cells.py").write_text(ON_THE_PLATFORM)
    given = {name: value for name, value in os.environ.items() if not name.startswith("LEGATO_")}
    done = subprocess.run(
        [sys.executable, "cells.py", str(tmp_path / "out")],
        env=find_environment(given | {"PYTHONPATH": str(Path(legato.__file__).parents[1])})
        | {name: value for name, value in given.items() if name != "PYTHONPATH"}
        | {"LEGATO_SERVER": server.url, "LEGATO_TOKEN": str(server.secret), "CUDA_VISIBLE_DEVICES": ""},
        cwd=tmp_path / "notebook",
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (name,) = re.findall(r"^Job (wmla-admin-notebook-\d+) finishes with state FINISHED\.$", done.stdout, re.MULTILINE)
    (job,) = admin.get("jobs", name=name)["items"]
    assert " - Using tensorflow backend.\n" in done.stdout
    assert re.search(r"^-{8}END TRAINING: completed 30 iterations in [\d.]+ seconds\.-{8}$", done.stdout, re.MULTILINE)
    with zipfile.ZipFile(tmp_path / f"out/{job['id']}.zip") as packed:
        assert "model/train/model_epoch_final.keras" in packed.namelist()


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
