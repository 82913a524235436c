"""Writes records as JSON answers, and describes the answers in the OpenAPI document."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.responses import Response

from legato.api import API, WARNING
from legato.api.problems import MEDIA_TYPE, PREFIX, PROBLEMS
from legato.control.people import NewToken
from legato.control.records import Job

T = TypeVar("T")

_REF: Final = "#/components/schemas/{name}"
_SCHEMA: Final = "x-legato-record"
_WORD: Final = re.compile(r"[A-Za-z]+")

_PUBLISHED: Final[Mapping[str, str]] = {
    "Code": "NewCode",
    "Decision": "Decided",
    "EventPage": "Told",
    "Metrics": "JobMetrics",
    "NewToken": "Secret",
    "Node": "NodeState",
    "OfferedFramework": "FrameworkTold",
    "Pool": "PoolState",
    "Queue": "QueueState",
    "QueueShare": "QueuePart",
    "ShownDefinition": "DefinitionTold",
    "Slot": "SlotState",
}
"""Names of records in the OpenAPI document that differ from the class names.

Clients are generated from the document, so its names must not change.
"""

_kinds: dict[str, Any] = {}  # types of the routes' records, by the placeholder that `publish` replaces with a schema


class Answer(Response):
    """A record, or another value that msgspec can encode, as JSON."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return the value as JSON."""
        return encode(content)


class Encoded(Response):
    """An answer whose JSON is already encoded."""

    media_type = "application/json"


def encode(record: Any) -> bytes:
    """Return a record as JSON, for an answer that several clients get."""
    return msgspec.json.encode(record)


class Listed(msgspec.Struct, Generic[T], frozen=True):
    """A complete list."""

    items: tuple[T, ...]


def show_secret(made: NewToken) -> Answer:
    """Return the answer that shows a new token."""
    return Answer(made, 201)


def show_job(job: Job, status: int = 200) -> Answer:
    """Return the answer with one job, and its version as ``ETag``."""
    headers = {"ETag": f'"{job.version}"'}
    if status == 201:
        headers["Location"] = f"{API}/jobs/{job.id}"
    return Answer(job, status, headers)


def show_version(record: Any, version: int, made_at: str | None = None) -> Answer:
    """Return the answer with one object, and its version as ``ETag``.

    Args:
        record: the object.
        version: of the object.
        made_at: path of the object below `API` if the request created it. None: the object existed before.
    """
    headers = {"ETag": f'"{version}"'}
    if made_at is not None:
        headers["Location"] = f"{API}/{made_at}"
    return Answer(record, 200 if made_at is None else 201, headers)


def add_warnings(answer: Response, *warnings: str | None) -> None:
    """Add a header with warnings for the user; with none of them, add nothing."""
    if text := " ".join(filter(None, warnings)):
        answer.headers[WARNING] = text.encode("ascii", "replace").decode()


# ---------------------------------------------------------------- the OpenAPI document


def responses(
    kind: Any,
    status: int = 200,
    *,
    also: Iterable[int] = (),
    errors: Iterable[int] = (),
    content_type: str | None = None,
) -> dict[str, Any]:
    """Return the arguments that describe a route's answers in the OpenAPI document.

    Args:
        kind: type of the record. None: the answer has no body, or a body of ``content_type``.
        status: HTTP status of the answer.
        also: other statuses with the same record.
        errors: statuses of problems, besides those that every route can have.
        content_type: media type of a body that is not JSON.
    """
    by_status: dict[int | str, Any] = {}
    for one in (status, *also):
        content: dict[str, Any] = {}
        if kind is not None:
            _kinds[repr(kind)] = kind
            content = {"content": {"application/json": {"schema": {_SCHEMA: repr(kind)}}}}
        elif content_type is not None:
            content = {"content": {content_type: {}}}
        by_status[one] = {"description": "Done." if kind is None else _title(kind), **content}
    by_status |= {one: problem_response(one) for one in sorted({400, 401, 403, 421, 422, 429, 503, *errors})}
    return {"responses": by_status, "status_code": status, "response_class": Response}


def problem_response(status: int) -> dict[str, Any]:
    """Return the description of an answer that is a problem with this status."""
    titles = [kind.title for kind in PROBLEMS.values() if kind.status == status]
    schema = {"$ref": _REF.format(name="Problem")}
    return {"description": "; ".join(titles), "content": {MEDIA_TYPE: {"schema": schema}}}


def publish(app: FastAPI, version: str) -> dict[str, Any]:
    """Return the OpenAPI document of the application."""
    document = get_openapi(
        title="Legato",
        version=version,
        description="Many jobs of elastic training share one pool of slots. docs/rest.md explains this interface.",
        routes=app.routes,
    )
    refs, schemas = _rename(msgspec.json.schema_components(_kinds.values(), ref_template=_REF))
    _replace(document["paths"], dict(zip(_kinds, refs, strict=True)))
    components = document.setdefault("components", {})
    components.setdefault("schemas", {}).update(schemas)
    components["schemas"]["Problem"] = _PROBLEM
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for unused in ("HTTPValidationError", "ValidationError"):
        components["schemas"].pop(unused, None)
    document["security"] = [{"token": []}]
    return document


_PROBLEM: Final[Mapping[str, Any]] = {
    "title": "Problem",
    "description": "An error (RFC 9457). ``type`` never changes; ``detail`` says in a sentence what to do.",
    "type": "object",
    "required": ["type", "title", "status", "detail", "request_id"],
    "properties": {
        "type": {"enum": [PREFIX + name for name in PROBLEMS]},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "request_id": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["field", "message"],
                "properties": {"field": {"type": "string"}, "message": {"type": "string"}},
            },
        },
    },
}


def _title(kind: Any) -> str:
    return _rename_record(str(getattr(kind, "__name__", kind)))


def _rename(value: Any) -> Any:
    """Return schemas in which records have their published names: in keys, titles and references."""
    if isinstance(value, dict):
        renamed = {_rename_record(key): _rename(inner) for key, inner in value.items()}
        for key in ("$ref", "title"):
            if isinstance(renamed.get(key), str):
                renamed[key] = _rename_record(renamed[key])
        return renamed
    return [_rename(inner) for inner in value] if isinstance(value, list | tuple) else value


def _rename_record(text: str) -> str:
    return _WORD.sub(lambda word: _PUBLISHED.get(word[0], word[0]), text)


def _replace(value: Any, refs: Mapping[str, Any]) -> None:
    if isinstance(value, dict):
        if _SCHEMA in value:
            value.update(refs[value.pop(_SCHEMA)])
            return
        for inner in value.values():
            _replace(inner, refs)
