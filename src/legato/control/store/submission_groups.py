"""Submissions that wait at the same time share one transaction, so one commit and one sync. Only for SQLite.

SQLite has one writer at a time, so submissions wait for one another anyway, and locks of a group cannot deadlock. Each
submission is answered after the commit of its group is on disk. If the group fails because of one of its submissions,
such as one that repeats another's key, nothing of it was written, and its halves are tried one after the other. Starts
no thread: one of the waiting threads works for all.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from legato.control.records import CheckedJob, RequestKey, Submitted
from legato.control.roles import Submitter
from legato.control.store.database import Database
from legato.control.store.transactions import Transaction, writing
from legato.core.errors import StoreError

_MAX_GROUP: Final = 100  # so that other writers need not wait long


class Submission(msgspec.Struct, frozen=True):
    """A submission of a job, with the arguments of `legato.control.store.jobs.Jobs.submit`."""

    new: CheckedJob
    asker: Submitter
    now: float
    key: RequestKey | None = None
    max_queued: int | None = None
    test_of: str | None = None


class _Waiting:
    """A submission whose thread waits for its answer, or for its turn to lead."""

    def __init__(self, submission: Submission) -> None:
        self.submission = submission
        self.woken = threading.Event()
        self.leads = False
        self.answer: Submitted | None = None
        self.error: Exception | None = None

    def tell(self, told: Submitted | Exception) -> None:
        """Wake the thread, with its answer or its error."""
        if isinstance(told, Exception):
            self.error = told
        else:
            self.answer = told
        self.woken.set()


class SubmissionGroups:
    """Submits jobs in groups. Any number of threads may use it.

    Args:
        database: an SQLite database.
        submit: submits several jobs in a transaction, and returns one answer for each. After an error the transaction
            is undone.
    """

    def __init__(
        self, database: Database, submit: Callable[[Transaction, Sequence[Submission]], Sequence[Submitted]]
    ) -> None:
        self._database = database
        self._submit = submit
        self._lock = threading.Lock()
        self._waiting: deque[_Waiting] = deque()
        self._is_led = False

    def submit(self, submission: Submission) -> Submitted:
        """Submit a job, with others that wait. Raises the errors of ``submit`` for this job alone."""
        mine = _Waiting(submission)
        with self._lock:
            if self._is_led:
                self._waiting.append(mine)
            else:
                self._is_led = mine.leads = True
        if not mine.leads:
            self._wait(mine)
        if mine.leads:
            self._lead(mine)
        if mine.error is not None:
            raise mine.error
        if mine.answer is None:  # the thread that led the group was interrupted
            raise StoreError(
                "Cannot say whether the job was submitted: the server is stopping. Check that with 'legato ps' before "
                "you submit it again."
            )
        return mine.answer

    def _wait(self, mine: _Waiting) -> None:
        try:
            mine.woken.wait()
        except BaseException:  # this thread was interrupted, so it can lead no group
            with self._lock:
                if mine in self._waiting:
                    self._waiting.remove(mine)
            if mine.leads:
                self._hand_over()
            raise

    def _lead(self, mine: _Waiting) -> None:
        group = [mine]
        try:
            self._try_group(group)
        except Exception as error:  # noqa: BLE001 -- the threads of its submissions raise it
            self._divide(group, error)
        finally:
            for one in group:
                one.woken.set()

    def _try_group(self, group: list[_Waiting]) -> None:
        """Submit the leader's job and those that wait, which are added to ``group``."""
        with contextlib.ExitStack() as leading:
            leading.callback(self._hand_over)
            with writing(self._database, group[0].submission.now) as transaction:
                group += self._take()
                answers = self._submit(transaction, [one.submission for one in group])
                # The next group begins while this one waits for the disk.
                leading.close()
        for one, answer in zip(group, answers, strict=True):
            one.tell(answer)

    def _divide(self, group: Sequence[_Waiting], error: Exception) -> None:
        """Try the halves of a group that failed, or tell its only submission the error."""
        if isinstance(error, StoreError):
            # The store failed, not one of the jobs. A repetition would make each wait for the store again.
            for one in group:
                one.tell(StoreError(str(error)))
            return
        if len(group) == 1:
            group[0].tell(error)
            return
        middle = len(group) // 2
        for half in (group[:middle], group[middle:]):
            try:
                with writing(self._database, half[0].submission.now) as transaction:
                    answers = self._submit(transaction, [one.submission for one in half])
            except Exception as failure:  # noqa: BLE001 -- the threads of its submissions raise it
                self._divide(half, failure)
            else:
                for one, answer in zip(half, answers, strict=True):
                    one.tell(answer)

    def _take(self) -> list[_Waiting]:
        """Take the submissions that wait."""
        with self._lock:
            return [self._waiting.popleft() for _ in range(min(len(self._waiting), _MAX_GROUP - 1))]

    def _hand_over(self) -> None:
        """Let the first submission that waits lead the next group."""
        with self._lock:
            self._is_led = bool(self._waiting)
            if self._waiting:
                following = self._waiting.popleft()
                following.leads = True
                following.woken.set()
