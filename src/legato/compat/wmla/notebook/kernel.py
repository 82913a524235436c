"""A kernel for Jupyter in which notebooks of WMLA find what they import, unchanged. Starts nothing."""

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
    """Return the variables of a process in which ``from fabric_model import FabricModel`` submits to the platform.

    Args:
        given: variables that it has anyway.
    """
    path = os.pathsep.join([*map(str, _PATH), *filter(None, [given.get("PYTHONPATH")])])
    # Notebooks that came from programs put its libs/fabric.zip on the path; there is none, and none is needed.
    return {"PYTHONPATH": path, "FABRIC_HOME": str(_HERE), "EXEC_TYPE": "notebook"}


def install_kernel(name: str = NAME, prefix: str | None = None) -> Path:
    """Add a kernel to Jupyter, and return where it lies; one of the same name is replaced.

    Args:
        name: by which notebooks ask for it; ``python3`` is what most ask for.
        prefix: of the Python for which it is. None: for this user.

    Raises:
        UsageError: there is no ipykernel for this Python, or the kernel cannot be written.
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
            f"Cannot write the kernel: {error}. Mend its rights, or name another place with --prefix."
        ) from error
