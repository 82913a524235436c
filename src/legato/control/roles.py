"""Roles of users, and the actions that each role allows. Knows no passwords and no tokens."""

from __future__ import annotations

import enum
from collections.abc import Collection
from typing import Final

import msgspec

from legato.core.errors import Forbidden


class Role(enum.StrEnum):
    """What a user, or one of its tokens, may do."""

    ADMIN = "admin"  # everything
    USER = "user"  # submits; sees and changes own jobs; sees jobs of own queues
    VIEWER = "viewer"  # sees everything, changes nothing


_ORDER: Final = (Role.VIEWER, Role.USER, Role.ADMIN)


class Asker(msgspec.Struct, frozen=True):
    """The user who makes a request.

    Args:
        name: of the user.
        role: of the request's token; never higher than the user's.
    """

    name: str
    role: Role

    @property
    def sees_only(self) -> str | None:
        """This user's name if the user sees only some jobs and queues; None: the user sees all."""
        return self.name if self.role is Role.USER else None


class Submitter(Asker, frozen=True):
    """An asker whose role `check_may_submit` has checked. Functions that take one do not check it again."""


def lower_role(one: Role, other: Role) -> Role:
    """Return the lower of two roles.

    >>> str(lower_role(Role.ADMIN, Role.VIEWER))
    'viewer'
    """
    return min(one, other, key=_ORDER.index)


def check_may_submit(asker: Asker) -> Submitter:
    """Check that the asker may submit jobs, and return the asker as a `Submitter`.

    Raises:
        Forbidden: the asker may not.
    """
    if asker.role is Role.VIEWER:
        raise Forbidden(
            f"Cannot submit a job as '{asker.name}': the role is 'viewer', which cannot change anything. "
            "Use a token of role 'user', or ask an admin for one."
        )
    return Submitter(asker.name, asker.role)


def check_may_change(verb: str, name: str, owner: str, asker: Asker) -> None:
    """Raise Forbidden unless the asker may ``verb`` the job ``name`` of ``owner``."""
    if asker.role is Role.VIEWER:
        raise Forbidden(
            f"Cannot {verb} job '{name}': the role of '{asker.name}' is 'viewer', which cannot change anything. "
            "Use a token of role 'user', or ask an admin for one."
        )
    if asker.role is Role.USER and asker.name != owner:
        raise Forbidden(
            f"Cannot {verb} job '{name}': it belongs to '{owner}', not to '{asker.name}'. Ask '{owner}' or an admin."
        )


def check_may_act(doing: str, asker: Asker, whose: Collection[str] | None = None) -> None:
    """Raise Forbidden unless the asker may make a change. Admins may make all changes.

    Args:
        doing: begins the message: ``make project 'digits'``.
        asker: the user who sends the request, with the role of the token.
        whose: users who may. None: all except viewers.
    """
    if asker.role is Role.VIEWER:
        raise Forbidden(
            f"Cannot {doing}: the role of '{asker.name}' is 'viewer', which cannot change anything. Use a token of "
            "role 'user', or ask an admin for one."
        )
    if whose is not None and asker.role is Role.USER and asker.name not in whose:
        names = ", ".join(f"'{name}'" for name in dict.fromkeys(whose))
        raise Forbidden(f"Cannot {doing} as '{asker.name}': only {names} and admins may. Ask one of them.")


def check_is_admin(doing: str, asker: Asker) -> None:
    """Raise Forbidden unless the asker is an admin. ``doing`` begins the message: ``create a user``."""
    if asker.role is not Role.ADMIN:
        raise Forbidden(f"Cannot {doing} as '{asker.name}': the role is '{asker.role}', and only admins may. Ask one.")
