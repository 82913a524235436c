"""`legato.Client`: the platform for Python programs. Sends requests to the server; decides nothing."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, Unpack

from legato.api.jobs import JobRecord, Plan
from legato.api.lists import Page
from legato.api.outputs import JobValues, Upload
from legato.client.connection import Line, need_token
from legato.client.downloads import download_code
from legato.client.html import render_table
from legato.client.jobs import Job, Jobs
from legato.client.lists import Listing
from legato.client.paths import is_name, name_path
from legato.client.people import PeopleCalls
from legato.client.pool import PoolCalls
from legato.client.projects import ProjectCalls
from legato.client.servers import Server, find_server
from legato.client.submission import JobOptions, check_options, make_name, prepare
from legato.client.sweeps import SweepCalls
from legato.client.webhooks import WebhookCalls
from legato.core.errors import NotFound, UsageError
from legato.system.scripts import PYTHON, find_syntax_error

if TYPE_CHECKING:
    import httpx

    from legato.client.packing import Packed

_PAGE: Final = 1000
_NUM_VALUES: Final = 100
_MAX_ASKED: Final = 100  # times for the metrics that the server reads in parts
_PATIENCE_S: Final = 30.0


class Client(PoolCalls, PeopleCalls, ProjectCalls, SweepCalls, WebhookCalls):
    """A connection to a platform.

    Args:
        server: its address, or a name that was given to `legato login`. None: the variable ``LEGATO_SERVER``, else the
            server chosen last.
        token: None: the variable ``LEGATO_TOKEN``, else the one of `legato login`. It is sent to that server only.
        patience_s: seconds for which a request is repeated while the server cannot be reached or is busy.
        first_patience_s: the same, until the server has answered once. None: as ``patience_s``.
        transport: carries requests; for tests. None: the network.

    Raises:
        Unauthenticated: no server is known, or no token for it.
        NotFound: there is no server of that name.
    """

    def __init__(
        self,
        server: str | None = None,
        token: str | None = None,
        *,
        patience_s: float = _PATIENCE_S,
        first_patience_s: float | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        found = need_token(find_server(server, token))
        self._line = Line(found, patience_s=patience_s, first_patience_s=first_patience_s, transport=transport)

    @classmethod
    def on(cls, line: Line) -> Self:
        """Return a client on a given connection, which may have no token."""
        client = cls.__new__(cls)
        client._line = line
        return client

    @property
    def server(self) -> Server:
        """The address of the server."""
        return self._line.server

    def close(self) -> None:
        """Close all connections."""
        self._line.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.server.url!r})"

    def _repr_html_(self) -> str:
        pool = self.pool()
        rows = [
            ("server", self.server.url),
            ("policy", pool.policy),
            ("slots", f"{pool.num_usable}, {pool.num_free} free"),
        ]
        stages = ", ".join(f"{number} {stage}" for stage, number in pool.jobs.items() if number)
        return render_table(["", ""], [*rows, ("jobs", stages or "none"), ("decided", pool.summary)])

    # ------------------------------------------------------------ jobs

    def submit(
        self,
        program: str | Path | Callable[..., Any],
        *arguments: Any,
        code: str | Path | None = None,
        directory: str | Path | None = None,
        key: str | None = None,
        before_upload: Callable[[Packed], None] | None = None,
        **options: Unpack[JobOptions],
    ) -> Job:
        """Submit a job. Its code is uploaded, unless the server has it already.

        Args:
            program: a script, or a function, which is called on every worker; with ``framework``, the first word of its
                command line.
            arguments: of the script or the function; with ``framework``, the other words of the command line.
            code: the folder to upload, or the SHA-256 of code that was uploaded before. None: for a script the current
                directory if it contains the script, else the script's folder; for a command line the current directory;
                for a function only the function.
            directory: on the machines, which contains the script and in which it runs; then nothing is uploaded.
            key: the same submission with the same key makes only one job. None: this call is one submission, which is
                repeated if its answer is lost.
            before_upload: called with the code, if the server does not have it, before it is sent.
            options: as in `JobOptions`.

        Raises:
            UsageError: the job cannot be submitted; the message says what to change.
        """
        prepared = prepare(program, arguments, options, code=code, directory=directory)
        if prepared.script is not None and options.get("python") is None:
            self._check_syntax(program, prepared.script)
        if prepared.packed is not None:
            self.upload(prepared.packed, before_upload)
        return self._submit(prepared.fields, prepared.packed, key or uuid.uuid4().hex)

    def plan(self, program: str | Path | None = None, **options: Unpack[JobOptions]) -> Plan:
        """Return what would happen if such a job were submitted now; upload and submit nothing.

        Args:
            program: gives the job its name in messages, as in `submit`; nothing else depends on it.
            options: as in `JobOptions`.
        """
        program = str(program or "new-job.py")
        body = {"name": make_name(Path(program).stem), "program": [program], **check_options(options)}
        return self._line.ask(Plan, "POST", "/plan", body=body)

    def job(self, job: str) -> Job:
        """Return a job by its id, or the newest one of a name; ``OWNER/NAME`` means the newest one of a user.

        Raises:
            NotFound: there is no such job that you may see.
        """
        owner, slash, name = job.partition("/")
        if not slash:  # no name of a job has one
            return Job(self._line, self._line.ask(JobRecord, "GET", name_path("job", job)))
        if is_name(owner) and is_name(name):
            asked = {"owner": owner, "name": name}
            for record in self._line.ask_pages(Page[JobRecord], "/jobs", limit=None, page_size=_PAGE, **asked):
                if record.name == name:  # others only begin with it
                    return Job(self._line, record)
        raise NotFound(f"There is no job '{job}' that you may see. 'legato ps --all' lists those that you may.")

    def jobs(
        self,
        *,
        stage: str | Sequence[str] | None = None,
        owner: str | None = None,
        queue: str | None = None,
        labels: Mapping[str, str] | None = None,
        name: str | None = None,
        search: str | None = None,
        project: str | None = None,
        experiment: str | None = None,
        definition: str | None = None,
        limit: int | None = 100,
        order: Literal["newest", "oldest"] = "newest",
    ) -> Jobs:
        """Return jobs that you may see and that match all given filters.

        Args:
            stage: a stage, or several of which one must match.
            owner: the name of the user.
            queue: its name.
            labels: labels that the jobs must have.
            name: beginning of the name.
            search: a part of the name or the id, regardless of case.
            project: its id or name.
            experiment: of which they are runs; its id or name.
            definition: of which they are runs; its id or name.
            limit: maximum number of jobs. None: all.
            order: ``newest`` or ``oldest`` first.
        """
        params: dict[str, Any] = {
            "stage": [stage] if isinstance(stage, str) else list(stage or ()) or None,
            "owner": owner,
            "queue": queue,
            "label": [f"{key}={value}" for key, value in (labels or {}).items()] or None,
            "name": name,
            "search": search,
            "project": project,
            "experiment": experiment,
            "definition": definition,
            "order": order,
        }
        records = self._line.ask_pages(Page[JobRecord], "/jobs", limit=limit, page_size=_PAGE, **params)
        return Jobs(Job(self._line, record) for record in records)

    def job_values(self, jobs: Sequence[str]) -> Listing[JobValues]:
        """Return parameters and last metrics of jobs, by their ids. Jobs that you do not see are left out.

        It asks again while the server reads very long metrics in parts. ``is_complete`` is false where it gave up.
        """
        found: list[JobValues] = []
        for first in range(0, len(jobs), _NUM_VALUES):
            found += self._read_values(jobs[first : first + _NUM_VALUES])
        return Listing(found)

    def _read_values(self, jobs: Sequence[str]) -> Iterable[JobValues]:
        values, wanted = dict[str, JobValues](), list(jobs)
        for _ in range(_MAX_ASKED):
            read = self._line.ask(Page[JobValues], "GET", "/job-values", params={"job": wanted}).items
            values |= {one.job: one for one in read}
            wanted = [one.job for one in read if not one.is_complete]
            if not wanted:
                break
        return values.values()

    # ------------------------------------------------------------ code

    def has_code(self, sha256: str) -> bool:
        """Return whether code was uploaded already."""
        # Not HEAD, because a refusal would come without its reason.
        return self._line.send("GET", f"/code/{sha256}", accepted=(404,)).status_code != 404

    def upload(self, packed: Packed, before_upload: Callable[[Packed], None] | None = None) -> str:
        """Upload code, unless the server has it, and return its SHA-256; arguments are those of `submit`."""
        if not self.has_code(packed.sha256):
            if before_upload is not None:
                before_upload(packed)
            self._line.ask(Upload, "PUT", f"/code/{packed.sha256}", content=packed.content)
        return packed.sha256

    def download_code(self, sha256: str, to: str | Path, *, overwrite: bool = False) -> Path:
        """Download uploaded code, such as that of a training definition, as a zip file; return its path.

        Args:
            sha256: of the code, as it was uploaded.
            to: the file to write, completely or not at all.
            overwrite: replace an existing file.
        """
        return download_code(self._line, sha256, Path(to), is_overwriting=overwrite)

    def _check_syntax(self, program: object, script: Path) -> None:
        """Raise UsageError if a script has a syntax error for the Python of the server."""
        error = find_syntax_error(script)
        # Another version of Python may accept the script.
        if error is not None and self.version().python == PYTHON:
            raise UsageError(f"Cannot submit '{program}': it has a syntax error.\n{error}")

    def _submit(self, fields: dict[str, Any], packed: Packed | None, key: str) -> Job:
        headers = {"Idempotency-Key": key}
        try:
            record = self._line.ask(JobRecord, "POST", "/jobs", body=fields, headers=headers)
        except NotFound:
            # The server deletes unused code after a while. If it has just done so, the code is sent again.
            if packed is None or self.has_code(packed.sha256):
                raise
            self.upload(packed)
            record = self._line.ask(JobRecord, "POST", "/jobs", body=fields, headers=headers)
        return Job(self._line, record)
