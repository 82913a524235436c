"""Who takes a lease over where clocks were set."""

from __future__ import annotations

from tests.contract.store.making import NOW

from legato.control.store import Store


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
