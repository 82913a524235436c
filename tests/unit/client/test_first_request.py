"""The first request of a command: the same request as httpx sends, and only a plain answer is taken."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from legato.client.first_request import ask_first

BODY = b'{"items": [], "after": null}'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n" % len(BODY)
GOOD = HEAD + b"X-Request-Id: 1\r\n\r\n" + BODY


@pytest.fixture(autouse=True)
def _httpx_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "httpx")


class Server:
    """Answers one connection with bytes."""

    def __init__(self, answer: bytes) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.request = b""
        self.thread = threading.Thread(target=self._answer, args=(answer,))
        self.thread.start()

    def _answer(self, answer: bytes) -> None:
        with contextlib.suppress(OSError):
            line, _ = self.listener.accept()
            with line:
                line.settimeout(30)
                while not self.request.endswith(b"\r\n\r\n"):
                    self.request += line.recv(1)
                line.sendall(answer)


@contextlib.contextmanager
def serve(answer: bytes) -> Iterator[Server]:
    server = Server(answer)
    yield server
    server.thread.join(30)
    server.listener.close()


def ask(url: str, **params: Any) -> bytes | None:
    return ask_first(url, "/api/v1/jobs", params, {"Authorization": "Bearer lgt_a"})


def test_a_plain_answer_is_taken_and_no_proxy_sees_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with serve(GOOD) as server:
        assert ask(server.url) == BODY
    assert b"\r\nAuthorization: Bearer lgt_a\r\n" in server.request


@pytest.mark.parametrize(
    "answer",
    [
        GOOD.replace(b"200 OK", b"204 No Content"),
        GOOD.replace(b"200 OK", b"307 Temporary Redirect"),
        GOOD.replace(b"200 OK", b"401 Unauthorized"),
        GOOD.replace(b"200 OK", b"503 Service Unavailable"),
        GOOD.replace(b"X-Request-Id: 1", b"Transfer-Encoding: chunked"),
        GOOD.replace(b"X-Request-Id: 1", b"Content-Encoding: gzip"),
        GOOD.replace(b"X-Request-Id", b"x-legato-warning"),
        GOOD.replace(b"application/json", b"text/html"),
        GOOD.replace(b"Content-Length: 28", b"X: 28"),
        GOOD.replace(b"X-Request-Id: 1", b"X: 1\r\n" * 101),
        GOOD.replace(b"X-Request-Id: 1", b"Content-Encoding : gzip"),
        GOOD.replace(b"X-Request-Id: 1", b" Content-Encoding: gzip"),
        GOOD.replace(b"X-Request-Id: 1", b"X: 1\rContent-Encoding: gzip"),
        GOOD.replace(b"X-Request-Id: 1", b": 1"),
        GOOD.replace(b"X-Request-Id: 1", b"X: \xe9"),
        GOOD.replace(b"X-Request-Id: 1", b"X: 1\n"),
        GOOD.replace(b"Content-Length: 28", b"X: ".ljust(2**16, b"x") + b"Content-Length: 28"),
        GOOD.replace(b"HTTP/1.1", b"  HTTP/1.1"),
        GOOD[:-1],
        HEAD,
        b"",
        b"X" * 100_000,
        b"SSH-2.0-OpenSSH_9.6\r\n",
    ],
)
def test_after_any_other_answer_httpx_sends_the_request(answer: bytes) -> None:
    with serve(answer) as server:
        assert ask(server.url) is None


def test_an_answer_that_is_too_long_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("legato.client.first_request._MAX_BYTES", len(BODY) - 1)
    with serve(GOOD) as server:
        assert ask(server.url) is None


def test_a_query_is_written_as_httpx_writes_it() -> None:
    params = {"stage": ["queued", "running"], "search": "a b&c=d+é/?", "limit": 101, "is_open": True, "order": "newest"}
    with serve(GOOD) as server:
        assert ask(server.url, **params) == BODY
    written = httpx.URL("http://a/api/v1/jobs", params=params).raw_path
    assert server.request.split(b" ")[1] == written


def test_what_could_end_a_header_is_left_to_httpx() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        for token in ("a\r\nX: b", "a\nX: b", "a\r\n X: b", "a\0", "\xe9", "\u010a"):
            assert ask_first(url, "/api/v1/jobs", {}, {"Authorization": f"Bearer {token}"}) is None
        for path in ("/api/v1/a b", "/a\r\nX: b", "/\xe9"):
            assert ask_first(url, path, {}, {}) is None
        for other in (
            url.replace("http", "https"),
            f"{url}/prefix",
            url.replace("127", "user:secret@127"),
            "http://:1",
        ):
            assert ask(other) is None
        listener.settimeout(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                line, _ = listener.accept()
                with line:
                    assert line.recv(1) == b""  # a connection, without a request


def test_a_server_that_does_not_answer_is_left_to_httpx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("legato.client.first_request._ANSWER_LIMIT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert ask(f"http://127.0.0.1:{silent.getsockname()[1]}") is None
    assert ask("http://127.0.0.1:1") is None


def test_nothing_is_sent_if_httpx_is_loaded_anyway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", httpx)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert ask(f"http://127.0.0.1:{listener.getsockname()[1]}") is None
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()
