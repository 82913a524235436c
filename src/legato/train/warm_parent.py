"""The former name of `legato.train.process.warm_parent`. Drivers that began before an upgrade in place use it."""

from __future__ import annotations

import sys

from legato.train.process.warm_parent import main

if __name__ == "__main__":
    main(sys.argv[1:])
