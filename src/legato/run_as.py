"""The former place of `legato.system.run_as`. A driver that began before an upgrade in place runs it by this path.

It runs without Legato on its path, so it imports nothing of Legato.
"""

from __future__ import annotations

import runpy
from pathlib import Path

if __name__ == "__main__":
    runpy.run_path(str(Path(__file__).parent / "system" / "run_as.py"), run_name="__main__")
