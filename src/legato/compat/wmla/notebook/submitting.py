"""Submits the job of a notebook's ``train()``, with its code, labels and environment variables. Does not wait."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import time
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from legato.client.client import Client
from legato.client.connection import Line, need_token
from legato.client.jobs import Job
from legato.client.packing import Packed
from legato.client.servers import find_server
from legato.compat.wmla import names
from legato.compat.wmla.frameworks import FRAMEWORKS
from legato.compat.wmla.notebook.notebook_bundle import PROGRAM
from legato.core.errors import LegatoError, Unauthenticated

_FOLDER: Final = "notebook"
_MAIN: Final = f"{names.SUBMITTED_CODE}/{_FOLDER}/{PROGRAM}"
_NOTEBOOK: Final = "NOTEBOOK"
_SETTINGS: Final = "/platform/rest/deeplearning/v1/conf"
_PASSED_ON: Final = (names.DATA_DIRECTORY, "EDT_LOSS_SCALE", "EDT_PULL_WEIGHT_TIME_OUT", "EDT_PULL_FAILED_LIMITS")
_MAX_USER_LENGTH: Final = 30


class Platform:
    """The platform to which a notebook submits.

    Args:
        line: connection to the server. None: to the server of ``LEGATO_SERVER`` and ``LEGATO_TOKEN``, or of `legato
            login`.

    Raises:
        Unauthenticated: no server or no token is known; the message says what to type.
    """

    def __init__(self, line: Line | None = None) -> None:
        self._line = _find_line() if line is None else line
        self.client = Client.on(self._line)

    def submit(
        self, files: Mapping[str, bytes], framework: str, max_workers: int, more: Mapping[str, str] | None = None
    ) -> Job:
        """Submit a job that trains the objects of a notebook.

        Args:
            files: of its program by name; see `legato.compat.wmla.notebook.notebook_bundle`.
            framework: name of a framework in `legato.compat.wmla.frameworks`.
            max_workers: maximum number of workers.
            more: further environment variables of the job.
        """
        user = self.client.me().name
        name = name_job(user, time.time())
        content = {names.LAUNCHER: names.LAUNCHER_SOURCE}
        content |= {f"{names.SUBMITTED_CODE}/{_FOLDER}/{file}": text for file, text in files.items()}
        code = self.client.upload(_pack(content))
        return self.client.submit(
            names.LAUNCHER,
            _MAIN,
            code=code,
            name=name,
            max_workers=max_workers,
            environment=self._find_variables(framework, user, name, max_workers, os.environ) | dict(more or {}),
            labels={
                names.MARK_LABEL: names.MARK,
                names.TYPE_LABEL: _NOTEBOOK,
                names.FRAMEWORK_LABEL: framework,
                names.APPLICATION_LABEL: name,
                names.MODEL_LABEL: _MAIN,
                names.DEVICES_LABEL: "1",
            },
        )

    def _find_variables(
        self, framework: str, user: str, name: str, max_workers: int, environment: Mapping[str, str]
    ) -> dict[str, str]:
        """Return the environment variables of the job that the launcher cannot set."""
        found = {
            names.FRAMEWORK: framework,
            names.BACKEND: FRAMEWORKS[framework].backend,
            names.IS_ELASTIC: "true",
            names.TYPE: _NOTEBOOK.lower(),
            names.USER: user,
            names.APPLICATION: name,
            names.MAX_WORKERS: str(max_workers),
        }
        root = self._find_data_root()
        if root:
            found |= {names.DATA_ROOT: root, names.DATA_DIRECTORY: root, names.DATA_PATH: ""}
        return found | {name: environment[name] for name in _PASSED_ON if name in environment}

    def _find_data_root(self) -> str:
        """Return the data directory on the machines; "" if the server does not have WMLA's interface."""
        try:
            response = self._line.send("GET", _SETTINGS, is_open=True)
            return str(self._line.read(dict[str, Any], response).get(names.DATA_ROOT, ""))
        except (LegatoError, msgspec.MsgspecError):
            return ""


def name_job(user: str, now: float) -> str:
    """Return the name of a notebook's job.

    Args:
        user: name of the user who submits it.
        now: seconds since 1970.

    >>> name_job("ann", 1700000000.1234)
    'wmla-ann-notebook-1700000000123'
    """
    return f"wmla-{user[:_MAX_USER_LENGTH]}-notebook-{int(now * 1000)}"


def _find_line() -> Line:
    try:
        return Line(need_token(find_server()))
    except Unauthenticated as error:
        raise Unauthenticated(
            f"{error} For a notebook: type 'legato login URL' in a terminal, or set LEGATO_SERVER and LEGATO_TOKEN "
            "before the notebook starts ('%env LEGATO_SERVER=URL' in a cell works, too)."
        ) from error


def _pack(files: Mapping[str, bytes]) -> Packed:
    """Pack files without compression: weights hardly get smaller, and zeros would look like a zip bomb."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    return Packed(raw.getvalue(), hashlib.sha256(raw.getbuffer()).hexdigest(), tuple(sorted(files)))
