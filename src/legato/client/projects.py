"""Requests about projects. Runs nothing itself."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

from legato.api.jobs import JobRecord, Plan
from legato.api.lists import Page
from legato.api.projects import (
    AccessRequest,
    Definition,
    Experiment,
    Framework,
    Interpreter,
    Parameter,
    Project,
    ProjectOwner,
)
from legato.client.connection import Line
from legato.client.jobs import Job, Jobs
from legato.client.lists import Listing
from legato.client.paths import title_path
from legato.core.errors import UsageError

if TYPE_CHECKING:
    from legato.client.packing import Packed

_PAGE: Final = 1000
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class DefinitionOptions(TypedDict, total=False):
    """Fields of a training definition besides its name, command and code; see ``docs/rest.md``.

    ``distributed``: ``single``, ``static`` or ``elastic``. ``max_run_s``: seconds. ``num_threads``: of each node.
    ``cpu_capability``: ``default``, ``avx2`` or ``avx512``, for all workers. ``python``: of the workers: a name in the
    server's setting ``interpreters``, or an absolute path on the nodes.
    """

    description: str
    framework: str
    distributed: str
    min_nodes: int | None
    max_nodes: int
    num_threads: int
    cpu_capability: str | None
    python: str | None
    parameters: Mapping[str, Parameter]
    environment: Mapping[str, str]
    seed: int | None
    checkpoint_every: str | None
    max_retries: int
    max_run_s: float | None


class RunOptions(TypedDict, total=False):
    """Options of the jobs of an experiment.

    ``definitions``: ids of some of its definitions. ``parameters``: added to those of the definitions; the same names
    replace them.
    """

    definitions: Sequence[str]
    priority: int
    min_nodes: int
    max_nodes: int
    parameters: Mapping[str, Parameter]
    labels: Mapping[str, str]
    seed: int


class ProjectCalls:
    """A part of `legato.Client`."""

    _line: Line
    upload: Callable[..., str]

    def frameworks(self) -> Listing[Framework]:
        """Return the frameworks that can run training definitions."""
        return Listing(self._line.ask(Page[Framework], "GET", "/frameworks").items)

    def interpreters(self) -> Listing[Interpreter]:
        """Return the Python environments that jobs and training definitions may name as ``python``."""
        return Listing(self._line.ask(Page[Interpreter], "GET", "/interpreters").items)

    # ------------------------------------------------------------ projects

    def projects(self, *, limit: int | None = None) -> Listing[Project]:
        """Return projects that you may see, the newest first; at most ``limit``."""
        return Listing(self._line.ask_pages(Page[Project], "/projects", limit=limit, page_size=_PAGE))

    def project(self, project: str) -> Project:
        """Return a project by its id, or by its name: yours, else the newest."""
        return self._line.ask(Project, "GET", title_path("project", project))

    def add_project(
        self, name: str, *, description: str = "", queue: str = "default", members: Sequence[str] = ()
    ) -> Project:
        """Create a project.

        Args:
            name: of one line.
            description: for people.
            queue: to which its jobs go.
            members: names of users who work in it.
        """
        body = {"name": name, "description": description, "queue": queue, "members": list(members)}
        return self._line.ask(Project, "POST", "/projects", body=body, is_repeatable=False)

    def change_project(
        self,
        project: str,
        *,
        name: str | None = None,
        description: str | None = None,
        queue: str | None = None,
        members: Sequence[str] | None = None,
    ) -> Project:
        """Change a project; None keeps a value. ``members``: all members; the list replaces the old one."""
        listed = None if members is None else list(members)
        body = _without_none(name=name, description=description, queue=queue, members=listed)
        return self._line.ask(Project, "PATCH", title_path("project", project), body=body)

    def delete_project(self, project: str) -> None:
        """Delete a project that has no experiments and no training definitions."""
        self._line.send("DELETE", title_path("project", project))

    # ------------------------------------------------------------ access to projects of other users

    def project_owners(self) -> Listing[ProjectOwner]:
        """Return the users whom you can ask for access to their training definitions."""
        return Listing(self._line.ask(Page[ProjectOwner], "GET", "/project-owners").items)

    def access_requests(self) -> Listing[AccessRequest]:
        """Return the requests for access that you have sent or received, the newest first."""
        return Listing(self._line.ask(Page[AccessRequest], "GET", "/access-requests").items)

    def ask_for_access(self, owner: str, message: str = "") -> AccessRequest:
        """Ask a user for access to a project. Repeating it while the request is open changes nothing."""
        body = {"owner": owner, "message": message}
        return self._line.ask(AccessRequest, "POST", "/access-requests", body=body)

    def grant_access(self, request: str, project: str) -> AccessRequest:
        """Grant a request, by its id: the user who asked becomes a member of your project."""
        path = f"{title_path('access-request', request)}/grant"
        return self._line.ask(AccessRequest, "POST", path, body={"project": project}, is_repeatable=False)

    def decline_access(self, request: str) -> AccessRequest:
        """Decline a request, by its id."""
        path = f"{title_path('access-request', request)}/decline"
        return self._line.ask(AccessRequest, "POST", path, is_repeatable=False)

    def withdraw_access_request(self, request: str) -> None:
        """Withdraw a request that you have sent, by its id."""
        self._line.send("DELETE", title_path("access-request", request))

    # ------------------------------------------------------------ training definitions

    def definitions(self, project: str) -> Listing[Definition]:
        """Return the training definitions of a project, the newest first."""
        path = f"{title_path('project', project)}/definitions"
        return Listing(self._line.ask(Page[Definition], "GET", path).items)

    def definition(self, definition: str) -> Definition:
        """Return a training definition by its id, or by its name: one that you made, else the newest."""
        return self._line.ask(Definition, "GET", title_path("definition", definition))

    def add_definition(
        self,
        project: str,
        name: str,
        command: str,
        *,
        code: str | Path | None = None,
        directory: str | Path | None = None,
        before_upload: Callable[[Packed], None] | None = None,
        **options: Unpack[DefinitionOptions],
    ) -> Definition:
        """Create a training definition. Its code is uploaded, unless the server already has it.

        Args:
            project: its id or name.
            name: of one line.
            command: one line, split as a shell does; no shell runs it.
            code: a folder, or a ``.zip``, ``.tar`` or ``.tar.gz`` file, or the SHA-256 of code that was uploaded.
            directory: on the nodes, which contains the program and in which it runs; nothing is uploaded.
            before_upload: called with the code, if the server does not have it, before it is sent.
            options: as `DefinitionOptions`.

        Raises:
            UsageError: the definition cannot be created; the message says what to change.
        """
        body: dict[str, Any] = {"name": name, "command": command, **options}
        if (code is None) == (directory is None):
            raise UsageError(f"Cannot make training definition '{name}': give either code or directory.")
        if directory is not None:
            body["directory"] = str(directory)
        elif isinstance(code, str) and _SHA256.fullmatch(code):
            body["code"] = code
        else:
            body["code"] = self.upload(_pack(Path(str(code))), before_upload)
        path = f"{title_path('project', project)}/definitions"
        return self._line.ask(Definition, "POST", path, body=body, is_repeatable=False)

    def change_definition(
        self, definition: str, *, name: str | None = None, description: str | None = None
    ) -> Definition:
        """Change the name or description of a training definition; nothing else of it can change."""
        body = _without_none(name=name, description=description)
        return self._line.ask(Definition, "PATCH", title_path("definition", definition), body=body)

    def delete_definition(self, definition: str) -> None:
        """Delete a training definition that no experiment uses."""
        self._line.send("DELETE", title_path("definition", definition))

    def plan_definition(self, definition: str) -> Plan:
        """Return what would happen if a training definition ran now; run nothing."""
        return self._line.ask(Plan, "POST", f"{title_path('definition', definition)}/plan")

    # ------------------------------------------------------------ experiments

    def experiments(self, project: str) -> Listing[Experiment]:
        """Return the experiments of a project, the newest first."""
        path = f"{title_path('project', project)}/experiments"
        return Listing(self._line.ask(Page[Experiment], "GET", path).items)

    def experiment(self, experiment: str) -> Experiment:
        """Return an experiment by its id, or by its name: one that you made, else the newest."""
        return self._line.ask(Experiment, "GET", title_path("experiment", experiment))

    def add_experiment(
        self,
        project: str,
        name: str,
        definitions: Sequence[str],
        *,
        description: str = "",
        data: str | None = None,
        arguments: str = "",
    ) -> Experiment:
        """Create an experiment.

        Args:
            project: its id or name.
            name: of one line.
            definitions: ids of training definitions of the project.
            description: for people.
            data: a data directory on the nodes, absolute or below the server's ``wmla_data_root``. Each program finds
                its path in ``LEGATO_DATA``.
            arguments: one line, appended to the arguments of each program.
        """
        body = _without_none(
            name=name, definitions=list(definitions), description=description, data=data, arguments=arguments
        )
        path = f"{title_path('project', project)}/experiments"
        return self._line.ask(Experiment, "POST", path, body=body, is_repeatable=False)

    def change_experiment(
        self,
        experiment: str,
        *,
        name: str | None = None,
        definitions: Sequence[str] | None = None,
        description: str | None = None,
        data: str | None = None,
        arguments: str | None = None,
    ) -> Experiment:
        """Change an experiment; None keeps a value, and its jobs stay. ``data`` "": remove the data directory."""
        listed = None if definitions is None else list(definitions)
        body = _without_none(name=name, definitions=listed, description=description, data=data, arguments=arguments)
        if data == "":
            body["data"] = None
        return self._line.ask(Experiment, "PATCH", title_path("experiment", experiment), body=body)

    def delete_experiment(self, experiment: str) -> None:
        """Delete an experiment; its jobs stay."""
        self._line.send("DELETE", title_path("experiment", experiment))

    def run_experiment(self, experiment: str, *, key: str | None = None, **options: Unpack[RunOptions]) -> Jobs:
        """Run an experiment: one job for each of its training definitions, or none at all.

        Args:
            experiment: its id or name.
            key: the same call with the same key makes these jobs only once. None: each call makes new ones.
            options: as `RunOptions`.
        """
        path = f"{title_path('experiment', experiment)}/runs"
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        found = self._line.ask(Page[JobRecord], "POST", path, body=dict(options), headers=headers)
        return Jobs(Job(self._line, record) for record in found.items)

    def iterate_definitions(self) -> Iterator[Definition]:
        """Yield the training definitions of all projects that you may see."""
        for project in self.projects():
            yield from self.definitions(project.id)

    def iterate_experiments(self) -> Iterator[Experiment]:
        """Yield the experiments of all projects that you may see."""
        for project in self.projects():
            yield from self.experiments(project.id)


def _without_none(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _pack(code: Path) -> Packed:
    """Pack a folder; a file is sent unchanged."""
    import hashlib  # loads OpenSSL, which most commands do not need

    from legato.client.packing import Packed, pack

    if not code.is_file():
        return pack(code, max_bytes=None)
    content = code.read_bytes()
    return Packed(content, hashlib.sha256(content).hexdigest(), ())
