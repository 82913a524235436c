"""Experiments in the store: training definitions that are run together. Runs nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Select, delete, func, insert, select

from legato.api.projects import Experiment
from legato.control.project_records import ExperimentPatch, NewExperiment
from legato.control.roles import Asker
from legato.control.store.project_contents import ProjectContents
from legato.control.store.rows import Unreadable, convert_row, fetch_each
from legato.control.store.schema import definitions, experiment_definitions, experiments, jobs
from legato.control.store.transactions import Transaction, writing
from legato.core.errors import BadField

_MOST_DEFINITIONS: Final = 100
_NUM_RUNS: Final = 100
_BATCH: Final = 5_000  # ids in one query; databases have a limit of some ten thousand


class Experiments(ProjectContents[Experiment]):
    """The experiments of the platform."""

    _table = experiments
    _kind = "experiment"
    _title = "experiment"
    _command = "experiments"
    _prefix = "x"

    def create(
        self, project: str, new: NewExperiment, asker: Asker, now: float, *, most: int | None = None
    ) -> Experiment:
        """Add an experiment to a project.

        Args:
            project: its id.
            new: the experiment, with checked data and arguments.
            asker: the user who adds it.
            now: seconds since 1970.
            most: maximum number of experiments in the project, including this one. None: no limit.

        Raises:
            NotFound: there is no such project that the asker may see.
            Forbidden: the asker is not a member.
            BadField: the name, or one of the definitions, cannot be used.
            Conflict: the project has an experiment of this name, or the maximum number.
        """
        with self._adding(project, new, asker, now) as (transaction, doing):
            meant = _check_definitions(transaction, doing, project, new.definitions)
            row = {name: getattr(new, name) for name in ("name", "description", "data", "arguments")}
            made = self._insert(transaction, doing, row, project, asker, most)
            _put_definitions(transaction, made, meant)
            return self._report(transaction, project, asker, "create", made, {"name": new.name})

    def change(
        self, experiment: str, patch: ExperimentPatch, asker: Asker, now: float, *, version: int | None = None
    ) -> Experiment:
        """Change an experiment. Its existing runs do not change.

        Raises:
            NotFound: there is no such experiment that the asker may see.
            StaleVersion: it has a newer version.
            Forbidden: it is neither the asker's nor in the asker's project, and the asker is no admin.
            BadField: the name, or one of the definitions, cannot be used.
            Conflict: the project has another one of this name.
        """
        with writing(self._database, now) as transaction:
            old = self._lock(transaction, experiment, asker, "change", version)
            doing = f"change experiment '{old.name}'"
            given: dict[str, Any] = {name: getattr(patch, name) for name in ExperimentPatch.__struct_fields__}
            given = {name: value for name, value in given.items() if value is not msgspec.UNSET}
            values = {name: value for name, value in given.items() if value != getattr(old, name)}
            if not values:
                return old
            self._check_new_words(transaction, doing, old, values)
            told = dict(values)
            if "definitions" in values:
                meant = _check_definitions(transaction, doing, old.project, values.pop("definitions"))
                gone = experiment_definitions.c.experiment == experiment
                transaction.connection.execute(delete(experiment_definitions).where(gone))
                _put_definitions(transaction, experiment, meant)
            self._update(transaction, old, values)
            return self._report(transaction, old.project, asker, "change", experiment, told)

    def delete(self, experiment: str, asker: Asker, now: float, *, version: int | None = None) -> None:
        """Delete an experiment. Its jobs stay.

        Raises:
            NotFound, StaleVersion, Forbidden: as in `change`.
        """
        with writing(self._database, now) as transaction:
            old = self._lock(transaction, experiment, asker, "delete", version)
            self._remove(transaction, old, asker)

    def _read(self, connection: Connection, statement: Select[Any]) -> list[Experiment | Unreadable]:
        """Return the experiments of a query. Related rows of all experiments are read with one query for each kind."""
        rows = fetch_each(connection, statement)
        ids = [row["id"] for row in rows]
        meant = _gather(connection, ids, _select_definitions)
        came = _gather(connection, ids, _select_runs)
        lists = [
            {"definitions": tuple(meant.get(row["id"], ())), "runs": tuple(came.get(row["id"], ()))} for row in rows
        ]
        return [convert_row({**row, **more}, Experiment, "experiments") for row, more in zip(rows, lists, strict=True)]


def _check_definitions(transaction: Transaction, doing: str, project: str, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Return the ids of definitions without duplicates, after a check that all are in the project."""
    meant = tuple(dict.fromkeys(wanted))
    if not 1 <= len(meant) <= _MOST_DEFINITIONS:
        raise BadField(
            "definitions", f"Cannot {doing}: it names {len(meant)} training definitions. Name 1 to {_MOST_DEFINITIONS}."
        )
    there = select(definitions.c.id).where(definitions.c.project == project, definitions.c.id.in_(meant))
    known = transaction.connection.execute(there).scalars().all()
    for definition in meant:
        if definition not in known:
            raise BadField(
                "definitions",
                f"Cannot {doing}: its project has no training definition '{definition[:100]}'. Name them by their ids.",
            )
    return meant


def _put_definitions(transaction: Transaction, experiment: str, meant: tuple[str, ...]) -> None:
    for place, definition in enumerate(meant):
        row = {"experiment": experiment, "definition": definition, "place": place}
        transaction.connection.execute(insert(experiment_definitions).values(row))


def _gather(
    connection: Connection, ids: Sequence[str], select_pairs: Callable[[Sequence[str]], Select[Any]]
) -> dict[str, list[str]]:
    """Return the related ids of each experiment, in the order of the query for these pairs."""
    found: dict[str, list[str]] = {}
    for first in range(0, len(ids), _BATCH):
        for experiment, other in connection.execute(select_pairs(ids[first : first + _BATCH])):
            found.setdefault(experiment, []).append(other)
    return found


def _select_definitions(these: Sequence[str]) -> Select[Any]:
    columns = experiment_definitions.c
    pairs = select(columns.experiment, columns.definition).where(columns.experiment.in_(these))
    return pairs.order_by(columns.experiment, columns.place)


def _select_runs(these: Sequence[str]) -> Select[Any]:
    """Return the query for the newest jobs of each experiment."""
    place = func.row_number().over(partition_by=jobs.c.experiment, order_by=jobs.c.id.desc()).label("place")
    ranked = select(jobs.c.experiment, jobs.c.id, place).where(jobs.c.experiment.in_(these)).subquery()
    return select(ranked.c.experiment, ranked.c.id).where(ranked.c.place <= _NUM_RUNS).order_by(ranked.c.id.desc())
