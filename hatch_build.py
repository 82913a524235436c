"""Builds no wheel without the pages of the console: who installs it could not make them any more."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PAGE = "src/legato/server/pages/index.html"
WITHOUT = "LEGATO_WITHOUT_CONSOLE"
OLDEST_NODE = (20, 19)


class ConsoleHook(BuildHookInterface[Any]):
    """Looks whether the pages are there, and builds them if npm is."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 -- hatchling gives both
        """Refuse to go on without them, unless that is asked for, or the wheel only points at this tree."""
        if version == "editable" or os.environ.get(WITHOUT) or (Path(self.root) / PAGE).is_file():
            return
        npm = find_npm()
        if npm is None:
            raise SystemExit(
                "Cannot build the wheel: the pages of the console are not built, and that needs npm with Node.js "
                f"{'.'.join(map(str, OLDEST_NODE))} or newer. Install it; or set {WITHOUT}=1 for a wheel whose server "
                "has no console."
            )
        for words in (["ci", "--no-audit"], ["run", "build"]):
            done = subprocess.run([npm, *words], cwd=Path(self.root) / "console", check=False)
            if done.returncode:
                raise SystemExit(
                    f"Cannot build the wheel: 'npm {' '.join(words)}' failed in the folder console; its lines are "
                    f"above. Set {WITHOUT}=1 for a wheel whose server has no console."
                )


def find_npm() -> str | None:
    """Return npm, None if there is none with a Node.js that is new enough."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return None
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    numbers = said.strip().removeprefix("v").split(".")[:2]
    return npm if numbers[-1].isdecimal() and tuple(map(int, numbers)) >= OLDEST_NODE else None
