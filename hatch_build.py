"""Builds no wheel without the pages of the console: who installs it could not make them any more."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PAGE = "src/legato/server/pages/index.html"
WITHOUT = "LEGATO_WITHOUT_CONSOLE"


class ConsoleHook(BuildHookInterface[Any]):
    """Looks whether the pages are there."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 -- hatchling gives both
        """Refuse to go on without them, unless that is asked for, or the wheel only points at this tree."""
        if version == "editable" or os.environ.get(WITHOUT) or (Path(self.root) / PAGE).is_file():
            return
        raise SystemExit(
            "Cannot build the wheel: the pages of the console are not built. Run 'make console' first, which needs npm "
            f"(Node.js 20.19 or newer); or set {WITHOUT}=1 for a wheel whose server has no console."
        )
