"""The exact reduction: on any number of ranks, over every way that bytes travel, the bits of the sum on one rank."""

from __future__ import annotations

import contextlib
import copy
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.tiers import examples
from tests.unit.train.ranks import LIMIT_S, run_ranks
from torch import nn
from torch.utils.checkpoint import checkpoint

from legato.core.balance import Costs
from legato.core.errors import BrokenView, ProgramError
from legato.core.view import Member, View
from legato.train.membership.connection import make_exchange
from legato.train.membership.groups import Group
from legato.train.reduction import buckets as summed
from legato.train.reduction import buffers as moving
from legato.train.reduction import exchange as exchanges
from legato.train.reduction import reducer as reducers
from legato.train.reduction.buckets import Bucket, make_buckets
from legato.train.reduction.exchange import Assignment, Exchange, PrivateExchange, SharedExchange
from legato.train.reduction.node_exchange import NodeExchange
from legato.train.reduction.reducer import StepReducer
from legato.train.state.structure import buffer_slots

MICRO = 3
Kind = Callable[[Group, Sequence[Bucket], int], Exchange]
ALONE = Group(View(0, (Member(0, ""),), ""), 0)


class Net(nn.Module):
    """Three dtypes, batch-norm, a part that only some micro-batches use, and one that none uses."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(5, 7)
        self.norm = nn.BatchNorm1d(7)
        self.rare = nn.Linear(7, 7)
        self.fine = nn.Linear(7, 2, dtype=torch.float64)
        self.coarse = nn.Linear(7, 2, dtype=torch.bfloat16)
        self.never = nn.Linear(2, 2)
        self.register_buffer("seen", torch.tensor([2**40, 0]))

    def forward(self, inputs: torch.Tensor, leaf: int) -> torch.Tensor:
        hidden = self.norm(self.body(inputs))
        if leaf % 3 == 1:
            hidden = hidden + self.rare(hidden)
        self.seen += leaf + 1
        outputs = self.fine(hidden.double()) + self.coarse(hidden.bfloat16())
        loss: torch.Tensor = outputs.square().mean() * (leaf + 0.1)
        return loss


class Step(NamedTuple):
    """How a step is cut: non-empty micro-batches, and samples of the last one."""

    num_leaves: int
    last: int


torch.manual_seed(11)
TEMPLATE = Net()
INPUTS = torch.randn(16, MICRO, 5) * torch.logspace(-3, 3, 16).view(16, 1, 1)


def inputs_of(step: Step, leaf: int) -> torch.Tensor:
    return INPUTS[leaf][: step.last if leaf == step.num_leaves - 1 else MICRO]


def train(group: Group, steps: Sequence[Step], num_micro_batches: int, kind: Kind, num_new: int = 0) -> list[bytes]:
    """Take this rank's part in some steps; returns gradients, buffers and loss of each as bytes.

    The first step is the first one of the last ``num_new`` ranks.
    """
    if num_new:
        group.newcomers = tuple(range(max(1, group.size - num_new), group.size))
    model = copy.deepcopy(TEMPLATE)
    told: list[list[list[int]]] = []
    reducer = StepReducer(list(model.parameters()), buffer_slots([model]), 1)
    exchange = kind(group, reducer.buckets, num_micro_batches)
    found = []
    for number, step in enumerate(steps):
        compute(model, reducer, exchange, group, step, told, is_first=number == 0)
        assert told[number] == [[number, 1, rank, 0] for rank in range(group.size)]
        found.append(outcome(model, reducer))
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.sub_(parameter.grad, alpha=1e-3)
    # No worker may give shared memory back while a peer still reads it.
    group.barrier() if group.size > 1 else None
    exchange.close()
    reducer.close()
    return found


def compute(
    model: Net,
    reducer: StepReducer,
    exchange: Exchange,
    group: Group,
    step: Step,
    told: list[list[list[int]]] | None = None,
    *,
    is_first: bool = False,
) -> None:
    heard = [] if told is None else told

    def run_round() -> None:
        heard.append(reducer.run_round([len(heard), 1, group.rank, 0]))

    span = reducer.begin_step(exchange, group, step.num_leaves, MICRO, step.last, run_round, is_first=is_first)
    for leaf in range(span.start, span.stop) if span.num_items else [0]:
        reducer.begin_micro_batch(leaf, ghost=not span.num_items)
        loss = model(inputs_of(step, leaf), leaf)
        reducer.note_loss(float(loss.detach()))
        reducer.notes.add({"leaf": leaf + 0.1, "loss": float(loss.detach())})
        loss.backward()
        reducer.check_complete()


def outcome(model: Net, reducer: StepReducer) -> bytes:
    tensors = [parameter.grad for parameter in model.parameters()] + list(model.buffers())
    content = b"|".join(
        b"none" if t is None else t.detach().reshape(-1).view(torch.uint8).numpy().tobytes() for t in tensors
    )
    assert reducer.notes.last["leaf"] == tuple(leaf + 0.1 for leaf in range(len(reducer.notes.last["leaf"])))
    return content + repr((reducer.loss, reducer.notes.last)).encode()


def buckets_of(num_bytes: int) -> Callable[..., list[Bucket]]:
    """Return `make_buckets` with another size."""
    return lambda parameters, _max_bytes=0, edge_bytes=None: make_buckets(parameters, num_bytes, edge_bytes)


def shared(group: Group, buckets: Sequence[Bucket], num_micro_batches: int) -> Exchange:
    found = make_exchange(group, buckets, num_micro_batches)
    assert found is not None
    assert isinstance(found, SharedExchange) == (group.size > 1)
    return found


class Places(NamedTuple):
    """Where ranks are: the node of each, and what the parts of a step cost."""

    nodes: tuple[str, ...]
    costs: Costs

    def connect(self, group: Group, buckets: Sequence[Bucket], num_micro_batches: int) -> Exchange:
        found = make_exchange(group, buckets, num_micro_batches)
        assert found is not None
        if len(set(self.nodes)) > 1:
            assert isinstance(found, NodeExchange)
            found.division = found.division._replace(costs=self.costs)
        return found


some_costs = st.builds(Costs, st.sampled_from([0.0, 1e-6, 1.0]), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
some_places = st.integers(1, 5).flatmap(
    lambda num_nodes: st.builds(
        Places,
        st.lists(st.integers(1, 3), min_size=num_nodes, max_size=num_nodes).flatmap(
            lambda sizes: st.permutations([f"node {i}" for i, size in enumerate(sizes) for _ in range(size)]).map(
                lambda nodes: tuple(nodes[:8])
            )
        ),
        some_costs,
    )
)
steps_of_any_size = st.integers(1, 13).flatmap(
    lambda most: st.tuples(
        st.just(most),
        st.lists(st.builds(Step, st.integers(1, most), st.integers(2, MICRO)), min_size=1, max_size=3).map(
            lambda smaller: [Step(most, MICRO), *smaller]
        ),
    )
)


@pytest.mark.parametrize("kind", [PrivateExchange, shared])
@pytest.mark.parametrize("direct_bytes", [2 * 2**20, 64], ids=["direct", "sliced"])
@pytest.mark.parametrize("bucket_bytes", [2**20, 100], ids=["one", "many"])
@given(layout=steps_of_any_size, num_ranks=st.integers(2, 6), num_new=st.integers(0, 5))
@settings(max_examples=examples(3), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_number_of_ranks_gives_the_bits_of_one(
    monkeypatch: pytest.MonkeyPatch,
    kind: Kind,
    direct_bytes: int,
    bucket_bytes: int,
    layout: tuple[int, list[Step]],
    num_ranks: int,
    num_new: int,
) -> None:
    monkeypatch.setattr(exchanges, "_DIRECT_BYTES", direct_bytes)
    monkeypatch.setattr(reducers, "make_buckets", buckets_of(bucket_bytes))
    num_micro_batches, steps = layout
    want = train(ALONE, steps, num_micro_batches, PrivateExchange)
    for got in run_ranks(num_ranks, lambda group: train(group, steps, num_micro_batches, kind, num_new)):
        assert got == want


@pytest.mark.parametrize("bucket_bytes", [2**20, 100], ids=["one", "many"])
@given(layout=steps_of_any_size, places=some_places, num_new=st.integers(0, 7))
@settings(max_examples=examples(8), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_ranks_on_any_nodes_give_the_bits_of_one(
    monkeypatch: pytest.MonkeyPatch, bucket_bytes: int, layout: tuple[int, list[Step]], places: Places, num_new: int
) -> None:
    monkeypatch.setattr(reducers, "make_buckets", buckets_of(bucket_bytes))
    num_micro_batches, steps = layout
    want = train(ALONE, steps, num_micro_batches, PrivateExchange)
    found = run_ranks(
        len(places.nodes), lambda group: train(group, steps, num_micro_batches, places.connect, num_new), places.nodes
    )
    for got in found:
        assert got == want


@pytest.mark.parametrize("num_workers", [1, 2, 3, 4])
@pytest.mark.parametrize("num_nodes", [1, 2, 3, 5])
def test_any_number_of_nodes_and_workers_gives_the_bits_of_one(num_nodes: int, num_workers: int) -> None:
    steps = [Step(8, MICRO), Step(8, MICRO), Step(3, 2)]
    want = train(ALONE, steps, 8, PrivateExchange)
    nodes = tuple(f"node {rank // num_workers}" for rank in range(num_nodes * num_workers))
    for costs in (Costs(), Costs(1e-6, 1.0)) if num_nodes > 1 else (Costs(),):
        places = Places(nodes, costs)
        for got in run_ranks(len(nodes), lambda group: train(group, steps, 8, places.connect), nodes):  # noqa: B023
            assert got == want


@pytest.mark.parametrize("max_bytes", [moving.MAX_KEPT_BYTES, 0], ids=["at the end", "in each micro-batch"])
@pytest.mark.parametrize("num_ranks", [1, 3])
@pytest.mark.parametrize("num_micro_batches", [1, 8])
def test_buffers_that_only_a_gpu_knows_to_move_have_the_same_bits(
    max_bytes: int, num_ranks: int, num_micro_batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The CPU stands in for a GPU."""
    steps = [Step(num_micro_batches, MICRO), Step(num_micro_batches, MICRO), Step(1, 2)]
    want = train(ALONE, steps, num_micro_batches, PrivateExchange)
    monkeypatch.setattr(moving, "READ_AT_ONCE", frozenset())
    monkeypatch.setattr(reducers, "MAX_KEPT_BYTES", max_bytes)
    kind = shared if num_ranks > 1 else PrivateExchange
    for got in run_ranks(num_ranks, lambda group: train(group, steps, num_micro_batches, kind)):
        assert got == want


def test_steps_of_one_micro_batch_whose_buffers_a_rank_alone_keeps_give_the_bits_of_two() -> None:
    steps = [Step(3, MICRO), Step(1, MICRO), Step(2, 2), Step(1, 2), Step(1, MICRO)]
    want = train(ALONE, steps, 3, PrivateExchange)
    for got in run_ranks(2, lambda group: train(group, steps, 3, shared)):
        assert got == want


@pytest.mark.parametrize("num_leaves", [1, 2, 3, 5, 8, 13])
@pytest.mark.parametrize("last", [2, MICRO])
def test_one_rank_gives_the_canonical_sum(num_leaves: int, last: int) -> None:
    """Computed here a second time, with nothing of the reducer's: a tree over the leaves, each with its weight."""
    step = Step(num_leaves, last)
    gradients, buffers, losses = [], [], []
    for leaf in range(num_leaves):
        model = copy.deepcopy(TEMPLATE)
        loss = model(inputs_of(step, leaf), leaf)
        loss.backward()
        weight = last / MICRO if leaf == num_leaves - 1 else 1.0
        gradients.append([None if p.grad is None else p.grad * weight for p in model.parameters()])
        buffers.append(dict(model.named_buffers()))
        losses.append(float(loss.detach()))
    num_samples = (num_leaves - 1) * MICRO + last

    model = copy.deepcopy(TEMPLATE)
    reducer = StepReducer(list(model.parameters()), buffer_slots([model]), 1)
    exchange = PrivateExchange(ALONE, reducer.buckets, num_leaves)
    compute(model, reducer, exchange, ALONE, step)

    for position, parameter in enumerate(model.parameters()):
        of_leaves = [gradient[position] for gradient in gradients]
        if all(gradient is None for gradient in of_leaves):
            assert parameter.grad is None
            continue
        total = tree([torch.zeros_like(parameter) if g is None else g for g in of_leaves])
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, total * (MICRO / num_samples))
    for name, buffer in model.named_buffers():
        seen = [of_leaf[name] for of_leaf in buffers]
        want = tree([b.double() for b in seen]) / num_leaves if buffer.is_floating_point() else seen[0]
        assert torch.equal(buffer, want.to(buffer.dtype)), name
    weights = [last if leaf == num_leaves - 1 else MICRO for leaf in range(num_leaves)]
    assert reducer.loss == pytest.approx(sum(loss * w for loss, w in zip(losses, weights, strict=True)) / num_samples)
    reducer.close()


def tree(leaves: Sequence[torch.Tensor]) -> torch.Tensor:
    """Add neighbours, then neighbours of these; one without a neighbour goes up as it is."""
    while len(leaves) > 1:
        pairs = [leaves[i : i + 2] for i in range(0, len(leaves), 2)]
        leaves = [pair[0] + pair[1] if len(pair) == 2 else pair[0] for pair in pairs]
    return leaves[0]


def test_a_missed_result_is_handed_on() -> None:
    step = Step(8, 2)

    def play(group: Group) -> bytes:
        model = copy.deepcopy(TEMPLATE)
        reducer = StepReducer(list(model.parameters()), buffer_slots([model]), 1)
        if group.rank < 2:
            pair = group.among([0, 1])
            compute(model, reducer, PrivateExchange(pair, reducer.buckets, 8), pair, step)
            if group.rank == 0:
                reducer.send(group, 2)
        else:
            span = reducer.begin_step(PrivateExchange(group, reducer.buckets, 8), group, 8, MICRO, 2, lambda: None)
            # It was in its second turn when the step broke, and had even moved its buffers.
            reducer.begin_micro_batch(span.start, ghost=False)
            reducer.notes.add({"leaf": 7, "loss": 7})
            reducer.note_loss(7.0)
            model(inputs_of(step, span.start), span.start).backward()
            reducer.begin_micro_batch(span.start + 1, ghost=False)
            model(inputs_of(step, span.start + 1), span.start + 1)
            reducer.abandon()
            reducer.receive(group, 0)
        group.barrier()
        reducer.close()
        return outcome(model, reducer)

    first, second, third = run_ranks(3, play)
    assert first == second == third


def test_a_worker_that_trains_alone_keeps_no_memory_of_its_last_view() -> None:
    """Otherwise the first step of the next view would wait until the system has taken that memory back."""
    step = Step(4, MICRO)

    def play(group: Group) -> bool:
        model = copy.deepcopy(TEMPLATE)
        reducer = StepReducer(list(model.parameters()), buffer_slots([model]), 1)
        exchange = PrivateExchange(group, reducer.buckets, 4)
        compute(model, reducer, exchange, group, step)
        kept = weakref.ref(exchange.result(reducer.buckets[0])[0])
        group.barrier()
        del exchange
        compute(model, reducer, PrivateExchange(ALONE, reducer.buckets, 4), ALONE, step)
        reducer.close()
        return kept() is None

    assert run_ranks(2, play) == [True, True]


@pytest.mark.parametrize(
    "keep",
    [lambda gradient: gradient, torch.Tensor.detach, lambda gradient: gradient.view(-1)],
    ids=["the gradient", "detached", "a view"],
)
def test_a_gradient_that_the_program_keeps_is_not_written_in_later_steps(
    keep: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    """As with one worker, whose gradients autograd makes in each step."""

    def play(group: Group) -> None:
        model = copy.deepcopy(TEMPLATE)
        reducer = StepReducer(list(model.parameters()), buffer_slots([model]), 1)
        exchange = PrivateExchange(group, reducer.buckets, 4)
        found = []
        for num_leaves in (2, 3, 4):
            compute(model, reducer, exchange, group, Step(num_leaves, MICRO))
            assert all(torch.equal(kept, copied) for kept, copied in found)
            gradient = model.body.weight.grad
            assert gradient is not None
            found = [*found[:1], (keep(gradient), keep(gradient).clone())]
            last = weakref.ref(gradient)
            del gradient
        found.clear()
        compute(model, reducer, exchange, group, Step(4, MICRO))
        assert model.body.weight.grad is last()  # memory that the program does not keep serves the next step
        group.barrier()
        reducer.close()

    run_ranks(2, play)


def _as_gradient_of_another(gradient: torch.Tensor) -> nn.Parameter:
    other = nn.Parameter(torch.empty_like(gradient))
    other.grad = gradient
    return other


@pytest.mark.parametrize("keep", [torch.Tensor.untyped_storage, _as_gradient_of_another])
def test_a_gradient_that_another_object_holds_is_not_written_in_later_steps(
    monkeypatch: pytest.MonkeyPatch, keep: Callable[[torch.Tensor], object]
) -> None:
    # Before torch 2.10, Python does not count what torch holds.
    monkeypatch.setattr(summed, "_NUM_REFERENCES", sys.maxsize)
    (bucket,) = make_buckets([nn.Parameter(torch.zeros(4))])
    bucket.set_gradient([torch.full((4,), 1.0)], 1.0)
    (first,) = [gradient.data_ptr() for gradient in bucket.gradient_views]
    bucket.set_gradient([torch.full((4,), 2.0)], 1.0)
    assert bucket.gradient_views[0].data_ptr() == first
    kept = keep(bucket.gradient_views[0])
    bucket.set_gradient([torch.full((4,), 3.0)], 1.0)
    assert bucket.gradient_views[0].data_ptr() != first
    del kept


@pytest.mark.parametrize("nodes", [None, ("a", "b")])
def test_an_exchange_serves_other_parameters_of_the_same_layout(nodes: tuple[str, ...] | None) -> None:
    """A program may freeze one layer when it unfreezes another one of the same shape."""
    layers = [nn.Linear(4, 3), nn.Linear(4, 3)]

    def play(group: Group) -> list[list[float]]:
        own = copy.deepcopy(layers)
        before = StepReducer(list(own[0].parameters()), [], 1)
        exchange = make_exchange(group, before.buckets, 2, between_nodes=before.buckets_between_nodes)
        assert exchange is not None
        before.close()
        reducer = StepReducer(list(own[1].parameters()), [], 1)
        span = reducer.begin_step(exchange, group, 2, 1, 1, lambda: reducer.run_round([0, 0, 0, 0]) and None)
        reducer.begin_micro_batch(span.start, ghost=False)
        own[1](torch.ones(1, 4)).sum().backward()
        reducer.check_complete()
        found = [each.grad.unique().tolist() for each in own[1].parameters() if each.grad is not None]
        group.barrier()
        reducer.close()
        return found

    assert run_ranks(2, play, nodes) == [[[1.0], [1.0]]] * 2


class SpiedExchange(PrivateExchange):
    """Notes when it has summed a bucket."""

    def __init__(self, group: Group, buckets: Sequence[Bucket], num_micro_batches: int) -> None:
        super().__init__(group, buckets, num_micro_batches)
        self.has_reduced = threading.Event()

    def reduce(self, bucket: Bucket, local: Sequence[torch.Tensor], assignment: Assignment, *, announced: bool) -> None:
        super().reduce(bucket, local, assignment, announced=announced)
        self.has_reduced.set()


def test_a_result_stays_until_the_ranks_without_micro_batches_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a rank may have missed it, and asks for it while the others are in the next step."""
    monkeypatch.setattr(reducers, "make_buckets", buckets_of(100))
    first, second = Step(3, MICRO), Step(1, MICRO)
    is_checked = threading.Event()

    def play(group: Group) -> None:
        model = copy.deepcopy(TEMPLATE)
        reducer = StepReducer(list(model.parameters()), buffer_slots([model]), 1)
        exchange = SpiedExchange(group, reducer.buckets, 3)
        compute(model, reducer, exchange, group, first)
        exchange.has_reduced.clear()
        if group.rank < 2:
            # Rank 2 does not begin the second step.
            before = [tensor.clone() for tensor in reducer._flat_result()]
            span = reducer.begin_step(exchange, group, second.num_leaves, MICRO, second.last, lambda: None)
            assert span.num_items == (1 if group.rank == 0 else 0)
            reducer.begin_micro_batch(0, ghost=not span.num_items)
            model(inputs_of(second, 0), 0).backward()
            if group.rank == 1:
                assert not reducer._num_handed_over or exchange.has_reduced.wait(LIMIT_S)
                is_same = all(map(torch.equal, before, reducer._flat_result()))
                is_checked.set()
                assert is_same
        assert is_checked.wait(LIMIT_S)
        group.break_connections()
        with contextlib.suppress(BrokenView):
            reducer._exchange_thread.wait()
        reducer.close()

    run_ranks(3, play)


class EarlyExchange(PrivateExchange):
    """Notes how many blocks are complete whenever it may send them, and fails if it has to."""

    def __init__(self, group: Group, buckets: Sequence[Bucket], num_micro_batches: int, *, fails: bool = False) -> None:
        super().__init__(group, buckets, num_micro_batches)
        self.noted: list[int] = []
        self._fails = fails

    def has_early_blocks(self, assignment: Assignment) -> bool:
        return True

    def send_early(self, assignment: Assignment, num_complete: int) -> None:
        self.noted.append(num_complete)
        if self._fails:
            raise BrokenView("a peer is gone")


def test_blocks_are_handed_over_when_they_are_complete() -> None:
    """Of 8 micro-batches on 3 ranks, the first rank has a block of two and one of one, the last rank one of two."""

    def play(group: Group) -> list[list[int]]:
        model = copy.deepcopy(TEMPLATE)
        reducer = StepReducer(list(model.parameters()), buffer_slots([model]), 1)
        exchange = EarlyExchange(group, reducer.buckets, 8)
        span = reducer.begin_step(exchange, group, 8, MICRO, MICRO, lambda: None)
        noted = []
        for leaf in range(span.start, span.stop):
            reducer.begin_micro_batch(leaf, ghost=False)
            if leaf < span.stop - 1:
                model(inputs_of(Step(8, MICRO), leaf), leaf).backward()
                reducer._exchange_thread.rest()
            noted.append(list(exchange.noted))
        group.barrier()
        reducer.close()
        return noted

    assert run_ranks(3, play) == [[[0], [0, 1], [0, 1]], [[0, 1]] * 3, [[0], [0]]]


def test_an_early_block_that_failed_in_a_step_that_the_program_left_breaks_no_later_view() -> None:
    def play(group: Group) -> tuple[list[int], float | None]:
        model = copy.deepcopy(TEMPLATE)
        reducer = StepReducer(list(model.parameters()), buffer_slots([model]), 1)
        reducer.begin_step(EarlyExchange(group, reducer.buckets, 8, fails=True), group, 8, MICRO, MICRO, lambda: None)
        reducer.abandon()
        exchange = EarlyExchange(group, reducer.buckets, 8)
        compute(model, reducer, exchange, group, Step(8, MICRO))
        reducer.close()
        return exchange.noted, reducer.loss

    (first, loss), (second, other) = run_ranks(2, play)
    assert first == second == [0] and loss == other is not None


@pytest.mark.parametrize("names", [("a", "b"), ("a", "")])
def test_names_that_differ_between_ranks_are_refused_on_all_of_them(names: tuple[str, str]) -> None:
    def play(group: Group) -> str:
        model = nn.Linear(2, 1)
        reducer = StepReducer(list(model.parameters()), [], 1)
        span = reducer.begin_step(
            PrivateExchange(group, reducer.buckets, 4), group, 4, 1, 1, lambda: reducer.run_round([0, 0, 0, 0]) and None
        )
        for leaf in range(span.start, span.stop):
            reducer.begin_micro_batch(leaf, ghost=False)
            reducer.notes.add(dict.fromkeys(filter(None, names[group.rank]), 1.0))
            backward = model(torch.ones(1, 2)).sum().backward
            if leaf < span.stop - 1:
                backward()
        with pytest.raises(ProgramError) as refusal:
            backward()
        reducer.close()
        return str(refusal.value)

    for told in run_ranks(2, play):
        assert "run.note" in told


def test_what_the_program_does_to_a_buffer_between_micro_batches_is_undone() -> None:
    model = copy.deepcopy(TEMPLATE)
    reducer = StepReducer(list(model.parameters()), buffer_slots([model]), 1)
    span = reducer.begin_step(PrivateExchange(ALONE, reducer.buckets, 3), ALONE, 3, MICRO, MICRO, lambda: None)
    for leaf in range(span.start, span.stop):
        reducer.begin_micro_batch(leaf, ghost=False)
        assert all(map(torch.equal, model.buffers(), TEMPLATE.buffers()))
        model(inputs_of(Step(3, MICRO), leaf), leaf).backward()
        assert all(map(torch.equal, model.buffers(), TEMPLATE.buffers()))
        model.norm.running_mean.data.add_(1)  # type: ignore[union-attr]
        model.seen += 1
    reducer.close()


def test_a_parameter_that_one_backward_pass_reaches_twice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum of its bucket is complete before the second gradient comes."""
    monkeypatch.setattr(reducers, "make_buckets", buckets_of(80))
    parts = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    def play(group: Group) -> None:
        model = copy.deepcopy(parts)
        reducer = StepReducer(list(model.parameters()), [], 1)
        reducer.begin_step(PrivateExchange(group, reducer.buckets, 2), group, 2, 1, 1, lambda: None)
        reducer.begin_micro_batch(group.rank, ghost=False)
        hidden = torch.ones(1, 4, requires_grad=True)
        for index in (1, 0, 1):
            hidden = checkpoint(model[index], hidden, use_reentrant=True)
        with pytest.raises(ProgramError, match=r"reached a parameter twice.*use_reentrant=False"):
            reducer.backward(hidden.sum())

    run_ranks(2, play)


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("create_graph", [False, True])
def test_hooks_may_change_gradients_and_gradients_may_have_graphs(
    monkeypatch: pytest.MonkeyPatch, create_graph: bool
) -> None:
    monkeypatch.setattr(reducers, "make_buckets", buckets_of(80))
    monkeypatch.setattr(summed, "_CACHED_BYTES", 0)
    layers = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))

    def play(group: Group) -> list[torch.Tensor | None]:
        model = copy.deepcopy(layers)

        def drop(parameter: torch.Tensor) -> None:
            parameter.grad = None

        def halve(parameter: torch.Tensor) -> None:
            assert parameter.grad is not None
            parameter.grad = parameter.grad / 2

        list(model.parameters())[4].register_post_accumulate_grad_hook(drop)
        reducer = StepReducer(list(model.parameters()), [], 1)
        list(model.parameters())[5].register_post_accumulate_grad_hook(halve)  # runs after that of the reducer
        exchange = PrivateExchange(group, reducer.buckets, 2)
        span = reducer.begin_step(exchange, group, 2, 1, 1, lambda: reducer.run_round([0]))
        for leaf in range(span.start, span.stop):
            reducer.begin_micro_batch(leaf, ghost=False)
            model(torch.ones(1, 4)).pow(2).sum().backward(create_graph=create_graph)
        gradients = [parameter.grad for parameter in model.parameters()]
        reducer.close()
        return [None if gradient is None else gradient.detach().clone() for gradient in gradients]

    (alone,) = run_ranks(1, play)
    assert [gradient is None for gradient in alone] == [False] * 4 + [True, False]
    for gradients in run_ranks(2, play):
        assert [gradient is None for gradient in gradients] == [gradient is None for gradient in alone]
        pairs = zip(gradients, alone, strict=True)
        assert all(torch.equal(one, other) for one, other in pairs if one is not None and other is not None)


def test_a_turn_without_its_backward_passes_is_refused() -> None:
    model = nn.Linear(2, 1)
    reducer = StepReducer(list(model.parameters()), [], 2)
    reducer.begin_step(PrivateExchange(ALONE, reducer.buckets, 2), ALONE, 2, 1, 1, lambda: None)
    reducer.begin_micro_batch(0, ghost=False)
    model(torch.ones(1, 2)).sum().backward()
    with pytest.raises(ProgramError, match="1 of 2 expected backward passes"):
        reducer.check_complete()
    reducer.close()
