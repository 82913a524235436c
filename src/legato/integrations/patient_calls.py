"""Calls a tracker in a thread of its own, and waits for a short time only: a tracker that is away must not hold a step.

Calls are made one after the other, in their order. While the tracker is away, they wait in memory.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from legato.integrations.kept_files import FilesTooLarge

_MAX_WAITING: Final = 10_000
_MAX_WAITING_BYTES: Final = 2**30

_T = TypeVar("_T")


class TooSlow(Exception):
    """The tracker does not answer in time."""


class KeptCall(NamedTuple):
    """A call that does not depend on what the program does meanwhile.

    Args:
        do: makes it.
        num_bytes: of the memory, or of the disk, that it takes.
    """

    do: Callable[[], object]
    num_bytes: int


Keep: TypeAlias = Callable[[int], KeptCall]
"""Makes a `KeptCall` of at most so many bytes; raises `FilesTooLarge` if it would have more."""


class _Call(Generic[_T]):
    def __init__(self, do: Callable[[], _T], num_bytes: int = 0) -> None:
        self._do: Callable[[], Any] = do
        self._answer: Any = None
        self._again: Callable[[], object] | None = None
        self._lock = threading.Lock()
        self.num_bytes = num_bytes
        self.error: BaseException | None = None
        self.ended = threading.Event()

    def make(self) -> None:
        self._try(self._do)
        with self._lock:
            again = self._again
            if again is None:
                self.ended.set()
                return
        self._try(again)
        self.ended.set()

    def repeat(self, kept: KeptCall) -> None:
        """Have this call made once more, unless it has ended; then the second outcome counts."""
        with self._lock:
            if not self.ended.is_set():
                self._again, self.num_bytes = kept.do, kept.num_bytes

    def _try(self, do: Callable[[], Any]) -> None:
        self.error = None
        try:
            self._answer = do()
        except BaseException as error:  # noqa: BLE001 -- raised again where the program calls
            self.error = error

    def take(self) -> _T:
        if self.error is not None:
            raise self.error
        return self._answer  # type: ignore[no-any-return]


class PatientCalls:
    """Makes calls of one worker; for use by one thread.

    At most 10,000 calls wait, and at most 1 GiB of what they record. Later ones are left out until there is room again.

    Args:
        name: of the tracker.
        warn: gets a sentence when the tracker is away for the first time, or when calls are left out.
        report: gets the error of a call that ended after `send` had stopped waiting for it.
    """

    def __init__(self, name: str, warn: Callable[[str], object], report: Callable[[BaseException], object]) -> None:
        self._name = name
        self._warn = warn
        self._report = report
        self._queue: queue.SimpleQueue[_Call[Any]] = queue.SimpleQueue()
        self._waiting: list[_Call[Any]] = []
        self._num_left_out = 0
        self._thread: threading.Thread | None = None
        self._has_warned = False

    @property
    def num_lost(self) -> int:
        """How many calls would be lost now: those that wait, and those that were left out and not reported yet."""
        return len(self._waiting) + self._num_left_out

    def ask(self, do: Callable[[], _T], patience_s: float) -> _T:
        """Make a call whose answer is needed.

        Raises:
            TooSlow: there is none after so many seconds.
            Exception: what the call raises.
        """
        call = self._begin(_Call(do))
        if not call.ended.wait(patience_s):
            raise TooSlow(f"no answer within {patience_s:g} s")
        return call.take()

    def send(self, do: Callable[[], object], patience_s: float, keep: Keep | None = None) -> None:
        """Make a call that may end later: wait until it ends, for so many seconds, or not at all if earlier ones wait.

        Args:
            do: makes the call.
            patience_s: in seconds.
            keep: for a call that reads what the program may change or remove; called if this call has to wait.

        Raises:
            Exception: what this call, or ``keep``, raises.
        """
        self._take_ended()
        if self._waiting:
            self._put_behind(do, keep)
            return
        call = self._begin(_Call(do))
        if call.ended.wait(patience_s):
            call.take()
            return
        self._waiting.append(call)
        if not self._has_warned:
            self._has_warned = True
            self._warn(
                f"no answer within {patience_s:g} s. Training goes on, and calls wait in the memory of this worker "
                f"until {self._name} answers."
            )
        if keep is not None:
            try:
                call.repeat(keep(_MAX_WAITING_BYTES))
            except FilesTooLarge:
                self._warn("the files of this call are too large for a copy: do not change them until they are stored.")

    def settle(self, patience_s: float) -> None:
        """Wait until all calls have ended, for so many seconds; `num_lost` says how many have not."""
        if self._waiting:
            self._begin(_Call(lambda: None)).ended.wait(patience_s)
        self._take_ended()

    def _put_behind(self, do: Callable[[], object], keep: Keep | None) -> None:
        if len(self._waiting) >= _MAX_WAITING:
            self._leave_out(f"{_MAX_WAITING:,} calls")
            return
        kept = KeptCall(do, 0)
        if keep is not None:
            try:
                kept = keep(_MAX_WAITING_BYTES - sum(call.num_bytes for call in self._waiting))
            except FilesTooLarge:
                self._leave_out(f"{_MAX_WAITING_BYTES / 2**20:,.0f} MiB of files")
                return
        self._waiting.append(self._begin(_Call(kept.do, kept.num_bytes)))

    def _leave_out(self, what: str) -> None:
        if self._num_left_out == 0:
            self._warn(f"{what} wait. Calls for which there is no room are left out until {self._name} answers.")
        self._num_left_out += 1

    def _take_ended(self) -> None:
        """Report what has become of calls since the program stopped waiting for them."""
        num_ended = next((place for place, call in enumerate(self._waiting) if not call.ended.is_set()), None)
        ended = self._waiting[:num_ended]
        del self._waiting[:num_ended]
        if ended and not self._waiting and self._num_left_out:
            self._warn(f"it answers again. Meanwhile {self._num_left_out} calls were left out.")
            self._num_left_out = 0
        for call in ended:
            if call.error is not None:
                self._report(call.error)

    def _begin(self, call: _Call[_T]) -> _Call[_T]:
        self._queue.put(call)
        if self._thread is None:
            # The end of the program does not wait for it.
            self._thread = threading.Thread(target=self._make_calls, name="legato-tracker", daemon=True)
            self._thread.start()
        return call

    def _make_calls(self) -> None:
        while True:
            self._queue.get().make()
