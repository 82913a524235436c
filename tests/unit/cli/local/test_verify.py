"""The exit codes of ``legato verify``, and the files that it leaves. No job runs here."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from legato.cli import main
from legato.cli.local import verify as verifying
from legato.cli.local.comparing import Moment
from legato.core.errors import LegatoError


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory with a program, and a separate directory for temporary files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEGATO_DEVICE", "cpu")
    (tmp_path / "train.py").touch()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path


def verify(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(main.app, ["verify", *words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, " ".join(done.stderr.split())


def be_recorded(monkeypatch: pytest.MonkeyPatch, outcome: str, num_steps: int, num_workers: int = 1) -> None:
    """Let each run end with an outcome, and with records of a number of steps."""

    async def conduct(*_: Any) -> str:
        return outcome

    moments = {step: Moment(num_workers, {0: {"a": 1}}) for step in range(1, num_steps + 1)}
    monkeypatch.setattr(verifying, "_conduct", conduct)
    monkeypatch.setattr(verifying, "read_run", lambda _: moments)


def test_a_warning_of_the_program_is_shown_once(monkeypatch: pytest.MonkeyPatch) -> None:
    be_recorded(monkeypatch, "succeeded", 20)

    async def conduct(*things: Any) -> str:
        for level in ("warning", "info"):
            things[-1].on_event(SimpleNamespace(kind="note", level=level, reason=f"a {level}", detail=""))
        return "succeeded"

    monkeypatch.setattr(verifying, "_conduct", conduct)
    _, err = verify("train.py")
    assert err.count("legato: warning: a warning") == 1
    assert "info" not in err


@pytest.mark.parametrize("error", [LegatoError("no process could be started"), OSError(28, "No space left on device")])
def test_a_machine_that_cannot_run_it_is_no_difference(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    async def conduct(*_: Any) -> str:
        raise error

    monkeypatch.setattr(verifying, "_conduct", conduct)
    code, err = verify("train.py")
    assert code == 3 and "could not be compared" in err and str(error) in err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("none.py",), "Cannot verify 'none.py': there is no such file. Name the Python script that trains."),
        (("tmp",), "Cannot verify 'tmp': it is a directory."),
        (("--steps", "7", "train.py"), "Cannot verify a program in 7 steps. Give --steps 8 or more."),
        (("--steps", "many", "train.py"), "Cannot read the number of steps 'many'"),
        ((), "PROGRAM"),
    ],
)
def test_wrong_usage_ends_with_2(words: tuple[str, ...], told: str) -> None:
    code, err = verify(*words)
    assert code == 2
    assert told in err


@pytest.mark.parametrize(
    ("outcome", "num_steps", "told"),
    [
        ("failed", 20, "The program failed."),
        ("succeeded", 5, "The program trained 5 steps; at least 8 are needed."),
        ("succeeded", 0, "The program trained 0 steps; at least 8 are needed."),
        ("succeeded", 20, "The program never ran with 3 workers."),
    ],
)
def test_a_program_that_cannot_be_compared_ends_with_3(
    place: Path, monkeypatch: pytest.MonkeyPatch, outcome: str, num_steps: int, told: str
) -> None:
    be_recorded(monkeypatch, outcome, num_steps)
    code, err = verify("train.py")
    assert code == 3
    assert err.endswith(f"legato: the runs could not be compared. {told}")
    assert list((place / "tmp").iterdir()) == []


def test_an_interrupt_ends_with_130_and_leaves_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def conduct(*_: Any) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(verifying, "_conduct", conduct)
    code, err = verify("train.py")
    assert code == 130
    assert err.endswith("legato: interrupted; nothing is left running.")
    assert list((place / "tmp").iterdir()) == []
