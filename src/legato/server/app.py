"""Makes the ASGI application: all routes behind the middleware."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Final

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response

import legato
from legato.api import API
from legato.core.errors import LegatoError, UsageError
from legato.server.answers import Answer, publish
from legato.server.frameworks import OfferedFrameworks
from legato.server.middleware import Middleware, answer_error
from legato.server.plugins import ServerPlugin
from legato.server.routes import (
    access_requests,
    agents,
    clusters,
    code,
    console,
    events,
    experiments,
    files,
    job_details,
    jobs,
    logs,
    open_pages,
    operating,
    people,
    pool,
    projects,
    session,
    shares,
    sweeps,
    webhooks,
)
from legato.server.services import Services
from legato.server.shared_responses import SharedResponses

_ROUTERS: Final = (
    *(jobs.router, job_details.router, events.router, logs.router, files.router, code.router),
    *(projects.router, access_requests.router, experiments.router, sweeps.router, webhooks.router),
    *(shares.router, pool.router, clusters.router, agents.router, people.router, session.router, operating.router),
)


def make_app(services: Services, plugins: Sequence[ServerPlugin] = ()) -> Middleware:
    """Return the application, as uvicorn or a test runs it.

    Args:
        services: what the routes use.
        plugins: the plugins, each of which answers requests under its own paths.

    Raises:
        UsageError: two plugins have the same paths, or a plugin has a path of the server.
    """
    # The server has its own pages and its own route of the OpenAPI document. FastAPI's pages load scripts from other
    # sites.
    app = FastAPI(
        routes=_join_routers().routes, openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False
    )
    app.state.services = services
    app.state.frameworks = OfferedFrameworks(
        (framework for plugin in plugins for framework in plugin.frameworks),
        (runtime for plugin in plugins for runtime in plugin.runtimes),
    )

    @functools.cache
    def describe() -> dict[str, Any]:
        # Only when it is asked for, because it takes longer than the rest of the start.
        return publish(app, legato.__version__)

    @app.get(f"{API}/openapi.json", include_in_schema=False)
    def get_description() -> Response:
        """Return the OpenAPI document."""
        return Answer(describe())

    for kind in (HTTPException, RequestValidationError, LegatoError, Exception):
        app.add_exception_handler(kind, answer_error)
    return Middleware(
        SharedResponses(app, services.store.events.read_version, lambda: services.loop.decisions),
        settings=services.settings,
        authenticator=services.authenticator,
        metrics=services.metrics,
        plugins=plugins,
        own=(
            f"{API}/",
            console.PREFIX,
            *(route.path for route in open_pages.router.routes if isinstance(route, APIRoute)),
        ),
        changed=lambda: _note_change(services),
    )


@functools.cache
def _join_routers() -> APIRouter:
    """Return one router with all routes. FastAPI analyses routes at their first use; all applications share that."""
    joined = APIRouter(generate_unique_id_function=_name)
    for router in _ROUTERS:
        joined.include_router(router, dependencies=[Depends(_refuse_unknown)])
    joined.include_router(open_pages.router)
    joined.include_router(console.router)
    return joined


async def _refuse_unknown(request: Request) -> None:
    """Refuse unknown query parameters, so that a misspelt filter is not silently ignored."""
    route: APIRoute = request.scope["route"]
    known = [field.alias for field in route.dependant.query_params]
    for name in request.query_params:
        if name not in known:
            hint = f"It takes {', '.join(sorted(known))}" if known else "It has no query parameters"
            raise UsageError(f"Cannot use the request: its path takes no '{name[:100]}' in the query. {hint}.")


def _name(route: APIRoute) -> str:
    """Return the name of an operation in the OpenAPI document. Generators of clients make functions of these names."""
    return route.name


def _note_change(services: Services) -> None:
    services.loop.wake()
    services.feed.poke()
