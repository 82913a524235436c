"""A home that was moved: what drivers read of their jobs names the places of today."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import legato
from legato.control.drivers.drivers import DriverOrder
from legato.control.drivers.process import LocalOrder, read_order, write_order
from legato.core.places import move_paths
from legato.core.spec import JobSpec
from legato.driver.events import MembershipSnapshot
from legato.driver.journal import JobDirectory, JobJournal

PACKAGE = str(Path(legato.__file__).parent)


def spec_in(home: Path) -> JobSpec:
    return JobSpec(
        name="j-1",
        program=(f"{PACKAGE}/launch.py", "train.py", f"--out={home}/jobs/j-1/out", "/elsewhere"),
        directory=f"{home}/jobs/j-1/work",
        environment={"DATA_DIR": f"{home}/data/mnist", "BOTH": f"/x:{home}/y", "LIKE": f"{home}-2/z"},
        max_workers=1,
        num_workers=1,
    )


def moved(tmp_path: Path) -> tuple[Path, Path]:
    old, new = tmp_path / "old", tmp_path / "new"
    (old / "jobs/j-1").mkdir(parents=True)
    return old, new


def test_the_journal_and_the_order_of_a_moved_home_name_the_new_places(tmp_path: Path) -> None:
    old, new = moved(tmp_path)
    spec = spec_in(old)
    JobDirectory(old / "jobs/j-1").write_journal(JobJournal(spec=spec, token="t"))
    order = DriverOrder(job="j-1", attempt=1, spec=spec, slots=("n/0",), code=f"{old}/code/1", script=f"{old}/a.py")
    write_order(old / "jobs/j-1", LocalOrder(order=order, slots=("n/0",), devices=("cpu",)))
    old.rename(new)
    journal = JobDirectory(new / "jobs/j-1").read_journal()
    found = read_order(new / "jobs/j-1")
    assert journal is not None
    assert found is not None
    assert journal.spec == found.order.spec
    assert journal.spec == msgspec.structs.replace(
        spec_in(new), environment={**spec_in(new).environment, "LIKE": f"{old}-2/z"}
    )
    assert found.order.script == f"{new}/a.py"


def test_programs_of_legato_itself_are_found_where_it_is_installed_now(tmp_path: Path) -> None:
    home, _ = moved(tmp_path)
    directory = JobDirectory(home / "jobs/j-1")
    spec = msgspec.structs.replace(spec_in(home), program=("/old/python/legato/launch.py",))
    places = {"home": str(home), "legato": "/old/python/legato"}
    directory.journal_file.write_bytes(msgspec.json.encode(JobJournal(spec=spec, token="t", places=places)))
    journal = directory.read_journal()
    assert journal is not None
    assert journal.spec.program == (f"{PACKAGE}/launch.py",)


def test_journals_without_places_are_read_where_their_working_directory_tells_the_home(tmp_path: Path) -> None:
    old, new = moved(tmp_path)
    directory = JobDirectory(old / "jobs/j-1")
    directory.journal_file.write_bytes(msgspec.json.encode(JobJournal(spec=spec_in(old), token="t")))
    old.rename(new)
    journal = JobDirectory(new / "jobs/j-1").read_journal()
    assert journal is not None
    assert journal.spec.directory == f"{new}/jobs/j-1/work"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("/a", "/b"),
        ("/a/x", "/b/x"),
        ("--to=/a/x,/a/y", "--to=/b/x,/b/y"),
        ("file:///a/x", "file:///b/x"),
        ("/a.b/x", "/a.b/x"),
        ("/ab", "/ab"),
        ("/x/a/y", "/x/a/y"),
        ("../a", "../a"),
        ("", ""),
    ],
)
def test_only_whole_folders_are_moved(text: str, want: str) -> None:
    assert move_paths({"k": [text, 1, None]}, {"/a": "/b", "/c": "/c"}) == {"k": [want, 1, None]}


def test_folders_that_swap_their_places_do_not_end_in_one() -> None:
    assert move_paths("/a/1 /a/b/2", {"/a": "/a/b", "/a/b": "/a"}) == "/a/b/1 /a/2"


def test_a_folder_of_the_user_that_looks_like_that_of_a_job_is_no_home(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path / ".legato/jobs/mnist")
    directory.path.mkdir(parents=True)
    spec = msgspec.structs.replace(spec_in(tmp_path), name="mnist", directory=f"{tmp_path}/jobs/mnist")
    directory.journal_file.write_bytes(msgspec.json.encode(JobJournal(spec=spec, token="t")))
    journal = directory.read_journal()
    assert journal is not None
    assert journal.spec == spec


def test_journals_keep_the_name_of_their_snapshot(tmp_path: Path) -> None:
    """Drivers of earlier releases wrote it as ``book``, and one of these may run while Legato is upgraded."""
    snapshot = MembershipSnapshot(last_view=3, next_worker=2, slots={1: "n/0"}, wanted=("n/0",))
    journal = JobJournal(spec=spec_in(tmp_path), token="t", snapshot=snapshot)
    written = msgspec.json.encode(journal)
    assert msgspec.json.decode(written)["book"]["last_view"] == 3
    assert msgspec.json.decode(written, type=JobJournal) == journal
