"""Workers that hold different states find it out, and name what differs and what usually causes it."""

from __future__ import annotations

import copy
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.train.jobs import LIMIT_S, Job, Worker, left_as
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import TensorDataset

from legato.core import wire
from legato.core.errors import BrokenView, ProgramError
from legato.train.checkpoints import checkpoint
from legato.train.data.order import Layout
from legato.train.membership import state_transfer
from legato.train.membership.groups import Group
from legato.train.state.agreement import NO_WORD, Agreement, OnDifference
from legato.train.state.differences import Difference, describe
from legato.train.state.named_state import Item

# Three micro-batches: of two workers one has two, so what happens once per turn happens more often there.
LAYOUT = Layout(6, 2)
DATA = TensorDataset(torch.linspace(-1.0, 2.0, 60).reshape(30, 2))  # five steps
PAIRS = TensorDataset(torch.ones(12, 3), torch.ones(12, 1))
ENDLESS = TensorDataset(torch.linspace(-1.0, 2.0, 60_000).reshape(30_000, 2))
Turn = Callable[[Worker, nn.Module, torch.Tensor], None]


class Net(nn.Module):
    """A linear layer, and room for what goes wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1)
        nn.init.constant_(self.layer.weight, 0.1)
        nn.init.constant_(self.layer.bias, 0.1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.layer(inputs).squeeze(1)
        return output


class Assigning(Net):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()), persistent=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.mean = 0.9 * self.mean + inputs.detach().mean()
        return super().forward(inputs)


class Renormalising(Net):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(60, 2, max_norm=0.01)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        rows = ((inputs[:, 0] + 1) * 19).long().clamp(0, 59)
        return super().forward(inputs + self.table(rows))


class Quantising(Net):
    def __init__(self) -> None:
        super().__init__()
        self.codebook = nn.Parameter(torch.zeros(2), requires_grad=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.codebook.data.lerp_(inputs.detach().mean(0), 0.1)
        return super().forward(inputs)


class Remembering(Net):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("queue", torch.zeros(2**16 + 1))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.queue.data.add_(float(inputs.detach().sum()))
        return super().forward(inputs)


class Counting(Net):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if not self.training:
            self.seen += inputs.sum()
        return super().forward(inputs)


class Normalising(Net):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.mean += inputs.detach().mean()
        self.count += 1
        return super().forward(inputs)


class Masking(Net):
    """Makes a mask at its first call, and counts in another buffer that it makes then."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", None)
        self.register_buffer("total", None)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.mask is None:
            self.mask, self.total = torch.full((1, 2), 0.5), torch.zeros(())
        else:
            self.total += inputs.detach().sum()
        return super().forward(inputs * self.mask)


class Growing(Net):
    """Keeps a table that is as long as the largest input so far."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("angles", torch.zeros(0), persistent=False)
        self.register_buffer("late", None, persistent=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        places = (inputs[:, 0] + 1).mul(10).long()
        if len(self.angles) <= int(places.max()):
            self.angles = torch.arange(int(places.max()) + 1) * 0.1
            self.late = self.angles.sin()
        return super().forward(inputs + self.late[places].unsqueeze(1))


class Drifting(Net):
    """Keeps a factor of the largest input so far, as rotary embeddings with dynamic scaling do."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("frequencies", torch.ones(2), persistent=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.frequencies = torch.maximum(self.frequencies, inputs.detach().amax(0))
        return super().forward(inputs * self.frequencies)


class Late(Net):
    """Sets a buffer in its first forward pass."""

    def __init__(self, numel: int) -> None:
        super().__init__()
        self.register_buffer("seen", None)
        self.numel = numel

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.seen is None:
            self.seen = torch.zeros(self.numel)
        with torch.no_grad():
            self.seen += 1.0
        return super().forward(inputs)


class Lonely(Net):
    """Keeps an input of the last step, which most workers never meet."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", None, persistent=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.kept is None and 1.89 < float(inputs.detach().max()) < 1.9:
            self.kept = inputs.detach().amax(0)
        return super().forward(inputs)


def do_nothing(worker: Worker, model: nn.Module, inputs: torch.Tensor) -> None:
    """A turn of which nothing can be said."""


def shrink(worker: Worker, model: nn.Module, inputs: torch.Tensor) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.9)


class Hasty(torch.optim.SGD):
    """Its learning rate falls with a count that it keeps to itself."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.count = 0

    def step(self, closure: Any = None) -> Any:
        self.count += 1
        self.param_groups[0]["lr"] = 0.01 / self.count
        return super().step(closure)


def train(
    make: Callable[[], nn.Module] = Net,
    each_turn: Turn = do_nothing,
    *,
    averages: bool = False,
    evaluates: bool = False,
    optimizer_type: Callable[..., torch.optim.Optimizer] = torch.optim.SGD,
    data: TensorDataset = DATA,
    reached: threading.Event | None = None,
) -> Callable[[Worker], Any]:
    """Return a program that trains for an epoch, and returns the parameters and buffers that it ends with."""

    def program(worker: Worker) -> Any:
        run, model = worker.run, make()
        optimizer = optimizer_type([p for p in model.parameters() if p.requires_grad], lr=0.01, momentum=0.9)
        run.prepare(model, optimizer)
        averaged = run.prepare(AveragedModel(model)) if averages else None
        for _ in run.epochs(1):
            for (inputs,) in run.batches(data):
                run.backward(model(inputs).square().mean())
                optimizer.step()
                optimizer.zero_grad()
                each_turn(worker, model, inputs)
                if averaged is not None:
                    averaged.update_parameters(model)
                if reached is not None and run.step == 10:
                    reached.set()
            if evaluates:
                pairs = TensorDataset(*data.tensors, torch.zeros(len(data)))
                run.evaluate(model, pairs, lambda outputs, _: outputs)
        return [tensor.detach().clone() for tensor in [*model.parameters(), *model.buffers()]]

    return program


@pytest.mark.parametrize(
    ("program", "piece", "cause", "step"),
    [
        (train(Assigning), "buffer mean", "that the program assigns", 1),
        (train(Drifting), "buffer frequencies", "that the program assigns", 2),
        (train(Renormalising), "parameter table.weight", "with max_norm", 1),
        (train(Quantising), "parameter codebook", "Parameters in no prepared optimizer", 1),
        (train(averages=True), "of model 1 (AveragedModel)", "update_parameters under `if run.stepped:`", 3),
        (train(each_turn=shrink), "parameter layer.weight", "Change them under `if run.stepped:`", 1),
        (train(Remembering), "buffer queue", "more than 65,536 elements", 1),
        (train(Counting, evaluates=True), "buffer seen", "by the forward pass of an evaluation", 5),
    ],
    ids=["assigned", "cache", "max_norm", "codebook", "averaged", "each turn", "large", "evaluation"],
)
def test_workers_that_differ_stop_and_name_the_cause(
    job: Job, program: Callable[[Worker], Any], piece: str, cause: str, step: int
) -> None:
    errors = [worker.end() for worker in job.begin(2, program)]
    assert all(type(error) is ProgramError for error in errors), errors
    told = str(errors[0])
    assert told == str(errors[1])
    assert told.startswith(f"After step {step} the workers do not hold the same state.")
    assert piece in told.splitlines()[1]
    assert "rank 0 has " in told and "rank 1 has " in told
    assert "With two workers it is unknown which of them is right." in told
    assert told.count(cause) == 1


class Sorted(TensorDataset):
    """Gives the samples with the largest losses first."""

    def __init__(self) -> None:
        super().__init__(*DATA.tensors)
        self.losses = torch.zeros(len(DATA))
        self.order = torch.arange(len(DATA))

    def __getitem__(self, index: int) -> tuple[torch.Tensor, ...]:
        return (*super().__getitem__(int(self.order[index])), self.order[index])


def train_hardest_first(*, own_losses: bool) -> Callable[[Worker], Any]:
    """Return a program that sorts its data set, by losses of this worker alone or by what all workers know."""

    def program(worker: Worker) -> Any:
        run, model, data = worker.run, Net(), Sorted()
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        run.prepare(model, optimizer)
        for _ in run.epochs(3):
            for inputs, numbers in run.batches(data):
                losses = model(inputs).square()
                data.losses[numbers] = losses.detach()
                run.backward(losses.mean())
                optimizer.step()
                optimizer.zero_grad()
            data.order = (data.losses if own_losses else data.tensors[0][:, 0]).argsort(descending=True)
        return [parameter.detach().clone() for parameter in model.parameters()]

    return program


def test_a_data_set_that_each_worker_changes_by_its_own_losses_is_named(job: Job) -> None:
    for worker in job.begin(2, train_hardest_first(own_losses=True)):
        told = str(worker.end())
        assert "  data set of this pass: rank 0 has " in told
        assert "what this worker alone has computed" in told


def test_a_data_set_that_all_workers_change_alike_is_no_difference(job: Job) -> None:
    one, other = (worker.end() for worker in job.begin(2, train_hardest_first(own_losses=False)))
    assert all(map(torch.equal, one, other))


@pytest.mark.parametrize("on_difference", ["stop", "warn"])
def test_a_buffer_that_workers_set_to_different_shapes_is_named_with_each_shape(
    job: Job, on_difference: OnDifference
) -> None:
    job.on_difference = on_difference
    sizes = iter([3, 2, 3])
    errors = [str(worker.end()) for worker in job.begin(3, train(lambda: Late(next(sizes))))]
    assert len(set(errors)) == 1, errors
    assert "'seen'" in errors[0] and "float32 [2] on rank " in errors[0], errors[0]
    assert re.search(r"float32 \[3\] on ranks \d, \d", errors[0]), errors[0]
    assert "Register it with a tensor of its final shape" in errors[0]


def test_a_cache_that_only_one_worker_holds_is_warned_of_once(job: Job) -> None:
    workers = job.begin(2, train(Lonely))
    ends = [worker.end() for worker in workers]
    assert not any(isinstance(end, BaseException) for end in ends), ends
    notes = [[note.text for note in said(worker, wire.Note) if "Only rank" in note.text] for worker in workers]
    (text,) = notes[0] + notes[1]
    assert "has set the buffer kept (persistent=False)" in text


def sample(
    is_due: Callable[[Worker], bool], *, between_passes: bool = False, make: Callable[[], nn.Module] = Normalising
) -> Callable[[Worker], Any]:
    """Return a program of two epochs that also calls its model in training mode: after steps, or between passes."""

    def program(worker: Worker) -> Any:
        run, model = worker.run, make()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        run.prepare(model, optimizer)
        for _ in run.epochs(2):
            for (inputs,) in run.batches(DATA):
                run.backward(model(inputs).square().mean())
                optimizer.step()
                if not between_passes and run.stepped and is_due(worker):
                    model(DATA.tensors[0])
            if between_passes and is_due(worker):
                model(DATA.tensors[0])
        return [buffer.tolist() for buffer in model.buffers()]

    return program


@pytest.mark.parametrize(("step", "between_passes"), [(3, False), (5, False), (5, True)])
@pytest.mark.parametrize("num_workers", [2, 3])
def test_buffers_that_the_program_changes_on_one_worker_are_found_though_the_next_step_makes_them_equal(
    job: Job, step: int, between_passes: bool, num_workers: int
) -> None:
    program = sample(lambda worker: worker.run.is_main and worker.run.step == step, between_passes=between_passes)
    errors = [str(worker.end()) for worker in job.begin(num_workers, program)]
    assert len(set(errors)) == 1, errors
    assert errors[0].startswith(f"After step {step} the program changed buffers on some workers only")
    others = "rank 1" if num_workers == 2 else "ranks 1, 2"
    assert f"\n  buffer mean: changed on rank 0, and not on {others}\n  buffer count: changed on" in errors[0]
    assert errors[0].count("under `if run.is_main:` (call model.eval() before it") == 1


def test_with_warn_a_change_on_one_worker_marks_the_run(job: Job) -> None:
    job.on_difference = "warn"
    program = sample(lambda worker: worker.run.is_main and worker.run.step in (3, 6))
    workers = job.begin(2, program)
    ends = [worker.end() for worker in workers]
    assert ends[0] == ends[1], ends
    for worker in workers:
        (told,) = said(worker, wire.Differed)
        assert told.step == 3 and "buffer mean" in told.text and "the run is not exact" in told.text


@pytest.mark.parametrize("step", [3, 7])
def test_buffers_that_each_worker_changes_by_its_own_samples_are_found(job: Job, step: int) -> None:
    def program(worker: Worker) -> Any:
        run, model = worker.run, Normalising()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        run.prepare(model, optimizer)
        for _ in run.epochs(2):
            for (inputs,) in run.batches(DATA):
                run.backward(model(inputs).square().mean())
                optimizer.step()
                if run.step == step:
                    model(inputs)

    errors = [str(worker.end()) for worker in job.begin(2, program)]
    assert len(set(errors)) == 1, errors
    assert errors[0].startswith(f"After step {step} the program changed buffers to different values on different work")
    assert "\n  buffer mean: changed to different values\n" in errors[0] and "buffer count" not in errors[0]
    assert "(call model.eval() before it), or one of an evaluation" in errors[0]


def test_buffers_that_one_worker_changes_and_puts_back_are_no_difference(job: Job) -> None:
    def program(worker: Worker) -> Any:
        run, model = worker.run, Normalising()
        run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
        average = copy.deepcopy(model.state_dict())
        for _ in run.epochs(2):
            for (inputs,) in run.batches(DATA):
                run.backward(model(inputs).square().mean())
                if run.stepped and run.is_main:
                    kept = copy.deepcopy(model.state_dict())
                    model.load_state_dict(average)
                    model.load_state_dict(kept)
                    model.mean = kept["mean"]
        return [buffer.tolist() for buffer in model.buffers()]

    ends = [worker.end() for worker in job.begin(2, program)]
    assert ends[0] == ends[1] and isinstance(ends[0], list), ends


def test_changes_before_the_last_step_are_found_if_the_program_leaves_its_loop_after_it(job: Job) -> None:
    def program(worker: Worker) -> Any:
        run, model = worker.run, Normalising()
        run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
        for _ in run.epochs(1):
            for (inputs,) in run.batches(DATA):
                run.backward(model(inputs).square().mean())
                if run.stepped and run.step == 4:
                    break
                if run.stepped and run.step == 3 and run.is_main:
                    model(inputs)

    for worker in job.begin(2, program):
        assert str(worker.end()).startswith("After step 3 the program changed buffers on some workers only")


def test_changes_after_the_last_step_of_a_pass_and_before_the_next_pass_are_both_compared(job: Job) -> None:
    def program(worker: Worker) -> Any:
        run, model = worker.run, Normalising()
        run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
        for _ in run.epochs(2):
            for (inputs,) in run.batches(DATA):
                run.backward(model(inputs).square().mean())
                if run.step == 5 and run.is_main:
                    model.count.add_(7)
            model.mean.add_(1.0)

    for worker in job.begin(2, program):
        assert "buffer count: changed on rank 0, and not on rank 1" in str(worker.end())


@pytest.mark.parametrize("between_passes", [True, False])
def test_buffers_that_the_program_changes_on_all_workers_are_no_difference(job: Job, between_passes: bool) -> None:
    ends = [worker.end() for worker in job.begin(3, sample(lambda _: True, between_passes=between_passes))]
    assert ends[0] == ends[1] == ends[2]
    assert ends[0][1] == (12 if between_passes else 20)


def test_a_scheduler_that_gets_other_values_on_each_worker_is_found_after_the_first_pass(job: Job) -> None:
    def program(worker: Worker) -> Any:
        run, model = worker.run, Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
        run.prepare(model, optimizer, scheduler)
        loss = torch.zeros(())
        for _ in run.epochs(3):
            for (inputs,) in run.batches(DATA):
                loss = model(inputs).square().mean()
                run.backward(loss)
                optimizer.step()
            scheduler.step(loss.item())

    told = str(job.begin(2, program)[0].end())
    assert told.startswith("After step 5 the workers do not hold the same state.")
    assert "best in ReduceLROnPlateau" in told


def test_a_cache_that_the_program_sets_on_one_worker_is_no_difference(job: Job) -> None:
    class Caching(Net):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("cache", torch.zeros(3), persistent=False)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            if len(inputs) > 2:
                self.cache.fill_(1.0)
            return super().forward(inputs)

    program = sample(lambda worker: worker.run.step in (3 + worker.run.rank, 5), make=Caching)
    assert [worker.end() for worker in job.begin(2, program)] == [[[1.0] * 3]] * 2


@pytest.mark.parametrize("deaths", [0, 1])
def test_a_joiner_receives_the_buffers_that_the_others_have_changed_before_its_first_step(
    job: Job, deaths: int
) -> None:
    reached, there = threading.Event(), threading.Event()

    def program(worker: Worker) -> Any:
        run, model = worker.run, Normalising()
        run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.001))
        for (inputs,) in run.batches(ENDLESS):
            if run.step == 3:
                reached.set()
                assert there.wait(LIMIT_S)
                if deaths and worker is job.workers[1]:
                    raise SystemExit
            run.backward(model(inputs).square().mean())
            if run.stepped:
                model(inputs[:1] * 0 + run.step)
                if run.step > 9 and run.num_workers == 3:
                    break
        return [buffer.tolist() for buffer in model.buffers()]

    workers = job.begin(3 if deaths else 2, program)
    assert reached.wait(LIMIT_S)
    joiner = job.start(program)
    left = [worker for worker in workers if not deaths or worker is not workers[1]]
    if not deaths:
        job.propose(*workers, joiner)
    there.set()
    if deaths:
        joiner.await_message(wire.Warm)
        workers[1].end()
        job.recover(*left, joiner)
    ends = [worker.end() for worker in [*left, joiner]]
    assert ends[0] == ends[1] == ends[2] and isinstance(ends[0], list), ends


def test_a_joiner_that_waits_from_an_evaluation_on_receives_what_the_others_change_after_it(job: Job) -> None:
    reached, there = threading.Event(), threading.Event()

    def program(worker: Worker) -> Any:
        run, model = worker.run, Normalising()
        run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.001))

        def measure(outputs: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
            if run.epoch == 0 and worker in workers:
                reached.set()
                assert there.wait(LIMIT_S)
                if worker is workers[1]:
                    raise SystemExit
            return outputs.square().mean()

        for _ in run.epochs(2):
            for (inputs,) in run.batches(DATA):
                run.backward(model(inputs).square().mean())
            run.evaluate(nn.Linear(3, 1), PAIRS, measure)
            model.mean.add_(1.0)
        return [buffer.tolist() for buffer in model.buffers()]

    workers: list[Worker] = []
    workers += [job.start(program) for _ in range(3)]
    job.propose(*workers)
    assert reached.wait(LIMIT_S)
    joiner = job.start(program)
    joiner.await_message(wire.Warm)
    there.set()
    workers[1].end()
    left = [workers[0], workers[2], joiner]
    job.recover(*left)
    ends = [worker.end() for worker in left]
    assert ends[0] == ends[1] == ends[2] and isinstance(ends[0], list), ends


def test_only_one_rank_that_knows_of_uneven_changes_drops_them_in_the_next_view() -> None:
    rank = Agreement(list, torch.device("cpu"))
    rank.note_changes({0: torch.ones(2)})
    rank.hear([rank.word(None), [*NO_WORD]])
    assert rank.uneven
    rank.begin_view()
    assert rank.uneven is None


def test_counts_that_an_optimizer_keeps_to_itself_are_found_after_a_join(job: Job) -> None:
    reached = threading.Event()
    program = train(optimizer_type=Hasty, data=ENDLESS, reached=reached)
    (first,) = job.begin(1, program)
    assert reached.wait(LIMIT_S)
    second = job.start(program)
    job.propose(first, second)
    told = str(first.end())
    assert "lr of group 0 in Hasty" in told and "Hasty has count." in told, told
    assert "still the same" in told  # as it joined


@pytest.mark.parametrize("make", [Masking, Growing])
@pytest.mark.parametrize("num_workers", [1, 3])
def test_buffers_that_forward_makes_of_its_inputs_form_train_and_reach_a_joiner(
    job: Job, make: Callable[[], nn.Module], num_workers: int
) -> None:
    reached, there = threading.Event(), threading.Event()

    def program(worker: Worker) -> Any:
        run, model = worker.run, make()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
        run.prepare(model, optimizer)
        for (inputs,) in run.batches(ENDLESS):
            if run.step == 3:
                reached.set()
                assert there.wait(LIMIT_S)
            run.backward(model(inputs).square().mean())
            optimizer.step()
            optimizer.zero_grad()
            if run.num_workers > num_workers and run.step > 9 and run.stepped:
                break
        return copy.deepcopy(model.state_dict()), worker.session.agreement.agreed_step

    workers = job.begin(num_workers, program)
    assert reached.wait(LIMIT_S)
    joiner = job.start(program)
    job.propose(*workers, joiner)
    there.set()
    ends = [worker.end() for worker in [*workers, joiner]]
    for state_dict, agreed_step in ends:
        assert agreed_step is not None and agreed_step > 3
        assert state_dict.keys() == ends[0][0].keys()
        assert all(torch.equal(state_dict[name], ends[0][0][name]) for name in state_dict)


# ---------------------------------------------------------------- what follows


def said(worker: Worker, kind: type[wire.Message]) -> list[Any]:
    return [message for message in worker.said if isinstance(message, kind)]


def test_with_warn_training_goes_on_and_the_run_is_marked(job: Job) -> None:
    job.on_difference = "warn"
    workers = job.begin(2, train(Assigning))
    ends = [worker.end() for worker in workers]
    assert not torch.equal(ends[0][-1], ends[1][-1])
    for worker in workers:
        # Once for the same piece, and by every worker: one may die before the driver has heard it.
        (told,) = said(worker, wire.Differed)
        assert told.step == 1 and "buffer mean" in told.text and "the run is not exact" in told.text
        marks = [report.differed_step for report in said(worker, wire.Progress)]
        assert marks == [None, None, 1, 1, 1]


def test_with_repair_all_workers_end_with_the_state_of_rank_0(job: Job) -> None:
    job.on_difference = "repair"
    workers = job.begin(3, train(Assigning))
    ends = [worker.end() for worker in workers]
    for end in ends[1:]:
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(ends[0], end, strict=True))
    assert all(said(worker, wire.Differed)[0].step == 1 for worker in workers)


def test_a_repair_counts_what_rank_0_changed_unnoticed(job: Job) -> None:
    job.on_difference = "repair"
    first, second = (worker.end() for worker in job.begin(2, train(Remembering)))
    assert first[-1].any() and torch.equal(first[-1], second[-1])


def test_a_last_checkpoint_is_not_written_of_a_state_that_only_one_worker_has(saving_job: Job, tmp_path: Path) -> None:
    for worker in saving_job.begin(2, train(Counting, evaluates=True)):
        assert "buffer seen" in str(worker.end())
    assert not checkpoint.Store(tmp_path, 3, pytest.fail).steps()


@pytest.mark.parametrize("on_difference", ["stop", "repair"])
def test_a_death_while_the_workers_tell_what_they_hold_is_a_death_like_any_other(
    job: Job, monkeypatch: pytest.MonkeyPatch, on_difference: OnDifference
) -> None:
    job.on_difference = on_difference
    dead = threading.Event()
    find = Agreement.find

    def die(self: Agreement, group: Group) -> list[Difference]:
        if not dead.is_set() and group.rank == 2:
            dead.set()
            group.break_connections()
            raise SystemExit
        return find(self, group)

    monkeypatch.setattr(Agreement, "find", die)
    workers = job.begin(3, train(Assigning))
    assert dead.wait(LIMIT_S)
    job.recover(*workers[:2])
    ends = [worker.end() for worker in workers[:2]]
    if on_difference == "stop":
        assert "buffer mean" in str(ends[0]) and str(ends[0]) == str(ends[1])
    else:
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(*ends, strict=True))


def test_a_death_in_the_middle_of_a_repair_leaves_the_others_with_whole_states(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.on_difference = "repair"
    dead = threading.Event()
    send = state_transfer.send_tree

    def die(group: Group, sources: Any, joiners: Any, tree: Any) -> Any:
        if joiners == (1, 2) and sources == (0,) and not dead.is_set() and "cursor" in tree and tree["cursor"]["step"]:
            dead.set()
            group.break_connections()
            raise SystemExit
        return send(group, sources, joiners, tree)

    monkeypatch.setattr(state_transfer, "send_tree", die)
    workers = job.begin(3, train(Assigning))
    assert dead.wait(LIMIT_S)
    job.recover(*workers[1:])
    first, second = (worker.end() for worker in workers[1:])
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(first, second, strict=True))


def test_a_difference_that_only_some_know_of_when_the_view_breaks_marks_the_run_on_all(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.on_difference = "warn"
    dead = threading.Event()
    find = Agreement.find

    def find_and_break(self: Agreement, group: Group) -> list[Difference]:
        found = find(self, group)
        if group.rank == 2:
            dead.set()
            raise SystemExit
        if group.rank == 1 and group.size == 3:
            group.break_connections()
            raise BrokenView("of the test")
        return found

    def differ(worker: Worker, model: nn.Module, inputs: torch.Tensor) -> None:
        if worker.worker == 2:
            shrink(worker, model, inputs)

    monkeypatch.setattr(Agreement, "find", find_and_break)
    workers = job.begin(3, train(each_turn=differ))
    assert dead.wait(LIMIT_S)
    for worker in workers[:2]:
        worker.await_message(wire.Broken)
    job.recover(*workers[:2])
    first, second = (worker.end() for worker in workers[:2])
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(first, second, strict=True))
    for worker in workers[:2]:
        assert said(worker, wire.Progress)[-1].differed_step == 1


@pytest.mark.parametrize("on_difference", ["stop", "warn", "repair"])
def test_workers_compare_before_an_agreed_stop(saving_job: Job, tmp_path: Path, on_difference: OnDifference) -> None:
    saving_job.on_difference = on_difference

    def differ(worker: Worker, model: nn.Module, inputs: torch.Tensor) -> None:
        # No check is due between this step and the stop.
        if worker.run.step == 10 and worker.run.stepped and worker.worker == 1:
            shrink(worker, model, inputs)

    workers = saving_job.begin(2, train(each_turn=differ, data=ENDLESS))
    for worker in workers:
        worker.await_message(wire.Progress, last_step=11)
        worker.hear(wire.Stop(reason="the test"))
    store = checkpoint.Store(tmp_path, 3, pytest.fail)
    if on_difference == "stop":
        assert all("parameter layer.weight" in str(worker.end()) for worker in workers)
        assert not store.steps()
        return
    assert [left_as(worker) for worker in workers] == ["stopped", "stopped"]
    (step,) = store.steps()
    saved = checkpoint.load(tmp_path / f"step-{step:08}.legato").state
    assert saved["cursor"]["differed_step"] == step
    models = [worker.session.training_state._models[0] for worker in workers]
    is_same = torch.equal(models[0].layer.weight, models[1].layer.weight)
    assert is_same is (on_difference == "repair")
    assert torch.equal(saved["models"][0]["parameters"]["layer.weight"], models[0].layer.weight)


def test_one_rank_that_asks_makes_all_compare() -> None:
    """Only rank 0 knows when a checkpoint is due."""
    ranks = [Agreement(lambda: [Item("a", 1, "object", None)], torch.device("cpu")) for _ in range(2)]
    ranks[0].ask()
    for step in range(3):
        for rank in ranks:
            rank.at_boundary(step, 2)
        words = [rank.word(None) for rank in ranks]
        for rank in ranks:
            rank.hear(words)
        assert [rank.agreed_step for rank in ranks] == ([None, None] if step == 0 else [1, 1])


# ---------------------------------------------------------------- what a user reads


def test_ranks_that_hold_the_same_are_named_together() -> None:
    found = [Difference("buffer a", {1: [0, 2], None: [1]})]
    told = describe(found, [], [], step=7, agreed_step=None, num_ranks=3)
    assert told.splitlines() == [
        "After step 7 the workers do not hold the same state. They were not compared before.",
        "  buffer a: ranks 0, 2 have 0000000000000001; rank 1 has none",
    ]


def test_the_mark_of_a_run_stays_with_its_state(saving_job: Job) -> None:
    saving_job.on_difference = "warn"
    for worker in saving_job.begin(2, train(Assigning)):
        worker.end()
    third = saving_job.start(train(Assigning))
    third.hear(saving_job.settings(resume=True))
    saving_job.propose(third)
    third.end()
    assert [report.differed_step for report in said(third, wire.Progress) if report.resumed] == [1]
