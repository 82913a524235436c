"""Completion in a shell: installed by the command that the page names, and then used by the shell itself."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from legato.driver.journal import JobDirectory

LIMIT_S = 60.0


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A user with a home of their own, the job ``digits`` of this machine, and no platform."""
    home = tmp_path / "home"
    job = JobDirectory(home / "legato/jobs/digits")
    job.path.mkdir(parents=True)
    job.journal_file.touch()
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "legato").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m legato.cli "$@"\n')
    (programs / "legato").chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LEGATO_", "_LEGATO"))}
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return {**kept, "HOME": str(home), "XDG_CONFIG_HOME": str(home), "LEGATO_HOME": str(home / "legato"), "PATH": path}


def ask(shell: str, words: str, environment: dict[str, str]) -> str:
    """Ask for completions as the script of a shell does."""
    variables = {
        "_LEGATO_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
        "_TYPER_COMPLETE_ARGS": words,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    done = subprocess.run(
        ["legato"], env=environment | variables, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.stderr == ""
    return done.stdout


def test_bash_completes_commands_options_and_jobs_after_the_installation(environment: dict[str, str]) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    # Typer looks which shell has called it; without the second command, bash would be replaced by it.
    subprocess.run([bash, "-c", "legato --install-completion && true"], env=environment, timeout=LIMIT_S, check=True)
    # The shell's own configuration loads it.
    script = """
        source ~/.bashrc
        found=$(complete -p legato) && function=${found##*-F } && function=${function%% *}
        for words in "legato st" "legato submit --prio" "legato scale d" "legato queues s"; do
            COMP_WORDS=($words) && COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
            $function legato && echo "${COMPREPLY[*]}"
        done
    """
    told = subprocess.run([bash, "-c", script], env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    assert (told.returncode, told.stderr) == (0, "")
    assert [set(line.split()) for line in told.stdout.splitlines()] == [
        {"status", "stop"},
        {"--priority"},
        {"digits"},
        {"set"},
    ]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_the_same_words(shell: str, environment: dict[str, str]) -> None:
    assert "digits" in ask(shell, "legato scale d", environment)
    told = ask(shell, "legato st", environment)
    assert "status" in told and "stop" in told and "scale" not in told


def test_a_server_that_is_away_offers_nothing_and_says_nothing(environment: dict[str, str]) -> None:
    away = environment | {"LEGATO_SERVER": "http://127.0.0.1:9", "LEGATO_TOKEN": "lgt_nothing"}
    assert ask("bash", "legato scale d", away).split() == ["digits"]
    assert ask("bash", "legato show d", away).split() == []
