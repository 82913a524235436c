"""State of callbacks, losses and metrics is transferred, or a message names it."""

from __future__ import annotations

import fractions
import io
import re
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from tests.unit.compat.wmla.fabric.travelling import travel
from torch.optim import lr_scheduler

from legato.compat.wmla.fabric.callbacks import Callback
from legato.compat.wmla.fabric.plain_values import is_same, pack, unpack
from legato.compat.wmla.fabric.program_state import Memory, TurnWatch, find_owner


class Stopper:
    """A helper class of the program."""

    def __init__(self) -> None:
        self.best, self.patience, self.inner = 0.0, 3, Inner()


class Inner:
    def __init__(self) -> None:
        self.seen: deque[float] = deque(maxlen=2)


class Remembering(Callback):
    def __init__(self, path: str) -> None:
        super().__init__()
        self.best, self.waited, self.rates = float("inf"), 0, [0.1]
        self.means = {"w": torch.zeros(2)}
        self.score = numpy.float32(0.5)
        self.mixed: Any = [1, print]
        self.path = path
        self.seen: list[int] = []
        self.stopper = Stopper()
        self.average = torch.nn.Linear(1, 1)
        self.file: Any = io.StringIO()
        self.share: Any = fractions.Fraction(1, 2)


def pair(make: Callable[[str], Any] = Remembering) -> tuple[Any, Memory, Any, Memory]:
    old, new = make("of worker 0"), make("of worker 1")
    return old, Memory("Mine", old), new, Memory("Mine", new)


def hand_over(old: Memory, new: Memory) -> None:
    new.load_state_dict(travel(old.state_dict()))


def test_a_callback_gets_the_state_of_the_other_workers(capsys: pytest.CaptureFixture[str]) -> None:
    old, remembered, new, other = pair()
    assert remembered.state_dict()["values"] == remembered.state_dict()["left"] == {}
    old.best, old.waited, old.score = 0.25, 3, numpy.float32(0.75)
    old.rates.append(0.2)
    old.means["w"] += 1
    old.params["epochs"], old.model = 4, object()
    old.stopper.best = 0.5
    old.stopper.inner.seen.extend([1.0, 2.0, 3.0])
    torch.nn.init.constant_(old.average.weight, 7.0)
    new.seen.append(7)  # before the state arrives
    own = new.average, new.file
    hand_over(remembered, other)
    assert (new.best, new.waited, new.rates, float(new.score)) == (0.25, 3, [0.1, 0.2], 0.75)
    assert new.means["w"].tolist() == [1, 1]
    assert new.seen == [], "none of the others has it"
    assert (new.stopper.best, new.stopper.inner.seen) == (0.5, deque([2.0, 3.0], maxlen=2))
    assert new.average.weight.item() == 7.0
    # Attributes from the constructor and from the engine are not sent.
    assert (new.path, new.params, new.model, new.average, new.file) == ("of worker 1", {}, None, *own)
    assert capsys.readouterr().err == "", "there is nothing to tell"


def test_state_that_cannot_be_transferred_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    old, remembered, new, other = pair()
    old.mixed[0], old.share, old.late = 2, fractions.Fraction(1, 3), Stopper()
    old.file, old.folder = io.StringIO(), Path("x")  # each worker has its own
    hand_over(remembered, other)
    hand_over(remembered, other)
    assert new.mixed == [1, print] and new.share == fractions.Fraction(1, 2)
    told = re.findall(r"^legato: Mine\.(\w+) differs between .* It is a (\w+)", capsys.readouterr().err, re.MULTILINE)
    assert sorted(told) == [("late", "Stopper"), ("mixed", "list"), ("share", "Fraction")]


class Ruled(lr_scheduler.LRScheduler):
    """A scheduler that keeps a function, which Legato cannot transfer."""

    def __init__(self, optimizer: torch.optim.Optimizer, rule: Callable[[int], float]) -> None:
        self.rule = rule
        super().__init__(optimizer)

    def get_lr(self) -> list[float | torch.Tensor]:
        return [rate * self.rule(self.last_epoch) for rate in self.base_lrs]


class Scheduling(Callback):
    """Creates its scheduler at its first call."""

    def __init__(self, _: str) -> None:
        super().__init__()
        self.schedule: Any = None
        self.optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)

    def on_epoch_begin(self, epoch: int) -> None:
        del epoch
        if self.schedule is None:
            self.schedule = Ruled(self.optimizer, lambda epoch: 0.5**epoch)

    def on_epoch_end(self, epoch: int, save_model: bool = False) -> None:
        del epoch, save_model
        self.optimizer.step()
        self.schedule.step()


def test_a_scheduler_of_a_callback_continues_in_another_worker(capsys: pytest.CaptureFixture[str]) -> None:
    old, remembered, new, other = pair(Scheduling)
    for epoch in range(3):
        old.on_epoch_begin(epoch)
        old.on_epoch_end(epoch)
    new.on_epoch_begin(3)  # before the state arrives
    hand_over(remembered, other)
    new.on_epoch_end(3)
    assert new.optimizer.param_groups[0]["lr"] == 0.5**4
    assert capsys.readouterr().err == ""


def test_a_scheduler_that_only_the_others_have_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    old, remembered, _, other = pair(Scheduling)
    old.on_epoch_begin(0)
    hand_over(remembered, other)
    assert "Mine.schedule differs between" in capsys.readouterr().err


class Bare:
    __slots__ = ()


def test_an_object_without_attributes() -> None:
    hand_over(Memory("bare", Bare()), Memory("bare", Bare()))


@pytest.mark.parametrize("name", ["model", "schedule"])
def test_state_that_the_run_sends_is_not_sent_twice(name: str) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    kept = {"model": torch.nn.Linear(2, 2), "schedule": lr_scheduler.StepLR(optimizer, 2)}[name]
    callback = Callback()
    callback.other = kept  # type: ignore[attr-defined]
    assert Memory("Mine", callback).state_dict()["states"].keys() == {"other"}
    assert Memory("Mine", callback, [kept]).state_dict()["states"] == {}


class Annealed(torch.nn.Module):
    """A loss with a state."""

    def __init__(self) -> None:
        super().__init__()
        self.beta, self.num_calls = 1.0, 0
        self.register_buffer("mean", torch.zeros(1))
        self.counts = False

    def forward(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if self.counts:
            self.num_calls += 1
            self.get_buffer("mean").add_(1)
        return self.beta * (outputs - targets).square().mean()


def test_a_loss_that_a_callback_changes_is_the_same_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    old, new = Annealed(), Annealed()
    remembered, other = Memory("loss_function", find_owner(old)), Memory("loss_function", find_owner(new.forward))
    old.beta = 0.5
    old.get_buffer("mean").add_(3)
    hand_over(remembered, other)
    assert new.beta == 0.5 and new.get_buffer("mean").item() == 3.0
    watch = TurnWatch([remembered])
    assert watch.do(lambda: {"loss": float(old(torch.ones(1), torch.zeros(1)))}) == {"loss": 0.5}
    assert capsys.readouterr().err == ""


def test_state_that_a_micro_batch_changes_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    def metric(*_: Any) -> float:
        metric.calls = getattr(metric, "calls", 0) + 1  # type: ignore[attr-defined]
        return 0.0

    loss = Annealed()
    loss.counts = True
    watch = TurnWatch([Memory("loss_function", loss), Memory("metric", metric)])

    def turn() -> dict[str, float]:
        return {"loss": float(loss(torch.ones(1), torch.zeros(1))), "metric": metric()}

    for _ in range(6):
        watch.do(turn)
    told = re.findall(r"^legato: (\S+) changes while a micro-batch", capsys.readouterr().err, re.MULTILINE)
    assert sorted(told) == ["loss_function", "loss_function.num_calls", "metric.calls"]
    assert (loss.num_calls, metric.calls) == (6, 6)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, (2.5, None)], 3: {b"x", "y"}},
        deque([1, 2], maxlen=2),
        Counter("aab"),
        OrderedDict(b=1, a=deque()),
        numpy.arange(6, dtype=numpy.int16).reshape(2, 3)[:, ::-1],
        numpy.array(2.5),
    ],
    ids=["containers", "deque", "Counter", "OrderedDict", "array", "array of one"],
)
def test_values_arrive_as_they_were(value: Any) -> None:
    found = unpack(travel(pack(value)), None)
    assert type(found) is type(value)
    if isinstance(value, numpy.ndarray):
        assert found.dtype == value.dtype and found.shape == value.shape and (found == value).all()
    else:
        assert found == value and getattr(found, "maxlen", None) == getattr(value, "maxlen", None)
    assert is_same(pack(found), pack(value))


def test_a_default_is_each_worker_s_own() -> None:
    own: defaultdict[str, list[int]] = defaultdict(list)
    found = unpack(travel(pack(defaultdict(set, a=[1]))), own)
    assert found == {"a": [1]} and found["b"] == []


@pytest.mark.parametrize(
    "value", [1j, object(), numpy.array(["x"]), [print]], ids=["complex", "object", "text", "list"]
)
def test_values_that_cannot_be_sent(value: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        pack(value)
