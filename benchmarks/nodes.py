"""(l) Steps on several nodes: each way to sum gradients beside the others and DistributedDataParallel, over real links.

The nodes are hosts of `tests.hosts.bed`: network namespaces of this machine, so it needs root and iproute2. All ways
take turns in the same processes. The interfaces of the hosts count the bytes.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

from tests.hosts.bed import Hosts, why_not

from benchmarks.figures import plain
from benchmarks.jobs import ROOT, BenchmarkError, Say
from benchmarks.programs.node_ranks import Case

_MODES: Final = ["chosen", "even", "aligned", "before", "fast", "ddp"]
_NUMEL: Final = 10_000_000
_CONGESTION_CONTROL: Final = "reno"
"""Every kernel has it. With the times and rates here, Cubic, the default of Linux, behaves like it."""
_TARGET: Final = 1.05
"""Of the time of a step, over that with the faster one of even and aligned spans; equal spans differ by as much."""


@dataclass
class Found:
    """What the ranks of a case measured.

    Attributes:
        seconds: of the fastest step of each block, for each way.
        cpu_seconds: that the first rank's process used per step, for each way: one value per block.
        num_bytes: that the busiest host sent per step, for each way: one value per block, with all headers.
        digest: SHA-256 of the weights.
        spans: of the ranks, for each way.
        kinds: names of the exchanges, for each way.
    """

    seconds: dict[str, list[float]] = field(default_factory=dict)
    cpu_seconds: dict[str, list[float]] = field(default_factory=dict)
    num_bytes: dict[str, list[float]] = field(default_factory=dict)
    digest: str = ""
    spans: dict[str, list[list[int]]] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)


def run_case(hosts: Hosts, case: Case) -> Found:
    """Run a case on the first hosts of a bed.

    Raises:
        BenchmarkError: a host's ranks failed.
    """
    found, num_hosts = Found(), len(case.addresses)
    with ExitStack() as stack:
        pipe = subprocess.PIPE
        command = [sys.executable, "-m", "benchmarks.programs.node_ranks"]
        running = []
        for host in range(1, num_hosts + 1):
            options: dict[str, Any] = {"stdin": pipe, "stdout": pipe} if host == 1 else {}
            child = hosts.popen(host, [*command, str(host - 1), json.dumps(case)], cwd=ROOT, text=True, **options)
            running.append(stack.enter_context(child))
            stack.callback(child.kill)
        first = running[0]
        assert first.stdin is not None and first.stdout is not None
        before: list[int] = []
        for line in first.stdout:
            told = json.loads(line)
            sent = [hosts.bytes_sent(host) for host in range(1, num_hosts + 1)]
            if "begins" in told:
                before = sent
            elif "mode" in told:
                found.seconds.setdefault(told["mode"], []).append(told["seconds"])
                found.cpu_seconds.setdefault(told["mode"], []).append(told["cpu_seconds"])
                most = max(now - then for now, then in zip(sent, before, strict=True)) / case.num_steps
                found.num_bytes.setdefault(told["mode"], []).append(most)
            else:
                found.digest, found.spans, found.kinds = told["digest"], told["spans"], told["kinds"]
                break
            first.stdin.write("\n")
            first.stdin.flush()
        if not found.digest or any(child.wait() for child in running):
            raise BenchmarkError("The ranks of a host failed; what they wrote says why.")
    return found


def ring_bytes(case: Case) -> float:
    """Return how many bytes a node sends in a ring of all nodes, for gradients of float32."""
    num_nodes = len(case.addresses)
    return 2 * 4 * case.numel * (num_nodes - 1) / num_nodes


def measure(*, quick: bool, say: Say) -> Iterator[dict[str, Any]]:
    """Yield one row per case."""
    if reason := why_not():
        raise BenchmarkError(reason)
    for num_nodes, mbit, num_micro_batches, micro_batch_ms in _quick_cases() if quick else _cases():
        with Hosts(num_nodes) as hosts:
            for host in hosts.numbers:
                hosts.rate(host, mbit)
                hosts.run_on(
                    host, "sh", "-c", f"echo {_CONGESTION_CONTROL} > /proc/sys/net/ipv4/tcp_congestion_control"
                )
            case = Case(
                [hosts.address(host) for host in hosts.numbers],
                num_workers=1,
                num_micro_batches=num_micro_batches,
                numel=_NUMEL,
                micro_batch_s=micro_batch_ms / 1e3,
                modes=_MODES,
                num_blocks=1 if quick else 2,
            )
            found = run_case(hosts, case)
        chosen = found.seconds["chosen"]
        others = [min(pair) for pair in zip(found.seconds["even"], found.seconds["aligned"], strict=True)]
        row = {
            "nodes": num_nodes,
            "mbit": mbit,
            "micro_batches": num_micro_batches,
            "micro_batch_ms": micro_batch_ms,
            "ms": 1e3 * statistics.median(chosen),
            "to": {
                mode: plain([a / b for a, b in zip(chosen, seconds, strict=True)])
                for mode, seconds in {**found.seconds, "better": others}.items()
                if mode != "chosen"
            },
            "cpu_ms": {mode: 1e3 * statistics.median(each) for mode, each in found.cpu_seconds.items()},
            "target": _TARGET,
            "to_ring": {mode: statistics.median(each) / ring_bytes(case) for mode, each in found.num_bytes.items()},
            "longest": {mode: max(stop - start for start, stop in spans) for mode, spans in found.spans.items()},
        }
        ratios = ", ".join(f"{mode} {ratio['median']:.2f}" for mode, ratio in row["to"].items())
        say(
            f"{num_nodes} nodes, {mbit or 'no'} Mbit/s, {num_micro_batches} x {micro_batch_ms:g} ms: "
            f"{row['ms']:.0f} ms, bytes {row['to_ring']['chosen']:.2f} x ring, time over that of {ratios}"
        )
        yield row


def _cases() -> Iterator[tuple[int, float | None, int, float]]:
    for num_nodes in (2, 3, 4):
        yield num_nodes, 1000.0, 8, 20.0
    yield 3, 1000.0, 12, 20.0
    yield 3, 1000.0, 8, 400.0
    yield 2, None, 8, 20.0
    yield 3, None, 12, 20.0
    yield 3, None, 8, 20.0
    yield 3, None, 8, 100.0


def _quick_cases() -> Iterator[tuple[int, float | None, int, float]]:
    yield 2, 1000.0, 8, 20.0
    yield 3, 1000.0, 8, 20.0
    yield 3, None, 8, 20.0
