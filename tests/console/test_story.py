"""The story: two data scientists who never open a terminal share four slots, and see who has what and why."""

from __future__ import annotations

import bisect
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks.platform import Platform
from tests.console.conftest import Person

from legato.client.jobs import Job

PROGRAMS = Path(__file__).parent / "programs"
NUM_PLACES = 24  # at which a chart is read


class Scientist:
    """A data scientist at the console.

    Args:
        person: with their browser.
        folder: for their files.
        script: what they train.
        framework: that it is written for, as the page calls it.
    """

    def __init__(self, person: Person, folder: Path, script: str, framework: str) -> None:
        self.person, self.page, self._script, self._framework = person, person.page, script, framework
        self.is_slow = folder / f"{person.name}-is-slow"
        self.is_slow.touch()
        self._archive = folder / f"{person.name}-model.zip"
        with zipfile.ZipFile(self._archive, "w") as archive:
            archive.write(PROGRAMS / script, script)

    def makes_project(self, name: str) -> None:
        self.person.opens("/submit")
        self.page.get_by_role("button", name="New project").click()
        dialog = self.page.get_by_role("dialog")
        dialog.get_by_label("Name").fill(name)
        dialog.get_by_role("button", name="Create").click()
        dialog.wait_for(state="detached")

    def defines(self, name: str, experiment: str) -> None:
        """Build an experiment of one new training definition, as far as the plan."""
        self.page.get_by_label("Name", exact=True).fill(experiment)
        self.page.get_by_role("button", name="Add training definition").click()
        dialog = self.page.get_by_role("dialog")
        dialog.get_by_label("Name", exact=True).fill(name)
        dialog.locator("input[data-pick=files]").set_input_files(self._archive)
        dialog.get_by_label("Framework").select_option(label=self._framework)
        dialog.get_by_label("Execution command").fill(f"{self._script} --slow-while {self.is_slow}")
        dialog.get_by_role("button", name=re.compile("^Elastic")).click()
        dialog.get_by_label("Maximum nodes").fill("4")
        self.person.finds_no_barrier()
        self.person.shows(f"definition-{self.person.name}")
        dialog.get_by_role("button", name="Create").click()
        dialog.wait_for(state="detached")

    def creates_and_runs(self) -> None:
        self.page.get_by_role("button", name="Create and run").click()
        self.page.wait_for_url(re.compile("/experiments/"))

    def sees_slots(self, name: str, slots: int) -> None:
        """See in the Active jobs view how many of four GPU slots a run has."""
        row = self.page.get_by_role("table", name="Active jobs").get_by_role("row").filter(has_text=name)
        row.get_by_text(re.compile(rf"^{slots} of 4$")).wait_for()


@pytest.mark.soak
def test_two_data_scientists_share_four_slots(people: Callable[..., Person], running: Platform, tmp_path: Path) -> None:
    ann = Scientist(people("ann"), tmp_path, "digits.py", "Legato")
    bob = Scientist(people("bob"), tmp_path, "digits_EDT.py", "PyTorch, elastic (FabricModel)")

    ann.makes_project("Digits of Ann")
    ann.defines("digits", "first")
    ann.person.sees(re.compile("[Ss]tarts now with 4"))
    ann.person.shows("submit-plan")
    ann.creates_and_runs()
    ann.person.opens("/pool")
    ann.sees_slots("first", 4)

    bob.makes_project("Digits of Bob")
    bob.defines("digits EDT", "second")
    bob.person.sees(re.compile("with 2"))
    bob.page.get_by_text(re.compile("ann/first")).wait_for()
    bob.person.finds_no_barrier()
    bob.person.shows("submit")
    bob.creates_and_runs()
    bob.person.shows("experiment")

    bob.person.opens("/pool")
    for one in (ann, bob):
        one.sees_slots("first", 2)
        one.sees_slots("second", 2)
    ann.person.finds_no_barrier()
    ann.person.shows("pool-shared")

    ann.is_slow.unlink()
    bob.sees_slots("second", 4)
    bob.person.shows("pool-alone")

    ann.person.opens("/jobs")
    row = ann.page.get_by_role("row").filter(has_text="first")
    row.get_by_text("succeeded", exact=False).wait_for()
    ann.person.finds_no_barrier()
    ann.person.shows("jobs")
    row.get_by_role("link").first.click()
    looks_at_the_job(ann, running)

    bob.is_slow.unlink()
    bob.person.opens("/jobs")
    bob.page.get_by_role("row").filter(has_text="second").get_by_text("succeeded", exact=False).wait_for()
    compares(bob)


def looks_at_the_job(ann: Scientist, running: Platform) -> None:
    """See its charts with the workers over time, its logs, and why it had what it had."""
    page = ann.page
    workers = page.get_by_role("figure", name=re.compile("^Chart of Workers"))
    workers.wait_for()
    assert "1 → 4" in (told := workers.get_attribute("aria-label")) or "4 → 2" in told, told
    (job,) = running.client.jobs(search="FIRST-digits")
    sees_the_loss(page, job)
    ann.person.finds_no_barrier()
    ann.person.shows("job-charts")

    page.get_by_role("tab", name="Logs").click()
    log = page.get_by_role("log", name="Log lines")
    log.get_by_text("<b>bold</b>", exact=False).first.wait_for()
    assert page.title() != "broken in"
    assert log.locator("img").count() == log.locator("b").count() == 0, "what a program says is text"
    assert "\x1b" not in log.inner_text()
    page.get_by_label("Search logs").fill("done")
    page.locator(".logs-hits").get_by_text(re.compile(r"\d")).wait_for()
    ann.person.finds_no_barrier()
    ann.person.shows("job-logs")

    page.get_by_role("tab", name="Why").click()
    ann.person.sees(re.compile("second"))
    ann.person.finds_no_barrier()
    ann.person.shows("job-why")
    for tab in ("Files", "Definition", "As code"):
        page.get_by_role("tab", name=tab).click()
        page.get_by_role("tabpanel").wait_for()
        ann.person.finds_no_barrier()
        ann.person.shows(f"job-{tab.lower().replace(' ', '-')}")


def sees_the_loss(page: Any, job: Job) -> None:
    """Read the chart of the loss under the cursor, at places all over it: it shows what REST tells."""
    told = job.series("loss")
    (loss,) = told.series
    assert len(loss.value) > 100, "a point for each step"
    joined = min(event.time for event in job.training_events() if event.kind == "joined")
    begin = min(joined, told.steps.time[0])
    end = max(told.steps.time[-1], *(event.time for event in job.training_events()))

    chart = page.get_by_role("figure", name=re.compile("^Chart of loss"))
    label = chart.get_attribute("aria-label")
    assert label.startswith("Chart of loss. Last values: loss: "), label
    assert is_shown(label.rpartition(" ")[2], loss.value[-1])
    area = chart.locator(".u-over").bounding_box()
    s_per_pixel = (end - begin) / area["width"]
    seen = set()
    for place in range(1, NUM_PLACES):
        left = round(area["width"] * place / NUM_PLACES)
        page.mouse.move(area["x"] + left, area["y"] + area["height"] / 2)
        text = chart.locator(".chart-told").inner_text()
        at = begin + left * s_per_pixel
        # What was logged last before that moment, a pixel or two to the left or right.
        first = max(bisect.bisect(loss.time, at - 2 * s_per_pixel) - 1, 0)
        near = loss.value[first : max(bisect.bisect(loss.time, at + 2 * s_per_pixel), first + 1)]
        value, _, clock = text.partition(" · ")
        assert clock, f"nothing is shown under the cursor: {text}"
        if value == "\N{EN DASH}" and at - 2 * s_per_pixel < loss.time[0]:
            continue  # nothing was logged yet: the first step may take long
        assert any(is_shown(value, one) for one in near), f"{text} is shown at {left} px, where {near} was logged"
        seen.add(value)
    assert len(seen) > NUM_PLACES // 4


def is_shown(text: str, value: float | None) -> bool:
    """Return whether a text is a value, as far as it has digits."""
    return value is not None and abs(float(text) - value) <= 6e-4 * abs(value)


def compares(bob: Scientist) -> None:
    """Select both jobs in the table, and see them side by side."""
    for name in ("first", "second"):
        bob.page.get_by_role("row").filter(has_text=name).get_by_role("checkbox").check()
    bob.page.get_by_role("button", name="Compare").or_(bob.page.get_by_role("link", name="Compare")).last.click()
    bob.page.wait_for_url(re.compile("/compare"))
    for name in ("first", "second"):
        bob.person.sees(re.compile(name))
    bob.person.sees(re.compile("GPU.hours|[Ss]lot.hours"))
    bob.person.finds_no_barrier()
    bob.person.shows("compare")
