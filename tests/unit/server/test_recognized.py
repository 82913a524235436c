"""Tokens that were good a moment ago: the store is asked once a second, and what is taken away holds at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.server.platform import ADMIN, NOW, Platform, check_problem

from legato.control.roles import Asker, Role
from legato.server import recognized
from legato.server.recognized import KEPT_S, Recognized

Act = Callable[[Platform, str], Any]


def count_looks(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    looks: list[float] = []
    verify = platform.store.tokens.verify

    def counting(secret: str, now: float) -> Asker:
        looks.append(now)
        return verify(secret, now)

    monkeypatch.setattr(platform.store.tokens, "verify", counting)
    return looks


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
def test_what_is_taken_away_is_gone_at_once(platform: Platform, take_away: Act, role: str | None) -> None:
    token = platform.get("tokens")["items"][0]["id"]
    assert platform.get("me")["role"] == "user"
    assert take_away(platform, token).status_code in (200, 204)
    if role is None:
        check_problem(platform.ask("GET", "me"), 401, "unauthenticated")
    else:
        assert platform.get("me")["role"] == role


def test_what_another_server_took_away_is_gone_within_a_second(platform: Platform) -> None:
    assert platform.get("me")["name"] == "ann"
    platform.store.accounts.change("ann", ADMIN, NOW, is_disabled=True)
    platform.now += KEPT_S
    check_problem(platform.ask("GET", "me"), 401, "unauthenticated", "the user is disabled")


def test_a_token_that_is_revoked_while_it_is_looked_up_is_not_kept(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = platform.get("tokens")["items"][0]["id"]
    platform.now += KEPT_S
    verify = platform.store.tokens.verify
    is_first = True

    def slow(secret: str, now: float) -> Asker:
        nonlocal is_first
        found = verify(secret, now)
        if found.name == "ann" and is_first:
            is_first = False
            assert platform.ask("DELETE", f"tokens/{token}", who="admin").status_code == 200
        return found

    monkeypatch.setattr(platform.store.tokens, "verify", slow)
    assert platform.get("me")["name"] == "ann"
    check_problem(platform.ask("GET", "me"), 401, "unauthenticated", "it was revoked")


def test_it_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recognized, "_MAX_TOKENS", 3)
    known, asker = Recognized(), Asker("ann", Role.USER)
    for key in "abcda":
        known.keep(key, asker, NOW, known.begin())
    assert [key for key in "abcd" if known.find(key, NOW)] == ["a", "c", "d"]
