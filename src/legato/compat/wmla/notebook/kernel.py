"""Installs a Jupyter kernel in which unchanged notebooks of WMLA find the modules that they import."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from legato.core.errors import UsageError

NAME: Final = "legato-wmla"
_TITLE: Final = "Python 3 (Legato, as WMLA)"
_HERE: Final = Path(__file__).parent
_PATH: Final = (_HERE / "site", _HERE.parent / "site")


def find_environment(given: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment variables with which ``from fabric_model import FabricModel`` submits to Legato.

    Args:
        given: the present variables, of which ``PYTHONPATH`` is kept.
    """
    path = os.pathsep.join([*map(str, _PATH), *filter(None, [given.get("PYTHONPATH")])])
    # Some notebooks put FABRIC_HOME/libs/fabric.zip on the path. It does not exist and is not needed.
    return {"PYTHONPATH": path, "FABRIC_HOME": str(_HERE), "EXEC_TYPE": "notebook"}


def install_kernel(name: str = NAME, prefix: str | None = None) -> Path:
    """Add a kernel to Jupyter, and return its folder. A kernel of the same name is replaced.

    Args:
        name: of the kernel; most notebooks ask for ``python3``.
        prefix: folder to install it below, such as a virtual environment. None: this user's folder.

    Raises:
        UsageError: this Python has no ipykernel, or the kernel cannot be written.
    """
    if importlib.util.find_spec("ipykernel") is None:
        raise UsageError(f"{sys.executable} has no ipykernel. Add it: {sys.executable} -m pip install ipykernel")
    from ipykernel.kernelspec import install

    try:
        return Path(
            install(
                user=prefix is None,
                prefix=prefix,
                kernel_name=name,
                display_name=_TITLE,
                env=find_environment(),
            )
        )
    except OSError as error:
        raise UsageError(
            f"Cannot write the kernel: {error}. Correct the permissions, or choose another folder with --prefix."
        ) from error
