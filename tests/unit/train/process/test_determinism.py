"""Which settings a GPU gets in an exact run, and which of the program's own are doubted."""

from __future__ import annotations

import os

import pytest
import torch

from legato.train.process.determinism import find_doubts, make_deterministic

GPU, CPU = torch.device("cuda:0"), torch.device("cpu")


@pytest.fixture(autouse=True)
def settings(monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    num_threads = torch.get_num_threads()
    yield
    torch.set_num_threads(num_threads)
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = True


def test_an_exact_run_on_a_gpu_uses_deterministic_operations_only():
    torch.backends.cudnn.benchmark = True
    make_deterministic(GPU)
    assert torch.are_deterministic_algorithms_enabled() and not torch.is_deterministic_algorithms_warn_only_enabled()
    assert not torch.backends.cudnn.benchmark
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert not torch.utils.deterministic.fill_uninitialized_memory
    assert list(find_doubts(GPU)) == []


def test_with_one_thread_of_a_cpu_nothing_is_set():
    torch.set_num_threads(1)
    make_deterministic(CPU)
    assert not torch.are_deterministic_algorithms_enabled()
    assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ
    assert list(find_doubts(CPU)) == []


def test_several_threads_of_a_cpu_give_the_same_bits_each_time():
    torch.set_num_threads(4)
    make_deterministic(CPU)
    assert torch.is_deterministic_algorithms_warn_only_enabled()
    assert not torch.utils.deterministic.fill_uninitialized_memory
    assert list(find_doubts(CPU)) == []
    drawn = torch.Generator().manual_seed(1)
    weight = torch.randn(50, 64, generator=drawn, requires_grad=True)
    indices, factors = torch.randint(0, 50, (20_000,), generator=drawn), torch.randn(20_000, 64, generator=drawn)
    gradients = [torch.autograd.grad((weight[indices] * factors).sum(), weight)[0] for _ in range(10)]
    assert all(torch.equal(gradients[0], gradient) for gradient in gradients)


def test_what_the_program_has_set_before_stays(monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    make_deterministic(GPU)
    assert torch.is_deterministic_algorithms_warn_only_enabled()
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"
    assert [doubt.split(",")[0] for doubt in find_doubts(GPU)] == [
        "The program lets torch only warn of operations that are not deterministic"
    ]


def test_each_setting_that_makes_results_differ_is_named(monkeypatch):
    make_deterministic(GPU)
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.benchmark = True
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":0:0")
    off, benchmark, workspace = find_doubts(GPU)
    assert "torch.use_deterministic_algorithms(False)" in off
    assert "torch.backends.cudnn.benchmark = True" in benchmark
    assert "CUBLAS_WORKSPACE_CONFIG=:0:0" in workspace
