"""Routes to log on and off, for WMLA's console and its Conductor. The platform checks names and passwords."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from legato.compat.wmla.rest.keys import COOKIE, LIFE_S, Authenticator, Token
from legato.compat.wmla.rest.platform import Handler, Inside, Platform

Open = tuple[str, str, Handler]


def make_session_routes(authenticator: Authenticator, inside: Inside) -> Sequence[Open]:
    """Return the routes that authenticate requests themselves, with their full paths.

    Args:
        authenticator: finds the token of a request.
        inside: makes a client of the platform's REST interface.
    """

    async def log_on(request: Request, _: Platform) -> Response:
        return _show(request, await authenticator.log_on(request))

    async def log_off(request: Request, _: Platform) -> Response:
        await authenticator.log_off(request)
        answer = JSONResponse({"message": "Logged off."})
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return answer

    async def validate(request: Request, _: Platform) -> Response:
        platform = Platform(inside(request.scope), await authenticator.find_secret(request))
        me = await platform.get("me")
        content = {"username": me["name"], "sub": me["name"], "role": me["role"], "message": "success"}
        return JSONResponse(content | {"_messageCode_": "success"})

    routes: list[Open] = [("GET", "/v1/preauth/validateAuth", validate)]
    for base in ("/auth/v1", "/platform/rest/conductor/v1/auth", "/platform/rest/deeplearning/v1/auth"):
        for method in ("GET", "POST"):
            routes.append((method, f"{base}/logon", log_on))
            routes.append((method, f"{base}/logoff", log_off))
    return routes


def _show(request: Request, token: Token) -> Response:
    """Return the answer to a logon: the token in the body, and as a cookie."""
    written = token.write()
    content: dict[str, Any] = {
        "accessToken": written,
        "username": token.user,
        "sub": token.user,
        "exp": int(token.expires_at),
        # Clients of the Conductor send it with requests. Legato does not check it: the cookie is SameSite=strict.
        "csrftoken": hashlib.sha256(token.secret.encode()).hexdigest()[:32],
        "_messageCode_": "success",
        "message": "success",
    }
    answer = JSONResponse(content)
    answer.set_cookie(
        COOKIE,
        written,
        max_age=int(LIFE_S),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return answer
