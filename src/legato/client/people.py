"""Requests about users: users, tokens, the audit log, settings. Hashes nothing."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from legato.api.lists import Page
from legato.api.people import AuditEntry, Code, Me, Secret, Setting, Token, User
from legato.client.connection import Line
from legato.client.lists import Listing
from legato.client.paths import name_path

_PAGE: Final = 1000
_DEVICE: Final = "X-Legato-Device"


class NewToken(Secret, frozen=True):
    """A token at the one moment when its secret is known.

    Args:
        device: of a log-in by password: what this device shows at the next one, so that the server knows it again.
    """

    device: str | None = None


class ConsoleLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link to the web console that logs its opener in, once."""

    url: str
    expires_at: float

    def __repr__(self) -> str:
        return f"ConsoleLink(url='{self.url.partition('=')[0]}=lgc_…', expires_at={self.expires_at})"


class PeopleCalls:
    """A part of `legato.Client`."""

    _line: Line

    def me(self) -> Me:
        """Return who the token says that you are."""
        return self._line.ask(Me, "GET", "/me")

    # ------------------------------------------------------------ users

    def users(self) -> Listing[User]:
        """Return the users; those who are no admin and no viewer see themselves."""
        return Listing(self._line.ask(Page[User], "GET", "/users").items)

    def user(self, name: str) -> User:
        """Return a user."""
        return self._line.ask(User, "GET", name_path("user", name))

    def add_user(self, name: str, role: str = "user", *, password: str | None = None) -> User:
        """Make a user. For admins.

        Args:
            name: of the user.
            role: ``admin``, ``user`` or ``viewer``.
            password: None: the user needs a token from you.
        """
        body = {"name": name, "role": role, "password": password}
        return self._line.ask(User, "POST", "/users", body=body, is_repeatable=False)

    def change_user(self, name: str, *, role: str | None = None, is_disabled: bool | None = None) -> User:
        """Change what a user may do. For admins."""
        said = {"role": role, "is_disabled": is_disabled}
        body = {key: value for key, value in said.items() if value is not None}
        return self._line.ask(User, "PATCH", name_path("user", name), body=body)

    def set_password(self, password: str, user: str | None = None) -> None:
        """Set a password: your own, or as an admin that of another. All tokens of the user end with it."""
        whose = self.me().name if user is None else user
        self._line.send("PUT", f"{name_path('user', whose)}/password", body={"password": password})

    # ------------------------------------------------------------ tokens

    def log_in(self, user: str, password: str, name: str = "login", *, device: str | None = None) -> NewToken:
        """Return a new token for a name and a password. This client continues without it.

        Args:
            user: who logs in.
            password: of the user.
            name: of the token.
            device: `NewToken.device` of an earlier log-in: the server then does not count the guesses of others.
        """
        body = {"user": user, "password": password, "name": name}
        headers = None if device is None else {_DEVICE: device}
        answer = self._line.send("POST", "/login", body=body, headers=headers, is_repeatable=False)
        return msgspec.structs.replace(self._line.read(NewToken, answer), device=answer.headers.get(_DEVICE))

    def tokens(self, user: str | None = None) -> Listing[Token]:
        """Return your tokens, without their secrets; of an admin: those of ``user``, or of all users."""
        return Listing(self._line.ask(Page[Token], "GET", "/tokens", params={"user": user}).items)

    def add_token(
        self,
        name: str,
        *,
        user: str | None = None,
        role: str | None = None,
        days: float | None = None,
        password: str | None = None,
    ) -> NewToken:
        """Make a token; its secret is shown this once.

        Args:
            name: says what the token is for.
            user: whose it is. None: yours.
            role: not above your own. None: that of the user.
            days: until it expires. None: as the server has it.
            password: your own; needed if this client's token comes from a log-in, and the new one is to outlive it.
        """
        said = {"name": name, "user": user, "role": role, "days": days, "password": password}
        body: dict[str, Any] = {key: value for key, value in said.items() if value is not None}
        return self._line.ask(NewToken, "POST", "/tokens", body=body, is_repeatable=False)

    def revoke_token(self, token: str) -> Token:
        """End a token, by its id."""
        return self._line.ask(Token, "DELETE", name_path("token", token))

    def link_to_console(self) -> ConsoleLink:
        """Make a link to the web console. It logs the browser in as you, once, within an hour."""
        made = self._line.ask(Code, "POST", "/session/links", is_repeatable=False)
        # Behind '#': browsers send it to no server, so it is in no log.
        return ConsoleLink(url=f"{self._line.server.url}/#/welcome?code={made.code}", expires_at=made.expires_at)

    # ------------------------------------------------------------ for admins

    def audit(self, limit: int = 100) -> Listing[AuditEntry]:
        """Return who did what, the newest first. For admins."""
        found: Listing[AuditEntry] = Listing()
        after: str | int | None = None
        while len(found) < limit:
            params = {"limit": min(limit - len(found), _PAGE), "after": after}
            page = self._line.ask(Page[AuditEntry], "GET", "/audit", params=params)
            found.extend(page.items)
            after = page.after
            if after is None:
                break
        return found

    def config(self) -> Listing[Setting]:
        """Return the settings with which the server runs. For admins."""
        return Listing(self._line.ask(Page[Setting], "GET", "/config").items)
