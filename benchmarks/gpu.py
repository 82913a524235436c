"""What a GPU costs and gives: ``python -m benchmarks.gpu [--device cuda|cpu] [--out FILE] [--only TEXT]``.

Each measurement has a process and a limit of its own, and all findings go into one file. On the CPU the same
measurements run with smaller models: that shows that they work, and says nothing of GPUs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.gpu_provenance import describe, gpu_provenance
from benchmarks.jobs import ROOT, BenchmarkError
from benchmarks.parts import Finding, Part, run_parts

_LIMIT_S: Final = 440.0
_PART_LIMIT_S: Final = {"cuda": 130.0, "cpu": 300.0}


def make_parts(device: str) -> list[Part]:
    """Return a part for each measurement of `benchmarks.gpu_measures`."""
    from benchmarks.gpu_measures import MEASURES

    command = (sys.executable, "-m", "benchmarks.gpu_measures", "--device", device)
    return [Part(name, (*command, name), limit_of_part(device)) for name in MEASURES]


def limit_of_part(device: str) -> float:
    """Return after how many seconds a part counts as hanging; a rehearsal may share the cores with other work."""
    return _PART_LIMIT_S[device]


def run_target(
    name: str, make: Callable[[str], Sequence[Part]], arguments: Sequence[str], *, num_at_once: int = 1
) -> int:
    """Run the parts of a make target, show a summary, and return the exit code.

    Args:
        name: of the target, and of its file in ``build/gpu``.
        make: returns the parts for a device.
        arguments: of the command line.
        num_at_once: parts that run beside one another.
    """
    parser = argparse.ArgumentParser(prog=name)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: a rehearsal without a GPU")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu" / f"{name}.json", help="file of results")
    parser.add_argument("--only", default="", metavar="TEXT", help="parts whose name contains the text")
    parser.add_argument("--limit", type=float, default=_LIMIT_S, metavar="SECONDS", help="for all parts together")
    options = parser.parse_args(arguments)
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {text}", flush=True)

    try:
        known = gpu_provenance(options.device, quick=options.device == "cpu")
        if options.device == "cuda" and not known["gpus"]:
            raise BenchmarkError(
                f"torch {known['torch']} finds no GPU on this machine, or was built without CUDA. "
                f"'make {name} DEVICE=cpu' rehearses on the CPU."
            )
        print(f"{name}: {describe(known)}\n", flush=True)
        parts = [part for part in make(options.device) if options.only in part.name]
    except BenchmarkError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    left_s = options.limit - (time.monotonic() - began)
    findings = run_parts(parts, options.out, known, limit_s=left_s, say=say, num_at_once=num_at_once)
    print(f"\n{summarize(findings)}\n\n{describe(known)}\nresults: {options.out}", flush=True)
    return 1 if not findings or any(each.outcome in ("failed", "not run") for each in findings) else 0


def summarize(findings: Sequence[Finding]) -> str:
    """Return a line for each part, with what it has found, and the number of parts of each outcome."""
    lines = []
    for finding in findings:
        lines.append(f"{finding.outcome:8} {finding.seconds:6.1f} s  {finding.name}")
        lines += [f"{'':19}{_show(fact)}" for fact in finding.facts if fact["what"] != "run"]
        if finding.outcome in ("failed", "not run"):
            lines.append(f"{'':19}{finding.why.splitlines()[-1] if finding.why else ''}")
    counts = {each: sum(finding.outcome == each for finding in findings) for each in dict.fromkeys(OUTCOMES)}
    return "\n".join([*lines, ", ".join(f"{number} {outcome}" for outcome, number in counts.items() if number)])


OUTCOMES: Final = ("passed", "skipped", "failed", "not run")


def _show(fact: dict[str, Any]) -> str:
    hidden = ("what", "blocks", "steps_per_block")
    return f"{fact['what']}: " + ", ".join(f"{k} {_write(value)}" for k, value in fact.items() if k not in hidden)


def _write(value: Any) -> str:
    """Write a value of a fact.

    >>> _write({"median": 1.5, "low": 1.25, "high": 2.0, "worst": 3.0}), _write({"ours": 2.5, "plain": 2})
    ('1.5 (1.25 to 2)', 'ours 2.5 : plain 2')
    """
    if isinstance(value, dict) and "median" in value:
        return f"{value['median']:g} ({value['low']:g} to {value['high']:g})"
    if isinstance(value, dict):
        return " : ".join(f"{name} {_write(part)}" for name, part in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(run_target("bench-gpu", make_parts, sys.argv[1:]))
