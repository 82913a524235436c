"""A plain command in a worker: its words, its exit code, its output, its variables, its end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests import fork_server

import legato
from legato.train.membership.connection import Leave
from legato.train.process import command, job

LAUNCHER = Path(legato.__file__).parent / "train/process/command.py"
LIMIT_S = 100.0


def launch(directory: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the launcher alone, as a worker runs it."""
    known = {name: value for name, value in os.environ.items() if not name.startswith("LEGATO_")}
    return fork_server.run(
        [sys.executable, str(LAUNCHER), *words],
        cwd=directory,
        env=known | {"PYTHONPATH": str(Path(legato.__file__).parents[1])} | environment,
        timeout=LIMIT_S,
    )


def test_words_reach_the_command_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "show.sh").write_text('for word in "$@"; do echo "[$word]"; done; exit 3\n')
    done = launch(tmp_path, "sh", "show.sh", "two words", "$HOME", "a;b", "")
    assert done.stdout == "[two words]\n[$HOME]\n[a;b]\n[]\n"
    assert done.returncode == 3


def test_python_is_the_one_that_runs_legato(tmp_path: Path) -> None:
    told = "import os, sys; print(sys.prefix, os.environ['OMP_NUM_THREADS'], os.environ.get('RANK'), sys.path[0])"
    done = launch(tmp_path, "python", "-c", told, LEGATO_THREADS="2")
    assert done.stdout.split() == [sys.prefix, "2", "None"]
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["nothing-of-the-kind", "--x"], 127, "The command 'nothing-of-the-kind' does not exist."),
        (["./train.sh"], 126, "The command './train.sh' may not be executed: make it executable"),
        (["./binary"], 126, "The command './binary' cannot be run: Exec format error."),
    ],
)
def test_a_wrong_command_is_reported(tmp_path: Path, words: list[str], code: int, told: str) -> None:
    (tmp_path / "train.sh").write_text("#!/bin/sh\n")
    (tmp_path / "binary").write_bytes(b"\x7f\x00\x01")
    (tmp_path / "binary").chmod(0o755)
    done = launch(tmp_path, *words)
    assert done.returncode == code
    assert told in done.stderr


def test_a_signal_that_ends_it_is_its_exit_code_as_in_a_shell(tmp_path: Path) -> None:
    assert launch(tmp_path, "sh", "-c", "kill -9 $$").returncode == 128 + 9


def test_a_stop_reaches_the_command_and_ends_the_worker_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # The test signals it only when it listens, and it confirms.
    monkeypatch.setattr(job, "is_to_leave", (tmp_path / "listens").exists)
    monkeypatch.setattr(command, "_POLL_S", 0.01)
    script = "trap 'touch saved; exit 5' TERM; touch listens; while :; do sleep 0.01; done"
    with pytest.raises(Leave):
        command._run(["sh", "-c", script], {})
    assert (tmp_path / "saved").exists()
