"""Routes of users, passwords and tokens. The secret of a token is shown once, in the answer that creates it."""

from __future__ import annotations

import math
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from legato.api import API, people
from legato.control.people import NewToken, Token, TokenKind, User
from legato.control.roles import Asker, Role, check_is_admin
from legato.core.errors import BadField, Forbidden, NotFound, Unauthenticated, UsageError
from legato.server.answers import Answer, Listed, responses, show_secret
from legato.server.authentication import CurrentUser, read_address
from legato.server.bodies import Login, NewPassword, NewTokenBody, NewUser, UserPatch
from legato.server.services import Here, Services
from legato.server.sessions import DEVICE_HEADER

router = APIRouter(prefix=API, tags=["people"])

_DAY_S: Final = 86400.0
_HOUR_S: Final = 3600.0


class Me(people.Me, frozen=True):
    """The user of a token; the role is the lower of the token's and the user's."""

    role: Role


@router.post("/login", openapi_extra={"security": []}, **responses(NewToken, 201, errors=(413, 415)))
async def log_in(body: Login, request: Request, here: Here) -> Response:
    """Create a token for a user name and a password. ``X-Legato-Device`` of the answer identifies the device later."""
    asker, device = await check_password(here, request, body.user, body.password)
    made = await run_in_threadpool(
        here.store.tokens.create,
        asker.name,
        body.name,
        asker,
        here.now(),
        expires_at=end_of_login(here, body.hours),
        kind=TokenKind.SESSION,
    )
    answer = show_secret(made)
    answer.headers[DEVICE_HEADER] = device
    return answer


@router.get("/me", **responses(Me))
def get_me(asker: CurrentUser) -> Response:
    """Return the user of the request's token."""
    return Answer(Me(asker.name, asker.role))


# ---------------------------------------------------------------- users


@router.get("/users", **responses(Listed[User]))
def list_users(here: Here, asker: CurrentUser) -> Response:
    """List the users whom you may see."""
    if asker.sees_only is not None:
        return Answer(Listed((here.store.accounts.get(asker.name),)))
    return Answer(Listed(here.store.accounts.list()))


@router.post("/users", **responses(User, 201, errors=(409, 413, 415)))
async def create_user(body: NewUser, here: Here, asker: CurrentUser) -> Response:
    """Create a user."""
    check_is_admin("create a user", asker)
    async with here.logins.turn(asker.name):
        made = await run_in_threadpool(
            here.store.accounts.create, body.name, Role(body.role), asker, here.now(), password=body.password
        )
    return Answer(made, 201)


@router.get("/users/{user}", **responses(User, errors=(404,)))
def get_user(user: str, here: Here, asker: CurrentUser) -> Response:
    """Return a user."""
    if asker.sees_only not in (None, user):
        raise NotFound(f"There is no user '{user}' that you may see.")
    return Answer(here.store.accounts.get(user))


@router.patch("/users/{user}", **responses(User, errors=(404, 409, 413, 415)))
def change_user(user: str, body: UserPatch, here: Here, asker: CurrentUser) -> Response:
    """Change the role of a user, or disable or enable the user."""
    role = None if body.role is None else Role(body.role)
    changed = here.store.accounts.change(user, asker, here.now(), role=role, is_disabled=body.is_disabled)
    here.authenticator.forget()
    return Answer(changed)


@router.put("/users/{user}/password", **responses(None, 204, errors=(404, 413, 415)))
async def set_password(user: str, body: NewPassword, here: Here, asker: CurrentUser) -> Response:
    """Set the password of a user, and revoke all tokens of the user."""
    async with here.logins.turn(asker.name):
        await run_in_threadpool(here.store.accounts.set_password, user, body.password, asker, here.now())
    here.authenticator.forget()
    return Response(status_code=204)


# ---------------------------------------------------------------- tokens


@router.get("/tokens", **responses(Listed[Token]))
def list_tokens(here: Here, asker: CurrentUser, user: Annotated[str | None, Query(max_length=255)] = None) -> Response:
    """List tokens, without their secrets."""
    if asker.role is not Role.ADMIN:
        if user not in (None, asker.name):
            check_is_admin(f"list the tokens of '{user}'", asker)
        user = asker.name
    return Answer(Listed(here.store.tokens.list(user)))


@router.post("/tokens", **responses(NewToken, 201, errors=(404, 409, 413, 415)))
async def create_token(body: NewTokenBody, request: Request, here: Here, asker: CurrentUser) -> Response:
    """Create a token. If you authenticate by a log-in, it may outlive the log-in only if you send your password."""
    days = body.days if "days" in body.model_fields_set else here.settings.token_days
    now, expires_at = here.now(), here.now() + check_days(here, body.name, days) * _DAY_S
    kind = TokenKind.TOKEN
    if body.password is not None:
        try:
            await check_password(here, request, asker.name, body.password)
        except Unauthenticated:
            # The request is authenticated; only this field is wrong.
            message = f"Cannot create token '{body.name}': the password of '{asker.name}' is wrong. Try again."
            raise BadField("password", message) from None
    else:
        shown = await run_in_threadpool(here.store.tokens.find, request.state.secret)
        if shown.kind is TokenKind.SESSION:
            _check_session(here, shown, body.name, expires_at)
            # A token made with the new one must not outlive the log-in either.
            kind = TokenKind.SESSION
    role = None if body.role is None else Role(body.role)
    made = await run_in_threadpool(
        here.store.tokens.create,
        body.user or asker.name,
        body.name,
        asker,
        now,
        role=role,
        expires_at=expires_at,
        kind=kind,
    )
    return show_secret(made)


def _check_session(here: Services, shown: Token, name: str, expires_at: float) -> None:
    """Raise Forbidden if a token would outlive the log-in that asks for it: an attacker could keep it."""
    ends = shown.expires_at or 0.0
    if expires_at > ends:
        raise Forbidden(
            f"Cannot create token '{name}': it would be valid longer than your present log-in, which ends in "
            f"{max(ends - here.now(), 0) / _HOUR_S:.1f} hours. Give your password too ('legato tokens add "
            "--password', or 'password' in the body), or choose fewer days."
        )


@router.delete("/tokens/{token}", **responses(Token, errors=(404,)))
def revoke_token(token: str, here: Here, asker: CurrentUser) -> Response:
    """Revoke a token."""
    revoked = here.store.tokens.revoke(token, asker, here.now())
    here.authenticator.forget()
    return Answer(revoked)


async def check_password(here: Services, request: Request, user: str, password: str) -> tuple[Asker, str]:
    """Return the user who logs in with a password, and the secret that identifies the device at its next log-in.

    Raises:
        Problem: too many attempts have failed.
        Unauthenticated: the name or the password is wrong.
    """
    attempt = await here.authenticator.begin_password(request.scope, user)
    async with here.logins.turn(read_address(request.scope), is_known=attempt.is_known):
        found = await run_in_threadpool(here.store.accounts.log_in, user, password, here.now())
    attempt.succeed()
    device = await run_in_threadpool(here.store.accounts.make_device, found.name)
    return Asker(found.name, found.role), device or ""


def end_of_login(here: Services, hours: float | None = None) -> float:
    """Return when a log-in that begins now ends, in seconds since 1970.

    Args:
        here: the server.
        hours: requested length. The log-in is not longer than the operator allows. None: as long as that.
    """
    hours = min(hours or math.inf, here.settings.login_hours, here.settings.max_token_days * _DAY_S / _HOUR_S)
    return here.now() + hours * _HOUR_S


def check_days(here: Services, name: str, days: float | None) -> float:
    """Return the number of days for which a token is valid.

    Raises:
        UsageError: it is more than the operator allows.
    """
    most = here.settings.max_token_days
    if days is None or days > most:
        asked = "no end" if days is None else f"days={days:g}"
        raise UsageError(f"Cannot create token '{name}': {asked} is above max_token_days={most:g}. Choose fewer.")
    return days
