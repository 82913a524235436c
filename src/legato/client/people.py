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
    """A new token, with its secret, which the server never shows again.

    Args:
        device: secret of this device after a log-in by password; send it at the next one.
    """

    device: str | None = None


class ConsoleLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link to the web console, which logs in the user who opens it, once."""

    url: str
    expires_at: float

    def __repr__(self) -> str:
        return f"ConsoleLink(url='{self.url.partition('=')[0]}=lgc_…', expires_at={self.expires_at})"


class PeopleCalls:
    """A part of `legato.Client`."""

    _line: Line

    def me(self) -> Me:
        """Return the user and role of the token."""
        return self._line.ask(Me, "GET", "/me")

    # ------------------------------------------------------------ users

    def users(self) -> Listing[User]:
        """Return the users; users who are neither admin nor viewer see only themselves."""
        return Listing(self._line.ask(Page[User], "GET", "/users").items)

    def user(self, name: str) -> User:
        """Return a user."""
        return self._line.ask(User, "GET", name_path("user", name))

    def add_user(self, name: str, role: str = "user", *, password: str | None = None) -> User:
        """Add a user. For admins.

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
        """Set your own password, or, as an admin, that of another user, and revoke all tokens of the user."""
        whose = self.me().name if user is None else user
        self._line.send("PUT", f"{name_path('user', whose)}/password", body={"password": password})

    # ------------------------------------------------------------ tokens

    def log_in(self, user: str, password: str, name: str = "login", *, device: str | None = None) -> NewToken:
        """Return a new token for a name and a password. This client continues without it.

        Args:
            user: name of the user.
            password: of the user.
            name: of the token.
            device: `NewToken.device` of an earlier log-in: the server then does not count the guesses of others.
        """
        body = {"user": user, "password": password, "name": name}
        headers = None if device is None else {_DEVICE: device}
        answer = self._line.send("POST", "/login", body=body, headers=headers, is_repeatable=False)
        return msgspec.structs.replace(self._line.read(NewToken, answer), device=answer.headers.get(_DEVICE))

    def tokens(self, user: str | None = None) -> Listing[Token]:
        """Return your tokens, without their secrets; for admins those of ``user``, or of all users."""
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
        """Add a token; only this answer has its secret.

        Args:
            name: says what the token is for.
            user: the owner. None: you.
            role: not above your own. None: that of the user.
            days: until it expires. None: the server's default.
            password: yours; required if the new token is valid longer than the log-in of this client.
        """
        said = {"name": name, "user": user, "role": role, "days": days, "password": password}
        body: dict[str, Any] = {key: value for key, value in said.items() if value is not None}
        return self._line.ask(NewToken, "POST", "/tokens", body=body, is_repeatable=False)

    def revoke_token(self, token: str) -> Token:
        """Revoke a token, by its id."""
        return self._line.ask(Token, "DELETE", name_path("token", token))

    def link_to_console(self) -> ConsoleLink:
        """Make a link to the web console. It logs the browser in as you, once, within an hour."""
        made = self._line.ask(Code, "POST", "/session/links", is_repeatable=False)
        # After '#', because browsers do not send this part to servers, which might log it.
        return ConsoleLink(url=f"{self._line.server.url}/#/welcome?code={made.code}", expires_at=made.expires_at)

    # ------------------------------------------------------------ for admins

    def audit(self, limit: int = 100) -> Listing[AuditEntry]:
        """Return the audit log, the newest entry first. For admins."""
        return Listing(self._line.ask_pages(Page[AuditEntry], "/audit", limit=limit, page_size=_PAGE))

    def config(self) -> Listing[Setting]:
        """Return the settings of the server. For admins."""
        return Listing(self._line.ask(Page[Setting], "GET", "/config").items)
