"""Checks of every request: authentication, host, origin, size, rate, and the form of errors."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import structlog
from tests.unit.server.platform import ADMIN, API, JOB, LIMIT_S, NOW, Platform, check_problem

DAY_S = 86400.0


def test_without_a_token_only_the_open_pages_answer(platform: Platform) -> None:
    for path in ("/healthz", "/version", "/metrics", f"{API}/openapi.json"):
        assert platform.ask("GET", path, who=None).status_code == 200, path
    for path in ("me", "jobs", "jobs/x", "config", "events", "code/" + "0" * 64, "nothing"):
        answer = platform.ask("GET", path, who=None)
        check_problem(answer, 401, "unauthenticated", "the token is missing")
        assert answer.headers["www-authenticate"] == "Bearer"


def test_an_invalid_token_is_reported(platform: Platform) -> None:
    for shown in ("Bearer", "Basic YWRtaW46YQ==", "lgt_00", "Bearer " + "a" * 300, "Bearer lgt_\xe4"):
        answer = platform.http.get(f"{API}/me", headers={"Authorization": shown.encode("latin-1")})
        check_problem(answer, 401, "unauthenticated")


def test_invalid_tokens_are_refused(platform: Platform) -> None:
    store = platform.store
    short = store.tokens.create("ann", "short", ADMIN, NOW, expires_at=NOW + DAY_S)
    revoked = store.tokens.create("ann", "revoked", ADMIN, NOW, expires_at=NOW + 1e7)
    store.tokens.revoke(revoked.token.id, ADMIN, NOW)
    platform.secrets |= {"short": short.secret, "revoked": revoked.secret, "made up": "lgt_" + "0" * 64}
    assert platform.get("me", who="short") == {"name": "ann", "role": "user"}
    check_problem(
        platform.ask("GET", "me", who="revoked"), 401, "unauthenticated", "it was revoked. Tokens come from an admin"
    )
    check_problem(
        platform.ask("GET", "me", who="made up"),
        401,
        "unauthenticated",
        "this server does not know the token. Tokens come from an admin",
    )
    platform.now += DAY_S
    check_problem(platform.ask("GET", "me", who="short"), 401, "unauthenticated", "it has expired")
    store.accounts.change("ben", ADMIN, NOW, is_disabled=True)
    check_problem(platform.ask("GET", "me", who="ben"), 401, "unauthenticated", "the user is disabled")


def test_every_answer_has_its_number_and_is_not_kept(platform: Platform) -> None:
    answers = [platform.ask("GET", path) for path in ("me", "nothing", "/healthz", "jobs")]
    numbers = [answer.headers["x-request-id"] for answer in answers]
    assert len(set(numbers)) == len(numbers)
    for answer in answers:
        assert re.fullmatch(r"[0-9a-f]{16}", answer.headers["x-request-id"])
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_hosts(new_platform: Callable[..., Platform]) -> None:
    platform = new_platform(allowed_hosts=("localhost", "Legato.Example", "[::1]"))
    for host in ("localhost", "localhost:99", "LEGATO.example:80", "[::1]:80", "127.0.0.1:5"):
        # The last one is where the server listens.
        assert platform.ask("GET", "me", Host=host).status_code == 200, host
    for host in ("evil.example", "localhost.evil.example", "evil.example:80", "legato.example.", "[::2]:80"):
        for path in ("me", "/healthz", f"{API}/openapi.json"):
            check_problem(platform.ask("GET", path, Host=host), 421, "wrong-host", "allowed_hosts")
    raw = httpx.Request("GET", f"{platform.url}/healthz", headers={"Host": ""})
    check_problem(platform.http.send(raw), 421, "wrong-host")


def test_requests_of_foreign_pages_are_refused(platform: Platform) -> None:
    host = platform.url.partition("://")[2]
    assert platform.ask("POST", "jobs", JOB, Origin=f"http://{host}").status_code == 201
    for origin in ("https://evil.example", "null", f"http://{host}.evil.example", "http://localhost", "file://"):
        check_problem(platform.ask("POST", "jobs", JOB, Origin=origin), 403, "wrong-origin", "may not send requests")
        check_problem(platform.ask("GET", "jobs", Origin=origin), 403, "wrong-origin")
    assert "access-control-allow-origin" not in platform.ask("GET", "jobs").headers


def test_unknown_paths_and_methods_are_refused(platform: Platform) -> None:
    for path in ("nothing", "/nothing", "/docs", "/openapi.json", "jobs/", "/api/v2/jobs", "jobs/x/colour"):
        check_problem(platform.ask("GET", path), 404, "not-found")
    answer = platform.ask("DELETE", "jobs")
    check_problem(answer, 405, "method-not-allowed")
    assert answer.headers["allow"]
    check_problem(platform.ask("GET", "jobs?name=a%00b"), 400, "bad-request", "zero byte")
    check_problem(platform.ask("GET", "jobs/a%00b"), 400, "bad-request", "zero byte")


def test_queries_with_unknown_parameters_are_refused(platform: Platform) -> None:
    answer = platform.ask("GET", "jobs?stages=running")
    told = "takes no 'stages' in the query. It takes after, definition, experiment, label, limit, name, order, "
    check_problem(answer, 422, "invalid", told)
    check_problem(platform.ask("GET", "me?x=1"), 422, "invalid", "It has no query parameters.")
    check_problem(platform.ask("POST", "login?x=1", {"user": "a", "password": "b"}, who=None), 422, "invalid")
    assert platform.ask("GET", "/healthz?x=1", who=None).status_code == 200, "probes add what they like"


def test_bodies_that_cannot_be_read(platform: Platform) -> None:
    for content, kind, status, name in [
        (b"{", "application/json", 400, "bad-request"),
        (b"\xff", "application/json", 400, "bad-request"),
        (b"[" * 100_000, "application/json", 413, "too-large"),
        (b"[]", "application/json", 422, "invalid"),
        (b"null", "application/json", 422, "invalid"),
        (b"", "application/json", 422, "invalid"),
        (b"{}", "text/plain", 415, "unsupported-media-type"),
        (b"name=a", "application/x-www-form-urlencoded", 415, "unsupported-media-type"),
        (b"{}", "", 415, "unsupported-media-type"),
        (b'{"name": "a\\u0000", "program": ["a"]}', "application/json", 422, "invalid"),
        (b'{"name": "\\ud800", "program": ["a"]}', "application/json", 422, "invalid"),
        (b'{"name": "a", "program": ["\\ud800"], "directory": "/d"}', "application/json", 422, "invalid"),
    ]:
        headers = platform.headers("ann") | ({"Content-Type": kind} if kind else {})
        check_problem(platform.http.post(f"{API}/jobs", content=content, headers=headers), status, name)


@pytest.mark.parametrize("depth", [20, 100, 300, 500, 900, 5000, 100_000])
@pytest.mark.parametrize("brackets", [("[", "]"), ('{"a":', "}")])
def test_bodies_that_are_too_deep(platform: Platform, depth: int, brackets: tuple[str, str]) -> None:
    begin, end = brackets
    deep = begin * depth + "1" + end * depth
    headers = platform.headers("ann") | {"Content-Type": "application/json"}
    for content in (deep, f'{{"name": "a", "program": ["x"], "directory": "/", "labels": {deep}}}'):
        answer = platform.http.post(f"{API}/jobs", content=content, headers=headers)
        is_large = depth > 20_000
        check_problem(answer, 413 if is_large else 422, "too-large" if is_large else "invalid")
    if depth == 100:
        check_problem(answer, 422, "invalid", "nested more than 20 levels deep")


def test_bodies_that_are_too_large(platform: Platform) -> None:
    content = json.dumps(JOB | {"labels": {"a": "b" * 2**20}}).encode()
    headers = platform.headers("ann") | {"Content-Type": "application/json"}
    check_problem(platform.http.post(f"{API}/jobs", content=content, headers=headers), 413, "too-large")

    def parts() -> Any:
        # Without a length beforehand.
        for at in range(0, len(content), 2**16):
            yield content[at : at + 2**16]

    check_problem(platform.http.post(f"{API}/jobs", content=parts(), headers=headers), 413, "too-large")
    assert platform.get("jobs")["items"] == []


def test_a_client_that_asks_too_often_has_to_wait(new_platform: Callable[..., Platform]) -> None:
    platform = new_platform(requests_per_s=0.25, requests_burst=3)
    assert [platform.ask("GET", "me").status_code for _ in range(3)] == [200, 200, 200]
    answer = platform.ask("GET", "me")
    check_problem(answer, 429, "too-many-requests")
    assert answer.headers["retry-after"] == "4"
    assert platform.ask("GET", "me", who="ben").status_code == 200, "each token by itself"
    assert platform.ask("GET", "/healthz", who=None).status_code == 200
    platform.now += 4
    assert platform.ask("GET", "me").status_code == 200
    # Guessers are known by their address, whatever they show.
    platform.secrets |= {str(number): f"lgt_{number}" for number in range(5)}
    statuses = [platform.ask("GET", "me", who=str(number)).status_code for number in range(5)]
    assert statuses == [401, 401, 401, 429, 429]


def test_requests_that_only_read_are_logged_for_debugging(platform: Platform, caplog: pytest.LogCaptureFixture) -> None:
    with structlog.testing.capture_logs() as log:
        # The line of a request is written after its answer, but before the next answer.
        platform.get("me")
        platform.get("jobs")
        caplog.set_level(logging.DEBUG, "legato.server.middleware")
        platform.get("queues")
        platform.get("jobs")
    lines = [(line["path"], line["log_level"]) for line in log if line["event"] == "request"]
    assert (f"{API}/queues", "debug") in lines
    assert f"{API}/me" not in dict(lines)


def test_an_internal_error_shows_no_details_to_the_client(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("the secret inside")

    monkeypatch.setattr(platform.store.jobs, "list", fail)
    with structlog.testing.capture_logs() as log:
        answer = platform.ask("GET", "jobs")
    problem = check_problem(answer, 500, "internal")
    assert "secret" not in answer.text
    told = next(line for line in log if line["event"] == "the server could not answer a request")
    assert (told["request"], told["path"]) == (problem["request_id"], f"{API}/jobs")
    assert repr(told["exc_info"]) == "RuntimeError('the secret inside')", "the log has the story"


def test_a_store_that_is_away_is_reported(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    from legato.core.errors import StoreError

    def fail(*_: Any, **__: Any) -> None:
        raise StoreError("Cannot use the store: it is away.")

    monkeypatch.setattr(platform.store.jobs, "list", fail)
    answer = platform.ask("GET", "jobs")
    check_problem(answer, 503, "unavailable", "it is away")
    assert answer.headers["retry-after"] == "2"


def test_a_change_wakes_the_loop_and_a_look_does_not(platform: Platform) -> None:
    platform.get("jobs")
    platform.ask("POST", "jobs", {})
    platform.submit()
    # It is woken after the answer; what the requests before the last one did to it is done by then.
    assert platform.loop.woken.wait(LIMIT_S)
    platform.get("jobs")
    assert platform.loop.num_wakes == 1
