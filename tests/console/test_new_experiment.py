"""How a new user begins: a project, an experiment, a training definition, before a small window."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from benchmarks.platform import Platform
from tests.console.conftest import Person
from tests.tiers import first_now

from legato.client.client import Client

HEIGHT: Final = 800


def comes(people: Callable[..., Person], running: Platform, width: int = 1280) -> Person:
    """Return a user with a small window and a project."""
    ann = people("bea", width=width)
    ann.page.set_viewport_size({"width": width, "height": HEIGHT})
    with Client(running.url, running.client.add_token("t", user="bea").secret) as client:
        client.add_project("digits")
    return ann


def is_in_sight(found: Any) -> bool:
    """Whether what is at the middle of an element is that element."""
    seen: bool = found.evaluate(
        "one => { const { left, top, width, height } = one.getBoundingClientRect();"
        " return one.contains(document.elementFromPoint(left + width / 2, top + height / 2)); }"
    )
    return seen


@pytest.mark.parametrize("width", first_now([1280, 390]))
def test_what_decides_stays_in_sight_in_the_dialog_of_a_definition(
    people: Callable[..., Person], running: Platform, width: int
) -> None:
    ann = comes(people, running, width)
    ann.opens("/submit")
    ann.page.get_by_role("button", name="Add training definition").click()
    dialog = ann.page.get_by_role("dialog")
    tab = dialog.get_by_role("tab", name="New definition")
    tab.wait_for()
    plan = dialog.get_by_text("Starts now with 4 of 4")
    plan.wait_for()
    dialog.get_by_label("Name", exact=True).fill("mine")
    dialog.get_by_label("Execution command").fill("train.py")
    dialog.get_by_role("button", name="Create").click()
    problem = dialog.get_by_role("alert").filter(has_text="Fix the highlighted fields")
    problem.wait_for()
    box = tab.bounding_box()
    assert box and box["height"] > 20, f"the tab is {box} large"
    assert is_in_sight(tab), "the tab cannot be clicked"
    assert is_in_sight(plan), "the plan is below the fold"
    assert is_in_sight(problem), "what went wrong is below the fold"
    ann.finds_no_barrier()
    ann.shows(f"definition-dialog-{width}")
    dialog.get_by_label("Name", exact=True).fill("mine too")
    problem.wait_for(state="detached")
    dialog.get_by_role("tab", name="Existing definition").click()
    dialog.get_by_text("No training definitions").wait_for()
    assert plan.count() == 0
    ann.shows(f"definition-dialog-existing-{width}")


def test_what_cannot_be_done_yet_says_why(people: Callable[..., Person]) -> None:
    ann = people("bob", width=1280)
    ann.opens("/submit")
    ann.sees("A training definition has the code, the command, and the number of nodes. Create a project first.")
    for name in ("Create", "Create and run", "Add training definition"):
        button = ann.page.get_by_role("button", name=name, exact=True)
        assert button.is_disabled()
        assert button.get_attribute("title") == "Create a project first."
        said = ann.page.locator(f"#{button.get_attribute('aria-describedby')}")
        assert said.inner_text() == "Create a project first."
    ann.finds_no_barrier()
    ann.shows("submit-without-project")


@pytest.mark.soak
def test_pages_that_were_replaced_are_loaded_again_and_typed_text_is_kept(
    people: Callable[..., Person], running: Platform
) -> None:
    ann = comes(people, running)
    page = ann.page
    ann.opens("/submit")
    page.get_by_label("Name").fill("tides")
    # As after an upgrade: the server answers, but a page that was not yet opened has another name now.
    page.route("**/assets/queues-page-*.js", lambda route: route.fulfill(status=404))
    page.get_by_role("link", name="Queues").click()
    ann.sees("The console was updated")
    assert page.get_by_text("dynamically imported").count() == 0
    ann.shows("pages-replaced")
    ann.complaints.clear()  # the browser tells its console of the page that is not there
    page.unroute("**/assets/queues-page-*.js")
    page.get_by_role("button", name="Reload").click()
    page.get_by_role("heading", name="Queues").wait_for()
    page.get_by_role("link", name="New experiment").or_(page.get_by_role("button", name="New experiment")).first.click()
    page.get_by_role("heading", name="New experiment").wait_for()
    assert page.get_by_label("Name").input_value() == "tides"
