"""Routes of uploaded code. Its name is its SHA-256, so the same code is sent and stored once."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from legato.api import API
from legato.api.outputs import Upload
from legato.control.roles import Asker, Submitter, check_may_submit
from legato.control.store import check_sha256, missing_code
from legato.server.answers import Answer, responses
from legato.server.authentication import CurrentUser
from legato.server.code_archive import pack_code
from legato.server.ranges import BYTES, answer_file
from legato.server.services import Here, Services

router = APIRouter(prefix=API, tags=["code"])

_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.api_route("/code/{sha256}", methods=["HEAD"], name="check_code", **responses(None, errors=(404,)))
@router.get("/code/{sha256}", **responses(Upload, errors=(404,)))
def get_code(sha256: str, here: Here, asker: CurrentUser) -> Response:
    """Return the record of uploaded code. 404: the server does not have it, or you may not use it; upload it."""
    check_may_submit(asker)
    found = here.store.uploads.get(sha256, asker)
    if not here.code.has(sha256):
        raise missing_code(sha256)
    return Answer(found)


@router.get(
    "/code/{sha256}/archive",
    **responses(None, also=(206,), errors=(404, 416), content_type=BYTES),
    name="download_code",
)
async def get_archive(sha256: str, request: Request, here: Here, asker: CurrentUser) -> Response:
    """Download uploaded code that you may use, as a zip file."""
    check_may_submit(asker)
    # Packing takes as long as unpacking. Both are limited, so that other requests find free threads.
    async with here.upload_turn:
        packed = await run_in_threadpool(_pack, sha256, here, asker)
    return answer_file(packed, f"code-{sha256[:12]}.zip", request.headers, is_head=False)


def _pack(sha256: str, here: Services, asker: Asker) -> BinaryIO:
    here.store.uploads.get(sha256, asker)
    try:
        packed = pack_code(here.code.path / sha256)
    except FileNotFoundError:
        raise missing_code(sha256) from None
    if not here.code.has(sha256):
        packed.close()
        raise missing_code(sha256)  # the code was deleted meanwhile, so the zip file may be incomplete
    return packed


@router.put("/code/{sha256}", openapi_extra=_BODY, **responses(Upload, 201, also=(200,), errors=(408, 409, 413)))
async def put_code(sha256: str, request: Request, here: Here, asker: CurrentUser) -> Response:
    """Upload code: a ``.tar.gz``, ``.tar`` or ``.zip`` file with this SHA-256."""
    submitter = check_may_submit(asker)
    check_sha256(sha256)
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdecimal():
        here.code.check_length(int(length))
        await run_in_threadpool(_check_room, here, sha256, int(length), asker)
    with here.arrivals.counted(asker.name):
        async with here.code.receive(request.stream(), sha256) as archive, here.upload_turn:
            return await run_in_threadpool(keep_code, here, archive, sha256, submitter)


def _check_room(here: Services, sha256: str, num_bytes: int, asker: Asker) -> None:
    here.store.uploads.check_room(sha256, num_bytes, asker, here.settings.upload_quota_bytes)


def keep_code(here: Services, archive: Path, sha256: str, asker: Submitter) -> Response:
    """Unpack and keep code that was received. Raises an error if it cannot be used, or the asker has no room for it."""
    num_bytes = archive.stat().st_size
    _check_room(here, sha256, num_bytes, asker)
    is_there = here.code.has(sha256)
    unpacked = archive if is_there else here.code.unpack(archive)
    with here.code.lock():
        # Check again: meanwhile another upload may have stored the code, or the server may have deleted it.
        is_there = here.code.has(sha256)
        if not is_there:
            unpacked = here.code.unpack(archive) if unpacked is archive else unpacked
            here.code.put(unpacked, sha256)
        return Answer(here.store.uploads.note(sha256, num_bytes, asker, here.now()), 200 if is_there else 201)
