"""Users and their passwords in the store. Tokens are in `tokens`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Select, delete, func, insert, or_, select, update

from legato.control.credentials import Passwords, is_device, make_device
from legato.control.people import User
from legato.control.roles import Asker, Role, check_is_admin
from legato.control.stages import HOLDING
from legato.control.store.database import Database
from legato.control.store.rows import read_all, read_one
from legato.control.store.schema import allocations, job_uids, jobs, skipped_uids, tokens, users
from legato.control.store.transactions import Transaction, writing
from legato.core.errors import Conflict, Forbidden, NotFound, Unauthenticated, UsageError
from legato.core.spec import check_name


class Accounts:
    """The users of the platform.

    Args:
        database: the store's.
        passwords: hashes passwords, outside of transactions, because hashing is slow on purpose.
        random_bits: returns a random number of so many bits.
    """

    def __init__(self, database: Database, passwords: Passwords, random_bits: Callable[[int], int]) -> None:
        self._database = database
        self._passwords = passwords
        self._random_bits = random_bits

    def create(self, name: str, role: Role, asker: Asker, now: float, *, password: str | None = None) -> User:
        """Create a user. A user without a password can log in with tokens only.

        Raises:
            Forbidden: the asker is no admin.
            Conflict: the name is taken.
            UsageError: the name or the password cannot be used.
        """
        check_is_admin("create a user", asker)
        check_name(name, "a user")
        hashed = None if password is None else self._passwords.hash(password)
        with writing(self._database, now) as transaction:
            row = {"name": name, "role": role, "password_hash": hashed, "created_at": now}
            if not transaction.insert_new(users, row):
                raise Conflict(
                    f"Cannot create user '{name}': the name is taken. To set a password: legato users password "
                    f"{name}. Otherwise choose another name."
                )
            transaction.audit(asker.name, "user.create", name, {"role": role})
            return _get(transaction, name)

    def change(
        self, name: str, asker: Asker, now: float, *, role: Role | None = None, is_disabled: bool | None = None
    ) -> User:
        """Change a user's role, or disable or enable the user; all changes or none.

        A lower role takes effect for existing tokens at once. Jobs of a disabled user continue until they are stopped.

        Args:
            name: of the user.
            asker: the user who sends the request, with the role of the token.
            now: seconds since 1970.
            role: None: stays.
            is_disabled: None: stays.

        Raises:
            Forbidden: the asker is no admin.
            NotFound: there is no such user.
            Conflict: no admin would be left.
        """
        check_is_admin("change a user", asker)
        with writing(self._database, now) as transaction:
            _lock(transaction, name)
            if (role is not None and role is not Role.ADMIN) or is_disabled:
                doing = f"disable '{name}'" if is_disabled else f"make '{name}' a {role}"
                _check_not_last_admin(transaction, doing, name)
            if role is not None:
                transaction.connection.execute(update(users).where(users.c.name == name).values(role=role))
                transaction.audit(asker.name, "user.role", name, {"role": role})
            if is_disabled is not None:
                since = {"disabled_at": now if is_disabled else None}
                transaction.connection.execute(update(users).where(users.c.name == name).values(since))
                transaction.audit(asker.name, "user.disable" if is_disabled else "user.enable", name)
            return _get(transaction, name)

    def set_password(self, name: str, password: str, asker: Asker, now: float) -> None:
        """Give a user a new password. Users may change their own password, admins every password.

        All tokens of the user are revoked: users often change a password because another person knows it.

        Raises:
            Forbidden: the password is another user's, and the asker is no admin.
            NotFound: there is no such user.
            UsageError: the password cannot be used.
        """
        if asker.name != name:
            check_is_admin(f"change the password of '{name}'", asker)
        elif asker.role is not self.get(name).role:
            # A token of a lower role must not get the user's full role through a new password.
            raise Forbidden(
                f"Cannot change the password of '{name}' with a token of role '{asker.role}', which is below the "
                "user's. Log in with the password and try again."
            )
        hashed = self._passwords.hash(password)
        with writing(self._database, now) as transaction:
            _lock(transaction, name)
            connection = transaction.connection
            connection.execute(update(users).where(users.c.name == name).values(password_hash=hashed))
            live = (tokens.c.user == name, tokens.c.revoked_at.is_(None))
            connection.execute(update(tokens).where(*live).values(revoked_at=now))
            transaction.audit(asker.name, "user.password", name)

    def log_in(self, name: str, password: str, now: float) -> User:
        """Return the user whose name and password these are.

        Raises:
            Unauthenticated: one of the two is wrong; the message does not say which.
        """
        stored = self._read_hash(name)
        with self._database.reading() as connection:
            found = read_one(connection, _select().where(users.c.name == name), User)
        is_right = self._passwords.is_right(password, stored)
        with writing(self._database, now) as transaction:
            transaction.audit(name[:63], "login" if is_right else "login.refused", name[:63])
        if not is_right or found is None:
            raise Unauthenticated(f"Cannot log in as '{name}': the name or the password is wrong. Try again.")
        return found

    def make_device(self, name: str) -> str | None:
        """Return a secret that identifies a device from which a user has just logged in; see `credentials`."""
        stored = self._read_hash(name)
        return None if stored is None else make_device(name, stored, self._random_bits)

    def is_device(self, name: str, device: str) -> bool:
        """Return whether a device's secret proves that this user has logged in from it with the present password."""
        stored = self._read_hash(name)
        return stored is not None and is_device(device, name, stored)

    def _read_hash(self, name: str) -> str | None:
        with self._database.reading() as connection:
            found: str | None = connection.execute(
                select(users.c.password_hash).where(users.c.name == name, users.c.disabled_at.is_(None))
            ).scalar()
        return found

    def get(self, name: str) -> User:
        """Return a user.

        Raises:
            NotFound: there is none of this name.
        """
        with self._database.reading() as connection:
            found = read_one(connection, _select().where(users.c.name == name), User)
        if found is None:
            raise _missing(name)
        return found

    def assign_uid(self, name: str, uids: range, now: float, *, is_taken: Callable[[int], bool]) -> int:
        """Return the number of the system user as whom a user's jobs run. The first call chooses it permanently.

        Args:
            name: of the user.
            uids: numbers to choose from.
            now: seconds since 1970.
            is_taken: returns whether the system has a user or a group of this number.

        Raises:
            UsageError: no number is free.
        """
        with writing(self._database, now) as transaction:
            _lock(transaction, name)  # the admins too, so that several users at the same time get different numbers
            connection = transaction.connection
            known = connection.execute(select(job_uids.c.uid).where(job_uids.c.user == name)).scalar()
            if known is not None:
                return int(known)
            given = set(connection.execute(select(job_uids.c.uid)).scalars())
            skipped = [range(first, last + 1) for first, last in connection.execute(select(skipped_uids))]
            free = next(
                (uid for uid in uids if not (uid in given or any(uid in some for some in skipped) or is_taken(uid))),
                None,
            )
            if free is None:
                raise UsageError(
                    f"Cannot run jobs of '{name}': none of the {len(uids)} numbers of the setting pool_uids is free. "
                    "They are in use, or they were skipped when the platform was restored from a backup. Ask the "
                    "operator to make that range larger."
                )
            connection.execute(insert(job_uids).values(user=name, uid=free))
            transaction.audit(name, "user.uid", name, {"uid": free})
            return free

    def list_idle_uids(self) -> dict[str, int]:
        """Return the system numbers of all users who have no job that may have processes."""
        # A job with slots counts too, whatever its stage: it may be a stage that this release does not know.
        holds = select(allocations.c.id).where(allocations.c.job == jobs.c.id, allocations.c.until.is_(None)).exists()
        busy = select(jobs.c.owner).where(or_(jobs.c.stage.in_(HOLDING), holds))
        idle = select(job_uids.c.user, job_uids.c.uid).where(job_uids.c.user.not_in(busy))
        with self._database.reading() as connection:
            if connection.execute(busy.where(jobs.c.owner.not_in(select(users.c.name)))).first() is not None:
                return {}  # the owner of these processes is unknown
            return {row.user: row.uid for row in connection.execute(idle)}

    def skip_uids(self, uids: range, count: int, now: float) -> None:
        """Skip the numbers that other users may have got after the backup from which this store was restored.

        Numbers are assigned in ascending order, so these are the next numbers above the highest one in the store.

        Args:
            uids: all numbers from which users get theirs.
            count: how many numbers to skip.
            now: seconds since 1970.
        """
        with writing(self._database, now) as transaction:
            connection = transaction.connection
            known = [
                connection.execute(select(func.max(column)).where(column.between(uids[0], uids[-1]))).scalar()
                for column in (job_uids.c.uid, skipped_uids.c.last)
            ]
            last = max([uids[0] - 1, *(number for number in known if number is not None)]) + count
            inside = skipped_uids.c.first.between(uids[0], last)
            connection.execute(delete(skipped_uids).where(inside))
            connection.execute(insert(skipped_uids).values(first=uids[0], last=last))

    def list(self) -> tuple[User, ...]:
        """Return all users, by name."""
        with self._database.reading() as connection:
            return read_all(connection, _select().order_by(users.c.name), User)


def create_first_admin(transaction: Transaction, name: str) -> bool:
    """Create an admin if there is no user at all, and return whether it did."""
    if transaction.connection.execute(select(users.c.name).limit(1)).first() is not None:
        return False
    # If several servers start for the first time together, one of them makes the admin.
    if not transaction.insert_new(users, {"name": name, "role": Role.ADMIN, "created_at": transaction.now}):
        return False
    transaction.audit(name, "user.create", name, {"role": Role.ADMIN})
    return True


def _select() -> Select[Any]:
    return select(users, users.c.password_hash.is_not(None).label("has_password"))


def _get(transaction: Transaction, name: str) -> User:
    found = read_one(transaction.connection, _select().where(users.c.name == name), User)
    assert found is not None, f"user {name} is gone although users are never deleted"
    return found


def _lock(transaction: Transaction, name: str) -> None:
    # Locks all admins too, in a fixed order: if two admins disable one another, one must remain.
    meant = (users.c.name == name) | (users.c.role == Role.ADMIN)
    statement = select(users.c.name).where(meant).order_by(users.c.name).with_for_update()
    if name not in transaction.connection.execute(statement).scalars().all():
        raise _missing(name)


def _check_not_last_admin(transaction: Transaction, doing: str, name: str) -> None:
    others = select(users.c.name).where(users.c.role == Role.ADMIN, users.c.disabled_at.is_(None), users.c.name != name)
    if transaction.connection.execute(others.limit(1)).first() is None:
        raise Conflict(f"Cannot {doing}: there would be no admin left. Make another user an admin first.")


def _missing(name: str) -> NotFound:
    return NotFound(f"There is no user '{name}'. An admin can create it.")
