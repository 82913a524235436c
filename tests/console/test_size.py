"""Much at once: 1,000 jobs, 100,000 lines of a log, charts of eight hours. What the page holds and is sent has a bound.

Numbers of elements and of points are asserted, never times; nothing is trained.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from benchmarks.platform import Platform
from tests.console.conftest import Person

from legato.control.records import NewJob
from legato.control.roles import Asker, Role
from legato.control.store import Store
from legato.control.store.database import Database

PROGRAMS: Final = Path(__file__).parent / "programs"
NUM_RUNS: Final = 1000
NUM_ENDED: Final = 700
NUM_LINES: Final = 100_000
NUM_STEPS: Final = 8 * 3600
NUM_RESIZES: Final = 500
# A window of 900 pixels shows some twenty rows, and some fifty lines; a few more are drawn above and below.
MAX_ROWS: Final = 50
MAX_LINES: Final = 90
MAX_ELEMENTS: Final = 2500
# Of each series; the page asks for 1,200.
MAX_POINTS: Final = 1200
MAX_BYTES: Final = 400_000
# What was asked of it is drawn.
_DRAWN: Final = "new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)))"


def count(page: Any, selector: str) -> int:
    """Return how many elements there are of one kind."""
    number: int = page.evaluate("kind => document.querySelectorAll(kind).length", selector)
    return number


def scroll(page: Any, selector: str, share: float) -> None:
    """Scroll a box to a share of its height, and wait until that is drawn."""
    page.evaluate(
        "([kind, share]) => { const box = document.querySelector(kind);"
        " box.scrollTop = share * (box.scrollHeight - box.clientHeight); }",
        [selector, share],
    )
    page.evaluate(_DRAWN)


def wait_for_count(page: Any, fitting: int) -> None:
    """Wait until the logs say how many of all lines fit."""
    told = f"^{fitting:,} of {NUM_LINES:,} lines".replace(",", r"\s")
    page.locator(".logs-foot").filter(has_text=re.compile(told)).wait_for()


# ---------------------------------------------------------------- 1,000 jobs


def fill(home: Path, admin: str) -> None:
    """Put jobs into the store of a server that is not running: old ones that were stopped, and new ones that wait."""
    asker = Asker(admin, Role.ADMIN)
    store = Store(Database(f"sqlite:///{home / 'legato.db'}"))
    now = time.time()
    jobs = [
        # More slots than there are: none of them ever starts.
        NewJob(name=f"job-{number:04}", spec={"program": ["train.py"], "directory": "/"}, min_workers=8, max_workers=8)
        for number in range(NUM_RUNS)
    ]
    made, _ = store.jobs.submit_runs(jobs, asker, now)
    for job in made[:NUM_ENDED]:
        store.jobs.stop(job.id, asker, now)
    store.close()


@pytest.mark.soak
def test_a_thousand_jobs_are_scrolled_with_few_rows(
    people: Callable[..., Person], running: Platform, tmp_path: Path
) -> None:
    admin = running.client.me().name
    running.kill()
    fill(tmp_path / "platform", admin)
    running.start()
    ada = people("ada", "admin")
    page = ada.page
    ada.opens("/jobs")
    page.get_by_role("table", name="Jobs").get_by_text("job-0999").wait_for()
    while (more := page.get_by_role("button", name="Show older jobs")).count():
        known = page.get_by_role("table", name="Jobs").get_attribute("aria-rowcount")
        scroll(page, ".table-box", 1)
        more.click()
        page.wait_for_function(
            "known => document.querySelector('.table').getAttribute('aria-rowcount') !== known", arg=known
        )
        page.evaluate(_DRAWN)
    table = page.get_by_role("table", name="Jobs")
    assert table.get_attribute("aria-rowcount") == str(NUM_RUNS + 1)
    for share in (1, 0, 0.5, 0.25, 0.75, 0.1, 0.9, 0.33, 1):
        scroll(page, ".table-box", share)
        rows = count(page, ".table tbody tr[aria-rowindex]")
        assert 10 <= rows <= MAX_ROWS, f"{rows} rows are drawn at {share:.0%}"
        assert count(page, "*") <= MAX_ELEMENTS
        # The rows that should be there are: no hole is scrolled into view.
        shown = page.evaluate(
            "() => { const box = document.querySelector('.table-box').getBoundingClientRect();"
            " return document.elementFromPoint(box.left + 200, box.top + box.height / 2).closest('tr').ariaRowIndex; }"
        )
        middle = share * (NUM_RUNS - rows) + rows / 2
        assert abs(int(shown) - middle) <= MAX_ROWS, f"row {shown} stands in the middle at {share:.0%}"
    table.get_by_text("job-0000").wait_for()
    assert table.get_by_text("job-0999").count() == 0
    ada.finds_no_barrier()
    ada.shows("jobs-thousand")
    page.get_by_role("columnheader", name="Name").get_by_role("button").click()
    scroll(page, ".table-box", 0)
    table.get_by_text("job-0000").wait_for()
    assert count(page, ".table tbody tr[aria-rowindex]") <= MAX_ROWS


# ---------------------------------------------------------------- 100,000 lines


@pytest.mark.soak
def test_a_hundred_thousand_lines_are_searched_followed_and_filtered(
    people: Callable[..., Person], running: Platform
) -> None:
    job = running.client.submit("many_lines.py", directory=PROGRAMS, name="talkative")
    job.wait(60)
    assert job.stage == "succeeded", job.reason
    ada = people("ada", "admin")
    page = ada.page
    ada.opens(f"/jobs/{job.id}?tab=logs")
    wait_for_count(page, NUM_LINES)

    def check(most: int = MAX_LINES) -> None:
        page.evaluate(_DRAWN)
        drawn = count(page, ".log-line")
        assert 1 <= drawn <= most, f"{drawn} lines are drawn"
        assert count(page, "*") <= MAX_ELEMENTS

    log = page.get_by_role("log", name="Log lines")
    page.get_by_role("button", name="Go to end").click()
    log.get_by_text(f"{NUM_LINES} of {NUM_LINES}").wait_for()
    check()
    for share in (0, 0.5, 0.99, 0.01):
        scroll(page, ".log-list", share)
        check()
        middle = int(re.findall(r"\d+", log.locator(".log-line").nth(count(page, ".log-line") // 2).inner_text())[-2])
        assert abs(middle - share * NUM_LINES) <= MAX_LINES

    search = page.get_by_label("Search logs")
    search.fill("NEEDLE")
    hits = page.locator(".logs-hits")
    hits.filter(has_text=re.compile("^10$")).wait_for()
    for number in (1, 2, 3):
        search.press("Enter")
        hits.filter(has_text=f"{number} of 10").wait_for()
        log.locator(".log-line-pointed").get_by_text(f"{number}0000 of").wait_for()
        check()
    search.press("Shift+Enter")
    log.locator(".log-line-pointed").get_by_text("20000 of").wait_for()
    page.get_by_role("button", name="Show matching lines only").click()
    wait_for_count(page, 10)
    check(10)
    search.fill("step")
    wait_for_count(page, NUM_LINES - 10)
    check()
    search.fill("")
    page.get_by_label("Level").select_option(label="Errors")
    wait_for_count(page, 10)
    check(10)
    assert log.locator(".log-line").count() == 10
    page.get_by_label("Level").select_option(label="All levels")
    wait_for_count(page, NUM_LINES)
    check()
    ada.finds_no_barrier()
    ada.shows("logs-long")


# ---------------------------------------------------------------- charts of eight hours


def write_eight_hours(home: Path, begin: float) -> dict[str, list[float]]:
    """Write what a job of eight hours leaves, a step each second, and return its series."""
    series = {"loss": [2 / (1 + step / 3000) for step in range(NUM_STEPS)]}
    series["accuracy"] = [1 - loss / 2.5 for loss in series["loss"]]
    # A moment that must not be lost between two points.
    series["loss"][12_345] = 9.5
    with (home / "metrics.jsonl").open("w") as metrics, (home / "ledger.jsonl").open("w") as ledger:
        for step in range(NUM_STEPS):
            line = {"step": step + 1, "epoch": step // 600, "time": begin + step}
            values = {name: values[step] for name, values in series.items()}
            metrics.write(json.dumps({"index": step, **line, "values": values}) + "\n")
            ledger.write(json.dumps({**line, "view": 1 + step * NUM_RESIZES // NUM_STEPS}) + "\n")
    with (home / "events.jsonl").open("w") as events:
        number = 0
        for view in range(1, NUM_RESIZES + 1):
            moment = {"time": begin + view * NUM_STEPS / (NUM_RESIZES + 1), "level": "info", "view": view}
            lines = [{"kind": "scaled", "reason": f"resize {view}", "step": view}]
            lines += [{"kind": "joined", "reason": "joins", "worker": worker} for worker in range(1 + view % 4)]
            for line in lines:
                number += 1
                events.write(json.dumps({"seq": number, **moment, **line}) + "\n")
    return series


@pytest.mark.soak
def test_charts_of_eight_hours_are_sent_few_points(
    people: Callable[..., Person], running: Platform, tmp_path: Path
) -> None:
    job = running.client.submit("many_lines.py", directory=PROGRAMS, name="long")
    job.wait(60)
    begin = job.record.submitted_at - NUM_STEPS
    series = write_eight_hours(tmp_path / "platform" / "jobs" / job.id, begin)
    ada = people("ada", "admin")
    page = ada.page
    sent: list[bytes] = []
    page.on("response", lambda answer: sent.append(answer.body()) if "/metrics" in answer.url else None)
    ada.opens(f"/jobs/{job.id}?tab=charts")
    last = f"{series['loss'][-1]:.4g}"
    page.get_by_role("figure", name=f"Chart of loss. Last values: loss: {last}", exact=True).wait_for()
    last = f"{series['accuracy'][-1]:.4g}"
    page.get_by_role("figure", name=f"Chart of accuracy. Last values: accuracy: {last}", exact=True).wait_for()
    workers = page.get_by_role("figure", name=re.compile("^Chart of Workers")).get_attribute("aria-label")
    assert workers.endswith("… → 3 → 4 → 1 → 2 → 3 → 4 → 1 → 2 → 3 → 4 → 1 → 0"), workers
    assert sent
    for body in sent:
        told = json.loads(body)
        lines = [*(one["value"] for one in told["series"]), told["steps"]["step"]]
        assert max(map(len, lines)) <= MAX_POINTS
        assert len(body) <= MAX_BYTES
    first = json.loads(sent[0])
    by_name = {one["name"]: one for one in first["series"]}
    assert set(by_name) == set(series)
    loss = by_name["loss"]
    assert len(loss["value"]) >= MAX_POINTS // 2
    assert all(series["loss"][step - 1] == value for step, value in zip(loss["step"], loss["value"], strict=True))
    assert max(loss["value"]) == 9.5, "the one high value is drawn"
    assert (loss["step"][0], loss["step"][-1]) == (1, NUM_STEPS)
    assert count(page, ".happening") <= 200
    assert count(page, "*") <= MAX_ELEMENTS
    ada.finds_no_barrier()
    ada.shows("charts-long")
