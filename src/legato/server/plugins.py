"""Guests: applications that answer under paths of their own, and know of the platform only what its REST answers.

The door looks at host, origin and zero bytes before a guest is asked, and writes its line of the log after. All else is
the guest's: who asks, how large bodies may be, how errors look. What it wants of the platform it asks for through
`Inside`, as a client would, so that rights, limits and the audit log hold for it too. Knows no guest by name.
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
"""Makes a client of the platform's REST for a request of the guest's: without a connection, in this process.

It asks as the one whose request it is: from the same address, for the same host. It has no token of its own.
"""


def is_inside(scope: Scope) -> bool:
    """Return whether a request is a part of one of a guest; nothing that comes by a connection can be."""
    return _INSIDE in scope


@dataclass(frozen=True, kw_only=True)
class Guest:
    """A guest.

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


class Guests:
    """The guests of a server, by path.

    Args:
        guests: that it takes.
        platform: all of the server, its door included.
        own: prefixes of paths that no guest may have.

    Raises:
        UsageError: two of them, or one and the server itself, want the same paths.
    """

    def __init__(self, guests: Sequence[Guest], platform: ASGIApp, own: Sequence[str]) -> None:
        self._platform = platform
        self._apps: list[tuple[str, ASGIApp]] = []
        taken = [(prefix, "the server") for prefix in own]
        for guest in guests:
            for prefix in guest.prefixes:
                for other, whose in taken:
                    if whose != guest.name and (prefix.startswith(other) or other.startswith(prefix)):
                        raise UsageError(
                            f"Cannot take the guest '{guest.name}': its path '{prefix}' is in the way of '{other}' of "
                            f"{whose}. Leave one of them out of the setting compat."
                        )
                taken.append((prefix, guest.name))
            app = guest.make(self._inside)
            self._apps += [(prefix, app) for prefix in guest.prefixes]

    def find(self, path: str) -> ASGIApp | None:
        """Return the guest whose path it is."""
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
                scope["state"]["asker"] = asker  # for the log: the asker inside sent the request of the guest

        return httpx.AsyncClient(
            transport=httpx.ASGITransport(ask, client=(client[0], client[1]), raise_app_exceptions=False),
            base_url="http://platform",
            headers={"Host": host.decode("latin-1")},
            trust_env=False,
        )
