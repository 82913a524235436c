"""Serves the console: one page at ``/`` and its assets. They need no token; the page's requests to the API do."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from legato.server import console_files
from legato.server.console_files import ConsoleFile

router = APIRouter(include_in_schema=False)

PREFIX: Final = "/assets/"
_METHODS: Final = ["GET", "HEAD"]
# Scripts may set the style of an element, as charts do. Only styles in the page's HTML count as inline styles.
_POLICY: Final = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Vary": "Accept-Encoding",
}
_IMMUTABLE: Final = "public, max-age=31536000, immutable"
_MISSING: Final = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Legato</title></head>
<body>
<h1>The console is not built</h1>
<p>This server was started from a source tree whose pages were not built yet. In that tree run</p>
<pre>make console</pre>
<p>which needs npm (Node.js 20.19 or newer), then load this page again; you do not have to restart the server. A
wheel contains the pages.</p>
<p>Everything else works without it: <code>legato --help</code>, and REST below <code>/api/v1</code>.</p>
</body>
</html>
"""


@router.api_route("/", methods=_METHODS)
def get_page(request: Request) -> Response:
    """Return the page of the console, or 503 with an explanation if it is not built."""
    page = console_files.read_page()
    if page is None:
        return Response(_MISSING, 503, _HEADERS, media_type="text/html")
    return _send(request, page, "no-store")


@router.api_route(PREFIX + "{name}", methods=_METHODS)
def get_asset(name: str, request: Request) -> Response:
    """Return an asset of the page. Its name changes with its content, so browsers may cache it forever."""
    asset = console_files.read_asset(name)
    if asset is None:
        raise HTTPException(404)
    return _send(request, asset, _IMMUTABLE)


def _send(request: Request, file: ConsoleFile, cache_control: str) -> Response:
    headers = {**_HEADERS, "Cache-Control": cache_control, "Content-Type": file.kind}
    if file.packed is not None and _takes_gzip(request.headers.get("accept-encoding", "")):
        return Response(file.packed, headers=headers | {"Content-Encoding": "gzip"})
    return Response(file.content, headers=headers)


def _takes_gzip(accepted: str) -> bool:
    """Return whether a client accepts gzip, by its header ``Accept-Encoding``.

    >>> [_takes_gzip(one) for one in ("gzip, br", "br;q=1, GZIP;q=0.5", "gzip;q=0", "br", "")]
    [True, True, False, False, False]
    """
    for one in accepted.lower().split(","):
        name, _, weight = one.partition(";")
        if name.strip() == "gzip":
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
