"""Projects and their members in the store, and the queue of their jobs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from sqlalchemy import Connection, Select, delete, func, insert, select, update

from legato.api.projects import Project
from legato.control.display_names import check_description, check_title
from legato.control.ids import make_id
from legato.control.project_records import NewProject, ProjectPatch
from legato.control.records import Page
from legato.control.roles import Asker, Role, check_may_act
from legato.control.store.database import Database
from legato.control.store.rows import Unreadable, convert_row, fetch_each, take
from legato.control.store.schema import definitions, experiments, jobs, project_members, projects, users
from legato.control.store.submit import check_may_use_queue
from legato.control.store.transactions import Transaction, writing
from legato.control.store.visibility import sees_project
from legato.core.errors import BadField, Conflict, NotFound, StaleVersion

KIND: Final = "project"
"""Of events that tell that a project, or something in it, was changed. ``detail``: its id, and what was done."""
LEAVER: Final = "user"
"""In the ``detail`` of such an event: a user who cannot see the project, and still receives this event."""

_LAST: Final = select(func.max(projects.c.id))


class Projects:
    """The projects of the platform.

    Args:
        database: the store's.
        random_bits: returns a random number of so many bits; for ids.
    """

    def __init__(self, database: Database, random_bits: Callable[[int], int]) -> None:
        self._database = database
        self._random_bits = random_bits

    def create(self, new: NewProject, asker: Asker, now: float, *, max_owned: int | None = None) -> Project:
        """Make a project, owned by the asker.

        Args:
            new: the project.
            asker: the user who makes it.
            now: seconds since 1970.
            max_owned: maximum number of projects that the asker may own, including this one; does not limit admins.
                None: no limit.

        Raises:
            Forbidden: the asker is a viewer, or may not use the queue.
            NotFound: there is no such queue.
            BadField: the name or a member cannot be used.
            Conflict: the asker has a project of this name, or the maximum number of projects.
        """
        doing = f"make project '{new.name[:100]}'"
        check_may_act(doing, asker)
        check_title(doing, new.name)
        check_description(doing, new.description)
        with writing(self._database, now) as transaction:
            check_may_use_queue(transaction, doing, new.queue, asker)
            members = _check_members(transaction, doing, new.members, asker.name)
            # While the lock is held, no other request creates a project of this user.
            transaction.lock_sequence()
            _check_owned(transaction, doing, asker, max_owned)
            project = make_id("p", now, self._random_bits, transaction.connection.execute(_LAST).scalar_one())
            row: dict[str, Any] = {"id": project, "name": new.name, "owner": asker.name, "queue": new.queue}
            row |= {"description": new.description, "version": 1, "created_at": now}
            if not transaction.insert_new(projects, row):
                raise _taken(doing, asker.name)
            _put_members(transaction, project, members)
            record_action(transaction, project, asker, "project.create", project, {"name": new.name})
            return _reread(transaction, project)

    def find(self, ref: str, asker: Asker) -> Project:
        """Return a project by id, or the newest of that name: of the asker's own, else of all visible ones.

        Raises:
            NotFound: there is none.
        """
        seen = select(projects).where(sees_project(asker.sees_only))
        named = seen.where(projects.c.name == ref).order_by(projects.c.id.desc())
        with self._database.reading() as connection:
            for way in (seen.where(projects.c.id == ref), named.where(projects.c.owner == asker.name), named):
                found = _read(connection, way.limit(1))
                if found:
                    return take(found[0], f"use project '{ref[:100]}'")
        raise missing_project(ref)

    def list(self, *, sees_only: str | None, after: str | None = None, limit: int = 100) -> Page[Project]:
        """Return a page of projects, the newest first. ``after``: from the previous page."""
        statement = select(projects).where(sees_project(sees_only)).order_by(projects.c.id.desc())
        if after is not None:
            statement = statement.where(projects.c.id < after)
        with self._database.reading() as connection:
            found = _read(connection, statement.limit(limit + 1))
        records = [one.record if isinstance(one, Unreadable) else one for one in found[:limit]]
        shown = tuple(one for one in found[:limit] if not isinstance(one, Unreadable))
        return Page(shown, records[-1].id if len(found) > limit else None)

    def which_visible(self, these: Collection[str], sees_only: str | None) -> frozenset[str]:
        """Return those of the projects, by id, that the user may see."""
        if sees_only is None:
            return frozenset(these)
        statement = select(projects.c.id).where(projects.c.id.in_(sorted(these)), sees_project(sees_only))
        with self._database.reading() as connection:
            return frozenset(connection.execute(statement).scalars())

    def change(
        self, project: str, patch: ProjectPatch, asker: Asker, now: float, *, version: int | None = None
    ) -> Project:
        """Change a project.

        Args:
            project: its id.
            patch: the changes.
            asker: the user who sends the request, with the role of the token.
            now: seconds since 1970.
            version: the version that the asker has read. None: any version.

        Raises:
            NotFound: there is no such project that the asker may see, or no such queue.
            StaleVersion: it has a newer version.
            Forbidden: the asker is neither its owner nor an admin, or may not use the queue.
            BadField: the name or a member cannot be used.
            Conflict: its owner has another project of this name.
        """
        with writing(self._database, now) as transaction:
            old = lock_project(transaction, project, asker)
            doing = f"change project '{old.name}'"
            check_may_act(doing, asker, (old.owner,))
            check_version(doing, old.version, version)
            given = {name: getattr(patch, name) for name in ProjectPatch.__struct_fields__}
            values = {name: value for name, value in given.items() if value is not None and value != getattr(old, name)}
            if "name" in values:
                check_title(doing, values["name"])
            if "description" in values:
                check_description(doing, values["description"])
            if "queue" in values:
                check_may_use_queue(transaction, doing, values["queue"], asker)
            members = values.pop("members", None)
            if members is not None:
                members = _check_members(transaction, doing, members, old.owner)
            if not values and members is None:
                return old
            # Prevents that another request takes the name meanwhile.
            transaction.lock_sequence()
            same = select(projects.c.id).where(projects.c.owner == old.owner, projects.c.name == values.get("name"))
            if transaction.connection.execute(same).first() is not None:
                raise _taken(doing, old.owner)
            this = projects.c.id == project
            transaction.connection.execute(update(projects).where(this).values(**values, version=old.version + 1))
            if members is not None:
                transaction.connection.execute(delete(project_members).where(project_members.c.project == project))
                _put_members(transaction, project, members)
                values["members"] = members
                _notify_leavers(transaction, project, asker, sorted(set(old.members) - set(members)))
            record_action(transaction, project, asker, "project.change", project, values)
            return _reread(transaction, project)

    def delete(self, project: str, asker: Asker, now: float, *, version: int | None = None) -> None:
        """Delete a project that has no experiments and no training definitions. Its jobs stay.

        Raises:
            NotFound, StaleVersion, Forbidden: as in `change`.
            Conflict: the project is not empty.
        """
        with writing(self._database, now) as transaction:
            old = lock_project(transaction, project, asker)
            doing = f"delete project '{old.name}'"
            check_may_act(doing, asker, (old.owner,))
            check_version(doing, old.version, version)
            for table, what in ((experiments, "experiments"), (definitions, "training definitions")):
                counting = select(func.count()).select_from(table).where(table.c.project == project)
                number = transaction.connection.execute(counting).scalar_one()
                if number:
                    raise Conflict(f"Cannot {doing}: it has {number} {what}. Delete them first.")
            transaction.connection.execute(update(jobs).where(jobs.c.project == project).values(project=None))
            transaction.connection.execute(delete(projects).where(projects.c.id == project))
            _notify_leavers(transaction, project, asker, (old.owner, *old.members))
            record_action(transaction, project, asker, "project.delete", project, {"name": old.name})


# ---------------------------------------------------------------- for the rooms of what is in a project


def lock_project(transaction: Transaction, project: str, asker: Asker) -> Project:
    """Read a project, and lock it and its contents until the transaction ends.

    Raises:
        NotFound: there is none of this id that the asker may see.
    """
    this = select(projects).where(projects.c.id == project, sees_project(asker.sees_only)).with_for_update()
    found = _read(transaction.connection, this)
    if not found:
        raise missing_project(project)
    return take(found[0], f"use project '{project}'")


def check_may_add(doing: str, project: Project, asker: Asker) -> None:
    """Raise Forbidden unless the asker may add to a project: its owner, its members and admins may."""
    check_may_act(doing, asker, (project.owner, *project.members))


def check_version(doing: str, version: int, seen: int | None) -> None:
    """Raise StaleVersion if the asker has seen another version."""
    if seen is not None and seen != version:
        raise StaleVersion(
            f"Cannot {doing}: it was changed since you read it: it has version {version}, and you gave {seen}. Read it "
            "again, and repeat your change if you still want it."
        )


def record_action(
    transaction: Transaction, project: str, asker: Asker, action: str, target: str, detail: dict[str, Any]
) -> None:
    """Write the audit entry and the event of a user's action in a project."""
    transaction.audit(asker.name, action, target, {"project": project, **detail})
    transaction.note(
        KIND, f"{action} by '{asker.name}'", detail={"project": project, "action": action, "target": target}
    )


def missing_project(ref: str) -> NotFound:
    """Return the error for a project that does not exist or that the user may not see."""
    return NotFound(f"There is no project '{ref[:100]}' that you may see. 'legato projects' lists those that you may.")


# ---------------------------------------------------------------- inside


def _taken(doing: str, owner: str) -> Conflict:
    return Conflict(f"Cannot {doing}: '{owner}' already has a project of this name. Choose another name.")


def _check_owned(transaction: Transaction, doing: str, asker: Asker, max_owned: int | None) -> None:
    """Raise Conflict if the asker owns the maximum number of projects and is no admin. None: no limit."""
    if max_owned is None or asker.role is Role.ADMIN:
        return
    counting = select(func.count()).where(projects.c.owner == asker.name)
    number: int = transaction.connection.execute(counting).scalar_one()
    if number >= max_owned:
        raise Conflict(
            f"Cannot {doing}: '{asker.name}' has {number} projects, and a user may have {max_owned}. Delete some that "
            "are no longer needed, or ask the operator to raise max_projects."
        )


def _check_members(transaction: Transaction, doing: str, members: Iterable[str], owner: str) -> tuple[str, ...]:
    """Return the members without duplicates and without the owner."""
    wanted = tuple(sorted(set(members) - {owner}))
    known = transaction.connection.execute(select(users.c.name).where(users.c.name.in_(wanted))).scalars().all()
    for member in wanted:
        if member not in known:
            raise BadField("members", f"Cannot {doing}: there is no user '{member[:100]}'. Name users as they log in.")
    return wanted


def _put_members(transaction: Transaction, project: str, members: tuple[str, ...]) -> None:
    for member in members:
        transaction.connection.execute(insert(project_members).values(project=project, user=member))


def _notify_leavers(transaction: Transaction, project: str, asker: Asker, leavers: Iterable[str]) -> None:
    """Write the last event of a project for users who can no longer see it."""
    for leaver in leavers:
        detail = {"project": project, "action": "project.leave", "target": project, LEAVER: leaver}
        transaction.note(KIND, f"'{leaver}' was removed from it by '{asker.name}'", detail=detail)


def _reread(transaction: Transaction, project: str) -> Project:
    (found,) = _read(transaction.connection, select(projects).where(projects.c.id == project))
    return take(found, f"use project '{project}'")


def _read(connection: Connection, statement: Select[Any]) -> list[Project | Unreadable]:
    rows = fetch_each(connection, statement)
    joined = select(project_members.c.project, project_members.c.user).order_by(project_members.c.user)
    members: dict[str, list[str]] = {}
    for project, user in connection.execute(joined.where(project_members.c.project.in_([row["id"] for row in rows]))):
        members.setdefault(project, []).append(user)
    return [convert_row({**row, "members": tuple(members.get(row["id"], ()))}, Project, "projects") for row in rows]
