"""A program that runs alone: what it draws, what it may not do, what it goes on from, what it keeps."""

from __future__ import annotations

import itertools
import multiprocessing
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, TensorDataset, WeightedRandomSampler

import legato
from legato.core.errors import DataError, MismatchError, ProgramError
from legato.train.checkpoints.checkpoint import Store
from legato.train.checkpoints.saving import Saver
from legato.train.data import overlap
from legato.train.data.fingerprints import describe_dataset
from legato.train.data.loader import Loader
from legato.train.loop import elastic
from legato.train.loop.elastic import Reduction
from legato.train.process.job import check_same_data

NUM_STEPS = 3  # of a pass


def make_data(num_samples: int = 24, start: int = 0) -> TensorDataset:
    dice = torch.Generator().manual_seed(start)
    return TensorDataset(torch.randn(num_samples, 6, generator=dice), torch.randint(2, (num_samples,), generator=dice))


def make_run(micro_batch_size: int = 4, **options: Any) -> tuple[legato.train.loop.elastic.Run, nn.Module, Any]:
    run = legato.elastic(global_batch_size=8, micro_batch_size=micro_batch_size, **options)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run.prepare(model, optimizer)
    return run, model, optimizer


def passed(run: Any, model: nn.Module, optimizer: Any, data: Any) -> Iterator[None]:
    """Train for a pass; yields after each turn."""
    for inputs, targets in run.batches(data):
        run.backward(cross_entropy(model(inputs), targets))
        optimizer.step()
        optimizer.zero_grad()
        yield


# ---------------------------------------------------------------- random numbers


def drawn_by(micro_batch_size: int = 4, **options: Any) -> dict[str, tuple[float, ...]]:
    """Return what a program draws at each place that is not within a micro-batch; two epochs of two passes each."""
    run, model, optimizer = make_run(micro_batch_size, **options)
    found: dict[str, tuple[float, ...]] = {}

    def draw(place: str) -> None:
        found[place] = (random.random(), float(np.random.rand()), torch.rand(()).item())

    for epoch in run.epochs(2):
        draw(f"epoch {epoch} begins")
        for number in (1, 2):
            for _ in passed(run, model, optimizer, make_data()):
                if run.stepped:
                    draw(f"after step {run.step}")
            draw(f"pass {number} of epoch {epoch} is over")
            run.evaluate(model, make_data(10), cross_entropy)
            draw(f"pass {number} of epoch {epoch} is measured")
    return found


def test_what_is_drawn_between_micro_batches_depends_on_the_place_alone() -> None:
    want = drawn_by(8)
    assert len(want) == len(set(want.values())) == 2 * (1 + 2 * (NUM_STEPS + 2))
    # Another number of workers has other last micro-batches on each of them, as has another cut of the same steps.
    for micro_batch_size in (2, 4):
        assert drawn_by(micro_batch_size) == want


@pytest.mark.parametrize(
    "step", [NUM_STEPS, NUM_STEPS + 1, 2 * NUM_STEPS + 1], ids=["end of a pass", "next pass", "next epoch"]
)
def test_a_worker_that_comes_later_draws_as_those_that_were_there(
    tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = Saver.save

    def save_and_wait(saver: Saver, *arguments: Any) -> None:
        save(saver, *arguments)
        saver.wait()  # otherwise a later checkpoint may take the place of one that waits

    monkeypatch.setattr(Saver, "save", save_and_wait)
    want = drawn_by(checkpoint_dir=tmp_path, checkpoint_every=f"{step}steps", keep=9)
    for path in Store(tmp_path, 9, pytest.fail).paths():
        if path.stem != f"step-{step:08}":
            path.unlink()
    got = drawn_by(checkpoint_dir=tmp_path, resume=True)
    missed = {f"after step {number}" for number in range(1, step + 1)}
    if step > 2 * NUM_STEPS:
        missed |= {place for place in want if "epoch 0" in place}
    assert want.keys() - got.keys() == missed
    assert got == {place: want[place] for place in got}


# ---------------------------------------------------------------- the end of a loop


def test_a_loop_that_is_left_is_a_pass_and_leaves_nothing_behind() -> None:
    """Left in the middle of its second step, after an evaluation and in the middle of a turn."""
    run, model, optimizer = make_run()
    data = TensorDataset(torch.randn(24, 6), torch.zeros(24, dtype=torch.int64), torch.arange(24))
    seen: list[list[int]] = []
    buffers: list[torch.Tensor] = []
    for epoch in run.epochs(3):
        seen.append([])
        for inputs, targets, numbers in run.batches(data):
            loss = cross_entropy(model(inputs), targets)
            if epoch == 1 and len(seen[-1]) == 12:
                break
            seen[-1] += numbers.tolist()
            run.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            if run.stepped:
                run.evaluate(model, make_data(10), cross_entropy)
                buffers = [buffer.clone() for buffer in model.buffers()]
        if epoch == 1:
            assert (run.step, run.stepped) == (NUM_STEPS + 1, False)
            assert all(map(torch.equal, model.buffers(), buffers))
    assert [len(numbers) for numbers in seen] == [24, 12, 24]
    assert sorted(seen[2]) == list(range(24)) != seen[2]
    assert len({tuple(numbers[:12]) for numbers in seen}) == 3
    assert run.step == 2 * NUM_STEPS + 1


def test_an_evaluation_gives_every_module_back_its_mode() -> None:
    run, model, optimizer = make_run()
    model[1].eval()
    modes: list[Any] = []

    def metric(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        modes.append([module.training for module in model.modules()])
        return outputs.sum(1)

    for _ in passed(run, model, optimizer, make_data()):
        if run.stepped:
            run.evaluate(model, make_data(8), metric)
    assert modes[0] == [False] * 5
    assert [module.training for module in model.modules()] == [True, True, False, True, True]


# ---------------------------------------------------------------- what is refused


def test_reentrant_checkpointing_needs_run_backward() -> None:
    def train(reentrant: bool | None, of_run: bool) -> list[torch.Tensor]:
        run = legato.elastic(global_batch_size=8, micro_batch_size=4)
        parts = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))
        optimizer = torch.optim.SGD(parts.parameters(), 0.1)
        run.prepare(parts, optimizer)
        for inputs, _ in run.batches(make_data()):
            hidden = inputs.requires_grad_()
            for part in parts:
                hidden = part(hidden) if reentrant is None else checkpoint(part, hidden, use_reentrant=reentrant)
            loss = hidden.square().mean()
            run.backward(loss) if of_run else loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return [parameter.detach().clone() for parameter in parts.parameters()]

    want = train(None, True)
    for reentrant, of_run in [(True, True), (False, True), (False, False)]:
        assert all(map(torch.equal, train(reentrant, of_run), want))
    with pytest.raises(ProgramError, match=r"reentrant activation checkpointing call run\.backward\(loss\)"):
        train(True, False)


def test_a_second_loop_over_epochs_is_refused() -> None:
    run, model, optimizer = make_run()
    for _ in run.epochs(1):
        for _ in passed(run, model, optimizer, make_data()):
            pass
    with pytest.raises(ProgramError, match=r"run\.epochs was called a second time.* Loop over all epochs at once"):
        next(run.epochs(2))
    assert run.step == NUM_STEPS


def test_a_model_is_trained_again_by_another_run_with_another_optimizer() -> None:
    """As in a notebook. It trains as a model with the same weights that no run has had before."""

    def train(model: nn.Module) -> float | None:
        run = legato.elastic(global_batch_size=8, micro_batch_size=4)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        run.prepare(model, optimizer)
        for _ in run.epochs(1):
            for _ in passed(run, model, optimizer, make_data()):
                pass
        return run.loss

    again, fresh = nn.Linear(6, 2), nn.Linear(6, 2)
    train(again)
    fresh.load_state_dict(again.state_dict())
    assert train(again) == train(fresh)
    assert torch.equal(again.weight, fresh.weight)
    with pytest.raises(ProgramError, match="was not prepared"):
        torch.optim.SGD(again.parameters(), 0.1).step()


def test_a_data_loader_is_refused_by_name() -> None:
    run, model, _ = make_run()
    loader = DataLoader(make_data(), batch_size=8)
    with pytest.raises(DataError, match=r"Cannot cut a DataLoader .* Pass the data set itself.* and run\.evaluate\.$"):
        next(iter(run.batches(loader)))  # type: ignore[arg-type]
    with pytest.raises(DataError, match="Cannot cut a DataLoader"):
        run.evaluate(model, loader, cross_entropy)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        ({"sampler": WeightedRandomSampler([1.0] * 64, 64)}, "WeightedRandomSampler, .*list.sampler.* shuffle=False"),
        ({"sampler": RandomSampler(range(64), replacement=True)}, "RandomSampler, pass"),
        ({"batch_sampler": [[0, 1], [2, 3]]}, r"for number in batch"),
        ({"shuffle": True}, r"run\.evaluate\.$"),
    ],
)
def test_the_order_of_a_data_loader_is_explained(arguments: dict[str, Any], advice: str) -> None:
    run, _, _ = make_run()
    with pytest.raises(DataError, match=advice):
        next(iter(run.batches(DataLoader(make_data(), **arguments))))  # type: ignore[arg-type]


def test_a_data_set_without_numbers_is_refused() -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return iter(())

    run, _, _ = make_run()
    with pytest.raises(DataError, match=r"a Stream .* list\(dataset\) is one"):
        next(iter(run.batches(Stream())))


class Unsteady(TensorDataset):
    """Another sample each time: by a generator of its own, by a count, by a clock."""

    def __init__(self, how: str) -> None:
        super().__init__(*make_data().tensors)
        self.how = how
        self.dice = np.random.default_rng(3)
        self.num_reads = 0

    def __getitem__(self, index: int) -> Any:
        inputs, target = super().__getitem__(index)
        self.num_reads += 1
        amount = {"dice": self.dice.random(), "count": self.num_reads, "clock": time.perf_counter_ns() % 1e6}
        return inputs + amount[self.how] if self.how in amount else inputs + np.random.rand() + torch.rand(1), target


@pytest.mark.parametrize("how", ["dice", "count", "clock"])
def test_a_data_set_whose_samples_depend_on_who_reads_them_is_refused(how: str) -> None:
    run, _, _ = make_run()
    with pytest.raises(DataError, match=r"Unsteady of 24 samples\) gives another sample 0 .* global generators"):
        next(iter(run.batches(Unsteady(how))))


@pytest.mark.parametrize(("how", "reduction"), [("global generators", "exact"), ("dice", "fast")])
def test_a_data_set_may_draw_from_the_global_generators_and_with_fast_sums_from_any(
    how: str, reduction: Reduction
) -> None:
    run, model, optimizer = make_run(reduction=reduction)
    for _ in passed(run, model, optimizer, Unsteady(how)):
        pass
    assert run.step == NUM_STEPS


class Table(TensorDataset):
    """Samples with a row of objects, as a table has it; each is made when it is read."""

    made: Final[list[Any]] = []  # so that no row gets the address of an earlier one

    def __getitem__(self, index: int) -> Any:
        self.made.append(np.array([float(f"{index}.5"), f"row {index}"], dtype=object))
        return *super().__getitem__(index), self.made[-1]


def test_rows_of_objects_are_compared_by_what_they_hold() -> None:
    assert describe_dataset(Table(*make_data().tensors), 1, exact=True).startswith("Table of 24 samples, first ")


def test_with_fast_sums_a_data_set_that_draws_is_the_same_one_whatever_it_draws() -> None:
    # Equal samples in two readings do not show that a third one equals them.
    class Flipping(TensorDataset):
        flips = iter([False, False, False, True, True, True])

        def __getitem__(self, index: int) -> Any:
            return -self.tensors[0][index] if next(self.flips) else self.tensors[0][index]

    dataset = Flipping(*make_data().tensors)
    told = {describe_dataset(dataset, 1, exact=False) for _ in range(3)}
    assert told == {"Flipping of 24 samples"}
    check_same_data("Flipping of 24 samples, first 0123456789abcdef", *told, "an earlier checkpoint")


def test_to_go_on_with_another_data_set_is_refused(tmp_path: Path) -> None:
    def train(data: TensorDataset, *, resume: bool) -> int:
        run, model, optimizer = make_run(checkpoint_dir=tmp_path, checkpoint_every="1steps", resume=resume)
        for _ in run.epochs(1 + resume):
            for _ in passed(run, model, optimizer, data):
                pass
        return run.step

    train(make_data(), resume=False)
    with pytest.raises(MismatchError) as refusal:
        train(make_data(start=1), resume=True)
    one = r"TensorDataset of 24 samples, first (\w{16})\."
    assert "data set differs from that of the checkpoint" in str(refusal.value)
    found = re.search(f"This one: {one} The other one: {one}", str(refusal.value))
    assert found is not None and found[1] != found[2], refusal.value
    assert train(make_data(), resume=True) == 2 * NUM_STEPS


# ---------------------------------------------------------------- loaders


def test_the_loaders_that_were_used_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Any] = []
    close = Loader.close

    def note(loader: Loader) -> None:
        closed.append(loader._fetcher.dataset)
        close(loader)

    monkeypatch.setattr(Loader, "close", note)
    monkeypatch.setattr(elastic, "_MAX_LOADERS", 2)
    run, model, optimizer = make_run()
    first, second, third, measured = (make_data(8, start) for start in range(4))

    def use(data: TensorDataset) -> None:
        for _ in passed(run, model, optimizer, data):
            pass
        run.evaluate(model, measured, cross_entropy)

    for data in (first, second, first):
        use(data)
    assert closed == []
    use(third)
    assert closed == [second], "the first was used after it, and evaluations have loaders of their own"
    use(first)
    assert closed == [second]


# ---------------------------------------------------------------- notes


def test_the_end_of_the_loop_ends_the_processes_that_load() -> None:
    run, model, optimizer = make_run()
    for _ in run.epochs(1):
        for inputs, targets in run.batches(make_data(), num_workers=1):
            run.backward(cross_entropy(model(inputs), targets))
            optimizer.step()
            optimizer.zero_grad()
        run.evaluate(model, make_data(), cross_entropy, num_workers=1)
        assert len(multiprocessing.active_children()) == 2
    assert multiprocessing.active_children() == []


def test_a_process_loads_ahead_what_takes_long_if_the_program_lets_legato_decide(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # Loading takes half of the time, by this clock, and comparing the data set takes none.
    usual, ticks = elastic.Overlap, itertools.count()
    clock = {"clock": lambda: float(next(ticks)), "find_obstacle": lambda *_: None}
    monkeypatch.setattr(elastic, "Overlap", lambda *things, **options: usual(*things, **options, **clock))
    monkeypatch.setattr(overlap, "_MAX_COMPARING", 1e9)

    def train(**options: Any) -> tuple[list[torch.Tensor], int]:
        run, model, optimizer = make_run()
        data, num_processes = make_data(80), 0
        for _ in run.epochs(2):
            for inputs, targets in run.batches(data, **options):
                run.backward(cross_entropy(model(inputs), targets))
                optimizer.step()
                optimizer.zero_grad()
                num_processes = max(num_processes, len(multiprocessing.active_children()))
        return [parameter.detach() for parameter in model.parameters()], num_processes

    (want, none), (got, one) = train(), train(num_workers="auto")
    assert (none, one) == (0, 1)
    assert all(map(torch.equal, got, want))
    assert multiprocessing.active_children() == []
    assert "info: Loading takes 50% of the time of a step, so a process now loads ahead." in capfd.readouterr().err


def test_what_each_turn_noted_is_known_after_the_step() -> None:
    run, model, optimizer = make_run()
    assert run.notes == {}
    found = []
    for turn, (inputs, targets) in enumerate(run.batches(make_data())):
        run.note(twice=2 * turn, turn=torch.tensor(turn))
        run.note(turn=turn)  # the last one counts
        run.backward(cross_entropy(model(inputs), targets))
        optimizer.step()
        if run.stepped:
            found.append(run.notes)
    assert found == [{"turn": (t, t + 1.0), "twice": (2.0 * t, 2.0 * t + 2)} for t in (0, 2, 4)]


def test_what_was_noted_outlives_that_a_layer_freezes() -> None:
    run, model, optimizer = make_run()
    found = []
    for turn, (inputs, targets) in enumerate(run.batches(make_data())):
        found.append(run.notes.get("turn"))
        run.note(turn=turn)
        run.backward(cross_entropy(model(inputs), targets))
        if run.stepped:
            optimizer.step()
            next(iter(model.parameters())).requires_grad_(run.step > 1)
    assert found == [None, None, (0.0, 1.0), (0.0, 1.0), (2.0, 3.0), (2.0, 3.0)]


def test_a_note_outside_of_a_micro_batch_is_refused() -> None:
    run, model, _ = make_run()
    with pytest.raises(ProgramError, match="before the backward pass"):
        run.note(accuracy=1)
    for inputs, targets in run.batches(make_data()):
        run.backward(cross_entropy(model(inputs), targets))
        with pytest.raises(ProgramError, match="before the backward pass"):
            run.note(accuracy=1)


def test_a_backward_pass_outside_of_the_loop_over_batches_is_refused() -> None:
    run, model, _ = make_run()
    for epoch in run.epochs(2):
        for inputs, targets in DataLoader(make_data(), batch_size=8):
            with pytest.raises(ProgramError, match="instead of a DataLoader of your own"):
                run.backward(cross_entropy(model(inputs), targets))
        for inputs, targets in run.batches(make_data()) if epoch == 0 else ():
            run.backward(cross_entropy(model(inputs), targets))


def test_an_optimizer_step_outside_of_the_loop_over_batches_is_refused_if_it_would_lose_gradients() -> None:
    run, model, optimizer = make_run()
    optimizer.step()  # loses nothing: some programs do it before their first epoch
    for _ in run.epochs(1):
        for inputs, targets in DataLoader(make_data(), batch_size=8):
            cross_entropy(model(inputs), targets).backward()
            with pytest.raises(ProgramError, match="instead of a DataLoader of your own"):
                optimizer.step()
            optimizer.zero_grad()
            optimizer.step()


def test_turns_of_a_step_note_the_same_names() -> None:
    run, model, _ = make_run()
    turns = run.batches(make_data())
    inputs, targets = next(turns)
    run.note(accuracy=1)
    run.backward(cross_entropy(model(inputs), targets))
    inputs, targets = next(turns)
    with pytest.raises(ProgramError, match="noted nothing, another one of the same step accuracy"):
        run.backward(cross_entropy(model(inputs), targets))
