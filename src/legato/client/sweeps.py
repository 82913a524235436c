"""Requests about sweeps. Chooses no parameters: the server does."""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

from legato.api.lists import Page
from legato.api.projects import Definition
from legato.api.sweeps import Sweep, Trial
from legato.client.connection import Line
from legato.client.lists import Listing
from legato.client.paths import name_path
from legato.client.submission import prepare
from legato.core.errors import Conflict, UsageError

if TYPE_CHECKING:
    from legato.client.packing import Packed

_PAGE: Final = 100
_KEPT: Final = (
    *("framework", "directory", "code", "num_threads", "cpu_capability", "python", "seed"),
    *("checkpoint_every", "max_retries", "max_run_s"),
)
"""Fields of a job that a training definition has too."""
_LEFT_OUT: Final = ("queue", "priority", "labels", "environment")
"""Fields that a definition does not get: its runs have their own, and the variables may hold secrets."""
_OTHERS: Final = ("name", "program", "parameters", "min_workers", "max_workers", "is_elastic")


class SweepOptions(TypedDict, total=False):
    """Options of a sweep; see ``docs/rest.md``.

    ``metric``: ``{"name": "accuracy", "direction": "maximize"}``. ``parameters``: by name, ``{"values": [...]}`` or
    ``{"low": 0.001, "high": 0.1, "log": True}``. ``search``: ``grid``, ``random``, ``tpe``, or ``list`` with
    ``points``. ``pruning``: ``{"method": "halving"}``. ``job``: fields of a submission, as in
    `legato.client.submission.JobOptions`.
    """

    metric: Mapping[str, str]
    parameters: Mapping[str, Mapping[str, Any]]
    points: Sequence[Mapping[str, Any]]
    search: str
    pruning: Mapping[str, Any] | None
    num_trials: int
    parallel: int
    max_slots: int | None
    max_failures: int
    seed: int
    max_run_s: float | None
    job: Mapping[str, Any]


def list_unsaved(found: Sweep, *, with_environment: bool = False) -> list[str]:
    """Return the fields of the jobs of a sweep that `SweepCalls.save_best` does not save.

    Args:
        found: the sweep.
        with_environment: as for `SweepCalls.save_best`.
    """
    return [field for field in _LEFT_OUT if found.job.get(field) and not (with_environment and field == "environment")]


class SweepCalls:
    """A part of `legato.Client`."""

    _line: Line
    upload: Callable[..., str]
    add_definition: Callable[..., Definition]
    _check_syntax: Callable[[object, Path], None]

    def start_sweep(
        self,
        name: str,
        program: str | Path,
        *arguments: Any,
        code: str | Path | None = None,
        directory: str | Path | None = None,
        key: str | None = None,
        before_upload: Callable[[Packed], None] | None = None,
        **options: Unpack[SweepOptions],
    ) -> Sweep:
        """Start a sweep: many jobs of one program with other parameters. Its code is uploaded once.

        Args:
            name: of the sweep; its jobs are ``NAME-0``, ``NAME-1`` and so on.
            program: a script, or with the field ``framework`` of ``job`` the first word of its command line.
            arguments: the same for all trials; their parameters follow as ``--NAME VALUE``.
            code: the folder to upload, as in `Client.submit`.
            directory: on the machines, as in `Client.submit`.
            key: the same call with the same key starts only one sweep. None: this call is one start, which is repeated
                if its answer is lost.
            before_upload: called with the code, if the server does not have it, before it is sent.
            options: as in `SweepOptions`.

        Raises:
            UsageError: the sweep cannot be started; the message says what to change.
        """
        if unknown := sorted(options.keys() - SweepOptions.__annotations__.keys()):
            known = ", ".join(SweepOptions.__annotations__)
            raise UsageError(f"Cannot start a sweep with '{unknown[0]}': a sweep has no such field. Known: {known}.")
        job = dict(options.get("job", {}))
        prepared = prepare(program, arguments, job, code=code, directory=directory)
        if prepared.script is not None and job.get("python") is None:
            self._check_syntax(program, prepared.script)
        if prepared.packed is not None:
            self.upload(prepared.packed, before_upload)
        del prepared.fields["name"]
        body = {**options, "name": name, "job": prepared.fields}
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        return self._line.ask(Sweep, "POST", "/sweeps", body=body, headers=headers)

    def sweeps(self, *, limit: int | None = 100) -> Listing[Sweep]:
        """Return sweeps that you may see, the newest first; at most ``limit``. None: all."""
        return Listing(self._line.ask_pages(Page[Sweep], "/sweeps", limit=limit, page_size=_PAGE))

    def sweep(self, sweep: str) -> Sweep:
        """Return a sweep by its id, or by its name: yours, else the newest."""
        return self._line.ask(Sweep, "GET", name_path("sweep", sweep))

    def trials(self, sweep: str) -> Listing[Trial]:
        """Return the trials of a sweep, the first one first."""
        return Listing(self._line.ask(Page[Trial], "GET", f"{name_path('sweep', sweep)}/trials").items)

    def stop_sweep(self, sweep: str) -> Sweep:
        """Stop a sweep and the jobs of its trials, each with a checkpoint."""
        return self._line.ask(Sweep, "POST", f"{name_path('sweep', sweep)}/stop")

    def best_trial(self, sweep: str) -> Trial:
        """Return the best trial of a sweep so far.

        Raises:
            Conflict: no trial has succeeded yet.
        """
        found = self.sweep(sweep)
        if found.best is None:
            raise Conflict(
                f"Sweep '{found.name}' has no best trial: none has succeeded. It {found.stage}: {found.reason}."
            )
        return self.trials(found.id)[found.best]

    def save_best(
        self, sweep: str, project: str, name: str, *, description: str | None = None, with_environment: bool = False
    ) -> Definition:
        """Create a training definition that runs the best trial of a sweep: its program with its parameters.

        `list_unsaved` says which fields of its jobs the definition does not have.

        Args:
            sweep: its id or name.
            project: of the definition; its id or name.
            name: of the definition.
            description: for people. None: which trial it is.
            with_environment: copy the variables of ``environment`` too. All who see the project see their values.

        Raises:
            Conflict: no trial has succeeded yet.
            UsageError: the jobs of the sweep have a field that training definitions do not have.
        """
        best, found = self.best_trial(sweep), self.sweep(sweep)
        defaults = {"gpus_per_worker": 1}
        job = {field: value for field, value in found.job.items() if value not in (None, defaults.get(field))}
        if lost := sorted(job.keys() - {*_OTHERS, *_KEPT, *_LEFT_OUT}):
            raise UsageError(
                f"Cannot save the best trial of sweep '{found.name}' as a training definition: these have no field "
                f"'{lost[0]}'. Run it again as a job instead: legato clone {best.job}."
            )
        variables = job.get("environment", {}) if with_environment else {}
        if None in variables.values():
            raise UsageError(
                f"Cannot save the environment of sweep '{found.name}': only '{found.owner}', who started it, and "
                "admins see the values of its variables. Save it without them, or ask one of them to save it."
            )
        low, high = job.get("min_workers", 1), job.get("max_workers", 1)
        distributed = "single" if high == 1 else "elastic" if job.get("is_elastic", True) else "static"
        if distributed == "elastic":
            job["min_nodes"] = low
        told = f"trial {best.number} of sweep {found.name} ({found.id}): {found.metric.name} {best.value:.6g}"
        code, directory = job.pop("code", None), job.pop("directory", None)
        fields = {"framework": "legato"} | {field: job[field] for field in (*_KEPT, "min_nodes") if field in job}
        if variables:
            fields["environment"] = variables
        return self.add_definition(
            project,
            name,
            shlex.join(job["program"]),
            code=code,
            directory=directory,
            description=told if description is None else description,
            distributed=distributed,
            max_nodes=high,
            parameters={**job.get("parameters", {}), **best.parameters},
            **fields,
        )
