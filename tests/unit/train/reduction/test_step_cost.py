"""What a micro-batch costs besides the program's own passes, counted in operations of torch."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from legato.core.view import Member, View
from legato.train.membership.groups import Group
from legato.train.reduction import buffers as moving
from legato.train.reduction import reducer as reducers
from legato.train.reduction.exchange import PrivateExchange
from legato.train.reduction.reducer import StepReducer
from legato.train.state.structure import buffer_slots

ALONE = Group(View(0, (Member(0, ""),), ""), 0)


class Operations(TorchDispatchMode):
    """Counts the operations of torch by name, and those of them that write or make large tensors."""

    def __init__(self, large: int = 1) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.on_large: Counter[str] = Counter()
        self._large = large

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        self.counts[name] += 1
        first = args[0] if args else None
        tensors = first if isinstance(first, list | tuple) else [first]
        if any(isinstance(each, torch.Tensor) and each.numel() >= self._large for each in tensors):
            self.on_large[name] += 1
        return func(*args, **(kwargs or {}))


def take_steps(model: nn.Module, num_micro_batches: int, operations: Operations, inputs: torch.Tensor) -> StepReducer:
    """Take two steps alone, and count the reducer's operations in the second: the first finds which buffers move."""
    reducer = StepReducer(list(model.parameters()), buffer_slots([model]), 1)
    exchange = PrivateExchange(ALONE, reducer.buckets, num_micro_batches)
    end = reducer.end_backward

    for counted in (Operations(), operations):

        def end_counted(counted: Operations = counted) -> None:
            with counted:
                end()

        reducer.end_backward = end_counted  # type: ignore[method-assign]
        with counted:
            reducer.begin_step(exchange, ALONE, num_micro_batches, 3, 3, lambda: run_round(reducer))
        for micro_batch in range(num_micro_batches):
            with counted:
                reducer.begin_micro_batch(micro_batch, ghost=False)
            loss = model(inputs).square().mean()
            with counted:
                reducer.note_loss(loss)
            reducer.backward(loss)
            reducer.check_complete()
    return reducer


class Half(nn.Module):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs.half()


def run_round(reducer: StepReducer) -> None:
    reducer.run_round([0, 0, 0, 0])


@pytest.mark.parametrize("num_micro_batches", [1, 4, 6])
def test_a_worker_alone_copies_no_gradient(num_micro_batches: int) -> None:
    model = nn.Linear(50, 40)
    operations = Operations(large=model.weight.numel())
    take_steps(model, num_micro_batches, operations, torch.ones(3, 50)).close()
    # Adding up is what plain accumulation does as well; the mean takes one multiplication.
    assert {"_foreach_add_", "_foreach_mul_", "detach"} >= operations.on_large.keys()
    assert operations.on_large["_foreach_add_"] == num_micro_batches - 1
    assert operations.on_large["_foreach_mul_"] == (num_micro_batches > 1)


@pytest.mark.parametrize("num_micro_batches", [1, 4])
def test_losses_on_a_gpu_are_read_once_per_step(num_micro_batches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU stands in for a GPU."""
    monkeypatch.setattr(reducers, "READ_AT_ONCE", set())
    reads: list[str] = []
    for name in ("tolist", "item", "__float__", "__bool__", "cpu", "numpy"):
        original = getattr(torch.Tensor, name)

        def read(self: torch.Tensor, *args: Any, name: str = name, original: Any = original) -> Any:
            reads.append(name)
            return original(self, *args)

        monkeypatch.setattr(torch.Tensor, name, read)
    operations = Operations()
    take_steps(nn.Linear(5, 4), num_micro_batches, operations, torch.ones(3, 5)).close()
    assert reads == ["tolist"] * 2
    assert operations.counts["_local_scalar_dense"] == 0


@pytest.mark.parametrize("num_micro_batches", [1, 4])
def test_constant_buffers_on_a_gpu_are_compared_once_per_step(
    num_micro_batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The CPU stands in for a GPU."""
    for module in (reducers, moving):
        monkeypatch.setattr(module, "READ_AT_ONCE", frozenset())
    model = nn.Linear(5, 4)
    for name in ("angles", "places"):
        model.register_buffer(name, torch.arange(6), persistent=False)
    operations = Operations()
    take_steps(model, num_micro_batches, operations, torch.ones(3, 5)).close()
    # The losses, and whether a buffer differs.
    assert (operations.counts["stack"], operations.counts["equal"]) == (2, 0)
    assert operations.counts["_local_scalar_dense"] == 0
    assert [buffer._version for buffer in model.buffers()] == [0, 0]


@pytest.mark.parametrize("read_at_once", [{"cpu"}, set()])
def test_the_loss_is_the_one_that_was_noted(read_at_once: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reducers, "READ_AT_ONCE", read_at_once)
    reducer = StepReducer([nn.Parameter(torch.ones(1))], [], 1)
    reducer.begin_step(PrivateExchange(ALONE, reducer.buckets, 2), ALONE, 2, 1, 1, lambda: run_round(reducer))
    for micro_batch in range(2):
        reducer.begin_micro_batch(micro_batch, ghost=False)
        loss = reducer.parameters[0].sum() * (micro_batch + 1)
        reducer.note_loss(loss)
        reducer.note_loss(0.5)
        reducer.backward(loss)
        loss.detach().zero_()
    assert reducer.loss == 2.0
    reducer.close()


def test_batch_norm_costs_the_same_operations_whatever_the_number_of_its_buffers() -> None:
    counts = []
    for depth in (2, 20):
        layers = [layer for _ in range(depth) for layer in (nn.Linear(5, 5), nn.BatchNorm1d(5))]
        operations = Operations()
        take_steps(nn.Sequential(*layers), 4, operations, torch.randn(3, 5)).close()
        views = {"detach", "view", "slice", "select", "unbind", "split", "split_with_sizes", "alias"}
        counts.append({name: count for name, count in operations.counts.items() if name not in views})
    assert counts[0] == counts[1]


def test_the_only_micro_batch_of_a_worker_alone_leaves_its_buffers_as_they_are() -> None:
    torch.manual_seed(1)
    model, inputs = nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5), nn.BatchNorm1d(5).half()), torch.randn(3, 5)
    model[2].running_mean.copy_(torch.tensor([-0.0, float("nan"), 1.0, 2.0, 3.0]))  # type: ignore[union-attr, operator]
    model[2] = nn.Sequential(Half(), model[2])
    plain = copy.deepcopy(model)
    operations = Operations()
    take_steps(model, 1, operations, inputs).close()
    for _ in range(2):
        plain(inputs)
    for mine, theirs in zip(model.buffers(), plain.buffers(), strict=True):
        bits = (each.reshape(-1).view(torch.uint8) for each in (mine, theirs))
        assert mine.dtype == theirs.dtype and torch.equal(*bits)
    # One for each dtype: float32, float16, and the integers that count batches.
    assert operations.counts["_foreach_copy_"] == 3
    assert not {"cat", "clone", "copy_", "div_", "_to_copy"} & operations.counts.keys()


def test_gradients_that_share_memory_get_memory_of_their_own() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Parameter(torch.ones(2, 3)), nn.Parameter(torch.ones(6))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            # The backward pass gives both the same tensor, as two views.
            return (self.left.view(-1) + self.right.view(-1)) * inputs

    model = Pair()
    take_steps(model, 2, Operations(), torch.arange(6.0))
    left, right = model.left.grad, model.right.grad
    assert left is not None and right is not None and left.data_ptr() != right.data_ptr()
    # Not scaled twice.
    assert torch.equal(left.view(-1), right) and torch.allclose(right, 2 * torch.arange(6.0) ** 2 * 2 / 6)
