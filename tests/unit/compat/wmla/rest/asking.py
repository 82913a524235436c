"""A client of the plugin, which sends requests as WMLA's clients do."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
from tests.unit.server.platform import ADMIN, NOW, Platform

from legato.control.records import Queue

DLI = "/platform/rest/deeplearning/v1"
CONDUCTOR = "/platform/rest/conductor/v1"
PASSWORD = "correct horse"
MNIST = (
    "--exec-start edtPyTorch --cs-datastore-meta type=fs,data_path=pytorch-mnist --numWorker 4 --model-main main.py "
    "--model-dir mnist --epochs 3"
)


def make_tar(files: Mapping[str, bytes], *, gzips: bool = True, entries: tuple[tarfile.TarInfo, ...] = ()) -> bytes:
    """Pack files, and entries that are not plain files."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        for entry in entries:
            tar.addfile(entry)
    return gzip.compress(made.getvalue()) if gzips else made.getvalue()


MODEL = make_tar({"mnist/main.py": b"print('hello')\n", "mnist/elog.py": b"", "mnist/sub/a.txt": b"a"})


class Console:
    """Sends requests to the plugin as a user.

    Args:
        platform: runs the plugin.
    """

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        for name in ("ann", "ben"):
            platform.store.accounts.set_password(name, PASSWORD, ADMIN, NOW)
        # Setting a password revokes all tokens.
        for name in ("ann", "ben"):
            made = platform.store.tokens.create(name, "test", ADMIN, NOW, expires_at=NOW + 1e7)
            platform.secrets[name] = made.secret

    def ask(self, method: str, path: str, *, who: str | None = "ann", base: str = DLI, **more: Any) -> httpx.Response:
        headers = {**({} if who is None else {"X-Auth-Token": self.platform.secrets[who]}), **more.pop("headers", {})}
        return self.platform.http.request(method, base + path, headers=headers, **more)

    def get(self, path: str, *, want: int = 200, **more: Any) -> Any:
        answer = self.ask("GET", path, **more)
        assert answer.status_code == want, answer.text
        return answer.json()

    def submit(self, args: str = MNIST, content: bytes = MODEL, *, who: str = "ann", **query: str) -> dict[str, Any]:
        """Submit a job and return its record."""
        answer = self.send(args, [("mnist.modelDir.tar", content)], who=who, **query)
        assert answer.status_code == 200, answer.text
        record: dict[str, Any] = answer.json()
        return record

    def send(
        self, args: str | None, files: list[tuple[str, bytes]], *, who: str = "ann", data: Any = None, **query: str
    ) -> httpx.Response:
        """Send a submission."""
        params = ({} if args is None else {"args": args}) | query
        parts = [("file", file) for file in files]
        return self.ask("POST", "/execs", who=who, params=params, files=parts or None, data=data)

    def start(self, job: str, *slots: str) -> None:
        """Set a job running, as the control loop would."""
        self.platform.lead(max(len(slots), 4))
        self.platform.start(job, *(slots or ("node/0",)))

    def write(self, job: str, path: str, content: bytes | str) -> Path:
        """Write a file as the job would; ``path`` is relative to the job's directory."""
        file = self.platform.directory(job) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    def add_queue(self, name: str, **fields: Any) -> None:
        self.platform.store.queues.put(Queue(name=name, **fields), ADMIN, NOW)


def check_error(answer: httpx.Response, status: int, told: str = "") -> str:
    """Check that an answer is an error in the form of WMLA, and return its text."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.text.startswith(f"Error {status}: "), answer.text
    assert told in answer.text, answer.text
    return answer.text
