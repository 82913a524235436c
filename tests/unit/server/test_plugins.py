"""Plugins of the server: what the middleware does for them, what they do themselves, and how they use REST."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp
from tests.unit.server.platform import Platform, check_problem

from legato.control.settings import Settings
from legato.core.errors import UsageError
from legato.server.plugins import Inside, ServerPlugin


def make_guest(inside: Inside) -> ASGIApp:
    """A plugin that echoes, passes questions on, and falls."""

    async def echo(request: Request) -> Response:
        body = await request.body()
        return PlainTextResponse(f"{request.method} {len(body)}")

    async def pass_on(request: Request) -> Response:
        async with inside(request.scope) as client:
            headers = {"Authorization": request.headers.get("x-token", ""), "Content-Type": "application/json"}
            answer = await client.request(
                request.query_params.get("method", "GET"),
                request.query_params["path"],
                headers=headers,
                content=await request.body() or None,
            )
        return JSONResponse({"status": answer.status_code, "body": answer.text})

    async def fall(request: Request) -> Response:
        raise RuntimeError("it fell")

    methods = ["GET", "POST", "PUT"]
    return Starlette(
        routes=[
            Route("/plugin/echo", echo, methods=methods),
            Route("/plugin/ask", pass_on, methods=methods),
            Route("/plugin/fall", fall),
            Route("/alone", echo),
        ]
    )


@pytest.fixture
def new_platform(tmp_path: Path, template: Path) -> Iterator[Callable[..., Platform]]:
    with ExitStack() as stack:

        def make(**settings: Any) -> Platform:
            def plugins(_: Settings) -> list[ServerPlugin]:
                return [ServerPlugin(name="plugin", prefixes=("/plugin/", "/alone"), make=make_guest)]

            return stack.enter_context(Platform(tmp_path / "home", template, plugins=plugins, **settings).running())

        yield make


def test_a_plugin_answers_its_own_paths_and_no_others(platform: Platform) -> None:
    assert platform.ask("GET", "/plugin/echo", who=None).text == "GET 0"
    assert platform.ask("GET", "/alone", who=None).text == "GET 0"
    for path in ("/alone/", "/alonely", "/gues", "/plugin"):
        check_problem(platform.ask("GET", path, who=None), 404, "not-found")
    assert platform.get("me") == {"name": "ann", "role": "user"}


def test_a_plugin_reads_and_limits_its_own_bodies(platform: Platform) -> None:
    answer = platform.http.post("/plugin/echo", content=b"x" * 3_000_000, headers={"Content-Type": "text/odd"})
    assert answer.text == "POST 3000000"


def test_the_server_refuses_bad_requests_before_a_plugin_sees_them(platform: Platform) -> None:
    check_problem(platform.http.get("/plugin/echo", headers={"Host": "evil.example"}), 421, "wrong-host")
    check_problem(platform.http.get("/plugin/echo", headers={"Origin": "http://evil.example"}), 403, "wrong-origin")
    check_problem(platform.http.get("/plugin/echo?a=%00"), 400, "bad-request")


def test_answers_of_a_plugin_have_the_headers_of_the_server(platform: Platform) -> None:
    answer = platform.ask("GET", "/plugin/echo", who=None)
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert len(answer.headers["x-request-id"]) == 16


def test_a_plugin_has_only_the_rights_of_the_token_it_passes_on(platform: Platform) -> None:
    told = platform.http.get("/plugin/ask?path=/api/v1/me").json()
    assert told["status"] == 401
    bearer = {"X-Token": f"Bearer {platform.secrets['ann']}"}
    assert (
        platform.http.get("/plugin/ask?path=/api/v1/me", headers=bearer).json()["body"]
        == '{"name":"ann","role":"user"}'
    )
    assert platform.http.get("/plugin/ask?path=/api/v1/config", headers=bearer).json()["status"] == 403


def test_a_plugin_asks_from_the_address_of_its_client(new_platform: Callable[..., Platform]) -> None:
    platform = new_platform(logins_per_minute=2)
    wrong = {"user": "ann", "password": "wrong"}
    inside = [platform.http.post("/plugin/ask?path=/api/v1/login&method=POST", json=wrong).json() for _ in range(2)]
    assert [told["status"] for told in inside] == [401, 401]
    # Both count for the address that both come from.
    assert platform.http.post("/api/v1/login", json=wrong).status_code == 429


def test_limits_of_a_token_hold_for_a_plugin(new_platform: Callable[..., Platform]) -> None:
    platform = new_platform(requests_per_s=0.001, requests_burst=2)
    bearer = {"X-Token": f"Bearer {platform.secrets['ann']}"}
    told = [platform.http.get("/plugin/ask?path=/api/v1/me", headers=bearer).json()["status"] for _ in range(3)]
    assert told == [200, 200, 429]


def test_the_log_names_the_user_who_asked_a_plugin(platform: Platform) -> None:
    bearer = {"X-Token": f"Bearer {platform.secrets['ann']}"}
    with structlog.testing.capture_logs() as log:
        platform.http.post("/plugin/ask?path=/api/v1/me", headers=bearer)
        platform.http.post("/plugin/ask?path=/api/v1/me", headers={"X-Token": "Bearer lgt_wrong"})
        platform.http.post("/plugin/ask?path=/api/v1/healthz")
        # Its line is written after the answer; those of the requests before the last one are there by then.
        platform.http.post("/plugin/echo")
    lines = [line for line in log if line["event"] == "request" and line["path"] == "/plugin/ask"]
    assert [line["user"] for line in lines] == ["ann", None, None]


def test_a_plugin_that_fails_gets_an_error_answer(platform: Platform) -> None:
    answer = platform.ask("GET", "/plugin/fall", who=None)
    assert answer.status_code == 500
    assert "it fell" not in answer.text
    assert platform.ask("GET", "/plugin/echo", who=None).status_code == 200


@pytest.mark.parametrize("prefix", ["/api/v1/x/", "/api/", "/metrics", "/healthz"])
def test_a_plugin_cannot_take_paths_of_the_server(tmp_path: Path, template: Path, prefix: str) -> None:
    from legato.server.plugins import ServerPlugins

    async def nothing(*_: Any) -> None: ...

    with pytest.raises(UsageError, match="conflicts with"):
        ServerPlugins(
            [ServerPlugin(name="g", prefixes=(prefix,), make=make_guest)], nothing, ("/api/v1/", "/metrics", "/healthz")
        )
    two = [ServerPlugin(name=name, prefixes=("/a/",), make=make_guest) for name in "ab"]
    with pytest.raises(UsageError, match="'/a/' of a"):
        ServerPlugins(two, nothing, ())


def test_the_settings_choose_the_plugins() -> None:
    from legato.cli.platform.server import find_plugins

    assert [plugin.name for plugin in find_plugins(Settings())] == ["wmla", "elasticdl"]
    assert find_plugins(Settings(compat=())) == []
