"""The ranks of one host of `benchmarks.nodes`: steps with each way to sum gradients, in turns.

``python -m benchmarks.programs.node_ranks HOST CASE``: the number of the host, from 0, and a `Case` as JSON. Rank 0
writes a line of JSON before and after each block of steps and then waits for a line, so that its parent can read the
counters of interfaces while nothing is sent. After the last block it writes the SHA-256 of the weights.

Gradients are made, not computed: a layer waits as long as a GPU would compute. So the ranks do not share processors
that they would not share on real hosts.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, Final, NamedTuple

import torch
from torch import distributed, nn
from torch.distributed import TCPStore
from torch.nn.parallel import DistributedDataParallel

from legato.core.balance import Costs
from legato.core.view import Member, View
from legato.train.membership.connection import make_exchange
from legato.train.membership.groups import Group, build
from legato.train.reduction.exchange import Exchange, PrivateExchange
from legato.train.reduction.node_exchange import NodeExchange
from legato.train.reduction.reducer import StepReducer

PORT, DDP_PORT = 29400, 29401
EXACT: Final = ("chosen", "even", "aligned", "before")
_BYTES_ONLY: Final = Costs(micro_batch_s=1e-9, transfer_s=1.0)
_FORWARD_SHARE: Final = 1 / 3


class Case(NamedTuple):
    """One comparison.

    Args:
        addresses: of the hosts.
        num_workers: of each host.
        num_micro_batches: of a step.
        numel: number of parameters.
        num_layers: equal parts of them.
        micro_batch_s: how long a micro-batch takes.
        modes: ways to sum, in the order of their turns: ``chosen`` is what Legato does; ``even`` and ``aligned`` fix
            the spans; ``before`` sends every rank's blocks to every other rank; ``fast``; ``ddp``.
        num_blocks: turns of each mode; one more warms up.
        num_steps: of a block.
    """

    addresses: list[str]
    num_workers: int
    num_micro_batches: int
    numel: int
    num_layers: int = 40
    micro_batch_s: float = 0.0
    modes: list[str] = [*EXACT]  # noqa: RUF012 -- JSON has no tuples
    num_blocks: int = 1
    num_steps: int = 4


class _Layer(torch.autograd.Function):
    """Passes its input on; its parameter gets a gradient of its own for each micro-batch."""

    @staticmethod
    def forward(ctx: Any, inputs: torch.Tensor, _weight: torch.Tensor, made: Any) -> torch.Tensor:
        ctx.made = made
        return inputs.clone()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> Any:
        pattern, factor, seconds = ctx.made
        time.sleep(seconds)
        return grad_outputs[0], pattern * factor, None


class Net(nn.Module):
    """Layers whose gradients differ by a factor between micro-batches, so that sums depend on their order."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        size = case.numel // case.num_layers
        self.weights = nn.ParameterList(torch.randn(size, generator=generator) for _ in range(case.num_layers))
        self.pattern = torch.randn(size, generator=generator)
        self.factors = torch.randn(case.num_micro_batches, generator=generator).tolist()
        self.seconds = case.micro_batch_s

    def forward(self, micro_batch: int) -> torch.Tensor:
        time.sleep(self.seconds * _FORWARD_SHARE)
        seconds = self.seconds * (1 - _FORWARD_SHARE) / len(self.weights)
        outputs = torch.zeros((), requires_grad=True)
        for weight in self.weights:
            outputs = _Layer.apply(outputs, weight, (self.pattern, self.factors[micro_batch], seconds))  # type: ignore[no-untyped-call]
        return outputs


class Trainer:
    """One rank's steps with Legato."""

    def __init__(self, case: Case, group: Group) -> None:
        self.case, self.group = case, group
        self.net = Net(case)
        self.reducer = StepReducer(list(self.net.parameters()), [], 1)
        self.exchanges = {mode: self._connect(mode) for mode in case.modes if mode != "ddp"}

    def _connect(self, mode: str) -> Exchange:
        reducer, num = self.reducer, self.case.num_micro_batches
        if mode == "before":
            return PrivateExchange(self.group, reducer.buckets, num)
        made = make_exchange(
            self.group, reducer.buckets, num, exact=mode != "fast", between_nodes=reducer.buckets_between_nodes
        )
        assert made is not None
        if mode == "aligned" and isinstance(made, NodeExchange):
            made.division = made.division._replace(costs=_BYTES_ONLY)
        return made

    def step(self, mode: str) -> None:
        exchange, num = self.exchanges[mode], self.case.num_micro_batches
        span = self.reducer.begin_step(exchange, self.group, num, 1, 1, lambda: self._run_round(mode))
        for micro_batch in range(span.start, span.stop) or [0]:
            self.reducer.begin_micro_batch(micro_batch, ghost=not span.num_items)
            self.net(micro_batch).backward()
            self.reducer.check_complete()
        _update(self.net)

    def _run_round(self, mode: str) -> None:
        words = self.reducer.run_round([0, *self.reducer.word()])
        if mode == "chosen":
            self.reducer.hear([word[1:] for word in words])

    def close(self) -> None:
        """Wait for the peers, which read this rank's memory, and close all."""
        self.group.barrier() if self.group.size > 1 else None
        for exchange in self.exchanges.values():
            exchange.close()
        self.reducer.close()


class DdpTrainer:
    """One rank's steps with DistributedDataParallel; each rank has as many micro-batches as Legato's busiest one."""

    def __init__(self, case: Case, rank: int, num_ranks: int) -> None:
        url = f"tcp://{case.addresses[0]}:{DDP_PORT}"
        distributed.init_process_group("gloo", init_method=url, rank=rank, world_size=num_ranks)
        self.net = Net(case)
        self.model = DistributedDataParallel(self.net)
        self.num_micro_batches = -(-case.num_micro_batches // num_ranks)

    def step(self, _mode: str) -> None:
        for number in reversed(range(self.num_micro_batches)):
            with self.model.no_sync() if number else nullcontext():
                self.model(number).backward()
        _update(self.net)


def _update(net: Net) -> None:
    with torch.no_grad():
        for weight in net.weights:
            assert weight.grad is not None
            weight.sub_(weight.grad, alpha=1e-3)
            weight.grad = None


def main(host: int, case: Case) -> None:
    torch.set_num_threads(1)
    children = []
    for place in range(case.num_workers):
        child = os.fork()
        if child == 0:
            run(host * case.num_workers + place, case)
            sys.stdout.flush()
            os._exit(0)
        children.append(child)
    if any(os.waitpid(child, 0)[1] for child in children):
        sys.exit(f"a rank of host {host} failed")


def run(rank: int, case: Case) -> None:
    """Take one rank's part in a case."""
    num_ranks = len(case.addresses) * case.num_workers
    members = tuple(
        Member(number, case.addresses[number // case.num_workers], f"node {number // case.num_workers}")
        for number in range(num_ranks)
    )
    # The first rank serves the addresses of all.
    store = (
        TCPStore(case.addresses[0], PORT, is_master=True, wait_for_workers=False)
        if rank == 0 and num_ranks > 1
        else None
    )
    view = View(1, members, f"{case.addresses[0]}:{PORT}")
    group = build(view, rank, "nodes", torch.device("cpu"))
    trainer = Trainer(case, group)
    ddp = DdpTrainer(case, rank, num_ranks) if "ddp" in case.modes else None
    for mode, is_counted in _turns(case):
        taker = ddp if mode == "ddp" else trainer
        assert taker is not None
        told = _block(case, group, mode, taker.step)
        if rank == 0 and is_counted:
            _say(told)
            sys.stdin.readline()
    digest = hashlib.sha256(b"".join(w.detach().numpy().tobytes() for w in trainer.net.weights)).hexdigest()
    for number, each in enumerate(group.all_gather_object(digest) if num_ranks > 1 else [digest]):
        assert each == digest, f"ranks {rank} and {number} have different weights"
    if rank == 0:
        spans = {mode: list(map(tuple, _spans(exchange, case))) for mode, exchange in trainer.exchanges.items()}
        _say({"digest": digest, "spans": spans, "kinds": {m: type(e).__name__ for m, e in trainer.exchanges.items()}})
    trainer.close()
    if ddp is not None:
        distributed.destroy_process_group()
    del store


def _turns(case: Case) -> Iterator[tuple[str, bool]]:
    for number in range(case.num_blocks + 1):
        yield from ((mode, number > 0) for mode in case.modes)


def _block(case: Case, group: Group, mode: str, step: Callable[[str], None]) -> dict[str, Any]:
    """Run the steps of a block; return the seconds of the fastest, and those of a processor for each step.

    The parent reads counters before and after.
    """
    if group.rank == 0:
        _say({"begins": mode})
        sys.stdin.readline()
    if group.size > 1:
        group.barrier()
    seconds = []
    used_s = time.process_time()
    for _ in range(case.num_steps):
        began = time.perf_counter()
        step(mode)
        seconds.append(time.perf_counter() - began)
    used_s = time.process_time() - used_s
    if group.size > 1:
        group.barrier()
    # What else this machine does makes steps longer, never shorter.
    return {"mode": mode, "seconds": min(seconds), "cpu_seconds": used_s / case.num_steps}


def _spans(exchange: Exchange, case: Case) -> list[tuple[int, int]]:
    return [(span.start, span.stop) for span in exchange.division.assign(case.num_micro_batches).spans]


def _say(told: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), Case(*json.loads(sys.argv[2])))
