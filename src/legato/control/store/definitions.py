"""Training definitions in the store. Does not read code: the caller has checked that the program exists."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Select, select, update

from legato.control.project_records import Definition, Naming, NewDefinition, RunSettings
from legato.control.roles import Asker
from legato.control.store.project_contents import ProjectContents
from legato.control.store.rows import Unreadable, convert_row, fetch_each
from legato.control.store.schema import (
    code_uploads,
    definitions,
    experiment_definitions,
    experiments,
)
from legato.control.store.transactions import writing
from legato.control.store.uploads import check_sha256, may_use, missing_code
from legato.core.errors import Conflict


class _Kept(msgspec.Struct):
    id: str
    plan: dict[str, Any]


_OF_ROW: Final = ("name", "description", "framework", "command", "code")


class Definitions(ProjectContents[Definition]):
    """The training definitions of the platform."""

    _table = definitions
    _kind = "definition"
    _title = "training definition"
    _command = "definitions"
    _prefix = "d"

    def create(
        self, project: str, new: NewDefinition, asker: Asker, now: float, *, most: int | None = None
    ) -> Definition:
        """Add a training definition to a project.

        Args:
            project: its id.
            new: the checked definition.
            asker: the user who adds it.
            now: seconds since 1970.
            most: maximum number of definitions in the project, including this one. None: no limit.

        Raises:
            NotFound: there is no such project that the asker may see, or no such upload that the asker may use.
            Forbidden: the asker is not a member.
            BadField: the name cannot be used.
            Conflict: the project has a definition of this name, or the maximum number.
        """
        with self._adding(project, new, asker, now) as (transaction, doing):
            if new.code is not None:
                check_sha256(new.code)
                using = update(code_uploads).where(code_uploads.c.sha256 == new.code, may_use(asker))
                if transaction.connection.execute(using.values(used_at=now)).rowcount == 0:
                    raise missing_code(new.code)
            row = {name: getattr(new, name) for name in _OF_ROW}
            plan = {name: getattr(new, name) for name in RunSettings.__struct_fields__}
            made = self._insert(transaction, doing, row | {"plan": msgspec.to_builtins(plan)}, project, asker, most)
            return self._report(transaction, project, asker, "create", made, {"name": new.name})

    def change(
        self, definition: str, naming: Naming, asker: Asker, now: float, *, version: int | None = None
    ) -> Definition:
        """Give a definition another name or description.

        Raises:
            NotFound: there is no such definition that the asker may see.
            StaleVersion: it has a newer version.
            Forbidden: it is neither the asker's nor in the asker's project, and the asker is no admin.
            BadField: the name cannot be used.
            Conflict: the project has another one of this name.
        """
        with writing(self._database, now) as transaction:
            old = self._lock(transaction, definition, asker, "change", version)
            doing = f"change training definition '{old.name}'"
            given = {"name": naming.name, "description": naming.description}
            values = {name: value for name, value in given.items() if value is not None and value != getattr(old, name)}
            if not values:
                return old
            self._check_new_words(transaction, doing, old, values)
            self._update(transaction, old, values)
            return self._report(transaction, old.project, asker, "change", definition, values)

    def delete(self, definition: str, asker: Asker, now: float, *, version: int | None = None) -> None:
        """Delete a definition that no experiment contains. Its jobs stay.

        Raises:
            NotFound, StaleVersion, Forbidden: as in `change`.
            Conflict: an experiment contains it.
        """
        with writing(self._database, now) as transaction:
            old = self._lock(transaction, definition, asker, "delete", version)
            having = select(experiments.c.name).join(experiment_definitions)
            having = having.where(experiment_definitions.c.definition == definition).order_by(experiments.c.id)
            name = transaction.connection.execute(having).scalars().first()
            if name is not None:
                raise Conflict(
                    f"Cannot delete training definition '{old.name}': experiment '{name}' uses it. Remove it there "
                    "first."
                )
            self._remove(transaction, old, asker)

    def _read(self, connection: Connection, statement: Select[Any]) -> list[Definition | Unreadable]:
        return [_as_record(row) for row in fetch_each(connection, statement)]


def _as_record(row: dict[str, Any]) -> Definition | Unreadable:
    found = {str(name): value for name, value in row.items()}
    kept = convert_row({"id": found["id"], "plan": found.pop("plan")}, _Kept, "definitions")
    return kept if isinstance(kept, Unreadable) else convert_row(found | kept.plan, Definition, "definitions")
