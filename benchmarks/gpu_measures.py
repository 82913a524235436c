"""The measurements of `benchmarks.gpu`, one for each call: ``python -m benchmarks.gpu_measures --device cuda NAME``.

Ratios compare blocks that took turns in the same processes. Every finding is noted as a fact of the part.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks import changes, deaths
from benchmarks.figures import plain
from benchmarks.jobs import PROGRAMS, BenchmarkError, run_job, scratch
from benchmarks.parts import note_fact

_LIMIT_S: Final = 280.0  # a part has a shorter limit on a GPU


@dataclass(frozen=True)
class Machine:
    """Where a measurement runs.

    Args:
        device: ``cpu`` or ``cuda``.
        num_gpus: that torch finds; 0 on the CPU.
    """

    device: str
    num_gpus: int

    @property
    def num_workers(self) -> int:
        """Workers of jobs: one for each GPU, at most 8; two that share the GPU if there is one."""
        return min(max(self.num_gpus, 2), 8)

    def spread(self, num_workers: int) -> str:
        """Return ``LEGATO_DEVICE`` for so many workers."""
        if self.device == "cpu":
            return "cpu"
        return ",".join(f"cuda:{number % self.num_gpus}" for number in range(num_workers))

    def placed(self, num_workers: int) -> str:
        """Return in words how so many workers are placed."""
        if self.device == "cpu":
            return "on the CPU"
        return "a GPU each" if num_workers <= self.num_gpus else f"sharing {self.num_gpus} GPU"

    def amount(self, num_blocks: int, num_steps: int) -> dict[str, int]:
        """Return how much to measure with all workers; less where the exchange takes long: through the host."""
        if self.device == "cpu":
            return {"blocks": 3, "steps_per_block": 3}
        return (
            {"blocks": num_blocks, "steps_per_block": num_steps}
            if self.num_gpus > 1
            else {"blocks": 4, "steps_per_block": 5}
        )

    def choose(self, large: str, small: str) -> str:
        """Return a model: for a GPU, or for a rehearsal on the CPU."""
        return small if self.device == "cpu" else large


def measure_alone(machine: Machine, large: str, small: str, *cases: Mapping[str, Any]) -> None:
    """Measure steps of one worker beside those of a plain loop."""
    for extra in cases:
        blocks = (
            {"blocks": 3, "steps_per_block": 3} if machine.device == "cpu" else {"blocks": 8, "steps_per_block": 20}
        )
        case = {"model": machine.choose(large, small), **blocks, **extra}
        with scratch() as directory:
            file = directory / "found.json"
            _run_alone("gpu_alone", {**case, "file": str(file)}, machine, directory)
            found = json.loads(file.read_text())
        ratios = {
            name: plain([ours / other for ours, other in zip(found["ours"], found[name], strict=True)])
            for name in ("plain", "usual")
        }
        note_fact(
            "step, one worker",
            **case,
            to_plain=ratios["plain"],
            to_usual=ratios["usual"],
            ms={name: round(1e3 * plain(times)["median"], 3) for name, times in found.items()},
        )


def measure_ddp(machine: Machine, large: str, small: str, **extra: Any) -> None:
    """Measure steps of several workers beside DistributedDataParallel's."""
    num_workers = machine.num_workers
    has_nccl = machine.device == "cuda" and num_workers <= machine.num_gpus
    case = {
        "model": machine.choose(large, small),
        "workers": num_workers,
        "reduction": "exact",
        "micro_batches_per_worker": 1,
        **machine.amount(8, 20),
        "backend": "nccl" if has_nccl else "gloo",
        **extra,
    }
    ranks = _run_ranks("step_time", case, machine)
    means = {
        side: [
            sum(sum(block) / len(block) for block in blocks) / len(blocks)
            for blocks in zip(*(rank[side] for rank in ranks), strict=True)
        ]
        for side in ("ours", "theirs")
    }
    ratio = plain([ours / theirs for ours, theirs in zip(means["ours"], means["theirs"], strict=True)])
    ms = {side: round(1e3 * plain(times)["median"], 3) for side, times in means.items()}
    note_fact("step, beside DDP", **case, placed=machine.placed(num_workers), to_ddp=ratio, ms=ms)


def measure_overlap(machine: Machine, large: str, small: str, **extra: Any) -> None:
    """Measure steps with the exchange beside the backward pass, over steps with the exchange after it."""
    case = {
        "model": machine.choose(large, small),
        "workers": machine.num_workers,
        "micro_batches_per_worker": 2,
        **machine.amount(6, 15),
        **extra,
    }
    ranks = _run_ranks("gpu_overlap", case, machine)
    ratio = plain([one / other for one, other in zip(ranks[0]["beside"], ranks[0]["after"], strict=True)])
    ms = {side: round(1e3 * plain(ranks[0][side])["median"], 3) for side in ("beside", "after")}
    note_fact(
        "exchange beside the backward pass, over after it",
        **case,
        placed=machine.placed(machine.num_workers),
        num_buckets=ranks[0]["num_buckets"],
        ratio=ratio,
        ms=ms,
        peak_mb=max(rank["peak_mb"] for rank in ranks),
    )


def measure_changes(machine: Machine) -> None:
    """Measure joins and planned leaves."""
    model = machine.choose("100MB", "10MB")
    few = machine.num_workers if machine.num_gpus > machine.num_workers else max(1, machine.num_workers - 1)
    with _devices(machine, few + 1):
        row = changes.measure_case(model, few, few + 1, 3, say=_say)
    note_fact(
        "join and leave",
        state=model,
        workers=f"{few} and {few + 1}",
        placed=machine.placed(few + 1),
        join_extra_ms=row["changes"]["grow"]["extra_ms"]["median"],
        leave_extra_ms=row["changes"]["shrink"]["extra_ms"]["median"],
        step_ms=row["changes"]["grow"]["step_ms"]["median"],
        to_first_contribution_s=row["contribution"]["total_s"]["median"],
        parts_s={name: part["median"] for name, part in row["contribution"]["parts_s"].items()},
    )


def measure_deaths(machine: Machine) -> None:
    """Measure the time from SIGKILL to the next step."""
    with _devices(machine, 3):
        row = deaths.measure_case("SIGKILL", machine.choose("10M", "100k"), 3, say=_say)
    note_fact("kill", placed=machine.placed(3), **row)


def measure_memory(machine: Machine, large: str, small: str) -> None:
    """Measure the most memory of a worker beside that of a plain loop."""
    model = machine.choose(large, small)
    found: dict[str, Any] = {}
    for name, side, micro_batches in (
        ("plain", "plain", 1),
        ("one worker", "ours", 1),
        ("one worker, 8 micro-batches", "ours", 8),
    ):
        with scratch() as directory:
            case = {"side": side, "model": model, "micro_batches": micro_batches, **_BF16, "directory": str(directory)}
            _run_alone("gpu_memory", case, machine, directory)
            found[name] = json.loads((directory / f"{side}-alone.json").read_text())["peak_mb"]
    with scratch() as directory, _devices(machine, machine.num_workers):
        case = {"side": "ours", "model": model, "micro_batches": 8, **_BF16, "directory": str(directory)}
        run_job("gpu_memory", (json.dumps(case),), directory, num_workers=machine.num_workers, limit_s=_LIMIT_S)
        peaks = [json.loads(path.read_text())["peak_mb"] for path in directory.glob("ours-*.json")]
    found[f"each of {machine.num_workers} workers, 8 micro-batches"] = max(peaks)
    note_fact("most memory, MB", model=model, placed=machine.placed(machine.num_workers), **found)


_V1, _V4 = {"micro_batches": 1}, {"micro_batches": 4}
_BF16: Final = {"precision": "bfloat16"}

MEASURES: Final[dict[str, Callable[[Machine], None]]] = {
    "alone-perceptron": lambda machine: measure_alone(machine, "10M", "100k", _V1, _V4),
    "alone-resnet": lambda machine: measure_alone(machine, "resnet", "resnet-small", {**_V1, **_BF16}),
    "alone-transformer": lambda machine: measure_alone(
        machine, "transformer", "transformer-small", {**_V1, **_BF16}, {**_V4, **_BF16}
    ),
    "ddp-perceptron": lambda machine: measure_ddp(machine, "10M", "100k"),
    "ddp-transformer": lambda machine: measure_ddp(machine, "transformer", "transformer-small", **_BF16),
    "overlap": lambda machine: measure_overlap(machine, "250MB", "10MB"),
    "joins": measure_changes,
    "deaths": measure_deaths,
    "memory": lambda machine: measure_memory(machine, "transformer", "transformer-small"),
    "alone-compiled": lambda machine: measure_alone(machine, "transformer", "100k", {**_V1, **_BF16, "compiled": True}),
}


def _run_alone(program: str, case: Mapping[str, Any], machine: Machine, directory: Path) -> None:
    command = [sys.executable, str(PROGRAMS / f"{program}.py"), json.dumps(case)]
    environment = {**os.environ, "LEGATO_DEVICE": machine.spread(1)}
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=_LIMIT_S, check=False
    )
    if done.returncode:
        raise BenchmarkError(f"{program} {json.dumps(case)} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")


def _run_ranks(program: str, case: Mapping[str, Any], machine: Machine) -> list[Any]:
    with scratch() as directory, _devices(machine, case["workers"]):
        argument = json.dumps({**case, "directory": str(directory)})
        run_job(program, (argument,), directory, num_workers=case["workers"], limit_s=_LIMIT_S)
        return [json.loads((directory / f"rank-{rank}.json").read_text()) for rank in range(case["workers"])]


class _devices:  # noqa: N801 -- a context, as in contextlib
    def __init__(self, machine: Machine, num_workers: int) -> None:
        self._value = machine.spread(num_workers)

    def __enter__(self) -> None:
        os.environ["LEGATO_DEVICE"] = self._value

    def __exit__(self, *_error: object) -> None:
        del os.environ["LEGATO_DEVICE"]


def _say(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_measures", description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("name", choices=MEASURES)
    options = parser.parse_args()
    machine = Machine(options.device, torch.cuda.device_count() if options.device == "cuda" else 0)
    MEASURES[options.name](machine)
    return 0


if __name__ == "__main__":
    sys.exit(main())
