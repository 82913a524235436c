"""Every screen, empty and full, wide and narrow: nothing excludes users, and nothing is cut off."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks.platform import Platform
from tests.console.conftest import Person
from tests.tiers import first_now

PROGRAMS = Path(__file__).parent / "programs"
SCREENS = ("jobs", "pool", "projects", "compare", "queues", "tokens", "users", "audit", "settings", "submit")
NARROW = 390


@pytest.mark.parametrize("width", first_now([1440, NARROW]), ids=["wide", "narrow"])
def test_every_page_meets_the_accessibility_rules(people: Callable[..., Person], running: Platform, width: int) -> None:
    running.client.set_queue(f"research-{'long-' * 10}name", weight=2, floor=1)
    ada = people("ada", "admin", width=width)
    for screen in SCREENS:
        ada.opens(f"/{screen}")
        ada.finds_no_barrier()
        ada.shows(f"{screen}-{'narrow' if width == NARROW else 'empty'}")
        wider = ada.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wider == 0, f"{screen} has to be scrolled sideways by {wider} px"


@pytest.mark.soak
def test_a_job_is_found_by_keys_and_gets_another_queue_and_labels(
    people: Callable[..., Person], running: Platform, tmp_path: Path
) -> None:
    running.client.set_queue("night")
    (tmp_path / "slow").touch()
    for name in ("first-tide", "second-tide"):
        running.client.submit(
            *("digits.py", "--slow-while", tmp_path / "slow"), directory=PROGRAMS, name=name, labels={"team": "sea"}
        )
    ada = people("ada", "admin")
    ada.opens("/jobs")
    first = ada.page.get_by_role("row").filter(has_text="first-tide")
    first.get_by_text("Running").wait_for()
    ada.page.get_by_role("row").filter(has_text="second-tide").focus()
    ada.page.keyboard.press("ArrowDown")
    ada.page.keyboard.press(" ")
    assert first.get_by_role("checkbox").is_checked()
    ada.finds_no_barrier()
    ada.shows("jobs-by-keys")
    ada.page.keyboard.press("Enter")
    ada.page.get_by_role("heading", name="first-tide").wait_for()
    ada.page.get_by_role("button", name="More actions").click()
    ada.page.get_by_role("menuitem", name="Queue and labels").click()
    dialog = ada.page.get_by_role("dialog")
    dialog.get_by_label("Queue").select_option("night")
    dialog.get_by_label("Labels: name 2").fill("night-shift")
    dialog.get_by_label("Labels: value 2").fill("yes")
    ada.finds_no_barrier()
    ada.shows("queue-and-labels")
    dialog.get_by_role("button", name="Save").click()
    dialog.wait_for(state="detached")
    ada.sees("queue night")
    ada.page.get_by_role("link", name="night-shift=yes").wait_for()


def test_members_are_chosen(people: Callable[..., Person], running: Platform) -> None:
    for name in ("ben", "cleo"):
        running.client.add_user(name, role="user")
    ada = people("dan", "admin")
    ada.opens("/projects")
    ada.page.get_by_role("button", name="New project").first.click()
    dialog = ada.page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("tides")
    members = dialog.get_by_label("Members")
    members.fill("ben,")
    dialog.get_by_text("ben", exact=True).wait_for()
    members.fill("zoe")
    dialog.get_by_text("There is no user zoe.").wait_for()
    assert dialog.get_by_role("button", name="Create").is_disabled()
    ada.finds_no_barrier()
    ada.shows("project-members")
    members.fill("cleo")
    dialog.get_by_role("button", name="Create").click()
    dialog.wait_for(state="detached")
    assert [project.members for project in running.client.projects() if project.name == "tides"] == [("ben", "cleo")]


def test_the_page_of_a_link_excludes_no_user(chromium: Any, running: Platform) -> None:
    page = chromium.new_context(viewport={"width": 1440, "height": 900}).new_page()
    page.goto(running.client.link_to_console().url)
    page.get_by_text("You will be logged in as admin").wait_for()
    ada = Person("admin", page, running.url)
    ada.finds_no_barrier()
    ada.shows("welcome")
    page.context.close()
