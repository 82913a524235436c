"""Routes for operators: the audit log and the settings. They show no password."""

from __future__ import annotations

import re
from typing import Annotated, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from legato.api import API
from legato.api.people import AuditEntry, Setting
from legato.control.cluster_settings import ClusterSettings
from legato.control.records import Page
from legato.control.roles import check_is_admin
from legato.control.settings import Settings
from legato.server.answers import Answer, Listed, responses
from legato.server.authentication import CurrentUser
from legato.server.services import Here

router = APIRouter(prefix=API, tags=["operating"])

_HIDDEN: Final = "***"
_BEFORE_HOST: Final = re.compile(r"(://[^:/?#@]*):[^/?#]*@")
_IN_QUERY: Final = re.compile(r"([?&][^=&]*pass[^=&]*=)[^&]*", re.IGNORECASE)


@router.get("/audit", **responses(Page[AuditEntry]))
def list_audit(
    here: Here,
    asker: CurrentUser,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    after: Annotated[int | None, Query(ge=0, le=2**53)] = None,
) -> Response:
    """List the entries of the audit log, the newest first."""
    check_is_admin("read the audit log", asker)
    found = here.store.audit.read_before(after, limit=limit + 1)
    return Answer(Page(found[:limit], str(found[limit - 1].id) if len(found) > limit else None))


@router.get("/config", **responses(Listed[Setting]))
def list_settings(here: Here, asker: CurrentUser) -> Response:
    """List the settings of this server."""
    check_is_admin("read the settings", asker)
    return Answer(Listed(tuple(describe_settings(here.settings))))


def describe_settings(settings: Settings) -> list[Setting]:
    """Return all settings with their values. Passwords are hidden."""
    described = []
    for name, field in Settings.model_fields.items():
        value = getattr(settings, name)
        if name == "database_url" and value is not None:
            value = hide_password(value)
        if isinstance(value, ClusterSettings):
            value = value.model_dump_json()
        value = value if isinstance(value, int | float | tuple | None) else str(value)
        described.append(Setting(name, value, field.description or ""))
    return described


def hide_password(url: str) -> str:
    """Return the URL of a database without its password.

    >>> hide_password("postgresql://ann:geheim@db/legato?password=geheim")
    'postgresql://ann:***@db/legato?password=***'
    """
    return _IN_QUERY.sub(rf"\1{_HIDDEN}", _BEFORE_HOST.sub(rf"\1:{_HIDDEN}@", url))
