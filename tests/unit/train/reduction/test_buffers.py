"""Buffers that a forward pass changes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from legato.train.reduction.buffers import MovingBuffers


def test_only_what_moved_is_touched() -> None:
    still, moving = torch.tensor([0.1, -0.0, float("nan")]), torch.zeros(2)
    watched = MovingBuffers([still, moving])
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
    watched = MovingBuffers(list(norm.buffers()))
    norm(torch.randn(4, 3))
    assert watched.moved() == [0, 1, 2]
    watched.restore()
    assert norm.running_mean is not None
    assert norm.running_mean.tolist() == [0.0, 0.0, 0.0]


def test_what_is_changed_through_data_moves_though_it_counts_no_version() -> None:
    dtypes = (torch.float32, torch.bfloat16, torch.int64, torch.bool)
    buffers = [torch.zeros(2, 3, dtype=dtype) for dtype in dtypes]
    watched = MovingBuffers(buffers)
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
    watched = MovingBuffers([still, moving])
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
    watched = MovingBuffers([openly, secretly, still])
    openly += 1
    secretly.data += 2
    watched.accept()
    assert watched.moved() == []
    assert (watched.base(openly).tolist(), watched.base(secretly).tolist()) == ([1.0, 1.0], [2.0, 2.0])
    secretly.data += 2
    watched.restore()
    assert secretly.tolist() == [2.0, 2.0]


def test_one_that_has_moved_once_is_watched_forever() -> None:
    buffer = torch.zeros(1)
    watched = MovingBuffers([buffer])
    watched.know((0,))
    assert watched.moved() == [0]


def test_a_buffer_that_is_no_longer_known_to_move_does_not_move_after_a_load() -> None:
    buffer = torch.zeros(2)
    watched = MovingBuffers([buffer])
    watched.know([0])
    buffer += 1.0  # as a load does
    watched.rebase()
    watched.know([])
    assert watched.moved() == []


def test_a_buffer_that_is_set_late_is_restored_with_the_others() -> None:
    buffer, late = torch.zeros(2), torch.ones(2)
    watched = MovingBuffers([buffer, None])
    watched.know([0, 1])
    watched.accept()
    watched.adopt([buffer, late])
    buffer += 1.0
    late += 1.0
    watched.restore()
    assert (buffer.tolist(), late.tolist()) == ([0.0, 0.0], [1.0, 1.0])


def test_rebase_takes_what_was_loaded() -> None:
    buffer = torch.zeros(2)
    watched = MovingBuffers([buffer])
    buffer.fill_(3.0)
    watched.rebase()
    assert watched.moved() == []
    assert watched.base(buffer).tolist() == [3.0, 3.0]


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_a_complex_buffer_becomes_the_mean_of_complex_numbers(dtype: torch.dtype) -> None:
    still, moving = torch.full((2,), -0.5j, dtype=dtype), torch.zeros(1, 2, dtype=dtype)
    watched = MovingBuffers([still, moving])
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
    watched = MovingBuffers([buffer])
    buffer.copy_(torch.tensor(values))
    total = watched.read([0], first=True) + watched.read([0], first=False)
    watched.restore()
    watched.commit([0], total, 2)
    assert buffer.tolist() == values
