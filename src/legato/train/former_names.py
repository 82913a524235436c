"""Keeps processes that began before an upgrade in place running: their modules get their present names too.

Such a process has loaded, say, ``legato.train.session``. What it imports only now comes from the new version and asks
for ``legato.train.loop.session``. It must get the module that holds the state of this process, not a second one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

_FORMER: Final = {
    "buffers": "moving",
    "checkpoint_interval": "every",
    "control_sockets": "mesh",
    "fast_forward": "replay",
    "hashing": "mix",
    "membership_client": "cohort",
    "reporting": "telling",
    "state_transfer": "state",
    "step_guards": "gates",
    "training_state": "belongings",
    "writer": "checkpoint_writer",
}
"""By its present name: what a module was called, where that is not the same."""


def keep_loaded_modules() -> None:
    """Give each loaded module with a former name its present name too. Does nothing in other processes."""
    for file in Path(__file__).parent.glob("*/*.py"):
        module = sys.modules.get(f"legato.train.{_FORMER.get(file.stem, file.stem)}")
        # A module that only leads on to the present one is none that this process had loaded.
        if module is not None and not (module.__doc__ or "").startswith("The former "):
            sys.modules.setdefault(f"legato.train.{file.parent.name}.{file.stem}", module)
