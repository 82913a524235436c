"""Sessions of browsers: the cookie with the token, and the CSRF value that only the server's own pages can send.

A browser adds the cookie to requests of every page. SameSite excludes pages of other sites, but a page from another
port of the same host counts as the same site. So a request that may change something needs a header with a value that
only pages of this server can read.
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
_HINT: Final = (
    "Send 'Authorization: Bearer lgt_…'; an admin makes tokens, and 'legato login URL --user USER' makes one from a "
    "password."
)


class SentToken(NamedTuple):
    """The token of a request. ``by_cookie``: it came in a cookie, which browsers add by themselves."""

    secret: str
    by_cookie: bool


def read_token(scope: Any) -> SentToken:
    """Return the token of a request. If it has both a header and a cookie, that is the token of the header.

    Args:
        scope: of the request. Behind a trusted proxy, its scheme is the one that the proxy reports.

    Raises:
        Unauthenticated: the request has no token.
    """
    headers = Headers(scope=scope)
    if "authorization" not in headers:
        secret = cookie_parser(headers.get("cookie", "")).get(name_cookie(scope)) or None
        if secret is not None:
            return SentToken(_check_token(secret), by_cookie=True)
    kind, _, secret = headers.get("authorization", "").partition(" ")
    secret = secret.strip()
    if not secret:
        raise Unauthenticated(f"Cannot authenticate: the token is missing. {_HINT}")
    if kind.lower() != "bearer":
        raise _no_token()
    return SentToken(_check_token(secret), by_cookie=False)


def name_cookie(scope: Any) -> str:
    """Return the name of a session's cookie. It differs over TLS, where the other name is not accepted."""
    return _name(_COOKIE, scope)


def make_csrf(secret: str) -> str:
    """Return the CSRF value that a page must send besides the cookie. It is derived from the token by an HMAC."""
    return hmac.new(secret.encode(), _PURPOSE, hashlib.sha256).hexdigest()


def check_csrf(method: str, headers: Headers, token: SentToken) -> None:
    """Raise Problem if a request with a cookie may change something, and its CSRF value is missing or wrong."""
    if not token.by_cookie or method in _SAFE:
        return
    given = headers.get(CSRF_HEADER, "")
    if not hmac.compare_digest(given.encode(), make_csrf(token.secret).encode()):
        raise Problem(
            "wrong-origin",
            f"With a cookie, a request with {method[:20]} needs the header '{CSRF_HEADER}' with the value of 'csrf' "
            "in the answer of 'GET /api/v1/session'. Load the page again.",
        )


def render_cookie(secret: str, max_age_s: float, scope: Any) -> str:
    """Return the header ``Set-Cookie`` of a session. An empty secret and 0 seconds delete the cookie.

    Args:
        secret: of the token.
        max_age_s: number of seconds for which the browser keeps the cookie.
        scope: of the request. Behind a trusted proxy, its scheme is the one that the proxy reports.
    """
    return _render(name_cookie(scope), secret, max_age_s, scope)


def read_device(scope: Any) -> str | None:
    """Return the secret by which a device identifies itself, from the header (programs) or the cookie (browsers)."""
    headers = Headers(scope=scope)
    found = headers.get(DEVICE_HEADER) or cookie_parser(headers.get("cookie", "")).get(_name(_DEVICE_COOKIE, scope))
    return found if found and len(found) <= _MAX_TOKEN_LENGTH else None


def render_device(device: str, scope: Any) -> str:
    """Return the header ``Set-Cookie`` with the secret that identifies a browser. It does not log the browser in."""
    return _render(_name(_DEVICE_COOKIE, scope), device, _DEVICE_S, scope)


def _name(name: str, scope: Any) -> str:
    # Browsers accept a cookie with this prefix only over TLS and only from this host, so other hosts of the domain
    # cannot set it.
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
    return Unauthenticated(f"Cannot authenticate: this is not a token. {_HINT}")
