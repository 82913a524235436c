"""Pages that need no token: does it live, is it ready, which version is it, and figures. Name nobody."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
import structlog
from fastapi import APIRouter
from starlette.responses import Response

import legato
from legato.control.records import Lease
from legato.core.errors import StoreError
from legato.server.answers import Answer, tells
from legato.server.services import Here, Services

router = APIRouter(tags=["open"])

_log = structlog.get_logger(__name__)
_OPEN: Final[dict[str, Any]] = {"security": []}
_FIGURES: Final = "text/plain; version=0.0.4; charset=utf-8"


class Health(msgspec.Struct, frozen=True):
    """The process answers."""

    status: Literal["ok"]


class Readiness(msgspec.Struct, frozen=True):
    """Whether the server can be used. ``loop``: who decides; ``late``: nobody did of late, or this server could not."""

    ready: bool
    store: bool
    loop: Literal["leading", "following", "late"]


class Version(msgspec.Struct, frozen=True):
    """What runs here."""

    version: str
    api: tuple[str, ...]


@router.get("/healthz", openapi_extra=_OPEN, **tells(Health))
async def get_health() -> Response:
    """Say that the process answers."""
    return Answer(Health("ok"))


@router.get("/readyz", openapi_extra=_OPEN, **tells(Readiness, also=(503,)))
def get_readiness(here: Here) -> Response:
    """Say whether the server can be used."""
    try:
        state = _describe(here, here.store.loop.read_lease())
    except StoreError as error:
        _log.warning("the store does not answer", error=str(error))
        state = Readiness(ready=False, store=False, loop="late")
    return Answer(state, 200 if state.ready else 503)


@router.get("/version", openapi_extra=_OPEN, **tells(Version))
async def get_version() -> Response:
    """Say which version this is."""
    return Answer(Version(legato.__version__, ("v1",)))


@router.get("/metrics", openapi_extra=_OPEN, **tells(None, content_type="text/plain"))
def get_figures(here: Here) -> Response:
    """Return figures for Prometheus."""
    return Response(here.figures.render(), media_type=_FIGURES)


def _describe(here: Services, lease: Lease | None) -> Readiness:
    if lease is None or lease.expires_at <= here.now():
        return Readiness(ready=False, store=True, loop="late")
    if lease.owner == here.loop.owner and here.loop.pulse.is_late(here.now(), here.settings.lease_s):
        # It holds the lease, and nothing comes of it: each of its rounds fails.
        return Readiness(ready=False, store=True, loop="late")
    loop: Literal["leading", "following"] = "leading" if lease.owner == here.loop.owner else "following"
    return Readiness(ready=not here.feed.is_closing, store=True, loop=loop)
