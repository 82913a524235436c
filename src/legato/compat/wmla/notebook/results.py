"""The results of a notebook's job: weights for the model in the notebook, and all files as a zip file."""

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


def bring_weights(job: Job, given: Mapping[str, Any], say: Callable[[str], None]) -> None:
    """Give a model the weights that were trained, and its optimizer its state if it is PyTorch's.

    Args:
        job: that has trained it.
        given: the arguments of FabricModel, by name.
        say: takes a line, if there is something to say.
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
    """Give a Keras model the weights of one that was saved; one that is not built is left as it is, and told of."""
    keras = keras_of(model)
    if not model.built:
        say("The model here is not built, so it has no weights to replace. The trained one is in download().")
    elif is_keras_2(keras):
        saved = keras.models.load_model(path, custom_objects=dict(custom_objects), compile=False)
        model.set_weights(saved.get_weights())
    else:
        model.load_weights(str(path))


def save_result(job: Job, out_dir: Path) -> Path:
    """Write what a job left for its user into a zip file, whole or not at all, and return where it is.

    Raises:
        UsageError: the folder cannot be written to.
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
