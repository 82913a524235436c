"""Who may come in, and how: by password, by token, by the link of the first start; and out again."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from benchmarks.platform import Platform
from tests.console.conftest import PASSWORD, Person, load


def test_a_user_logs_in_and_out(people: Callable[..., Person]) -> None:
    ann = people("ann")
    ann.finds_no_barrier()
    ann.shows("jobs-empty")
    ann.page.get_by_role("button", name="ann").click()
    ann.page.get_by_text("Log out").click()
    ann.page.locator("input[name=user]").wait_for()
    ann.finds_no_barrier()
    ann.shows("log-in")
    left = ann.page.context.cookies()
    assert [(cookie["name"], cookie["httpOnly"]) for cookie in left] == [("legato_device", True)], "it logs no user in"


def test_a_wrong_password_is_reported(chromium: Any, running: Platform) -> None:
    running.client.add_user("abe", role="user", password=PASSWORD)
    page = chromium.new_page()
    load(page, running.url)
    page.locator("input[name=user]").fill("abe")
    page.locator("input[name=password]").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    page.get_by_text("password").last.wait_for()
    assert page.locator("input[name=user]").input_value() == "abe", "what was typed is kept"
    page.close()


def test_the_link_of_the_first_start_is_good_once(chromium: Any, running: Platform) -> None:
    url = running.client.link_to_console().url
    page = chromium.new_context().new_page()
    load(page, url)
    page.get_by_text("You will be logged in as admin (admin).").wait_for()
    page.get_by_role("button", name="Log in").click()
    page.locator("main.main h1").wait_for()
    page.get_by_role("button", name="admin").wait_for()
    assert "code=" not in page.url, "what was good once need not stand in the history"
    stranger = chromium.new_context().new_page()
    load(stranger, url)
    stranger.get_by_text(re.compile("link.*has been used")).last.wait_for()
    assert stranger.get_by_role("button", name="Log in").is_disabled()
    assert stranger.get_by_role("button", name="admin").count() == 0
    assert not stranger.context.cookies()
    for each in (page, stranger):
        each.context.close()
