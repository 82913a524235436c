"""Runs of a day: compared by what they logged and by their code, and noted, by the keyboard alone. And webhooks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks.platform import Platform
from tests.console.conftest import Person

from legato.client.jobs import Job

PROGRAMS = Path(__file__).parent / "programs"
WIDTHS = {"wide": 1440, "middle": 820, "narrow": 390}
MAX_TABS = 40


def tab_to(page: Any, name: str) -> int:
    """Press Tab until the element of a name has the focus, and return how often that was."""
    for num in range(1, MAX_TABS + 1):
        page.keyboard.press("Tab")
        told = page.evaluate(
            "() => { const one = document.activeElement;"
            " return [one.ariaLabel, one.labels?.[0]?.textContent, one.textContent].join(' '); }"
        )
        if name in told:
            return num
    raise AssertionError(f"{MAX_TABS} times Tab do not lead to '{name}'; the focus is on '{told}'")


def shows_at_all_widths(person: Person, name: str, *, is_whole: bool = False) -> None:
    """Check that nothing is cut off and nothing excludes users at three widths, and keep pictures if wanted.

    Args:
        person: who looks.
        name: of the pictures.
        is_whole: axe looks at all widths, not at the widest alone.
    """
    for word, width in WIDTHS.items():
        person.page.set_viewport_size({"width": width, "height": 900})
        if is_whole or word == "wide":
            person.finds_no_barrier()
        person.shows(f"{name}-{word}")
        wider = person.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wider == 0, f"{name} has to be scrolled sideways by {wider} px at {width} px"
    person.page.set_viewport_size({"width": WIDTHS["wide"], "height": 900})


def submit(running: Platform, folder: Path, name: str, rate: float, num_epochs: int = 2) -> Job:
    """Submit a program with its code."""
    (folder / "rates").mkdir(parents=True)
    (folder / "README.md").write_text("The same in all.\n")
    (folder / "rates" / f"of_{name}.py").write_text(f"RATE = {rate}\n")
    (folder / "rates" / "<i>bounds.py").write_text(f"HIGH = {rate}\n")
    program = (PROGRAMS / "logs_rate.py").read_text()
    assert "epochs(2)" in program
    (folder / "logs_rate.py").write_text(program.replace("epochs(2)", f"epochs({num_epochs})"))
    return running.client.submit(
        folder / "logs_rate.py", name=name, parameters={"rate": rate, "kind": "plain"}, labels={"day": "one"}
    )


def test_runs_are_compared_and_noted_by_the_keyboard_alone(
    people: Callable[..., Person], running: Platform, tmp_path: Path
) -> None:
    jobs = [
        submit(running, tmp_path / "ebb", "ebb", 0.1),
        submit(running, tmp_path / "flood", "flood", 0.5, num_epochs=3),
    ]
    for job in jobs:
        job.wait(120)
        assert job.stage == "succeeded", job.reason
    ada = people("mia", "admin")
    page, keys = ada.page, ada.page.keyboard
    ada.opens("/jobs?label=day%3Done")
    page.get_by_role("table", name="Jobs").get_by_text("flood").wait_for()

    tab_to(page, "Columns")
    keys.press("Enter")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("accuracy").wait_for()
    ada.finds_no_barrier()
    ada.shows("columns")
    for name in ("Notes", "accuracy", "rate"):
        tab_to(page, name)
        keys.press(" ")
    keys.press("Enter")
    dialog.wait_for(state="detached")
    rows = page.get_by_role("table", name="Jobs").locator("tbody tr")
    rows.filter(has_text="ebb").get_by_title("1", exact=True).wait_for()
    assert "0.5" in rows.filter(has_text="flood").inner_text()

    # The heads are one stop of the tabulator; arrows lead to the others.
    page.get_by_role("columnheader", name="Name").get_by_role("button").focus()
    for name in ("accuracy", "rate"):
        while name not in page.evaluate("document.activeElement.textContent"):
            keys.press("ArrowRight")
        keys.press("Enter")
        page.locator("th[aria-sort=ascending]").get_by_text(name).wait_for()
        keys.press("Home")
    assert rows.locator(".jobs-link").all_inner_texts() == ["ebb", "flood"]

    rows.filter(has_text="ebb").focus()
    tab_to(page, "Edit notes of ebb")
    keys.press("Enter")
    page.get_by_role("dialog").get_by_label("Notes").wait_for()
    keys.type("the good one")
    ada.finds_no_barrier()
    ada.shows("notes")
    tab_to(page, "Save")
    keys.press("Enter")
    page.get_by_role("dialog").wait_for(state="detached")
    rows.filter(has_text="ebb").get_by_text("the good one").wait_for()
    shows_at_all_widths(ada, "jobs-columns")

    # As the next day: another page has been looked at since.
    ada.opens("/pool")
    ada.opens("/jobs?label=day%3Done")
    rows.filter(has_text="ebb").get_by_text("the good one").wait_for()
    for name in ("ebb", "flood"):
        rows.filter(has_text=name).focus()
        keys.press(" ")
    tab_to(page, "Compare")
    keys.press("Enter")
    page.get_by_role("heading", name="Compare jobs").wait_for()
    page.get_by_role("button", name="Show code differences").focus()
    keys.press("Enter")
    page.get_by_text("4 files differ").wait_for()
    told = [" ".join(text.split()) for text in page.locator(".code-file summary").all_inner_texts()]
    assert told == [
        "logs_rate.py changed, 1 line added, 1 line removed",
        "rates/<i>bounds.py changed, 1 line added, 1 line removed",
        "rates/of_ebb.py removed, 0 lines added, 1 line removed",
        "rates/of_flood.py added, 1 line added, 0 lines removed",
    ]
    code = page.get_by_role("group", name="Differences of logs_rate.py")
    lines = {kind: code.locator(f".code-{kind}").all_inner_texts() for kind in ("gone", "new")}
    assert [len(found) for found in lines.values()] == [1, 1]
    assert "epochs(2)" in lines["gone"][0] and "epochs(3)" in lines["new"][0]
    code.scroll_into_view_if_needed()
    shows_at_all_widths(ada, "code-differences")


def test_webhooks_are_added_tested_changed_and_removed(people: Callable[..., Person]) -> None:
    noa = people("noa")
    page = noa.page
    page.get_by_role("button", name="noa").click()
    page.get_by_role("menuitem", name="Webhooks").click()
    noa.sees("No webhooks")
    noa.shows("webhooks-empty")
    page.get_by_role("button", name="Add webhook").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("URL").fill("http://127.0.0.1:9/hook")
    dialog.get_by_role("button", name="Add").click()
    dialog.get_by_text("it is a loopback address").first.wait_for()
    noa.finds_no_barrier()
    noa.shows("webhook-refused")
    dialog.get_by_label("URL").fill("https://receiver.invalid/hook/with/a/long/path/as/slack/has/it/T0000000/B0000000")
    dialog.get_by_label("A job waits in its queue for longer than").fill("2")
    dialog.get_by_role("button", name="Add").click()
    dialog.get_by_text("lgw_").wait_for()
    noa.finds_no_barrier()
    noa.shows("webhook-secret")
    dialog.get_by_role("button", name="Close").click()
    row = page.get_by_role("table", name="Webhooks").get_by_role("row").filter(has_text="receiver.invalid")
    row.get_by_text("failed, waiting for 2 hours").wait_for()
    row.get_by_text("Not called yet").wait_for()

    row.get_by_role("button", name="Actions for").click()
    page.get_by_role("menuitem", name="Send test").click()
    row.get_by_text("Last try failed").wait_for()
    shows_at_all_widths(noa, "webhooks")
    row.get_by_role("button", name="receiver.invalid/hook").first.click()
    dialog.get_by_role("cell", name="Not accepted").wait_for()
    shows_at_all_widths(noa, "webhook-messages")
    dialog.get_by_role("button", name="Close").click()

    row.get_by_role("button", name="Actions for").click()
    page.get_by_role("menuitem", name="Change").click()
    dialog.get_by_label("A job has ended").check()
    dialog.get_by_label("A job waits in its queue for longer than").fill("")
    shows_at_all_widths(noa, "webhook-change")
    dialog.get_by_role("button", name="Save").click()
    row.get_by_text("ended, failed", exact=True).wait_for()
    row.get_by_role("button", name="Actions for").click()
    page.get_by_role("menuitem", name="Remove").click()
    dialog.get_by_role("button", name="Remove").click()
    noa.sees("No webhooks")


def test_few_keys_lead_to_the_table_of_jobs(people: Callable[..., Person]) -> None:
    """From the top of the page the first job is one skip away, however many heads and filters stand before it."""
    eva = people("eva")
    eva.opens("/jobs")
    eva.page.evaluate("document.activeElement.blur()")
    assert tab_to(eva.page, "Skip to the table") <= 2


@pytest.mark.soak
def test_pages_are_whole_at_three_widths(people: Callable[..., Person], running: Platform, tmp_path: Path) -> None:
    """Pages with a job that has ended and one that runs, light and dark."""
    done = submit(running, tmp_path / "tide", "tide", 0.2)
    done.wait(120)
    job = done.id
    (tmp_path / "slow").touch()
    slow = running.client.submit("digits.py", "--slow-while", tmp_path / "slow", directory=PROGRAMS, name="surf")
    ada = people("ada", "admin")
    ada.opens(f"/jobs/{slow.id}")
    ada.sees("Running")
    for name, path in (
        ("jobs", "/jobs"),
        ("job-charts", f"/jobs/{job}?tab=charts"),
        ("job-running", f"/jobs/{slow.id}?tab=charts"),
        ("job-why", f"/jobs/{slow.id}?tab=why"),
        ("job-logs", f"/jobs/{job}?tab=logs"),
        ("job-definition", f"/jobs/{job}?tab=definition"),
        ("job-files", f"/jobs/{job}?tab=files"),
        ("compare", f"/compare?job={job}&job={slow.id}"),
        ("pool", "/pool"),
        ("projects", "/projects"),
        ("queues", "/queues"),
        ("users", "/users"),
        ("settings", "/settings"),
        ("submit", "/submit"),
    ):
        ada.opens(path)
        ada.page.locator(".bones").first.wait_for(state="detached")
        shows_at_all_widths(ada, f"page-{name}", is_whole=True)
