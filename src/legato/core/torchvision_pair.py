"""Finds why an installed torchvision does not work with the installed torch: the two are built as a pair."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import metadata
from typing import Final

_OF_ANOTHER_BUILD: Final = re.compile(r"torchvision::|undefined symbol|torchvision/_C|lib(torch|c10|cudart)")
_ADVICE: Final = (
    "Install both together, from one index: pip install --force-reinstall torch torchvision --index-url "
    "https://download.pytorch.org/whl/cpu (or /whl/cu… for GPUs)."
)


def find_torchvision() -> tuple[str, tuple[str, ...]] | None:
    """Return the version of this environment's torchvision, and its requirements; None: it is not installed."""
    try:
        return metadata.version("torchvision"), tuple(metadata.requires("torchvision") or ())
    except metadata.PackageNotFoundError:
        return None


def explain_torchvision(torch: str, torchvision: str, requirements: Iterable[str], error: str) -> str | None:
    """Describe why torchvision does not work, and what to do.

    Args:
        torch: the installed version.
        torchvision: the installed version.
        requirements: of torchvision, as its metadata have them; they name the torch for which it was built.
        error: of its import.

    Returns:
        None: the two are a pair, and the error has another cause, such as a missing library.

    >>> explain_torchvision("2.12.0+cpu", "0.28.0", ["numpy", "torch (==2.13.0)"], "...").partition(". Install")[0]
    'torchvision 0.28.0 is built for torch 2.13.0, and torch 2.12.0+cpu is installed'
    >>> explain_torchvision("2.13.0+cpu", "0.28.0", ["torch==2.13.0"], "torchvision::nms").partition(". Install")[0]
    'torchvision 0.28.0 comes from another build (for CPUs, or for another CUDA) than the installed torch 2.13.0+cpu'
    >>> explain_torchvision("2.13.0", "0.28.0", ["torch==2.13.0"], "libjpeg.so.62: cannot open shared object file")
    """
    found = filter(None, (re.match(r"torch\s*\(?==\s*([0-9][^\s;,)]*)", each) for each in requirements))
    built_for = next((each[1] for each in found), None)
    if built_for is not None and built_for.partition("+")[0] != torch.partition("+")[0]:
        why = f"torchvision {torchvision} is built for torch {built_for}, and torch {torch} is installed"
    elif _OF_ANOTHER_BUILD.search(error) is None:
        return None
    elif built_for is None:
        why = f"torchvision {torchvision} was not built for the installed torch {torch}"
    else:
        why = (
            f"torchvision {torchvision} comes from another build (for CPUs, or for another CUDA) than the installed "
            f"torch {torch}"
        )
    return f"{why}. {_ADVICE}"
