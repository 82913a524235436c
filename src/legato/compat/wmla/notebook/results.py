"""Fetches the results of a notebook's job: weights for the model in the notebook, and all files as a zip file."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import torch

from legato.client.jobs import Job
from legato.compat.wmla import names
from legato.compat.wmla.fabric.keras_variables import is_keras_2, keras_of
from legato.core.errors import UsageError

_RESULT: Final = f"work/{names.MODEL}"
_FINAL: Final = f"{_RESULT}/{names.TRAINED}/model_epoch_final"


def load_weights(job: Job, given: Mapping[str, Any], say: Callable[[str], None]) -> None:
    """Load the trained weights into the model of a notebook, and with PyTorch also the optimizer's state.

    Args:
        job: the job that has trained the model.
        given: the arguments of FabricModel by name.
        say: prints a line.
    """
    model = given["model"]
    with tempfile.TemporaryDirectory() as folder:
        if keras_of(model) is not None:
            (path,) = job.download(folder, f"{_FINAL}.keras")
            load_keras(path, model, given.get("keras_custom_objects") or {}, say)
            return
        for target, ending in ((model, ".pth"), (given["optimizer"], "_optimizer_state.pth")):
            (path,) = job.download(folder, _FINAL + ending)
            target.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))


def load_keras(path: Path, model: Any, custom_objects: Mapping[str, Any], say: Callable[[str], None]) -> None:
    """Load the weights of a saved Keras model into a model. If the model is not built, only print that."""
    keras = keras_of(model)
    if not model.built:
        say("The model in this notebook is not built, so it has no weights to replace. download() saves the result.")
    elif is_keras_2(keras):
        saved = keras.models.load_model(path, custom_objects=dict(custom_objects), compile=False)
        model.set_weights(saved.get_weights())
    else:
        model.load_weights(str(path))


def save_result(job: Job, out_dir: Path) -> Path:
    """Write the result files of a job into a zip file, completely or not at all, and return its path.

    Raises:
        UsageError: the file cannot be written.
    """
    path = out_dir / f"{job.id}.zip"
    scratch = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            found = job.download(folder, _RESULT)
            with zipfile.ZipFile(scratch, "w", zipfile.ZIP_DEFLATED) as packed:
                for file in sorted(found):
                    packed.write(file, file.relative_to(folder))
        scratch.replace(path)
    except OSError as error:
        raise UsageError(f"Cannot write '{path}': {error.strerror or error}. Name another out_dir.") from error
    return path
