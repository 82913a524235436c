"""Two workers compute one micro-batch now and then, and find out whether its result depends on the worker."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.train.jobs import LIMIT_S, Job, Worker, job_of
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from legato.core import wire
from legato.core.span import Span
from legato.train.data.order import Layout
from legato.train.loop.cross_check import CrossCheck, Found, describe

CPU = torch.device("cpu")
# Four micro-batches, and a smaller last step.
LAYOUT = Layout(8, 2)
DATA = TensorDataset(torch.linspace(-1.0, 2.0, 152).reshape(76, 2))
ENDLESS = TensorDataset(torch.linspace(-1.0, 2.0, 80_000).reshape(40_000, 2))


@pytest.fixture
def job() -> Iterator[Job]:
    with job_of(LAYOUT) as job:
        yield job


class Net(nn.Module):
    """Has a buffer that each micro-batch writes, one that it makes, and a parameter without a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1)
        nn.init.constant_(self.layer.weight, 0.1)
        nn.init.constant_(self.layer.bias, 0.1)
        self.unused = nn.Parameter(torch.zeros(2))
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("made", None)
        self.factor = torch.ones(())

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.made is None:
            self.made = inputs.detach().amax(0)
        self.mean.mul_(0.9).add_(inputs.detach().mean(0))
        output: torch.Tensor = self.layer(inputs * self.factor).squeeze(1)
        return output + self.mean.sum() + self.made.sum()


Change = Callable[[torch.Tensor], torch.Tensor]


def train(change: Change | None = None, **loading: Any) -> Callable[[Worker], Any]:
    """Return a program that trains for two epochs; each worker makes its own change of outputs."""

    def program(worker: Worker) -> Any:
        run, model = worker.run, Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        run.prepare(model, optimizer)
        data, noted = loading.get("make_data", lambda: DATA)(), []
        changes = loading.get("make_change", lambda: change)()
        for _ in run.epochs(2):
            for (inputs,) in run.batches(data):
                outputs = model(inputs)
                if changes is not None:
                    outputs = changes(outputs)
                loss = outputs.square().mean()
                run.note(loss=float(loss.detach()))
                run.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
                if run.stepped:
                    noted.append((run.loss, run.notes))
        return [*(t.detach().clone() for t in (*model.parameters(), *model.buffers())), noted]

    return program


def said(worker: Worker, kind: type[Any]) -> list[Any]:
    return [one for one in worker.said if isinstance(one, kind)]


def are_same(one: list[Any], other: list[Any]) -> bool:
    return all(a == b if isinstance(a, list) else torch.equal(a, b) for a, b in zip(one, other, strict=True))


def carry() -> Change:
    """Add the last outputs of this worker, as a recurrent network does with its hidden state."""
    hidden = [torch.zeros(())]

    def change(outputs: torch.Tensor) -> torch.Tensor:
        outputs = outputs + hidden[0]
        hidden[0] = outputs.detach().mean()
        return outputs

    return change


def draw() -> Change:
    generator = torch.Generator().manual_seed(1)
    return lambda outputs: outputs + torch.randn(outputs.shape, generator=generator)


class Noisy(Dataset[tuple[torch.Tensor]]):
    """Draws from a generator of its own; a look at the first sample does not show it."""

    def __init__(self) -> None:
        self._generator = np.random.default_rng(1)

    def __len__(self) -> int:
        return len(DATA)

    def __getitem__(self, index: int) -> tuple[torch.Tensor]:
        (sample,) = DATA[index]
        return (sample + (float(self._generator.normal()) if index else 0.0),)


@pytest.mark.parametrize("num_workers", [2, 3])
@pytest.mark.parametrize(
    ("program", "cause"),
    [
        (train(make_change=carry), "from the same batch, and got different gradients"),
        (train(make_change=draw), "from the same batch, and got different gradients"),
        (train(make_data=Noisy), "got different batches for it"),
    ],
    ids=["hidden state", "generator", "data set"],
)
def test_a_program_whose_result_depends_on_the_workers_is_marked(
    job: Job, num_workers: int, program: Callable[[Worker], Any], cause: str
) -> None:
    workers = job.begin(num_workers, program)
    ends = [worker.end() for worker in workers]
    assert all(are_same(ends[0], end) for end in ends)
    for worker in workers:
        (differed,) = said(worker, wire.Differed)
        assert differed.step == 2
        assert re.match(r"In step 2, ranks \d and \d both computed micro-batch \d", differed.text), differed.text
        assert cause in differed.text
        assert "Training continues; the run is not exact from here on." in differed.text
        assert said(worker, wire.Progress)[-1].differed_step == 2


@pytest.mark.parametrize("num_workers", [2, 3, 4, 6])
def test_the_result_is_that_of_one_worker(job: Job, num_workers: int) -> None:
    with job_of(LAYOUT) as alone:
        (worker,) = alone.begin(1, train())
        expected = worker.end()
    workers = job.begin(num_workers, train())
    for worker in workers:
        assert are_same(worker.end(), expected)
        assert not said(worker, wire.Differed)


def test_each_worker_repeats_one_micro_batch_in_a_few_steps(job: Job) -> None:
    turns: dict[tuple[int, int], list[int]] = {}

    def count(worker: Worker) -> None:
        run, model = worker.run, Net()
        run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
        for _ in run.epochs(2):
            for (inputs,) in run.batches(DATA):
                turns.setdefault((worker.worker, run.step + 1), []).append(run.micro_batch)
                run.backward(model(inputs).sum())

    for worker in job.begin(2, count):
        assert worker.end() is None
    # An epoch has ten steps, of which the last one has two micro-batches.
    for step in range(1, 21):
        own = ([0], [1]) if step % 10 == 0 else ([0, 1], [2, 3])
        others = ([2], [0]) if step in (2, 4, 8, 16, 17) else ([], [])
        for rank in range(2):
            assert turns[rank, step] == [*others[rank], *own[rank]], (rank, step)


def test_a_joiner_without_what_the_program_keeps_is_noticed(job: Job) -> None:
    enough = threading.Event()

    def program(worker: Worker) -> None:
        run, model = worker.run, Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        run.prepare(model, optimizer)
        for _ in run.epochs(1):
            for (inputs,) in run.batches(ENDLESS):
                run.backward(model(inputs).square().mean())
                optimizer.step()
                if run.step == 3 and run.stepped:
                    model.factor = torch.tensor(0.5)  # no buffer: the joiner does not get it
                    enough.set()

    first = job.start(program)
    job.propose(first)
    assert enough.wait(LIMIT_S)
    second = job.start(program)
    job.propose(first, second)
    for worker in (first, second):
        differed = worker.await_message(wire.Differed)
        assert "from the same batch, and got different gradients" in differed.text


def test_a_worker_that_dies_while_it_repeats_leaves_nothing(job: Job) -> None:
    dead = threading.Event()
    plain = train()

    def dies(worker: Worker) -> Any:
        def fail(outputs: torch.Tensor) -> torch.Tensor:
            if worker.worker == 2 and worker.run.step == 1 and not dead.is_set():
                dead.set()
                raise SystemExit
            return outputs

        return train(fail)(worker)

    with job_of(LAYOUT) as alone:
        (worker,) = alone.begin(1, plain)
        expected = worker.end()
    workers = job.begin(3, dies)
    assert dead.wait(LIMIT_S)
    for worker in workers[:2]:
        worker.await_message(wire.Broken)
    job.recover(*workers[:2])
    for worker in workers[:2]:
        assert are_same(worker.end(), expected)
        assert not said(worker, wire.Differed)


# ---------------------------------------------------------------- what is compared


def meet(batches: list[Any], gradients: list[float]) -> Found | None:
    """Have two ranks compare: each repeats the micro-batch of the other one, then computes its own."""
    spans = (Span(0, 2), Span(2, 4))
    ranks = [CrossCheck(CPU) for _ in spans]
    for rank, check in enumerate(ranks):
        check.begin_step(is_checked=True)
        for turn in (1 - rank, rank):
            take = check.begin_turn(batches[2 * rank + turn])
            assert take is not None
            take("0", torch.tensor(gradients[2 * rank + turn]))
        assert check.begin_turn("another turn") is None
    words = [check.word() for check in ranks]
    found = [check.hear(words, spans) for check in ranks]
    assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize(
    ("one", "other", "has_same_batch"),
    [
        ([torch.ones(2)], [torch.ones(2)], True),
        ([torch.ones(2)], [torch.zeros(2)], False),
        ({"a": np.ones(2), "b": ("x", 1, None)}, {"a": np.ones(2), "b": ("x", 1, None)}, True),
        ({"a": np.ones(2)}, {"a": np.ones(2), "b": 1}, False),
        (["x"], ["y"], False),
        ([object(), torch.ones(2)], [object(), torch.ones(2)], None),
    ],
    ids=["tensors", "other tensors", "nested", "more parts", "texts", "objects"],
)
def test_the_batch_tells_whether_the_data_is_the_cause(one: Any, other: Any, has_same_batch: bool | None) -> None:
    batches = [one, one, other, other]
    assert meet(batches, [1.0, 2.0, 1.0, 2.0]) is None
    found = meet(batches, [1.0, 2.0, 1.0, 3.0])
    assert found == Found(2, (0, 1), has_same_batch)
    text = describe(found, 5)
    assert ("The data set or collate_fn draws" in text) is (has_same_batch is not True)
    assert ("The program keeps something" in text) is (has_same_batch is not False)


def test_signs_of_zeros_and_missing_gradients_differ() -> None:
    assert meet([0, 0, 0, 0], [0.0, 0.0, 0.0, 0.0]) is None
    assert meet([0, 0, 0, 0], [0.0, 0.0, -0.0, 0.0]) == Found(0, (1, 0), True)
    assert meet([0, 0, 0, 0], [float("nan")] * 4) is None


def deep() -> Any:
    part: Any = []
    for _ in range(100_000):
        part = [part]
    return part


def cyclic() -> Any:
    part: list[Any] = []
    part.extend([part, part, part])
    return part


class Lazy(Mapping[str, torch.Tensor]):
    """Fails if Legato reads it."""

    def __getitem__(self, key: str) -> torch.Tensor:
        raise AssertionError(key)

    def __iter__(self) -> Iterator[str]:
        raise AssertionError

    def __len__(self) -> int:
        return 1


@pytest.mark.parametrize(
    "make",
    [
        deep,
        cyclic,
        Lazy,
        lambda: list(range(20_000)),
        lambda: {object(): torch.ones(2)},
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
        lambda: torch.ones(2, device="meta"),
        lambda: np.ones(2, np.longdouble),
        lambda: 10**6000,
    ],
    ids=["deep", "cyclic", "lazy", "many numbers", "objects as keys", "nested", "meta", "long double", "huge number"],
)
def test_a_batch_that_is_not_compared_stops_no_training(make: Callable[[], Any]) -> None:
    assert meet([make()] * 4, [1.0, 1.0, 2.0, 1.0]) == Found(0, (1, 0), None)


def test_arrays_in_another_byte_order_are_compared() -> None:
    one, other = (np.array([1.0, value], ">f4") for value in (2.0, 3.0))
    assert meet([one, one, one, one], [1.0, 1.0, 2.0, 1.0]) == Found(0, (1, 0), True)
    assert meet([one, one, other, one], [1.0, 1.0, 2.0, 1.0]) == Found(0, (1, 0), False)
