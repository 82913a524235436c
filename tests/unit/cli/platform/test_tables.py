"""The exact output for people and for programs about each kind of record, at a fixed width."""

from __future__ import annotations

import csv
import io
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console
from tests.unit.cli.conftest import Call
from tests.unit.client.platform import NOW, Platform, make_job

from legato.api.jobs import Event, JobRecord
from legato.api.pool import Pool, Slot
from legato.cli.platform import clusters, job_outputs
from legato.cli.terminal.columns import job_columns
from legato.cli.terminal.formatting import (
    clean,
    read_duration,
    read_moment,
    read_period,
    render_age,
    render_sparkline,
)
from legato.cli.terminal.output import make_table
from legato.cli.terminal.top_view import draw_top
from legato.client.jobs import Job
from legato.core.errors import UsageError
from legato.core.system_metrics import GpuMetrics, MachineMetrics
from legato.core.wire import DATA_ADVICE
from legato.train.loop.fixed_cost import FixedCost

BERT = {
    "name": "bert",
    "owner": "bob",
    "stage": "queued",
    "num_slots": 0,
    "progress": None,
    "decided_slots": 0,
    "reason": "submitted by 'bob'",
    "decided_reason": "waits: needs 1 slot and will get 2; none is free, 2 are being freed by anna/mnist",
    "submitted_at": NOW - 5,
}
ENDED = {
    "name": "old",
    "stage": "failed",
    "num_slots": 0,
    "is_elastic": False,
    "min_workers": 2,
    "max_workers": 2,
    "reason": "worker 0 died: killed by SIGKILL",
    "exit_code": 1,
    "ended_at": NOW - 10,
    "submitted_at": NOW - 200_000,
}


def strip(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip("\n").splitlines()]


POOL = {
    "policy": "fair",
    "num_slots": 1,
    "num_usable": 1,
    "num_free": 0,
    "num_leaving": 0,
    "jobs": {"running": 1},
    "summary": None,
}


@pytest.fixture
def jobs(platform: Platform) -> Platform:
    platform.add_job(1)
    platform.add_job(2, **BERT)
    platform.add_job(3, **ENDED)
    platform.canned["/pool"] = POOL
    return platform


def test_ps(jobs: Platform, call: Call) -> None:
    assert call("ps", "--all")[1] == (
        "ID            NAME   OWNER  STAGE    GPUS       STEP    LOSS    AGE  REASON\n"
        "j-0000000003  old    anna   failed   0 of 2      120  0.1234  2d07h  worker 0 died: killed by SIGKILL\n"
        "j-0000000002  bert   bob    queued   0 of 1..4                   5s  waits: needs 1 slot and will get 2; "
        "none is free, 2 are being freed by anna/mnist\n"
        "j-0000000001  mnist  anna   running  2 of 1..4   120  0.1234  2m00s  2 of up to 4 slots: an equal share with "
        "bob/bert\n"
    )
    for limit, told in (("1", "job is"), ("2", "2 jobs are")):
        last = call("ps", "--all", "--limit", limit)[1].splitlines()[-1]
        assert last == f"Only the newest {told} shown. To show more, raise --limit."
    assert "shown" not in call("ps", "--all", "--limit", "3")[1]


def test_workers_that_cannot_connect_are_shown(jobs: Platform, call: Call) -> None:
    jobs.jobs["j-0000000001"]["progress"] |= {"unconnected": "10.0.0.2 cannot reach 10.0.0.1"}
    assert "  some workers cannot connect; 2 of up to 4 slots" in call("ps")[1]
    assert "cannot connect  10.0.0.2 cannot reach 10.0.0.1" in call("show", "mnist")[1]


def test_a_driver_that_cannot_be_started_is_shown_while_it_is_tried_again(jobs: Platform, call: Call) -> None:
    why = "its driver cannot be started: it has no default route (start 3 of 8 in a row)"
    jobs.jobs["j-0000000001"] |= {"stage": "starting", "reason": f"gets 2 slots; but {why}"}
    assert f"  {why}; 2 of up to 4 slots" in call("ps")[1]


def test_the_total_number_of_steps_is_shown_if_it_is_known(jobs: Platform, call: Call) -> None:
    jobs.jobs["j-0000000001"]["progress"] |= {"step": 42, "num_steps": 60}
    assert "  42 of 60 (70 %)  0.1234  " in call("ps")[1]
    assert "step 42 of 60 (70 %) · epoch 6" in call("show", "mnist")[1]
    assert call("ps", "-o", "csv")[1].count("progress.num_steps") == 1
    del jobs.jobs["j-0000000001"]["progress"]["num_steps"]  # as an older server answers
    assert "step 42 · epoch 6" in call("show", "mnist")[1]


def test_ps_wide(jobs: Platform, call: Call) -> None:
    jobs.jobs["j-0000000001"]["labels"] = {"team": "vision", "run": "1"}
    head, _, row = strip(call("ps", "-o", "wide")[1])
    assert head.split() == [
        *("ID", "NAME", "OWNER", "QUEUE", "PRIORITY", "STAGE", "GPUS", "STEP", "EPOCH", "LOSS", "SAMPLES/S"),
        *("ATTEMPT", "LABELS", "NOTES", "AGE", "REASON"),
    ]
    assert "default      5000  running  2 of 1..4   120      6  0.1234      812.5        1  team=vision,run=1" in row


def render(drawn: object, width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO(), force_terminal=True, color_system=None)
    console.print(drawn)
    assert isinstance(console.file, io.StringIO)
    return strip(console.file.getvalue())


def test_on_a_narrow_terminal_only_the_reason_is_folded() -> None:
    records = [msgspec.convert(make_job(number, **extra), JobRecord) for number, extra in ((1, {}), (2, BERT))]
    assert render(make_table(job_columns(NOW), records, is_wide=False), 90) == [
        "ID            NAME   OWNER  STAGE    GPUS       STEP    LOSS    AGE  REASON",
        "j-0000000001  mnist  anna   running  2 of 1..4   120  0.1234  2m00s  2 of up to 4 slots:",
        "                                                                     an equal share with",
        "                                                                     bob/bert",
        "j-0000000002  bert   bob    queued   0 of 1..4                   5s  waits: needs 1 slot",
        "                                                                     and will get 2; none",
        "                                                                     is free, 2 are being",
        "                                                                     freed by anna/mnist",
    ]


@pytest.mark.parametrize(
    ("width", "want"),
    [
        (88, "ID NAME OWNER STAGE GPUS STEP LOSS REASON"),
        (80, "NAME OWNER STAGE GPUS STEP LOSS REASON"),
        (70, "NAME OWNER STAGE GPUS STEP LOSS REASON"),
        (60, "NAME STAGE GPUS STEP REASON"),
        (50, "NAME STAGE GPUS REASON"),
        (45, "NAME STAGE GPUS REASON"),
    ],
)
def test_where_there_is_no_room_columns_give_way_to_the_reason(width: int, want: str) -> None:
    records = [msgspec.convert(make_job(number, **extra), JobRecord) for number, extra in ((1, {}), (2, BERT))]
    drawn = render(make_table(job_columns(NOW), records, is_wide=False), width)
    assert drawn[0].split()[: len(want.split()) - 1] == want.split()[:-1]
    if width >= 60:
        assert drawn[0].split() == want.split()
        assert max(map(len, drawn)) <= width
        reason = drawn[0].index("REASON")
        told = " ".join(row[reason:].strip() for row in drawn[1:])
        assert told == "2 of up to 4 slots: an equal share with bob/bert " + BERT["decided_reason"]
    wide = render(make_table(job_columns(NOW), records, is_wide=True), 200)
    assert wide[0].split()[-2:] == ["AGE", "REASON"]


def test_a_terminal_of_80_columns_shows_the_step_and_the_loss() -> None:
    progress = make_job()["progress"] | {"step": 106, "num_steps": 3200}
    changes = ({"name": "second", "progress": progress}, {"name": "first", "owner": "admin", "progress": progress})
    records = [msgspec.convert(make_job(number, **each), JobRecord) for number, each in enumerate(changes)]
    assert render(make_table(job_columns(NOW), records, is_wide=False), 80)[:2] == [
        "NAME    OWNER  STAGE    GPUS           STEP    LOSS  REASON",
        "second  anna   running  2 of 1..4  106/3200  0.1234  2 of up to 4 slots: an",
    ]
    assert "106 of 3200 (3 %)" in render(make_table(job_columns(NOW), records, is_wide=False), 140)[1]


def test_on_a_narrow_screen_there_is_room_for_the_reason_too() -> None:
    records = [msgspec.convert(make_job(), JobRecord)]
    told = render(make_table(job_columns(NOW), records, is_wide=False, is_folded=False), 60)
    assert told[1] == "mnist  running  2 of 1..4  2 of up to 4 slots: an equal sha…"


def make_slot(number: int, **changes: object) -> Slot:
    usual = {
        "id": f"node-{number // 4}/{number % 4}",
        "node": f"node-{number // 4}",
        "device": f"cuda:{number % 4}",
        **dict.fromkeys(("unusable_since", "unusable_reason", "job", "attempt", "since", "release_asked_at")),
        "is_free": False,
    }
    return Slot(**(usual | changes))  # type: ignore[arg-type]


def test_the_pool_on_the_whole_screen() -> None:
    jobs = [
        msgspec.convert(make_job(number, **extra), JobRecord)
        for number, extra in ((1, {}), (2, {"name": "bert", "owner": "bob"}), (3, BERT))
    ]
    one, two = "j-0000000001", "j-0000000002"
    slots = [
        make_slot(0, job=one, since=NOW),
        make_slot(1, job=one, since=NOW),
        make_slot(2, job=one, since=NOW, release_asked_at=NOW),
        make_slot(3, is_free=True),
        make_slot(4, job=two, since=NOW),
        make_slot(5, unusable_since=NOW, unusable_reason="drained"),
        make_slot(6, attempt=1, since=NOW),
    ]
    pool = Pool(
        policy="fair",
        num_slots=7,
        num_usable=6,
        num_free=1,
        num_leaving=1,
        jobs={"running": 2, "queued": 1, "failed": 0},
        summary="2 jobs have 4 of 6 slots; 1 job waits",
    )
    want = [
        "legato top  14:13:20  policy fair  6 slots, 1 free, 1 leaving  jobs: 2 running, 1 queued",
        "2 jobs have 4 of 6 slots; 1 job waits",
        "node-0  AAa·",
        "node-1  Bx?",
        "",
        "   ID            NAME   OWNER  STAGE    GPUS       STEP    LOSS  REASON",
        "A  j-0000000001  mnist  anna   running  2 of 1..4   120  0.1234  2 of up to 4 slots: an equal share with …",
        "B  j-0000000002  bert   bob    running  2 of 1..4   120  0.1234  2 of up to 4 slots: an equal share with …",
    ]
    last = "   j-0000000003  bert   bob    queued   0 of 1..4                waits: needs 1 slot and will get 2; none…"
    assert render(draw_top(pool, slots, jobs, NOW, height=None), 106) == [*want, last]
    assert render(draw_top(pool, slots, jobs, NOW, height=9), 106) == [*want, "and 1 more"]


def test_top_shows_what_machines_and_jobs_use_where_it_is_measured() -> None:
    used = make_job()["progress"] | {"cpus": 3.25, "memory_bytes": 3 * 2**30, "gpu_busy": 0.4, "data_wait": 0.784}
    jobs = [msgspec.convert(make_job(1, progress=used), JobRecord), msgspec.convert(make_job(2), JobRecord)]
    gpus = [
        GpuMetrics(device=f"GPU-{slot}", name="", slots=(slot,), busy=busy, memory_bytes=2**30, total_bytes=2**33)
        for slot, busy in ((0, 0.2), (1, 0.6), (2, None))
    ]
    machine = MachineMetrics(cpus=3.3, num_cpus=16, memory_bytes=2**31, total_bytes=2**36, gpus=tuple(gpus))
    pool = Pool(policy="fair", num_slots=2, num_usable=2, num_free=2, num_leaving=0, jobs={}, summary=None)
    slots = [make_slot(0, is_free=True), make_slot(4, is_free=True)]
    told = render(draw_top(pool, slots, jobs, NOW, height=None, metrics={"node-0": machine}), 200)
    assert told[2:4] == [
        "node-0  ·  CPU 3.3 of 16, memory 2.0 GiB of 64.0 GiB, GPUs 40% busy, GPU memory 3.0 GiB of 24.0 GiB",
        "node-1  ·",
    ]
    titles, first, second = told[5:]
    assert titles.split()[-7:] == ["CPU", "MEMORY", "GPU", "USE", "DATA", "WAIT", "REASON"], "no GPU memory is known"
    assert "  3.25  3.0 GiB      40%        78%  2 of up to" in first
    assert second.split("2 of up to")[0].split()[-1] == "2m00s"


def test_top_without_a_terminal_is_drawn_once(jobs: Platform, call: Call) -> None:
    jobs.canned["/slots"] = {"items": [msgspec.to_builtins(make_slot(0, job="j-0000000001", since=NOW))]}
    jobs.canned["/nodes"] = {"items": []}
    code, out, _ = call("top")
    assert code == 0
    assert strip(out)[2] == "node-0  A"
    assert "stage=queued" in jobs.asked()[0]


def test_show(jobs: Platform, call: Call) -> None:
    jobs.jobs["j-0000000001"] |= {"labels": {"team": "vision"}, "code": "ab" * 32}
    assert call("show", "mnist")[1] == (
        "anna/mnist  running  j-0000000001\n"
        "stage        running for 1m00s: its driver reports that it trains\n"
        "gpus         2 of 1..4\n"
        "why          2 of up to 4 slots: an equal share with bob/bert\n"
        "progress     step 120 · epoch 6 · loss 0.1234 · 812.5 samples/s\n"
        "terms        elastic, queue default, priority 5000, version 3\n"
        "labels       team=vision\n"
        "program      train.py --epochs 20\n"
        "code         uploaded, abababababab…\n"
        "variables    DATA=/data\n"
        "checkpoints  every 1epochs, 3 kept\n"
        "replaces     workers that are silent for 5 s, or hang for 1800 s\n"
        "submitted    2026-09-21 14:11:20 (2m00s ago)\n"
        "started      2026-09-21 14:12:20\n"
        "attempt      1\n"
    )
    assert "exit code    1\n" in call("status", "old")[1]


def explanation(**changes: object) -> dict[str, object]:
    told: dict[str, object] = {
        "job": "j-0000000002",
        "sentences": [
            "bob/bert waits in its queue: submitted by 'bob'.",
            "The policy: waits: needs 1 slot and will get 2; none is free, 2 are being freed by anna/mnist.",
            "Slots that others hold: anna/mnist 4; free: 0.",
        ],
        "wanted": 2,
        "share": 2.0,
        "because": [{"job": None, "title": "anna/mnist", "num_slots": 4}],
        "holders": [],
        "lost": [],
        "decisions": [
            {
                "time": NOW - 4,
                "attempt": 0,
                "num_slots": 0,
                "reason": "waits: needs 1 slot and will get 2; none is free",
            },
            {"time": NOW - 100_000, "attempt": 0, "num_slots": 1, "reason": "starts with 1 of up to 4 slots"},
        ],
    }
    return told | changes


def test_explain_names_the_workers_that_were_lost(jobs: Platform, call: Call) -> None:
    jobs.canned["explain"] = explanation(decisions=[], because=[])
    jobs.canned["training"] = [
        {"seq": seq, "time": NOW - 100 + seq, "kind": kind, "level": "info", "reason": reason, "worker": seq}
        for seq, kind, reason in (
            (1, "joined", "worker 1 is in view 1"),
            (2, "died", "worker 2 died: killed by SIGKILL"),
            (3, "fenced", "worker 3 is silent for 5.0 s: its process is stopped; it is killed"),
        )
    ]
    told = call("explain", "bert")[1]
    assert "is in view" not in told
    before, _, after = told.partition("Lost workers, the newest first:\n")
    assert before and [line.split("  ")[-1] for line in after.splitlines()[:2]] == [
        "worker 3 is silent for 5.0 s: its process is stopped; it is killed",
        "worker 2 died: killed by SIGKILL",
    ]
    assert "worker 2" not in call("explain", "bert", "-d", "1")[1]


def test_explain_says_once_why_a_job_failed(jobs: Platform, call: Call) -> None:
    jobs.canned["explain"] = explanation(decisions=[], because=[])
    why = ENDED["reason"]
    jobs.canned["training"] = [
        {"seq": seq, "time": NOW - 100 + seq, "kind": kind, "level": "error", "reason": reason, "worker": worker}
        for seq, kind, reason, worker in (
            (1, "died", "worker 1 died: killed by SIGKILL", 1),
            (2, "refused", "the job continues without node h1: it has no free port", None),
            (3, "failed", why, 0),
            (4, "failed", f"the job failed: {why}", None),
        )
    ]
    told = call("explain", "old")[1]
    assert "worker 1 died" in told and "continues without node h1" in told
    assert f"  {why}" not in told and "the job failed" not in told


def test_explain_shows_what_micro_batches_cost(jobs: Platform, call: Call) -> None:
    cost = FixedCost()
    while not cost.add_step(0.016, 0.0016, 16):
        pass
    advice = cost.advise(32, 16, 1)
    assert advice is not None
    jobs.canned["explain"] = explanation(decisions=[], because=[])
    jobs.canned["training"] = [
        {"seq": seq, "time": NOW - 100 + seq, "kind": "note", "level": "info", "reason": reason, "worker": 1}
        for seq, reason in enumerate(
            ("Resumed from a checkpoint.", f"{DATA_ADVICE} 50%", f"{DATA_ADVICE} 80%", advice, "Loading takes 40%.")
        )
    ]
    add_waiting_job(jobs, "slow", 0.8)
    told = " ".join(call("explain", "slow")[1].split())
    assert f"Speed: {advice}" in told
    assert f"Speed: {DATA_ADVICE} 80%" in told and "50%" not in told, "the newest of each kind"
    assert "Resumed" not in told and "Loading" not in told


def add_waiting_job(jobs: Platform, name: str, data_wait: float | None) -> None:
    """Add a job whose second attempt began 98 s ago."""
    progress = make_job()["progress"]
    jobs.add_job(4, name=name, owner="bob", progress=progress | {"data_wait": data_wait})
    jobs.canned["attempts"] = {
        "items": [
            {"attempt": number, "started_at": NOW - ago_s, "ended_at": None, "outcome": None, "reason": None}
            for number, ago_s in ((1, 500), (2, 98))
        ]
    }


@pytest.mark.parametrize(
    ("data_wait", "ago_s", "is_shown"), [(0.3, 97, True), (0.29, 97, False), (None, 97, False), (0.9, 99, False)]
)
def test_explain_advises_loader_processes_only_while_workers_wait(
    jobs: Platform, call: Call, data_wait: float | None, ago_s: float, is_shown: bool
) -> None:
    add_waiting_job(jobs, "slow", data_wait)
    jobs.canned["explain"] = explanation(decisions=[], because=[])
    jobs.canned["training"] = [
        {"seq": 1, "time": NOW - ago_s, "kind": "note", "level": "info", "reason": f"{DATA_ADVICE} 80%", "worker": 1}
    ]
    assert (f"Speed: {DATA_ADVICE} 80%" in " ".join(call("explain", "slow")[1].split())) is is_shown


def test_explain_shows_reasons_decisions_and_hints(jobs: Platform, call: Call) -> None:
    jobs.canned["explain"] = explanation()
    jobs.canned["/pool"] = POOL | {"policy": "priority", "num_usable": 4}
    jobs.jobs["j-0000000002"] |= {"min_workers": 2}
    assert call("explain", "bert")[1] == (
        "bob/bert waits in its queue: submitted by 'bob'.\n"
        "The policy: waits: needs 1 slot and will get 2; none is free, 2 are being freed by anna/mnist.\n"
        "Slots that others hold: anna/mnist 4; free: 0.\n"
        "Because of: anna/mnist (has 4).\n"
        "\n"
        "Decisions, the newest first:\n"
        "  14:13:16             0 slots  waits: needs 1 slot and will get 2; none is free\n"
        "  2026-09-20 10:26:40  1 slot   starts with 1 of up to 4 slots\n"
        "\n"
        "To get more slots sooner: 'legato set bert --priority N' (it has 5000, higher is more), or "
        "'legato scale bert …' to ask for less. To see all jobs and their slots: legato top\n"
    )
    assert any(asked.endswith("explain?limit=5") for asked in jobs.asked())
    assert "'legato set j-0000000002 --priority N'" in call("explain", "j-0000000002")[1], "the name may be another's"
    assert json.loads(call("explain", "bert", "-o", "json", "-d", "1")[1])["wanted"] == 2


@pytest.mark.parametrize(
    ("policy", "holder", "is_shown"),
    [
        ("priority", "anna/mnist", True),
        ("fair", "anna/mnist", False),
        ("fair", "bob/other", True),
        ("throughput", "bobby/other", False),
        ("fifo", "bob/other", False),
    ],
)
def test_explain_suggests_a_priority_only_where_it_gets_slots_of_others(
    jobs: Platform, call: Call, policy: str, holder: str, is_shown: bool
) -> None:
    jobs.canned["/pool"] = POOL | {"policy": policy}
    jobs.canned["explain"] = explanation(holders=[{"job": None, "title": holder, "num_slots": 1}])
    hint = call("explain", "bert")[1].splitlines()[-1]
    assert hint.endswith("To see all jobs and their slots: legato top")
    assert ("--priority N" in hint) is is_shown and "legato scale" not in hint, "its minimum is 1"


def test_explain_suggests_no_priority_if_no_other_job_is_the_cause(jobs: Platform, call: Call) -> None:
    """No node has the labels or the GPU type, for example."""
    jobs.canned["explain"] = explanation(because=[])
    assert "--priority" not in call("explain", "bert")[1]


def test_explain_suggests_no_priority_for_a_job_with_its_maximum_that_has_left_a_slot(
    jobs: Platform, call: Call
) -> None:
    most = jobs.jobs["j-0000000002"]["max_workers"]
    jobs.jobs["j-0000000002"] |= {"stage": "running", "num_slots": most}
    lost = {"slot": "n/1", "time": NOW, "reason": "it moves", "job": None, "title": None}
    jobs.canned["explain"] = explanation(wanted=most, lost=[lost])
    assert "--priority" not in call("explain", "bert")[1]


def test_explain_suggests_no_priority_if_the_pool_is_too_small(jobs: Platform, call: Call) -> None:
    jobs.canned["explain"] = explanation()
    jobs.jobs["j-0000000002"] |= {"min_workers": 2}
    assert call("explain", "bert")[1].splitlines()[-1] == (
        "The pool has 1 slot that can be used, so the job cannot start with its minimum of 2, whatever its priority. "
        "To ask for less: legato scale bert N. To see the slots: legato slots"
    )


@pytest.mark.parametrize("stage", ["queued", "running"])
def test_a_ceiling_is_named_if_no_priority_helps(jobs: Platform, call: Call, stage: str) -> None:
    jobs.jobs["j-0000000002"] |= {"stage": stage, "queue": "night"}
    jobs.canned["explain"] = explanation(ceiling=2)
    hint = call("explain", "bert")[1].splitlines()[-1]
    assert hint == (
        "Queue 'night' may have 2 slots, whatever the priority: 'legato set bert --queue NAME' moves it to another, "
        "'legato queues' lists them. An admin can raise it: 'legato queues set night --ceiling N'."
    )


@pytest.mark.parametrize(
    ("stage", "hint"),
    [
        ("paused", "To resume it: legato resume mnist"),
        ("failed", "legato logs mnist --tail 50"),
        ("succeeded", ""),
    ],
)
def test_explain_says_what_can_be_done(jobs: Platform, call: Call, stage: str, hint: str) -> None:
    jobs.jobs["j-0000000001"] |= {"stage": stage, "decided_reason": None}
    jobs.canned["explain"] = explanation(decisions=[], because=[], sentences=["It is so."])
    out = call("explain", "mnist")[1]
    assert out.startswith("It is so.\n")
    assert (out.strip("\n") == "It is so.") == (hint == "")
    assert hint in out


def test_a_plan(platform: Platform, call: Call) -> None:
    platform.canned["plan"] = {
        "starts": "soon",
        "slots_now": 0,
        "slots": 2,
        "share": 2.0,
        "reason": "would start with 2 slots as soon as they are freed; other jobs lose slots: anna/mnist 4 → 2",
        "effects": [
            {"job": None, "title": "anna/mnist", "before": 4, "after": 2},
            {"job": "j-1", "title": "bob/bert", "before": 1, "after": 0},
        ],
    }
    assert call("plan", "--workers", "1..4", "--priority", "7000")[1] == (
        "It would start with 2 slots as soon as they are freed; other jobs lose slots: anna/mnist 4 → 2.\n"
        "It would end up with 2 slots if nothing else changes; its exact share is 2.00.\n"
        "\n"
        "JOB         GPUS NOW  GPUS THEN\n"
        "anna/mnist         4          2\n"
        "bob/bert           1  0 (waits)\n"
    )
    assert platform.planned == {
        "name": "new-job",
        "program": ["new-job.py"],
        "min_workers": 1,
        "max_workers": 4,
        "priority": 7000,
    }
    assert call("plan", "my/train.py")[0] == 0
    assert platform.planned == {"name": "train", "program": ["my/train.py"]}, "the name that its submission would give"
    assert json.loads(call("plan", "-o", "json")[1])["starts"] == "soon"
    never = {"starts": "later", "slots": 0, "share": 0.0, "reason": "could not start: the pool has 4", "effects": []}
    platform.canned["plan"] |= never
    assert call("plan")[1] == "It could not start: the pool has 4.\n"


def test_the_reason_of_one_decision_is_printed_once(jobs: Platform, call: Call) -> None:
    mnist, starts = "j-0000000001", "starts with 2 of up to 4 slots: its maximum"
    jobs.add_event("stage", starts, mnist, **{"from": "queued", "to": "starting"})
    jobs.add_event("granted", starts, mnist, slots=["n/0", "n/1"])
    jobs.add_event("decision", starts, mnist, num_slots=2)
    jobs.add_event("released", "shrinks 2 → 1", mnist, slots=[f"n/{number}" for number in range(10)])
    jobs.add_event("decision", "shrinks 2 → 1", mnist, num_slots=1)
    jobs.add_event("left", "1 of its 2 workers is gone", mnist, slots=["n/1"])
    for event, moment in zip(jobs.events, (1, 1, 1, 2, 2, 3), strict=True):
        event["time"] = NOW + moment
    want = (
        f"14:13:21  stage     queued → starting: {starts}\n"
        "14:13:21  granted   n/0, n/1\n"
        "14:13:22  released  n/0, n/1, n/2, n/3, n/4, n/5, n/6, n/7 and 2 more: shrinks 2 → 1\n"
        "14:13:23  left      n/1: 1 of its 2 workers is gone\n"
    )
    assert call("events", "mnist")[1] == want
    assert len(json.loads(call("events", "mnist", "-o", "json")[1])) == 6


def test_events(jobs: Platform, call: Call) -> None:
    jobs.add_event("stage", "submitted by 'bob'", "j-0000000002", **{"from": None, "to": "queued"})
    jobs.add_event("decision", "2 of up to 4 slots", "j-0000000001", num_slots=2)
    jobs.add_event("slot", "slot node/0 joined the pool")
    assert call("events")[1] == (
        "14:13:21  j-0000000002  stage     queued: submitted by 'bob'\n"
        "14:13:22  j-0000000001  decision  2 of up to 4 slots\n"
        "14:13:23  -             slot      slot node/0 joined the pool\n"
    )
    assert call("events", "bert")[1] == "14:13:21  stage     queued: submitted by 'bob'\n"
    jobs.canned["training"] = [
        {"seq": 1, "time": NOW, "kind": "joined", "level": "info", "reason": "worker 0 is in view 1", "step": 7}
    ]
    assert call("events", "mnist", "--training")[1] == "14:13:20  joined    worker 0 is in view 1 (step 7)\n"
    assert call("events", "old")[1] == "There are no events.\n"


KILLED = {"seq": 2, "time": NOW + 1.5, "kind": "died", "level": "warning", "worker": 3, "step": 7}
KILLED |= {"reason": "worker 3 died: killed by SIGKILL"}


def test_a_worker_that_was_killed_stands_among_the_events_of_its_job(jobs: Platform, call: Call) -> None:
    jobs.add_event("stage", "it runs", "j-0000000001", **{"from": "starting", "to": "running"})
    jobs.add_event("decision", "2 of up to 4 slots", "j-0000000001", num_slots=2)
    quiet = {"seq": 1, "time": NOW, "kind": "joined", "level": "info", "reason": "worker 0 is in view 1"}
    jobs.canned["training"] = [quiet, KILLED]
    assert [line.split()[1] for line in call("events", "mnist")[1].splitlines()] == ["stage", "died", "decision"]
    first, killed, last = json.loads(call("events", "mnist", "-o", "json")[1])
    assert [first["kind"], last["kind"]] == ["stage", "decision"]
    assert (killed["seq"], killed["kind"], killed["job"]) == (None, "died", "j-0000000001")
    assert killed["reason"] == "worker 3 died: killed by SIGKILL"
    assert killed["detail"] == {"level": "warning", "worker": 3, "view": None, "step": 7, "detail": None}
    assert set(killed) == set(first), "programs read one shape"
    assert "died" not in call("events", "mnist", "--after", "1")[1], "the numbers are of two sequences"
    assert "died" in call("events", "mnist", "-o", "csv")[1]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("returned", "node b is back after 9 s"),
        ("recovered", "view 2: worker 3 died; continuing with 1 worker"),
    ],
)
def test_the_end_of_a_failure_stands_among_the_events_of_its_job(
    jobs: Platform, call: Call, kind: str, reason: str
) -> None:
    jobs.canned["training"] = [{"seq": 3, "time": NOW, "kind": kind, "level": "info", "reason": reason}]
    assert reason in call("events", "mnist")[1]


@pytest.mark.parametrize("output", ["table", "json"])
def test_followers_read_that_a_worker_was_killed(
    jobs: Platform, call: Call, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    told = threading.Event()

    def follow(job: Job, follow: bool = False, *, after: object = None) -> Iterator[Event]:
        shared: dict[str, Any] = {"job": job.id, "attempt": 1, "detail": None}
        yield Event(seq=1, time=NOW + 1, kind="stage", reason="it runs", **shared)
        jobs.canned["training"] = [KILLED]
        assert told.wait(60), "it is printed while the job still runs"
        yield Event(seq=2, time=NOW + 2, kind="stage", reason="it is over", **shared)

    def tell(line: str) -> None:
        lines.append(line)
        if "SIGKILL" in line:
            told.set()

    lines: list[str] = []
    monkeypatch.setattr(Job, "events", follow)
    monkeypatch.setattr(job_outputs, "_ASK_EVERY_S", 0.01)
    monkeypatch.setattr(job_outputs.typer, "echo", tell)
    assert call("events", "mnist", "--follow", "-o", output)[0] == 0
    if output == "json":
        assert [json.loads(line)["kind"] for line in lines] == ["stage", "died", "stage"]
    else:
        assert [line.split()[1] for line in lines] == ["stage", "died", "stage"]


def test_of_many_events_of_a_platform_the_last_are_shown(platform: Platform, call: Call) -> None:
    for number in range(250):
        platform.add_event("slot", f"the {number}th")
    shown = call("events")[1].splitlines()
    assert (len(shown), shown[-1].endswith("the 249th")) == (100, True)
    assert len(call("events", "--after", "10")[1].splitlines()) == 240


def test_metrics(jobs: Platform, call: Call) -> None:
    values: list[float | None] = [3.0, 2.5, None, 1.0, 0.5]
    loss = {"name": "loss", "step": [1, 2, 3, 4, 5], "epoch": [0] * 5, "time": [NOW] * 5, "value": values}
    flat = {"name": "rate", "step": [5], "epoch": [0], "time": [NOW], "value": [0.001]}
    none = {"name": "nothing", "step": [5], "epoch": [0], "time": [NOW], "value": [None]}
    steps: dict[str, list[float]] = {"step": [], "epoch": [], "view": [], "time": []}
    jobs.canned["metrics"] = {"series": [loss, flat, none], "steps": steps}
    assert call("metrics", "mnist")[1] == (
        "NAME     STEP   LAST  LOWEST  HIGHEST  COURSE\n"
        "loss        5    0.5     0.5        3  █▇▂▁\n"
        "rate        5  0.001   0.001    0.001  ▁\n"
        "nothing     5\n"
    )
    rows = list(csv.reader(io.StringIO(call("metrics", "mnist", "-o", "csv")[1])))
    assert rows[:2] == [["name", "step", "epoch", "time", "value"], ["loss", "1", "0", str(NOW), "3.0"]]
    assert len(rows) == 8
    assert call("metrics", "mnist", "accuracy")[0] == 2
    jobs.canned["metrics"] = {"series": [], "steps": steps}
    assert call("metrics", "mnist")[1].startswith("Job 'mnist' has no metrics yet.")


def test_the_pool(platform: Platform, call: Call) -> None:
    platform.add_job(1)
    node = {"name": "node-0", "num_slots": 4, "num_usable": 3, "num_free": 1}
    nodes = [node | {"gpu_types": {"NVIDIA T4": 4}, "labels": {"site": "x"}, "traits": {"torch": "2.13.0"}}]
    nodes[0]["address"] = "10.0.0.1"
    agent = {"version": "0.1.0", "joined_at": NOW - 900, "seen_at": NOW - 90, "drained_by": None, "drain_reason": None}
    bare = {"num_slots": 2, "num_usable": 0, "num_free": 0}
    silent = agent | {"state": "silent", "address": "10.0.0.2"}
    drained = agent | {"state": "drained", "address": "10.0.0.3", "drained_by": "anna", "drain_reason": "new disk"}
    nodes += [bare | {"name": "node-1", "agent": silent}, bare | {"name": "node-2", "agent": drained}]
    platform.canned["/nodes"] = {"items": nodes}
    slots = [
        make_slot(0, job="j-0000000001", since=NOW - 90),
        make_slot(1, is_free=True),
        make_slot(2, unusable_since=NOW, unusable_reason="not in the last declaration"),
        make_slot(3, since=NOW - 5, release_asked_at=NOW),
    ]
    platform.canned["/slots"] = {"items": [msgspec.to_builtins(slot) for slot in slots]}
    usage = [
        {"owner": "bob", "queue": "default", "slot_s": 1800.0, "num_jobs": 1},
        {"owner": "anna", "queue": "night", "slot_s": 5400.0, "num_jobs": 12},
    ]
    platform.canned["/usage"] = {"items": usage}
    assert strip(call("nodes", "-o", "wide")[1]) == [
        "NAME    GPUS  USABLE  FREE  GPU TYPE   LABELS  STATE                      ADDRESS   VERSION  MACHINE",
        "node-0     4       3     1  NVIDIA T4  site=x  server                     10.0.0.1           torch 2.13.0",
        "node-1     2       0     0                     silent for 1m30s           10.0.0.2  0.1.0",
        "node-2     2       0     0                     drained by anna: new disk  10.0.0.3  0.1.0",
    ]
    assert call("slots")[1] == (
        "SLOT      DEVICE  STATE     JOB           FOR  REASON\n"
        "node-0/0  cuda:0  held      anna/mnist  1m30s\n"
        "node-0/1  cuda:1  free\n"
        "node-0/2  cuda:2  unusable                     not in the last declaration\n"
        "node-0/3  cuda:3  leaving                  5s\n"
    )
    assert call("usage", "--since", "7d", "--until", "2026-09-21")[1] == (
        "OWNER  QUEUE    GPU HOURS  OF ALL  JOBS\n"
        "anna   night         1.50    75 %    12\n"
        "bob    default       0.50    25 %     1\n"
    )
    assert platform.asked()[-2].endswith(f"usage?since={NOW - 7 * 86400}&until=1789948800.0")
    platform.add_queue("night", weight=2.5, ceiling=8, is_open=False, members=["anna", "bob"], num_slots=3)
    assert call("queues")[1] == (
        "NAME     WEIGHT  FLOOR  CEILING  GPUS  RUNNING  QUEUED  OPEN TO\n"
        "default       1      0     none     0        0       0  all users\n"
        "night       2.5      0        8     3        0       0  anna, bob\n"
    )


def test_nodes_says_what_a_cluster_gives_and_why_it_gives_no_more(platform: Platform, call: Call) -> None:
    platform.canned["/nodes"] = {"items": [{"name": "slurm-1", "num_slots": 4, "num_usable": 4, "num_free": 1}]}
    pilot = {"id": "7", "node": "slurm-1", "state": "running", "reason": None, "ends_at": NOW + 60}
    waiting = [pilot | {"state": "waiting", "reason": reason} for reason in ("Resources", "Priority", "Priority")]
    cluster = {"kind": "slurm", "name": "Slurm", "min_pilots": 0, "max_pilots": 9, "target": 4, "trouble": None}
    platform.canned["/clusters"] = {"items": [cluster | {"pilots": [pilot, *waiting]}]}
    told = strip(call("nodes")[1])
    assert told[-2:] == [
        "1 machine of Slurm runs.",
        "3 machines wait in the queue of Slurm: Priority (2), Resources (1).",
    ]
    refused = "Slurm refuses new machines: Invalid account"
    platform.canned["/clusters"] = {"items": [cluster | {"pilots": [], "trouble": refused}]}
    assert strip(call("nodes")[1])[-1] == f"{refused}."
    platform.canned["/nodes"] = {"items": []}
    assert call("nodes")[1] == f"{refused}.\n"
    assert call("nodes", "-o", "json")[1] == "[]\n"


CLUSTER = {
    "kind": "slurm",
    "name": "Slurm",
    "min_pilots": 0,
    "max_pilots": 9,
    "target": 4,
    "trouble": None,
    "pilots": [],
}
TEST = {"job": "j-1", "node": "slurm-test", "began_at": NOW, "ended_at": None, "state": "running", "is_clean": False}


def test_clusters_lists_states_machines_and_what_idle_ones_cost(platform: Platform, call: Call) -> None:
    idle = {
        "num_machines": 1,
        "num_slots": 4,
        "slot_s": 7200,
        "total_slot_s": 36_000,
        "given_slot_s": 72_000,
        "since": NOW,
    }
    pilot = {"id": "7", "node": "slurm-1", "state": "running", "reason": None, "ends_at": None}
    waiting = pilot | {"state": "waiting", "reason": "Priority"}
    more = {"num_slots": 4, "observed_at": NOW, "idle": idle, "test": TEST | {"told": "Slurm is asked for a machine."}}
    platform.canned["/clusters"] = {"items": [CLUSTER | more | {"pilots": [pilot, waiting]}]}
    own = {"state": "ready", "version": "1", "address": "", "joined_at": NOW, "seen_at": NOW} | dict.fromkeys(
        ("drained_by", "drain_reason")
    )
    node = {"num_slots": 4, "num_usable": 4, "num_free": 1, "agent": own}
    nodes = [node | {"name": "a"}, node | {"name": "slurm-1", "labels": {"legato.cluster": "slurm"}}]
    platform.canned["/nodes"] = {"items": nodes}
    told = strip(call("clusters")[1])
    assert told[0].split() == [
        "NAME",
        "STATE",
        "SEEN",
        "WAITING",
        "RUNNING",
        "ENDING",
        "NEEDED",
        "LIMITS",
        "IDLE",
        "NOW",
    ]
    assert re.fullmatch(r"slurm +ok +\S+ ago +1 +1 +0 +4 +0\.\.9 +4 slots, 2\.00 slot hours", told[1])
    platform.canned["/clusters"] = {"items": [CLUSTER | more | {"max_pilots_per_user": 3}]}
    assert " 0..9, 3 per user " in call("clusters")[1]
    assert "Slurm were idle for 10.0 of 20.0 slot hours." in " ".join(told)
    assert "The last test of Slurm is running. Slurm is asked for a machine." in " ".join(told)
    assert told[-1] == "1 machine joined with a token: 1 ready. 'legato nodes' lists them."
    platform.canned["/clusters"] = {"items": []}
    assert "takes no machines from a cluster" in call("clusters")[1]


def test_clusters_test_tells_what_happens_and_its_exit_code_is_the_verdict(
    platform: Platform, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "_POLL_S", 0.0)
    states = [
        CLUSTER,
        CLUSTER | {"test": TEST | {"told": "Slurm is asked for a machine."}},
        CLUSTER | {"test": TEST | {"told": "It is full.", "state": "failed", "ended_at": NOW}},
        CLUSTER | {"test": TEST | {"told": "It is full.", "state": "failed", "ended_at": NOW, "is_clean": True}},
    ]
    platform.canned["/clusters"] = lambda: {"items": [states.pop(0) if len(states) > 1 else states[0]]}
    platform.canned["/clusters/slurm/test"] = make_job(1) | {"id": "j-1"}
    code, told = call("clusters", "test")[:2]
    assert code == 1
    assert told.splitlines() == [
        "Testing Slurm with job j-1. Ctrl-C ends the test.",
        "Slurm is asked for a machine.",
        "Failed: It is full.",
        "Slurm gets the machine back.",
    ]
    code, told = call("clusters", "test", "kubernetes")[:2]
    assert code != 0


def test_usage_is_drawn(platform: Platform, call: Call, place: Path) -> None:
    platform.add_job(1)
    platform.canned["/usage"] = {"items": []}
    platform.canned["/slots"] = {"items": [msgspec.to_builtins(make_slot(number, is_free=True)) for number in (0, 1)]}
    since = {"since": NOW - 500_000, "until": NOW - 40, "attempt": 1, "release_asked_at": None}
    held = [{"slot": "node-0/0", "job": "j-0000000001", **since}, {"slot": "node-0/0", "job": None, **since}]
    held[1] |= {"since": NOW - 30, "until": None}
    platform.canned["/allocations"] = {"items": held}
    code, _, err = call("usage", "--draw", "pool.svg")
    assert (code, err) == (0, "legato: drawn: pool.svg\n")
    picture = (place / "here" / "pool.svg").read_text()
    assert "anna/mnist" in picture
    assert "node-0/1" in picture, "a slot that no job had"
    assert "86400 s" in picture, "what was held before the first moment that is asked for is cut off there"
    assert any(f"allocations?since={NOW - 86400}&until={NOW}" in asked for asked in platform.asked())
    assert "Name a file" not in err
    number = len(platform.requests)
    assert "Give a name that ends in .svg or .png" in call("usage", "--draw", "pool.gif")[2]
    assert len(platform.requests) == number, "refused before anything is asked"
    platform.canned["/allocations"] = {"items": []}
    assert "no job had slots in that time" in call("usage", "--draw", "empty.svg")[2]


def test_empty_lists_have_a_message(platform: Platform, call: Call) -> None:
    for path in ("/nodes", "/slots", "/usage"):
        platform.canned[path] = {"items": []}
    platform.queues.clear()
    assert call("ps")[1] == "No such jobs. 'legato ps --all' lists those that have ended too.\n"
    assert call("ps", "-a")[1] == "No such jobs. 'legato submit' submits one.\n"
    assert call("nodes")[1] == call("slots")[1] == "No machine has joined the pool yet.\n"
    assert call("usage")[1] == "No user that you may see had slots in that time.\n"
    assert call("queues")[1].startswith("No queue is open to you.")
    assert call("tokens")[1] == "There are no tokens.\n"
    for command in ("ps", "nodes", "slots", "usage", "queues", "tokens", "users"):
        assert call(command, "-o", "json")[1] == "[]\n"
        assert call(command, "-o", "csv")[1] == ""


# ---------------------------------------------------------------- for programs


def test_programs_get_every_field_as_the_server_names_it(jobs: Platform, call: Call) -> None:
    want = jobs.jobs["j-0000000001"]
    assert json.loads(call("show", "mnist", "-o", "json")[1]) == want
    assert msgspec.yaml.decode(call("status", "mnist", "-o", "yaml")[1]) == want
    assert [job["name"] for job in json.loads(call("ps", "-o", "json")[1])] == ["bert", "mnist"]
    rows = list(csv.DictReader(io.StringIO(call("ps", "-a", "-o", "csv")[1])))
    assert [row["name"] for row in rows] == ["old", "bert", "mnist"]
    assert rows[2]["progress.step"] == "120"
    assert rows[1]["progress.step"] == ""
    assert (rows[0]["is_elastic"], rows[0]["labels"], rows[1]["exit_code"]) == ("false", "{}", "")


def test_watching_writes_a_line_a_look_for_programs(jobs: Platform, call: Call) -> None:
    looks = iter(["stopping", "stopped"])
    jobs.faults.extend([None, None])

    def move(request: object, do: object) -> object:
        jobs.jobs["j-0000000001"]["stage"] = next(looks)
        return do()  # type: ignore[operator]

    jobs.faults.extend([move, move])  # type: ignore[list-item]
    lines = call("show", "mnist", "-w", "-o", "json")[1].splitlines()
    assert [json.loads(line)["stage"] for line in lines] == ["stopping", "stopped"]


def test_what_others_wrote_cannot_move_the_cursor(platform: Platform, call: Call) -> None:
    evil = "a\x1b[2J\x1b]0;gone\x07\r\nb\u202ec"
    platform.add_job(1, reason=evil, decided_reason=evil, labels={"x": evil}, progress=None)
    platform.add_event("stage", evil, "j-0000000001")
    platform.canned["/pool"] = POOL
    platform.canned["explain"] = explanation(sentences=[evil])
    for command in (["ps"], ["ps", "-o", "wide"], ["show", "mnist"], ["explain", "mnist"], ["events", "mnist"]):
        out = call(*command)[1]
        assert "gone" in out, command
        assert not {"\x1b", "\x07", "\r", "\u202e"} & set(out), command


def test_colours_are_for_terminals_that_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    record = msgspec.convert(make_job(), JobRecord)

    def draw() -> str:
        console = Console(file=io.StringIO(), force_terminal=True, width=200, color_system="standard")
        console.print(make_table(job_columns(NOW), [record], is_wide=False))
        assert isinstance(console.file, io.StringIO)
        return console.file.getvalue()

    assert "\x1b[32mrunning" in draw()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[32m" not in draw()


# ---------------------------------------------------------------- words


@pytest.mark.parametrize("text", ["", "7 d", "d", "-3s", "1y", "inf", "nan", "1e99", "5", "1.5", "9999999999999s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError, match="Cannot read the time"):
        read_duration(text, "the time")


def test_moments() -> None:
    assert read_moment("7d", NOW, "it") == NOW - 7 * 86400
    assert read_moment("2026-09-21T14:13:20", NOW, "it") == NOW
    with pytest.raises(UsageError, match="2026-03-01"):
        read_moment("2026-13-01", NOW, "it")


def test_periods() -> None:
    assert read_period(None, None, NOW) == (None, None)
    assert read_period("2h", "1h", NOW) == (NOW - 7200, NOW - 3600)
    with pytest.raises(UsageError, match="time of --since 2030-01-01 is not in the past"):
        read_period("2030-01-01", None, NOW)
    with pytest.raises(UsageError, match="--since 1h is not before --until 2h"):
        read_period("1h", "2h", NOW)


def test_unusual_values_are_rendered() -> None:
    assert render_age(-3) == "0s"
    assert render_sparkline([]) == ""
    assert len(render_sparkline([float(number) for number in range(1000)])) == 24
    assert clean("a\tb") == "a b"
