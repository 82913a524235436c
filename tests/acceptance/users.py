"""Two users of WMLA: one asks by REST, as notebooks do, one by the command. Both know nothing of Legato."""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import httpx
from benchmarks.platform import Platform

from legato.compat.wmla.tools import dlicmd

LIMIT_S = 110.0
DLI = "/platform/rest/deeplearning/v1"
CONDUCTOR = "/platform/rest/conductor/v1"


class Notebook:
    """Asks by REST.

    Args:
        server: whom.
        user: and the password.
    """

    def __init__(self, server: Platform, user: tuple[str, str]) -> None:
        self.http = httpx.Client(base_url=server.url, timeout=LIMIT_S)
        token = self.http.get("/auth/v1/logon", auth=user).json()["accessToken"]
        self.http.headers["X-Auth-Token"] = token

    def send(
        self, args: str, content: bytes | None, *, name: str = "model.modelDir.tar", **query: str
    ) -> httpx.Response:
        """Submit, and return the answer, whatever it is."""
        files = {"file": (name, content)} if content is not None else None
        return self.http.post(f"{DLI}/execs", params={"args": args, **query}, files=files)

    def submit(self, folder: Path, args: str) -> str:
        """Submit a model directory and return the id."""
        answer = self.send(args, pack(folder), name=f"{folder.name}.modelDir.tar")
        assert answer.is_success, answer.text
        return str(answer.json()["id"])

    def get(self, path: str, **query: str) -> Any:
        """Return what an answer holds as JSON."""
        answer = self.http.get(path, params=query, headers={"Accept": "application/json"})
        assert answer.is_success, answer.text
        return answer.json()

    def read(self, path: str, **query: str) -> str:
        """Return what an answer holds as text."""
        answer = self.http.get(path, params=query, headers={"Accept": "text/plain"})
        assert answer.is_success, answer.text
        return answer.text

    def state(self, job: str) -> str:
        return str(self.get(f"{DLI}/execs/{job}")["state"])

    def log(self, job: str, kind: str | None = None) -> str:
        return str(self.get(f"{DLI}/execs/{job}/log", **({"logType": kind} if kind else {})))

    def result(self, job: str) -> dict[str, bytes]:
        """Return the files of a result by their names."""
        answer = self.http.get(f"{DLI}/execs/{job}/result")
        assert int(answer.headers["Content-Disposition"].split("size=")[1]) == len(answer.content)
        return unpack(answer.content)


class Terminal:
    """Types commands.

    Args:
        server: whom they ask.
        folder: where the files are.
        user: and the password.
    """

    def __init__(self, server: Platform, folder: Path, user: tuple[str, str]) -> None:
        self.folder = folder
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "DLICMD_REST_HOST": server.url,
            "DLICMD_USERNAME": user[0],
            "DLICMD_PASSWORD": user[1],
        }

    def types(self, *words: str) -> str:
        """Run a command and return what it prints."""
        done = subprocess.run(
            [sys.executable, dlicmd.__file__, *words],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    def submit(self, folder: Path, args: str) -> str:
        """Submit a model directory and return the id, which scripts cut out from the first brace on."""
        told = self.types(*shlex.split(args.replace(f"--model-dir {folder.name}", f"--model-dir {folder}")))
        return str(json.loads(told[told.index("{") :])["appId"])

    def result(self, job: str) -> dict[str, bytes]:
        """Fetch a result, and return its files by their names."""
        name = self.types("--exec-trainresult", job).removeprefix("Train result is saved to ").strip()
        return unpack((self.folder / name).read_bytes())


def pack(folder: Path) -> bytes:
    """Pack as the notebooks do: gzip, whatever the name says, with the folder's own name on top."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        tar.add(folder, arcname=folder.name)
    return made.getvalue()


def unpack(content: bytes) -> dict[str, bytes]:
    """Return the files of a zip file by their names."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
