"""Plugins of a server: applications that answer requests under their own paths. They use only the platform's REST.

The middleware checks the host, the origin and zero bytes before it calls a plugin, and logs the request after. The
plugin does everything else: authentication, limits of bodies, the form of errors. It uses the platform through
`Inside`, as a client does, so that permissions, limits and the audit log apply to it too.
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
"""Makes a client of the platform's REST in this process, without a connection, for one request to the plugin.

Its requests have the address and the host of that request. It has no token; the plugin must send one.
"""


def is_inside(scope: Scope) -> bool:
    """Return whether a plugin sent this request by `Inside`. False for every request that came over a connection."""
    return _INSIDE in scope


@dataclass(frozen=True, kw_only=True)
class ServerPlugin:
    """A plugin of the server.

    Args:
        name: its name in errors.
        prefixes: its paths: prefixes that end with ``/``, or single paths.
        make: makes the application.
        frameworks: frameworks that it adds, for training definitions.
        runtimes: names of runtimes in the other system's documents, which definitions may give as a framework.
    """

    name: str
    prefixes: tuple[str, ...]
    make: Callable[[Inside], ASGIApp]
    frameworks: tuple[Framework, ...] = ()
    runtimes: tuple[str, ...] = ()


class ServerPlugins:
    """The plugins of a server, by path.

    Args:
        plugins: the plugins.
        platform: the application of the server, including its middleware.
        own: prefixes of paths that no plugin may have.

    Raises:
        UsageError: two plugins, or a plugin and the server, have the same paths.
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
        """Return the application of the plugin that has this path. None: no plugin has it."""
        for prefix, app in self._apps:
            if path == prefix or (prefix.endswith("/") and path.startswith(prefix)):
                return app
        return None

    def _inside(self, scope: Scope) -> httpx.AsyncClient:
        headers = dict(scope["headers"])
        # The host of the request, which the middleware has checked.
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
