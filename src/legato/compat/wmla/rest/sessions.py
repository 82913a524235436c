"""Log on and off, in the forms of the console and of the Conductor. The platform decides who may."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from legato.compat.wmla.rest.keys import COOKIE, LIFE_S, Keys, Token
from legato.compat.wmla.rest.platform import Handler, Inside, Platform

Open = tuple[str, str, Handler]


def make_session_routes(keys: Keys, inside: Inside) -> Sequence[Open]:
    """Return the routes that find out themselves who asks; their paths are whole.

    Args:
        keys: finds it out.
        inside: asks the platform.
    """

    async def log_on(request: Request, _: Platform) -> Response:
        return _show(request, await keys.log_on(request))

    async def log_off(request: Request, _: Platform) -> Response:
        await keys.log_off(request)
        answer = JSONResponse({"message": "Logged off."})
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return answer

    async def validate(request: Request, _: Platform) -> Response:
        platform = Platform(inside(request.scope), await keys.find_secret(request))
        me = await platform.get("me")
        told = {"username": me["name"], "sub": me["name"], "role": me["role"], "message": "success"}
        return JSONResponse(told | {"_messageCode_": "success"})

    routes: list[Open] = [("GET", "/v1/preauth/validateAuth", validate)]
    for base in ("/auth/v1", "/platform/rest/conductor/v1/auth", "/platform/rest/deeplearning/v1/auth"):
        for method in ("GET", "POST"):
            routes.append((method, f"{base}/logon", log_on))
            routes.append((method, f"{base}/logoff", log_off))
    return routes


def _show(request: Request, token: Token) -> Response:
    """Return the answer to a logon: the token for programs, and as a cookie for who keeps cookies."""
    written = token.write()
    told: dict[str, Any] = {
        "accessToken": written,
        "username": token.user,
        "sub": token.user,
        "exp": int(token.expires_at),
        # Clients of the Conductor send it along; nothing here needs it: a cookie alone is not sent from foreign pages.
        "csrftoken": hashlib.sha256(token.secret.encode()).hexdigest()[:32],
        "_messageCode_": "success",
        "message": "success",
    }
    answer = JSONResponse(told)
    answer.set_cookie(
        COOKIE,
        written,
        max_age=int(LIFE_S),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return answer
