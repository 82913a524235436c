"""Backup files: their content, and the files that a restore refuses."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from legato.control.home_lock import claim_home
from legato.control.people import NewToken
from legato.control.records import NewJob
from legato.control.roles import Asker, Role
from legato.control.settings import Settings, read_settings
from legato.control.store import migrate, open_store
from legato.control.store.database import Database
from legato.core.errors import StoreError, UsageError
from legato.server import backups, restoring
from legato.server.backups import write_backup
from legato.server.restoring import Restored, restore_backup
from legato.server.serving import downgrade_store, upgrade_store

NOW = 1_800_000_000.0
MIB = 2**20
ADMIN = Asker("admin", Role.ADMIN)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("template") / "home"
    home.mkdir()
    with open_store(f"sqlite:///{home}/legato.db") as store:
        assert isinstance(store.tokens.create_first(NOW), NewToken)
        claim_home(store, home, NOW)
        job = store.jobs.submit(NewJob(name="a", spec={"program": ["a.py"]}, min_workers=1, max_workers=1), ADMIN, NOW)
    (home / "legato.toml").write_text("slots = 2\n")
    (home / "server.json").write_text("{}")
    (home / "data").mkdir()
    (home / "data/large").write_bytes(b"x")
    (home / "code/abc").mkdir(parents=True)
    (home / "code/abc/train.py").write_text("pass\n")
    (home / "code/.half").mkdir()
    for name in (job.job.id, "mine"):
        folder = home / "jobs" / name
        (folder / "work/logs").mkdir(parents=True)
        (folder / "checkpoints").mkdir()
        (folder / "checkpoints/step-1.legato").write_bytes(os.urandom(100))
        for file in ("driver.json", "driver-process.json", "engine.json", "lock", "order.json", "work/engine.json"):
            (folder / file).write_text('{"order": {"attempt": 0}}')
    (home / "jobs/mine/work/link").symlink_to("/etc")
    (home / "jobs/mine/work/run.sh").touch(mode=0o750)
    return home


@pytest.fixture
def home(template: Path, tmp_path: Path) -> Path:
    """A home with a store, code, a job that waits in a queue, and one of this machine alone."""
    home = tmp_path / "home"
    shutil.copytree(template, home, symlinks=True)
    os.mkfifo(home / "jobs/mine/work/pipe")
    return home


def settings_of(home: Path, **flags: Any) -> Settings:
    return read_settings(None, {"home": str(home), **flags})


def make(home: Path, file: Path) -> Path:
    write_backup(settings_of(home), file, now=NOW, report=lambda done, total: None)
    return file


def restore(file: Path, home: Path) -> Restored:
    return restore_backup(
        file, home, lambda own: read_settings(own, {"home": str(home)}), now=NOW, report=lambda done, total: None
    )


def files_in(home: Path) -> set[str]:
    return {str(path.relative_to(home)) for path in home.rglob("*")}


def test_a_restore_brings_back_everything_but_records_of_processes(home: Path, tmp_path: Path) -> None:
    job = next(path.name for path in (home / "jobs").iterdir() if path.name != "mine")
    file = make(home, tmp_path / "backup")
    assert file.stat().st_mode & 0o777 == 0o600
    told = restore(file, tmp_path / "new")
    assert (told.num_jobs, told.num_going_on) == (1, 1)
    new = tmp_path / "new"
    per_job = ("driver.json", "driver-process.json", "engine.json", "lock")
    gone = {f"jobs/{name}/{file}" for name in (job, "mine") for file in per_job}
    gone |= {"server.json", "data", "data/large", "code/.half", "jobs/mine/work/pipe"}
    assert files_in(home) - files_in(new) == gone
    assert files_in(new) <= files_in(home)
    for name in ("home-id", "legato.toml", "code/abc/train.py", "jobs/mine/checkpoints/step-1.legato"):
        assert (new / name).read_bytes() == (home / name).read_bytes()
    assert (new / "jobs/mine/work/link").readlink() == Path("/etc")
    assert (new / "jobs/mine/work/run.sh").stat().st_mode & 0o777 == 0o750
    assert new.stat().st_mode & 0o777 == (new / "legato.db").stat().st_mode & 0o077 | 0o700 == 0o700
    with open_store(f"sqlite:///{new}/legato.db") as store:
        claim_home(store, new, NOW)
        assert store.jobs.get(job).stage == "queued"
        told = [(event.job, event.reason) for event in store.events.read_after(0) if event.kind == "restored"]
        assert [name for name, _ in told] == [None, job]
        assert told[0][1].startswith("the store was restored from a backup of 2") and " UTC; " in told[0][1]
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")], "nothing half done is left"


def test_a_row_that_cannot_be_read_comes_back_as_it_was(home: Path, tmp_path: Path) -> None:
    bad = ("hibernating", """{"a""", "many", "no JSON")
    columns = "stage, labels, attempt, spec, CAST(reason AS BLOB), name"

    def read(path: Path) -> list[tuple[object, ...]]:
        with contextlib.closing(sqlite3.connect(path / "legato.db")) as raw:
            return raw.execute(f"SELECT {columns} FROM jobs").fetchall()

    with contextlib.closing(sqlite3.connect(home / "legato.db")) as raw:
        raw.execute("UPDATE jobs SET stage = ?, labels = ?, attempt = ?, spec = ?, is_elastic = 'maybe'", bad)
        raw.execute("UPDATE jobs SET reason = CAST(x'6869ff' AS TEXT), name = x'00ff'")
        raw.commit()
    assert restore(make(home, tmp_path / "backup"), tmp_path / "new").num_going_on == 0
    assert read(home) == read(tmp_path / "new") == [(*bad, b"hi\xff", b"\x00\xff")]


def test_processes_of_the_old_platform_that_still_run_are_reported(home: Path, tmp_path: Path) -> None:
    file = make(home, tmp_path / "backup")
    assert restore(file, tmp_path / "new").still_run == ()
    mark = {"LEGATO_ENGINE": f"{home}/jobs/mine/engine.json"}
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **mark}) as left:
        assert left.stdin is not None
        assert left.stdout is not None
        left.stdin.write(b"it runs\n")
        left.stdin.flush()
        left.stdout.readline()
        assert restore(file, tmp_path / "other").still_run == (left.pid,)
        left.stdin.close()


def test_holes_in_files_take_no_space_in_a_backup(home: Path, tmp_path: Path) -> None:
    log = home / "jobs/mine/worker-0.log"
    with log.open("wb") as opened:
        for place in (0, 64 * MIB, 200 * MIB):
            opened.seek(place)
            opened.write(b"here")
        opened.truncate(300 * MIB)
    (home / "jobs/mine/empty.log").touch()
    os.truncate(home / "jobs/mine/empty.log", 8 * MIB)
    file = make(home, tmp_path / "backup")
    assert file.stat().st_size < 2 * MIB
    restore(file, tmp_path / "new")
    found = tmp_path / "new/jobs/mine/worker-0.log"
    assert found.stat().st_size == 300 * MIB
    assert found.stat().st_blocks * 512 < MIB
    with found.open("rb") as opened:
        for place in (0, 64 * MIB, 200 * MIB):
            opened.seek(place)
            assert opened.read(5) == b"here\0"
    assert (tmp_path / "new/jobs/mine/empty.log").stat().st_size == 8 * MIB


def test_checkpoints_that_are_deleted_meanwhile_are_in_the_backup(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = home / "jobs/mine/checkpoints/step-1.legato"
    content = checkpoint.read_bytes()
    add = backups._Writer.add

    def replace_first(writer: Any, entry: Any) -> None:
        if entry.path == checkpoint:
            checkpoint.unlink()  # as a job does that has written a newer one
        add(writer, entry)

    monkeypatch.setattr(backups._Writer, "add", replace_first)
    restore(make(home, tmp_path / "backup"), tmp_path / "new")
    assert (tmp_path / "new/jobs/mine/checkpoints/step-1.legato").read_bytes() == content


def make_secret(tmp_path: Path) -> Path:
    folder = tmp_path / "secret"
    folder.mkdir()
    for name in ("shadow", "step-9.legato"):
        (folder / name).write_text("hidden from jobs")
    return folder


def test_links_of_jobs_lead_a_backup_nowhere(home: Path, tmp_path: Path) -> None:
    secret = make_secret(tmp_path)
    (home / "jobs/mine/run").mkdir()
    links = ("jobs/mine/run/checkpoints", "jobs/mine/checkpoints/checkpoints", "jobs/mine/checkpoints/step-2.legato")
    for link in links:
        (home / link).symlink_to(secret)
    file = make(home, tmp_path / "backup")
    assert b"hidden from jobs" not in file.read_bytes()
    restore(file, tmp_path / "new")
    assert [(tmp_path / "new" / link).readlink() for link in links] == [secret] * 3


@pytest.mark.parametrize("when", ["before its files", "before itself"])
def test_a_folder_that_becomes_a_link_meanwhile_leads_nowhere(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    secret = make_secret(tmp_path)
    folder = home / "jobs/mine/work/a"
    folder.mkdir()
    (folder / "shadow").write_text("of the job")
    add = backups._Writer.add

    def exchange(writer: Any, entry: Any) -> None:
        is_turn = entry.path == (folder if when == "before itself" else folder / "shadow")
        if is_turn and not folder.is_symlink():
            folder.rename(folder.with_name("b"))
            folder.symlink_to(secret)
        add(writer, entry)

    monkeypatch.setattr(backups._Writer, "add", exchange)
    file = make(home, tmp_path / "backup")
    assert b"hidden from jobs" not in file.read_bytes()
    restore(file, tmp_path / "new")
    assert (tmp_path / "new/jobs/mine/work/a").is_dir()


def test_a_job_cannot_keep_a_backup_from_being_made(home: Path, tmp_path: Path) -> None:
    work = home / "jobs/mine/work"
    (work / "/".join(["x" * 200] * 12)).mkdir(parents=True)
    for step in range(2000):
        (home / f"jobs/mine/checkpoints/step-{step}.legato").touch()
    file = tmp_path / "backup"
    made = write_backup(settings_of(home), file, now=NOW, report=lambda done, total: None)
    assert len(made.left_out) == 1
    assert made.left_out[0].startswith("jobs/mine/work/xxx")
    restore(file, tmp_path / "new")
    assert len(list((tmp_path / "new/jobs/mine/checkpoints").iterdir())) == 2000


def test_a_restore_writes_nothing_through_a_link(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "jobs/mine/work/link").unlink()
    (home / "jobs/mine/work/link").symlink_to("../../../code/abc")
    describe = backups._describe

    def describe_wrongly(entry: Any, about: os.stat_result) -> tarfile.TarInfo:
        found = describe(entry, about)
        found.name = found.name.replace("work/run.sh", "work/link/train.py")
        return found

    monkeypatch.setattr(backups, "_describe", describe_wrongly)
    file = make(home, tmp_path / "backup")
    with pytest.raises(UsageError, match=r"link/train\.py' is not in a job's folder"):
        restore(file, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_file_that_is_cut_while_it_is_copied_does_not_spoil_the_backup(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = home / "jobs/mine/work/out"
    file.write_bytes(b"x" * 1000)
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, n, at: b"" if os.fstat(fd).st_size == 1000 else pread(fd, n, at))
    backup = make(home, tmp_path / "backup")
    monkeypatch.undo()
    restore(backup, tmp_path / "new")
    assert (tmp_path / "new/jobs/mine/work/out").read_bytes() == b"\0" * 1000


@pytest.mark.parametrize("cut", [0.1, 0.5, 0.6])
def test_a_backup_that_was_cut_off_is_refused(home: Path, tmp_path: Path, cut: float) -> None:
    file = make(home, tmp_path / "backup")
    os.truncate(file, int(file.stat().st_size * cut))
    with pytest.raises(UsageError, match="damaged or was cut off"):
        restore(file, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_one_changed_byte_is_found(home: Path, tmp_path: Path) -> None:
    (home / "jobs/mine/work/out").write_bytes(b"treasure" * 1000)
    file = make(home, tmp_path / "backup")
    content = bytearray(file.read_bytes())
    content[content.index(b"treasuretreasure") + 3] ^= 1
    file.write_bytes(content)
    with pytest.raises(UsageError, match="its checksum is wrong"):
        restore(file, tmp_path / "new")


def test_a_file_that_is_no_backup_is_refused(home: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    for content in (b"", b"hello" * 1000):
        other.write_bytes(content)
        with pytest.raises(UsageError, match="not a backup of Legato"):
            restore(other, tmp_path / "new")
    with tarfile.open(other, "w") as tar:
        tar.add(home / "legato.toml", "legato.toml")
    with pytest.raises(UsageError, match="not a backup of Legato"):
        restore(other, tmp_path / "new")
    with pytest.raises(UsageError, match="Cannot read the backup"):
        restore(tmp_path / "nothing", tmp_path / "new")


def test_a_home_that_is_not_empty_is_never_touched(home: Path, tmp_path: Path) -> None:
    file = make(home, tmp_path / "backup")
    before = files_in(home)
    with pytest.raises(UsageError, match="it is not empty"):
        restore(file, home)
    assert files_in(home) == before
    (tmp_path / "empty").mkdir()
    restore(file, tmp_path / "empty")
    with pytest.raises(UsageError, match="no directory"):
        restore(file, tmp_path / "no/where")


def test_backups_that_cannot_be_made_are_refused_before_anything_is_written(home: Path, tmp_path: Path) -> None:
    there = make(home, tmp_path / "backup")
    content = there.read_bytes()
    for file, told in (
        (there, "exists already"),
        (home / "backup", "inside of what it backs up"),
        (tmp_path / "no/where", "there is no directory"),
    ):
        with pytest.raises(UsageError, match=told):
            make(home, file)
    with pytest.raises(UsageError, match="no server has run there yet"):
        make(tmp_path, tmp_path / "other")
    assert there.read_bytes() == content
    (home / "legato.db").unlink()
    with pytest.raises(UsageError, match=r"its store .* is missing"):
        make(home, tmp_path / "other")
    assert not (home / "legato.db").exists()


def test_missing_room_is_reported_first(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = make(home, tmp_path / "backup")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 5, 5))  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match=r"needs about .* MiB free"):
        make(home, tmp_path / "other")
    with pytest.raises(UsageError, match=r"needs about .* MiB free"):
        restore(file, tmp_path / "new")
    assert {path.name for path in tmp_path.iterdir()} == {"home", "backup"}


def test_a_newer_store_is_refused(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backups.export, "read_revision", lambda _: "9999")
    file = make(home, tmp_path / "backup")
    with pytest.raises(StoreError, match="a newer one made the backup"):
        restore(file, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("stage", "attempt", "known", "want"),
    [("running", 1, 1, 1), ("running", 1, 3, 1), ("queued", 1, 2, 2), ("paused", 1, 3, 2), ("failed", 1, 2, 2)],
)
def test_attempts_that_began_after_the_store_was_read_fit_it(
    tmp_path: Path, stage: str, attempt: int, known: int, want: int
) -> None:
    (tmp_path / "order.json").write_bytes(msgspec.json.encode({"order": {"attempt": known}}))
    (tmp_path / "journal.json").write_bytes(msgspec.json.encode({"attempt": known, "token": "t"}))
    restoring._adapt_attempt(tmp_path, restoring._JobRow("j", restoring.Stage(stage), attempt))
    assert msgspec.json.decode((tmp_path / "order.json").read_bytes())["order"]["attempt"] == want
    assert msgspec.json.decode((tmp_path / "journal.json").read_bytes()) == {"attempt": want, "token": "t"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_files_that_root_restores_belong_to_the_user_of_the_server(home: Path, tmp_path: Path) -> None:
    job = next(path.name for path in (home / "jobs").iterdir() if path.name != "mine")
    for path in (home, *home.rglob("*")):
        os.chown(path, 4711, 4712, follow_symlinks=False)
    (home / f"jobs/{job}/order.json").write_text('{"order": {"attempt": 7}}')
    restore(make(home, tmp_path / "backup"), tmp_path / "new")
    assert '"attempt":1' in (tmp_path / f"new/jobs/{job}/order.json").read_text()
    assert (tmp_path / "new/legato.db").exists()
    for path in (tmp_path / "new", *(tmp_path / "new").rglob("*")):
        assert (path.lstat().st_uid, path.lstat().st_gid) == (4711, 4712), path


def test_a_store_is_downgraded_only_while_no_server_has_it(home: Path) -> None:
    from legato.server.startup_checks import hold_home

    settings = settings_of(home)
    head, older, *_ = migrate.find_revisions()
    with hold_home(home, is_shared=False), pytest.raises(UsageError, match="another server runs"):
        downgrade_store(settings, None)
    assert downgrade_store(settings, None) == (head, older)
    upgrade_store(settings)
    database = Database(settings.store_url)
    migrate.check(database)
    database.close()
