"""The former name of `legato.train.loop.trainer`, for processes that began before an upgrade in place."""

from __future__ import annotations

from legato.train.former_names import keep_loaded_modules

keep_loaded_modules()

from legato.train.loop.trainer import Callback  # noqa: E402 -- only now is it the right one

__all__ = ["Callback"]
