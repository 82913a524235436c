"""The plugin of the server for WMLA's REST interface: puts all routes together. Starts no task, opens no connection."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

import legato
from legato.compat.wmla.rest import applications, executions, scheduler_pages, searches
from legato.compat.wmla.rest.bundles import Limits
from legato.compat.wmla.rest.keys import Authenticator
from legato.compat.wmla.rest.members import MembershipReader
from legato.compat.wmla.rest.platform import Handler, Inside, Platform
from legato.compat.wmla.rest.refusals import Refusal, answer_error
from legato.compat.wmla.rest.sessions import make_session_routes
from legato.compat.wmla.rest.submitting import Submitter
from legato.core.errors import UsageError

DEEP_LEARNING: Final = "/platform/rest/deeplearning/v1"
CONDUCTOR: Final = "/platform/rest/conductor/v1"
COMMAND: Final = "/ui/tools/dlicmd.py"
PREFIXES: Final = (
    *("/platform/rest/", "/auth/v1/", "/v1/preauth/", COMMAND),
    *("/dlim", "/dlim/", "/ml/v4", "/ml/v4/", "/v2/spaces", "/v2/spaces/"),
)

_COMMAND_FILE: Final = Path(__file__).parents[1] / "tools" / "dlicmd.py"
_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")

UNSUPPORTED: Final[Mapping[str, str]] = {
    f"{DEEP_LEARNING}/datasets": "Legato does not manage data sets. Put the data into the data directory, and name it "
    "with --cs-datastore-meta type=fs,data_path=PATH.",
    f"{DEEP_LEARNING}/modeltemplates": "Model templates are not supported. Send the program with POST /execs.",
    f"{DEEP_LEARNING}/models": "Models of the console are not supported. Send the program with POST /execs.",
    f"{DEEP_LEARNING}/frameworks": "Frameworks of model templates are not supported. See GET /execs/frameworks.",
    f"{DEEP_LEARNING}/inferences": "Inference is not supported. Download the result, and serve the model with a server "
    "of your choice.",
    f"{DEEP_LEARNING}/edimodels": "Elastic distributed inference is not supported. Download the result, and serve the "
    "model with a server of your choice.",
    "/dlim": "Elastic distributed inference is not supported. Download the result, and serve the model with a server "
    "of your choice.",
    "/ml/v4": "The interface of Watson Machine Learning is not supported. Send the program with "
    f"POST {DEEP_LEARNING}/execs.",
    "/v2/spaces": "There are no spaces. Queues limit the slots of users; see 'legato queues'.",
}
"""Messages for what is not supported, by the beginning of the path. They say what to use instead."""


class PluginSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the server that the plugin uses.

    Args:
        data_root: the directory of all data on the machines.
        upload_max_bytes: maximum size of an upload.
        upload_max_unpacked_bytes: maximum size of all files of an upload.
        upload_max_ratio: maximum number of unpacked bytes per packed byte.
        upload_max_files: maximum number of files and folders in an upload.
        interpreters: names of the Python environments that jobs may have.
    """

    data_root: str
    upload_max_bytes: int
    upload_max_unpacked_bytes: int
    upload_max_ratio: float
    upload_max_files: int
    interpreters: tuple[str, ...] = ()


def make_plugin(inside: Inside, settings: PluginSettings) -> ASGIApp:
    """Return the plugin as an ASGI application.

    Args:
        inside: makes a client of the platform's REST interface for a request.
        settings: of the server.
    """
    authenticator, reader = Authenticator(inside), MembershipReader()
    limits = Limits(
        packed_bytes=settings.upload_max_bytes,
        unpacked_bytes=settings.upload_max_unpacked_bytes,
        ratio=settings.upload_max_ratio,
        num_files=settings.upload_max_files,
    )
    submitter = Submitter(settings.data_root, limits, settings.interpreters)
    version = legato.__version__

    async def without_user(request: Request) -> Platform:
        return Platform(inside(request.scope), None)

    async def with_user(request: Request) -> Platform:
        # The client calls the platform in this process, so it has no connection that must be closed.
        return Platform(inside(request.scope), await authenticator.find_secret(request))

    routes = [Route(COMMAND, _send_command, methods=["GET"])]
    routes += [_route(*route, without_user) for route in make_session_routes(authenticator, inside)]
    for base, found in (
        (DEEP_LEARNING, executions.make_routes(submitter, version)),
        (DEEP_LEARNING, searches.make_routes(submitter)),
        (DEEP_LEARNING, applications.make_scheduler_routes(reader)),
        (DEEP_LEARNING, scheduler_pages.make_routes(version, settings.data_root)),
        (CONDUCTOR, applications.make_conductor_routes(reader)),
    ):
        routes += [_route(method, base + path, handler, with_user) for method, path, handler in found]
    for beginning, message in UNSUPPORTED.items():
        for path in (beginning, f"{beginning}/{{rest:path}}"):
            routes.append(Route(path, _refusing(message), methods=list(_METHODS)))
    kinds = (Refusal, UsageError, HTTPException, ClientDisconnect, Exception)
    app = Starlette(routes=routes, exception_handlers=dict.fromkeys(kinds, answer_error))
    app.router.redirect_slashes = False
    return _PathCleaner(app)


class _PathCleaner:
    """Removes double slashes and slashes at the end of paths, which some clients send."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = re.sub("//+", "/", scope["path"]).rstrip("/") or "/"
        await self._app({**scope, "path": path, "raw_path": path.encode()}, receive, send)


def _route(method: str, path: str, handler: Handler, find: Callable[[Request], Awaitable[Platform]]) -> Route:
    async def answer(request: Request) -> Any:
        return await handler(request, await find(request))

    return Route(path, answer, methods=[method])


def _refusing(message: str) -> Callable[[Request], Awaitable[Response]]:
    async def refuse(_: Request) -> Response:
        raise Refusal(501, message)

    return refuse


async def _send_command(_: Request) -> Response:
    if not _COMMAND_FILE.is_file():
        raise Refusal(404, "This server does not have the command dlicmd.py.")
    return FileResponse(_COMMAND_FILE, media_type="text/x-python", filename="dlicmd.py")
