"""Limits failed log-ins: per account and address, per account, per address, and per known device.

One guesser at one address uses up what that address has for that account, and thirty addresses use up what the account
has. Neither keeps its owner out: a device that has logged in as this user before (it shows a secret that it was given
then) has attempts of its own, and so has an address from which this user has logged in. Tokens and links cannot be
guessed, so a right one is taken however many were wrong, up to the bound on all wrong secrets of an address.

Hashes nothing and reads no clock.
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
    """Counts attempts to log in, for any number of threads but the event loop's alone.

    Args:
        per_minute: attempts of one address for one account; an account has three times as many from all addresses, an
            address ten times as many for all accounts.
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
        """Count an attempt of an address, before it is known for whom.

        Returns:
            None: it may continue. Else the seconds until another one may; then only known devices and secrets continue.
        """
        return self._addresses.take(address, now)

    def is_known(self, address: str, user: str) -> bool:
        """Return whether this user has logged in from this address not long ago."""
        return _pair(address, user) in self._known

    def begin_password(
        self, address: str, user: str, now: float, *, wait_s: float | None, device: str | None
    ) -> Attempt:
        """Count an attempt with a password, before the password is checked.

        Args:
            address: of who tries.
            user: as which.
            now: seconds since 1970.
            wait_s: what `begin` has returned.
            device: that is known for this user. None: none is.

        Raises:
            Problem: there were too many.
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
            # Refused without a look at the password: this costs neither the address nor the account an attempt.
            attempt.give_back()
            check_wait(attempt.wait_s)
        return msgspec.structs.replace(attempt, is_known=is_known, succeeded=lambda: self._remember(pair))

    def begin_secret(self, address: str, now: float, *, wait_s: float | None) -> Attempt:
        """Count an attempt with a token or a code. A right one is taken however many were wrong; see `Attempt.fail`."""
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
        """Remember from where a user has logged in."""
        self._known[pair] = None
        self._known.move_to_end(pair)
        if len(self._known) > _MAX_KNOWN:
            self._known.popitem(last=False)


class Attempt(msgspec.Struct, frozen=True):
    """One attempt that was counted.

    Args:
        taken: what it was counted by.
        wait_s: seconds until another one may be made, if this one came too early.
        is_known: it comes from a device or an address from which the user has logged in before.
        succeeded: called when it has.
    """

    taken: tuple[tuple[Limiter, str], ...]
    wait_s: float | None
    is_known: bool = False
    succeeded: Callable[[], None] = lambda: None

    def give_back(self) -> None:
        """Count it no more."""
        for limiter, key in self.taken:
            limiter.give_back(key)

    def succeed(self) -> None:
        """End one that was right; it does not count."""
        self.give_back()
        self.succeeded()

    def fail(self) -> None:
        """End one that was wrong.

        Raises:
            Problem: it came too early.
        """
        check_wait(self.wait_s)


def check_wait(wait_s: float | None) -> None:
    """Raise Problem if an attempt came too early and no way in was found."""
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
