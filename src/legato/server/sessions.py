"""Sessions of browsers: the cookie that holds a token, and the value that proves that a page of ours asks.

A browser sends a cookie along with requests of any page. SameSite keeps other sites out, but a program on another port
of
the same host counts as the same site. So whatever may change something needs a header with a value that only pages of
this server can read. Keeps nothing, and knows no user.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any, Final, NamedTuple

from starlette.datastructures import Headers
from starlette.requests import cookie_parser

from legato.core.errors import Unauthenticated
from legato.server.problems import Problem

_COOKIE: Final = "legato_session"
_DEVICE_COOKIE: Final = "legato_device"
CSRF_HEADER: Final = "X-Legato-CSRF"
DEVICE_HEADER: Final = "X-Legato-Device"
_DEVICE_S: Final = 400 * 86_400  # as long as browsers keep any cookie
_SAFE: Final = ("GET", "HEAD")
_MAX_TOKEN_LENGTH: Final = 256
_PURPOSE: Final = b"legato csrf"
_HOW: Final = (
    "Send 'Authorization: Bearer lgt_…'; an admin makes tokens, and 'legato login URL --user USER' makes one from a "
    "password."
)


class Shown(NamedTuple):
    """What a request shows of who asks. ``by_cookie``: a browser sent it by itself."""

    secret: str
    by_cookie: bool


def read_shown(scope: Any) -> Shown:
    """Return the token of a request. Where there are a header and a cookie, the header is meant.

    Args:
        scope: of the request; its scheme is that of a proxy where one is trusted.

    Raises:
        Unauthenticated: there is none.
    """
    headers = Headers(scope=scope)
    if "authorization" not in headers:
        secret = cookie_parser(headers.get("cookie", "")).get(name_cookie(scope)) or None
        if secret is not None:
            return Shown(_check_token(secret), by_cookie=True)
    kind, _, secret = headers.get("authorization", "").partition(" ")
    secret = secret.strip()
    if not secret:
        raise Unauthenticated(f"Cannot authenticate: the token is missing. {_HOW}")
    if kind.lower() != "bearer":
        raise _no_token()
    return Shown(_check_token(secret), by_cookie=False)


def name_cookie(scope: Any) -> str:
    """Return what the cookie of a session is called: over TLS no other is one."""
    return _name(_COOKIE, scope)


def make_csrf(secret: str) -> str:
    """Return the value that a page must show beside a cookie; it is bound to the token, and does not tell it."""
    return hmac.new(secret.encode(), _PURPOSE, hashlib.sha256).hexdigest()


def check_csrf(method: str, headers: Headers, shown: Shown) -> None:
    """Raise Problem where a cookie came with a request that may change something, and no page of ours sent it."""
    if not shown.by_cookie or method in _SAFE:
        return
    given = headers.get(CSRF_HEADER, "")
    if not hmac.compare_digest(given.encode(), make_csrf(shown.secret).encode()):
        raise Problem(
            "wrong-origin",
            f"With a cookie, a request with {method[:20]} needs the header '{CSRF_HEADER}' with the value of 'csrf' "
            "in the answer of 'GET /api/v1/session'. Load the page again.",
        )


def render_cookie(secret: str, max_age_s: float, scope: Any) -> str:
    """Return the header ``Set-Cookie`` of a session. Without a secret, and with 0 seconds, the cookie goes.

    Args:
        secret: of the token.
        max_age_s: how long the browser keeps it.
        scope: of the request; its scheme is that of a proxy where one is trusted.
    """
    return _render(name_cookie(scope), secret, max_age_s, scope)


def read_device(scope: Any) -> str | None:
    """Return by what the device of a request says that it is known: a header of programs, or a cookie of browsers."""
    headers = Headers(scope=scope)
    found = headers.get(DEVICE_HEADER) or cookie_parser(headers.get("cookie", "")).get(_name(_DEVICE_COOKIE, scope))
    return found if found and len(found) <= _MAX_TOKEN_LENGTH else None


def render_device(device: str, scope: Any) -> str:
    """Return the header ``Set-Cookie`` that lets the server recognize a browser; it is no log-in."""
    return _render(_name(_DEVICE_COOKIE, scope), device, _DEVICE_S, scope)


def _name(name: str, scope: Any) -> str:
    # Browsers take a cookie of such a name over TLS alone, and from this very host: no neighbour in its domain can set
    # it.
    return f"__Host-{name}" if _is_tls(scope) else name


def _render(name: str, value: str, max_age_s: float, scope: Any) -> str:
    secure = "; Secure" if _is_tls(scope) else ""
    return f"{name}={value}; Max-Age={max(int(max_age_s), 0)}; Path=/; HttpOnly; SameSite=Strict{secure}"


def _is_tls(scope: Any) -> bool:
    return bool(scope.get("scheme") == "https")


def _check_token(secret: str) -> str:
    if len(secret) > _MAX_TOKEN_LENGTH or not secret.isascii():
        raise _no_token()
    return secret


def _no_token() -> Unauthenticated:
    return Unauthenticated(f"Cannot authenticate: this is not a token. {_HOW}")
