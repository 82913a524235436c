"""Attackers, with or without an account, can use only a bounded part of the server, and `/healthz` always answers.

The tests measure no time: they count connections, computations, and CPU time of the event loop's thread.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.unit.server.platform import ADMIN, API, LIMIT_S, NOW, Platform, check_problem

from legato.server import services
from legato.server.json_limits import MAX_VALUES
from legato.server.login_queue import LoginQueue

LOOP_S = 0.2  # the loop's thread may use at most this for one attack; the machine may be slow
PASSWORD = "correct horse"


@contextlib.contextmanager
def open_socket(platform: Platform, content: bytes = b"") -> Iterator[socket.socket]:
    host, _, port = platform.url.partition("://")[2].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=LIMIT_S) as opened:
        opened.sendall(content)
        yield opened


def read_all(opened: socket.socket) -> bytes:
    """Read until the server closes the connection."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while chunk := opened.recv(2**16):
            found += chunk
    return found


def send_all(opened: socket.socket, piece: bytes, most: int) -> int:
    """Send a piece again and again until the server takes no more; return how many bytes that were."""
    sent = 0
    with contextlib.suppress(ConnectionError):
        while sent < most:
            sent += opened.send(piece)
    return sent


def is_healthy(platform: Platform) -> bool:
    with open_socket(platform, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n") as opened:
        return read_all(opened).startswith(b"HTTP/1.1 200")


def loop_seconds(platform: Platform) -> float:
    """Return the CPU time that the thread of the event loop has used so far."""
    found: list[float] = []
    told = threading.Event()

    def tell() -> None:
        found.append(time.thread_time())
        told.set()

    platform._running.call_soon_threadsafe(tell)
    assert told.wait(LIMIT_S)
    return found[0]


def head_of(path: str, *fields: str, method: str = "POST") -> bytes:
    return "\r\n".join((f"{method} {path} HTTP/1.1", "Host: localhost", *fields, "", "")).encode()


# ---------------------------------------------------------------- heads


@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n", b"X-A: b\r\n" * 1000),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A: ", b"b" * 10_000),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX-", b"b" * 10_000),
        (b"GET /", b"b" * 10_000),
        (head_of("/healthz", "Transfer-Encoding: chunked") + b"0\r\n", b"X-A: b\r\n" * 1000),
        (head_of("/healthz", "Transfer-Encoding: chunked") + b"1;a=", b"b" * 10_000),
        (b"\r\n", b"\r\n" * 5000),
    ],
    ids=["fields", "value", "name", "path", "trailers", "extension", "empty lines"],
)
def test_a_head_without_an_end(shared: Platform, begin: bytes, piece: bytes) -> None:
    most = 2**24
    with open_socket(shared, begin) as opened:
        assert send_all(opened, piece, most) < most, "the server reads no more"
    assert is_healthy(shared)


def test_a_head_that_is_too_large_gets_an_error(new_platform: Callable[..., Platform]) -> None:
    platform = new_platform(max_head_bytes=2000, max_head_fields=20)
    for fields in (["X-A: b"] * 20, [f"X-A: {'b' * 2000}"]):
        with open_socket(platform, head_of("/healthz", *fields, method="GET")) as opened:
            answer = read_all(opened)
        assert answer.startswith(b"HTTP/1.1 431 ") and b"connection: close" in answer
        problem = json.loads(answer.partition(b"\r\n\r\n")[2])
        assert problem["type"] == "urn:legato:problem:head-too-large"
        assert "may have 2000 bytes and 20 fields" in problem["detail"]
    with open_socket(platform, b"NONSENSE\r\n\r\n") as opened:
        assert b"urn:legato:problem:bad-request" in read_all(opened)


def test_requests_that_wait_behind_another_one(shared: Platform) -> None:
    with open_socket(shared, head_of("/healthz", method="GET") * 1000) as opened:
        answer = read_all(opened)
    assert answer.count(b"HTTP/1.1 200") <= 10
    assert b"urn:legato:problem:too-many-requests" in answer


# ---------------------------------------------------------------- time


def test_half_heads_and_half_bodies_are_not_waited_for(new_platform: Callable[..., Platform]) -> None:
    platform = new_platform(head_limit_s=0.1, body_limit_s=0.1)
    halves = [
        b"",
        b"GET / HTTP/1.1\r\nHost: lo",
        head_of("/healthz", method="GET") + b"GET /",
        head_of(f"{API}/login", "Content-Type: application/json", "Content-Length: 100") + b"{",
        head_of(f"{API}/jobs", f"Authorization: Bearer {platform.secrets['ann']}", "Content-Length: 9",
                "Content-Type: application/json") + b"{",
    ]  # fmt: skip
    for half in halves:
        with open_socket(platform, half) as opened:
            assert b"HTTP/1.1 408" in read_all(opened), half
    body = json.dumps({"name": "x", "role": "user"})
    fields = ("Content-Type: application/json", f"Content-Length: {len(body)}", "Connection: close")
    with open_socket(platform, head_of(f"{API}/users", *fields) + body.encode()) as opened:
        assert b"HTTP/1.1 401" in read_all(opened), "what comes whole is answered"


def test_the_server_closes_the_connections_that_idle_longest(new_platform: Callable[..., Platform]) -> None:
    platform = new_platform(max_connections_of_address=20)
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(open_socket(platform, b"GET / HTTP/1.1\r\nX-A")) for _ in range(40)]
        assert is_healthy(platform)
        for gone in opened[:10]:
            assert read_all(gone) == b""
        assert platform.get("me")["name"] == "ann"


def test_half_bodies_use_up_only_the_limit_of_their_address(new_platform: Callable[..., Platform]) -> None:
    platform = new_platform(max_requests_of_address=3)
    half = head_of(f"{API}/login", "Content-Type: application/json", "Content-Length: 100") + b"{"
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(open_socket(platform, half)) for _ in range(4)]
        answer = b""
        while b"unauthenticated requests open" not in answer:
            answer += opened[-1].recv(2**16)
        assert answer.startswith(b"HTTP/1.1 429")
        assert is_healthy(platform)


def test_half_bodies_use_up_only_the_limit_of_their_user(new_platform: Callable[..., Platform]) -> None:
    platform = new_platform(max_requests_of_user=2)
    half = head_of(
        f"{API}/jobs",
        f"Authorization: Bearer {platform.secrets['ann']}",
        "Content-Type: application/json",
        "Content-Length: 100",
        "Expect: 100-continue",
    )
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            opened = stack.enter_context(open_socket(platform, half))
            assert opened.recv(100).startswith(b"HTTP/1.1 100"), "it waits for the body"
        answer = platform.ask("GET", "me")
        check_problem(answer, 429, "too-many-requests", "'ann' has 2 requests open")
        assert platform.get("me", who="ben")["name"] == "ben"
        assert is_healthy(platform)


# ---------------------------------------------------------------- bodies


@pytest.mark.parametrize("path", ["login", "session", "session/links/look"])
def test_bodies_of_a_log_in_are_small_and_count(new_platform: Callable[..., Platform], path: str) -> None:
    platform = new_platform(logins_per_minute=1)
    body = {f"k{number}": 0 for number in range(75_000)}
    before = loop_seconds(platform)
    for _ in range(5):
        check_problem(platform.ask("POST", path, body, who=None), 413, "too-large")
    assert loop_seconds(platform) - before < LOOP_S
    statuses = [platform.ask("POST", path, {"a": 1}, who=None).status_code for _ in range(10)]
    assert statuses == [422] * 5 + [429] * 5, "what cannot be read counts too"
    assert is_healthy(platform)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (json.dumps({f"k{number}": 0 for number in range(75_000)}), "too-large"),
        ("[" + "[],{}," * 150_000 + "0]", "too-large"),
        ('{"name": "x", "role": ' + "[" * 400_000 + "]" * 400_000 + "}", "too-large"),
        ('{"name": "x", "role": ' + "[" * 30 + "]" * 30 + "}", "invalid"),
        (json.dumps({f"k{number}": 0 for number in range(MAX_VALUES - 10)}), "invalid"),
        (json.dumps({"name": "q", "members": [0] * (MAX_VALUES - 100)}), "invalid"),
    ],
    ids=["keys", "lists", "deep", "deeper", "some keys", "wrong items"],
)
def test_bodies_with_too_much_in_them(shared: Platform, content: str, told: str) -> None:
    headers = {**shared.headers("admin"), "Content-Type": "application/json"}
    before = loop_seconds(shared)
    for path in ("jobs", "queues/plan", "users"):
        answer = shared.http.post(f"{API}/{path}", content=content, headers=headers)
        check_problem(answer, 413 if told == "too-large" else 422, told)
    assert loop_seconds(shared) - before < LOOP_S * 2


def test_texts_may_contain_any_characters(shared: Platform) -> None:
    body = {"name": "x", "role": "user", "password": '[{",\\"' * 5}
    assert shared.ask("POST", "users", body, who="admin").status_code == 201
    large = {"name": "y", "program": ["a"], "directory": "/d", "labels": {"a": ",[{" * 100_000}}
    check_problem(shared.ask("POST", "jobs", large), 422, "invalid", "label")


# ---------------------------------------------------------------- what takes long


def test_users_who_ask_the_same_share_one_plan(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    platform.lead()
    threads: list[int] = []
    running, most = [0], [0]
    real = services.plan_submission

    def count(*given: Any) -> Any:
        threads.append(threading.get_ident())
        running[0] += 1
        most[0] = max(most[0], running[0])
        try:
            return real(*given)
        finally:
            running[0] -= 1

    monkeypatch.setattr(services, "plan_submission", count)
    platform.store.jobs  # noqa: B018 - opened before the threads ask
    body = {"name": "x", "program": ["a"]}
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: platform.ask("POST", "plan", body), range(8)))
        assert {answer.status_code for answer in answers} == {200}
        assert len(threads) <= 2, "eight who ask the same share one"
        threads.clear()
        others = [{**body, "max_workers": number + 2} for number in range(8)]
        answers = list(pool.map(lambda other: platform.ask("POST", "plan", other), others))
    assert {answer.status_code for answer in answers} == {200}
    assert (len(threads), most[0]) == (8, 1), "one user has one plan computed at a time"
    assert platform.loop_thread not in threads
    assert is_healthy(platform)


# ---------------------------------------------------------------- guessing


@pytest.fixture
def behind_proxy(new_platform: Callable[..., Platform]) -> Platform:
    """A platform behind a proxy that it trusts: each request says from where it comes."""
    platform = new_platform(trusted_proxies=("127.0.0.1",), logins_per_minute=3)
    for user in ("ann", "ben", "eve"):
        if user == "eve":
            platform.ask("POST", "users", {"name": user, "role": "user"}, who="admin")
        platform.store.accounts.set_password(user, PASSWORD, ADMIN, NOW)
    return platform


def log_in(platform: Platform, address: str, user: str, password: str = PASSWORD, **headers: str) -> Any:
    body = {"user": user, "password": password}
    platform.http.cookies.clear()
    return platform.ask("POST", "login", body, who=None, X_Forwarded_For=address, **headers)


def test_many_addresses_that_guess_one_account_wait(behind_proxy: Platform) -> None:
    platform = behind_proxy
    known = log_in(platform, "10.0.0.200", "ann")
    device = known.headers["x-legato-device"]
    statuses = [log_in(platform, f"10.0.0.{number}", "ann", "wrong").status_code for number in range(30)]
    assert statuses == [401] * 9 + [429] * 21
    check_problem(log_in(platform, "10.0.0.99", "ann"), 429, "too-many-requests", "a device from which")
    assert log_in(platform, "10.0.0.99", "ann", X_Legato_Device=device).status_code == 201, "a known device gets in"
    assert log_in(platform, "10.0.0.200", "ann").status_code == 201, "and so does an address that has"
    assert log_in(platform, "10.0.0.99", "ben").status_code == 201
    # What a device has is bounded too, and it belongs to no other user.
    statuses = [log_in(platform, "10.0.0.98", "ann", "x", X_Legato_Device=device).status_code for _ in range(4)]
    assert statuses == [401, 401, 401, 429]
    assert log_in(platform, "10.0.0.97", "eve", "x", X_Legato_Device=device).status_code == 401
    for odd in ("lgd_1.2", "x"):
        assert log_in(platform, "10.0.0.96", "ann", X_Legato_Device=odd).status_code == 429


def test_a_log_in_from_a_known_device_or_address_goes_before_guesses(
    behind_proxy: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform, turns = behind_proxy, []
    turn = LoginQueue.turn

    def note(queue: LoginQueue, source: str, *, is_known: bool = False) -> Any:
        turns.append((source, is_known))
        return turn(queue, source, is_known=is_known)

    monkeypatch.setattr(LoginQueue, "turn", note)
    device = log_in(platform, "10.0.0.1", "ann").headers["x-legato-device"]
    log_in(platform, "10.0.0.1", "ann")
    log_in(platform, "10.0.0.2", "ann", X_Legato_Device=device)
    log_in(platform, "10.0.0.3", "ann", "wrong")
    assert turns == [("10.0.0.1", False), ("10.0.0.1", True), ("10.0.0.2", True), ("10.0.0.3", False)]


def test_guesses_behind_a_proxy_lock_no_other_user_out(behind_proxy: Platform) -> None:
    platform = behind_proxy
    assert [log_in(platform, "10.0.0.1", "ann", "wrong").status_code for _ in range(50)] == [401] * 3 + [429] * 47
    assert log_in(platform, "10.0.0.1", "ben").status_code == 201, "what is refused at once costs the others nothing"
    # Who tries all names uses up what the address has; those who were here before get in nevertheless.
    statuses = [log_in(platform, "10.0.0.1", f"nobody{number}", "wrong").status_code for number in range(40)]
    assert statuses[0] == 401 and statuses[-1] == 429
    assert log_in(platform, "10.0.0.1", "ben").status_code == 201
    assert log_in(platform, "10.0.0.1", "eve").status_code == 429
    secret = platform.secrets["admin"]
    answer = platform.ask("POST", "session", {"token": secret}, who=None, X_Forwarded_For="10.0.0.1")
    assert answer.status_code == 200, "a token is no guess"


def test_a_browser_is_known_again_until_the_password_changes(behind_proxy: Platform) -> None:
    platform = behind_proxy
    body = {"user": "ann", "password": PASSWORD}

    def begin(address: str, **headers: str) -> Any:
        platform.http.cookies.clear()
        return platform.ask("POST", "session", body, who=None, X_Forwarded_For=address, **headers)

    cookies = begin("10.0.0.1").headers.get_list("set-cookie")
    device = next(cookie for cookie in cookies if cookie.startswith("legato_device="))
    assert "HttpOnly; SameSite=Strict" in device
    for number in range(9):
        log_in(platform, f"10.0.1.{number}", "ann", "wrong")
    assert begin("10.0.0.2").status_code == 429
    assert begin("10.0.0.2", Cookie=device.partition(";")[0]).status_code == 200
    platform.store.accounts.set_password("ann", PASSWORD, ADMIN, NOW)
    assert begin("10.0.0.3", Cookie=device.partition(";")[0]).status_code == 429
