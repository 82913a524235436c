"""A step whose parameters are on a GPU mixes no tensors of the GPU with tensors of the host; no GPU is needed.

Tensors without values on the device ``cpu:1`` stand in for those of a GPU: torch refuses operations that mix them with
tensors of ``cpu``, as it refuses those that mix devices.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorDeviceMismatchError, FakeTensorMode

from legato.core.view import Member, View
from legato.train.membership.groups import Group
from legato.train.reduction import reducer as reducers
from legato.train.reduction.buffers import MovingBuffers
from legato.train.reduction.device_exchange import DeviceExchange, HostExchange
from legato.train.reduction.exchange import PrivateExchange
from legato.train.reduction.reducer import StepReducer
from legato.train.state.structure import buffer_slots
from legato.train.state.training_state import _load_optimizer

# The memory of gradients is looked at; here they have none.
pytestmark = pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")

GPU, HOST = torch.device("cpu:1"), torch.device("cpu")


class Net(nn.Module):
    """A layer and batch-norm: floating buffers and an integer one."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(5, 4, device=GPU), nn.BatchNorm1d(4, device=GPU)
        self.norm.num_batches_tracked = torch.zeros((), dtype=torch.int64, device=GPU)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.norm(self.layer(inputs))
        return scores


def split_tail(self: StepReducer, flat: torch.Tensor) -> reducers._Tail:
    """Say that each parameter has a gradient, each buffer has moved, and nothing was noted."""
    head = [1.0] * (self._head_numel - self.notes.numel) + [0.0] * self.notes.numel
    return reducers._Tail(head, flat[self._head_numel :])


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # These have to see values, which the tensors do not have.
    monkeypatch.setattr(MovingBuffers, "_find_strays", lambda self: (list(self._unknown), []))
    monkeypatch.setattr(StepReducer, "_split_tail", split_tail)
    with FakeTensorMode():
        yield


def sum_vectors(group: Group, _assignment: object, blocks: list[torch.Tensor], numel: int, word: list[int]) -> object:
    """Sum as `legato.train.reduction.vectors.sum_vectors`, whose messages take the memory of the host."""
    for block in blocks:
        assert block.device == HOST and block.shape == (numel,)
    return torch.zeros(numel, dtype=torch.float64), [word] * group.size


def train(num_ranks: int, way: type, monkeypatch: pytest.MonkeyPatch) -> StepReducer:
    """Train two steps of seven micro-batches on rank 0: in the first step the buffers move for the first time."""
    group = Group(View(1, tuple(Member(rank, "here") for rank in range(num_ranks)), ""), 0)
    group.swap = lambda _outgoing, _incoming: None  # type: ignore[method-assign]
    group.all_gather_object = lambda mine: [mine] * num_ranks  # type: ignore[method-assign]
    monkeypatch.setattr("legato.train.torch_private.all_to_all", lambda *_: SimpleNamespace(wait=lambda: None))
    monkeypatch.setattr(reducers, "sum_vectors", sum_vectors)
    net = Net()
    reducer = StepReducer(list(net.parameters()), buffer_slots([net]), 1)
    if way is HostExchange:
        exchange = HostExchange(
            reducer.buckets, 4, PrivateExchange(group, [bucket.on_host() for bucket in reducer.buckets], 7)
        )
    else:
        exchange = way(group, reducer.buckets, 7)
    for _ in range(2):
        # The last micro-batch is smaller.
        span = reducer.begin_step(exchange, group, 7, 3, 2, lambda: reducer.run_round([0]))
        for micro_batch in range(span.start, span.stop):
            reducer.begin_micro_batch(micro_batch, ghost=False)
            loss = net(torch.empty(3, 5, device=GPU)).sum()
            reducer.note_loss(1.0)
            reducer.backward(loss)
    assert all(parameter.grad is not None and parameter.grad.device == GPU for parameter in net.parameters())
    assert all(buffer.device == GPU for buffer in net.buffers())
    return reducer


@pytest.mark.parametrize(("num_ranks", "way"), [(1, PrivateExchange), (2, DeviceExchange), (2, HostExchange)])
def test_a_step_keeps_the_devices_apart(num_ranks: int, way: type, monkeypatch: pytest.MonkeyPatch) -> None:
    reducer = train(num_ranks, way, monkeypatch)
    if num_ranks > 1:
        # gloo would take the address of a GPU's memory for one of its own.
        assert [tensor.device for tensor in reducer._flat_result()] == [HOST] * (2 + len(reducer.buckets))
    reducer.close()


def test_a_missed_result_arrives_in_the_memory_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    reducer = train(2, DeviceExchange, monkeypatch)
    group = SimpleNamespace(
        finish=lambda _works: None, receive=lambda tensor, _peer, _tag: devices.append(tensor.device)
    )
    devices: list[torch.device] = []
    reducer.receive(group, 1)  # type: ignore[arg-type]
    assert devices and set(devices) == {HOST}
    assert all(parameter.grad is not None and parameter.grad.device == GPU for parameter in reducer.parameters)
    reducer.close()


def test_the_state_of_an_optimizer_goes_where_its_parameters_are() -> None:
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters())
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    state = optimizer.state_dict()
    for entry in state["state"].values():
        entry.update({name: value.to(HOST) for name, value in entry.items()})
    _load_optimizer(optimizer, state)
    for entry in optimizer.state.values():
        assert (entry["exp_avg"].device, entry["step"].device) == (GPU, HOST)
    optimizer.step()


def test_the_stand_in_finds_mixed_devices() -> None:
    with pytest.raises(FakeTensorDeviceMismatchError):
        torch.cat([torch.empty(2, device=GPU), torch.empty(2)])
