"""What goes wrong before a browser: bad code, no such command, a server that is away, a session that is over."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks.platform import Platform
from tests.console.conftest import PASSWORD, Person, load

from legato.client.client import Client
from legato.client.jobs import Job

PROGRAMS = Path(__file__).parent / "programs"


def submit(running: Platform, name: str, slow_while: Path) -> Job:
    """Submit a job that is slow as long as a file exists."""
    slow_while.touch()
    return running.client.submit(
        "digits.py", "--slow-while", slow_while, directory=PROGRAMS, name=name, min_workers=1, max_workers=4
    )


def begin_definition(page: Any, archive: Path, command: str) -> Any:
    """Open the dialog of a new definition, and fill it in."""
    page.get_by_role("button", name="Add training definition").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill("mine")
    dialog.locator("input[data-pick=files]").set_input_files(archive)
    dialog.get_by_label("Execution command").fill(command)
    return dialog


def test_bad_code_and_a_wrong_command_are_shown_at_their_fields(
    people: Callable[..., Person], running: Platform, tmp_path: Path
) -> None:
    ann = people("cid")
    page = ann.page
    with Client(running.url, running.client.add_token("t", user="cid").secret) as client:
        client.add_project("digits")
    bad = tmp_path / "model.zip"
    bad.write_bytes(b"PK\x03\x04 and then nothing that is a zip")
    ann.opens("/submit")
    dialog = begin_definition(page, bad, "train.py")
    dialog.get_by_role("button", name="Create").click()
    dialog.get_by_role("alert").filter(has_text=re.compile("damaged|zip")).first.wait_for()
    assert dialog.get_by_label("Execution command").input_value() == "train.py", "nothing typed is lost"
    ann.finds_no_barrier()
    ann.shows("submit-bad-zip")

    with zipfile.ZipFile(tmp_path / "good.zip", "w") as archive:
        archive.writestr("train.py", "print('hello')")
    dialog.locator("input[data-pick=files]").set_input_files(tmp_path / "good.zip")
    dialog.get_by_label("Execution command").fill("tran.py --epochs 3")
    dialog.get_by_role("button", name="Create").click()
    dialog.get_by_text(re.compile("tran.py.*train.py", re.DOTALL)).first.wait_for()
    ann.shows("submit-wrong-command")
    dialog.get_by_label("Execution command").fill("train.py --epochs 3")
    dialog.get_by_role("button", name="Create").click()
    dialog.wait_for(state="detached")
    ann.sees("train.py --epochs 3")


@pytest.mark.soak
def test_a_server_that_was_away_is_caught_up_with(
    people: Callable[..., Person], running: Platform, tmp_path: Path
) -> None:
    ann = people("ann", "admin")
    first = submit(running, "before", tmp_path / "slow")
    ann.opens("/jobs")
    # Not by its name: reasons of other jobs say it.
    row = ann.page.get_by_role("row").filter(has_text=first.id)
    row.get_by_text("Running").wait_for()

    running.kill()
    ann.sees(re.compile("reach the server"))
    ann.shows("server-away")
    # Its workers train on meanwhile, and it ends while no server serves the page.
    (tmp_path / "slow").unlink()
    running.start()
    second = submit(running, "after", tmp_path / "slow-too")
    ann.page.get_by_role("row").filter(has_text=second.id).wait_for()
    row.get_by_text(re.compile("Succeeded")).wait_for()
    ann.page.get_by_text(re.compile("reach the server")).wait_for(state="detached")

    ann.opens(f"/jobs/{first.id}")
    ann.page.get_by_role("tab", name="Logs").click()
    ann.page.get_by_role("log", name="Log lines").get_by_text("done").first.wait_for()
    assert running.client.job(first.id).exit_code == 0
    second.stop(now=True)


@pytest.mark.soak
def test_a_session_that_is_over_asks_to_log_in_over_the_page_and_all_that_was_typed_is_kept(
    people: Callable[..., Person], running: Platform
) -> None:
    ann = people("ann")
    ann.opens("/projects")
    ann.page.get_by_role("button", name="New project").first.click()
    dialog = ann.page.get_by_role("dialog", name="New project")
    dialog.get_by_label("Name").fill("half a name")
    dialog.get_by_label("Description").fill("a long story")
    for token in running.client.tokens(user="ann"):
        running.client.revoke_token(token.id)
    dialog.get_by_role("button", name="Create").click()
    again = ann.page.get_by_role("dialog", name="Log in again")
    again.get_by_text(re.compile("session has ended")).wait_for()
    ann.page.keyboard.press("Escape")
    ann.page.keyboard.press("Escape")
    ann.finds_no_barrier()
    ann.shows("session-over")
    assert again.get_by_label("User name").input_value() == "ann"
    ann.page.keyboard.type(PASSWORD)  # the field has the focus
    again.get_by_role("button", name="Log in").click()
    again.wait_for(state="detached")
    assert dialog.get_by_label("Description").input_value() == "a long story", "nothing typed is lost"
    dialog.get_by_role("button", name="Create").click()
    dialog.wait_for(state="detached")
    assert [project.name for project in running.client.projects()] == ["half a name"]


@pytest.mark.soak
def test_a_tab_goes_on_as_who_logs_in_by_another_one(people: Callable[..., Person], running: Platform) -> None:
    ann = people("ann")
    with Client(running.url, running.client.add_token("t", user="ann").secret) as client:
        client.add_project("of ann alone")
    ann.opens("/projects")
    ann.sees("of ann alone")
    running.client.add_user("bob", role="user", password=PASSWORD)
    other = ann.page.context.new_page()
    load(other, f"{running.url}/")
    other.get_by_role("button", name="ann").click()
    other.get_by_text("Log out").click()
    other.locator("input[name=user]").fill("bob")
    other.locator("input[name=password]").fill(PASSWORD)
    other.get_by_role("button", name="Log in").click()
    ann.page.bring_to_front()
    ann.page.get_by_role("button", name="bob").wait_for()
    ann.page.get_by_text("of ann alone").wait_for(state="detached")
    other.close()


@pytest.mark.soak
def test_a_viewer_sees_and_may_not_stop(people: Callable[..., Person], running: Platform, tmp_path: Path) -> None:
    job = submit(running, "looked-at", tmp_path / "slow")
    eve = people("eve", "viewer")
    eve.opens("/jobs")
    eve.page.get_by_role("row").filter(has_text="looked-at").get_by_text("Running").wait_for()
    eve.opens(f"/jobs/{job.id}")
    eve.page.get_by_role("heading", name="looked-at").wait_for()
    for name in ("Stop", "Pause", "Resize", "Clone"):
        assert eve.page.get_by_role("button", name=name).count() == 0
    for route in ("/submit", "/audit", "/settings"):
        eve.opens(route)
        eve.sees(re.compile("administrator|viewer"))
        eve.finds_no_barrier()
    eve.shows("no-permission")
    job.stop(now=True)
