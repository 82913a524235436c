"""The former name of `legato.system.processes`. A driver that began before an upgrade in place runs it by this name."""

from __future__ import annotations

import sys

from legato.system.processes import kill_marked

if __name__ == "__main__":
    kill_marked(sys.argv[1])
