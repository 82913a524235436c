"""An upload as code for the platform: laid out as ``_submitted_code/NAME/…``, with its launcher.

What comes is believed in nothing: names that lead elsewhere, links and other special files, and more than may be are
refused while it is read, and nothing is put down under a name that came. The platform looks at the outcome once more,
as at any upload. The same files make the same bytes. Runs none of it.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import tarfile
import zlib
from collections.abc import Collection, Generator, Sequence
from pathlib import PurePosixPath
from typing import IO, Final, NamedTuple, cast

import msgspec

from legato.compat.wmla.names import LAUNCHER, SUBMITTED_CODE
from legato.compat.wmla.rest.imports import find_imports, make_launcher
from legato.core.errors import UsageError
from legato.uploads.tar_reader import read_plain_tar, tell_packing

_ENDINGS: Final = (".modelDir.tar", ".tar.gz", ".tgz", ".tar")
OF_MACS: Final = ("._", "__MACOSX", ".DS_Store")
_MIN_MEASURED_BYTES: Final = 2**20
_MAX_NAME_BYTES: Final = 255
_CHUNK_BYTES: Final = 2**20
_NUM_SHOWN: Final = 10
_MAX_PROGRAM_BYTES: Final = 2**20
_EXECUTABLE: Final = 0o100
_INSTEAD: Final = "Send a tar file, gzip or not: tar -czf NAME.modelDir.tar FOLDER"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much may be sent.

    Args:
        packed_bytes: as it comes, all of it.
        unpacked_bytes: of all files.
        ratio: bytes unpacked per byte packed.
        num_files: files and folders.
    """

    packed_bytes: int
    unpacked_bytes: int
    ratio: float
    num_files: int


class Sent(NamedTuple):
    """A file that was sent: its name, and its content, which can be read again from the beginning."""

    name: str
    content: IO[bytes]


class _Member(NamedTuple):
    """An entry of an archive, whose name is safe."""

    path: PurePosixPath
    num_bytes: int
    is_folder: bool
    is_executable: bool


class _Part(NamedTuple):
    """One file that was sent, and how it will lie: in the folder `name`, with `root` before the names in it."""

    sent: Sent
    name: str
    root: PurePosixPath
    members: tuple[_Member, ...]


def repack(
    sent: Sequence[Sent],
    main: str | None,
    model_directory: str | None,
    limits: Limits,
    target: IO[bytes],
    *,
    preloads: bool = True,
) -> str:
    """Write the code of a job.

    Args:
        sent: what came.
        main: the main file, as ``--model-main`` names it. None: the one program, or the one file, that came.
        model_directory: the name of the model directory. None: as what came is called.
        limits: how much it may be.
        target: gets an archive.
        preloads: what the main file imports may be loaded before it begins.

    Returns:
        The first argument of the launcher; see `legato.compat.wmla.names.find_model_directory`.

    Raises:
        UsageError: what came holds something that is refused, or no such main file; the message says what to do.
    """
    parts: list[_Part] = []
    total = 0
    for one in sorted(sent, key=lambda each: not _is_archive(each.name)):
        # Files that came by themselves are beside those of the model directory.
        beside = parts[0].name if parts else model_directory
        parts.append(_read_archive(one, model_directory, limits) if _is_archive(one.name) else _read_file(one, beside))
        total = sum(member.num_bytes for part in parts for member in part.members)
        num_members = sum(len(part.members) for part in parts)
        _check_size(limits, total, num_members)
    found = _find_main(parts, main)
    # Packed only if it has to be: a file full of zeros would look like a bomb to the platform.
    packs = total > limits.packed_bytes // 2
    with contextlib.ExitStack() as stack:
        if packs:
            packed = gzip.GzipFile(filename="", mode="wb", fileobj=target, mtime=0)
            target = cast("IO[bytes]", stack.enter_context(packed))
        tar = stack.enter_context(tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT))
        launcher = make_launcher(_find_imports(parts, PurePosixPath(found), limits) if preloads else ())
        _add(tar, PurePosixPath(LAUNCHER), len(launcher), io.BytesIO(launcher), is_executable=False)
        for part in parts:
            _copy(part, limits, tar)
    return found


def hash_content(content: IO[bytes]) -> str:
    """Return the SHA-256 of a file, which is at its beginning then."""
    content.seek(0)
    digest = hashlib.sha256()
    while chunk := content.read(_CHUNK_BYTES):
        digest.update(chunk)
    content.seek(0)
    return digest.hexdigest()


# ---------------------------------------------------------------- what came


def _is_archive(name: str) -> bool:
    return name.endswith(_ENDINGS)


def _read_file(sent: Sent, beside: str | None) -> _Part:
    path = _check_name(PurePosixPath(sent.name.replace("\\", "/")).name)
    num_bytes = sent.content.seek(0, io.SEEK_END)
    folder = beside or path.stem.strip(".") or path.name
    return _Part(sent, folder, PurePosixPath(folder), (_Member(path, num_bytes, False, False),))


def _read_archive(sent: Sent, model_directory: str | None, limits: Limits) -> _Part:
    members = tuple(member for member, _ in _iterate(sent, limits))
    files = [member.path for member in members if not member.is_folder]
    if not files:
        raise UsageError(f"There is no file in {sent.name[:100]!a}. Pack the folder of your program.")
    # What Macs put beside files tells nothing of how they lie.
    own = [path for path in files if not path.parts[0].startswith(OF_MACS)] or files
    tops = {path.parts[0] for path in own}
    if len(tops) == 1 and all(len(path.parts) > 1 for path in own):
        # As their command packs: the model directory itself is on top.
        return _Part(sent, tops.pop(), PurePosixPath(), members)
    stem = next(sent.name.removesuffix(ending) for ending in _ENDINGS if sent.name.endswith(ending))
    folder = model_directory or _check_name(PurePosixPath(stem.replace("\\", "/")).name or "model").name
    return _Part(sent, folder, PurePosixPath(folder), members)


def _iterate(sent: Sent, limits: Limits) -> Generator[tuple[_Member, IO[bytes] | None]]:
    """Yield the entries of an archive, and the content of those that are files."""
    packed_bytes = sent.content.seek(0, io.SEEK_END)
    most = min(limits.unpacked_bytes, max(int(limits.ratio * packed_bytes), _MIN_MEASURED_BYTES))
    if (packing := tell_packing(sent.content)) is not None:
        raise UsageError(f"Cannot unpack {sent.name[:100]!a}: it is {packing}. {_INSTEAD}")
    num_bytes = num_members = 0
    try:
        for found, content in read_plain_tar(sent.content, f"{sent.name[:100]!a}"):
            num_members += 1
            num_bytes += found.size
            _check_size(limits, num_bytes, num_members)
            if found.size < 0 or num_bytes > most:
                raise _too_much(f"unpacked it has more than {limits.ratio:g} bytes for each byte packed")
            path = _check_name(found.name)
            if path.parts:
                size = 0 if content is None else found.size
                yield _Member(path, size, found.isdir(), bool(found.mode & _EXECUTABLE)), content
    except (tarfile.TarError, zlib.error, EOFError, OSError, ValueError, RecursionError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"Cannot unpack {sent.name[:100]!a}: it is no tar file, or damaged. Pack it again.") from error


def _check_name(name: str) -> PurePosixPath:
    """Return the name of an entry as a path; empty for the top.

    Raises:
        UsageError: it leads elsewhere, or no file can have it.
    """
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
        raise UsageError(f"The name {name[:200]!a} leads out of the model directory. Pack the folder of your program.")
    try:
        is_long = any(len(part.encode()) > _MAX_NAME_BYTES for part in path.parts)
    except UnicodeEncodeError:
        is_long = True
    if is_long or not name:
        raise UsageError(f"The name {name[:200]!a} cannot be used for a file. Rename it.")
    return path


def _check_size(limits: Limits, num_bytes: int, num_members: int) -> None:
    if num_bytes > limits.unpacked_bytes:
        raise _too_much(f"unpacked it has more than {limits.unpacked_bytes} bytes")
    if num_members > limits.num_files:
        raise _too_much(f"it has more than {limits.num_files} files and folders")


def _too_much(why: str) -> UsageError:
    return UsageError(f"The upload is too large: {why}. Put data into the data directory.")


def _find_main(parts: Sequence[_Part], main: str | None) -> str:
    files = {part.root / member.path for part in parts for member in part.members if not member.is_folder}
    if main is None:
        return str(SUBMITTED_CODE / _guess_main(parts, files))
    path = PurePosixPath(main)
    if path.is_absolute():
        return main
    if ".." in path.parts:
        raise UsageError(f"The main file {main[:200]!a} leads out of the model directory. Name it by its path there.")
    for name in dict.fromkeys(part.name for part in parts):
        if PurePosixPath(name, path) in files:
            return str(PurePosixPath(SUBMITTED_CODE, name, path))
    if path in files:
        return str(SUBMITTED_CODE / path)
    if not files:
        raise UsageError(
            f"The upload is empty, and the main file {main[:200]!a} is not absolute. Send it in a part 'file'."
        )
    _refuse_packed(parts)
    raise UsageError(f"The main file {main[:200]!a} is not in the upload, which has: {_show(files)}. Name one of them.")


def _guess_main(parts: Sequence[_Part], files: Collection[PurePosixPath]) -> PurePosixPath:
    """Return the one program among the files, or the one file."""
    programs = [path for path in files if path.suffix == ".py" and not _is_of_macs(path)]
    if len(programs) == 1:
        return programs[0]
    _refuse_packed(parts)
    if len(files) == 1:
        return next(iter(files))
    shown = f", which has: {_show(programs or files)}" if files else ""
    raise UsageError(f"There is no --model-main FILE in the arguments. Name the program in the model directory{shown}.")


def _refuse_packed(parts: Sequence[_Part]) -> None:
    """Raise UsageError if the program may be in a file that is not unpacked."""
    for part in parts:
        if not _is_archive(part.sent.name) and (packing := tell_packing(part.sent.content)) is not None:
            raise UsageError(f"{part.sent.name[:100]!a} is {packing}, which is not unpacked here. {_INSTEAD}")


def _is_of_macs(path: PurePosixPath) -> bool:
    return any(part.startswith(OF_MACS) for part in path.parts)


def _show(files: Collection[PurePosixPath]) -> str:
    more = f" and {len(files) - _NUM_SHOWN} more" if len(files) > _NUM_SHOWN else ""
    return ", ".join(sorted(map(str, files))[:_NUM_SHOWN]) + more


def _find_imports(parts: Sequence[_Part], main: PurePosixPath, limits: Limits) -> tuple[str, ...]:
    beside = {name.partition(".")[0] for part in parts for member in part.members for name in member.path.parts}
    for part in parts:
        if any(_place(part, member) == main for member in part.members):
            return find_imports(_read_start(part, main, limits).decode(errors="replace"), beside)
    # A program that is on the machines is not ours to read.
    return ()


def _read_start(part: _Part, path: PurePosixPath, limits: Limits) -> bytes:
    if not _is_archive(part.sent.name):
        part.sent.content.seek(0)
        return part.sent.content.read(_MAX_PROGRAM_BYTES)
    with contextlib.closing(_iterate(part.sent, limits)) as entries:
        for member, content in entries:
            if content is not None and _place(part, member) == path:
                return content.read(_MAX_PROGRAM_BYTES)
    return b""


# ---------------------------------------------------------------- what goes


def _copy(part: _Part, limits: Limits, tar: tarfile.TarFile) -> None:
    if not _is_archive(part.sent.name):
        part.sent.content.seek(0)
        _add(tar, _place(part, part.members[0]), part.members[0].num_bytes, part.sent.content, is_executable=False)
        return
    for member, content in _iterate(part.sent, limits):
        if content is not None:
            _add(tar, _place(part, member), member.num_bytes, content, is_executable=member.is_executable)
        elif member.is_folder:
            made = tarfile.TarInfo(str(_place(part, member)))
            made.type, made.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(made)


def _place(part: _Part, member: _Member) -> PurePosixPath:
    return SUBMITTED_CODE / part.root / member.path


def _add(tar: tarfile.TarFile, path: PurePosixPath, num_bytes: int, content: IO[bytes], *, is_executable: bool) -> None:
    made = tarfile.TarInfo(str(path))
    made.size, made.mode = num_bytes, 0o755 if is_executable else 0o644
    tar.addfile(made, content)
