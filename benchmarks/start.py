"""How long it takes from a command to the first step of a training, and to the end of commands that only ask.

Each way takes turns with the plain program, so that whatever else the machine does falls on all of them.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.figures import plain
from benchmarks.jobs import ROOT, BenchmarkError, Say, scratch

_PROGRAM: Final = str(ROOT / "benchmarks" / "programs" / "first_step.py")
_EXTRA_S: Final = 0.3
_HELP_S: Final = 0.15
_LIMIT_S: Final = 120.0


def measure(*, quick: bool, say: Say) -> Iterator[dict[str, Any]]:
    """Yield one row per way to start, and one for `legato --help`."""
    legato = str(Path(sys.executable).with_name("legato"))
    ways = {
        "python, the program with Legato": [sys.executable, _PROGRAM, "legato"],
        "legato run, 1 worker": [legato, "run", "--workers", "1", _PROGRAM, "legato"],
        "legato run, 2 workers": [legato, "run", "--workers", "2", _PROGRAM, "legato"],
        "legato run, 4 workers": [legato, "run", "--workers", "4", _PROGRAM, "legato"],
    }
    seconds: dict[str, list[float]] = {way: [] for way in ("plain", *ways, "--help")}
    with scratch() as directory:
        # The first turn fills the caches of files.
        for turn in range(3 if quick else 12):
            plain_s = _first_step_s([sys.executable, _PROGRAM, "plain"], directory)
            found = {way: _first_step_s(command, directory) for way, command in ways.items()}
            found |= {"plain": plain_s, "--help": _whole_s([legato, "--help"], directory)}
            if turn:
                for way, of_way in found.items():
                    seconds[way].append(of_way)
    for way in ways:
        extra_s = plain([ours - theirs for ours, theirs in zip(seconds[way], seconds["plain"], strict=True)])
        say(f"{way}: {extra_s['median']:.2f} s above the plain program's {plain(seconds['plain'])['median']:.2f} s")
        yield {"way": way, "extra_s": extra_s, "plain_s": plain(seconds["plain"]), "target_s": _EXTRA_S}
    yield {"way": "legato --help", "whole_s": plain(seconds["--help"]), "target_s": _HELP_S}


def _first_step_s(command: Sequence[str], directory: Path) -> float:
    file = directory / "first-step"
    file.unlink(missing_ok=True)
    began = time.time()
    _run([*command, str(file)], directory)
    return float(file.read_text()) - began


def _whole_s(command: Sequence[str], directory: Path) -> float:
    began = time.time()
    _run(command, directory)
    return time.time() - began


def _run(command: Sequence[str], directory: Path) -> None:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    if done.returncode:
        raise BenchmarkError(f"{' '.join(command)}: {done.stderr}")
