"""Limits failed log-ins: per account and address, per account, per address, and per known device.

An attacker at one address can use up the attempts of that address for an account, and attackers at several addresses
can use up all attempts for the account. Neither locks the owner out: a device that has logged in as this user before,
which it proves by a secret, has separate attempts, and so has an address from which this user has logged in. Tokens and
links cannot be guessed, so a valid one is accepted after any number of wrong ones, up to the limit on all wrong secrets
of an address.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from legato.server.limits import Limiter
from legato.server.problems import Problem, too_many

_OF_ACCOUNT: Final = 3
_OF_ADDRESS: Final = 10
_MAX_KNOWN: Final = 10_000


class LoginLimits:
    """Counts failed attempts to log in. Only for the thread of the event loop.

    Args:
        per_minute: attempts per minute of one address for one account. An account has three times as many from all
            addresses, and an address has ten times as many for all accounts.
    """

    def __init__(self, per_minute: float) -> None:
        def limit(factor: int) -> Limiter:
            return Limiter(per_minute * factor / 60, max(per_minute * factor, 1))

        self._pairs = limit(1)
        self._devices = limit(1)
        self._accounts = limit(_OF_ACCOUNT)
        self._addresses = limit(_OF_ADDRESS)
        self._known: OrderedDict[str, None] = OrderedDict()

    def begin(self, address: str, now: float) -> float | None:
        """Count an attempt of an address, before its body shows the account.

        Returns:
            None: the attempt may continue. Otherwise the number of seconds until the address has an attempt again;
            until then only known devices and addresses, tokens and codes may continue.
        """
        return self._addresses.take(address, now)

    def is_known(self, address: str, user: str) -> bool:
        """Return whether this user has logged in from this address before. Only the last 10,000 pairs are kept."""
        return _pair(address, user) in self._known

    def begin_password(
        self, address: str, user: str, now: float, *, wait_s: float | None, device: str | None
    ) -> Attempt:
        """Count an attempt with a password, before the password is checked.

        Args:
            address: address of the client.
            user: name of the account.
            now: seconds since 1970.
            wait_s: the result of `begin` for this attempt.
            device: secret of a device that has logged in as this user before. None: the device is unknown.

        Raises:
            Problem: too many attempts have failed.
        """
        pair = _pair(address, user)
        is_known = device is not None or pair in self._known
        if is_known:
            wanted = [(self._devices, pair if device is None else f"{user}\0{device}")]
        else:
            check_wait(wait_s)
            wanted = [(self._pairs, pair), (self._accounts, user)]
        attempt = self._take(address, now, wait_s, wanted)
        if attempt.wait_s is not None:
            # The password is not checked, so the attempt does not count for the address or the account.
            attempt.give_back()
            check_wait(attempt.wait_s)
        return msgspec.structs.replace(attempt, is_known=is_known, succeeded=lambda: self._remember(pair))

    def begin_secret(self, address: str, now: float, *, wait_s: float | None) -> Attempt:
        """Count an attempt with a token or a code. The limit is enforced only if it was wrong, by `Attempt.fail`."""
        return self._take(address, now, wait_s, [(self._pairs, _pair(address, ""))])

    def _take(self, address: str, now: float, wait_s: float | None, wanted: Sequence[tuple[Limiter, str]]) -> Attempt:
        taken = [(self._addresses, address)] if wait_s is None else []
        for limiter, key in wanted:
            wait_s = limiter.take(key, now)
            if wait_s is not None:
                break
            taken.append((limiter, key))
        return Attempt(tuple(taken), wait_s)

    def _remember(self, pair: str) -> None:
        """Remember that a user has logged in from an address."""
        self._known[pair] = None
        self._known.move_to_end(pair)
        if len(self._known) > _MAX_KNOWN:
            self._known.popitem(last=False)


class Attempt(msgspec.Struct, frozen=True):
    """One attempt that was counted.

    Args:
        taken: the limiters that have counted the attempt, with their keys.
        wait_s: seconds until the next attempt, if this one exceeds a limit. None: it does not.
        is_known: it comes from a device or an address from which the user has logged in before.
        succeeded: called when the attempt has succeeded.
    """

    taken: tuple[tuple[Limiter, str], ...]
    wait_s: float | None
    is_known: bool = False
    succeeded: Callable[[], None] = lambda: None

    def give_back(self) -> None:
        """Undo the count of this attempt."""
        for limiter, key in self.taken:
            limiter.give_back(key)

    def succeed(self) -> None:
        """End an attempt that was right. It does not count."""
        self.give_back()
        self.succeeded()

    def fail(self) -> None:
        """End an attempt that was wrong.

        Raises:
            Problem: the attempt exceeds a limit.
        """
        check_wait(self.wait_s)


def check_wait(wait_s: float | None) -> None:
    """Raise Problem if an attempt exceeds a limit. ``wait_s``: seconds until the next attempt; None: it does not."""
    if wait_s is not None:
        raise _too_many_logins(wait_s)


def _pair(address: str, user: str) -> str:
    return f"{address}\0{user}"


def _too_many_logins(wait_s: float) -> Problem:
    return too_many(
        "Too many attempts to log in have failed. Wait before the next one, or log in from a device from which you "
        "have logged in before, by a token, or by a link of 'legato console'.",
        wait_s,
    )
