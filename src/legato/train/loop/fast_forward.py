"""Fast-forwards a joining worker's program past work that is already done, to the job's position.

The program of a worker that joins, or of a job that resumes from a checkpoint, runs from its first line. It skips the
passes, evaluations and metrics that the job has completed, and loads the state before the first that the job has not.
"""

from __future__ import annotations

from legato.train.loop.cursor import Cursor
from legato.train.loop.session import Session


class FastForward:
    """Moves a program past the work that its job has done.

    Args:
        session: of this worker.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def begin_epochs(self) -> None:
        """Move to the begin of the loop over epochs, or to the begin of the job's present epoch."""
        session = self._session
        session.join()
        if session.is_loaded:
            session.cursor.begin_loop()
        else:
            session.cursor.skip_to_epoch_of(self._target)

    def end_epochs(self) -> None:
        """Write a last checkpoint, unless the job has written it."""
        session = self._session
        while not session.is_loaded:
            session.join()
            if self._target.is_over:
                session.cursor.end_loop()
                return
            session.try_to_load()
        session.save_together(may_join=True)
        session.cursor.end_loop()

    def skips_pass(self) -> bool:
        """Skip the next pass if the job has completed it; if not, load its state."""
        session = self._session
        while not session.is_loaded:
            session.join()
            if self._target.pass_index > session.cursor.pass_index:
                self._check_kept(session.cursor.pass_index in self._target.ends)
                session.cursor.skip_pass(self._target)
                return True
            session.try_to_load()
        return False

    def recall_evaluation(self) -> dict[str, float] | None:
        """Return the result of the next evaluation if the job has completed it; if not, load its state."""
        session = self._session
        while not session.is_loaded:
            session.join()
            number = session.cursor.num_evaluations
            if number < self._target.num_evaluations:
                self._check_kept(number in self._target.evaluations)
                return session.cursor.skip_evaluation(self._target)
            session.try_to_load()
        return None

    def log(self, values: dict[str, float]) -> None:
        """Record metrics, unless the job has recorded them."""
        session = self._session
        is_behind = session.target is not None and not session.is_loaded
        if is_behind and session.cursor.num_logs < self._target.num_logs:
            session.cursor.skip_log()
        else:
            session.reporter.log(session.cursor, values)

    def _check_kept(self, is_kept: bool) -> None:
        """Leave if, while this program waited, the job entered a later epoch and dropped the results of this one."""
        if not is_kept:
            # Only a new process can reach the job's position.
            self._session.membership.leave("superseded")

    @property
    def _target(self) -> Cursor:
        target = self._session.target
        assert target is not None, "the worker has not joined yet"
        return target
