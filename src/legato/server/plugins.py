"""Plugins of a server: applications that answer under their own paths. They know only the REST of the platform.

The middleware checks host, origin and zero bytes before it calls a plugin, and writes the line of the log after. The
plugin does all else: who asks, how large bodies may be, how errors look. What it wants of the platform it asks for
through `Inside`, as a client does, so that rights, limits and the audit log hold for it too. This module knows no
plugin by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import httpx
from starlette.types import ASGIApp, Receive, Scope, Send

from legato.core.errors import UsageError
from legato.core.frameworks import Framework

_INSIDE: Final = "legato.inside"

Inside = Callable[[Scope], httpx.AsyncClient]
"""Makes a client of the platform's REST for a request of the plugin's: without a connection, in this process.

It asks as the one whose request it is: from the same address, for the same host. It has no token of its own.
"""


def is_inside(scope: Scope) -> bool:
    """Return whether a request is a part of a request to a plugin. None that comes by a connection is."""
    return _INSIDE in scope


@dataclass(frozen=True, kw_only=True)
class ServerPlugin:
    """A plugin of the server.

    Args:
        name: for errors.
        prefixes: of the paths that are its own: each ends with ``/``, or is one whole path.
        make: makes it.
        frameworks: that it brings for training definitions.
    """

    name: str
    prefixes: tuple[str, ...]
    make: Callable[[Inside], ASGIApp]
    frameworks: tuple[Framework, ...] = ()


class ServerPlugins:
    """The plugins of a server, by path.

    Args:
        plugins: that it takes.
        platform: all of the server, its door included.
        own: prefixes of paths that no plugin may have.

    Raises:
        UsageError: two of them, or one and the server itself, want the same paths.
    """

    def __init__(self, plugins: Sequence[ServerPlugin], platform: ASGIApp, own: Sequence[str]) -> None:
        self._platform = platform
        self._apps: list[tuple[str, ASGIApp]] = []
        taken = [(prefix, "the server") for prefix in own]
        for plugin in plugins:
            for prefix in plugin.prefixes:
                for other, whose in taken:
                    if whose != plugin.name and (prefix.startswith(other) or other.startswith(prefix)):
                        raise UsageError(
                            f"Cannot load the plugin '{plugin.name}': its path '{prefix}' conflicts with '{other}' "
                            f"of {whose}. Leave one of them out of the setting compat."
                        )
                taken.append((prefix, plugin.name))
            app = plugin.make(self._inside)
            self._apps += [(prefix, app) for prefix in plugin.prefixes]

    def find(self, path: str) -> ASGIApp | None:
        """Return the plugin whose path it is."""
        for prefix, app in self._apps:
            if path == prefix or (prefix.endswith("/") and path.startswith(prefix)):
                return app
        return None

    def _inside(self, scope: Scope) -> httpx.AsyncClient:
        headers = dict(scope["headers"])
        # As it came, and so as the door has let it pass.
        host = headers.get(b"host", b"localhost")
        client = scope.get("client") or ("unknown", 0)

        async def ask(inner: Scope, receive: Receive, send: Send) -> None:
            inner[_INSIDE] = True
            await self._platform(inner, receive, send)
            if (asker := inner["state"].get("asker")) is not None:
                scope["state"]["asker"] = asker  # for the log: the asker inside sent the request of the plugin

        return httpx.AsyncClient(
            transport=httpx.ASGITransport(ask, client=(client[0], client[1]), raise_app_exceptions=False),
            base_url="http://platform",
            headers={"Host": host.decode("latin-1")},
            trust_env=False,
        )
