"""Who takes a lease over where clocks were set."""

from __future__ import annotations

import contextlib

import pytest
from sqlalchemy import select, text
from tests.contract.store.conftest import NewUrl
from tests.contract.store.making import NOW

from legato.control.store import Store, database
from legato.control.store.database import Database, let_pause
from legato.control.store.lease import take_lease
from legato.control.store.schema import leases
from legato.core.errors import StoreError


def test_a_lease_that_lasts_for_too_long_has_expired(store: Store) -> None:
    """Its owner is gone, and the clock was set back since."""
    assert store.loop.take_lease("one", NOW, 10) is not None
    later = NOW - 3600
    taken = store.loop.take_lease("two", later, 10)
    assert taken is not None
    assert taken.fence == 2
    assert store.loop.take_lease("one", later + 1, 10) is None


def test_clocks_that_differ_a_little_take_no_lease_away(store: Store) -> None:
    assert store.loop.take_lease("ahead", NOW, 10) is not None
    assert store.loop.take_lease("behind", NOW - 9, 10) is None


def test_a_server_that_is_alone_does_not_wait(store: Store) -> None:
    assert store.loop.take_lease("one", NOW, 10) is not None
    store.loop.end_lease(NOW + 1)
    taken = store.loop.take_lease("two", NOW + 1, 10)
    assert taken is not None
    assert taken.fence == 2


def test_a_server_that_stands_still_in_a_transaction_keeps_the_lease_from_no_other(
    new_postgres_url: NewUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine has crashed, or its process is stopped, between two statements: it holds the lease's row."""
    monkeypatch.setattr(database, "IDLE_LIMIT_S", 0.5)
    url = new_postgres_url()
    stopped, other = Database(url), Database(url)

    def stop() -> None:
        with stopped.writing() as connection:
            connection.execute(select(leases).with_for_update())
            taken = take_lease(other, "other", NOW + 11, 10)
            assert taken is not None
            assert taken.fence == 2
            connection.execute(select(leases))

    with contextlib.closing(stopped), contextlib.closing(other):
        assert take_lease(stopped, "stopped", NOW, 10) is not None
        with pytest.raises(StoreError, match="idle-in-transaction"):
            stop()
        assert take_lease(stopped, "stopped", NOW + 12, 10) is None, "it has a connection again"


def test_a_transaction_with_the_stream_of_a_user_may_pause(
    new_postgres_url: NewUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "IDLE_LIMIT_S", 0.2)
    url = new_postgres_url()
    with contextlib.closing(Database(url)) as store, contextlib.closing(Database(url)) as other:

        def pause() -> None:
            with store.writing() as connection:
                connection.execute(select(leases))
                with other.reading() as another:
                    another.execute(text("SELECT pg_sleep(1)"))
                connection.execute(select(leases))

        with pytest.raises(StoreError, match="idle-in-transaction"):
            pause()
        with store.writing() as connection:
            let_pause(connection)
            with other.reading() as another:
                another.execute(text("SELECT pg_sleep(1)"))
            connection.execute(select(leases))
