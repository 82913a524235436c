"""The files of a model, of any framework: each is written completely or not at all."""

from __future__ import annotations

import copy
import functools
import importlib.util
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from legato.compat.wmla import names
from legato.core.errors import UsageError


def write_whole(path: Path, write: Callable[[Path], Any], ending: str = "") -> None:
    """Write a file under another name beside it, and rename it when it is complete.

    Args:
        path: of the file; its folder is created if it does not exist.
        write: writes the file to the path that it receives.
        ending: of the temporary path. Keras chooses the format by it; torch.save stores the path's name in the file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.part{ending}")
    write(scratch)
    scratch.replace(path)


def file_of_model(directory: Path, label: int | str, ending: str) -> Path:
    """Return the path of a model's file.

    >>> str(file_of_model(Path("model"), 3, "_optimizer_state.pth"))
    'model/model_epoch_3_optimizer_state.pth'
    """
    return directory / f"model_epoch_{label}{ending}"


# ------------------------------------------------------------ PyTorch


def save_model(directory: Path, label: int | str, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Write ``model_epoch_LABEL.pth`` and ``model_epoch_LABEL_optimizer_state.pth``: state dicts, on the CPU."""
    for ending, thing in (("_optimizer_state.pth", optimizer), (".pth", model)):
        state = _on_cpu(thing.state_dict())
        write_whole(file_of_model(directory, label, ending), functools.partial(torch.save, state))


def export_onnx(path: Path, model: torch.nn.Module, inputs: Any) -> None:
    """Write a model in ONNX format.

    Args:
        path: of the file.
        model: not changed.
        inputs: a batch of samples, with which the model is traced; the exported model takes batches of any size if the
            model allows it.

    Raises:
        UsageError: a package that the export needs is missing; the message names it.
    """
    if importlib.util.find_spec("onnxscript") is None:
        raise UsageError(
            "torch.onnx needs the package onnxscript, which is not installed. Add it: pip install onnxscript"
        )
    traced = copy.deepcopy(model).cpu().eval()
    arguments = (_on_cpu(inputs),)

    def write(scratch: Path, dynamic_shapes: Any) -> None:
        torch.onnx.export(
            traced, arguments, str(scratch), dynamic_shapes=dynamic_shapes, external_data=False, verbose=False
        )

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            write_whole(path, lambda scratch: write(scratch, [_any_batch(argument) for argument in arguments]))
        except torch.onnx.errors.OnnxExporterError:
            # The graph of some models depends on the size of a batch.
            write_whole(path, lambda scratch: write(scratch, None))


def _any_batch(part: Any) -> Any:
    """Return the dynamic sizes of an argument: the first one of each tensor."""
    if isinstance(part, torch.Tensor):
        return {0: torch.export.Dim.DYNAMIC}
    if isinstance(part, dict):
        return {key: _any_batch(value) for key, value in part.items()}
    return [_any_batch(value) for value in part] if isinstance(part, list | tuple) else None


def _on_cpu(part: Any) -> Any:
    if isinstance(part, torch.Tensor):
        return part.detach().cpu()
    if isinstance(part, dict):
        return {key: _on_cpu(value) for key, value in part.items()}
    if isinstance(part, list | tuple):
        return type(part)(_on_cpu(value) for value in part)
    return part


# ------------------------------------------------------------ all results


def pack_results(result_dir: Path, out_dir: Path, job: str) -> Path:
    """Write ``JOB.zip`` with all files of the job's ``model``, completely or not at all, and return its path.

    Args:
        result_dir: of the job.
        out_dir: directory for the file, created if it does not exist. A ``JOB.zip`` there is not packed into itself.
        job: id of the job.

    Raises:
        UsageError: the file cannot be written.
    """
    path = out_dir / f"{job}.zip"
    found = sorted(file for file in (result_dir / names.MODEL).rglob("*") if file.is_file())

    def pack(scratch: Path) -> None:
        with zipfile.ZipFile(scratch, "w") as packed:
            for file in found:
                if file.resolve() != path.resolve():
                    packed.write(file, file.relative_to(result_dir))

    try:
        write_whole(path, pack)
    except OSError as error:
        raise UsageError(f"Cannot write '{path}': {error.strerror or error}. Name another out_dir.") from error
    return path
