"""Errors in the form of WMLA: plain text, such as ``Error 400: Instance group name X not found``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import httpx
import msgspec
import structlog
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response

from legato.core.errors import LegatoError, UsageError

_log = structlog.get_logger(__name__)

_CHALLENGE: Final = {"WWW-Authenticate": 'Basic realm="Legato", charset="UTF-8"'}
# WMLA answers with 400 if it can read a request but not execute it.
_STATUSES: Final = {422: 400, 412: 409, 421: 400}


class Refusal(LegatoError):
    """An error that is sent to the client.

    Args:
        status: HTTP status.
        message: says what failed and what to do.
        headers: of the answer.
    """

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = dict(headers or {})

    def render(self) -> Response:
        """Return the answer."""
        headers = {**(_CHALLENGE if self.status == 401 else {}), **self.headers}
        return PlainTextResponse(f"Error {self.status}: {self.message}", self.status, headers)


def refuse_as(answer: httpx.Response) -> Refusal:
    """Return a refusal with the status and the message of the platform's error."""
    try:
        message = str(msgspec.json.decode(answer.content)["detail"])
    except (msgspec.MsgspecError, TypeError, KeyError, UnicodeDecodeError):
        message = "The platform sent an unexpected answer."
    wait = {"Retry-After": answer.headers["Retry-After"]} if "Retry-After" in answer.headers else None
    return Refusal(_STATUSES.get(answer.status_code, answer.status_code), message, wait)


async def answer_error(request: Request, error: Exception) -> Response:
    """Return the answer to a request whose route has raised an error."""
    if isinstance(error, Refusal):
        return error.render()
    if isinstance(error, UsageError):
        return Refusal(400, str(error)).render()
    if isinstance(error, HTTPException):
        messages = {404: "There is no such path.", 405: "This path does not support this method."}
        return Refusal(error.status_code, messages.get(error.status_code, str(error.detail)), error.headers).render()
    if isinstance(error, ClientDisconnect):
        return Refusal(400, "The connection closed before the whole body arrived. Send it again.").render()
    _log.error("a plugin of the server could not answer a request", path=request.url.path, exc_info=error)
    return Refusal(500, "Internal error of the server. Its log has the details.").render()
