"""Reads the weights of a checkpoint into models, also in a program that does not train. Never writes a checkpoint."""

from __future__ import annotations

from pathlib import Path

import torch

from legato.core.errors import CheckpointError, UsageError
from legato.train.checkpoints.checkpoint import load
from legato.train.state.training_state import copy_model


@torch.no_grad()
def load_weights(path: str | Path, *models: torch.nn.Module) -> int:
    """Read the weights of a job's models from a checkpoint into models of the same structure, on any device.

    The states of optimizers and other objects are not read: to continue the training, resume the job.

    Args:
        path: of a file ``step-00001234.legato``.
        models: as many as the job had, in the order in which they were prepared; their weights are overwritten.

    Returns:
        The step after which the checkpoint was written.

    Raises:
        CheckpointError: the file cannot be read, or belongs to other models; some models may be overwritten already.
        UsageError: no model is given.
    """
    if not models:
        raise UsageError("There is no model to read the weights into. Give one: legato.load_weights(path, model).")
    found = load(path)
    saved = found.state["models"]
    if len(saved) != len(models):
        raise CheckpointError(
            f"Cannot take the weights of {found.path}: it is of a job of {len(saved)} models, and {len(models)} are "
            "given. Give all of them, in the order in which the job prepared them."
        )
    for model, one in zip(models, saved, strict=True):
        copy_model(model, one)
    return found.step
