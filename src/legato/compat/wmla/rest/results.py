"""The result of an execution: its model directory as a zip file, made while it is sent. Keeps no copy of it.

The files are stored as they are, so that its length is known before its first byte.
"""

from __future__ import annotations

import io
import time
import zipfile
from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple

from starlette.responses import Response, StreamingResponse

from legato.compat.wmla.names import MODEL
from legato.compat.wmla.rest.platform import Job, Platform
from legato.compat.wmla.rest.refusals import Refusal

_CHUNK_BYTES: Final = 4 * 2**20

# Of a zip file (APPNOTE 6.3.3, section 4.3): each entry has a header, with room for large numbers, and a descriptor.
_LOCAL_BYTES: Final = 30 + 20
_DESCRIPTOR_BYTES: Final = 24
_CENTRAL_BYTES: Final = 46
_END_BYTES: Final = 22
_LARGE_END_BYTES: Final = 56 + 20
LARGE_BYTES: Final = 2**31 - 1
MANY_FILES: Final = 2**16 - 1
"""Above these the standard library writes larger numbers."""

_FIRST_TIME: Final = 315_532_800.0
_LAST_TIME: Final = 4_354_819_198.0
"""Of a zip file: the years 1980 to 2107."""


class ResultFile(NamedTuple):
    """A file of a result. ``path``: in the job's files; ``name``: in the zip file; ``modified_at``: since 1970."""

    path: str
    name: str
    num_bytes: int
    modified_at: float


async def list_result(platform: Platform, job: Job) -> list[ResultFile]:
    """Return the files of a result.

    Raises:
        Refusal: there are none, or too many, or they are not the user's to see.
    """
    entries = await platform.list_files(job["id"], f"work/{MODEL}", needs_all=True)
    files = [
        ResultFile(entry["path"], entry["path"].removeprefix("work/"), entry["num_bytes"], entry["modified_at"])
        for entry in entries
        if entry["kind"] == "file"
    ]
    if not files:
        raise Refusal(404, f"{job['id']} has no result: its program wrote nothing into RESULT_DIR/{MODEL} yet.")
    return files


def answer_result(platform: Platform, job: Job, files: Sequence[ResultFile], *, with_body: bool = True) -> Response:
    """Return the answer that is a result.

    Args:
        platform: the REST of the platform, with the token of the client.
        job: whose.
        files: of it.
        with_body: False: the head alone; no file is read.
    """
    num_bytes = count_bytes(files)
    # Their clients take the name between ';' and the size behind 'size='.
    headers = {
        "Content-Disposition": f"attachment;filename=dlpd-model-{job['id']}.zip;size={num_bytes}",
        "Content-Length": str(num_bytes),
    }
    if not with_body:
        return Response(None, 200, headers, "application/octet-stream")
    return StreamingResponse(_send(platform, job["id"], files), 200, headers, "application/octet-stream")


def count_bytes(files: Sequence[ResultFile]) -> int:
    """Return how many bytes the zip file has."""
    place = central = 0
    for file in files:
        name_bytes = len(file.name.encode())
        is_large, is_far = file.num_bytes > LARGE_BYTES, place > LARGE_BYTES
        central += _CENTRAL_BYTES + name_bytes + (4 + 16 * is_large + 8 * is_far if is_large or is_far else 0)
        place += _LOCAL_BYTES + name_bytes + file.num_bytes + _DESCRIPTOR_BYTES
    is_large = max(place, central) > LARGE_BYTES or len(files) > MANY_FILES
    return place + central + _END_BYTES + _LARGE_END_BYTES * is_large


async def _send(platform: Platform, job: str, files: Sequence[ResultFile]) -> AsyncIterator[bytes]:
    sink = _Sink()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as packed:
        for file in files:
            written_at = time.gmtime(min(max(file.modified_at, _FIRST_TIME), _LAST_TIME))
            about = zipfile.ZipInfo(file.name, written_at[:6])
            about.external_attr = 0o100644 << 16
            with packed.open(about, "w", force_zip64=True) as entry:
                async for chunk in platform.read_file(job, file.path, file.num_bytes, _CHUNK_BYTES):
                    entry.write(chunk)
                    yield sink.take()
    yield sink.take()


class _Sink(io.RawIOBase):
    """What a zip file is written to: cannot go back, and is emptied again and again."""

    def __init__(self) -> None:
        self._held = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._held += data
        return len(data)

    def take(self) -> bytes:
        """Return what was written since the last time."""
        taken = bytes(self._held)
        self._held.clear()
        return taken
