"""Downloads files of a job: each completely or not at all, resuming after a lost connection.

The server and the job's program choose the names, so every name is checked: nothing is written outside of the given
folder. A new or empty folder is marked as a download, so that it is not uploaded as code.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from legato.api.outputs import File, Files
from legato.client.connection import Line
from legato.core.errors import ServerError, Unavailable, UsageError

if TYPE_CHECKING:
    import httpx

DOWNLOAD_MARK: Final = ".legato-download"
_MARKED: Final = "'legato download' made this folder, so it is not uploaded as code. To upload it, delete this file.\n"
_SCRATCH: Final = ".part"
_PARTIAL: Final = 206


class FileIsThere(UsageError):
    """A file to write exists already."""

    def __init__(self, to: Path, there: Path, remedy: str = "overwrite=True") -> None:
        super().__init__(
            f"Cannot download to '{to}': '{there}' exists already. Choose another place, or overwrite with {remedy}."
        )
        self.to = to
        self.there = there


def list_files(line: Line, job: str, path: str = "", *, is_recursive: bool = False) -> Files:
    """List a folder of a job, or one file; `Files.is_complete` says whether the list is complete.

    Args:
        line: the connection to the server.
        job: its id.
        path: from the top of what the job shows.
        is_recursive: include the content of folders.
    """
    params = {"path": path or None, "recursive": "true" if is_recursive else None}
    return line.ask(Files, "GET", f"/jobs/{job}/files", params=params)


def download(line: Line, job: str, path: str, to: Path, *, is_overwriting: bool) -> list[Path]:
    """Download a file, or all files of a folder, into the folder ``to``; return the paths of the written files.

    Args:
        line: the connection to the server.
        job: its id.
        path: path below the job's folder. Empty: everything.
        to: the target folder, made if it is missing. The last part of ``path`` is the name in it.
        is_overwriting: replace existing files.

    Raises:
        UsageError: a file exists already or cannot be written; the message names it.
    """
    if path.startswith("/"):
        raise UsageError(
            f"Cannot download '{path}': it begins with '/'. Give a path such as work/model.pt; "
            "'legato download JOB --list' lists them."
        )
    path = path.rstrip("/")
    base = PurePosixPath(path).parent
    files = list(_walk(line, job, path))
    wanted = [(file, _place(to, PurePosixPath(file.path).relative_to(base))) for file in files]
    if not wanted:
        raise UsageError(
            f"Cannot download '{path or '.'}': it contains no file. To list the files: legato download JOB --list"
        )
    there = [target for _, target in wanted if target.exists()]
    if there and not is_overwriting:
        raise FileIsThere(to, there[0])
    for file, target in wanted:
        try:
            mark = _find_mark(target.parent)
            target.parent.mkdir(parents=True, exist_ok=True)
            _fetch(line, f"/jobs/{job}/files/{quote(file.path)}", target)
            os.utime(target, (file.modified_at, file.modified_at))
            if mark is not None:
                mark.write_text(_MARKED)
        except OSError as error:
            raise UsageError(f"Cannot write '{target}': {error.strerror or error}. Fix that and try again.") from error
    return [target for _, target in wanted]


def download_code(line: Line, sha256: str, to: Path, *, is_overwriting: bool) -> Path:
    """Download uploaded code as a zip file, and return its path.

    Args:
        line: the connection to the server.
        sha256: of the code.
        to: the file to write; its folder is made if it is missing.
        is_overwriting: replace an existing file.

    Raises:
        UsageError: the file exists already, or cannot be written.
        NotFound: there is no such code that you may use.
    """
    if to.exists() and not is_overwriting:
        raise FileIsThere(to, to)
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        _fetch(line, f"/code/{quote(sha256, safe='')}/archive", to)
    except OSError as error:
        raise UsageError(f"Cannot write '{to}': {error.strerror or error}. Fix that and try again.") from error
    return to


def _walk(line: Line, job: str, path: str) -> Iterator[File]:
    """Yield all files below a path; folder by folder if there are too many for one answer."""
    found = list_files(line, job, path, is_recursive=True)
    if found.is_complete:
        yield from (item for item in found.items if item.kind == "file")
        return
    found = list_files(line, job, path)
    if not found.is_complete:
        raise UsageError(
            f"Cannot download '{path or '.'}': it has more entries than the server lists, or names that are not text. "
            "Download the files that you need one by one."
        )
    for item in found.items:
        if item.kind == "file":
            yield item
        else:
            yield from _walk(line, job, item.path)


def _find_mark(folder: Path) -> Path | None:
    """Return the folder to mark as a download when a file is written here: the topmost new or empty folder.

    Returns None if the folder existed and was not empty, or is in a marked folder.
    """
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    if not new and any(folder.iterdir()):
        return None
    top = new[-1] if new else folder
    is_marked = any((path / DOWNLOAD_MARK).exists() for path in top.absolute().parents)
    return None if is_marked else top / DOWNLOAD_MARK


def _place(to: Path, name: PurePosixPath) -> Path:
    """Return the target path of a file.

    Raises:
        ServerError: the file's name leads outside of the folder.
    """
    odd = name.is_absolute() or not name.parts or any(part in ("..", ".") or "\0" in part for part in name.parts)
    if odd or any("\\" in part or ":" in part for part in name.parts if os.name == "nt"):
        raise ServerError(f"The server names a file '{name}', which would lie outside of '{to}'. Nothing was written.")
    return to.joinpath(*name.parts)


def _fetch(line: Line, path: str, target: Path) -> None:
    scratch = target.with_name(target.name + _SCRATCH)
    tries = line.begin_tries()
    etag: str | None = None
    try:
        with scratch.open("wb") as stream:
            while True:
                # No compression, because ranges count the bytes that are sent.
                headers = {"Accept-Encoding": "identity"}
                if etag is not None and stream.tell():
                    headers |= {"Range": f"bytes={stream.tell()}-", "If-Range": etag}
                try:
                    with line.open(path, headers=headers) as response:
                        if response.status_code != _PARTIAL:
                            stream.seek(0)
                            stream.truncate()
                        etag = _read_etag(response)
                        for chunk in response.iter_bytes():
                            stream.write(chunk)
                            tries.go_on()
                    break
                except Unavailable as refusal:
                    tries.wait(refusal, refusal.__cause__)
        scratch.replace(target)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise


def _read_etag(response: httpx.Response) -> str | None:
    """Return the strong ETag of an answer; None if there is none, so that the download cannot be resumed."""
    etag = response.headers.get("etag")
    if etag is None or etag.startswith("W/") or "content-encoding" in response.headers:
        return None
    return str(etag)
