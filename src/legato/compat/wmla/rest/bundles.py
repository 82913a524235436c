"""Repacks an upload as the code of a job: files below ``_submitted_code/NAME/…`` and the launcher.

The upload is not trusted. This module refuses names that point outside of the model directory, links and other special
files, and uploads above the limits. It writes no file under an uploaded name. The platform checks the result again, as
it checks every upload. The same files give the same bytes. Runs none of the code.
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
from legato.uploads.tar_reader import find_packing, read_plain_tar

_ENDINGS: Final = (".modelDir.tar", ".tar.gz", ".tgz", ".tar")
MAC_FILES: Final = ("._", "__MACOSX", ".DS_Store")
_MIN_MEASURED_BYTES: Final = 2**20
_MAX_NAME_BYTES: Final = 255
_CHUNK_BYTES: Final = 2**20
_NUM_SHOWN: Final = 10
_MAX_PROGRAM_BYTES: Final = 2**20
_EXECUTABLE: Final = 0o100
_ADVICE: Final = "Send a tar file, gzip or not: tar -czf NAME.modelDir.tar FOLDER"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of an upload.

    Args:
        packed_bytes: maximum size of the whole upload.
        unpacked_bytes: maximum size of all files.
        ratio: maximum number of unpacked bytes per packed byte.
        num_files: maximum number of files and folders.
    """

    packed_bytes: int
    unpacked_bytes: int
    ratio: float
    num_files: int


class Sent(NamedTuple):
    """An uploaded file: its name, and its content as a seekable file."""

    name: str
    content: IO[bytes]


class _Member(NamedTuple):
    """An entry of an archive, with a name that was checked."""

    path: PurePosixPath
    num_bytes: int
    is_folder: bool
    is_executable: bool


class _Part(NamedTuple):
    """An uploaded file, the `name` of its model directory, and the path `root` before the names of its members."""

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
    """Write the code of a job as an archive.

    Args:
        sent: the uploaded files.
        main: the main file, as ``--model-main`` names it. None: the only program, or the only file, of the upload.
        model_directory: the name of the model directory. None: the name of the uploaded folder or archive.
        limits: of the upload.
        target: the archive is written to it.
        preloads: whether the warm parent may load the modules that the main file imports before the program begins.

    Returns:
        The first argument of the launcher; see `legato.compat.wmla.names.find_model_directory`.

    Raises:
        UsageError: the upload has something that is refused, or no such main file; the message says what to do.
    """
    parts: list[_Part] = []
    total = 0
    for one in sorted(sent, key=lambda each: not _is_archive(each.name)):
        # Single files are put beside the files of the model directory.
        beside = parts[0].name if parts else model_directory
        parts.append(_read_archive(one, model_directory, limits) if _is_archive(one.name) else _read_file(one, beside))
        total = sum(member.num_bytes for part in parts for member in part.members)
        num_members = sum(len(part.members) for part in parts)
        _check_size(limits, total, num_members)
    found = _find_main(parts, main)
    # Compressed only if necessary: the platform would take a compressed file full of zeros for a zip bomb.
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
    """Return the SHA-256 of a file, and rewind the file to its beginning."""
    content.seek(0)
    digest = hashlib.sha256()
    while chunk := content.read(_CHUNK_BYTES):
        digest.update(chunk)
    content.seek(0)
    return digest.hexdigest()


# ---------------------------------------------------------------- reading the upload


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
    # The files that macOS adds to an archive do not show whether the model directory is at its top.
    own = [path for path in files if not path.parts[0].startswith(MAC_FILES)] or files
    tops = {path.parts[0] for path in own}
    if len(tops) == 1 and all(len(path.parts) > 1 for path in own):
        # The model directory itself is at the top, as WMLA's command packs it.
        return _Part(sent, tops.pop(), PurePosixPath(), members)
    stem = next(sent.name.removesuffix(ending) for ending in _ENDINGS if sent.name.endswith(ending))
    folder = model_directory or _check_name(PurePosixPath(stem.replace("\\", "/")).name or "model").name
    return _Part(sent, folder, PurePosixPath(folder), members)


def _iterate(sent: Sent, limits: Limits) -> Generator[tuple[_Member, IO[bytes] | None]]:
    """Yield the entries of an archive, and the content of those that are files."""
    packed_bytes = sent.content.seek(0, io.SEEK_END)
    most = min(limits.unpacked_bytes, max(int(limits.ratio * packed_bytes), _MIN_MEASURED_BYTES))
    if (packing := find_packing(sent.content)) is not None:
        raise UsageError(f"Cannot unpack {sent.name[:100]!a}: it is {packing}. {_ADVICE}")
    num_bytes = num_members = 0
    try:
        for found, content in read_plain_tar(sent.content, f"{sent.name[:100]!a}"):
            num_members += 1
            num_bytes += found.size
            _check_size(limits, num_bytes, num_members)
            if found.size < 0 or num_bytes > most:
                raise _refuse_size(f"it has more than {limits.ratio:g} unpacked bytes per packed byte")
            path = _check_name(found.name)
            if path.parts:
                size = 0 if content is None else found.size
                yield _Member(path, size, found.isdir(), bool(found.mode & _EXECUTABLE)), content
    except (tarfile.TarError, zlib.error, EOFError, OSError, ValueError, RecursionError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(
            f"Cannot unpack {sent.name[:100]!a}: it is not a tar file, or it is damaged. Pack it again."
        ) from error


def _check_name(name: str) -> PurePosixPath:
    """Return the name of an entry as a path, which is empty for the top folder.

    Raises:
        UsageError: the name points outside of the model directory, or no file can have it.
    """
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
        raise UsageError(
            f"The name {name[:200]!a} points outside of the model directory. Pack the folder of your program."
        )
    try:
        is_long = any(len(part.encode()) > _MAX_NAME_BYTES for part in path.parts)
    except UnicodeEncodeError:
        is_long = True
    if is_long or not name:
        raise UsageError(f"The name {name[:200]!a} cannot be used for a file. Rename it.")
    return path


def _check_size(limits: Limits, num_bytes: int, num_members: int) -> None:
    if num_bytes > limits.unpacked_bytes:
        raise _refuse_size(f"it has more than {limits.unpacked_bytes} unpacked bytes")
    if num_members > limits.num_files:
        raise _refuse_size(f"it has more than {limits.num_files} files and folders")


def _refuse_size(why: str) -> UsageError:
    return UsageError(f"The upload is too large: {why}. Put data into the data directory.")


def _find_main(parts: Sequence[_Part], main: str | None) -> str:
    files = {part.root / member.path for part in parts for member in part.members if not member.is_folder}
    if main is None:
        return str(SUBMITTED_CODE / _guess_main(parts, files))
    path = PurePosixPath(main)
    if path.is_absolute():
        return main
    if ".." in path.parts:
        raise UsageError(
            f"The main file {main[:200]!a} points outside of the model directory. Give its path in the model directory."
        )
    for name in dict.fromkeys(part.name for part in parts):
        if PurePosixPath(name, path) in files:
            return str(PurePosixPath(SUBMITTED_CODE, name, path))
    if path in files:
        return str(SUBMITTED_CODE / path)
    if not files:
        raise UsageError(
            f"The upload is empty, and the main file {main[:200]!a} is not an absolute path. Send it in a part 'file'."
        )
    _refuse_compressed(parts)
    raise UsageError(f"The main file {main[:200]!a} is not in the upload, which has: {_show(files)}. Name one of them.")


def _guess_main(parts: Sequence[_Part], files: Collection[PurePosixPath]) -> PurePosixPath:
    """Return the only Python program among the files, or the only file.

    Raises:
        UsageError: there is not exactly one program, and not exactly one file.
    """
    programs = [path for path in files if path.suffix == ".py" and not _is_mac_file(path)]
    if len(programs) == 1:
        return programs[0]
    _refuse_compressed(parts)
    if len(files) == 1:
        return next(iter(files))
    shown = f", which has: {_show(programs or files)}" if files else ""
    raise UsageError(f"There is no --model-main FILE in the arguments. Name a program of the model directory{shown}.")


def _refuse_compressed(parts: Sequence[_Part]) -> None:
    """Raise UsageError if the program may be in a compressed file that Legato does not unpack."""
    for part in parts:
        if not _is_archive(part.sent.name) and (packing := find_packing(part.sent.content)) is not None:
            raise UsageError(f"{part.sent.name[:100]!a} is {packing}, which Legato does not unpack. {_ADVICE}")


def _is_mac_file(path: PurePosixPath) -> bool:
    return any(part.startswith(MAC_FILES) for part in path.parts)


def _show(files: Collection[PurePosixPath]) -> str:
    more = f" and {len(files) - _NUM_SHOWN} more" if len(files) > _NUM_SHOWN else ""
    return ", ".join(sorted(map(str, files))[:_NUM_SHOWN]) + more


def _find_imports(parts: Sequence[_Part], main: PurePosixPath, limits: Limits) -> tuple[str, ...]:
    beside = {name.partition(".")[0] for part in parts for member in part.members for name in member.path.parts}
    for part in parts:
        if any(_place(part, member) == main for member in part.members):
            return find_imports(_read_start(part, main, limits).decode(errors="replace"), beside)
    # The server does not read a program that is on the machines.
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


# ---------------------------------------------------------------- writing the archive


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
