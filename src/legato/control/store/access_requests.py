"""Users' requests for access to a colleague's projects: ask, list, grant, decline, withdraw."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Connection, and_, delete, func, insert, not_, or_, select, update

from legato.api.projects import AccessRequest, AccessStage, ProjectOwner
from legato.control.display_names import check_description
from legato.control.ids import make_id
from legato.control.roles import Asker, check_may_act
from legato.control.store.database import Database
from legato.control.store.projects import KIND, LEAVER, lock_project, record_action
from legato.control.store.rows import read_all
from legato.control.store.schema import access_requests, definitions, project_members, projects, queues
from legato.control.store.transactions import Transaction, writing
from legato.control.store.visibility import is_member, sees_project
from legato.core.errors import Conflict, Forbidden, NotFound

_MAX_OPEN: Final = 100
_MAX_SHOWN: Final = 1_000
_LAST: Final = select(func.max(access_requests.c.id))


class AccessRequests:
    """The requests for access to projects. A request names the owner of projects; the owner chooses the project.

    Args:
        database: the store's.
        random_bits: returns a random number of so many bits; for ids.
    """

    def __init__(self, database: Database, random_bits: Callable[[int], int]) -> None:
        self._database = database
        self._random_bits = random_bits

    def list_owners(self, asker: Asker) -> tuple[ProjectOwner, ...]:
        """Return the users whom the asker may ask: owners of training definitions that the asker cannot see.

        Only of projects whose queue the asker may use: their jobs, with the names of their owners, are visible anyway.
        """
        with self._database.reading() as connection:
            return _read_owners(connection, asker)

    def list(self, asker: Asker) -> tuple[AccessRequest, ...]:
        """Return the newest requests that the asker has sent or received, the newest first."""
        concerns = or_(access_requests.c.user == asker.name, access_requests.c.owner == asker.name)
        statement = select(access_requests).where(concerns).order_by(access_requests.c.id.desc()).limit(_MAX_SHOWN)
        with self._database.reading() as connection:
            return read_all(connection, statement, AccessRequest)

    def ask(self, owner: str, message: str, asker: Asker, now: float) -> tuple[AccessRequest, bool]:
        """Ask an owner for access. Returns the request, and whether it is new: an open one is not repeated.

        Raises:
            Forbidden: the asker is a viewer.
            NotFound: the owner has no projects for which the asker may ask.
            BadField: the message is too long.
            Conflict: the asker has too many open requests.
        """
        doing = f"ask '{owner[:100]}' for access"
        check_may_act(doing, asker)
        check_description(doing, message, "message")
        columns = access_requests.c
        with writing(self._database, now) as transaction:
            connection = transaction.connection
            # While the lock is held, no other request of this user is stored.
            transaction.lock_sequence()
            mine = and_(columns.user == asker.name, columns.stage == AccessStage.OPEN.value)
            same = read_all(connection, select(access_requests).where(mine, columns.owner == owner), AccessRequest)
            if same:
                return same[0], False
            if owner not in (one.name for one in _read_owners(connection, asker)):
                raise NotFound(
                    f"Cannot {doing}: '{owner[:100]}' has no training definitions for which you can ask. 'legato "
                    "projects owners' lists whom you can ask."
                )
            number: int = connection.execute(select(func.count()).select_from(access_requests).where(mine)).scalar_one()
            if number >= _MAX_OPEN:
                raise Conflict(f"Cannot {doing}: you have {number} open requests. Withdraw one of them first.")
            # Of earlier requests to the same owner, the new one takes the place.
            connection.execute(delete(access_requests).where(columns.user == asker.name, columns.owner == owner))
            request = make_id("a", now, self._random_bits, connection.execute(_LAST).scalar_one())
            row = {"id": request, "user": asker.name, "owner": owner, "message": message, "created_at": now}
            connection.execute(insert(access_requests).values(**row, stage=AccessStage.OPEN.value))
            _record(transaction, request, asker, "ask", {"owner": owner}, told=owner)
            return _read(connection, request), True

    def grant(self, request: str, project: str, asker: Asker, now: float) -> AccessRequest:
        """Make the user who asked a member of one of the owner's projects.

        Raises:
            NotFound: there is no such request, or no such project.
            Forbidden: the asker is neither the owner nor an admin, or the project is not the owner's.
            Conflict: the request is no longer open.
        """
        with writing(self._database, now) as transaction:
            found = self._lock(transaction, request, asker, "grant")
            locked = lock_project(transaction, project, asker)
            doing = f"grant request '{request}'"
            if locked.owner != found.owner:
                raise Forbidden(
                    f"Cannot {doing}: project '{locked.name}' belongs to '{locked.owner}', and '{found.user}' asked "
                    f"'{found.owner}'. Choose a project of '{found.owner}'."
                )
            if found.user not in locked.members:
                member = {"project": project, "user": found.user}
                transaction.connection.execute(insert(project_members).values(**member))
                version = update(projects).where(projects.c.id == project).values(version=locked.version + 1)
                transaction.connection.execute(version)
                members = sorted({*locked.members, found.user})
                record_action(transaction, project, asker, "project.change", project, {"members": members})
            return _decide(transaction, found, asker, AccessStage.GRANTED, project)

    def decline(self, request: str, asker: Asker, now: float) -> AccessRequest:
        """Decline a request. Errors as in `grant`."""
        with writing(self._database, now) as transaction:
            found = self._lock(transaction, request, asker, "decline")
            return _decide(transaction, found, asker, AccessStage.DECLINED, None)

    def withdraw(self, request: str, asker: Asker, now: float) -> None:
        """Delete a request that the asker has sent.

        Raises:
            NotFound: the asker has sent no such request.
        """
        with writing(self._database, now) as transaction:
            found = _find(transaction.connection, request, asker)
            check_may_act(f"withdraw request '{request}'", asker, (found.user,))
            transaction.connection.execute(delete(access_requests).where(access_requests.c.id == request))
            _record(transaction, request, asker, "withdraw", {"owner": found.owner}, told=found.owner)

    def _lock(self, transaction: Transaction, request: str, asker: Asker, verb: str) -> AccessRequest:
        """Read an open request that the asker may decide."""
        doing = f"{verb} request '{request[:100]}'"
        check_may_act(doing, asker)
        # Decisions are made one after the other, so that two of them do not both find the request open.
        claim = update(access_requests).where(access_requests.c.id == request)
        transaction.connection.execute(claim.values(stage=access_requests.c.stage))
        found = _find(transaction.connection, request, asker)
        check_may_act(doing, asker, (found.owner,))
        if found.stage is not AccessStage.OPEN:
            raise Conflict(f"Cannot {doing}: it was {found.stage} already.")
        return found


def _can_ask_for(asker: Asker) -> ColumnElement[bool]:
    """Return the condition for projects that the asker cannot see, with definitions, in a queue of the asker."""
    usable = select(queues.c.name).where(is_member(asker.name))
    has_definitions = select(definitions.c.id).where(definitions.c.project == projects.c.id).exists()
    return and_(not_(sees_project(asker.name)), projects.c.queue.in_(usable), has_definitions)


def _read_owners(connection: Connection, asker: Asker) -> tuple[ProjectOwner, ...]:
    if asker.sees_only is None:
        return ()  # sees all projects
    statement = select(projects.c.owner.label("name")).where(_can_ask_for(asker)).distinct().order_by(projects.c.owner)
    return read_all(connection, statement, ProjectOwner)


def _find(connection: Connection, request: str, asker: Asker) -> AccessRequest:
    """Return a request that the asker has sent or received; admins: any."""
    this = select(access_requests).where(access_requests.c.id == request)
    found = read_all(connection, this, AccessRequest)
    if not found or (asker.sees_only is not None and asker.name not in (found[0].user, found[0].owner)):
        raise NotFound(
            f"There is no request '{request[:100]}' that you may see. 'legato projects requests' lists those that "
            "you may."
        )
    return found[0]


def _read(connection: Connection, request: str) -> AccessRequest:
    (found,) = read_all(connection, select(access_requests).where(access_requests.c.id == request), AccessRequest)
    return found


def _decide(
    transaction: Transaction, found: AccessRequest, asker: Asker, stage: AccessStage, project: str | None
) -> AccessRequest:
    values = {"stage": stage.value, "project": project, "decided_at": transaction.now}
    transaction.connection.execute(update(access_requests).where(access_requests.c.id == found.id).values(**values))
    detail = {"user": found.user} | ({} if project is None else {"project": project})
    _record(transaction, found.id, asker, str(stage), detail, told=found.user)
    return msgspec.structs.replace(found, stage=stage, project=project, decided_at=transaction.now)


def _record(
    transaction: Transaction, request: str, asker: Asker, verb: str, detail: dict[str, Any], *, told: str
) -> None:
    """Write the audit entry of an action, and the event, which only one user and admins get."""
    action = f"access.{verb}"
    transaction.audit(asker.name, action, request, detail)
    transaction.note(
        KIND, f"{action} by '{asker.name}'", detail={"project": "", "action": action, "target": request, LEAVER: told}
    )
