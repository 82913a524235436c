"""A store's jobs are in one home: who has another one does not decide about them."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest
from tests.contract.store.making import NOW

from legato.control.home_lock import HOME_FILE, claim_home
from legato.control.store import Store
from legato.core.errors import UsageError


def make_home(tmp_path: Path, name: str) -> Path:
    home = tmp_path / name
    home.mkdir()
    return home


def test_the_first_home_is_the_store_s(store: Store, tmp_path: Path) -> None:
    first, second = make_home(tmp_path, "first"), make_home(tmp_path, "second")
    claim_home(store, first, NOW)
    claim_home(store, first, NOW + 1)
    with pytest.raises(UsageError, match="All servers of a store share one home") as refused:
        claim_home(store, second, NOW + 2)
    known, own = ((home / HOME_FILE).read_text().strip() for home in (first, second))
    assert f"in another home, with the id {known}, and '{second}' has the id {own}" in str(refused.value)
    assert f"write {known} into {second / HOME_FILE}" in str(refused.value)
    assert store.loop.read_lease() is None, "a home is no loop"


def test_a_home_may_move_and_a_lost_one_may_be_replaced(store: Store, tmp_path: Path) -> None:
    first = make_home(tmp_path, "first")
    claim_home(store, first, NOW)
    moved = tmp_path / "moved"
    shutil.move(first, moved)
    claim_home(store, moved, NOW)
    anew = make_home(tmp_path, "anew")
    (anew / HOME_FILE).write_text((moved / HOME_FILE).read_text())
    claim_home(store, anew, NOW)


def test_of_two_that_come_at_once_one_is_refused(store: Store, tmp_path: Path) -> None:
    refused: list[str] = []

    def claim(home: Path) -> None:
        try:
            claim_home(store, home, NOW)
        except UsageError:
            refused.append(home.name)

    threads = [threading.Thread(target=claim, args=(make_home(tmp_path, f"home-{one}"),)) for one in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 3
