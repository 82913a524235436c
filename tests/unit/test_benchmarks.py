import json
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from benchmarks import changes, deaths, elasticdl, figures, history, memory, peers, report, step_time
from benchmarks.diaries import Diary, first_step_among, median_step
from benchmarks.figures import summarize

from legato.control.records import DeclaredSlot, Node, Queue
from legato.control.roles import Asker, Role
from legato.control.store import open_store
from legato.control.store.database import Database
from legato.core.spec import JobSpec

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "benchmarks.md"
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.json"))


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_the_page_shows_what_was_measured(path):
    result = json.loads(path.read_text())
    page = PAGE.read_text()
    assert report.put_between_markers(page, result["name"], report.render(result)) == page, (
        "the table is not what the results render to: run benchmarks.report.update"
    )


def test_every_result_has_its_place_on_the_page():
    assert set(re.findall(r"<!-- begin: (\w+) -->", PAGE.read_text())) >= {path.stem for path in RESULTS}


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_committed_results_are_full_ones_of_a_known_commit(path):
    known = json.loads(path.read_text())["provenance"]
    assert known["settings"] == "full"
    assert re.fullmatch(r"[0-9a-f]{12}", known["commit"])


def summary(median):
    return summarize([median]).to_plain()


def step_time_result(ratio, target):
    row = {
        "model": "100k",
        "workers": 2,
        "reduction": "exact",
        "micro_batches_per_worker": 1,
        "ratio": summary(ratio),
        "ours_ms": summary(2.0),
        "theirs_ms": summary(1.0),
        "target": target,
    }
    provenance = {
        "date": "2026-01-02T03:04:05+00:00",
        "commit": "0123456789ab",
        "changed": False,
        "settings": "full",
        "cores": 2,
        "processor": "a processor",
        "memory_gb": 8,
        "python": "3.11.0",
        "torch": "2.13.0",
        "device": "cpu",
        "backend": "gloo",
        "load_before": [0.1, 0.1, 0.1],
    }
    return {"name": "step_time", "provenance": provenance, "rows": [row], "failures": []}


def test_a_figure_out_of_reach_is_called_so():
    assert "≤ 1.15: **not reached**" in report.render(step_time_result(1.2, 1.15))
    assert "≤ 1.15: reached" in report.render(step_time_result(1.1, 1.15))


def test_figures_beside_those_of_another_system_say_how_many_times_longer_it_took():
    rows = [elasticdl._row("kill", [0.5, 0.3, 0.4]), elasticdl._counted("collapse", 0, 12)]
    shown = report.render({**step_time_result(1.0, None), "name": "elasticdl", "rows": rows})
    assert (
        "| **0.400 s** (worst 0.500), 3 times | 4.0 | 30.2, 31.2, 32.3 and 30.3 s, where it recovered | **75.5** |"
        in shown
    )
    assert "| **0 of 12** | - | 3 of 7 | - |" in shown


def test_a_job_that_restarts_is_seen():
    commits = {step: (float(step), 3) for step in range(1, 10)}
    blow = elasticdl.Blow(9.5, 1)
    went_on = {**commits, **{step: (step + 1.0, 2) for step in range(10, 14)}}
    assert elasticdl._begun_anew({0: Diary(commits=went_on)}, [blow]) == []
    other = Diary(commits={step: (step + 10.0, 2) for step in range(1, 4)})
    (told,) = elasticdl._begun_anew({0: Diary(commits=commits), 2: other}, [blow])
    assert told == "after the death of worker 1 it restarted from scratch"


def test_what_could_not_be_measured_is_reported():
    result = step_time_result(1.0, None)
    result["failures"] = ["the machine caught fire"]
    assert "Not measured: the machine caught fire" in report.render(result)


def test_steps_of_a_diary():
    stayed = Diary(commits={1: (1.0, 2), 2: (2.0, 2), 3: (4.5, 3), 4: (6.0, 3), 5: (7.0, 3)})
    joined = Diary(commits={3: (4.6, 3), 4: (6.0, 3)})
    diaries = {0: stayed, 1: joined}
    assert first_step_among(diaries, 3, after=1.5) == 3
    assert stayed.interval(3) == 2.5
    assert joined.interval(3) is None
    assert median_step(diaries, 3, 4.0, 9.0) == pytest.approx(1.4)


def peers_result(*rows):
    return {**step_time_result(1.0, None), "name": "peers", "rows": list(rows)}


def test_a_peer_that_is_not_installed_is_reported(monkeypatch):
    monkeypatch.setattr(peers, "_rows", lambda *_: iter([{"peer": "torchrun"}]))
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda _: None)
    told = []
    _, row = peers.measure(quick=True, say=told.append)
    assert told == ["SKIPPED: torchft is not installed"]
    assert "| torchft | - | skipped: not installed | - |" in report.render(peers_result(row))


def test_a_peer_that_is_installed_is_measured_under_its_version(monkeypatch):
    monkeypatch.setattr(peers, "_rows", lambda make_peer, told, *_: iter([told]))
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(peers.importlib.metadata, "packages_distributions", lambda: {"torchft": ["torchft-nightly"]})
    monkeypatch.setattr(peers.importlib.metadata, "version", lambda name: f"1.2 of {name}")
    rows = list(peers.measure(quick=True, say=pytest.fail))
    assert rows == ["torchrun", "torchft-nightly 1.2 of torchft-nightly"]


def test_short_and_long_gaps_of_peers_can_be_read():
    rows = [
        {"peer": name, "event": "join", "model": "100k", "gap_s": summarize(gaps).to_plain()}
        for name, gaps in (("short", [0.05, 0.052, 1.25]), ("long", [5.25, 7.0, 13.75]))
    ]
    rendered = report.render(peers_result(*rows))
    assert "| short | join, 100k | **0.052 s** (worst 1.250) | 3 |" in rendered
    assert "| long | join, 100k | **7.0 s** (worst 13.8) | 3 |" in rendered


def test_the_longest_step_of_a_join_is_one_of_the_switch():
    # Long steps before and after it are not the join's, nor are those of others.
    steps = [(0.0, 2, 2), (3.0, 2, 2), (3.1, 3, 2), (3.2, 3, 2), (3.6, 3, 3), (9.0, 3, 3)]
    lines = [{"worker": 1, "at": at, "group_size": size, "num_workers": num} for at, size, num in steps]
    lines.insert(3, {"worker": 2, "at": 3.15, "group_size": 3, "num_workers": 3})
    assert peers.longest_step_of_join(lines, 1, 3) == pytest.approx(0.4)


def test_a_decision_is_compared_with_its_bound():
    rows = [
        {
            "policy": "fair",
            "moment": "nothing changes",
            "slots": 10_000,
            "jobs": 2_000,
            "decision_ms": summary(median),
            "target_ms": 100.0,
        }
        for median in (40.0, 150.0)
    ]
    table = report.render({**step_time_result(1.0, None), "name": "scheduling", "rows": rows})
    assert "| 10,000 slots, 2,000 jobs | **40 ms** (40 to 40) | 0.40 | ≤ 100 ms: reached |" in table
    assert "| 1.50 | ≤ 100 ms: **not reached** |" in table


def test_ended_jobs_of_a_benchmark_are_whole(tmp_path):
    url = f"sqlite:///{tmp_path / 'legato.db'}"
    with open_store(url) as store:
        store.tokens.create_first(1.0)
        store.queues.put(Queue(name="closed", is_open=False), Asker("admin", Role.ADMIN), 1.0)
        lease = store.loop.take_lease("loop", 1.0, 1e9)
        store.pool.declare([Node(name="n", engine="local", slots=(DeclaredSlot("n/0", "cpu"),))], lease.fence, 1.0)
        middle, newest = history.fill(Database(url), 20)
        page = store.jobs.list()
        assert len(page.items) == 20
        assert page.items[10].id <= middle <= page.items[9].id
        assert {str(job.stage) for job in page.items} <= {"succeeded", "failed", "stopped"}
        assert store.events.read_last_seq() == newest
        assert len(store.events.read_after(0, job=middle)) == 5
        assert store.pool.list_open() == ()
        assert store.loop.read_facts().jobs == ()


def test_requests_beside_those_to_a_server_with_few_jobs():
    row = {"what": "the pool", "jobs": 100_000, "few": 1_000, "ratio": figures.plain([1.3]), "target": 1.2}
    rows = [{**row, "cpu_ms": [13.0, 10.0], "ms": [20.0, 16.0]}]
    shown = report.render({**step_time_result(1.0, None), "name": "history", "rows": rows})
    assert "100,000 / 1,000 ended jobs" in shown
    assert "| the pool | **1.30** (1.30 to 1.30) | ≤ 1.20: **not reached** | 13.0 : 10.0 | 20.0 : 16.0 |" in shown


def read_cases(module, name, monkeypatch):
    """Return the arguments of each measurement of a full run, without measuring."""
    seen = []
    monkeypatch.setattr(module, name, lambda *arguments, **_: seen.append(arguments) or {})
    list(module.measure(quick=False, say=pytest.fail))
    return seen


def test_changes_are_measured_at_every_size_and_number_of_workers(monkeypatch):
    seen = {arguments[:3] for arguments in read_cases(changes, "measure_case", monkeypatch)}
    sizes = ((1, 2), (2, 3), (3, 4))
    assert seen == {(state, *size) for state in ("10MB", "100MB", "250MB", "1GB") for size in sizes}
    assert [changes._bytes_of(state) for state in ("10MB", "1GB")] == [10**7, 10**9]


def test_deaths_and_steps_of_a_residual_network_are_measured(monkeypatch):
    seen = {arguments[:2] for arguments in read_cases(deaths, "measure_case", monkeypatch)}
    assert seen == {(signal, model) for signal in ("SIGKILL", "SIGSTOP") for model in ("100k", "10M", "resnet-medium")}
    assert {case.model for case in step_time._cases()} == {"100k", "10M", "resnet-medium", "language-model"}
    assert all(case.target is None for case in step_time._cases() if case.model not in ("100k", "10M"))


def test_the_limit_of_a_stopped_process_is_that_of_the_default_settings():
    (default,) = (field.default for field in msgspec.structs.fields(JobSpec) if field.name == "heartbeat_limit_s")
    assert default / 5 == deaths._LIMIT_S


def test_memory_is_measured_beside_a_plain_loop_and_beside_ddp(monkeypatch):
    monkeypatch.setattr(memory, "_measure_ours", lambda *_: 360.0)
    monkeypatch.setattr(memory, "_measure_theirs", lambda *_: 300.0)
    rows = list(memory.measure(quick=False, say=lambda _: None))
    assert {row["model"] for row in rows} == {"10M", "language-model"}
    shown = report.render({**step_time_result(1.0, None), "name": "memory", "rows": rows})
    assert "| 10M, 1 worker | 1 | yes | a plain loop | **1.20** | 360 : 300 |" in shown
    assert "| language-model, 2 workers | 8 | no | DDP | **1.20** | 360 : 300 |" in shown


def test_the_most_memory_of_a_process_is_seen_after_it_is_freed():
    code = """
import mmap
from benchmarks.programs.memory import Peak
before, peak = bytearray(50_000_000), Peak()
held = mmap.mmap(-1, 80_000_000, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
held.write(b"x" * 80_000_000)
held.close()
print(peak.read())
"""
    # The text that is written exists once more.
    assert 155 < float(subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True)) < 180


def test_the_speed_up_of_workers_is_that_over_one_with_as_many_micro_batches():
    row = {"model": "100k", "ratio": summary(1.1), "theirs_ms": summary(1.0), "extra_us": summary(9.0), "target": None}
    cases = ((1, 4, 6.0), (1, 8, 12.0), (2, 4, 4.0), (2, 16, 9.0))
    rows = [{**row, "workers": n, "micro_batches": v, "ours_ms": summary(ms)} for n, v, ms in cases]
    _, _, *shown = report.render({**step_time_result(1.0, None), "name": "micro_batches", "rows": rows}).splitlines()
    assert [line.split("|")[-2].strip() for line in shown[:4]] == ["-", "-", "**1.50**", "-"]
