"""The exchanges for GPUs, on the CPU: gloo stands in for NCCL, and memory of the host for that of a GPU."""

from __future__ import annotations

import threading

import pytest
import torch
from tests.unit.train.ranks import run_ranks
from torch import nn

from legato.core.balance import even_spans, volume
from legato.core.span import num_merges
from legato.train import torch_private
from legato.train.membership.connection import make_exchange
from legato.train.membership.groups import Group
from legato.train.reduction.buckets import Bucket, LocalSum, OwnSum, make_buckets
from legato.train.reduction.device_exchange import (
    DeviceExchange,
    FastDeviceExchange,
    HostExchange,
    NodeDeviceExchange,
    after_present_work,
)
from legato.train.reduction.exchange import Exchange, assign
from legato.train.reduction.node_exchange import NodeExchange

_MICRO_BATCHES = 7


def _on_devices(group: Group, bucket: Bucket) -> Exchange:
    group.use_devices(group._process_group)
    return DeviceExchange(group, [bucket], _MICRO_BATCHES)


def _through_host(group: Group, bucket: Bucket) -> Exchange:
    inner = make_exchange(group, [bucket.on_host()], _MICRO_BATCHES)
    assert inner is not None
    return HostExchange([bucket], inner.division.max_pending(group.rank), inner)


def _gradients(step: int, micro_batch: int, bucket: Bucket, dtype: torch.dtype) -> list[torch.Tensor | None]:
    drawn = torch.Generator().manual_seed(100 * step + micro_batch)
    shapes = [parameter.shape for parameter in bucket.parameters]
    return [torch.randn(shape, generator=drawn, dtype=dtype) * 10.0**micro_batch for shape in shapes]


def _sum_alone(bucket: Bucket, dtype: torch.dtype) -> list[torch.Tensor]:
    results = []
    for step in range(2):
        own = OwnSum()
        for micro_batch in range(_MICRO_BATCHES):
            own.add(num_merges(0, micro_batch), _gradients(step, micro_batch, bucket, dtype), 1.0)
        total = own.total(assign(_MICRO_BATCHES, 1).additions, 1.0)
        results.append(torch.cat([gradient.reshape(-1) for gradient in total if gradient is not None]))
    return results


def _sum(exchange: Exchange, group: Group, bucket: Bucket, dtype: torch.dtype) -> list[torch.Tensor]:
    """Return the sums of two steps; the second begins before the caller has used the first."""
    results = []
    for step in range(2):
        exchange.begin_step()
        local = LocalSum(bucket, exchange.memory(bucket))
        assignment = exchange.division.assign(_MICRO_BATCHES)
        span = assignment.spans[group.rank]
        for micro_batch in range(span.start, span.stop):
            gradients = _gradients(step, micro_batch, bucket, dtype)
            local.add(num_merges(span.start, micro_batch), gradients, 1.0)
        exchange.reduce(bucket, local.blocks, assignment, announced=False)
        exchange.settle(lambda _bucket: None)
        results.append(torch.cat(list(exchange.result(bucket))).clone())
    assert results[0].dtype == dtype
    return results


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("num_ranks", [2, 3, 8])
@pytest.mark.parametrize("way", [_on_devices, _through_host])
def test_gpus_get_the_bits_of_one_worker(way, num_ranks, dtype):
    """With 8 ranks there are more ranks than micro-batches, and with 3 more ranks than numbers in the small bucket."""
    for model in (nn.Linear(50, 20, dtype=dtype), nn.Linear(1, 1, dtype=dtype)):
        (bucket,) = make_buckets(list(model.parameters()))

        def play(group: Group, bucket: Bucket = bucket) -> list[torch.Tensor]:
            return _sum(way(group, bucket), group, bucket, dtype)

        alone = _sum_alone(bucket, dtype)
        for found in run_ranks(num_ranks, play):
            assert all(torch.equal(one, other) for one, other in zip(alone, found, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
@pytest.mark.parametrize("nodes", ["ab", "aab", "aabb", "abab", "abcab", "aaabbbcc", "aaaaaabb"])
def test_gpus_of_several_nodes_give_the_bits_of_one_worker(monkeypatch, nodes, dtype):
    """Also with more ranks than micro-batches, and more than numbers in the small bucket."""
    between = _count_between(monkeypatch, nodes)
    for model in (nn.Linear(50, 20, dtype=dtype), nn.Linear(1, 1, dtype=dtype)):
        (bucket,) = make_buckets(list(model.parameters()))

        def play(group: Group, bucket: Bucket = bucket) -> list[torch.Tensor]:
            group.use_devices(group._process_group)
            exchange = make_exchange(group, [bucket], _MICRO_BATCHES)
            assert type(exchange) is NodeDeviceExchange
            return _sum(exchange, group, bucket, dtype)

        alone = _sum_alone(bucket, dtype)
        between.clear()
        for found in run_ranks(len(nodes), play, list(nodes)):
            assert all(torch.equal(one, other) for one, other in zip(alone, found, strict=True))
        if bucket.numel > len(nodes):
            numbers = tuple("abc".index(node) for node in nodes)
            spans = even_spans(_MICRO_BATCHES, numbers)
            most = 2 * volume(spans, numbers) * bucket.numel * dtype.itemsize
            assert max(between.values()) <= most + 64, "the blocks of a node are added up before they leave it"


def _count_between(monkeypatch, nodes):
    """Return the bytes that each node has sent to other nodes so far."""
    sent: dict[str, int] = {}
    lock, original = threading.Lock(), torch_private.all_to_all

    def count(group, out, given, num_out, num_given):
        node = nodes[group.rank()]
        with lock:
            sent[node] = sent.get(node, 0) + sum(
                num for num, other in zip(num_given, nodes, strict=True) if other != node
            )
        return original(group, out, given, num_out, num_given)

    monkeypatch.setattr(torch_private, "all_to_all", count)
    return sent


def test_a_step_that_begins_again_leaves_the_last_result():
    (bucket,) = make_buckets(list(torch.nn.Linear(3, 2).parameters()))

    def play(group):
        exchange = _on_devices(group, bucket)
        _sum(exchange, group, bucket, torch.float32)
        (last,) = exchange.result(bucket)
        for _ in range(2):
            # The program leaves its loop in the first turn of the next step. A peer may have missed the last result.
            exchange.begin_step()
            assert exchange.result(bucket)[0].data_ptr() != last.data_ptr()

    run_ranks(2, play)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
@pytest.mark.parametrize("nodes", [None, "abab"])
def test_the_fast_sum_between_gpus_is_one_all_reduce(monkeypatch, nodes, dtype):
    monkeypatch.setattr(torch_private, "all_to_all", None)
    calls: list[int] = []
    all_reduce = torch_private.all_reduce
    monkeypatch.setattr(torch_private, "all_reduce", lambda *given: (calls.append(1), all_reduce(*given))[1])
    (bucket,) = make_buckets(list(nn.Linear(50, 20, dtype=dtype).parameters()))

    def play(group: Group) -> list[torch.Tensor]:
        group.use_devices(group._process_group)
        exchange = make_exchange(group, [bucket], _MICRO_BATCHES, exact=False)
        assert type(exchange) is FastDeviceExchange
        return _sum(exchange, group, bucket, dtype)

    want = _sum_alone(bucket, dtype)
    for found in run_ranks(4, play, None if nodes is None else list(nodes)):
        for one, other in zip(want, found, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1.0)
    assert len(calls) == 4 * 2, "one of each rank in each step"


def test_no_peer_reads_sums_on_the_host_before_they_are_there():
    """All ranks know that the sums are complete on the GPUs; each copies them to the host at another time."""
    (bucket,) = make_buckets(list(nn.Linear(50, 20).parameters()))
    has_read = threading.Event()

    def play(group: Group) -> torch.Tensor:
        exchange = _through_host(group, bucket)
        exchange.begin_step()
        group.barrier()
        local = [exchange.memory(bucket)[0].fill_(group.rank + 1.0)]
        if group.rank == 1:
            # Without a second announcement rank 0 has its result by now.
            has_read.wait(0.2)
        exchange.reduce(bucket, local, assign(2, group.size), announced=True)
        exchange.settle(lambda _bucket: None)
        has_read.set()
        return torch.cat(list(exchange.result(bucket))).clone()

    for found in run_ranks(2, play):
        assert torch.equal(found, torch.full((bucket.numel,), 3.0))


def test_gpus_of_several_nodes_without_nccl_give_the_bits_of_one_worker():
    """Each bucket is copied to the host when it is summed, so none of its blocks can travel earlier."""
    model = nn.Sequential(*(nn.Linear(30, 20) for _ in range(3)))
    buckets = make_buckets(list(model.parameters()), 30 * 20 * 4, 30 * 20 * 4)
    assert len(buckets) > 2

    def play(group: Group) -> list[list[torch.Tensor]]:
        inner = make_exchange(group, [bucket.on_host() for bucket in buckets], _MICRO_BATCHES)
        assert isinstance(inner, NodeExchange)
        exchange = HostExchange(buckets, inner.division.max_pending(group.rank), inner)
        found = []
        for step in range(2):
            exchange.begin_step()
            assignment = exchange.division.assign(_MICRO_BATCHES)
            assert not exchange.has_early_blocks(assignment)
            span = assignment.spans[group.rank]
            for bucket in buckets:
                local = LocalSum(bucket, exchange.memory(bucket))
                for micro_batch in range(span.start, span.stop):
                    gradients = _gradients(step, micro_batch, bucket, torch.float32)
                    local.add(num_merges(span.start, micro_batch), gradients, 1.0)
                exchange.reduce(bucket, local.blocks, assignment, announced=False)
            exchange.settle(lambda _bucket: None)
            found.append([torch.cat(list(exchange.result(bucket))).clone() for bucket in buckets])
        return found

    for found in run_ranks(3, play, ["a", "b", "c"]):
        for place, bucket in enumerate(buckets):
            for one, step in zip(_sum_alone(bucket, torch.float32), found, strict=True):
                assert torch.equal(one, step[place])


def test_gpus_without_nccl_sum_through_the_host():
    buckets = make_buckets(list(nn.Linear(3, 2, device="meta").parameters()))
    for kind in run_ranks(2, lambda group: type(make_exchange(group, buckets, 4))):
        assert kind is HostExchange


def test_a_gpu_alone_adds_up_where_its_gradients_are():
    own = OwnSum()
    for micro_batch in range(2):
        own.add(num_merges(0, micro_batch), [torch.ones(3, 2, device="meta"), None], 1.0)
    gradient, absent = own.total((), 0.5)
    assert gradient is not None and gradient.device.type == "meta" and absent is None


def test_too_little_memory_of_a_gpu_is_not_taken_for_a_broken_view(monkeypatch):
    def fail(*_args):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr("legato.train.torch_private.all_to_all", fail)
    (bucket,) = make_buckets(list(nn.Linear(3, 2).parameters()))
    with pytest.raises(torch.OutOfMemoryError):
        run_ranks(2, lambda group: _sum(_on_devices(group, bucket), group, bucket, torch.float32))


def test_another_thread_waits_for_what_this_thread_has_given_to_the_gpu(monkeypatch):
    """Only the order of the calls can be seen here: an event now, a wait for it on the other thread's stream then."""
    calls: list[str] = []

    class Stream:
        def __init__(self, name="new"):
            self.name = name

        def wait_event(self, event):
            calls.append(f"{self.name} waits for {event.place}")

    class Event:
        def record(self, stream):
            self.place = f"the event of {stream.name}"

    class Within:
        def __init__(self, thing):
            self.thing = thing

        def __enter__(self):
            if isinstance(self.thing, Stream):
                current.append(self.thing)

        def __exit__(self, *_error):
            if isinstance(self.thing, Stream):
                current.pop()

    current = [Stream("training")]
    fakes = {"Stream": lambda _device: Stream(), "Event": Event, "stream": Within, "device": Within}
    for name, fake in {**fakes, "current_stream": lambda _device: current[-1]}.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    later = after_present_work(torch.device("cuda:0"), lambda: calls.append(f"call on {current[-1].name}"))
    current[0].name = "training, later"
    assert calls == []
    later()
    assert calls == ["new waits for the event of training", "call on new"]
