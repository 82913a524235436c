"""The former name of `legato.control.drivers.process`. Servers that began before an upgrade in place use it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from legato.control.drivers.process import main

if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main(Path(sys.argv[1])))
