"""The former name of `legato.train.process.worker`, which the records of running warm parents hold."""

from __future__ import annotations

import sys

from legato.train.process.worker import main

__all__ = ["main"]

if __name__ == "__main__":
    main(sys.argv[1:])
