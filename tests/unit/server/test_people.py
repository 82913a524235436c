"""Users: logging in, users, passwords and tokens. No request gives a user more rights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.server.platform import ADMIN, NOW, Platform, check_problem

from legato.control.roles import Asker, Role
from legato.control.store import tokens
from legato.control.store.tokens import MAX_TOKENS

DAY_S = 86400.0
PASSWORD = "correct horse"


@pytest.fixture
def with_password(platform: Platform) -> Platform:
    answer = platform.ask("PUT", "users/ann/password", {"password": PASSWORD}, who="admin")
    assert (answer.status_code, answer.content) == (204, b"")
    return platform


def log_in(platform: Platform, user: str = "ann", password: str = PASSWORD, **more: Any) -> Any:
    return platform.ask("POST", "login", {"user": user, "password": password, **more}, who=None)


def test_logging_in(with_password: Platform) -> None:
    platform = with_password
    answer = log_in(platform)
    assert answer.status_code == 201, answer.text
    told = answer.json()
    assert told["secret"].startswith("lgt_")
    assert (told["token"]["user"], told["token"]["name"], told["token"]["role"]) == ("ann", "login", "user")
    assert told["token"]["expires_at"] == NOW + 12 * 3600
    platform.secrets["new"] = told["secret"]
    assert platform.get("me", who="new") == {"name": "ann", "role": "user"}
    assert log_in(platform, name="laptop").json()["token"]["name"] == "laptop"
    check_problem(platform.ask("GET", "me", who="ann"), 401, "unauthenticated", "it was revoked")
    # To log out is to delete that token.
    assert platform.ask("DELETE", f"tokens/{told['token']['id']}", who="new").status_code == 200
    check_problem(platform.ask("GET", "me", who="new"), 401, "unauthenticated")


def test_invalid_logins_are_refused(with_password: Platform) -> None:
    platform = with_password
    same = {
        log_in(platform, *one).json()["detail"].replace(f"'{one[0]}'", "X")
        for one in (("ann", "x"), ("nobody", PASSWORD))
    }
    assert len(same) == 1, "it is not said which of the two is wrong"
    for user, password in (("ann", "wrong"), ("ben", ""), ("nobody", PASSWORD), ("", "")):
        check_problem(log_in(platform, user, password), 401, "unauthenticated", "the name or the password is wrong")
    platform.store.accounts.change("ann", ADMIN, NOW, is_disabled=True)
    check_problem(log_in(platform), 401, "unauthenticated")
    for body in ({}, {"user": "ann"}, {"user": 1, "password": "x"}, {"user": "a" * 64, "password": "x"}):
        check_problem(platform.ask("POST", "login", body, who=None), 422, "invalid")
    audit = [(line["who"], line["action"]) for line in platform.get("audit", who="admin")["items"]]
    assert ("ann", "login.refused") in audit


def test_guessers_wait(new_platform: Callable[..., Platform]) -> None:
    platform = new_platform(logins_per_minute=3)
    platform.ask("PUT", "users/ann/password", {"password": PASSWORD}, who="admin")
    assert [log_in(platform).status_code for _ in range(5)] == [201] * 5, "those who succeed do not count"
    assert [log_in(platform, password="wrong").status_code for _ in range(4)] == [401, 401, 401, 429]
    answer = log_in(platform)
    check_problem(answer, 429, "too-many-requests")
    assert answer.headers["retry-after"] == "20"
    platform.now += 20
    assert log_in(platform).status_code == 201


def test_a_login_lives_no_longer_than_tokens_may(new_platform: Callable[..., Platform]) -> None:
    platform = new_platform(login_hours=48, max_token_days=1, token_days=1)
    platform.ask("PUT", "users/ann/password", {"password": PASSWORD}, who="admin")
    assert log_in(platform).json()["token"]["expires_at"] == NOW + DAY_S


# ---------------------------------------------------------------- users


def test_users(platform: Platform) -> None:
    answer = platform.ask("POST", "users", {"name": "eve", "role": "user", "password": PASSWORD}, who="admin")
    assert answer.status_code == 201, answer.text
    eve = {"name": "eve", "role": "user", "created_at": NOW, "disabled_at": None, "has_password": True}
    assert answer.json() == eve
    assert log_in(platform, "eve").status_code == 201
    everybody = ["admin", "ann", "ben", "eve", "eye"]
    for who in ("admin", "eye"):
        assert [user["name"] for user in platform.get("users", who=who)["items"]] == everybody
        assert platform.get("users/eve", who=who) == eve
    assert [user["name"] for user in platform.get("users")["items"]] == ["ann"]
    assert platform.get("users/ann")["has_password"] is False
    check_problem(platform.ask("GET", "users/eve"), 404, "not-found", "no user 'eve' that you may see")
    check_problem(platform.ask("GET", "users/nobody", who="admin"), 404, "not-found")
    again = platform.ask("POST", "users", {"name": "eve", "role": "user"}, who="admin")
    check_problem(again, 409, "conflict", "the name is taken")
    for body in (
        {"name": "x"},
        {"name": "x", "role": "king"},
        {"name": "-x", "role": "user"},
        {"name": "x", "role": "user", "password": "short"},
        {"name": "x", "role": "user", "password": "x" * 1025},
        {"name": "x", "role": "user", "is_admin": True},
    ):
        check_problem(platform.ask("POST", "users", body, who="admin"), 422, "invalid")


def test_a_user_is_changed(platform: Platform) -> None:
    answer = platform.ask("PATCH", "users/ann", {"role": "viewer", "is_disabled": True}, who="admin")
    assert (answer.json()["role"], answer.json()["disabled_at"]) == ("viewer", NOW)
    check_problem(platform.ask("GET", "me"), 401, "unauthenticated", "disabled")
    platform.ask("PATCH", "users/ann", {"is_disabled": False}, who="admin")
    assert platform.get("me") == {"name": "ann", "role": "viewer"}, "tokens follow the role at once"
    for body in ({}, {"role": None, "is_disabled": None}, {"name": "x"}, {"role": "king"}, {"is_disabled": 1}):
        check_problem(platform.ask("PATCH", "users/ann", body, who="admin"), 422, "invalid")
    check_problem(platform.ask("PATCH", "users/nobody", {"role": "user"}, who="admin"), 404, "not-found")
    for body in ({"role": "user"}, {"is_disabled": True}, {"role": "admin", "is_disabled": True}):
        answer = platform.ask("PATCH", "users/admin", body, who="admin")
        check_problem(answer, 409, "conflict", "there would be no admin left")
    assert platform.get("users/admin", who="admin")["role"] == "admin", "all of it, or nothing"


def test_only_admins_change_users(platform: Platform) -> None:
    for who in ("ann", "eye"):
        check_problem(platform.ask("POST", "users", {"name": "x", "role": "user"}, who=who), 403, "forbidden")
        for user in ("ann", "ben", "nobody"):
            check_problem(platform.ask("PATCH", f"users/{user}", {"role": "admin"}, who=who), 403, "forbidden")
    check_problem(platform.ask("PUT", "users/ben/password", {"password": PASSWORD}), 403, "forbidden")
    check_problem(platform.ask("PUT", "users/nobody/password", {"password": PASSWORD}, who="admin"), 404, "not-found")
    check_problem(platform.ask("PUT", "users/ann/password", {"password": "short"}), 422, "invalid", "8 to 1024")
    assert platform.ask("PUT", "users/ann/password", {"password": PASSWORD}).status_code == 204, "the own one"


# ---------------------------------------------------------------- tokens


def test_tokens(platform: Platform) -> None:
    answer = platform.ask("POST", "tokens", {"name": "ci"})
    assert answer.status_code == 201
    token = answer.json()["token"]
    assert set(token) == {
        *("id", "user", "name", "role", "created_at", "expires_at", "revoked_at", "used_at", "kind"),
    }
    assert (token["user"], token["role"], token["expires_at"]) == ("ann", "user", NOW + 90 * DAY_S)
    for days in (None, 366):
        check_problem(
            platform.ask("POST", "tokens", {"name": "a", "days": days}), 422, "invalid", "above max_token_days=365"
        )
    assert platform.ask("POST", "tokens", {"name": "a", "days": 0.5}).json()["token"]["expires_at"] == NOW + DAY_S / 2
    viewer = platform.ask("POST", "tokens", {"name": "a", "role": "viewer"}).json()
    assert viewer["token"]["role"] == "viewer"
    listed = platform.get("tokens")["items"]
    assert {one["user"] for one in listed} == {"ann"} and len(listed) == 4
    assert "secret" not in str(listed)
    assert len(platform.get("tokens?user=ann", who="admin")["items"]) == 4
    assert {one["user"] for one in platform.get("tokens", who="admin")["items"]} == {"admin", "ann", "ben", "eye"}
    check_problem(platform.ask("GET", "tokens?user=ben"), 403, "forbidden")
    revoked = platform.ask("DELETE", f"tokens/{token['id']}").json()
    assert revoked == token | {"revoked_at": NOW}
    assert platform.ask("DELETE", f"tokens/{token['id']}").json() == revoked, "it stays so"
    bens = platform.get("tokens", who="ben")["items"][0]["id"]
    for unknown in (bens, "t-nothing", "%2e%2e"):
        check_problem(platform.ask("DELETE", f"tokens/{unknown}"), 404, "not-found")
    assert platform.ask("DELETE", f"tokens/{bens}", who="admin").status_code == 200
    for body in ({}, {"name": ""}, {"name": "a", "days": 0}, {"name": "a", "days": -1}, {"name": "a", "days": "1"}):
        check_problem(platform.ask("POST", "tokens", body), 422, "invalid")


def test_a_token_gives_no_user_more_rights(platform: Platform) -> None:
    check_problem(platform.ask("POST", "tokens", {"name": "a", "role": "admin"}), 403, "forbidden", "above 'user'")
    check_problem(platform.ask("POST", "tokens", {"name": "a", "user": "admin"}), 403, "forbidden")
    check_problem(platform.ask("POST", "tokens", {"name": "a", "user": "nobody"}, who="admin"), 404, "not-found")
    check_problem(
        platform.ask("POST", "tokens", {"name": "a", "user": "ann", "role": "admin"}, who="admin"), 403, "forbidden"
    )
    low = platform.store.tokens.create("admin", "low", ADMIN, NOW, role=Role.VIEWER, expires_at=NOW + 1e7)
    platform.secrets["low"] = low.secret
    assert platform.get("me", who="low") == {"name": "admin", "role": "viewer"}
    check_problem(platform.ask("POST", "tokens", {"name": "a", "role": "admin"}, who="low"), 403, "forbidden")
    check_problem(platform.ask("POST", "tokens", {"name": "a", "user": "ann"}, who="low"), 403, "forbidden")
    check_problem(platform.ask("PUT", "users/admin/password", {"password": PASSWORD}, who="low"), 403, "forbidden")
    check_problem(platform.ask("GET", "config", who="low"), 403, "forbidden")


def test_the_lifetime_of_tokens_is_limited(new_platform: Callable[..., Platform]) -> None:
    platform = new_platform(max_token_days=30, token_days=7)
    assert platform.ask("POST", "tokens", {"name": "a"}).json()["token"]["expires_at"] == NOW + 7 * DAY_S
    check_problem(platform.ask("POST", "tokens", {"name": "a", "days": 31}), 422, "invalid", "max_token_days=30")
    check_problem(platform.ask("POST", "tokens", {"name": "a", "days": None}), 422, "invalid", "no end is above")


def test_the_number_of_tokens_of_a_user_is_limited_without_sessions(with_password: Platform) -> None:
    platform = with_password
    ann = Asker("ann", Role.USER)
    made = [platform.store.tokens.create("ann", "t", ann, NOW, expires_at=NOW + 9) for _ in range(MAX_TOKENS - 1)]
    platform.secrets["ann"] = made[0].secret
    assert platform.ask("POST", "tokens", {"name": "a"}).status_code == 201
    check_problem(platform.ask("POST", "tokens", {"name": "a"}), 409, "conflict", "'ann' has 50 tokens already")
    assert log_in(platform).status_code == 201, "sessions are not counted"
    assert platform.ask("DELETE", f"tokens/{made[1].token.id}").status_code == 200
    assert platform.ask("POST", "tokens", {"name": "a"}).status_code == 201
    platform.now += 9
    platform.secrets["new"] = log_in(platform).json()["secret"]
    body = {"name": "a", "password": PASSWORD}
    assert platform.ask("POST", "tokens", body, who="new").status_code == 201, "those that have ended do not count"


def test_the_oldest_session_ends_when_there_are_too_many(
    with_password: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "MAX_SESSIONS", 3)
    secrets = [log_in(with_password).json()["secret"] for _ in range(4)]
    with_password.secrets |= {str(number): secret for number, secret in enumerate(secrets)}
    statuses = [with_password.ask("GET", "me", who=str(number)).status_code for number in range(4)]
    assert statuses == [401, 200, 200, 200]


def test_tokens_made_without_the_password_end_with_their_login(with_password: Platform) -> None:
    platform = with_password
    told = log_in(platform).json()
    platform.secrets["new"], ends = told["secret"], told["token"]["expires_at"]

    def make(who: str = "new", **body: Any) -> Any:
        return platform.ask("POST", "tokens", {"name": "a", **body}, who=who)

    for body in ({}, {"days": 0.6}):
        check_problem(make(**body), 403, "forbidden", "it would be valid longer than your present log-in")
    short = make(days=0.25).json()
    assert (short["token"]["kind"], short["token"]["expires_at"]) == ("session", NOW + DAY_S / 4)
    platform.secrets["short"] = short["secret"]
    check_problem(make("short", days=0.3), 403, "forbidden", "it would be valid longer")
    problem = check_problem(make(password="wrong"), 422, "invalid", "the password of 'ann' is wrong")
    assert problem["errors"][0]["field"] == "body.password"
    long = make(password=PASSWORD).json()["token"]
    assert (long["kind"], long["expires_at"]) == ("token", NOW + 90 * DAY_S)
    # Nor does another session: by the token, or by a link.
    for who, until in (("new", ends), ("short", NOW + DAY_S / 4)):
        platform.now = NOW + 60
        again = platform.ask("POST", "session", {"token": platform.secrets[who]}, who=None).json()
        assert again["expires_at"] == until
        code = platform.ask("POST", "session/links", who=who).json()["code"]
        assert platform.ask("POST", "session", {"code": code}, who=None).json()["expires_at"] == until


def test_guesses_of_a_password_beside_a_token_count(new_platform: Callable[..., Platform]) -> None:
    platform = new_platform(logins_per_minute=3)
    platform.store.accounts.set_password("ann", PASSWORD, ADMIN, NOW)
    platform.secrets["ann"] = log_in(platform).json()["secret"]
    body = {"name": "a", "password": "wrong"}
    assert [platform.ask("POST", "tokens", body).status_code for _ in range(4)] == [422, 422, 422, 429]


def test_a_login_may_be_short(with_password: Platform) -> None:
    assert log_in(with_password, hours=2).json()["token"]["expires_at"] == NOW + 2 * 3600
    assert log_in(with_password, hours=99).json()["token"]["expires_at"] == NOW + 12 * 3600
