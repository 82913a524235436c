"""Buffers that a forward pass changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from legato.core.errors import ProgramError
from legato.train.reduction import buffers as moving
from legato.train.reduction.buffers import MovingBuffers, Slot
from legato.train.state.structure import buffer_slots


def watch(*buffers: torch.Tensor | None) -> MovingBuffers:
    return MovingBuffers([Slot(str(index), (({"it": buffer}, "it"),)) for index, buffer in enumerate(buffers)])


class Holder(nn.Module):
    """Holds buffers by name."""

    def __init__(self, *, persistent: bool = True, **buffers: torch.Tensor | None) -> None:
        super().__init__()
        for name, buffer in buffers.items():
            self.register_buffer(name, buffer, persistent=persistent)

    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)


def test_only_what_moved_is_touched() -> None:
    still, moving = torch.tensor([0.1, -0.0, float("nan")]), torch.zeros(2)
    watched = watch(still, moving)
    moving += 1.5
    assert watched.moved() == [1]
    total = watched.read([1], first=True)
    watched.restore()
    assert moving.tolist() == [0.0, 0.0]
    watched.commit([1], total * 2, 4)
    assert moving.tolist() == [0.75, 0.75]
    assert watched.known == (1,)
    assert still.view(torch.int32).tolist() == torch.tensor([0.1, -0.0, float("nan")]).view(torch.int32).tolist()


def test_batch_norm_moves_though_it_counts_no_version() -> None:
    norm = nn.BatchNorm1d(3)
    watched = MovingBuffers(buffer_slots([norm]))
    norm(torch.randn(4, 3))
    assert watched.moved() == [0, 1, 2]
    watched.restore()
    assert norm.running_mean is not None
    assert norm.running_mean.tolist() == [0.0, 0.0, 0.0]


def test_what_only_a_gpu_knows_is_decided_at_the_end_of_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU stands in for a GPU."""
    monkeypatch.setattr(moving, "READ_AT_ONCE", frozenset())
    dtypes = (torch.bool, torch.float32, torch.bfloat16, torch.int64, torch.complex64)
    held = [torch.zeros(3, dtype=dtype) for dtype in dtypes]
    still, counted = torch.tensor([0.1, -0.0, float("nan")]), torch.zeros(2)
    watched = watch(*held, still, counted)
    versions = [buffer._version for buffer in held]
    for micro_batch in range(3):
        for buffer in held if micro_batch else ():
            buffer.data[1] = micro_batch
        counted += 1
        assert watched.end_micro_batch() == [6]
        watched.remember(micro_batch)
        watched.restore([6])
        assert not any(buffer.any() for buffer in (*held, counted))
    assert [buffer._version for buffer in held] == versions
    found = watched.decide()
    assert {micro_batch: sorted(values) for micro_batch, values in found.items()} == {
        1: [0, 1, 2, 3, 4],
        2: [0, 1, 2, 3, 4],
    }
    for index, dtype in enumerate(dtypes):
        assert torch.equal(found[2][index], torch.tensor([0, 2, 0]).to(dtype))
    assert watched.decide() == {}
    held[0].data[1] = 1
    watched.end_micro_batch()
    watched.remember(0)
    watched.begin_step()  # again, in another view
    assert watched.decide() == {}


def test_a_cache_that_only_a_gpu_knows_to_be_changed_in_place_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "READ_AT_ONCE", frozenset())
    holder = Holder(persistent=False, cache=None)
    watched = MovingBuffers(buffer_slots([holder]))
    holder.cache = torch.zeros(2)
    watched.end_micro_batch()
    watched.restore([])
    holder.cache.data[0] = 1
    watched.end_micro_batch()
    watched.remember(1)
    watched.restore([])
    with pytest.raises(ProgramError, match="changes the buffer 'cache' in place after it has assigned it"):
        watched.decide()


def test_caches_that_later_micro_batches_assign_again_are_compared_with_their_own_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(moving, "READ_AT_ONCE", frozenset())
    holder, other = Holder(persistent=False, cache=None), torch.zeros(2)
    watched = MovingBuffers([*buffer_slots([holder]), Slot("other", (({"other": other}, "other"),))])
    for micro_batch in range(3):
        holder.cache = torch.arange(float(micro_batch + 1))
        other.data[0] = 1
        watched.end_micro_batch()
        watched.remember(micro_batch)
        watched.restore([])
    assert {micro_batch: list(values) for micro_batch, values in watched.decide().items()} == {0: [1], 1: [1], 2: [1]}


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.arange(3.0).expand(4, 3),
        lambda: torch.ones(4, 3)[:, 0],
        lambda: torch.ones(3, dtype=torch.complex64).conj(),
        lambda: torch.ones(3, dtype=torch.complex64).conj().imag,
        lambda: torch.ones(3, 4).t(),
        lambda: torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last),
    ],
    ids=["expanded", "with gaps", "conjugate", "negative", "transposed", "channels last"],
)
def test_constant_views_on_a_gpu_stay_as_they_are(
    make: Callable[[], torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "READ_AT_ONCE", frozenset())
    view = make()
    before, watched = view.clone(), watch(view)
    for micro_batch in range(2):
        assert watched.end_micro_batch() == []
        watched.remember(micro_batch)
        watched.restore([])
    assert watched.decide() == {} and watched.accept() == {}
    assert torch.equal(view, before) and view._version == make()._version


def test_what_is_changed_through_data_moves_though_it_counts_no_version() -> None:
    dtypes = (torch.float32, torch.bfloat16, torch.int64, torch.bool)
    buffers = [torch.zeros(2, 3, dtype=dtype) for dtype in dtypes]
    watched = watch(*buffers)
    version = buffers[0]._version
    for buffer in buffers:
        buffer.data[1, 2] = 1
    assert buffers[0]._version == version
    assert watched.moved() == [0, 1, 2, 3]
    watched.restore()
    assert not any(buffer.any() for buffer in buffers)
    assert watched.moved() == []


def test_a_zero_that_changes_its_sign_moves() -> None:
    still, moving = torch.tensor([[0.0, float("nan")], [-0.0, 1.0]]), torch.zeros(2, 3).t()
    watched = watch(still, moving)
    moving.data[1, 0] = -0.0
    assert watched.moved() == [1]
    watched.restore()
    assert not moving.signbit().any()
    moving.data[2, 1] = -0.0
    watched.accept()
    assert watched.moved() == []
    assert watched.base(moving).signbit().nonzero().tolist() == [[2, 1]]


def test_what_the_program_does_after_a_step_is_accepted() -> None:
    openly, secretly, still = torch.zeros(2), torch.zeros(2), torch.full((2,), float("nan"))
    watched = watch(openly, secretly, still)
    openly += 1
    secretly.data += 2
    watched.accept()
    assert watched.moved() == []
    assert (watched.base(openly).tolist(), watched.base(secretly).tolist()) == ([1.0, 1.0], [2.0, 2.0])
    secretly.data += 2
    watched.restore()
    assert secretly.tolist() == [2.0, 2.0]


def put_back_in_place(module: nn.Module) -> None:
    kept = {name: value.clone() for name, value in module.state_dict().items()}
    module.load_state_dict({name: value + 1 for name, value in kept.items()})
    module.load_state_dict(kept)


def put_back_by_assignment(module: nn.Module) -> None:
    kept = {name: value.clone() for name, value in module.state_dict().items()}
    module.load_state_dict(kept, assign=True)


@pytest.mark.parametrize("put_back", [put_back_in_place, put_back_by_assignment])
def test_buffers_that_the_program_puts_back_are_not_changed(put_back: Callable[[nn.Module], None]) -> None:
    module = Holder(moving=torch.tensor([float("nan"), -0.0]), still=torch.ones(2), large=torch.zeros(2**16 + 1))
    watched = MovingBuffers(buffer_slots([module]))
    module.moving[1] += 1.0
    watched.commit([0], watched.read(watched.end_micro_batch(), first=True), 1)
    assert watched.accept() == {} and watched.known == (0,)
    put_back(module)
    assert watched.accept() == {}
    module.moving.add_(1.0)
    module.still = module.still + 1.0
    module.large.add_(1.0)
    assert list(watched.accept()) == [0, 1, 2]
    assert watched.accept() == {}


def test_a_new_version_of_one_buffer_shows_changes_of_others_that_count_none() -> None:
    norm = nn.BatchNorm1d(3)
    watched = MovingBuffers(buffer_slots([norm]))
    norm(torch.randn(4, 3))
    moved = watched.end_micro_batch()
    watched.commit(moved, watched.read(moved, first=True), 1)
    assert watched.accept() == {}
    norm(torch.randn(4, 3))
    assert list(watched.accept()) == [0, 1, 2]


def test_a_micro_batch_that_is_undone_changes_no_buffer() -> None:
    moving = torch.zeros(2)
    watched = watch(moving)
    watched.know([0])
    moving += 1.0
    watched.restore()
    assert watched.accept() == {}
    moving += 1.0
    assert list(watched.accept()) == [0]


def test_one_that_has_moved_once_is_watched_forever() -> None:
    buffer = torch.zeros(1)
    watched = watch(buffer)
    watched.know((0,))
    assert watched.moved() == [0]


def test_a_buffer_that_is_no_longer_known_to_move_does_not_move_after_a_load() -> None:
    buffer = torch.zeros(2)
    watched = watch(buffer)
    watched.know([0])
    buffer += 1.0  # as a load does
    watched.rebase()
    watched.know([])
    assert watched.moved() == []


def test_a_buffer_that_is_set_late_is_restored_with_the_others() -> None:
    model = Holder(mean=torch.zeros(2), late=None)
    watched = MovingBuffers(buffer_slots([model]))
    watched.know([0])
    watched.accept()
    model.late = torch.ones(2)  # by the program, after a step
    watched.accept()
    watched.know([0, 1])
    model.mean += 1.0
    model.late += 1.0
    watched.restore()
    assert (model.mean.tolist(), model.late.tolist()) == ([0.0, 0.0], [1.0, 1.0])


def test_a_buffer_that_forward_assigns_changes_as_one_that_it_writes() -> None:
    model = Holder(one=torch.tensor([1.0, 2.0]), other=torch.tensor([3.0, 4.0]), still=torch.zeros(2))
    before = dict(model.named_buffers())
    watched = MovingBuffers(buffer_slots([model]))
    model.one, model.other = model.other, model.one
    moved = watched.end_micro_batch()
    assert moved == [0, 1]
    total = watched.read([0, 1], first=True)
    watched.restore(moved)
    assert (model.one.tolist(), model.other.tolist()) == ([1.0, 2.0], [3.0, 4.0])
    watched.commit([0, 1], total, 1)
    assert (model.one.tolist(), model.other.tolist()) == ([3.0, 4.0], [1.0, 2.0])
    assert all(buffer is before[name] for name, buffer in model.named_buffers())


def test_each_micro_batch_makes_a_buffer_that_was_none() -> None:
    model = Holder(made=None)
    watched = MovingBuffers(buffer_slots([model]))
    watched.begin_step()
    total = torch.zeros(2, dtype=torch.float64)
    for value in (1.0, 4.0):
        assert model.made is None
        model.made = torch.full((1, 2), value).expand(1, 2)
        moved = watched.end_micro_batch()
        assert moved == [0]
        total += watched.read([0], first=value == 1.0)
        watched.restore(moved)
        model.made = torch.zeros(5)  # by the program, between two micro-batches
        watched.restore()
    assert watched.describe([0], 2) == ["float32 [1, 2]"]
    watched.commit([0], total, 2)
    assert model.made.tolist() == [[2.5, 2.5]]
    # Most are made once, and never change again.
    assert watched.known == () and watched.end_micro_batch() == []
    model.made += 1
    assert watched.end_micro_batch() == [0]


def test_a_buffer_that_not_every_micro_batch_makes_alike_is_described_with_each_kind() -> None:
    model = Holder(made=None)
    watched = MovingBuffers(buffer_slots([model]))
    watched.begin_step()
    for size in (2, 3):
        model.made = torch.zeros(size)
        watched.restore(watched.end_micro_batch())
    assert watched.describe([0], 3) == ["float32 [2] or float32 [3] or None"]
    watched.begin_step()
    assert watched.describe([0], 1) == ["None"]


@pytest.mark.parametrize("value", [torch.zeros(3), torch.zeros(2, dtype=torch.float64), None])
def test_forward_must_not_assign_another_kind_of_tensor(value: torch.Tensor | None) -> None:
    model = Holder(mean=torch.zeros(2))
    watched = MovingBuffers(buffer_slots([model]))
    model.mean = value
    with pytest.raises(ProgramError, match=r"assigns .* to the buffer 'mean', which was float32 \[2\]"):
        watched.end_micro_batch()


def test_forward_must_not_resize_a_buffer() -> None:
    buffer, other = torch.zeros(0), torch.zeros(1)
    watched = watch(buffer, other)
    for each in (buffer, other):
        each.resize_(3).fill_(1.0)
    with pytest.raises(ProgramError, match=r"resizes the buffer '0' to float32 \[3\]; it was float32 \[0\]"):
        watched.end_micro_batch()
    watched.restore()
    assert buffer.shape == (0,) and other.equal(torch.zeros(1))


def test_modules_share_a_buffer_that_forward_assigns() -> None:
    shared = torch.zeros(1)
    one, other = Holder(it=shared), Holder(it=shared)
    model = nn.Sequential(one, other)
    watched = MovingBuffers(buffer_slots([model, one]))
    assert len(watched) == 1
    one.it = other.it = torch.ones(1)
    assert watched.end_micro_batch() == [0]
    assert one.it is shared and other.it is shared and shared.item() == 1.0
    one.it = torch.zeros(1)
    with pytest.raises(ProgramError, match=r"'0.it', which several modules share, in some of them only"):
        watched.end_micro_batch()


def test_each_worker_keeps_the_caches_that_its_forward_passes_assign() -> None:
    model = Holder(persistent=False, table=torch.zeros(2), late=None)
    watched = MovingBuffers(buffer_slots([model]))
    model.table, model.late = torch.arange(3.0), torch.ones(3)
    assert watched.end_micro_batch() == []
    watched.restore()
    assert model.table.tolist() == [0.0, 1.0, 2.0] and model.late.tolist() == [1.0, 1.0, 1.0]
    assert list(watched) == []
    model.late += 1
    with pytest.raises(ProgramError, match="changes the buffer 'late' in place after it has assigned it"):
        watched.end_micro_batch()


def test_a_cache_that_was_assigned_in_inference_mode_is_watched() -> None:
    model = Holder(persistent=False, table=None)
    watched = MovingBuffers(buffer_slots([model]))
    with torch.inference_mode():
        model.table = torch.ones(2)
    watched.rebase()
    assert watched.end_micro_batch() == [] and model.table.tolist() == [1.0, 1.0]


def test_rebase_takes_what_was_loaded() -> None:
    buffer = torch.zeros(2)
    watched = watch(buffer)
    buffer.fill_(3.0)
    watched.rebase()
    assert watched.moved() == []
    assert watched.base(buffer).tolist() == [3.0, 3.0]


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_a_complex_buffer_becomes_the_mean_of_complex_numbers(dtype: torch.dtype) -> None:
    still, moving = torch.full((2,), -0.5j, dtype=dtype), torch.zeros(1, 2, dtype=dtype)
    watched = watch(still, moving)
    contributions = [torch.tensor([[1 + 2j, 0.25 - 8j]], dtype=dtype), torch.tensor([[2 + 1j, 16 + 26j]], dtype=dtype)]
    total = torch.zeros(watched.numel([1]), dtype=torch.float64)
    for index, contribution in enumerate(contributions):
        moving.copy_(contribution)
        assert watched.moved() == [1]
        total += watched.read([1], first=index == 0)
        watched.restore()
    watched.commit([1], total, 2)
    assert moving.tolist() == [[1.5 + 1.5j, 8.125 + 9j]]
    assert still.tolist() == [-0.5j, -0.5j]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5))
def test_integers_of_micro_batch_0_count_whatever_their_size(values: list[int]) -> None:
    buffer = torch.zeros(len(values), dtype=torch.int64)
    watched = watch(buffer)
    buffer.copy_(torch.tensor(values))
    total = watched.read([0], first=True) + watched.read([0], first=False)
    watched.restore()
    watched.commit([0], total, 2)
    assert buffer.tolist() == values


def test_the_only_micro_batch_of_a_step_is_kept_and_what_follows_it_can_be_undone() -> None:
    buffer = torch.zeros(3)
    buffers = MovingBuffers([Slot("mean", (({"mean": buffer}, "mean"),))])
    buffers.know([0])
    buffer.add_(1.0)
    assert buffers.can_keep(buffers.end_micro_batch())
    buffers.keep()
    buffer.add_(1.0)
    buffers.restore()
    assert buffer.tolist() == [1.0] * 3
    assert buffers.accept() == {}
    buffer.resize_(4)
    buffers.end_micro_batch()
    with pytest.raises(ProgramError, match="another size or dtype"):
        buffers.keep()
