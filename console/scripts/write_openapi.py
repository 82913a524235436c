"""Write the OpenAPI of the server to standard output. Opens no store and starts no server."""

from __future__ import annotations

import sys
from unittest.mock import MagicMock

from legato.server.app import make_app

if __name__ == "__main__":
    routes = make_app(MagicMock())._app._app.routes  # type: ignore[attr-defined]
    (endpoint,) = (route.endpoint for route in routes if getattr(route, "path", "").endswith("/openapi.json"))
    sys.stdout.write(endpoint().body.decode())
