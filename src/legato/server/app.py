"""The application: all routes, and the middleware before them. Opens nothing and starts nothing."""

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
from legato.server.frameworks import Offered
from legato.server.middleware import Door, answer_error
from legato.server.plugins import ServerPlugin
from legato.server.routes import (
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
)
from legato.server.services import Services

_ROUTERS: Final = (
    *(jobs.router, job_details.router, events.router, logs.router, files.router, code.router),
    *(projects.router, experiments.router),
    *(shares.router, pool.router, people.router, session.router, operating.router),
)


def make_app(services: Services, plugins: Sequence[ServerPlugin] = ()) -> Door:
    """Return the application, as uvicorn or a test runs it.

    Args:
        services: what the routes stand on.
        plugins: who answer under paths of their own.

    Raises:
        UsageError: two of them want the same paths.
    """
    # Its own pages and its own description are replaced by ours; those of FastAPI load scripts from elsewhere.
    app = FastAPI(
        routes=_join_routers().routes, openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False
    )
    app.state.services = services
    app.state.frameworks = Offered(framework for plugin in plugins for framework in plugin.frameworks)

    @functools.cache
    def describe() -> dict[str, Any]:
        # Not at each start: it takes longer than all else.
        return publish(app, legato.__version__)

    @app.get(f"{API}/openapi.json", include_in_schema=False)
    def get_description() -> Response:
        """Return what programs need to know of all this."""
        return Answer(describe())

    for kind in (HTTPException, RequestValidationError, LegatoError, Exception):
        app.add_exception_handler(kind, answer_error)
    return Door(
        app,
        settings=services.settings,
        authenticator=services.authenticator,
        figures=services.figures,
        plugins=plugins,
        own=(
            f"{API}/",
            console.PREFIX,
            *(route.path for route in open_pages.router.routes if isinstance(route, APIRoute)),
        ),
        changed=lambda: _tell_change(services),
    )


@functools.cache
def _join_routers() -> APIRouter:
    """Return one router with all routes. FastAPI analyses them when they are first used; applications share that."""
    joined = APIRouter(generate_unique_id_function=_name)
    for router in _ROUTERS:
        joined.include_router(router, dependencies=[Depends(_refuse_unknown)])
    joined.include_router(open_pages.router)
    joined.include_router(console.router)
    return joined


async def _refuse_unknown(request: Request) -> None:
    """Refuse a query that is not understood whole: a filter that is misspelt must not be no filter."""
    route: APIRoute = request.scope["route"]
    known = [field.alias for field in route.dependant.query_params]
    for name in request.query_params:
        if name not in known:
            told = f"It takes {', '.join(sorted(known))}" if known else "It has no query parameters"
            raise UsageError(f"Cannot use the request: its path takes no '{name[:100]}' in the query. {told}.")


def _name(route: APIRoute) -> str:
    """Return the name of an operation in the published description; generators of clients make functions of them."""
    return route.name


def _tell_change(services: Services) -> None:
    services.loop.wake()
    services.feed.poke()
