"""Training definitions, as the store keeps them. Looks into no code: whether a program is there was asked before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, RowMapping, Select, delete, select, update

from legato.control.display_names import check_description, check_title
from legato.control.ids import make_id
from legato.control.project_records import Definition, Naming, NewDefinition, RunSettings
from legato.control.roles import Asker
from legato.control.store.database import Database
from legato.control.store.project_contents import Inside
from legato.control.store.projects import check_may_add, lock_project, tell
from legato.control.store.rows import Unreadable, convert_or_tell, fetch_each
from legato.control.store.schema import (
    code_uploads,
    definitions,
    experiment_definitions,
    experiments,
    jobs,
)
from legato.control.store.transactions import writing
from legato.control.store.uploads import check_sha256, may_use, missing_code
from legato.core.errors import Conflict


class _Kept(msgspec.Struct):
    id: str
    plan: dict[str, Any]


_OF_ROW: Final = ("name", "description", "framework", "command", "code")


class Definitions:
    """The training definitions of the platform.

    Args:
        database: the store's.
        random_bits: returns a random number of so many bits; for ids.
    """

    def __init__(self, database: Database, random_bits: Callable[[int], int]) -> None:
        self._database = database
        self._random_bits = random_bits

    def create(
        self, project: str, new: NewDefinition, asker: Asker, now: float, *, most: int | None = None
    ) -> Definition:
        """Add a training definition to a project.

        Args:
            project: its id.
            new: the definition, which was checked.
            asker: who adds it.
            now: seconds since 1970.
            most: that the project may have, this one included. None: any number.

        Raises:
            NotFound: there is no such project that the asker may see, or no such upload that the asker may use.
            Forbidden: the asker is no member.
            BadField: the name cannot be used.
            Conflict: the project has one of this name, or as many as there may be.
        """
        doing = f"make training definition '{new.name[:100]}'"
        check_title(doing, new.name)
        check_description(doing, new.description)
        with writing(self._database, now) as transaction:
            connection = transaction.connection
            check_may_add(doing, lock_project(transaction, project, asker), asker)
            if new.code is not None:
                check_sha256(new.code)
                using = update(code_uploads).where(code_uploads.c.sha256 == new.code, may_use(asker))
                if connection.execute(using.values(used_at=now)).rowcount == 0:
                    raise missing_code(new.code)
            _INSIDE.check_room(transaction, doing, project, most)
            transaction.lock_sequence()
            definition = make_id("d", now, self._random_bits, _INSIDE.last_id(transaction))
            plan = {name: getattr(new, name) for name in RunSettings.__struct_fields__}
            row: dict[str, Any] = {name: getattr(new, name) for name in _OF_ROW}
            row |= {"id": definition, "project": project, "plan": msgspec.to_builtins(plan)}
            row |= {"created_by": asker.name, "version": 1, "created_at": now}
            if not transaction.insert_new(definitions, row):
                raise _INSIDE.taken(doing)
            tell(transaction, project, asker, "definition.create", definition, {"name": new.name})
            return _INSIDE.read_again(transaction, definition)

    def find(self, ref: str, asker: Asker) -> Definition:
        """Return a definition by id, or the newest of that name: of those that the asker made, else of all seen.

        Raises:
            NotFound: there is none.
        """
        with self._database.reading() as connection:
            return _INSIDE.find(connection, ref, asker)

    def list(self, project: str, asker: Asker) -> tuple[Definition, ...]:
        """Return the definitions of a project, the newest first."""
        with self._database.reading() as connection:
            return _INSIDE.list(connection, project, asker)

    def change(
        self, definition: str, naming: Naming, asker: Asker, now: float, *, version: int | None = None
    ) -> Definition:
        """Give a definition another name or description.

        Raises:
            NotFound: there is no such definition that the asker may see.
            StaleVersion: it has another version by now.
            Forbidden: it is neither the asker's nor in the asker's project, and the asker is no admin.
            BadField: the name cannot be used.
            Conflict: the project has another one of this name.
        """
        with writing(self._database, now) as transaction:
            old = _INSIDE.lock(transaction, definition, asker, "change", version)
            doing = f"change training definition '{old.name}'"
            given = {"name": naming.name, "description": naming.description}
            values = {name: value for name, value in given.items() if value is not None and value != getattr(old, name)}
            if not values:
                return old
            _INSIDE.check_new_words(transaction, doing, old, values)
            this = definitions.c.id == definition
            transaction.connection.execute(update(definitions).where(this).values(**values, version=old.version + 1))
            tell(transaction, old.project, asker, "definition.change", definition, values)
            return _INSIDE.read_again(transaction, definition)

    def delete(self, definition: str, asker: Asker, now: float, *, version: int | None = None) -> None:
        """Delete a definition that no experiment has. Its jobs stay.

        Raises:
            NotFound, StaleVersion, Forbidden: as in `change`.
            Conflict: an experiment has it.
        """
        with writing(self._database, now) as transaction:
            old = _INSIDE.lock(transaction, definition, asker, "delete", version)
            having = select(experiments.c.name).join(experiment_definitions)
            having = having.where(experiment_definitions.c.definition == definition).order_by(experiments.c.id)
            name = transaction.connection.execute(having).scalars().first()
            if name is not None:
                raise Conflict(
                    f"Cannot delete training definition '{old.name}': experiment '{name}' uses it. Remove it there "
                    "first."
                )
            transaction.connection.execute(update(jobs).where(jobs.c.definition == definition).values(definition=None))
            transaction.connection.execute(delete(definitions).where(definitions.c.id == definition))
            tell(transaction, old.project, asker, "definition.delete", definition, {"name": old.name})


def _read(connection: Connection, statement: Select[Any]) -> list[Definition | Unreadable]:
    return [_as_record(row) for row in fetch_each(connection, statement)]


def _as_record(row: RowMapping) -> Definition | Unreadable:
    found = {str(name): value for name, value in row.items()}
    kept = convert_or_tell({"id": found["id"], "plan": found.pop("plan")}, _Kept, "definitions")
    return kept if isinstance(kept, Unreadable) else convert_or_tell(found | kept.plan, Definition, "definitions")


_INSIDE: Final = Inside(definitions, "training definition", "definitions", _read)
