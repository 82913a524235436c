"""A receiver of webhooks on this machine, in a thread of its own."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Iterator


class Receiver(http.server.ThreadingHTTPServer):
    """Notes what it gets, and answers with ``status``."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 200
        self.location: str | None = None
        self.got: list[tuple[str, dict[str, str], bytes]] = []

    @property
    def port(self) -> int:
        return self.server_address[1]


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
        self.send_response(self.server.status)
        if self.server.location is not None:
            self.send_header("Location", self.server.location)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_args: object) -> None:
        """Write nothing."""


@contextlib.contextmanager
def receiving() -> Iterator[Receiver]:
    """Run a receiver for as long as the block lasts."""
    with Receiver() as receiver:
        thread = threading.Thread(target=receiver.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield receiver
        finally:
            receiver.shutdown()
            thread.join()
