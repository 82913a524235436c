"""Writing in the background: private copies, the newest first, failures told and survived."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from legato.core.errors import CheckpointError
from legato.train.checkpoints.checkpoint import Store
from legato.train.checkpoints.writer import BackgroundWriter, copy_to_cpu


def make_state() -> dict[str, Any]:
    return {
        "model": OrderedDict(weight=torch.rand(3, 4), parameter=torch.nn.Parameter(torch.rand(2))),
        "list": [torch.rand(1, 3, 4, 4).contiguous(memory_format=torch.channels_last), 1, "a", None],
        "tuple": (torch.tensor(3), np.float32(0.5)),
    }


def test_a_copy_shares_nothing_with_what_it_was_made_of() -> None:
    state = make_state()
    copy = copy_to_cpu(state)
    want = state["model"]["weight"].clone()
    state["model"]["weight"].zero_()
    state["list"].append("later")
    assert torch.equal(copy["model"]["weight"], want)
    assert len(copy["list"]) == 4
    assert type(copy["model"]) is OrderedDict
    assert type(copy["model"]["parameter"]) is torch.Tensor
    assert not copy["model"]["parameter"].requires_grad
    assert copy["list"][0].stride() == state["list"][0].stride()
    assert copy["tuple"][1] == 0.5
    assert type(copy["tuple"][1]) is float


def test_a_copy_is_made_into_the_one_before() -> None:
    state = make_state()
    before = copy_to_cpu(state)
    state["model"]["weight"].add_(1)
    after = copy_to_cpu(state, into=before)
    assert torch.equal(after["model"]["weight"], state["model"]["weight"])
    assert after["model"]["weight"].data_ptr() == before["model"]["weight"].data_ptr()
    assert after["list"][0].data_ptr() == before["list"][0].data_ptr()


def test_a_copy_is_right_whatever_it_is_made_into() -> None:
    state = make_state()
    for into in (None, 3, {}, {"model": 3, "list": [1], "tuple": (state["model"]["weight"], 4)}, [1, 2]):
        copy = copy_to_cpu(state, into=into)
        assert torch.equal(copy["model"]["weight"], state["model"]["weight"])
        assert copy["tuple"][0] == 3
    changed = {**state, "model": {"weight": torch.rand(5, 4), "parameter": torch.rand(2).double()}}
    copy = copy_to_cpu(changed, into=copy_to_cpu(state))
    assert torch.equal(copy["model"]["weight"], changed["model"]["weight"])
    assert copy["model"]["parameter"].dtype == torch.float64


def test_what_a_checkpoint_cannot_hold_is_refused_in_the_trainer() -> None:
    with pytest.raises(CheckpointError, match=r"numpy\.ndarray"):
        copy_to_cpu({"a": np.zeros(3)})


class Gate(Store):
    """A store whose writing waits for leave."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, 10, print)
        self.began = threading.Semaphore(0)
        self.leave = threading.Semaphore(0)

    def save(
        self, state: Any, *, step: int, meta: Mapping[str, Any], rest: Callable[[float], None] = lambda _: None
    ) -> Path:
        self.began.release()
        assert self.leave.acquire(timeout=20)
        rest(2.0)
        return super().save(state, step=step, meta=meta)


class Told:
    def __init__(self) -> None:
        self.saved: list[int] = []
        self.failed: list[tuple[int, Exception]] = []

    def writer(self, store: Store, **options: Any) -> BackgroundWriter:
        return BackgroundWriter(
            store,
            lambda step, path: self.saved.append(step),
            lambda step, error: self.failed.append((step, error)),
            **options,
        )


def test_the_newest_waits_and_an_older_one_is_dropped(tmp_path: Path) -> None:
    store, told = Gate(tmp_path), Told()
    writer = told.writer(store)
    writer.submit({"step": 1}, 1, {})
    assert store.began.acquire(timeout=20)
    for step in (2, 3, 4):
        writer.submit({"step": step}, step, {"epoch": step})
    store.leave.release(2)
    writer.wait()
    assert told.saved == [1, 4]
    found = store.newest()
    assert found is not None
    assert (found.step, found.state, found.meta) == (4, {"step": 4}, {"epoch": 4})


def test_submit_does_not_wait(tmp_path: Path) -> None:
    store, told = Gate(tmp_path), Told()
    writer = told.writer(store)
    writer.submit({"step": 1}, 1, {})
    assert told.saved == []
    store.leave.release()
    writer.wait()
    assert told.saved == [1]


def test_a_failure_is_reported_and_the_next_is_written(tmp_path: Path) -> None:
    told = Told()
    blocked = tmp_path / "checkpoints"
    blocked.write_text("in the way")
    writer = told.writer(Store(blocked, 2, print))
    writer.submit({"step": 1}, 1, {})
    writer.wait()
    blocked.unlink()
    writer.submit({"step": 2}, 2, {})
    writer.wait()
    ((step, error),) = told.failed
    assert step == 1
    assert isinstance(error, CheckpointError)
    assert told.saved == [2]


def test_a_spare_state_is_never_one_that_is_still_to_be_written(tmp_path: Path) -> None:
    store, told = Gate(tmp_path), Told()
    writer = told.writer(store)
    states = [{"weight": torch.full((3,), float(step))} for step in range(3)]
    writer.submit(states[0], 0, {})
    assert store.began.acquire(timeout=20)
    assert writer.spare() is None
    writer.submit(states[1], 1, {})
    assert writer.spare() is None
    writer.submit(states[2], 2, {})
    assert writer.spare() is states[1]
    assert writer.spare() is None
    store.leave.release(2)
    writer.wait()
    assert writer.spare() is states[2]


def test_waiting_for_nothing_returns(tmp_path: Path) -> None:
    Told().writer(Store(tmp_path, 1, print)).wait()


class Rests(threading.Event):
    """What wakes a thread that rests; notes for how long it would rest."""

    def __init__(self) -> None:
        super().__init__()
        self.rests_s: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.rests_s.append(0.0 if self.is_set() or timeout is None else timeout)
        return True


def test_the_thread_rests_unless_someone_waits_for_it(tmp_path: Path) -> None:
    clock = [0.0]
    store, told, rests = Gate(tmp_path), Told(), Rests()
    writer = told.writer(store, clock=lambda: clock[0])
    writer._is_urgent = rests

    def submit(step: int) -> None:
        writer.submit({"step": step}, step, {})
        assert store.began.acquire(timeout=20)

    submit(1)
    writer.submit({"step": 2}, 2, {})
    store.leave.release()  # while the second one waits
    assert store.began.acquire(timeout=20)
    clock[0] += 3.0
    store.leave.release()  # later than half of the time between the two checkpoints
    writer.wait()
    assert rests.rests_s == []
    clock[0] += 10.0
    submit(3)
    clock[0] += 4.0
    store.leave.release()
    thread = writer._thread
    if thread is not None:
        thread.join()
    assert rests.rests_s == [6.0], "three times as long as it has worked"
    clock[0] += 10.0
    submit(4)
    rests.set()  # as `wait` does
    store.leave.release()
    writer.wait()
    assert rests.rests_s == [6.0, 0.0]
    assert told.saved == [1, 2, 3, 4]


def test_a_program_that_waits_or_has_stopped_training_ends_the_rest(tmp_path: Path) -> None:
    class Tired(Gate):
        def save(self, state: Any, *, step: int, meta: Mapping[str, Any], **_: Any) -> Path:
            return super().save(state, step=step, meta=meta, rest=lambda _: writer._rest(1e6))

    store, told = Tired(tmp_path), Told()
    writer = told.writer(store)
    for step, end_rest in enumerate((writer.wait, writer.hurry)):
        writer.submit({"step": step}, step, {})
        store.leave.release()
        end_rest()
        thread = writer._thread
        if thread is not None:
            thread.join(20)
        assert told.saved == list(range(step + 1))
