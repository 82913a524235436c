"""Asks NVML in threads that may stay behind: a driver of NVIDIA can hang, and then the caller goes on without it."""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

_T = TypeVar("_T")


class NvmlAbsent(Exception):
    """There is no ``nvidia-ml-py``, no driver of NVIDIA, or its library is not found."""


class NvmlSilent(Exception):
    """NVML does not answer in time.

    Attributes:
        is_news: this question is the first one without an answer.
    """

    def __init__(self, why: str, *, is_news: bool) -> None:
        super().__init__(why)
        self.is_news = is_news


class _Asking(threading.Thread, Generic[_T]):
    """One question. The end of this process does not wait for it."""

    def __init__(self, question: Callable[[Any], _T]) -> None:
        super().__init__(name="nvml-question", daemon=True)
        self._question = question
        self._answer: list[_T] = []
        self._error: BaseException | None = None
        self.is_late = False

    def run(self) -> None:
        try:
            nvml = _open()
            try:
                self._answer.append(self._question(nvml))
            finally:
                nvml.nvmlShutdown()
        except BaseException as error:  # noqa: BLE001 -- raised again where the question was asked
            self._error = error

    def take(self) -> _T:
        if self._error is not None:
            raise self._error
        return self._answer[0]


def _open() -> Any:
    """Open NVML each time: a driver can be loaded again meanwhile, or fail for a while."""
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError as error:
        raise NvmlAbsent(str(error)) from error
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise NvmlAbsent(str(error)) from error
    return nvml


class Nvml:
    """Asks one question at a time. Any thread may call it, and no call takes longer than it may."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asking: _Asking[Any] | None = None

    def ask(self, question: Callable[[Any], _T], patience_s: float) -> _T:
        """Return the answer of NVML.

        Args:
            question: gets the module of NVML, opened; called in another thread.
            patience_s: how long to wait, in seconds, also for a question of another thread; not at all if an earlier
                question had no answer in its time, and still waits.

        Raises:
            NvmlAbsent: NVML cannot be opened.
            NvmlSilent: there is no answer in time.
            Exception: what the question raises.
        """
        deadline = time.monotonic() + patience_s
        while (asking := self._begin(question)) is None:
            earlier = self._asking
            if earlier is not None:
                if not earlier.is_late:
                    earlier.join(max(deadline - time.monotonic(), 0.0))
                if earlier.is_alive():
                    raise NvmlSilent("an earlier question still waits for an answer", is_news=False)
        # Not under the lock: another thread may not want to wait for so long.
        asking.join(max(deadline - time.monotonic(), 0.0))
        if asking.is_alive():
            asking.is_late = True
            raise NvmlSilent(f"no answer within {patience_s:g} s", is_news=True)
        return asking.take()

    def _begin(self, question: Callable[[Any], _T]) -> _Asking[_T] | None:
        """Ask a question, unless an earlier one still waits."""
        with self._lock:
            if self._asking is not None and self._asking.is_alive():
                return None
            asking = _Asking(question)
            self._asking = asking
            asking.start()
            return asking
