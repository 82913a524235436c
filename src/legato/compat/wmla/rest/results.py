"""Sends the result of an execution: its files in ``model``, and TensorBoard's files among its logs, as a zip file.

The zip file is made while it is sent.

The files are stored without compression, so that the size of the zip file is known before the first byte is sent.
"""

from __future__ import annotations

import io
import time
import zipfile
from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple

from starlette.responses import Response, StreamingResponse

from legato.compat.wmla.names import LOG, MODEL
from legato.compat.wmla.rest.platform import Job, Platform
from legato.compat.wmla.rest.refusals import Refusal

_TENSORBOARD: Final = "events.out.tfevents."
"""The beginning of the names of TensorBoard's files, which programs write into LOG_DIR/tb."""
_CHUNK_BYTES: Final = 4 * 2**20

# Sizes in a zip file (APPNOTE 6.3.3, section 4.3). Each entry has a header, with a zip64 field, and a descriptor.
_LOCAL_BYTES: Final = 30 + 20
_DESCRIPTOR_BYTES: Final = 24
_CENTRAL_BYTES: Final = 46
_END_BYTES: Final = 22
_LARGE_END_BYTES: Final = 56 + 20
LARGE_BYTES: Final = 2**31 - 1
MANY_FILES: Final = 2**16 - 1
"""Above `LARGE_BYTES` and `MANY_FILES` the standard library writes zip64 fields."""

_FIRST_TIME: Final = 315_532_800.0
_LAST_TIME: Final = 4_354_819_198.0
"""The first and the last time that a zip file can store, in the years 1980 and 2107, in seconds since 1970."""


class ResultFile(NamedTuple):
    """A file of a result: its `path` in the job's files, its `name` in the zip file; times are seconds since 1970."""

    path: str
    name: str
    num_bytes: int
    modified_at: float


async def list_result(platform: Platform, job: Job) -> list[ResultFile]:
    """Return the files of a job's result.

    Raises:
        Refusal: there is no file, there are too many, or the user may not see them.
    """
    entries = await platform.list_files(job["id"], f"work/{MODEL}", needs_all=True)
    logs = await platform.list_files(job["id"], f"work/{LOG}")
    entries += [entry for entry in logs if entry["path"].rpartition("/")[2].startswith(_TENSORBOARD)]
    files = [
        ResultFile(entry["path"], entry["path"].removeprefix("work/"), entry["num_bytes"], entry["modified_at"])
        for entry in entries
        if entry["kind"] == "file"
    ]
    if not files:
        raise Refusal(404, f"{job['id']} has no result: its program wrote nothing into RESULT_DIR/{MODEL} yet.")
    return files


def answer_result(platform: Platform, job: Job, files: Sequence[ResultFile], *, with_body: bool = True) -> Response:
    """Return the answer with a job's result.

    Args:
        platform: the platform's REST interface, with the client's token.
        job: the job.
        files: of the result.
        with_body: if False, only the headers are sent, and no file is read.
    """
    num_bytes = count_bytes(files)
    # WMLA's clients parse the name after the first ';' and the size after 'size='.
    headers = {
        "Content-Disposition": f"attachment;filename=dlpd-model-{job['id']}.zip;size={num_bytes}",
        "Content-Length": str(num_bytes),
    }
    if not with_body:
        return Response(None, 200, headers, "application/octet-stream")
    return StreamingResponse(_send(platform, job["id"], files), 200, headers, "application/octet-stream")


def count_bytes(files: Sequence[ResultFile]) -> int:
    """Return the size of the zip file in bytes."""
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
    """A write-only stream for a zip file. It is not seekable, and `take` empties it."""

    def __init__(self) -> None:
        self._held = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._held += data
        return len(data)

    def take(self) -> bytes:
        """Return the bytes that were written since the last call."""
        taken = bytes(self._held)
        self._held.clear()
        return taken
