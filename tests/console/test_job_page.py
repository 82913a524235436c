"""What the page of a job says of jobs that do not run: paused ones, and those that ended before their first step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.platform import Platform
from tests.console.conftest import Person

PROGRAMS = Path(__file__).parent / "programs"
NARROW = 390


def test_a_job_that_failed_at_once_opens_on_its_logs(
    people: Callable[..., Person], running: Platform, tmp_path: Path
) -> None:
    (tmp_path / "broken.py").write_text("print('about to end', flush=True)\nraise SystemExit(3)\n")
    job = running.client.submit("broken.py", directory=tmp_path, name="broken", max_retries=0)
    ada = people("eli", "admin")
    ada.opens(f"/jobs/{job.id}")
    ada.page.locator("h1").get_by_text("Failed").wait_for()
    ada.opens(f"/jobs/{job.id}")
    ada.page.get_by_role("tab", name="Logs", selected=True).wait_for()
    ada.finds_no_barrier()
    ada.shows("failed-at-once")
    ada.page.get_by_role("tab", name="Charts").click()
    ada.sees("Ended before the first step")
    ada.shows("failed-at-once-charts")
    ada.page.get_by_role("tabpanel").get_by_role("link", name="Show logs").click()
    ada.page.get_by_role("tab", name="Logs", selected=True).wait_for()


@pytest.mark.soak
def test_a_paused_job_stands_still_and_its_page_fits_a_telephone(
    people: Callable[..., Person], running: Platform, tmp_path: Path
) -> None:
    (tmp_path / "slow").touch()
    job = running.client.submit("digits.py", "--slow-while", tmp_path / "slow", directory=PROGRAMS, name="tide")
    ada = people("ada", "admin", width=NARROW)
    ada.opens(f"/jobs/{job.id}")
    ada.sees("last reported")
    ada.shows("job-narrow")
    last = ada.page.get_by_role("tab", name="As code").bounding_box()
    assert last["x"] + last["width"] <= NARROW
    ada.page.set_viewport_size({"width": 1440, "height": 900})
    ada.shows("job-wide")
    ada.page.get_by_role("button", name="Clone").click()
    dialog = ada.page.get_by_role("dialog")
    dialog.locator(".plan").wait_for()
    ada.finds_no_barrier()
    ada.shows("clone-with-plan")
    dialog.get_by_role("button", name="Cancel").click()
    ada.page.get_by_role("button", name="Pause").click()
    ada.sees("paused · waited")
    ada.shows("job-paused")
    ada.opens("/settings")
    ada.page.get_by_role("row").nth(3).wait_for()
    assert "`" not in ada.page.locator("main").inner_text()
    ada.finds_no_barrier()
    ada.shows("settings")
    ada.opens("/pool")
    ada.sees("Reallocations in the last 5 min")
    ada.shows("pool")
