"""Changes that a loop makes between two steps: a worker that joins does not repeat them, with any schedule."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from legato.compat.elasticdl.scheduler_guard import SchedulerGuard

NUM_STEPS, STEPS_PER_EPOCH = 12, 3


class Worker:
    """A worker whose loop acts on its optimizer after steps.

    Args:
        act: a function of the worker, and of whether its epoch has grown; called after each step.
        source: the worker whose state it receives; None: the job begins.
    """

    def __init__(self, act: Callable[[Worker, bool], None], source: Worker | None = None) -> None:
        self.optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=1, gamma=0.5)
        self.between = SchedulerGuard([self.optimizer], [self.scheduler])
        self.epoch = self.num_steps = 0
        self._act = act
        if source is not None:
            source.between.enter_step()
            self.optimizer.load_state_dict(source.optimizer.state_dict())
            self.scheduler.load_state_dict(source.scheduler.state_dict())
            self.num_steps = source.num_steps
            self.between.acts_after_steps = source.between.acts_after_steps
            self.between.join()

    @property
    def rate(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

    def step(self) -> float:
        """Train a step; return its learning rate."""
        self.between.enter_step()
        rate = self.rate
        self.optimizer.step()
        self.num_steps += 1
        epoch = self.num_steps // STEPS_PER_EPOCH
        self.between.leave_step(is_new_epoch=self.num_steps % STEPS_PER_EPOCH == 0)
        has_grown, self.epoch = epoch > self.epoch, max(epoch, self.epoch)
        self._act(self, has_grown)
        return rate


def each_epoch(worker: Worker, has_grown: bool) -> None:
    if has_grown:
        worker.scheduler.last_epoch = worker.epoch - 1
        worker.scheduler.step()


def each_step(worker: Worker, _: bool) -> None:
    worker.scheduler.step()


def by_hand(worker: Worker, has_grown: bool) -> None:
    if has_grown:
        worker.optimizer.param_groups[0]["lr"] *= 0.5


def by_epoch(worker: Worker, _: bool) -> None:
    worker.optimizer.param_groups[0]["lr"] = 1.0 / (1 + worker.epoch)


def never(worker: Worker, _: bool) -> None:
    pass


@pytest.mark.parametrize("act", [each_epoch, each_step, by_hand, by_epoch, never], ids=lambda act: str(act.__name__))
@pytest.mark.parametrize("joins_after", range(1, NUM_STEPS))
def test_a_joining_worker_has_the_rates_of_all_others(act: Callable[[Worker, bool], None], joins_after: int) -> None:
    first = Worker(act)
    for _ in range(joins_after):
        first.step()
    joined = Worker(act, first)
    rates = [(first.step(), joined.step()) for _ in range(NUM_STEPS - joins_after)]
    assert all(mine == theirs for mine, theirs in rates)
    first.between.enter_step()
    joined.between.enter_step()
    assert (first.rate, first.scheduler.last_epoch) == (joined.rate, joined.scheduler.last_epoch)
