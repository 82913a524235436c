"""Commits are on the disk before they are answered: one sync for all who wait, and never one too few."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from sqlalchemy import text

from legato.control.store import database as database_module
from legato.control.store.database import Database, SyncError, WalSync
from legato.core.errors import StoreError


class Disk:
    """Counts syncs, and holds them up when asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.num_syncs = 0
        self.entered = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()
        self.error: OSError | None = None
        monkeypatch.setattr(os, "fdatasync", self.sync)

    def sync(self, _descriptor: int) -> None:
        self.num_syncs += 1
        self.entered.set()
        assert self.go_on.wait(30)
        if self.error is not None:
            raise self.error


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def test_a_write_is_synced_before_it_is_answered(disk: Disk, tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path}/a.db")
    with database.writing() as connection:
        connection.execute(text("CREATE TABLE t (a)"))
    assert disk.num_syncs == 1
    with database.reading() as connection:
        connection.execute(text("SELECT * FROM t"))
    assert disk.num_syncs == 1
    with pytest.raises(KeyError), database.writing() as connection:
        raise KeyError
    assert disk.num_syncs == 1
    disk.error = OSError(28, "No space left on device")
    with pytest.raises(StoreError, match="No space left on device"), database.writing() as connection:
        connection.execute(text("INSERT INTO t VALUES (1)"))
    database.close()


def test_those_who_wait_share_one_sync(disk: Disk, tmp_path: Path) -> None:
    (tmp_path / "wal").touch()
    wal = WalSync(tmp_path / "wal")
    disk.go_on.clear()
    first = threading.Thread(target=wal.sync)
    first.start()
    assert disk.entered.wait(30)
    # These came after the sync had begun: it may not have what they wrote.
    late = [threading.Thread(target=wal.sync) for _ in range(5)]
    for thread in late:
        thread.start()
    while wal._num_asked < 6:
        pass
    disk.go_on.set()
    for thread in (first, *late):
        thread.join()
    assert disk.num_syncs == 2


def test_after_a_failure_the_next_one_tries_again(disk: Disk, tmp_path: Path) -> None:
    (tmp_path / "wal").touch()
    wal = WalSync(tmp_path / "wal")
    disk.error = OSError(5, "Input/output error")
    for _ in range(2):
        with pytest.raises(SyncError, match="Input/output error"):
            wal.sync()
    disk.error = None
    wal.sync()
    assert disk.num_syncs == 3


def test_no_log_means_that_all_is_in_the_database(tmp_path: Path) -> None:
    WalSync(tmp_path / "none").sync()


def test_no_connection_that_becomes_free_is_trouble_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "_POOL", {"pool_size": 1, "max_overflow": 0, "pool_timeout": 0.01})
    database = Database(f"sqlite:///{tmp_path}/a.db")
    refused = pytest.raises(StoreError, match=r"no connection to it became free .* Try again later")
    with database.reading(), refused, database.reading():
        pass
    with database.reading() as connection:
        assert connection.execute(text("SELECT 1")).scalar() == 1
    database.close()
