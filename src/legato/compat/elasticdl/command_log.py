"""The commands of the plugin on disk: a state, and the commands since. A new driver reads them and continues.

Each entry is written to the kernel before its effect is visible, so it outlasts the driver. Decides nothing.
"""

from __future__ import annotations

import io
import logging
from pathlib import Path
from typing import Final

import msgspec

from legato.compat.elasticdl.commands import Command, State, StateMachine
from legato.core.errors import UsageError
from legato.driver.journal import replace_file
from legato.system.decoding import decode

_log = logging.getLogger(__name__)

_MAX_COMMANDS: Final = 20_000  # then a state is written, which replaces them


class LogHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The first line.

    Args:
        port: on which workers find the plugin; 0 if it is not chosen yet.
        state: from which the commands continue; None for the beginning.
    """

    port: int = 0
    state: State | None = None


class CommandLog:
    """The file of one plugin.

    Args:
        path: of it; need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._port = 0
        self._file: io.FileIO | None = None
        self._num_commands = 0

    def read(self) -> tuple[LogHeader, list[Command]]:
        """Return the state and the commands since; a last line that a crash left incomplete is skipped.

        Raises:
            UsageError: the file is from another version of Legato.
        """
        try:
            first, *rest = self._path.read_bytes().splitlines()
        except (FileNotFoundError, ValueError):
            return LogHeader(), []
        try:
            head = decode(first, LogHeader)
        except msgspec.MsgspecError as error:
            raise UsageError(
                f"Cannot continue with the tasks in {self._path}: {error}. They were written by another version of "
                "Legato; start the job from scratch."
            ) from error
        commands: list[Command] = []
        for line in rest:
            try:
                commands.append(decode(line, Command))
            except msgspec.MsgspecError:
                break
        return head, commands

    def begin(self, port: int, machine: StateMachine) -> None:
        """Write a state, which replaces the content of the file.

        Args:
            port: on which workers find the plugin.
            machine: the state machine whose state to write.
        """
        self._port = port
        self.close()
        try:
            replace_file(self._path, msgspec.json.encode(LogHeader(port=port, state=machine.state)) + b"\n")
            self._file = self._path.open("ab", buffering=0)
        except OSError as error:
            # Only a new driver needs the file; the present job continues. The next command tries again.
            _log.warning("Cannot write %s: %s", self._path, error)
        self._num_commands = 0

    def note(self, command: Command, machine: StateMachine) -> None:
        """Append a command that was carried out.

        Args:
            command: to append.
            machine: the state machine after the command.
        """
        line = msgspec.json.encode(command) + b"\n"
        try:
            is_whole = self._file is not None and self._file.write(line) == len(line)
        except OSError as error:
            _log.warning("Cannot write %s: %s", self._path, error)
            is_whole = False
        self._num_commands += 1
        if not is_whole or self._num_commands >= _MAX_COMMANDS:
            # Without a missing line the later ones would have another meaning.
            self.begin(self._port, machine)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
