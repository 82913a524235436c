"""Sends requests to the platform's own REST interface, with the token of the plugin's client. Keeps no state."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import httpx
from starlette.requests import Request
from starlette.types import Scope

from legato.compat.wmla.names import DELETED_LABEL, MARK, MARK_LABEL, find_job
from legato.compat.wmla.rest.refusals import Refusal, refuse_as

API: Final = "/api/v1"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_WHERE: Final = "GET /platform/rest/deeplearning/v1/execs and 'dlicmd.py --exec-get-all' list yours."
_PAGE: Final = 1000
_MOST: Final = 10_000
_TAIL_BYTES: Final = 16 * 2**20

Inside = Callable[[Scope], httpx.AsyncClient]
"""Makes a client of the platform's REST interface for a request; see the server's plugins."""

Job = Mapping[str, Any]
"""A job, as the platform's REST interface returns it."""


class Platform:
    """The platform for one user.

    Args:
        client: of the platform's REST interface.
        secret: the user's token; None: no token.
    """

    def __init__(self, client: httpx.AsyncClient, secret: str | None) -> None:
        self._client = client
        self.headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}

    async def ask(self, method: str, path: str, *, allowed: Sequence[int] = (), **more: Any) -> httpx.Response:
        """Send a request to the platform.

        Args:
            method: HTTP method.
            path: below ``/api/v1/``.
            allowed: statuses of errors that the caller handles.
            more: further arguments for httpx.

        Raises:
            Refusal: the platform answers with another error.
        """
        headers = {**self.headers, **more.pop("headers", {})}
        answer = await self._client.request(method, f"{API}/{path}", headers=headers, **more)
        if answer.status_code >= 400 and answer.status_code not in allowed:
            raise refuse_as(answer)
        return answer

    async def get(self, path: str, **query: Any) -> Any:
        """Return the JSON answer of a GET request."""
        return (await self.ask("GET", path, params=query)).json()

    async def find_job(self, name: str) -> Job:
        """Return a job by any of its ids, or by its name.

        Raises:
            Refusal: the user may see no such job, or it was deleted.
        """
        missing = Refusal(404, f"There is no execution or application {name[:100]} that you may see. {_WHERE}")
        if not _NAME.fullmatch(name):
            raise missing
        answer = await self.ask("GET", f"jobs/{quote(find_job(name) or name, safe='')}", allowed=(404,))
        job: Job = answer.json()
        if answer.status_code == 404 or DELETED_LABEL in job["labels"]:
            raise missing
        return job

    async def list_jobs(self, most: int = _MOST, *, oldest_first: bool = False, **query: Any) -> list[Job]:
        """Return jobs of WMLA's interface that the user may see, the newest first unless ``oldest_first``."""
        found: list[Job] = []
        query |= {"label": f"{MARK_LABEL}={MARK}", "order": "oldest" if oldest_first else "newest"}
        after: dict[str, str] = {}
        while len(found) < min(most, _MOST):
            page = await self.get("jobs", **query, **after, limit=_PAGE)
            found += [job for job in page["items"] if DELETED_LABEL not in job["labels"]]
            if page["after"] is None:
                break
            after = {"after": page["after"]}
        return found[:most]

    async def list_files(self, job: str, path: str, *, needs_all: bool = False) -> list[Mapping[str, Any]]:
        """Return the entries of a job's folder and its subfolders; an empty list if there is no such folder.

        Args:
            job: id of the job.
            path: of the folder.
            needs_all: whether an incomplete list is an error.

        Raises:
            Refusal: the user may not see the files, or the list is incomplete and ``needs_all``.
        """
        answer = await self.ask("GET", f"jobs/{job}/files", params={"path": path, "recursive": "true"}, allowed=(404,))
        if answer.status_code == 404:
            return []
        found = answer.json()
        if needs_all and not found["is_complete"]:
            raise Refusal(
                409,
                f"{path} of {job} has too many files, or file names that are not text, so it cannot be sent as a "
                f"whole. Download the parts that you need with 'legato download {job} PATH'.",
            )
        items: list[Mapping[str, Any]] = found["items"]
        return items

    async def read_end(self, job: str, path: str) -> str | None:
        """Return the last 16 MiB of a job's file as text; None if there is no such file."""
        answer = await self.ask(
            "GET",
            f"jobs/{job}/files/{quote(path)}",
            headers={"Range": f"bytes=-{_TAIL_BYTES}"},
            allowed=(404, 416),
        )
        if answer.status_code == 404:
            return None
        return "" if answer.status_code == 416 else answer.content.decode(errors="replace")

    async def read_file(self, job: str, path: str, num_bytes: int, chunk_bytes: int) -> AsyncIterator[bytes]:
        """Yield the first ``num_bytes`` bytes of a job's file in chunks, all of one version of the file.

        Raises:
            Refusal: the file has changed, or has fewer bytes.
        """
        place, version = 0, None
        while place < num_bytes:
            last = min(place + chunk_bytes, num_bytes) - 1
            answer = await self.ask(
                "GET", f"jobs/{job}/files/{quote(path)}", headers={"Range": f"bytes={place}-{last}"}
            )
            version = version or answer.headers["ETag"]
            if len(answer.content) != last + 1 - place or answer.headers["ETag"] != version:
                raise Refusal(409, f"The file {path} has changed. Send the request again.")
            yield answer.content
            place = last + 1

    async def read_log(self, job: str, log: str, num_lines: int) -> str | None:
        """Return the last lines of a log that the platform keeps; None if there is no such log."""
        answer = await self.ask("GET", f"jobs/{job}/logs/{log}", params={"tail": num_lines}, allowed=(404,))
        return None if answer.status_code == 404 else answer.content.decode(errors="replace")


Handler = Callable[[Request, Platform], Awaitable[Any]]
"""Answers a request; the `Platform` has the user's token."""
