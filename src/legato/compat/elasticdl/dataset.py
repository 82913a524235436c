"""One data set and its tasks: to do, handed out, done. Pure: no clock, no I/O, and no randomness but a seed.

The tasks to do are no list: they are a position in the present epoch, and the tasks that came back. So an epoch may
have any number of tasks.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from legato.compat.elasticdl.permutation import Permutation
from legato.compat.elasticdl.task_types import DatasetParams, Task
from legato.core.errors import DataError
from legato.system.decoding import decode

TASKS_PER_PART: Final = 50_000  # of an epoch; a checkpoint lists what is left of one part
_VERSION: Final = "v1.0"
_TASKS: Final = 1  # orders of one epoch: that of its tasks, and that of its records
_RECORDS: Final = 2


class Piece(msgspec.Struct, frozen=True):
    """Places from ``start`` to before ``end`` in the order of an epoch; it failed ``num_failures`` times."""

    epoch: int
    start: int
    end: int
    num_failures: int = 0


class Holding(msgspec.Struct, frozen=True):
    """A piece that is handed out.

    Args:
        worker: number of the worker that has it.
        piece: that was handed out.
        ask: names the request that it answered; empty if that had no name.
    """

    worker: int
    piece: Piece
    ask: str = ""


class DatasetState(msgspec.Struct, kw_only=True):
    """The mutable state of a data set.

    Args:
        epoch: from which tasks are handed out, from 1; 0 before the first.
        position: tasks of this epoch that were handed out, or came from a checkpoint.
        returned: pieces that came back, in order; handed out again before the next epoch.
        doing: number → the piece that is handed out under it.
        num_done: number of records that are done, counted in each epoch.
        resets: worker → the name of its last request to restart the data set.
    """

    epoch: int = 0
    position: int = 0
    returned: list[Piece] = []
    doing: dict[int, Holding] = {}
    num_done: int = 0
    resets: dict[int, str] = {}


class _Checkpoint(msgspec.Struct, kw_only=True):
    """A checkpoint for users: the historic keys, and additional ones.

    Args:
        todo: start and end of tasks.
        todo_epochs: of each of them; empty for all in ``current_epoch``. ``doing`` likewise.
        current_subepoch: parts of the epoch whose tasks are listed or done.
        seed: of the orders; None in a checkpoint of another program.
    """

    dataset_name: str
    todo: list[tuple[int, int]]
    doing: list[tuple[int, int]]
    current_epoch: int
    num_epochs: int
    records_per_task: int
    dataset_size: int
    shuffle_shards: bool = False
    version: str
    current_subepoch: int = 0
    shuffle: bool = False
    todo_epochs: list[int] = []
    doing_epochs: list[int] = []
    seed: int | None = None


class Dataset:
    """The tasks of one data set.

    Args:
        params: as registered, with the name that it has.
        records_per_task: number of records of each task, except the last task of an epoch.
        seed: of its orders.
        state: of the data set; None at its beginning.
    """

    def __init__(
        self, params: DatasetParams, records_per_task: int, seed: int, state: DatasetState | None = None
    ) -> None:
        self.params = params
        self.records_per_task = records_per_task
        self.seed = seed
        self.state = state if state is not None else DatasetState()
        self._orders: dict[tuple[int, int], Permutation] = {}

    @property
    def num_tasks(self) -> int:
        """The number of tasks of an epoch."""
        return -(-self.params.dataset_size // self.records_per_task)

    @property
    def is_at_end(self) -> bool:
        """Whether no task is left to hand out; tasks that are handed out may come back."""
        state = self.state
        is_last = 0 < self.params.num_epochs <= state.epoch
        return is_last and state.position >= self.num_tasks and not state.returned

    @property
    def holders(self) -> set[int]:
        """The workers that have tasks."""
        return {holding.worker for holding in self.state.doing.values()}

    # ------------------------------------------------------------ handing out

    def hand_out(self, worker: int, number: int, ask: str = "", *, names_records: bool = True) -> Task | None:
        """Hand the next task out under a number; None if there is nothing to hand out.

        Args:
            worker: number of the worker that gets it.
            number: names it.
            ask: names the request.
            names_records: False: the worker does not need the record numbers of a shuffled data set.
        """
        piece = self._next()
        if piece is None:
            return None
        self.state.doing[number] = Holding(worker, piece, ask)
        return self._task(number, piece, names_records=names_records)

    def find(self, worker: int, ask: str, *, names_records: bool = True) -> Task | None:
        """Return the task that a worker got by the request of this name, if it still has it; see `hand_out`."""
        for number, holding in self.state.doing.items():
            if ask and (holding.worker, holding.ask) == (worker, ask):
                return self._task(number, holding.piece, names_records=names_records)
        return None

    def take_done(self, number: int) -> int:
        """Record that the task with a number is done; return how often it had failed."""
        piece = self.state.doing.pop(number).piece
        self.state.num_done += piece.end - piece.start
        return piece.num_failures

    def take_failed(self, number: int) -> int:
        """Take back a failed task; return how often it has failed so far."""
        piece = self.state.doing.pop(number).piece
        failed = msgspec.structs.replace(piece, num_failures=piece.num_failures + 1)
        self.state.returned.append(failed)
        return failed.num_failures

    def take_back(self, workers: Collection[int]) -> int:
        """Take back all tasks of other workers than these, without counting a failure; return how many tasks."""
        lost = [number for number, holding in self.state.doing.items() if holding.worker not in workers]
        self.state.returned += [self.state.doing.pop(number).piece for number in lost]
        return len(lost)

    def reset(self, worker: int = 0, ask: str = "") -> None:
        """Start from scratch. Tasks that are handed out do not count any more.

        Args:
            worker: number of the worker that requests it.
            ask: names the request. A worker that got no answer repeats the request with this name; then nothing is
                done.
        """
        resets = self.state.resets
        if ask and resets.get(worker) == ask:
            return
        self.state = DatasetState(resets={**resets, worker: ask} if ask else resets)

    def _next(self) -> Piece | None:
        state = self.state
        if state.position < self.num_tasks and state.epoch > 0:
            piece = self._piece(state.epoch, state.position)
            state.position += 1
            return piece
        if state.returned:
            return state.returned.pop(0)
        if 0 < self.params.num_epochs <= state.epoch:
            return None
        state.epoch += 1
        state.position = 1
        return self._piece(state.epoch, 0)

    def _piece(self, epoch: int, position: int) -> Piece:
        place = self._order(epoch, _TASKS)[position] if self.params.shuffle_shards else position
        start = place * self.records_per_task
        return Piece(epoch, start, min(start + self.records_per_task, self.params.dataset_size))

    def _task(self, number: int, piece: Piece, *, names_records: bool = True) -> Task:
        indices: tuple[int, ...] = ()
        if self.params.shuffle and names_records:
            indices = self._order(piece.epoch, _RECORDS).take(piece.start, piece.end)
        return Task(
            number=number,
            dataset=self.params.name,
            kind=self.params.kind,
            start=piece.start,
            end=piece.end,
            indices=indices,
            epoch=piece.epoch,
        )

    def _order(self, epoch: int, what: int) -> Permutation:
        if (epoch, what) not in self._orders:
            # Returned tasks may be of the previous epoch; orders of older epochs are needed rarely and are computed
            # again.
            self._orders = {key: order for key, order in self._orders.items() if key[0] >= epoch - 1}
            size = self.num_tasks if what == _TASKS else self.params.dataset_size
            self._orders[epoch, what] = Permutation(size, (self.seed, epoch, what))
        return self._orders[epoch, what]

    # ------------------------------------------------------------ checkpoints

    def checkpoint(self) -> str:
        """Return the remaining tasks as JSON: those of the present part of the epoch singly, later parts by number."""
        state = self.state
        part = -(-state.position // TASKS_PER_PART)
        rest = range(state.position, min(part * TASKS_PER_PART, self.num_tasks)) if state.epoch else range(0)
        todo = [self._piece(state.epoch, position) for position in rest] + state.returned
        doing = [holding.piece for _, holding in sorted(state.doing.items())]
        content = _Checkpoint(
            dataset_name=self.params.name,
            todo=[(piece.start, piece.end) for piece in todo],
            doing=[(piece.start, piece.end) for piece in doing],
            current_epoch=state.epoch,
            num_epochs=self.params.num_epochs,
            records_per_task=self.records_per_task,
            dataset_size=self.params.dataset_size,
            shuffle_shards=self.params.shuffle_shards,
            version=_VERSION,
            current_subepoch=part,
            shuffle=self.params.shuffle,
            todo_epochs=[piece.epoch for piece in todo],
            doing_epochs=[piece.epoch for piece in doing],
            seed=self.seed,
        )
        return msgspec.json.encode(content).decode()


def order_of_records(size: int, seed: int, epoch: int) -> Permutation:
    """Return the order in which a shuffled data set of this size is handed out in an epoch; epochs count from 1."""
    return Permutation(size, (seed, epoch, _RECORDS))


def read_checkpoint(content: str, known: Dataset | None, seed: int) -> Dataset | None:
    """Return the data set that continues from a checkpoint; None if the checkpoint is of another version.

    Args:
        content: what `Dataset.checkpoint` returned, or a checkpoint of the original, which has fewer keys.
        known: the data set of this name, if it is registered.
        seed: for the orders of a checkpoint that has none.

    Raises:
        DataError: it is no checkpoint.
    """
    try:
        left = decode(content, _Checkpoint)
    except msgspec.MsgspecError as error:
        raise DataError(f"Cannot resume from this checkpoint of a data set: {error}. Pass it unchanged.") from error
    if left.version != _VERSION:
        return None
    _check(left)
    params = DatasetParams(
        name=left.dataset_name,
        batch_size=known.params.batch_size if known else left.records_per_task,
        num_epochs=left.num_epochs,
        dataset_size=left.dataset_size,
        shuffle=left.shuffle,
        shuffle_shards=left.shuffle_shards,
    )
    if known is not None:
        params = msgspec.structs.replace(params, kind=known.params.kind)
    dataset = Dataset(params, left.records_per_task, seed if left.seed is None else left.seed)
    epochs = (left.doing_epochs or [left.current_epoch] * len(left.doing)) + (
        left.todo_epochs or [left.current_epoch] * len(left.todo)
    )
    dataset.state = DatasetState(
        epoch=left.current_epoch,
        position=min(max(left.current_subepoch, 1) * TASKS_PER_PART, dataset.num_tasks) if left.current_epoch else 0,
        returned=[Piece(epoch, start, end) for epoch, (start, end) in zip(epochs, left.doing + left.todo, strict=True)],
    )
    return dataset


def _check(left: _Checkpoint) -> None:
    """Raise DataError unless the numbers of a checkpoint fit together."""
    failure = f"Cannot resume from this checkpoint of data set '{left.dataset_name}'"
    if left.records_per_task < 1 or left.dataset_size < 1:
        raise DataError(
            f"{failure}: it has {left.dataset_size} records in tasks of {left.records_per_task}. Pass it unchanged."
        )
    if left.current_epoch < 0:
        raise DataError(f"{failure}: it is in epoch {left.current_epoch}. Pass it unchanged.")
    for name, tasks, epochs in (("todo", left.todo, left.todo_epochs), ("doing", left.doing, left.doing_epochs)):
        if epochs and len(epochs) != len(tasks):
            raise DataError(f"{failure}: {name} has {len(tasks)} tasks and {len(epochs)} epochs. Pass it unchanged.")
        for start, end in tasks:
            if not 0 <= start < end <= left.dataset_size:
                raise DataError(
                    f"{failure}: {name} has a task of records {start} to {end}, of {left.dataset_size}. "
                    "Pass it unchanged."
                )
