"""Authenticates requests by their token, and limits their rate. Routes and the store check permissions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Final

import msgspec
from fastapi import Depends, Request
from starlette.types import Scope

from legato.control.credentials import hash_secret
from legato.control.roles import Asker
from legato.control.settings import Settings
from legato.control.store import CheckedToken, Store
from legato.core.errors import Unauthenticated
from legato.server.limits import ConcurrencyLimit, Limiter
from legato.server.login_limits import Attempt, LoginLimits, check_wait
from legato.server.problems import too_many
from legato.server.sessions import read_device
from legato.server.shared_answers import Batches
from legato.server.token_cache import TokenCache, ValidTokens

_STREAM_AGAIN_S: Final = 5
_AGAIN_S: Final = 1


class Authenticator:
    """Finds the user of a request by its token, and limits requests.

    Args:
        store: the store with the tokens.
        settings: with the limits of requests.
        now: seconds since 1970.
    """

    def __init__(self, store: Store, settings: Settings, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now
        # In batches: after an event, hundreds of consoles send requests at the same moment, each with its own token.
        self._checks = Batches[str, CheckedToken](lambda secrets: store.tokens.check_each(secrets, now()))
        # Apart from the checks, which must not wait for other writers.
        self._uses = Batches(self._note_uses)
        self._recognized = TokenCache[Asker]()
        self._unrecognized = TokenCache[str]()
        self._valid_tokens = ValidTokens()
        self._of_user = Limiter(settings.requests_per_s, settings.requests_burst)
        self._refused = Limiter(settings.requests_per_s, settings.requests_burst)
        self._max_streams = settings.max_streams
        self._streams = ConcurrencyLimit(settings.max_streams)
        self._max_of_address = settings.max_requests_of_address
        self._max_of_user = settings.max_requests_of_user
        self._at_address = ConcurrencyLimit(settings.max_requests_of_address)
        self._at_user = ConcurrencyLimit(settings.max_requests_of_user)
        self._logins = LoginLimits(settings.logins_per_minute)

    async def recognize(self, secret: str, address: str) -> Asker:
        """Return the asker that a token belongs to.

        Raises:
            Unauthenticated: the token is not valid.
            Problem: the user or address sends too many requests.
        """
        key, now = hash_secret(secret), self._now()
        known = self._recognized.find(key, now)
        if known is not None:
            self._count(known.name, now)
            return known
        reason = self._unrecognized.find(key, now)
        if reason is not None:
            raise Unauthenticated(reason)
        begun, begun_refusal = self._recognized.begin(), self._unrecognized.begin()
        try:
            # Checked before the store is read, so that invented tokens cause no queries.
            with contextlib.nullcontext() if self._valid_tokens.has(key) else self._guess(address, now):
                asker = await self._verify(secret)
        except Unauthenticated as error:
            self._unrecognized.keep(key, str(error), now, begun_refusal)
            self._valid_tokens.forget(key)
            raise
        self._valid_tokens.add(key)
        self._recognized.keep(key, asker, now, begun)
        self._count(asker.name, now)
        return asker

    async def recognize_agent(self, secret: str, address: str) -> str:
        """Return the machine of the agent that has a secret.

        Jobs send from the address of their machine, so their invalid secrets do not stop an agent that was recognized.

        Raises:
            Unauthenticated: no agent has it.
            Problem: the address has sent too many invalid secrets.
        """
        key = hash_secret(secret)
        try:
            with contextlib.nullcontext() if self._valid_tokens.has(key) else self._guess(address, self._now()):
                node = await asyncio.to_thread(self._store.agents.verify, secret)
        except Unauthenticated:
            self._valid_tokens.forget(key)
            raise
        self._valid_tokens.add(key)
        return node

    async def join(self, token: str, node: str, identity: str, address: str) -> str:
        """Let a machine join the pool; see `legato.control.store.agents.Agents.join`.

        Raises:
            Problem: the address has sent too many invalid secrets.
        """
        now = self._now()
        with self._guess(address, now):
            return await asyncio.to_thread(self._store.agents.join, token, node, identity, now)

    @contextlib.contextmanager
    def _guess(self, address: str, now: float) -> Iterator[None]:
        """Count a possibly invented secret before the block asks the store for it. A valid one does not count.

        Raises:
            Problem: the address has sent too many invalid secrets.
        """
        wait_s = self._refused.take(address, now)
        if wait_s is not None:
            raise too_many(
                "This address has sent too many invalid tokens. Wait, and log in again if your token has expired.",
                wait_s,
            )
        try:
            yield
        except Unauthenticated:
            raise
        except Exception:
            # The store did not say that the secret is wrong. A client that disconnects meanwhile has caused a query,
            # and counts.
            self._refused.give_back(address)
            raise
        self._refused.give_back(address)

    def _count(self, user: str, now: float) -> None:
        # Counted by user, not by token, because a user may have many tokens.
        wait_s = self._of_user.take(user, now)
        if wait_s is not None:
            raise too_many("You send requests faster than one user may. Wait, and request more items at once.", wait_s)

    def begin_request(self, address: str) -> Callable[[], None]:
        """Count a request of an address until its user is known. Return the function that ends the count.

        Raises:
            Problem: the address has the maximum number of unauthenticated requests.
        """
        end = self._at_address.begin(address)
        if end is None:
            raise too_many(
                f"This address has {self._max_of_address} unauthenticated requests open. Wait until some have ended.",
                _AGAIN_S,
            )
        return end

    def begin_work(self, user: str) -> Callable[[], None]:
        """Count a request of a user while it is answered. Return the function that ends the count.

        Raises:
            Problem: the user has the maximum number of open requests.
        """
        end = self._at_user.begin(user)
        if end is None:
            raise too_many(f"'{user}' has {self._max_of_user} requests open. Wait until some have ended.", _AGAIN_S)
        return end

    def forget(self) -> None:
        """Forget cached tokens, because a token was revoked or a user's rights have changed."""
        self._recognized.forget()
        self._unrecognized.forget()

    async def recognize_again(self, secret: str) -> Asker | None:
        """Return the present asker of a token that was valid when a stream began; None: it is no longer valid."""
        try:
            return await self._verify(secret)
        except Unauthenticated:
            self.forget()
            return None

    async def _verify(self, secret: str) -> Asker:
        """Return the asker that a token belongs to, from the store: as `Tokens.verify`, but with others at once."""
        found = await self._checks.get(secret)
        if found.asker is None:
            raise Unauthenticated(found.reason)
        if found.is_use_due:
            await self._uses.get(secret)
        return found.asker

    def _note_uses(self, secrets: Sequence[str]) -> dict[str, None]:
        self._store.tokens.note_use(secrets, self._now())
        return dict.fromkeys(secrets)

    def begin_stream(self, user: str) -> Callable[[], None]:
        """Count a stream of a user, and return the function to call at its end.

        Raises:
            Problem: the user has the maximum number of streams.
        """
        end = self._streams.begin(user)
        if end is None:
            raise too_many(
                f"'{user}' follows {self._max_streams} streams at once, and may follow no more. End some of them, or "
                "let the operator raise max_streams.",
                _STREAM_AGAIN_S,
            )
        return end

    def begin_login(self, scope: Scope) -> None:
        """Count an attempt to log in, before its body is read."""
        scope["state"]["login_wait_s"] = self._logins.begin(read_address(scope), self._now())

    def check_login(self, scope: Scope, content: bytes) -> None:
        """Check an attempt beyond the limit of its address. It needs a known device or address, a token or a code.

        Args:
            scope: of the request.
            content: the body of the request.

        Raises:
            Problem: the attempt has no known device or address, no token and no code.
        """
        wait_s = scope["state"]["login_wait_s"]
        if wait_s is None or read_device(scope) is not None:
            return
        try:
            body = msgspec.json.decode(content)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            body = None
        if isinstance(body, dict):
            user = body.get("user")
            is_known = isinstance(user, str) and self._logins.is_known(read_address(scope), user)
            if is_known or "token" in body or "code" in body:
                return
        check_wait(wait_s)

    async def begin_password(self, scope: Scope, user: str) -> Attempt:
        """Count an attempt to log in with a password, before that is checked.

        Raises:
            Problem: too many attempts have failed.
        """
        if "login_wait_s" not in scope["state"]:  # a password beside a token: no attempt was counted yet
            self.begin_login(scope)
        device = read_device(scope)
        if device is not None and not await asyncio.to_thread(self._store.accounts.is_device, user, device):
            device = None
        return self._logins.begin_password(
            read_address(scope), user, self._now(), wait_s=scope["state"]["login_wait_s"], device=device
        )

    @contextlib.contextmanager
    def secret_login(self, scope: Scope) -> Iterator[None]:
        """Count an attempt to log in with a secret that cannot be guessed, if the block fails.

        Raises:
            Problem: the secret was wrong after too many wrong ones, or the address sends too many wrong secrets.
        """
        address, now = read_address(scope), self._now()
        attempt: Attempt | None = None
        try:
            with self._guess(address, now):
                attempt = self._logins.begin_secret(address, now, wait_s=scope["state"]["login_wait_s"])
                yield
        except Unauthenticated:
            # Outside of the 'with' block, which would not count the wrong secret if 'fail' raised Problem in it.
            if attempt is not None:
                attempt.fail()
            raise
        attempt.succeed()


def read_address(scope: Scope) -> str:
    """Return the address that a request came from."""
    client: Any = scope.get("client")
    return str(client[0]) if client else "unknown"


async def _read_asker(request: Request) -> Asker:
    state: Any = request.state
    asker: Asker = state.asker
    return asker


CurrentUser = Annotated[Asker, Depends(_read_asker)]
"""The type of a route's parameter through which it gets the user of the request, as the middleware found it."""
