"""A checksum changes with every bit and with every change of places, and is the same for the same values anywhere."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from legato.train.data.hashing import MASK, derive
from legato.train.state.checksums import _TAG, checksums, sum_words, sum_words_on_device, words_of

CHUNK = 2**14
CPU = torch.device("cpu")
DEVICES = [CPU, torch.device("cuda")]  # of the job: the tensors are in the memory of the host here
both_jobs = pytest.mark.parametrize("job", DEVICES, ids=str)


def checksum(tensor: torch.Tensor, job: torch.device) -> int:
    return checksums([("it", tensor)], job)["it"]


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool, torch.complex64]
)
@pytest.mark.parametrize("numel", [1, 7, 64, 3 * CHUNK + 5])
@both_jobs
def test_each_element_counts(dtype: torch.dtype, numel: int, job: torch.device) -> None:
    tensor = torch.zeros(numel, dtype=dtype)
    found = {checksum(tensor, job)}
    for index in {0, numel // 2, numel - 1}:
        changed = tensor.clone()
        changed[index] = 1
        found.add(checksum(changed, job))
    assert len(found) == 1 + len({0, numel // 2, numel - 1})


@both_jobs
@given(first=st.integers(0, 4 * CHUNK - 1), second=st.integers(0, 4 * CHUNK - 1), offset=st.integers(0, 1))
def test_two_changed_signs_do_not_cancel(job: torch.device, first: int, second: int, offset: int) -> None:
    """The highest bits of two words: a plain sum with odd weights does not see them."""
    tensor = torch.ones(8 * CHUNK)
    changed = tensor.clone()
    changed[[2 * first + offset, 2 * second + offset]] *= -1
    assert (checksum(tensor, job) == checksum(changed, job)) == torch.equal(tensor, changed)


@both_jobs
@given(first=st.integers(0, 4 * CHUNK - 1), second=st.integers(0, 4 * CHUNK - 1))
def test_exchanged_values_are_noticed(job: torch.device, first: int, second: int) -> None:
    tensor = torch.zeros(4 * CHUNK, dtype=torch.float64)
    tensor[first], tensor[second] = 1.0, 2.0
    changed = torch.zeros_like(tensor)
    changed[second], changed[first] = 1.0, 2.0
    assert (checksum(tensor, job) == checksum(changed, job)) == torch.equal(tensor, changed)


@both_jobs
def test_values_count_and_not_where_they_lie(job: torch.device) -> None:
    tensor = torch.arange(2 * 3 * 4 * 5, dtype=torch.float32).reshape(2, 3, 4, 5)
    elsewhere = torch.cat([torch.zeros(1), tensor.reshape(-1)])[1:].reshape(2, 3, 4, 5)
    last = tensor.to(memory_format=torch.channels_last)
    assert checksum(tensor, job) == checksum(elsewhere, job) == checksum(last, job)
    assert checksum(tensor, job) == checksum(torch.complex(tensor, tensor).real, job)
    conjugate = torch.complex(tensor, tensor).conj()
    assert checksum(conjugate, job) == checksum(conjugate.resolve_conj(), job)


@both_jobs
def test_nan_and_the_sign_of_zero_are_values_like_others(job: torch.device) -> None:
    nan = torch.tensor([float("nan")])
    assert checksum(nan, job) == checksum(nan.clone(), job)
    assert checksum(torch.tensor([0.0]), job) != checksum(torch.tensor([-0.0]), job)


@pytest.mark.parametrize("numel", [0, 1, 7, 8, CHUNK + 5])
def test_in_a_job_on_gpus_a_tensor_of_the_host_has_the_checksum_of_the_same_tensor_of_a_gpu(numel: int) -> None:
    """A rank may hold on a GPU what another one holds in the memory of the host. Here torch sums up for the GPU."""
    tensor = torch.arange(numel, dtype=torch.uint8)
    low, high = (word & MASK for word in sum_words_on_device(words_of(tensor)).tolist())
    assert checksum(tensor, torch.device("cuda")) == derive(_TAG, numel, low, high)


@pytest.mark.parametrize("numel", [0, 1, CHUNK, CHUNK + 1, 600 * CHUNK + 3])
def test_a_device_sums_as_the_host_does(numel: int) -> None:
    words = words_of(torch.arange(numel, dtype=torch.int64) * 0x9E37_79B9_7F4A_7C15)
    on_host = sum_words(words.numpy().view(np.uint64))
    assert tuple(word & MASK for word in sum_words_on_device(words).tolist()) == on_host


@pytest.mark.parametrize("numel", [0, 3, 3 * CHUNK])
def test_a_tensor_may_still_be_resized(numel: int) -> None:
    tensor = torch.zeros(numel)
    checksum(tensor, CPU)
    assert tensor.resize_(4 * CHUNK).shape == (4 * CHUNK,)
