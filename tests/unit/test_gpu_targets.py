"""`make test-gpu` and `make bench-gpu` go on after any part, and leave one file and no process. No GPU is needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from benchmarks.gpu import make_parts, run_target, summarize
from benchmarks.gpu_measures import Machine
from benchmarks.parts import Finding, Part, run_parts

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 60.0
LEAVES_A_PROCESS = """
import os, subprocess, sys, time
from benchmarks.parts import note_fact
left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
note_fact("left", pid=left.pid)
"""


def script(text: str) -> tuple[str, ...]:
    return (sys.executable, "-c", text)


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'src'}")


def test_a_part_that_fails_hangs_or_crashes_does_not_stop_the_others(tmp_path: Path) -> None:
    out = tmp_path / "results" / "found.json"
    said: list[str] = []
    parts = [
        Part("fails", script("raise RuntimeError('no such kernel')"), LIMIT_S),
        Part("hangs", script(f"{LEAVES_A_PROCESS}\ntime.sleep(1000)"), 3.0),
        Part("crashes", script("import os; os.abort()"), LIMIT_S),
        Part("skips", script("raise SystemExit(5)"), LIMIT_S),
        Part("works", script(LEAVES_A_PROCESS), LIMIT_S),
    ]
    findings = run_parts(parts, out, {"device": "cpu"}, limit_s=LIMIT_S, say=said.append)
    assert [finding.outcome for finding in findings] == ["failed", "failed", "failed", "skipped", "passed"]
    assert "no such kernel" in findings[0].why and "did not end within 3 s" in findings[1].why
    assert findings[2].why == "exit code -6"
    written = json.loads(out.read_text())
    assert written["provenance"] == {"device": "cpu"}
    assert [part["name"] for part in written["parts"]] == ["fails", "hangs", "crashes", "skips", "works"]
    # They would hold memory of the GPU.
    for finding in (findings[1], findings[4]):
        assert not is_running(finding.facts[0]["pid"])
    assert "no such kernel" in "\n".join(said) and "3 failed" in summarize(findings)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


def test_parts_that_do_not_fit_into_the_time_are_noted(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    began = time.monotonic()
    findings = run_parts([Part("late", script(""), LIMIT_S)], out, {}, limit_s=1.0, say=lambda _text: None)
    assert [finding.outcome for finding in findings] == ["not run"] and time.monotonic() - began < LIMIT_S
    assert json.loads(out.read_text())["parts"][0]["outcome"] == "not run"


def test_without_a_gpu_the_target_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert run_target("bench-gpu", make_parts, ["--out", str(tmp_path / "found.json")]) == 2
    assert "'make bench-gpu DEVICE=cpu' rehearses on the CPU" in capsys.readouterr().err


def test_workers_get_a_gpu_each_while_there_are_enough() -> None:
    one, four = Machine("cuda", 1), Machine("cuda", 4)
    assert (one.num_workers, one.spread(3), one.placed(2)) == (2, "cuda:0,cuda:0,cuda:0", "sharing 1 GPU")
    assert (four.num_workers, four.spread(4), four.placed(4)) == (4, "cuda:0,cuda:1,cuda:2,cuda:3", "a GPU each")
    assert Machine("cpu", 0).spread(3) == "cpu"


def test_the_summary_shows_medians_with_their_quartiles() -> None:
    fact = {
        "what": "step",
        "blocks": 3,
        "ratio": {"median": 1.5, "low": 1.25, "high": 2.0},
        "ms": {"ours": 2.5, "plain": 2},
    }
    shown = summarize([Finding("alone", "passed", 2.0, [fact])])
    assert "step: ratio 1.5 (1.25 to 2), ms ours 2.5 : plain 2" in shown


def rehearse(module: str, out: Path, *options: str) -> dict[str, dict[str, object]]:
    command = [sys.executable, "-m", module, "--device", "cpu", "--out", str(out), *options]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("LEGATO_", "PYTEST_"))}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(out.read_text())
    assert found["provenance"]["device"] == "cpu" and found["provenance"]["sources"]
    return {part["name"]: part for part in found["parts"]}


def test_a_test_for_gpus_can_be_rehearsed_on_the_cpu(tmp_path: Path) -> None:
    (name, part), *rest = rehearse("tests.gpu", tmp_path / "found.json", "--only", "sums_through_the_host").items()
    assert "bits_of_the_cpu" in name and part["outcome"] == "passed" and not rest


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("module", ["tests.gpu", "benchmarks.gpu"])
def test_the_whole_target_can_be_rehearsed_on_the_cpu(tmp_path: Path, module: str) -> None:
    parts = rehearse(module, tmp_path / "found.json", "--limit", "880")
    assert len(parts) >= 10 and {part["outcome"] for part in parts.values()} <= {"passed", "skipped"}
