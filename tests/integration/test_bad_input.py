"""What a user may get wrong: refused or survived, and told once, clearly."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest
from tests.integration.harness import (
    LIMIT_S,
    NAME,
    PROGRAMS,
    Act,
    Reference,
    Stage,
    World,
    after_event,
    at_step,
    both,
    do_all,
    kill,
    nothing,
    scale,
    steps_later,
    with_members,
)
from tests.tiers import first_now


@pytest.mark.parametrize(
    ("how", "told"),
    first_now(
        [
            ("dies", "no such weights"),
            ("frozen", "nothing to train"),
            ("empty", "no samples"),
            ("small", "Cannot train on 6 samples"),
            ("layout", "not a multiple of"),
            ("collate", "cannot collate this one"),
            ("stop-on-nan", "stop_on_nan is set"),
        ],
        several=True,
    ),
)
def test_a_program_that_fails(stage: Stage, how: str, told: str) -> None:
    result = stage.run("bad.py", "--how", how, workers=(1, 3, 3))
    story = result.story()
    assert (result.outcome.outcome, result.outcome.exit_code) == ("failed", 1), story
    detailed = [event for event in result.events if told in (event.get("detail") or "")]
    assert len(detailed) == 1, story
    # Once, and again where the error has a cause with a traceback of its own.
    assert detailed[0]["detail"].count("Traceback") == 1 + (how == "collate"), story
    assert not result.left_over and not result.of_kind("died"), story


@pytest.mark.soak
def test_a_program_that_does_not_exist(stage: Stage) -> None:
    result = stage.run("missing.py", workers=(1, 2, 2))
    assert result.outcome.outcome == "failed" and "missing.py" in result.outcome.reason, result.story()
    assert not result.left_over


def test_a_traceback_is_shown_once(stage: Stage) -> None:
    done = run_legato("run", "--plain", "--name", NAME, "--workers", "4", str(PROGRAMS / "bad.py"), "--how", "dies")
    output = done.stdout + done.stderr
    assert done.returncode == 1, output
    assert output.count("Traceback (most recent call last)") == 1, output
    assert output.count("RuntimeError: no such weights") >= 1, output
    assert not stage.wait_until_alone()


def test_a_gpu_that_is_not_there(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused before anything starts; alone, where the program asks for its run."""
    monkeypatch.setenv("LEGATO_DEVICE", "cuda")
    done = run_legato("run", "--plain", "--name", NAME, str(PROGRAMS / "bad.py"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("legato: Cannot train on LEGATO_DEVICE=cuda: this machine offers no GPU")
    assert not stage.directory.path.exists()
    alone = subprocess.run(
        [sys.executable, str(PROGRAMS / "bad.py")], capture_output=True, text=True, env=environment()
    )
    assert alone.returncode == 1
    assert "UsageError: Cannot train on device 'cuda': torch " in alone.stderr.splitlines()[-1]


@pytest.mark.soak
def test_a_gpu_that_torch_does_not_find(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver takes it for there; its worker says otherwise, in one sentence."""
    monkeypatch.setattr("legato.engines.local.find_devices", lambda: ("cuda:0",))
    result = stage.run("bad.py", workers=(1, 1, 1))
    assert len(result.of_kind("failed")) == 2, result.story()
    failed, _ = result.of_kind("failed")
    assert "UsageError: Cannot train on device 'cuda:0': torch " in failed["reason"], result.story()
    assert failed["reason"].endswith("Set CUDA_VISIBLE_DEVICES= to train on the CPU."), result.story()
    assert failed["detail"].strip() in failed["reason"], result.story()


def test_a_port_in_use(stage: Stage) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run_legato("run", "--plain", "--port", port, str(PROGRAMS / "bad.py"))
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"port {port}" in done.stderr and "Traceback" not in done.stderr
    assert not stage.wait_until_alone()


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def run_legato(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "legato.cli", *args], capture_output=True, text=True, env=environment(), timeout=LIMIT_S
    )


def make_odd(world: World) -> None:
    (world.reins / "odd").touch()


def make_equal(world: World) -> None:
    (world.reins / "odd").unlink()


@pytest.mark.parametrize("how", first_now(["odd-model", "odd-data"]))
def test_a_joiner_that_differs_is_refused(stage: Stage, reference: Reference, how: str) -> None:
    want = reference.of("bad.py")
    plan = [
        Act(both(at_step(3), with_members(2)), do_all(make_odd, scale(3)), "one that differs"),
        Act(
            both(after_event("refused"), steps_later(2), with_members(2)),
            do_all(make_equal, scale(3)),
            "one that does not",
        ),
        Act(with_members(3), nothing, "3 at the end"),
    ]
    result = stage.run("bad.py", "--how", how, workers=(1, 3, 2), plan=plan)
    result.check(want, finishers=3, errors=["worker 2"])
    (refused,) = result.of_kind("refused")
    assert refused["level"] == "error"
    differing = "model" if how == "odd-model" else "data"
    assert differing in refused["reason"] and refused["worker"] == 2, refused


@pytest.mark.soak
def test_a_loss_that_is_not_a_number(stage: Stage) -> None:
    result = stage.run("bad.py", "--how", "nan", workers=(1, 2, 2))
    assert result.outcome.outcome == "succeeded", result.story()
    warnings = [e for e in result.events if e["level"] == "warning" and "nan" in e["reason"]]
    assert len(warnings) == 1, result.story()
    result.check_records(40)


@pytest.mark.soak
def test_a_full_disk(stage: Stage, reference: Reference) -> None:
    want = reference.of("bad.py")
    plan: list[Act] = [Act(both(at_step(10), with_members(2)), kill(0), "and a death besides")]
    result = stage.run("bad.py", "--how", "disk-full", workers=(1, 2, 2), plan=plan, checkpoint_every="5steps")
    assert (result.outcome.outcome, result.outcome.exit_code) == ("unsaved", 3), result.story()
    assert "no checkpoint of step 40 was written (there is none)" in result.outcome.reason
    assert set(result.digests.values()) == {(want.sha256, want.num_steps)}, result.story()
    result.check_records(want.num_steps, errors=["No checkpoint at step", "the job ended without"])
    told = [e for e in result.events if "No checkpoint at step" in e["reason"]]
    assert len(told) >= 3 and all(e["level"] == "error" for e in told), result.story()
    assert not result.of_kind("saved"), result.story()
