"""Programs of Keras 2 are recognized by their source, and their errors say what to change."""

from __future__ import annotations

from pathlib import Path

import pytest

from legato.compat.wmla.fabric import keras_generation
from legato.compat.wmla.fabric.keras_generation import choose_keras, explain, find_keras_2

IMPORT = "import tensorflow as tf\n"


def write(folder: Path, text: str) -> Path:
    program = folder / "main.py"
    program.write_text(text)
    return program


@pytest.mark.parametrize(
    ("text", "sign"),
    [
        ("tf.keras.optimizers.Adam(lr=0.1)", "Adam(lr=…)"),
        ("from tensorflow.keras.optimizers import SGD\nSGD(0.1, decay=1e-6)", "SGD(decay=…)"),
        ("opt = tf.keras.optimizers.legacy.Adam(0.1)", "optimizers.legacy"),
        ("from tensorflow.keras import optimizers\nopt = optimizers.legacy.Adam(0.1)", "optimizers.legacy"),
        ("from tensorflow.keras.optimizers.legacy import Adam", "optimizers.legacy"),
        ("from keras.utils import np_utils", "np_utils"),
        ("model.predict_classes(x)", "predict_classes"),
        ("tf.keras.optimizers.Adam(learning_rate=0.1)", None),
        ("schedule(lr=0.1)", None),
        ("def broken(:", None),
    ],
)
def test_the_source_of_a_program_shows_keras_2(text: str, sign: str | None, tmp_path: Path) -> None:
    assert find_keras_2(write(tmp_path, IMPORT + text)) == sign


def test_a_program_without_tensorflow_is_none(tmp_path: Path) -> None:
    assert find_keras_2(write(tmp_path, "import torch\ntorch.optim.Adam(lr=0.1)")) is None
    assert find_keras_2(tmp_path / "missing.py") is None


def test_it_runs_with_keras_2_if_that_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = write(tmp_path, IMPORT + "tf.keras.optimizers.Adam(lr=0.1)")
    monkeypatch.setattr(keras_generation, "_is_installed", lambda package: package == "tf_keras")
    variables, notice = choose_keras(program, {})
    assert variables == {"TF_USE_LEGACY_KERAS": "1"} and notice is not None and "Adam(lr=…)" in notice
    assert choose_keras(program, {"TF_USE_LEGACY_KERAS": "0"}) == ({}, None)
    monkeypatch.setattr(keras_generation, "_is_installed", lambda package: False)
    assert choose_keras(program, {}) == ({}, None)


def test_its_error_says_what_to_change() -> None:
    told = explain(ValueError("Argument(s) not recognized: {'lr': 0.1} by keras.Adam"))
    assert told is not None and "Rename lr= to learning_rate=" in told and "tf_keras" in told
    told = explain(ImportError("`keras.optimizers.legacy` is not supported in Keras 3."))
    assert told is not None and "Use the optimizer of the same name in tf.keras.optimizers" in told
    assert explain(ValueError("Argument(s) not recognized: {'lr': 0.1}")) is None
    assert explain(ValueError("something else in keras")) is None
