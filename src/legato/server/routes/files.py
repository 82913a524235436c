"""Routes of a job's files and checkpoints. Only its owner and admins see them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from legato.api import API
from legato.api.outputs import Checkpoint
from legato.control.roles import Asker
from legato.core.errors import Forbidden, NotFound
from legato.driver.log_caps import find_begin
from legato.server.answers import Answer, Listed, responses
from legato.server.authentication import CurrentUser
from legato.server.job_files import Files, list_files, open_file, split_path
from legato.server.logs import is_log_file, shorten
from legato.server.ranges import BYTES, answer_file
from legato.server.routes.jobs import may_see_inside
from legato.server.services import Here, Services

router = APIRouter(prefix=API, tags=["files"])

_CHECKPOINT: Final = re.compile(r"checkpoints/step-([0-9]{1,15})\.legato")


@router.get("/jobs/{job}/files", **responses(Files, errors=(404,)))
def list_files_of_job(
    job: str,
    here: Here,
    asker: CurrentUser,
    path: Annotated[str, Query(max_length=4096)] = "",
    recursive: bool = False,
) -> Response:
    """List the files and folders in a folder of a job."""
    root = _find_root(here, job, asker)
    parts = split_path(path)
    try:
        found = list_files(root, parts, is_recursive=recursive)
        return Answer(msgspec.structs.replace(found, items=tuple(shorten(root, entry) for entry in found.items)))
    except NotFound:
        if parts:
            raise
        return Answer(Files((), is_complete=True))  # the job has not started yet


@router.api_route(
    "/jobs/{job}/files/{path:path}",
    methods=["GET"],
    **responses(None, also=(206,), errors=(404, 416), content_type=BYTES),
)
@router.api_route(
    "/jobs/{job}/files/{path:path}", methods=["HEAD"], name="check_file", **responses(None, errors=(404,))
)
def get_file(job: str, path: str, request: Request, here: Here, asker: CurrentUser) -> Response:
    """Return a file of a job, or a range of its bytes."""
    root = _find_root(here, job, asker)
    parts = split_path(path)
    if not parts:
        raise NotFound("The path of the file is empty. List the job's files to see which it has.")
    file = open_file(root, parts)
    begin = find_begin(file.fileno()) if is_log_file(path) else 0
    return answer_file(file, parts[-1], request.headers, is_head=request.method == "HEAD", begin=begin)


@router.get("/jobs/{job}/checkpoints", **responses(Listed[Checkpoint], errors=(404,)))
def list_checkpoints(job: str, here: Here, asker: CurrentUser) -> Response:
    """List the checkpoints of a job, the newest first."""
    root = _find_root(here, job, asker)
    try:
        files = list_files(root, ("checkpoints",), is_recursive=False).items
    except NotFound:
        files = ()
    found = []
    for file in files:
        match = _CHECKPOINT.fullmatch(file.path)
        if match is not None and file.kind == "file":
            found.append(Checkpoint(int(match[1]), file.path, file.num_bytes, file.modified_at))
    return Answer(Listed(tuple(sorted(found, key=lambda one: -one.step))))


def _find_root(here: Services, job: str, asker: Asker) -> Path:
    found = here.store.jobs.find(job, asker)
    if not may_see_inside(found, asker):
        raise Forbidden(
            f"Cannot show files of job '{found.name}': it belongs to '{found.owner}', and its files may hold secrets. "
            f"Ask '{found.owner}' or an admin."
        )
    return here.directory(found)
