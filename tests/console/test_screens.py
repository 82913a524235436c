"""Every screen, empty and full, wide and narrow: nothing excludes users, and nothing is cut off."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks.platform import Platform
from tests.console.conftest import Person, load
from tests.console.test_runs import shows_at_all_widths
from tests.tiers import first_now

PROGRAMS = Path(__file__).parent / "programs"
SCREENS = (
    *("jobs", "pool", "projects", "sweeps", "compare", "queues", "tokens", "webhooks", "users", "audit", "settings"),
    "submit",
)
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


def test_a_user_starts_a_sweep_of_a_definition_and_saves_the_best_trial(
    people: Callable[..., Person], running: Platform
) -> None:
    zoe = people("zoe")
    client = running.client
    client.add_project("Searches", members=["zoe"])
    client.add_definition(
        "Searches", "rates", "logs_rate.py", directory=PROGRAMS, parameters={"kind": "fine", "rate": 1.0}
    )
    zoe.opens("/sweeps")
    zoe.page.get_by_role("button", name="New sweep").click()
    dialog = zoe.page.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill("by-rate")
    dialog.get_by_label("Metric").fill("accuracy")
    dialog.get_by_label("Direction").select_option("maximize")
    dialog.get_by_label("Search parameters: name 1").fill("rate")
    dialog.get_by_label("Search parameters: value 1").fill("0.1, often")
    dialog.get_by_label("Search", exact=True).select_option("grid")
    zoe.finds_no_barrier()
    dialog.get_by_label("Search parameters: value 1").fill("")
    dialog.get_by_role("button", name="Start").click()
    dialog.locator(".field-wrong").filter(has_text="rate: Enter values").wait_for()
    shows_at_all_widths(zoe, "sweep-new")
    # What the server says of a field stands there.
    dialog.get_by_label("Search parameters: value 1").fill("1.0..2.0")
    dialog.get_by_role("button", name="Start").click()
    dialog.locator(".field-wrong").filter(has_text="'rate' has none: give it a step").wait_for()
    dialog.get_by_label("Search parameters: value 1").fill("1.0..2.0 step 1.0")

    def lose_answer(route: Any) -> None:
        if route.request.method != "POST":
            route.fallback()
            return
        route.fetch()
        route.abort()

    zoe.page.route("**/api/v1/sweeps", lose_answer)
    dialog.get_by_role("button", name="Start").click()
    dialog.get_by_text("Can't reach the server", exact=False).wait_for()
    zoe.page.unroute("**/api/v1/sweeps")
    dialog.get_by_role("button", name="Start").click()

    zoe.page.wait_for_url(re.compile("/sweeps/s-"))
    zoe.page.get_by_text("all 2 trials have ended").wait_for()
    assert [str(trial.parameters["rate"]) for trial in client.trials("by-rate")] == ["1.0", "2.0"]
    assert len(list(client.sweeps())) == 1  # the answer to the first request was lost, and the second made no other one
    zoe.page.get_by_role("button", name="Save best as definition").click()
    zoe.finds_no_barrier()
    zoe.shows("sweep-save")
    dialog.get_by_role("button", name="Save").click()
    zoe.sees("by-rate best is a training definition of Searches.")
    (best,) = [one for one in client.definitions("Searches") if one.name == "by-rate best"]
    assert (best.command, best.parameters) == ("logs_rate.py", {"kind": "fine", "rate": 1.0})
    assert "accuracy 0.6" in best.description

    zoe.page.get_by_role("button", name="Clone").click()
    zoe.finds_no_barrier()
    zoe.shows("sweep-clone")
    assert dialog.get_by_label("Search parameters: value 1").input_value() == "1.0..2.0 step 1.0"
    dialog.get_by_label("Name", exact=True).fill("again")
    dialog.get_by_role("button", name="Start").click()
    zoe.page.get_by_role("heading", name="again").wait_for()
    zoe.page.get_by_text("all 2 trials have ended").wait_for()
    assert [trial.parameters for trial in client.trials("again")] == [{"rate": 1.0}, {"rate": 2.0}]
    assert client.sweep("again").job == client.sweep("by-rate").job


@pytest.mark.soak
def test_a_sweep_shows_its_trials_and_the_metric_over_each_parameter(
    people: Callable[..., Person], running: Platform
) -> None:
    sweep = running.client.start_sweep(
        "tuned",
        "logs_rate.py",
        directory=PROGRAMS,
        metric={"name": "accuracy", "direction": "maximize"},
        parameters={"rate": {"low": 0.01, "high": 1.0, "log": True}, "kind": {"values": ["plain", "fine"]}},
        num_trials=4,
    )
    ada = people("ada", "admin")
    ada.opens("/sweeps")
    ada.page.get_by_role("link", name="tuned").click()
    ada.page.get_by_text("all 4 trials have ended").wait_for(timeout=60_000)
    best = running.client.best_trial(sweep.id)
    ada.page.get_by_role("link", name=f"{best.number} (best)").wait_for()
    for parameter in ("rate", "kind"):
        picture = ada.page.get_by_role("img", name=f"accuracy by {parameter}")
        assert picture.locator("circle").count() == 4
        assert picture.locator("circle.best").count() == 1
    ada.finds_no_barrier()
    ada.shows("sweep")


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
    ada.page.get_by_role("menuitem", name="Notes, labels and queue").click()
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


def test_keys_find_pages_and_the_search_of_a_page(people: Callable[..., Person]) -> None:
    eve = people("eve", "admin", width=NARROW)
    page = eve.page
    page.keyboard.press("/")
    assert page.get_by_label("Search jobs").evaluate("field => field === document.activeElement")
    page.keyboard.type("?/")
    assert page.get_by_label("Search jobs").input_value() == "?/"
    page.keyboard.press("Control+k")
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("combobox").wait_for()
    page.keyboard.type("que")
    dialog.get_by_role("option", name="Queues").wait_for()
    eve.finds_no_barrier()
    eve.shows("finder")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Queues", level=1).wait_for()
    page.keyboard.press("?")
    dialog.get_by_text("Show these keys").wait_for()
    eve.finds_no_barrier()
    eve.shows("keys")
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")


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
    members.fill("zoltan")
    dialog.get_by_text("There is no user zoltan.").wait_for()
    assert dialog.get_by_role("button", name="Create").is_disabled()
    ada.finds_no_barrier()
    ada.shows("project-members")
    members.fill("cleo")
    dialog.get_by_role("button", name="Create").click()
    dialog.wait_for(state="detached")
    assert [project.members for project in running.client.projects() if project.name == "tides"] == [("ben", "cleo")]


def test_the_page_of_a_link_excludes_no_user(chromium: Any, running: Platform) -> None:
    page = chromium.new_context(viewport={"width": 1440, "height": 900}).new_page()
    load(page, running.client.link_to_console().url)
    page.get_by_text("You will be logged in as admin").wait_for()
    ada = Person("admin", page, running.url)
    ada.finds_no_barrier()
    ada.shows("welcome")
    page.context.close()
