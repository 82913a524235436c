"""The cache of tokens: the store is read once a second, and a revoked token is refused at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import Engine, event
from tests.unit.server.conftest import NewPlatform
from tests.unit.server.platform import ADMIN, LIMIT_S, NOW, Platform, check_problem

from legato.control.credentials import make_code, make_secret
from legato.control.roles import Asker, Role
from legato.control.store import CheckedToken
from legato.core.errors import StoreError
from legato.server import token_cache
from legato.server.token_cache import KEPT_S, TokenCache

Act = Callable[[Platform, str], Any]


def count_looks(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    looks: list[float] = []
    check_each = platform.store.tokens.check_each

    def counting(secrets: Collection[str], now: float) -> dict[str, CheckedToken]:
        looks.append(now)
        return check_each(secrets, now)

    monkeypatch.setattr(platform.store.tokens, "check_each", counting)
    return looks


def make_up(number: int) -> str:
    return make_secret(lambda _: number)


@pytest.fixture
def queries(new_platform: NewPlatform) -> Iterator[tuple[Platform, list[str]]]:
    """A platform that knows each token for a moment only and whose addresses may show three wrong tokens, and what
    its store asks the database."""
    platform, asked = new_platform(requests_per_s=0.001, requests_burst=3), []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if "tokens" in statement and statement.startswith("SELECT"):
            asked.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    yield platform, asked
    event.remove(Engine, "before_cursor_execute", note)


def show(platform: Platform, secret: str) -> int:
    return platform.http.get("/api/v1/me", headers={"Authorization": f"Bearer {secret}"}).status_code


def test_made_up_tokens_do_not_reach_the_store_without_end(queries: tuple[Platform, list[str]]) -> None:
    platform, asked = queries
    statuses = [show(platform, make_up(number)) for number in range(50)]
    assert statuses == [401] * 3 + [429] * 47
    assert len(asked) == 3, "the bound of the address comes before the store"


def test_malformed_tokens_are_refused_without_the_store(queries: tuple[Platform, list[str]]) -> None:
    platform, asked = queries
    wrong = ("lgt_1", make_up(1).upper(), "eyJhbGciOi.J9.x", make_up(1)[:-1])
    assert [show(platform, secret) for secret in wrong] == [401, 401, 401, 429]
    assert asked == []


def test_a_wrong_token_is_looked_up_once_in_a_second(queries: tuple[Platform, list[str]]) -> None:
    platform, asked = queries
    assert [show(platform, make_up(1)) for _ in range(20)] == [401] * 20
    assert len(asked) == 1
    platform.now += KEPT_S
    assert show(platform, make_up(1)) == 401 and len(asked) == 2


def test_guesses_do_not_lock_out_users_with_a_valid_token(queries: tuple[Platform, list[str]]) -> None:
    platform, asked = queries
    assert platform.ask("GET", "me").status_code == 200
    assert [show(platform, make_up(number)) for number in range(4)] == [401, 401, 401, 429]
    platform.now += KEPT_S
    assert platform.ask("GET", "me").status_code == 200, "asked of the store again, though the address is at its bound"
    platform.store.accounts.change("ann", ADMIN, NOW, is_disabled=True)
    platform.now += KEPT_S
    num_before = len(asked)
    assert [platform.ask("GET", "me").status_code for _ in range(9)] == [401] * 9
    assert len(asked) == num_before + 1
    platform.now += KEPT_S
    assert platform.ask("GET", "me").status_code == 429, "it is no better than a made-up one now"


def test_a_store_that_fails_does_not_count_against_an_address(
    queries: tuple[Platform, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    platform, _ = queries

    def fail(secrets: Collection[str], now: float) -> Any:
        raise StoreError("the database does not answer")

    with monkeypatch.context() as broken:
        broken.setattr(platform.store.tokens, "check_each", fail)
        assert {show(platform, make_up(number)) for number in range(9)} == {503}
    assert platform.ask("GET", "me").status_code == 200


@pytest.mark.parametrize("field", ["token", "code"])
def test_made_up_secrets_of_logins_do_not_reach_the_store_without_end(
    queries: tuple[Platform, list[str]], field: str
) -> None:
    platform, asked = queries
    for number in range(50):
        secret = make_up(number) if field == "token" else make_code(lambda _, number=number: number)  # type: ignore[misc]
        platform.http.post("/api/v1/session", json={field: secret})
    assert len(asked) <= 3


def test_the_store_is_asked_once_a_second(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = count_looks(platform, monkeypatch)
    for now in (NOW, NOW, NOW + KEPT_S / 2, NOW + KEPT_S, NOW + KEPT_S, NOW):
        platform.now = now
        assert platform.get("me")["name"] == "ann"
    assert looks == [NOW, NOW + KEPT_S, NOW], "a clock that was set back makes nothing last"


@pytest.mark.parametrize(
    ("take_away", "role"),
    [
        (lambda platform, token: platform.ask("DELETE", f"tokens/{token}", who="admin"), None),
        (lambda platform, _: platform.ask("PATCH", "users/ann", {"is_disabled": True}, who="admin"), None),
        (lambda platform, _: platform.ask("PUT", "users/ann/password", {"password": "s" * 20}, who="admin"), None),
        (lambda platform, _: platform.ask("PATCH", "users/ann", {"role": "viewer"}, who="admin"), "viewer"),
    ],
)
def test_rights_that_are_taken_away_are_gone_at_once(platform: Platform, take_away: Act, role: str | None) -> None:
    token = platform.get("tokens")["items"][0]["id"]
    assert platform.get("me")["role"] == "user"
    assert take_away(platform, token).status_code in (200, 204)
    if role is None:
        check_problem(platform.ask("GET", "me"), 401, "unauthenticated")
    else:
        assert platform.get("me")["role"] == role


def test_rights_that_another_server_took_away_are_gone_within_a_second(platform: Platform) -> None:
    assert platform.get("me")["name"] == "ann"
    platform.store.accounts.change("ann", ADMIN, NOW, is_disabled=True)
    platform.now += KEPT_S
    check_problem(platform.ask("GET", "me"), 401, "unauthenticated", "the user is disabled")


def test_a_token_that_is_revoked_while_it_is_looked_up_is_not_kept(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = platform.get("tokens")["items"][0]["id"]
    platform.now += KEPT_S
    platform.get("me", who="admin")
    check_each = platform.store.tokens.check_each
    is_first = True

    def slow(secrets: Collection[str], now: float) -> dict[str, CheckedToken]:
        nonlocal is_first
        found = check_each(secrets, now)
        if is_first:
            is_first = False
            assert platform.ask("DELETE", f"tokens/{token}", who="admin").status_code == 200
        return found

    monkeypatch.setattr(platform.store.tokens, "check_each", slow)
    assert platform.get("me")["name"] == "ann"
    check_problem(platform.ask("GET", "me"), 401, "unauthenticated", "it was revoked")


def test_tokens_that_come_at_once_are_checked_and_noted_together(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens, goes_on = platform.store.tokens, threading.Event()
    secrets = [tokens.create("ann", f"t{number}", ADMIN, NOW, expires_at=NOW + 1e7).secret for number in range(40)]
    looks: list[Collection[str]] = []
    notes: list[Collection[str]] = []
    check_each, note_use = tokens.check_each, tokens.note_use

    def check(shown: Collection[str], now: float) -> dict[str, CheckedToken]:
        looks.append(shown)
        assert goes_on.wait(LIMIT_S)
        return check_each(shown, now)

    monkeypatch.setattr(tokens, "check_each", check)
    monkeypatch.setattr(tokens, "note_use", lambda shown, now: (notes.append(shown), note_use(shown, now)))
    asking = asyncio.run_coroutine_threadsafe(_recognize(platform, [*secrets, *secrets, make_up(1)]), platform._running)
    goes_on.set()
    found = asking.result(LIMIT_S)
    assert found == ["ann"] * 80 + ["Unauthenticated"]
    assert sum(len(shown) for shown in looks) == 41, "each token once"
    assert len(looks) <= 2
    assert sorted(secret for shown in notes for secret in shown) == sorted(secrets)
    assert len(notes) <= 2
    assert {one.used_at for one in tokens.list("ann") if one.name != "test"} == {NOW}


def test_an_unreadable_user_fails_no_request_of_others(platform: Platform) -> None:
    tokens = platform.store.tokens
    secrets = [tokens.create(name, "t", ADMIN, NOW, expires_at=NOW + 1e7).secret for name in ("ann", "ben")]
    with tokens._database.writing() as connection:
        connection.execute(sqlalchemy.text("UPDATE users SET role = 'auditor' WHERE name = 'ben'"))
    asking = asyncio.run_coroutine_threadsafe(_recognize(platform, secrets), platform._running)
    assert asking.result(LIMIT_S) == ["ann", "Unauthenticated"]


async def _recognize(platform: Platform, secrets: Collection[str]) -> list[str]:
    recognize = platform.services.authenticator.recognize
    found = await asyncio.gather(*(recognize(secret, "::1") for secret in secrets), return_exceptions=True)
    return [one.name if isinstance(one, Asker) else type(one).__name__ for one in found]


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_cache, "_MAX_TOKENS", 3)
    known, asker = TokenCache[Asker](), Asker("ann", Role.USER)
    for key in "abcda":
        known.keep(key, asker, NOW, known.begin())
    assert [key for key in "abcd" if known.find(key, NOW)] == ["a", "c", "d"]
