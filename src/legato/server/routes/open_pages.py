"""Pages that need no token: health, readiness, version and metrics. They contain no names of users."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import structlog
from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

import legato
from legato.api.people import Version
from legato.control.records import Lease
from legato.core.errors import NotFound, StoreError
from legato.server.answers import Answer, responses
from legato.server.services import Here, Services
from legato.system.scripts import PYTHON
from legato.system.tls import AUTHORITY_PATH

router = APIRouter(tags=["open"])

_log = structlog.get_logger(__name__)
_OPEN: Final[dict[str, Any]] = {"security": []}
_PROBE_BYTES: Final = 2**20
_PEM_TYPE: Final = "application/x-pem-file"
_METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Health(msgspec.Struct, frozen=True):
    """The answer of a server whose process responds."""

    status: Literal["ok"]


class Readiness(msgspec.Struct, frozen=True):
    """Whether the server can be used.

    Args:
        ready: it can be used.
        store: it can read and write the store.
        disk: it can write files to its home directory.
        loop: ``leading``: this server decides which jobs get slots; ``following``: another server does; ``late``: no
            server does at present, or the decisions of this one keep failing.
    """

    ready: bool
    store: bool
    disk: bool
    loop: Literal["leading", "following", "late"]


@router.get("/healthz", openapi_extra=_OPEN, **responses(Health))
async def get_health() -> Response:
    """Return ``ok`` whenever the server's process responds."""
    return Answer(Health("ok"))


@router.get("/readyz", openapi_extra=_OPEN, **responses(Readiness, also=(503,)))
async def get_readiness(here: Here) -> Response:
    """Say whether the server can be used. If not, the status is 503."""
    # Anyone may send this request, so all requests within a second share one attempt to write.
    disk, store = await here.probes.get("writes", 0, lambda: _try_to_write(here))
    state = await run_in_threadpool(_describe, here, disk=disk, can_write=store)
    return Answer(state, 200 if state.ready else 503)


@router.get("/version", openapi_extra=_OPEN, **responses(Version))
async def get_version() -> Response:
    """Return the version of Legato, the versions of its REST interface, and the version of Python."""
    return Answer(Version(legato.__version__, ("v1",), PYTHON))


@router.get(AUTHORITY_PATH, openapi_extra=_OPEN, **responses(None, content_type=_PEM_TYPE, errors=(404,)))
async def get_authority(here: Here) -> Response:
    """Return the certificate of the server's own authority. Compare its SHA-256 before you trust it."""
    if not here.ca:
        raise NotFound("This server has no certificate authority of its own.")
    return Response(here.ca, media_type=_PEM_TYPE)


@router.get("/metrics", openapi_extra=_OPEN, **responses(None, content_type="text/plain"))
def get_figures(here: Here) -> Response:
    """Return metrics of the server in the text format of Prometheus."""
    return Response(here.metrics.render(), media_type=_METRICS_TYPE)


def _describe(here: Services, *, disk: bool, can_write: bool) -> Readiness:
    try:
        loop = _describe_loop(here, here.store.loop.read_lease())
    except StoreError as error:
        _log.warning("the store does not answer", error=str(error))
        return Readiness(ready=False, store=False, disk=disk, loop="late")
    ready = disk and can_write and loop != "late" and not here.feed.is_closing
    return Readiness(ready=ready, store=can_write, disk=disk, loop=loop)


def _try_to_write(here: Services) -> tuple[bool, bool]:
    """Return whether the server can write files, and whether it can write to the store."""
    disk = _can_write(here.settings.home_path)
    try:
        here.store.events.try_to_write()
    except StoreError as error:
        _log.warning("the store cannot be written", error=str(error))
        return disk, False
    return disk, True


def _can_write(home: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=home) as file:
            file.write(bytes(_PROBE_BYTES))
    except OSError as error:
        _log.warning("the server cannot write to its home directory", home=str(home), error=str(error))
        return False
    return True


def _describe_loop(here: Services, lease: Lease | None) -> Literal["leading", "following", "late"]:
    if lease is None or lease.expires_at <= here.now():
        return "late"
    if lease.owner != here.loop.owner:
        return "following"
    # It may hold the lease and still be late, because each of its rounds fails.
    return "late" if here.loop.stats.is_late(here.now(), here.settings.lease_s) else "leading"
