"""The ways that the gradients of GPUs take: NCCL between GPUs, and the memory of the host."""

from __future__ import annotations

import pytest
import torch
from benchmarks.parts import note_fact
from tests.gpu.runs import Bench
from tests.unit.train.ranks import run_ranks, run_threads
from torch import nn
from torch.distributed import HashStore

from legato.core.span import num_merges
from legato.core.view import Member, View
from legato.train.membership import groups
from legato.train.membership.connection import make_exchange
from legato.train.membership.groups import Group
from legato.train.reduction.buckets import Bucket, LocalSum, make_buckets
from legato.train.reduction.device_exchange import (
    DeviceExchange,
    FastDeviceExchange,
    HostExchange,
    NodeDeviceExchange,
    after_present_work,
)
from legato.train.reduction.exchange import Exchange, assign

NUM_MICRO_BATCHES = 7
DTYPES = [torch.float32, torch.bfloat16, torch.complex64]


def sum_up(exchange: Exchange, group: Group, bucket: Bucket) -> torch.Tensor:
    exchange.begin_step()
    local = LocalSum(bucket, exchange.memory(bucket))
    assignment = assign(NUM_MICRO_BATCHES, group.size)
    span = assignment.spans[group.rank]
    for micro_batch in range(span.start, span.stop):
        drawn = torch.Generator().manual_seed(micro_batch)
        shapes = [parameter.shape for parameter in bucket.parameters]
        gradients = [torch.randn(shape, generator=drawn, dtype=bucket.dtype) * 10.0**micro_batch for shape in shapes]
        local.add(num_merges(span.start, micro_batch), [gradient.to(bucket.device) for gradient in gradients], 1.0)
    exchange.reduce(bucket, local.blocks, assignment, announced=False)
    exchange.settle(lambda _bucket: None)
    return torch.cat(list(exchange.result(bucket))).cpu()


def sum_on_the_cpu(dtype: torch.dtype) -> torch.Tensor:
    (bucket,) = make_buckets(list(nn.Linear(50, 20, dtype=dtype).parameters()))
    found = run_ranks(2, lambda group: sum_up(make_exchange(group, [bucket], NUM_MICRO_BATCHES), group, bucket))
    return found[0]


def test_sums_through_the_host_have_the_bits_of_the_cpu(device: str) -> None:
    for dtype in DTYPES:
        for num_ranks in (2, 3):
            check_sums_through_the_host(device, num_ranks, dtype)


def check_sums_through_the_host(device: str, num_ranks: int, dtype: torch.dtype) -> None:
    (bucket,) = make_buckets(list(nn.Linear(50, 20, dtype=dtype, device=device).parameters()))

    def play(group: Group) -> torch.Tensor:
        exchange = make_exchange(group, [bucket], NUM_MICRO_BATCHES)
        if device == "cpu":
            exchange = HostExchange([bucket], exchange.division.max_pending(group.rank), exchange)
        assert isinstance(exchange, HostExchange)
        return sum_up(exchange, group, bucket)

    want = sum_on_the_cpu(dtype)
    for found in run_ranks(num_ranks, play):
        assert torch.equal(found, want)


def test_nccl_with_one_rank_gives_the_bits_of_the_cpu(device: str) -> None:
    """Uses each call of NCCL on a machine with one GPU: connect, exchange, break, end."""
    if device == "cpu":
        pytest.skip("NCCL needs a GPU")
    gpu = torch.device("cuda:0")
    carrier, obstacle = groups._try_nccl(HashStore(), 0, 1, gpu)
    assert obstacle == ""
    group = Group(View(1, (Member(0, "127.0.0.1"),), ""), 0)
    group.use_devices(carrier)
    for dtype in DTYPES:
        (bucket,) = make_buckets(list(nn.Linear(50, 20, dtype=dtype, device=gpu).parameters()))
        exchange = DeviceExchange(group, [bucket], NUM_MICRO_BATCHES)
        want = sum_on_the_cpu(dtype)
        assert torch.equal(sum_up(exchange, group, bucket), want), dtype
        nodes = NodeDeviceExchange(group, [bucket], NUM_MICRO_BATCHES)
        assert torch.equal(sum_up(nodes, group, bucket), want), dtype
        fast = FastDeviceExchange(group, [bucket], NUM_MICRO_BATCHES)
        torch.testing.assert_close(sum_up(fast, group, bucket), want, rtol=1e-2, atol=1e5)
    group.break_connections()
    group.drop()  # ends it a second time
    note_fact("nccl", version=".".join(map(str, torch.cuda.nccl.version())))


def test_nccl_refuses_two_ranks_on_one_gpu_and_says_so_in_time(device: str) -> None:
    """If a later NCCL allows it, Legato need not look at the addresses of GPUs any more."""
    if device == "cpu":
        pytest.skip("NCCL needs a GPU")
    gpu = torch.device("cuda:0")
    store = HashStore()
    tries = run_threads([lambda rank=rank: groups._try_nccl(store, rank, 2, gpu) for rank in range(2)])
    note_fact("nccl on one GPU", told=[obstacle for _, obstacle in tries])
    assert all(carrier is None and obstacle for carrier, obstacle in tries)


def test_the_job_says_when_workers_do_without_nccl(bench: Bench) -> None:
    """And CUDA was not started in the process from which they are forked."""
    found = bench.train(2, shared=True)
    told = [event for event in found.events if "several workers share one GPU" in event]
    assert len(told) == (bench.device == "cuda"), found.events
    assert "started fresh" not in found.log
    if bench.device == "cuda":
        assert all(worker["device"] == torch.cuda.get_device_name(0) for worker in found.workers)


def test_nccl_and_the_host_give_the_same_weights(bench: Bench) -> None:
    if bench.num_gpus < 2:
        pytest.skip("needs two GPUs")
    by_nccl = bench.train(bench.num_gpus)
    assert not [event for event in by_nccl.events if "memory of the host" in event], by_nccl.events
    by_host = bench.train(bench.num_gpus, variables={"LEGATO_NCCL": "0"})
    assert [event for event in by_host.events if "LEGATO_NCCL=0" in event]
    assert by_nccl.digest == by_host.digest


@pytest.mark.parametrize("way", ["host", "devices"])
def test_on_the_cpu_the_ways_of_gpus_survive_joins_and_deaths(bench: Bench, way: str) -> None:
    """With gloo in place of NCCL, so that the runtime around them is tested on machines without a GPU too."""
    if bench.device == "cuda":
        pytest.skip("for the CPU: on GPUs the other tests take these ways")
    bench.verify(way=way)


def test_a_work_queue_of_another_thread_keeps_the_order(device: str) -> None:
    """A sum that another thread starts must see what this thread's stream has computed, on any stream."""
    if device == "cpu":
        pytest.skip("the CPU has no streams")
    gpu = torch.device("cuda:0")
    stream, seen = torch.cuda.Stream(gpu), []
    with torch.cuda.stream(stream):
        tensor = torch.zeros(2**20, device=gpu)
        torch.cuda._sleep(200_000_000)
        tensor += 1
        later = after_present_work(gpu, lambda: seen.append(tensor.sum().item()))
    run_threads([later])
    assert seen == [2.0**20]
