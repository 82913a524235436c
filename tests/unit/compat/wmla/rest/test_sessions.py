"""Routes to log on and off, in all forms."""

from __future__ import annotations

import base64
import json

import httpx
import pytest
from tests.unit.compat.wmla.rest.asking import CONDUCTOR, DLI, PASSWORD, Console, check_error
from tests.unit.compat.wmla.rest.conftest import NewConsole
from tests.unit.server.platform import ADMIN, LIMIT_S, NOW

from legato.compat.wmla.rest import keys

LOGONS = ("/auth/v1/logon", f"{CONDUCTOR}/auth/logon", f"{DLI}/auth/logon")


def log_on(console: Console, path: str = LOGONS[0], password: str = PASSWORD, user: str = "ann") -> httpx.Response:
    return httpx.get(f"{console.platform.url}{path}", auth=(user, password), timeout=LIMIT_S)


@pytest.mark.parametrize("path", LOGONS)
def test_a_password_gives_a_token_that_reads_like_a_jwt_and_lives_eight_hours(console: Console, path: str) -> None:
    told = log_on(console, path).json()
    token = told["accessToken"]
    header, payload, secret = token.split(".")
    for part in (header, payload):
        assert set(part) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    said = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert (said["username"], said["sub"], said["exp"]) == ("ann", "ann", NOW + 8 * 3600)
    assert secret.startswith("lgt_")
    for headers in ({"X-Auth-Token": token}, {"Authorization": f"Bearer {token}"}, {"X-Auth-Token": secret}):
        assert console.ask("GET", "/conf", who=None, headers=headers).status_code == 200
    # The platform has one such token, which expires in time.
    made = [one for one in console.platform.get("tokens")["items"] if one["name"] == "wmla" and not one["revoked_at"]]
    assert [one["expires_at"] for one in made] == [NOW + 8 * 3600]
    console.platform.now += 8 * 3600 + 1
    check_error(console.ask("GET", "/conf", who=None, headers={"X-Auth-Token": token}), 401, "expired")


def test_a_shorter_life_of_logins_holds(new_console: NewConsole) -> None:
    console = new_console(login_hours=1)
    assert log_on(console).json()["exp"] == NOW + 3600
    assert [one["name"] for one in console.platform.get("tokens")["items"]].count("wmla") == 1


def test_cookies(console: Console) -> None:
    with httpx.Client(base_url=console.platform.url, timeout=LIMIT_S) as session:
        answer = session.get(f"{CONDUCTOR}/auth/logon", auth=("ann", PASSWORD))
        said = answer.headers["set-cookie"].lower()
        assert "httponly" in said
        assert "samesite=strict" in said
        assert "max-age=28800" in said
        assert session.get(f"{DLI}/execs").json() == []
        assert session.get(f"{CONDUCTOR}/auth/logoff").status_code == 200
        check_error(session.get(f"{DLI}/execs"), 401, "Unable to find token from cookies")


def test_logging_off_revokes_the_token(console: Console) -> None:
    token = log_on(console).json()["accessToken"]
    headers = {"Authorization": f"Bearer {token}"}
    assert console.ask("POST", "/auth/v1/logoff", base="", who=None, headers=headers).status_code == 200
    check_error(console.ask("GET", "/execs", who=None, headers=headers), 401, "revoked")
    # A logoff does not revoke a token that no logon created.
    assert console.ask("POST", "/auth/v1/logoff", base="").status_code == 200
    assert console.get("/execs") == []


def live_tokens(console: Console, user: str = "ann") -> list[str]:
    found = console.platform.get(f"tokens?user={user}", who="admin")["items"]
    return [one["id"] for one in found if one["name"] == "wmla" and not one["revoked_at"]]


def test_each_logon_creates_another_token_for_eight_hours(console: Console) -> None:
    first = log_on(console).json()
    console.platform.now += 5 * 3600
    second, third = log_on(console).json(), log_on(console, LOGONS[1]).json()
    assert (first["exp"], second["exp"], third["exp"]) == (NOW + 8 * 3600, *2 * (NOW + 13 * 3600,))
    assert len({first["accessToken"], second["accessToken"], third["accessToken"]}) == 3

    def ask(told: dict[str, str]) -> int:
        headers = {"X-Auth-Token": told["accessToken"]}
        return console.ask("GET", "/execs", who=None, headers=headers).status_code

    gone = {"X-Auth-Token": second["accessToken"]}
    assert console.ask("POST", "/auth/v1/logoff", base="", who=None, headers=gone).status_code == 200
    assert [ask(one) for one in (first, second, third)] == [200, 401, 200]
    console.platform.now += 4 * 3600
    assert [ask(one) for one in (first, third)] == [401, 200]


def test_a_logoff_with_a_password_ends_the_session_of_its_cookie_and_nothing_else(console: Console) -> None:
    other = {"X-Auth-Token": log_on(console).json()["accessToken"]}
    with httpx.Client(base_url=console.platform.url, auth=("ann", PASSWORD), timeout=LIMIT_S) as session:
        session.get(LOGONS[1])
        assert session.get(f"{DLI}/execs").status_code == 200
        kept = {"X-Auth-Token": session.cookies["legato-wmla-token"].strip('"')}
        before = live_tokens(console)
        assert session.get(f"{CONDUCTOR}/auth/logoff").status_code == 200
        # All clients that send this password share the token that is kept for it.
        assert len(before) - len(live_tokens(console)) == 1
        assert session.get(f"{DLI}/execs").status_code == 200
        assert session.get(f"{CONDUCTOR}/auth/logoff").status_code == 200
    assert console.ask("GET", "/execs", who=None, headers=kept).status_code == 401
    assert console.ask("GET", "/execs", who=None, headers=other).status_code == 200


def test_of_many_logons_those_in_use_stay(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "MAX_TOKENS_OF_USER", 3)
    used = {"X-Auth-Token": log_on(console).json()["accessToken"]}
    unused = {"X-Auth-Token": log_on(console).json()["accessToken"]}
    log_on(console, user="ben")
    for _ in range(4):
        assert console.ask("GET", "/execs", who=None, headers=used).status_code == 200
        newest = {"X-Auth-Token": log_on(console).json()["accessToken"]}
        assert len(live_tokens(console)) <= 3
    assert len(live_tokens(console)) == 3
    asked = [console.ask("GET", "/execs", who=None, headers=headers).status_code for headers in (used, unused, newest)]
    assert asked == [200, 401, 200]
    assert len(live_tokens(console, "ben")) == 1


def test_a_password_with_every_request_logs_on_once(console: Console) -> None:
    for _ in range(3):
        assert console.ask("GET", "/execs", who=None, auth=("ann", PASSWORD)).json() == []
    names = [one["name"] for one in console.platform.get("tokens")["items"] if not one["revoked_at"]]
    assert names.count("wmla") == 1
    # An old password does not work, even if a token is kept for it.
    console.platform.store.accounts.set_password("ann", "another one", ADMIN, NOW)
    console.platform.now += 2
    check_error(console.ask("GET", "/execs", who=None, auth=("ann", PASSWORD)), 401, "wrong")
    assert console.ask("GET", "/execs", who=None, auth=("ann", "another one")).status_code == 200
    console.platform.now += 9 * 3600
    assert console.ask("GET", "/execs", who=None, auth=("ann", "another one")).status_code == 200


def test_wrong_credentials_are_refused(console: Console) -> None:
    check_error(log_on(console, password="wrong"), 401, "wrong")
    check_error(log_on(console, user="nobody"), 401, "wrong")
    check_error(log_on(console, user="admin", password=""), 401)
    check_error(console.ask("GET", "/auth/v1/logon", base="", who=None), 401, "password are missing")
    for path in ("/execs", "/conf", "/status", "/execs/frameworks", "/scheduler/applications", "/execs/x/log"):
        answer = console.ask("GET", path, who=None)
        check_error(answer, 401, "logon")
        assert answer.headers["www-authenticate"].startswith("Basic")
        check_error(
            console.ask("GET", path, who=None, headers={"X-Auth-Token": "a.b.lgt_" + "0" * 64}),
            401,
            "does not know the token",
        )
        check_error(console.ask("GET", path, who=None, headers={"X-Auth-Token": "a.b.c"}), 401, "not from this server")
    for said in ("Basic", "Basic !!!", "Basic YW5u", "Basic " + base64.b64encode(b"\xff:\xff").decode(), "Odd x"):
        check_error(console.ask("GET", "/execs", who=None, headers={"Authorization": said}), 401)
    for token in ("a b", "x" * 5000, "a.b."):
        check_error(console.ask("GET", "/execs", who=None, headers={"X-Auth-Token": token}), 401)
    console.platform.store.accounts.change("ben", ADMIN, NOW, is_disabled=True)
    check_error(log_on(console, user="ben"), 401)
    check_error(console.ask("POST", "/execs", who=None), 401)


def test_guessing_is_slowed_down(new_console: NewConsole) -> None:
    console = new_console(logins_per_minute=3)
    answers = [log_on(console, password=f"wrong {number}") for number in range(4)]
    assert [answer.status_code for answer in answers] == [401, 401, 401, 429]
    check_error(answers[-1], 429)
    assert int(answers[-1].headers["retry-after"]) > 0
    assert log_on(console).status_code == 429


def test_many_addresses_that_guess_one_account_are_slowed_down(new_console: NewConsole) -> None:
    console = new_console(logins_per_minute=3, trusted_proxies=("127.0.0.1",))

    def guess(address: int, password: str = "wrong") -> int:
        headers = {"X-Forwarded-For": f"10.0.0.{address}"}
        given = ("ann", password)
        return console.ask("POST", "/auth/v1/logon", base="", who=None, auth=given, headers=headers).status_code

    assert guess(200, PASSWORD) == 200
    statuses = [guess(number, f"wrong {number}") for number in range(30)]
    assert statuses == [401] * 9 + [429] * 21
    assert guess(200, PASSWORD) == 200, "from where ann has logged in she still does"


@pytest.mark.parametrize("payload", [b"[" * 3000, b"{}", b"7", b"\xff", b'{"jti": "../users/ann"}'])
def test_tokens_that_no_server_made(console: Console, payload: bytes) -> None:
    token = f"a.{base64.urlsafe_b64encode(payload).decode().rstrip('=')}.{console.platform.secrets['ann']}"
    answer = console.ask("POST", "/auth/v1/logoff", base="", who=None, headers={"X-Auth-Token": token})
    check_error(answer, 401, "not a token")
    assert console.get("/execs") == []


def test_a_user_can_check_a_token(console: Console) -> None:
    answer = console.ask("GET", "/v1/preauth/validateAuth", base="")
    assert answer.json()["username"] == "ann"
    assert console.ask("GET", "/v1/preauth/validateAuth", base="", who=None, auth=("ann", PASSWORD)).status_code == 200
    check_error(console.ask("GET", "/v1/preauth/validateAuth", base="", who=None), 401)


def test_the_middleware_limits_apply_to_the_plugin(console: Console) -> None:
    evil = {"Origin": "https://evil.example"}
    assert (
        console.ask("POST", "/auth/v1/logon", base="", who=None, auth=("ann", PASSWORD), headers=evil).status_code
        == 403
    )
    assert console.ask("GET", "/execs", headers={"Host": "evil.example"}).status_code == 421
