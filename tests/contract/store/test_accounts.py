"""Users, passwords, tokens and queues."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.contract.store.conftest import NewUrl, open_quickly
from tests.contract.store.making import ADMIN, ANN, BEN, EYE, NOW, make_job, make_people

from legato.control.people import NewToken
from legato.control.records import Queue
from legato.control.roles import Asker, Role
from legato.control.store import Store
from legato.core.errors import Conflict, Forbidden, NotFound, Unauthenticated, UsageError

PASSWORD = "correct horse"


@pytest.fixture(autouse=True)
def people(store: Store) -> None:
    make_people(store)


def test_the_first_start_makes_one_admin(new_url: NewUrl) -> None:
    url = new_url()
    made: list[NewToken | None] = []

    def start() -> None:
        with open_quickly(url) as own:
            made.append(own.tokens.create_first(NOW))

    threads = [threading.Thread(target=start) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (first,) = (token for token in made if token is not None)
    with open_quickly(url) as store:
        assert store.tokens.verify(first.secret, NOW) == ADMIN
        assert [user.name for user in store.accounts.list()] == ["admin"]


def test_a_token_is_seen_once(store: Store) -> None:
    made = store.tokens.create("ann", "laptop", ANN, NOW, expires_at=NOW + 10)
    assert made.secret.startswith("lgt_")
    assert len(made.secret) == 68
    assert made.secret not in repr(made)
    assert store.tokens.verify(made.secret, NOW + 9) == ANN
    (kept,) = store.tokens.list("ann")
    assert (kept.id, kept.name, kept.used_at) == (made.token.id, "laptop", NOW + 9)
    with pytest.raises(Unauthenticated, match="token 'laptop' of 'ann': it has expired"):
        store.tokens.verify(made.secret, NOW + 10)


def test_a_code_works_once_also_for_simultaneous_users(new_url: NewUrl) -> None:
    url = new_url()
    with open_quickly(url) as store:
        make_people(store)
        made = store.tokens.create_code(ANN, NOW, expires_at=NOW + 10)
    assert made.code.startswith("lgc_") and made.code not in repr(made)
    logged_in: list[NewToken] = []
    refused: list[Unauthenticated] = []

    def use() -> None:
        with open_quickly(url) as own:
            try:
                logged_in.append(own.tokens.redeem(made.code, "console", NOW + 9, expires_at=NOW + 99))
            except Unauthenticated as error:
                refused.append(error)

    threads = [threading.Thread(target=use) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(logged_in), len(refused)) == (1, 5)
    with open_quickly(url) as store:
        assert store.tokens.verify(logged_in[0].secret, NOW + 98) == ANN
        assert store.tokens.find(logged_in[0].secret).name == "console"
        with pytest.raises(NotFound):
            store.tokens.find(made.code)


def test_codes_that_log_no_user_in(store: Store) -> None:
    made = store.tokens.create_code(ANN, NOW, expires_at=NOW + 10)
    for code, now in ((made.code, NOW + 10), ("", NOW), ("lgc_" + "0" * 64, NOW), (made.code + "0", NOW)):
        with pytest.raises(Unauthenticated, match="it works once"):
            store.tokens.redeem(code, "console", now, expires_at=NOW + 99)
    with pytest.raises(Unauthenticated):
        store.tokens.verify(made.code, NOW)
    token = store.tokens.create("ann", "a", ANN, NOW, expires_at=NOW + 10)
    with pytest.raises(Unauthenticated):
        store.tokens.redeem(token.secret, "console", NOW, expires_at=NOW + 99)
    with pytest.raises(NotFound, match="no user 'zoe'"):
        store.tokens.create_code(Asker("zoe", Role.ADMIN), NOW, expires_at=NOW + 1)
    store.accounts.change("ann", ADMIN, NOW, role=Role.VIEWER)
    assert store.tokens.redeem(made.code, "console", NOW, expires_at=NOW + 99).token.role is Role.VIEWER


@pytest.mark.parametrize("secret", ["", "lgt_" + "0" * 64, "geheim"])
def test_an_unknown_token_is_refused(store: Store, secret: str) -> None:
    with pytest.raises(Unauthenticated, match="does not know the token") as caught:
        store.tokens.verify(secret, NOW)
    assert not secret or secret not in str(caught.value)


def test_the_last_use_is_kept_to_the_minute(store: Store) -> None:
    secret = store.tokens.create("ann", "a", ANN, NOW, expires_at=NOW + 1e7).secret
    for after, want in ((0, NOW), (59, NOW), (60, NOW + 60)):
        store.tokens.verify(secret, NOW + after)
        assert store.tokens.list("ann")[0].used_at == want


def test_a_revoked_token_stays_revoked(store: Store) -> None:
    made = store.tokens.create("ann", "a", ANN, NOW, expires_at=NOW + 1e7)
    for asker in (BEN, EYE):
        with pytest.raises(NotFound):
            store.tokens.revoke(made.token.id, asker, NOW)
    for asker, told in (
        (ANN, "There is no token 't-37efnd0000' of yours. "),
        (ADMIN, "There is no token 't-37efnd0000'. "),
    ):
        with pytest.raises(NotFound) as refused:
            store.tokens.revoke("t-37efnd0000", asker, NOW)
        assert str(refused.value) == f"{told}'legato tokens' lists the existing ones."
    assert store.tokens.revoke(made.token.id, ANN, NOW + 1).revoked_at == NOW + 1
    assert store.tokens.revoke(made.token.id, ADMIN, NOW + 2).revoked_at == NOW + 1
    with pytest.raises(Unauthenticated, match="it was revoked"):
        store.tokens.verify(made.secret, NOW + 3)


def test_no_token_is_above_its_user_or_its_maker(store: Store) -> None:
    low = store.tokens.create("ann", "look", ANN, NOW, role=Role.VIEWER, expires_at=NOW + 1e7)
    looker = store.tokens.verify(low.secret, NOW)
    assert looker == Asker("ann", Role.VIEWER)
    with pytest.raises(Forbidden, match="role 'user' is above 'viewer'"):
        store.tokens.create("ann", "more", looker, NOW, role=Role.USER, expires_at=NOW + 1e7)
    assert store.tokens.create("ann", "same", looker, NOW, expires_at=NOW + 1e7).token.role is Role.VIEWER
    with pytest.raises(Forbidden, match="role 'admin' is above 'user'"):
        store.tokens.create("ann", "more", ADMIN, NOW, role=Role.ADMIN, expires_at=NOW + 1e7)
    with pytest.raises(Forbidden, match="only admins may"):
        store.tokens.create("ben", "b", ANN, NOW, expires_at=NOW + 1e7)
    with pytest.raises(Forbidden, match="below the user's"):
        store.accounts.set_password("ann", PASSWORD, looker, NOW)


def test_a_lower_role_holds_at_once(store: Store) -> None:
    secret = store.tokens.create("ann", "a", ANN, NOW, expires_at=NOW + 1e7).secret
    store.accounts.change("ann", ADMIN, NOW, role=Role.VIEWER)
    assert store.tokens.verify(secret, NOW).role is Role.VIEWER
    store.accounts.change("ann", ADMIN, NOW, is_disabled=True)
    with pytest.raises(Unauthenticated, match="the user is disabled"):
        store.tokens.verify(secret, NOW)
    store.accounts.change("ann", ADMIN, NOW, is_disabled=False)
    assert store.tokens.verify(secret, NOW).name == "ann"


@pytest.mark.parametrize(
    ("user", "name", "expires_at", "error"),
    [
        ("zoe", "a", NOW + 1, NotFound),
        ("ann", "a b", NOW + 1, UsageError),
        ("ann", "a", NOW, UsageError),
    ],
)
def test_tokens_that_cannot_be(store: Store, user: str, name: str, expires_at: float, error: type) -> None:
    with pytest.raises(error):
        store.tokens.create(user, name, ADMIN, NOW, expires_at=expires_at)


def test_passwords(store: Store) -> None:
    store.accounts.create("eve", Role.USER, ADMIN, NOW, password=PASSWORD)
    secret = store.tokens.create("eve", "a", ADMIN, NOW, expires_at=NOW + 1e7).secret
    assert store.accounts.log_in("eve", PASSWORD, NOW).name == "eve"
    for name, password in (("eve", "wrong horse"), ("ann", PASSWORD), ("zoe", PASSWORD), ("eve", "x" * 5000)):
        with pytest.raises(Unauthenticated, match="the name or the password is wrong"):
            store.accounts.log_in(name, password, NOW)
    eve = Asker("eve", Role.USER)
    store.accounts.set_password("eve", "another horse", eve, NOW)
    with pytest.raises(Unauthenticated):
        store.accounts.log_in("eve", PASSWORD, NOW)
    with pytest.raises(Unauthenticated, match="revoked"):
        store.tokens.verify(secret, NOW)
    with pytest.raises(UsageError, match="too short"):
        store.accounts.set_password("eve", "short", eve, NOW)
    with pytest.raises(Forbidden):
        store.accounts.set_password("eve", PASSWORD, ANN, NOW)
    store.accounts.change("eve", ADMIN, NOW, is_disabled=True)
    with pytest.raises(Unauthenticated):
        store.accounts.log_in("eve", "another horse", NOW)
    told = [(entry.who, entry.action) for entry in store.audit.read_before()]
    assert ("eve", "login") in told
    assert ("zoe", "login.refused") in told
    assert "horse" not in str(store.audit.read_before())


def test_there_is_always_an_admin(store: Store) -> None:
    for takes in (
        lambda: store.accounts.change("admin", ADMIN, NOW, is_disabled=True),
        lambda: store.accounts.change("admin", ADMIN, NOW, role=Role.USER),
    ):
        with pytest.raises(Conflict, match="no admin left"):
            takes()
    store.accounts.change("ann", ADMIN, NOW, role=Role.ADMIN)
    barrier = threading.Barrier(2)
    outcomes: list[bool] = []

    def disable(name: str) -> None:
        barrier.wait()
        try:
            store.accounts.change(name, ADMIN, NOW, is_disabled=True)
            outcomes.append(True)
        except Conflict:
            outcomes.append(False)

    threads = [threading.Thread(target=disable, args=(name,)) for name in ("ann", "admin")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [False, True]


@pytest.mark.parametrize("asker", [ANN, EYE])
def test_only_admins_administer(store: Store, asker: Asker) -> None:
    asks: list[Callable[[], Any]] = [
        lambda: store.accounts.create("x", Role.USER, asker, NOW),
        lambda: store.accounts.change("ben", asker, NOW, role=Role.ADMIN),
        lambda: store.accounts.change("ben", asker, NOW, is_disabled=True),
        lambda: store.queues.put(Queue(name="x"), asker, NOW),
        lambda: store.queues.delete("default", asker, NOW),
    ]
    for ask in asks:
        with pytest.raises(Forbidden, match="only admins may"):
            ask()


def test_names_of_users(store: Store) -> None:
    with pytest.raises(Conflict, match="the name is taken"):
        store.accounts.create("ann", Role.USER, ADMIN, NOW)
    with pytest.raises(UsageError, match="Cannot name a user"):
        store.accounts.create("a/b", Role.USER, ADMIN, NOW)
    for missing in (lambda: store.accounts.get("x"), lambda: store.accounts.change("x", ADMIN, NOW, is_disabled=True)):
        with pytest.raises(NotFound, match="no user 'x'"):
            missing()


# ---------------------------------------------------------------- queues


def test_queues(store: Store) -> None:
    lab = Queue(name="lab", weight=2.5, floor=1, ceiling=4, is_open=False, members=("ann", "ben"))
    assert store.queues.put(lab, ADMIN, NOW) == lab
    smaller = Queue(name="lab", members=("ben",))
    assert store.queues.put(smaller, ADMIN, NOW) == smaller
    assert store.queues.list() == (Queue(name="default"), smaller)
    job = store.jobs.submit(make_job(queue="lab"), BEN, NOW).job
    with pytest.raises(Conflict, match=r"1 job in it has not ended\. Move it to another queue, or stop it\."):
        store.queues.delete("lab", ADMIN, NOW)
    store.jobs.stop(job.id, BEN, NOW)
    with pytest.raises(Conflict, match="1 ended job belongs to it until it is deleted"):
        store.queues.delete("lab", ADMIN, NOW)
    store.queues.put(Queue(name="other"), ADMIN, NOW)
    store.queues.delete("other", ADMIN, NOW)
    for missing in (lambda: store.queues.get("other"), lambda: store.queues.delete("other", ADMIN, NOW)):
        with pytest.raises(NotFound, match=r"queue 'other'|no such queue"):
            missing()


@pytest.mark.parametrize(
    ("queue", "told"),
    [
        (Queue(name="a b"), "Cannot name a queue"),
        (Queue(name="a", weight=0), "weight=0 is not above 0"),
        (Queue(name="a", floor=-1), "floor=-1 is below 0"),
        (Queue(name="a", floor=3, ceiling=2), "ceiling=2 is below 3"),
        (Queue(name="a", members=("zoe",)), "no user 'zoe'"),
    ],
)
def test_queues_that_cannot_be(store: Store, queue: Queue, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        store.queues.put(queue, ADMIN, NOW)
    assert [kept.name for kept in store.queues.list()] == ["default"]


def test_each_user_gets_a_number_of_its_own_for_good(store: Store) -> None:
    def assign(name: str, uids: range = range(100, 104)) -> int:
        return store.accounts.assign_uid(name, uids, NOW, is_taken=lambda uid: uid == 101)

    assert [assign("ann"), assign("ben"), assign("ann")] == [100, 102, 100]
    assert assign("ann", range(500, 501)) == 100, "files are there that have this number"
    assert assign("eye") == 103
    with pytest.raises(UsageError, match="'admin': none of the 4 numbers of the setting pool_uids is free"):
        assign("admin")


def test_numbers_that_may_have_been_given_after_a_backup_are_skipped(store: Store) -> None:
    uids = range(100, 200)

    def assign(name: str) -> int:
        return store.accounts.assign_uid(name, uids, NOW, is_taken=lambda _: False)

    store.accounts.skip_uids(uids, 10, NOW)
    assert assign("ann") == 110
    store.accounts.skip_uids(uids, 10, NOW)
    assert [assign("ann"), assign("ben")] == [110, 121]
    store.accounts.skip_uids(uids, 10, NOW)
    store.accounts.skip_uids(uids, 10, NOW)
    assert assign("eye") == 142, "a backup of a platform that was restored skips more"
    store.accounts.skip_uids(uids, 100, NOW)
    with pytest.raises(UsageError, match="skipped when the platform was restored"):
        assign("admin")


def test_users_that_come_at_once_get_different_numbers(store: Store) -> None:
    found: list[int] = []

    def assign(name: str) -> None:
        found.append(store.accounts.assign_uid(name, range(100, 200), NOW, is_taken=lambda _: False))

    threads = [threading.Thread(target=assign, args=(name,)) for name in ("ann", "ben", "eye")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [100, 101, 102]
