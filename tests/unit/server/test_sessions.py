"""Sessions of browsers: log-in, permissions of the cookie, and protection from pages of other sites."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.cookies import Morsel, SimpleCookie
from typing import Any

import httpx
import pytest
from tests.unit.server.platform import ADMIN, API, JOB, LIMIT_S, NOW, Messages, Platform, check_problem

from legato.server import streams
from legato.server.sessions import make_csrf

PASSWORD = "correct horse"
HOUR_S = 3600.0


def begin(platform: Platform, body: Any, **headers: str) -> httpx.Response:
    return platform.ask("POST", "session", body, who=None, **headers)


def cookie_of(answer: httpx.Response, name: str = "legato_session") -> Morsel[str]:
    found = [SimpleCookie(cookie) for cookie in answer.headers.get_list("set-cookie")]
    (session,) = (cookies for cookies in found if "legato_device" not in str(cookies))
    assert list(session) == [name]
    return session[name]


class Browser:
    """Asks by cookie, as a page of the server does."""

    def __init__(self, platform: Platform, **body: Any) -> None:
        self.platform = platform
        answer = begin(platform, body)
        assert answer.status_code == 200, answer.text
        self.told = answer.json()
        self.cookie = f"legato_session={cookie_of(answer).value}"
        platform.http.cookies.clear()

    def ask(self, method: str, path: str, body: Any = None, *, csrf: bool = True, **headers: str) -> httpx.Response:
        if csrf:
            headers = {"X-Legato-CSRF": self.told["csrf"], **headers}
        answer = self.platform.ask(method, path, body, who=None, Cookie=self.cookie, **headers)
        self.platform.http.cookies.clear()
        return answer


@pytest.fixture
def browser(platform: Platform) -> Browser:
    return Browser(platform, token=platform.secrets["ann"])


# ---------------------------------------------------------------- beginning one


def test_a_session_begins_with_a_password(platform: Platform) -> None:
    platform.ask("PUT", "users/ann/password", {"password": PASSWORD}, who="admin")
    answer = begin(platform, {"user": "ann", "password": PASSWORD})
    assert answer.status_code == 200
    told = answer.json()
    assert set(told) == {"name", "role", "csrf", "expires_at"}
    assert (told["name"], told["role"], told["expires_at"]) == ("ann", "user", NOW + 12 * HOUR_S)
    cookie = cookie_of(answer)
    assert cookie.value.startswith("lgt_") and cookie.value not in answer.text
    assert cookie["httponly"] and cookie["path"] == "/" and cookie["samesite"] == "Strict"
    assert int(cookie["max-age"]) == 12 * HOUR_S
    assert not cookie["secure"] and not cookie["domain"]
    for user, password in (("ann", "wrong"), ("nobody", PASSWORD), ("", "")):
        check_problem(begin(platform, {"user": user, "password": password}), 401, "unauthenticated", "is wrong")


def test_a_session_begins_with_a_token_and_has_its_own(platform: Platform, browser: Browser) -> None:
    assert browser.cookie != f"legato_session={platform.secrets['ann']}"
    assert browser.ask("GET", "session").json() == browser.told
    assert browser.ask("GET", "me").json() == {"name": "ann", "role": "user"}
    assert [one["name"] for one in platform.get("tokens")["items"]] == ["console", "test"]
    check_problem(begin(platform, {"token": "lgt_" + "0" * 64}), 401, "unauthenticated", "does not know the token")
    check_problem(begin(platform, {"token": ""}), 401, "unauthenticated")
    low = platform.ask("POST", "tokens", {"name": "look", "role": "viewer"}).json()["secret"]
    assert begin(platform, {"token": low}).json()["role"] == "viewer", "no user gets more rights"


def test_invalid_bodies_begin_no_session(platform: Platform) -> None:
    secret = platform.secrets["ann"]
    for body in (
        {},
        {"user": "ann"},
        {"password": PASSWORD},
        {"token": secret, "password": PASSWORD},
        {"token": secret, "code": "lgc_0"},
        {"user": "ann", "password": PASSWORD, "token": secret},
        {"token": 1},
        {"token": secret, "role": "admin"},
    ):
        answer = begin(platform, body)
        check_problem(answer, 422, "invalid")
        assert "set-cookie" not in answer.headers
    form = platform.http.post(f"{API}/session", data={"token": secret})
    check_problem(form, 415, "unsupported-media-type")  # as a foreign page could send one


def test_guessers_wait(new_platform: Callable[..., Platform]) -> None:
    platform = new_platform(logins_per_minute=3)
    secret = platform.secrets["ann"]
    assert [begin(platform, {"token": secret}).status_code for _ in range(5)] == [200] * 5
    ways = [{"token": "lgt_0"}, {"code": "lgc_0"}, {"code": "lgc_1"}, {"token": "lgt_1"}]
    assert [begin(platform, way).status_code for way in ways] == [401, 401, 401, 429]
    assert begin(platform, {"token": secret}).status_code == 200, "a token cannot be guessed: a right one is taken"
    password = {"user": "a", "password": "b"}
    assert [begin(platform, password).status_code for _ in range(3)] == [401] * 3
    assert begin(platform, password).status_code == 429
    assert platform.ask("POST", "login", password, who=None).status_code == 429, "one count"


def test_the_cookie_is_for_tls_alone_where_there_is_tls(new_platform: Callable[..., Platform]) -> None:
    platform = new_platform(trusted_proxies=("127.0.0.1", "::1"))
    body = {"token": platform.secrets["ann"]}
    over_tls = cookie_of(begin(platform, body, X_Forwarded_Proto="https"), "__Host-legato_session")
    # What browsers ask of a cookie of this name.
    assert over_tls["secure"] and over_tls["path"] == "/" and not over_tls["domain"]
    plain = cookie_of(begin(platform, body, X_Forwarded_Proto="http"))
    assert not plain["secure"]

    def ask(name: str, value: str, proto: str, method: str = "GET") -> httpx.Response:
        platform.http.cookies.clear()
        shown = {"Cookie": f"{name}={value}", "X_Forwarded_Proto": proto}
        csrf = make_csrf(value)
        return platform.ask(method, "session", who=None, X_Legato_CSRF=csrf, **shown)

    assert ask("__Host-legato_session", over_tls.value, "https").status_code == 200
    assert ask("legato_session", plain.value, "http").status_code == 200
    # Over TLS a neighbour in the domain could set the plain one; without it no such name means anything.
    check_problem(ask("legato_session", over_tls.value, "https"), 401, "unauthenticated")
    check_problem(ask("__Host-legato_session", plain.value, "http"), 401, "unauthenticated")
    gone = cookie_of(ask("__Host-legato_session", over_tls.value, "https", "DELETE"), "__Host-legato_session")
    assert (gone.value, gone["max-age"], bool(gone["secure"])) == ("", "0", True)


def test_forwarded_headers_of_a_client_that_is_no_proxy_are_ignored(platform: Platform) -> None:
    answer = begin(platform, {"token": platform.secrets["ann"]}, X_Forwarded_Proto="https")
    assert not cookie_of(answer)["secure"]


# ---------------------------------------------------------------- foreign pages


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "jobs", JOB),
        ("PATCH", "jobs/j-0000000000", {"priority": 1}),
        ("PUT", "queues/night", {}),
        ("DELETE", "session", None),
        ("POST", "session/links", None),
        ("PUT", "code/" + "0" * 64, None),
        ("OPTIONS", "jobs", None),
    ],
)
def test_a_change_by_cookie_needs_the_value_that_only_our_pages_know(
    platform: Platform, browser: Browser, method: str, path: str, body: Any
) -> None:
    other = Browser(platform, token=platform.secrets["ann"])
    assert other.told["csrf"] != browser.told["csrf"], "it is bound to the token"
    for shown in ({}, {"X-Legato-CSRF": ""}, {"X-Legato-CSRF": "0" * 64}, {"X-Legato-CSRF": other.told["csrf"]}):
        answer = browser.ask(method, path, body, csrf=False, **shown)
        check_problem(answer, 403, "wrong-origin", "X-Legato-CSRF")
    assert platform.get("jobs")["items"] == []
    assert browser.ask("GET", "session", csrf=False).status_code == 200, "nothing was ended"
    assert "wrong-origin" not in browser.ask(method, path, body).text


def test_a_change_by_cookie_with_that_value(platform: Platform, browser: Browser) -> None:
    assert browser.ask("POST", "jobs", JOB).status_code == 201
    assert [job["owner"] for job in platform.get("jobs")["items"]] == ["ann"]
    mine = platform.url
    check_problem(
        browser.ask("POST", "jobs", JOB, Origin="http://evil.example"), 403, "wrong-origin", "may not send requests"
    )
    check_problem(
        browser.ask("POST", "jobs", JOB, Origin="http://127.0.0.1:1"), 403, "wrong-origin", "may not send requests"
    )
    assert browser.ask("POST", "jobs", JOB, Origin=mine).status_code == 201
    check_problem(browser.ask("POST", "jobs", JOB, Host="evil.example"), 421, "wrong-host")


def test_reading_by_cookie_needs_no_csrf_value(browser: Browser) -> None:
    for path in ("jobs", "me", "session", "events?after=now"):
        assert browser.ask("GET", path, csrf=False).status_code == 200


def test_the_value_is_not_needed_with_a_token_and_no_cookie_beside_one_counts(
    platform: Platform, browser: Browser
) -> None:
    assert platform.ask("POST", "jobs", JOB, who="ben", Cookie=browser.cookie).status_code == 201
    assert platform.get("jobs", who="ben", Cookie=browser.cookie)["items"][0]["owner"] == "ben"
    wrong = platform.ask("GET", "me", who=None, Authorization="Bearer lgt_0", Cookie=browser.cookie)
    check_problem(wrong, 401, "unauthenticated")
    answer = platform.ask("DELETE", "session", who="ben")
    check_problem(answer, 422, "invalid", "the request has no cookie")
    assert platform.get("me", who="ben")["name"] == "ben"


@pytest.mark.parametrize(
    "cookie",
    ["", "legato_session=", "legato_session=lgt_0", "other=1", "legato_session=" + "a" * 300, "legato_session=\xe4"],
    ids=["none", "empty", "unknown", "another", "long", "foreign-letters"],
)
def test_cookies_that_are_no_session(platform: Platform, cookie: str) -> None:
    answer = platform.http.get(f"{API}/me", headers={"Cookie": cookie.encode("latin-1")})
    check_problem(answer, 401, "unauthenticated")


def test_a_code_is_no_token(platform: Platform) -> None:
    code = platform.ask("POST", "session/links").json()["code"]
    for shown in (code, f"\xff{code}"):
        answer = platform.http.get(f"{API}/me", headers={"Authorization": f"Bearer {shown}".encode("latin-1")})
        check_problem(answer, 401, "unauthenticated")
    check_problem(begin(platform, {"token": code}), 401, "unauthenticated")


# ---------------------------------------------------------------- ending


def test_logging_out(platform: Platform, browser: Browser) -> None:
    answer = browser.ask("DELETE", "session")
    assert (answer.status_code, answer.content) == (204, b"")
    cookie = cookie_of(answer)
    assert (cookie.value, cookie["max-age"], cookie["path"]) == ("", "0", "/")
    check_problem(browser.ask("GET", "session"), 401, "unauthenticated", "was revoked")
    check_problem(browser.ask("POST", "jobs", JOB), 401, "unauthenticated")
    assert platform.get("me")["name"] == "ann", "the token with which it began is another"


def test_a_session_expires(platform: Platform, browser: Browser) -> None:
    platform.now += 12 * HOUR_S - 1
    assert browser.ask("GET", "me").status_code == 200
    platform.now += 1.5
    check_problem(browser.ask("GET", "me"), 401, "unauthenticated", "expired")
    check_problem(browser.ask("POST", "jobs", JOB), 401, "unauthenticated", "expired")


def test_a_session_loses_the_rights_that_its_user_loses_at_once(platform: Platform, browser: Browser) -> None:
    platform.ask("PATCH", "users/ann", {"role": "viewer"}, who="admin")
    assert browser.ask("GET", "session").json()["role"] == "viewer"
    check_problem(browser.ask("POST", "jobs", JOB), 403, "forbidden")
    platform.ask("PATCH", "users/ann", {"is_disabled": True}, who="admin")
    check_problem(browser.ask("GET", "session"), 401, "unauthenticated", "disabled")


@pytest.fixture
def quick_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT_S", 0.1)


def following(browser: Browser, path: str) -> Iterator[dict[str, str]]:
    headers = {"Accept": "text/event-stream", "Cookie": browser.cookie}
    with browser.platform.http.stream("GET", f"{API}/{path}", headers=headers) as answer:
        assert answer.status_code == 200
        yield from Messages(answer)


@pytest.mark.usefixtures("quick_watch")
@pytest.mark.parametrize("ending", ["expired", "logged out", "disabled"])
def test_streams_work_by_cookie_and_end_with_the_session(platform: Platform, browser: Browser, ending: str) -> None:
    job = browser.ask("POST", "jobs", JOB).json()["id"]
    messages = following(browser, "events")
    assert next(messages)["event"] == "stage"
    ended = threading.Event()

    def read_on() -> None:
        for _ in messages:
            pass
        ended.set()

    reader = threading.Thread(target=read_on)
    reader.start()
    # With connections of its own: the reader has the other client.
    with httpx.Client(base_url=platform.url, timeout=LIMIT_S) as http:
        if ending == "expired":
            platform.now += 13 * HOUR_S
        elif ending == "disabled":
            platform.store.accounts.change("ann", ADMIN, NOW, is_disabled=True)
        else:
            shown = {"Cookie": browser.cookie, "X-Legato-CSRF": browser.told["csrf"]}
            assert http.delete(f"{API}/session", headers=shown).status_code == 204
        assert ended.wait(LIMIT_S), f"the stream on {job} goes on"
    reader.join(LIMIT_S)


# ---------------------------------------------------------------- links


def make_code(platform: Platform, who: str = "ann") -> Any:
    answer = platform.ask("POST", "session/links", who=who)
    assert answer.status_code == 201
    return answer.json()


def test_a_link_logs_in_once(platform: Platform) -> None:
    made = make_code(platform)
    assert made["code"].startswith("lgc_") and made["expires_at"] == NOW + HOUR_S
    browser = Browser(platform, code=made["code"])
    assert (browser.told["name"], browser.told["role"]) == ("ann", "user")
    assert browser.told["expires_at"] == NOW + 12 * HOUR_S
    assert browser.ask("POST", "jobs", JOB).status_code == 201
    check_problem(begin(platform, {"code": made["code"]}), 401, "unauthenticated", "legato console")
    told = [(line["who"], line["action"]) for line in platform.get("audit", who="admin")["items"]]
    assert ("ann", "link.create") in told and ("ann", "link.use") in told


def test_looking_up_the_user_of_a_link_does_not_use_it_up(new_platform: Callable[..., Platform]) -> None:
    platform = new_platform(logins_per_minute=2)
    made = make_code(platform)

    def look(code: str) -> httpx.Response:
        return platform.ask("POST", "session/links/look", {"code": code}, who=None)

    for _ in range(4):
        assert look(made["code"]).json() == {"name": "ann", "role": "user", "expires_at": made["expires_at"]}
    assert "set-cookie" not in look(made["code"]).headers
    assert begin(platform, {"code": made["code"]}).json()["name"] == "ann"
    check_problem(look(made["code"]), 401, "unauthenticated", "has been used")
    check_problem(look("lgc_0"), 401, "unauthenticated")
    check_problem(look("lgc_1"), 429, "too-many-requests")  # guesses count as those of a log-in


def test_a_link_expires_after_an_hour(platform: Platform) -> None:
    code = make_code(platform)["code"]
    platform.now += HOUR_S
    check_problem(begin(platform, {"code": code}), 401, "unauthenticated", "has expired")
    check_problem(begin(platform, {"code": "lgc_" + "0" * 64}), 401, "unauthenticated")
    check_problem(begin(platform, {"code": ""}), 401, "unauthenticated")


def test_a_link_gives_no_more_rights(platform: Platform) -> None:
    low = platform.ask("POST", "tokens", {"name": "look", "role": "viewer"}).json()["secret"]
    platform.secrets["low"] = low
    assert begin(platform, {"code": make_code(platform, "low")["code"]}).json()["role"] == "viewer"
    code = make_code(platform)["code"]
    platform.ask("PATCH", "users/ann", {"role": "viewer"}, who="admin")
    assert begin(platform, {"code": code}).json()["role"] == "viewer"
    codes = [make_code(platform)["code"] for _ in range(3)]
    platform.ask("PUT", "users/ann/password", {"password": PASSWORD}, who="admin")
    check_problem(begin(platform, {"code": codes[0]}), 401, "unauthenticated")  # a new password ends links too
    code = make_code(platform, "ben")["code"]
    listed = [one for one in platform.get("tokens", who="ben")["items"] if one["name"] == "link"]
    assert platform.ask("DELETE", f"tokens/{listed[0]['id']}", who="ben").status_code == 200
    check_problem(begin(platform, {"code": code}), 401, "unauthenticated")
    code = make_code(platform, "ben")["code"]
    platform.ask("PATCH", "users/ben", {"is_disabled": True}, who="admin")
    check_problem(begin(platform, {"code": code}), 401, "unauthenticated")
