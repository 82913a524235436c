"""Requests for access to training definitions of other users, over REST."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.server.platform import ADMIN, Platform, check_problem
from tests.unit.server.test_projects import define, make

from legato.control.records import Queue

ASK = {"owner": "ann", "message": "for pytorch-mnist"}


@pytest.fixture
def mnist(platform: Platform) -> Any:
    """A project of ann's, with a definition, in which only ann is."""
    project = make(platform, "projects", name="MNIST")
    define(platform, project)
    return project


def ask(platform: Platform, who: str = "ben") -> Any:
    answer = platform.ask("POST", "access-requests", ASK, who=who)
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


def test_a_user_learns_whom_to_ask_asks_and_finds_the_definition_when_the_owner_grants_it(
    platform: Platform, mnist: Any
) -> None:
    assert platform.get("project-owners", who="ben")["items"] == [{"name": "ann"}]
    made = ask(platform)
    assert made == {
        "id": made["id"],
        "user": "ben",
        "owner": "ann",
        "message": "for pytorch-mnist",
        "stage": "open",
        "project": None,
        "created_at": platform.now,
        "decided_at": None,
    }
    assert ask(platform) == made, "an open request is not repeated"
    for who in ("ann", "ben"):
        assert platform.get("access-requests", who=who)["items"] == [made]

    granted = platform.ask("POST", f"access-requests/{made['id']}/grant", {"project": "MNIST"}).json()
    assert granted == made | {"stage": "granted", "project": mnist["id"], "decided_at": platform.now}
    assert platform.get(f"projects/{mnist['id']}", who="ben")["members"] == ["ben"]
    assert [one["name"] for one in platform.get(f"projects/{mnist['id']}/definitions", who="ben")["items"]] == ["CNN"]
    assert platform.get("project-owners", who="ben")["items"] == [], "there is nothing left to ask for"
    again = platform.ask("POST", f"access-requests/{made['id']}/grant", {"project": "MNIST"})
    check_problem(again, 409, "conflict", "granted already")


def test_only_the_two_users_and_admins_get_the_events_of_a_request(platform: Platform, mnist: Any) -> None:
    platform.store.accounts.create("cem", platform.store.accounts.get("ben").role, ADMIN, platform.now)
    made = ask(platform)
    platform.ask("POST", f"access-requests/{made['id']}/decline")
    events = platform.store.events

    def actions(user: str | None) -> list[str]:
        found = [one for one in events.read_after(0, sees_only=user) if one.detail and "action" in one.detail]
        return [one.detail["action"] for one in found if one.detail is not None and one.detail["target"] == made["id"]]

    assert actions("ann") == ["access.ask"]
    assert actions("ben") == ["access.declined"]
    assert actions("cem") == []
    assert actions(None) == ["access.ask", "access.declined"]


def test_a_declined_request_may_be_sent_again_and_an_open_one_withdrawn(platform: Platform, mnist: Any) -> None:
    first = ask(platform)
    assert platform.ask("POST", f"access-requests/{first['id']}/decline").json()["stage"] == "declined"
    second = ask(platform)
    assert second["id"] != first["id"]
    assert platform.get("access-requests")["items"] == [second]
    assert platform.ask("DELETE", f"access-requests/{second['id']}", who="ben").status_code == 204
    assert platform.get("access-requests")["items"] == []


def test_nothing_is_revealed_of_projects_whose_queue_the_user_may_not_use(platform: Platform) -> None:
    platform.store.queues.put(Queue(name="cell", is_open=False, members=("ann",)), ADMIN, platform.now)
    define(platform, make(platform, "projects", name="Secret", queue="cell"))
    assert platform.get("project-owners", who="ben")["items"] == []
    for owner in ("ann", "no-such-user"):
        refused = platform.ask("POST", "access-requests", {"owner": owner}, who="ben")
        check_problem(refused, 404, "not-found", f"'{owner}' has no training definitions for which you can ask")


def test_only_the_owner_and_admins_decide_and_only_over_projects_of_the_owner(platform: Platform, mnist: Any) -> None:
    made = ask(platform)
    path = f"access-requests/{made['id']}"
    own = make(platform, "projects", "ben", name="Own")
    refused = platform.ask("POST", f"{path}/grant", {"project": own["id"]}, who="ben")
    check_problem(refused, 403, "forbidden", "only 'ann' and admins may")
    refused = platform.ask("POST", f"{path}/grant", {"project": own["id"]}, who="admin")
    check_problem(refused, 403, "forbidden", "belongs to 'ben'")
    check_problem(platform.ask("DELETE", path), 403, "forbidden", "only 'ben' and admins may")
    check_problem(platform.ask("POST", "access-requests", ASK, who="eye"), 403, "forbidden", "viewer")
    assert platform.ask("POST", f"{path}/grant", {"project": "MNIST"}, who="admin").status_code == 200
