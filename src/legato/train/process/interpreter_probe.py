"""Says what a Python interpreter can run: ``PYTHON interpreter_probe.py [PACKAGE…]`` prints one line of JSON.

Also runs in versions of Python that Legato does not support, so it uses no newer syntax, and imports Legato only after
it has checked the version.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any


def find_installed(packages: list[str]) -> list[str]:
    """Return those of the packages that are installed in this interpreter's environment."""
    found = []
    for name in packages:
        try:
            spec = importlib.util.find_spec(name.partition(".")[0])
        except (ImportError, ValueError):
            continue
        parts = Path(spec.origin or "").parts if spec is not None else ()
        if "site-packages" in parts or "dist-packages" in parts:
            found.append(name)
    return found


def probe(packages: list[str]) -> dict[str, Any]:
    """Return what this interpreter is, and the first error of an import that a worker needs."""
    told: dict[str, Any] = {"python": list(sys.version_info[:3])}
    if sys.version_info < (3, 11):  # noqa: UP036 -- another interpreter than Legato's may run this
        return told
    try:
        import torch

        told["torch"] = str(torch.__version__)
        told["capability"] = torch.backends.cpu.get_cpu_capability()
        from legato.core.version import __version__

        told["legato"] = __version__
        import legato.train.process.worker  # noqa: F401
    except BaseException as error:  # noqa: BLE001 -- an import may raise anything, and the caller shows it
        told["error"] = f"{type(error).__name__}: {error}"
        told["missing"] = getattr(error, "name", None) if isinstance(error, ModuleNotFoundError) else None
        return told
    told["installed"] = find_installed(packages)
    return told


if __name__ == "__main__":
    # The modules beside this script must not hide others.
    del sys.path[0]
    # An import may have printed something before.
    sys.stdout.write("\n" + json.dumps(probe(sys.argv[1:])) + "\n")
