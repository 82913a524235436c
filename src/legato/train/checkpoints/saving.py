"""Checkpoints of a run: when they are due, their content, and resuming from one. Only rank 0 writes."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from legato.core import wire
from legato.core.errors import CheckpointError
from legato.train.checkpoints.checkpoint import Checkpoint, Store
from legato.train.checkpoints.checkpoint_interval import CheckpointInterval
from legato.train.checkpoints.fetching import fetch_newest
from legato.train.checkpoints.writer import BackgroundWriter, copy_to_cpu
from legato.train.process import faults
from legato.train.state.numeric_environment import differences


class Saver:
    """Writes and finds the checkpoints of one run.

    Args:
        directory: of the checkpoints.
        every: the interval between checkpoints; None for the last checkpoint only.
        keep: how many checkpoints to keep.
        identity: the values that a checkpoint and this program must have in common.
        environment: what else the bits of a result depend on; a checkpoint from another environment is loaded with a
            warning.
        program: digests of the program's files; a message names each file that has changed since the checkpoint.
        say: called with each message for the user.
    """

    def __init__(
        self,
        directory: Path,
        every: str | None,
        keep: int,
        identity: dict[str, str],
        environment: dict[str, str],
        program: dict[str, str],
        say: Callable[[wire.Message], None],
    ) -> None:
        self._identity = identity
        self._environment = environment
        self._program = program
        self._say = say
        self._store = Store(directory, keep, warn=lambda text: say(wire.Note(level="warning", text=text)))
        self._writer = BackgroundWriter(self._store, self._on_saved, self._on_failed)
        self._every = CheckpointInterval.parse(every) if every else None
        self._last_time = time.monotonic()
        self._last_step = -1

    def newest(self) -> Checkpoint | None:
        """Return the newest checkpoint that can be read, or None if there is none.

        Raises:
            CheckpointError: the checkpoint belongs to another program, or there are checkpoints, but none can be read.
        """
        fetch_newest(self._store.directory, self._say)
        found = self._store.newest()
        if found is None:
            if there := self._store.paths():
                raise CheckpointError(
                    f"Cannot resume: none of the {len(there)} checkpoints in {self._store.directory} can be read. Put "
                    "a copy of one back, or start from scratch: with --no-resume, or resume=False when the program "
                    "runs alone."
                )
            return None
        theirs = found.meta.get("identity", {})
        differing = [name for name, mine in self._identity.items() if theirs.get(name) != mine]
        if differing:
            what = ", ".join(f"{name} {theirs.get(name)} there, {self._identity[name]} here" for name in differing)
            raise CheckpointError(
                f"Cannot resume from {found.path}: it belongs to another program or setting ({what}). "
                "Start with --no-resume, or use another name or checkpoint directory."
            )
        differing = differences(found.meta.get("environment", {}), self._environment)
        if differing:
            text = (
                f"The checkpoint {found.path} was written in another environment ({'; '.join(differing)}). From step "
                f"{found.step} on the result may differ from that of a run that stays in one environment."
            )
            self._say(wire.Note(level="warning", text=text))
        then = found.meta.get("program", {})
        changed = [name for name, digest in self._program.items() if then.get(name, digest) != digest]
        if changed:
            text = f"The program has changed since the checkpoint of step {found.step}: {', '.join(changed)}."
            self._say(wire.Note(level="warning", text=text))
        self._last_step = found.step
        return found

    def is_due(self, step: int, epochs_ended: range) -> bool:
        """Return whether a checkpoint is due after a step (see `CheckpointInterval.due`)."""
        if self._every is None or step in (0, self._last_step):
            return False
        now = time.monotonic()
        return self._every.due(step=step, epochs_ended=epochs_ended, now=now, last=self._last_time)

    def save(self, read_state: Callable[[], dict[str, Any]], step: int) -> None:
        """Copy a state and write it in the background.

        Args:
            read_state: returns the state; its `CheckpointError` is reported like any other failure to write.
            step: number of the last step that is in the state.
        """
        self._last_time = time.monotonic()
        self._last_step = step
        try:
            private = copy_to_cpu(read_state(), into=self._writer.spare())
        except CheckpointError as error:
            self._on_failed(step, error)
            return
        faults.strike("checkpoint")
        self._writer.submit(
            private, step, {"identity": self._identity, "environment": self._environment, "program": self._program}
        )

    def hurry(self) -> None:
        """Write what is being written as fast as possible, because no step is computed meanwhile."""
        self._writer.hurry()

    def save_unless_there(self, read_state: Callable[[], dict[str, Any]], step: int) -> None:
        """Write a checkpoint before returning, unless another worker has written one that is as new.

        For workers that cannot agree on one that writes: each looks for such a checkpoint and writes, one worker at a
        time.
        """
        self.wait()
        try:
            self._store.directory.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._store.directory, os.O_RDONLY)
        except OSError as error:
            self._on_failed(step, error)
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if step > max(self._store.steps(), default=-1):
                self.save(read_state, step)
                self.wait()
        finally:
            os.close(descriptor)

    def wait(self) -> None:
        """Wait until all checkpoints are written."""
        self._writer.wait()

    def _on_saved(self, step: int, path: Path) -> None:
        self._say(wire.Saved(step=step, path=str(path)))

    def _on_failed(self, step: int, error: Exception) -> None:
        self._say(wire.Note(level="error", text=f"No checkpoint at step {step}, training continues: {error}"))
        self._say(wire.Unsaved(step=step))
