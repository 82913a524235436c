"""Keeps processes that began before an upgrade in place running: their modules get their present names too.

For example, such a process has loaded ``legato.train.session``. A module that it imports after the upgrade comes from
the new version and imports ``legato.train.loop.session``. It must get the module that holds the state of this process,
not a second one.
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
        # If the former module is only a stub that imports the present one, this process had not loaded it before the
        # upgrade.
        if module is not None and not (module.__doc__ or "").startswith("The former "):
            sys.modules.setdefault(f"legato.train.{file.parent.name}.{file.stem}", module)
