"""The former name of `legato.train.checkpoints.weights`, for processes that began before an upgrade in place."""

from __future__ import annotations

from legato.train.former_names import keep_loaded_modules

keep_loaded_modules()

from legato.train.checkpoints.weights import load_weights  # noqa: E402 -- only now is it the right one

__all__ = ["load_weights"]
