"""Routes of browser sessions: begin one by password, token or link, read it, end it."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from legato.api import API
from legato.api.people import Code
from legato.control.people import CodeTold, NewToken, TokenKind
from legato.control.roles import Role
from legato.core.errors import UsageError
from legato.server.answers import Answer, responses
from legato.server.authentication import CurrentUser
from legato.server.bodies import GivenCode, NewSession
from legato.server.routes.people import check_password, end_of_login
from legato.server.services import Here, Services
from legato.server.sessions import make_csrf, render_cookie, render_device

router = APIRouter(prefix=API, tags=["people"])

LINK_S: Final = 3600.0
_NAME: Final = "console"


class Session(msgspec.Struct, frozen=True):
    """The session of a browser.

    Args:
        name: of the user.
        role: of the session.
        csrf: the value that the browser must send in the header ``X-Legato-CSRF`` with each change.
        expires_at: seconds since 1970. Null: the token does not end.
    """

    name: str
    role: Role
    csrf: str
    expires_at: float | None


class RequestToken(msgspec.Struct, frozen=True):
    """What the middleware has read from a request: its token, and whether that came in a cookie."""

    secret: str
    by_cookie: bool


async def _read_request_token(request: Request) -> RequestToken:
    state: Any = request.state
    return RequestToken(state.secret, state.by_cookie)


CurrentToken = Annotated[RequestToken, Depends(_read_request_token)]


@router.post("/session", openapi_extra={"security": []}, **responses(Session, errors=(413, 415)))
async def begin_session(body: NewSession, request: Request, here: Here) -> Response:
    """Log a browser in: by name and password, by a token, or by the code of a link. Sets a cookie."""
    made, device = await _log_in(body, here, request)
    token = made.token
    expires_at = token.expires_at
    assert expires_at is not None, "sessions end"
    cookie = render_cookie(made.secret, expires_at - here.now(), request.scope)
    session = Session(token.user, token.role, make_csrf(made.secret), expires_at)
    answer = Answer(session, headers={"Set-Cookie": cookie})
    if device is not None:
        answer.headers.append("Set-Cookie", render_device(device, request.scope))
    return answer


@router.get("/session", **responses(Session))
def get_session(here: Here, asker: CurrentUser, given: CurrentToken) -> Response:
    """Return the user of the request's session or token, and the CSRF value that a browser sends with changes."""
    token = here.store.tokens.find(given.secret)
    return Answer(Session(asker.name, asker.role, make_csrf(given.secret), token.expires_at))


@router.delete("/session", **responses(None, 204))
def end_session(request: Request, here: Here, asker: CurrentUser, given: CurrentToken) -> Response:
    """Log a browser out: revoke its token, and delete its cookie."""
    if not given.by_cookie:
        raise UsageError(
            "Cannot end the session: the request has no cookie, but a token. 'DELETE /tokens/{id}' revokes a token."
        )
    here.store.tokens.revoke(here.store.tokens.find(given.secret).id, asker, here.now())
    here.authenticator.forget()
    return Response(status_code=204, headers={"Set-Cookie": render_cookie("", 0, request.scope)})


@router.post("/session/links", **responses(Code, 201))
def create_link(here: Here, asker: CurrentUser, given: CurrentToken) -> Response:
    """Create a code for a link that logs you in once in a browser, within an hour."""
    now, ends = here.now(), here.store.tokens.find(given.secret).expires_at
    return Answer(here.store.tokens.create_code(asker, now, expires_at=now + LINK_S, sessions_until=ends), 201)


@router.post("/session/links/look", openapi_extra={"security": []}, **responses(CodeTold, errors=(413, 415)))
async def look_at_link(body: GivenCode, request: Request, here: Here) -> Response:
    """Return the user whom the code of a link logs in, without using the code. A wrong code is a failed log-in."""
    with here.authenticator.secret_login(request.scope):
        return Answer(await run_in_threadpool(here.store.tokens.look_at_code, body.code, here.now()))


async def _log_in(body: NewSession, here: Services, request: Request) -> tuple[NewToken, str | None]:
    """Return the token of a new session, and the secret that identifies the device at its next log-in by password.

    The secret is None after a log-in by token or code.
    """
    store, now, expires_at = here.store, here.now(), end_of_login(here)
    if body.code is not None:
        with here.authenticator.secret_login(request.scope):
            return await run_in_threadpool(store.tokens.redeem, body.code, _NAME, now, expires_at=expires_at), None
    device = None
    if body.token is not None:
        with here.authenticator.secret_login(request.scope):
            asker = await run_in_threadpool(store.tokens.verify, body.token, now)
            shown = await run_in_threadpool(store.tokens.find, body.token)
        # The session must not outlive its token.
        expires_at = min(expires_at, shown.expires_at or expires_at)
    else:
        asker, device = await check_password(here, request, body.user or "", body.password or "")
    kind = TokenKind.SESSION
    made = await run_in_threadpool(store.tokens.create, asker.name, _NAME, asker, now, expires_at=expires_at, kind=kind)
    return made, device
