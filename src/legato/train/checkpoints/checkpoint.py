"""Checkpoint files: written completely or not at all, verified before they are used. Never decides when.

One file per checkpoint, ``step-00001234.legato``::

    8 bytes    b"legato" CR LF
    4 bytes    version of this form, little endian
    4 bytes    length of the header
    32 bytes   SHA-256 of the header
    header     JSON: step, meta, payload_bytes, payload_xxh3_128; padded with blanks
    payload    torch.save of nested dicts, lists and tuples of tensors and plain values

The checksums detect damage, not forgery. XXH3 reads a payload about ten times as fast as SHA-256, whose time training
would notice where no core is free.

Form 1 held plain values alone. In form 2 `serialization` says how other kinds of values are written in plain ones.
Both have ``payload_sha256`` instead of ``payload_xxh3_128``, and are read as well. Reading never runs code from the
file: checksums first, then torch's weights-only reader.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import torch
import xxhash
from torch.serialization import get_crc32_options, set_crc32_options

from legato.core.errors import CheckpointError
from legato.train.state.serialization import MAPPINGS, PLAIN

MAGIC: Final = b"legato\r\n"
VERSION: Final = 3

_PREFIX: Final = struct.Struct("<8sII32s")
_FIRST_WITH_XXH3: Final = 3
_PIECE_BYTES: Final = 2**22
_REST_EVERY_S: Final = 0.002
"""Of CPU time: shorter rests would cost more than they spare."""
_MAX_HEADER_BYTES: Final = 16 << 20
_NAME = re.compile(r"step-(\d{8,})\.legato")


class Checkpoint(NamedTuple):
    """One checkpoint, read and verified. ``state`` has its tensors on the CPU."""

    path: Path
    step: int
    meta: dict[str, Any]
    state: Any


class Store:
    """The checkpoints of one job in one directory. Only one process of a job writes.

    Args:
        directory: of the checkpoints; made if it does not exist.
        keep: how many to keep, at least 1.
        warn: called with one line for the user about each file that was skipped.
    """

    def __init__(self, directory: str | Path, keep: int, warn: Callable[[str], None]) -> None:
        if keep < 1:
            raise CheckpointError(f"Cannot keep {keep} checkpoints. Take keep=1 or more.")
        self.directory = Path(directory)
        self.keep = keep
        self._warn = warn

    def save(
        self, state: Any, *, step: int, meta: Mapping[str, Any], rest: Callable[[float], None] = lambda _: None
    ) -> Path:
        """Write a checkpoint, then delete all but the newest ``keep``. Never delete the new one.

        Args:
            state: as `refuse_unreadable` allows it; the caller must not change it before this call returns.
            step: number of the last step that is in the state.
            meta: any value that JSON can hold.
            rest: called again and again with the seconds of CPU time since the last call; it may wait.

        Raises:
            CheckpointError: the checkpoint could not be written; the older checkpoints are still there.
        """
        refuse_unreadable(state)
        path = self.directory / f"step-{step:08d}.legato"
        temporary = self.directory / f".{path.name}.{os.getpid()}.tmp"
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._clear_unfinished()
            with temporary.open("xb") as file:
                _write(file, state, step, meta, rest)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            self._sync_directory()
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise CheckpointError(
                f"Cannot write checkpoint {path}: {error.strerror or error}. "
                "Make room there, or choose another directory; the older checkpoints are untouched."
            ) from error
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        self._prune(path)
        return path

    def newest(self) -> Checkpoint | None:
        """Return the newest checkpoint that can be read, or None. Warn of every newer file that cannot be read."""
        for path in reversed(self.paths()):
            try:
                return load(path)
            except CheckpointError as error:
                self._warn(f"{error} Legato skips it and tries the one before it.")
        return None

    def paths(self) -> list[Path]:
        """Return the files that are named like checkpoints, in order of their step."""
        if not self.directory.is_dir():
            return []
        found = [(int(match[1]), path) for path in self.directory.iterdir() if (match := _NAME.fullmatch(path.name))]
        return [path for _, path in sorted(found)]

    def steps(self) -> list[int]:
        """Return the steps of the files that are named like checkpoints, in order."""
        return [int(match[1]) for path in self.paths() if (match := _NAME.fullmatch(path.name))]

    def _prune(self, written: Path) -> None:
        others = [path for path in self.paths() if path != written]
        for path in others[: max(0, len(others) - (self.keep - 1))]:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                self._warn(f"Cannot delete the old checkpoint {path}: {error.strerror or error}.")

    def _clear_unfinished(self) -> None:
        # A killed writer left this file. If that writer was only cut off and still writes, its rename fails, as it
        # should.
        for path in self.directory.glob(".step-*.legato.*.tmp"):
            path.unlink(missing_ok=True)

    def _sync_directory(self) -> None:
        descriptor = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def load(path: str | Path) -> Checkpoint:
    """Read and verify one checkpoint.

    Raises:
        CheckpointError: the file is incomplete, is no checkpoint, is of a newer version, or cannot be read.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            header, payload = _read_verified(path, file)
    except OSError as error:
        raise CheckpointError(f"Cannot read checkpoint {path}: {error.strerror or error}.") from error
    try:
        state = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    except Exception as error:  # any error at all means that the reader did not accept it
        raise CheckpointError(
            f"Cannot read checkpoint {path}: it holds something other than tensors and plain values ({error})."
        ) from error
    return Checkpoint(path, header["step"], header["meta"], state)


def refuse_unreadable(state: Any, where: str = "state") -> None:
    """Raise CheckpointError for the first thing in a state that the weights-only reader would not give back.

    Allowed are tensors, numbers, strings, bytes, None, dtypes, devices, and dicts, lists, tuples and sets of them.
    """
    kind = type(state)
    if kind in PLAIN or kind in (torch.Tensor, torch.nn.Parameter):
        return
    if kind in MAPPINGS:
        for key, value in state.items():
            refuse_unreadable(key, f"a key of {where}")
            refuse_unreadable(value, f"{where}[{key!r}]")
    elif kind in (list, tuple, set):
        for index, value in enumerate(state):
            refuse_unreadable(value, f"{where}[{index}]")
    else:
        raise CheckpointError(
            f"Cannot save {where}: it is a {kind.__module__}.{kind.__qualname__}. A checkpoint holds tensors, numbers, "
            "strings, and dicts, lists and tuples of them; turn it into one of these in its state_dict()."
        )


class _HashingFile:
    """A file for torch.save that counts and hashes the bytes that it passes on in pieces, and keeps the first error.

    An exception that is raised through torch's writer leaves that writer in the middle of a zip archive; it then raises
    another error from its destructor, which hides the first.
    """

    def __init__(self, file: IO[bytes], rest: Callable[[float], None]) -> None:
        self._file = file
        self._rest = rest
        self._rested_at = time.thread_time()
        self.digest = xxhash.xxh3_128()
        self.num_bytes = 0
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        view = memoryview(data).cast("B")
        for begin in range(0, view.nbytes if self.error is None else 0, _PIECE_BYTES):
            self._write_piece(view[begin : begin + _PIECE_BYTES])
        return view.nbytes

    def _write_piece(self, piece: memoryview) -> None:
        try:
            self._file.write(piece)
        except OSError as error:
            self.error = error
        self.digest.update(piece)
        self.num_bytes += piece.nbytes
        worked_s = time.thread_time() - self._rested_at
        if worked_s > _REST_EVERY_S:
            self._rest(worked_s)
            self._rested_at = time.thread_time()

    def flush(self) -> None:
        pass


def _write(file: IO[bytes], state: Any, step: int, meta: Mapping[str, Any], rest: Callable[[float], None]) -> None:
    # The header comes first in the file, but is known last: space for it is reserved with the largest possible numbers.
    room = len(_header(step, meta, (1 << 63) - 1, "0" * 32))
    file.seek(_PREFIX.size + room)
    hashed = _HashingFile(file, rest)
    with _without_own_checksums():
        torch.save(state, hashed)  # type: ignore[arg-type] # of a file it needs no more than this
    if hashed.error is not None:
        raise hashed.error
    header = _header(step, meta, hashed.num_bytes, hashed.digest.hexdigest()).ljust(room)
    file.seek(0)
    file.write(_PREFIX.pack(MAGIC, VERSION, room, hashlib.sha256(header).digest()) + header)


@contextlib.contextmanager
def _without_own_checksums() -> Iterator[None]:
    """Let torch compute no checksum of each tensor: it takes half of the time, and the header has one of all bytes.

    Recent versions of torch have this option for each thread. Older ones have one for the process, so a file that the
    program saves at the same time has none either; `torch.load` reads it nevertheless.
    """
    before = get_crc32_options()
    set_crc32_options(False)
    try:
        yield
    finally:
        set_crc32_options(before)


def _header(step: int, meta: Mapping[str, Any], payload_bytes: int, checksum: str) -> bytes:
    fields = {"step": step, "meta": dict(meta), "payload_bytes": payload_bytes, "payload_xxh3_128": checksum}
    return json.dumps(fields).encode()


def _read_verified(path: Path, file: IO[bytes]) -> tuple[dict[str, Any], bytes]:
    prefix = file.read(_PREFIX.size)
    if not prefix.startswith(MAGIC[: len(prefix)]):
        raise CheckpointError(f"Cannot read checkpoint {path}: it is not a checkpoint of Legato.")
    if len(prefix) < _PREFIX.size:
        raise _torn(path, "it ends in its first bytes")
    _, version, room, header_sha256 = _PREFIX.unpack(prefix)
    if version > VERSION:
        raise CheckpointError(
            f"Cannot read checkpoint {path}: it has format {version}, and this Legato reads formats up to {VERSION}. "
            "Use a newer Legato."
        )
    if version < 1 or room > _MAX_HEADER_BYTES:
        raise _torn(path, "its first bytes are invalid")
    header_bytes = file.read(room)
    if len(header_bytes) < room or hashlib.sha256(header_bytes).digest() != header_sha256:
        raise _torn(path, "its header does not match its checksum")
    header: dict[str, Any] = json.loads(header_bytes)
    payload = file.read()
    if len(payload) != header["payload_bytes"]:
        raise _torn(path, f"it holds {len(payload)} bytes of state where {header['payload_bytes']} were written")
    # The header has the checksum of its own version only, unless the version in the first bytes is damaged.
    if version < _FIRST_WITH_XXH3:
        is_same = header.get("payload_sha256") == hashlib.sha256(payload).hexdigest()
    else:
        is_same = header.get("payload_xxh3_128") == xxhash.xxh3_128_hexdigest(payload)
    if not is_same:
        raise _torn(path, "its state does not match its checksum")
    return header, payload


def _torn(path: Path, found: str) -> CheckpointError:
    return CheckpointError(f"Cannot read checkpoint {path}: it is incomplete or damaged: {found}.")
