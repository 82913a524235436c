"""Packs the folder of a program for upload: the same folder always gives the same bytes, so that it is sent once.

Files that ``.legatoignore`` names are left out (patterns as in ``.gitignore``), and so are files that no program needs,
and folders that a download made. Never follows links: a link to a file or folder is refused, because its target may be
missing on the machines.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import itertools
import os
import stat
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from pathspec import GitIgnoreSpec

from legato.client.downloads import DOWNLOAD_MARK
from legato.core.errors import UsageError

IGNORE_FILE: Final = ".legatoignore"
ALWAYS_OUT: Final = (
    *(".git/", ".hg/", ".svn/", "__pycache__/", "*.pyc", ".venv/", "venv/", "node_modules/"),
    *(".mypy_cache/", ".pytest_cache/", ".ruff_cache/", ".ipynb_checkpoints/", ".DS_Store", IGNORE_FILE, DOWNLOAD_MARK),
)

_HOME_MARK: Final = "home-id"
_MARKS_OUT: Final = (DOWNLOAD_MARK, _HOME_MARK)
"""Files in folders that are not uploaded: results of jobs, and the home of a platform, with all earlier uploads."""


class Packed(NamedTuple):
    """A packed folder.

    Args:
        content: a ``.tar.gz`` file, or an archive that the user made.
        sha256: of the content, in hexadecimal digits.
        names: of the files in it, sorted. Empty for an archive that the user made.
    """

    content: bytes
    sha256: str
    names: tuple[str, ...]


def pack(
    folder: Path,
    *,
    max_bytes: int | None = None,
    extra: Mapping[str, bytes] | None = None,
    leave_out: Sequence[str] = (),
) -> Packed:
    """Pack a folder.

    Args:
        folder: with the program.
        max_bytes: maximum size of all files together, before packing. None: no limit.
        extra: additional files, by name.
        leave_out: paths, relative to the folder, of folders in it that are not packed.

    Raises:
        UsageError: it is not a folder, is empty, too large, or contains a link; the message says what to do.
    """
    if not folder.is_dir():
        raise UsageError(f"Cannot upload '{folder}': it is not a folder. Name the folder that contains your program.")
    files = sorted(_files(folder, leave_out))
    if not files:
        raise UsageError(f"Cannot upload '{folder}': it contains no files, or {IGNORE_FILE} excludes all of them.")
    total = sum((folder / name).stat().st_size for name in files)
    if max_bytes is not None and total > max_bytes:
        largest = max(files, key=lambda name: (folder / name).stat().st_size)
        raise UsageError(
            f"Cannot upload '{folder}': its {len(files)} files have {total} bytes, more than {max_bytes}. The largest "
            f"is '{largest}'; name what the program does not need in {IGNORE_FILE}, and keep data elsewhere."
        )
    found = ((name, (folder / name).read_bytes(), os.access(folder / name, os.X_OK)) for name in files)
    given = ((name, content, False) for name, content in sorted((extra or {}).items()))
    twice = set(files) & set(extra or {})
    if twice:
        raise UsageError(f"Cannot upload '{folder}': '{min(twice)}' is a name that Legato needs. Rename that file.")
    return _pack(itertools.chain(found, given))


def explain_absence(folder: Path, name: str) -> str:
    """Return a text that says why a file of a folder is not packed, and what to do.

    Args:
        folder: that was packed.
        name: path of the file, relative to the folder.
    """
    for parent in list(Path(name).parents)[:-1]:
        if (folder / parent / DOWNLOAD_MARK).exists():
            return (
                f"'{parent}' was made by 'legato download', and such folders are not uploaded. Go into it and submit "
                f"from there, or delete '{parent / DOWNLOAD_MARK}'."
            )
        if (folder / parent / _HOME_MARK).exists():
            return (
                f"'{parent}' is the home of a platform, and such folders are not uploaded. Move the program out of it."
            )
    return f"{IGNORE_FILE} excludes it. Remove it there."


def pack_files(files: Mapping[str, bytes]) -> Packed:
    """Pack files that are in no folder.

    Args:
        files: their contents, by name.
    """
    return _pack((name, content, False) for name, content in sorted(files.items()))


def _pack(files: Iterable[tuple[str, bytes, bool]]) -> Packed:
    """Pack files given as name, content, and whether they may be executed."""
    raw = io.BytesIO()
    names = []
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content, is_executable in files:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            entry.mode = 0o755 if is_executable else 0o644
            tar.addfile(entry, io.BytesIO(content))
            names.append(name)
    # Without the time of packing, which gzip would store.
    packed = gzip.compress(raw.getvalue(), compresslevel=6, mtime=0)
    return Packed(packed, hashlib.sha256(packed).hexdigest(), tuple(names))


def _files(folder: Path, leave_out: Sequence[str]) -> Iterator[str]:
    said = folder / IGNORE_FILE
    try:
        patterns = said.read_text().splitlines() if said.is_file() else []
        ignored = GitIgnoreSpec.from_lines([*ALWAYS_OUT, *patterns])
    except (OSError, ValueError) as error:
        raise UsageError(f"Cannot read '{said}': {error}. Write one pattern per line, as in .gitignore.") from error

    def walk(prefix: str) -> Iterator[str]:
        with os.scandir(folder / prefix) as entries:
            for entry in entries:
                name = prefix + entry.name
                if entry.is_dir(follow_symlinks=False):
                    if (
                        name not in leave_out
                        and not ignored.match_file(f"{name}/")
                        and not any((folder / name / mark).exists() for mark in _MARKS_OUT)
                    ):
                        yield from walk(f"{name}/")
                elif not ignored.match_file(name):
                    if not stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode):
                        raise UsageError(
                            f"Cannot upload '{folder / name}': it is a link or another special file. Put a copy in its "
                            f"place, or name it in {IGNORE_FILE}."
                        )
                    yield name

    yield from walk("")
