"""Buffers that a forward pass assigns: any number of workers gives the bits of one, or the job fails and says why."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.unit.train.jobs import LIMIT_S, Job, Worker, job_of
from torch import nn
from torch.utils.data import TensorDataset

from legato.core.errors import ProgramError
from legato.train.data.order import Layout

# Three micro-batches: of two workers one has two.
LAYOUT = Layout(6, 2)
NUM_STEPS = 7
DATA = TensorDataset(torch.linspace(-1.0, 2.0, 12 * NUM_STEPS).reshape(6 * NUM_STEPS, 2))


@pytest.fixture
def job() -> Iterator[Job]:
    with job_of(LAYOUT) as job:
        yield job


class Net(nn.Module):
    """A linear layer, and a number that changes its output."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1)
        nn.init.constant_(self.layer.weight, 0.1)
        nn.init.constant_(self.layer.bias, 0.1)
        self.step = 0

    def factor(self, inputs: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.layer(inputs).squeeze(1) * self.factor(inputs.detach()).mean()
        return output


class Summing(Net):
    """Begins with None, and adds up its inputs."""

    total: torch.Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", None)

    def factor(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.total is None:
            self.total = torch.zeros(2)
        self.total += inputs.sum(0)
        return self.total


class Late(Net):
    """Makes two buffers in the fourth step: one of its inputs, and one that counts."""

    seen: torch.Tensor | None
    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", None)
        self.register_buffer("count", None)

    def factor(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.step < 3:
            return inputs
        if self.seen is None:
            self.seen, self.count = inputs.mean(0), torch.zeros((), dtype=torch.int64)
        self.count += 1
        self.seen = self.seen * 0.9 + inputs.mean(0)
        return self.seen * self.count


class Assigning(Net):
    """Assigns a running mean in each forward pass."""

    mean: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(2))

    def factor(self, inputs: torch.Tensor) -> torch.Tensor:
        self.mean = 0.9 * self.mean + inputs.mean(0)
        return self.mean


class Masking(Net):
    """Makes a mask once, of constants."""

    mask: torch.Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", None)

    def factor(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.mask is None:
            self.mask = torch.full((2,), 0.3)
        return inputs * self.mask


class Caching(Net):
    """Keeps a table that is as long as its largest input so far needs."""

    table: torch.Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", None, persistent=False)

    def factor(self, inputs: torch.Tensor) -> torch.Tensor:
        places = (inputs[:, 0] + 1).mul(10).long()
        if self.table is None or len(self.table) <= int(places.max()):
            self.table = torch.arange(int(places.max()) + 1) * 0.1
        return self.table[places]


class Uneven(Net):
    """Makes a buffer of large inputs only."""

    kept: torch.Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", None)

    def factor(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.kept is None and float(inputs.max()) > 1.9:
            self.kept = inputs.amax(0)
        return inputs


class Reshaping(Net):
    """Assigns a buffer of another shape in some micro-batches."""

    last: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last", torch.zeros(2))

    def factor(self, inputs: torch.Tensor) -> torch.Tensor:
        self.last = inputs[0] if float(inputs.max()) < 1.9 else inputs
        return inputs


class Counting(Net):
    """Counts in a cache that begins with None."""

    count: torch.Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", None, persistent=False)

    def factor(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.count is None:
            self.count = torch.zeros(())
        self.count += 1
        return self.count


def train(make: Callable[[], Net], *, at_step_2: Callable[[], None] = lambda: None) -> Callable[[Worker], Any]:
    def program(worker: Worker) -> Any:
        run, model = worker.run, make()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        run.prepare(model, optimizer)
        for _ in run.epochs(2):
            for (inputs,) in run.batches(DATA):
                model.step = run.step
                if run.step == 2:
                    at_step_2()
                run.backward(model(inputs).square().mean())
                optimizer.step()
                optimizer.zero_grad()
        # A cache has another length on each worker.
        return {name: tensor.clone() for name, tensor in model.state_dict().items()}

    return program


def alone(make: Callable[[], Net]) -> Any:
    with job_of(LAYOUT) as job:
        (worker,) = job.begin(1, train(make))
        return worker.end()


def check_same(ends: list[Any], expected: dict[str, torch.Tensor]) -> None:
    for end in ends:
        assert not isinstance(end, BaseException), end
        assert end.keys() == expected.keys()
        assert all(torch.equal(end[name], expected[name]) for name in expected), (end, expected)


@pytest.mark.parametrize("make", [Summing, Late, Assigning, Masking, Caching])
@pytest.mark.parametrize("num_workers", [2, 3])
def test_any_number_of_workers_gives_the_bits_of_one(job: Job, make: Callable[[], Net], num_workers: int) -> None:
    check_same([worker.end() for worker in job.begin(num_workers, train(make))], alone(make))


@pytest.mark.parametrize("make", [Summing, Late, Assigning, Masking, Caching])
def test_a_worker_that_joins_changes_no_bit(job: Job, make: Callable[[], Net]) -> None:
    reached, there = threading.Event(), threading.Event()

    def meet() -> None:
        reached.set()
        assert there.wait(LIMIT_S)

    program = train(make, at_step_2=meet)
    workers = job.begin(2, program)
    assert reached.wait(LIMIT_S)
    joiner = job.start(program)
    job.propose(*workers, joiner)
    there.set()
    check_same([worker.end() for worker in [*workers, joiner]], alone(make))


@pytest.mark.parametrize("make", [Summing, Late])
def test_a_step_that_breaks_in_which_a_buffer_is_made_is_computed_again(job: Job, make: Callable[[], Net]) -> None:
    dead = threading.Event()

    def die() -> None:
        if threading.current_thread() is last.thread:
            dead.set()
            last.lose_peers()
            raise SystemExit

    def program(worker: Worker) -> Any:
        run, model = worker.run, make()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        run.prepare(model, optimizer)
        for _ in run.epochs(2):
            for (inputs,) in run.batches(DATA):
                model.step = run.step
                loss = model(inputs).square().mean()
                if run.step == (0 if make is Summing else 3):
                    die()
                run.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        return {name: tensor.clone() for name, tensor in model.state_dict().items()}

    workers = [job.start(program) for _ in range(3)]
    last = workers[2]
    job.propose(*workers)
    assert dead.wait(LIMIT_S)
    job.recover(*workers[:2])
    check_same([worker.end() for worker in workers[:2]], alone(make))


@pytest.mark.parametrize("num_workers", [1, 2, 3])
@pytest.mark.parametrize(
    ("make", "told"),
    [
        (Uneven, "the buffer 'kept', which is not the same in all micro-batches"),
        (Reshaping, "The forward pass assigns float32 [2, 2] to the buffer 'last', which was float32 [2]."),
        (Counting, "changes the buffer 'count' in place after it has assigned it"),
    ],
)
def test_what_would_depend_on_the_workers_is_refused(
    job: Job, make: Callable[[], Net], told: str, num_workers: int
) -> None:
    # One worker fails with the reason; those that wait for it have no peers left.
    ends: list[Any] = []
    workers = job.begin(num_workers, train(make))
    failed = threading.Event()

    def wait(worker: Worker) -> None:
        assert worker.thread is not None
        worker.thread.join(LIMIT_S)
        ends.append(worker.outcome)
        failed.set()

    for worker in workers:
        threading.Thread(target=wait, args=(worker,), daemon=True).start()
    assert failed.wait(LIMIT_S)
    assert isinstance(ends[0], ProgramError) and told in str(ends[0]), ends
