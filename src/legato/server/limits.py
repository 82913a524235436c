"""Limits the rate and the number of concurrent requests of each user or address."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Final

_MAX_KEYS: Final = 10_000


class Limiter:
    """One bucket per key, for any number of threads.

    Args:
        rate_per_s: tokens per second that are added to a bucket.
        burst: number of tokens in a full bucket.
    """

    def __init__(self, rate_per_s: float, burst: float) -> None:
        self._rate_per_s = rate_per_s
        self._burst = burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, key: str, now: float) -> float | None:
        """Take one token out of the bucket of a key.

        Returns:
            None if there was one. Otherwise the seconds until there will be one; nothing was taken.

        >>> limiter = Limiter(rate_per_s=0.5, burst=2)
        >>> [limiter.take("a", now) for now in (0.0, 0.0, 0.0, 1.0, 2.0)]
        [None, None, 2.0, 1.0, None]
        """
        with self._lock:
            left, at = self._buckets.pop(key, (self._burst, now))
            left = min(self._burst, left + max(now - at, 0.0) * self._rate_per_s)
            is_there = left >= 1
            self._buckets[key] = (left - is_there, now)
            if len(self._buckets) > _MAX_KEYS:
                # Drops the key that was not used for longest, because its bucket is the fullest.
                self._buckets.popitem(last=False)
            return None if is_there else (1 - left) / self._rate_per_s

    def give_back(self, key: str) -> None:
        """Put a token back for a request that does not count."""
        with self._lock:
            if key in self._buckets:
                left, at = self._buckets[key]
                self._buckets[key] = (min(self._burst, left + 1), at)


class ConcurrencyLimit:
    """Limits concurrent work for each key. Only for the thread of the event loop.

    Args:
        most: maximum for one key.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._num: Counter[str] = Counter()

    def begin(self, key: str) -> Callable[[], None] | None:
        """Count one more, and return the function that ends the count. It may be called repeatedly. None: at the limit.

        >>> at_once = ConcurrencyLimit(1)
        >>> end = at_once.begin("a")
        >>> at_once.begin("a") is None, at_once.begin("b") is None
        (True, False)
        >>> end()
        >>> end()
        >>> at_once.begin("a") is None
        False
        """
        if self._num[key] >= self._most:
            return None
        self._num[key] += 1
        counted = [key]

        def end() -> None:
            if counted:
                counted.clear()
                self._num[key] -= 1
                if not self._num[key]:
                    del self._num[key]

        return end
