"""The former place of `legato.train.process.command`, which the orders of stored jobs name."""

from __future__ import annotations

import sys
from pathlib import Path

from legato.train.process.command import main

__all__ = ["main"]

if __name__ == "__main__":
    # The worker put this folder first in `sys.path`; a program must not import from it.
    sys.path[:] = [entry for entry in sys.path if Path(entry) != Path(__file__).parent]
    main(sys.argv[1:])
