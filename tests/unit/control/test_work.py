"""What a job runs: what is refused at submission, and the order for its driver."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from legato.compat.wmla import names
from legato.control.records import Job
from legato.control.stages import Stage
from legato.control.work import Work, check_places, check_resize, check_work, find_bounds, make_order, read_work
from legato.core import spec
from legato.core.errors import BadField, LayoutError, UsageError
from legato.core.frameworks import Launcher
from legato.core.job_user import JobUser
from legato.core.spec import GuestSpec

PYTHON_OF_ALL = shutil.which("python3", path="/usr/bin:/usr/local/bin")


def make_job(**changes: Any) -> Job:
    values: dict[str, Any] = dict.fromkeys(Job.__struct_fields__)
    values |= {"id": "j-37efnd0000", "name": "mnist", "owner": "ann", "queue": "default", "attempt": 2}
    values |= {
        "min_workers": 1,
        "max_workers": 4,
        "is_elastic": True,
        "stage": Stage.STARTING,
        "labels": {},
        "gpus_per_worker": 1,
    }
    return Job(**{**values, **changes})


def check(has_code: bool = False, **fields: Any) -> None:
    usual: dict[str, Any] = {"program": ("train.py",)} | ({} if has_code else {"directory": "/d"})
    check_work(Work(**{**usual, **fields}), name="mnist", min_workers=1, max_workers=4, has_code=has_code)


def test_what_is_usual_is_taken() -> None:
    check()
    check(has_code=True)
    check(data="/data", seed=0, environment={"PATH_2": "x", "_y": ""}, max_run_s=0.5, num_micro_batches=1)


def test_more_workers_than_a_program_can_use_are_refused() -> None:
    check(launcher=Launcher(module="legato.cli.main", most_workers=4))
    with pytest.raises(
        LayoutError, match="max_workers=4 is above 3, the number with which it was submitted"
    ) as refusal:
        check(launcher=Launcher(module="legato.cli.main", most_workers=3))
    assert str(refusal.value).endswith("Give 3 or fewer, or submit it again with more.")


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ({"program": ()}, "there is no program. Name a Python script."),
        ({"program": ("",)}, "there is no program. Name a Python script."),
        ({"directory": None}, "give either uploaded code or a directory on the nodes."),
        ({"directory": "d"}, "the directory 'd' is not absolute. Give it from the root."),
        ({"data": "d"}, "the data directory 'd' is not absolute. Give it from the root."),
        ({"seed": -1}, "seed=-1 is below 0. Give a whole number of at least 0."),
        ({"environment": {"A=B": "x"}}, "'A=B' is not a valid name of a variable. Use letters, digits and '_'."),
        ({"environment": {"": "x"}}, "'' is not a valid name of a variable. Use letters, digits and '_'."),
        (
            {"environment": {"LEGATO_TOKEN": "x"}},
            "the variable LEGATO_TOKEN is reserved for the driver. Choose another name.",
        ),
        ({"max_run_s": 0}, "max_run_s=0 is not above 0. Give it in seconds, or leave it out."),
        ({"num_micro_batches": 0}, "num_micro_batches=0 is below 1. Leave it out if unknown."),
    ],
)
def test_what_could_never_run_is_refused(fields: dict[str, Any], want: str) -> None:
    with pytest.raises(UsageError) as refusal:
        check(**fields)
    assert str(refusal.value) == f"Cannot submit job 'mnist': {want}"


@pytest.mark.parametrize("program", ["/etc/passwd", "../train.py", "a/../../b.py"])
def test_a_program_lies_in_its_code(program: str) -> None:
    with pytest.raises(UsageError, match="is outside of the uploaded code"):
        check(has_code=True, program=(program,))


@pytest.mark.parametrize("fields", [{"keep": 0}, {"num_threads": 0}, {"checkpoint_every": "often"}])
def test_the_rules_of_drivers_hold_here(fields: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="Cannot run job 'mnist'"):
        check(**fields)


def test_seed_and_data_reach_the_workers() -> None:
    work = Work(program=("train.py",), directory="/d", environment={"A": "1"}, seed=7, data="/data")
    order = make_order(make_job(), work, ("n/0", "n/1"), code=Path("/code"), goes_on=True)
    assert order.spec.environment == {"A": "1", "LEGATO_SEED": "7", "LEGATO_DATA": "/data"}
    assert (order.spec.num_workers, order.spec.resume, order.code, order.attempt) == (2, True, None, 2)
    unsaid = make_order(
        make_job(), Work(program=("train.py",), directory="/d"), ("n/0",), code=Path("/c"), goes_on=False
    )
    assert unsaid.spec.environment == {}
    assert make_order(make_job(code="ab"), work, ("n/0",), code=Path("/code"), goes_on=False).code == "/code/ab"


@pytest.mark.parametrize(
    ("bounds", "num_slots", "want"),
    [
        ((1, 4), 2, (1, 4)),
        ((1, 2), 4, (1, 4)),  # its maximum was lowered after the slots were decided
        ((3, 4), 2, (2, 4)),  # its minimum was raised, or its step has only 2 micro-batches
        ((1, 1), 3, (1, 3)),
        ((4, 4), 1, (1, 4)),
    ],
)
def test_a_job_starts_in_the_slots_that_it_has_whatever_its_bounds_are_by_now(
    bounds: tuple[int, int], num_slots: int, want: tuple[int, int]
) -> None:
    job = make_job(min_workers=bounds[0], max_workers=bounds[1])
    slots = tuple(f"n/{number}" for number in range(num_slots))
    assert find_bounds(job, num_slots) == want
    found = make_order(job, Work(program=("train.py",), directory="/d"), slots, code=Path("/c"), goes_on=False).spec
    assert (found.min_workers, found.num_workers, found.max_workers) == (want[0], num_slots, want[1])
    found.validate()


def test_a_spec_is_read_as_it_was_kept() -> None:
    work = Work(program=("train.py", "--x"), seed=3)
    assert read_work(msgspec.to_builtins(work)) == work
    for odd in ({}, {"program": "train.py"}, {"program": ["a"], "colour": "red"}):
        with pytest.raises(UsageError, match="Cannot read the job's spec"):
            read_work(odd)


def test_the_guest_of_a_launcher_comes_to_the_driver() -> None:
    guest = GuestSpec(entry="guests:make", options={"seed": "1"})
    for given in (guest, None):
        launcher = Launcher(module="legato.core.spec", guest=given)
        kept = msgspec.to_builtins(Work(program=("train.py",), directory="/d", launcher=launcher))
        order = make_order(make_job(), read_work(kept), ("n/0",), code=Path("/code"), goes_on=False)
        assert order.spec.guest == given


def test_parameters_come_behind_the_arguments() -> None:
    work = Work(program=("train.py", "--a"), directory="/d", parameters={"rate": 0.1, "wide": True, "shift": -1})
    order = make_order(make_job(), work, ("n/0",), code=Path("/code"), goes_on=False)
    assert order.spec.program == ("train.py", "--a", "--rate", "0.1", "--wide", "--shift=-1")
    assert (order.find_script(), order.preloads, order.code_folder) == ("train.py", True, "")


def test_a_launcher_begins_the_program_and_the_users_variables_win() -> None:
    launcher = Launcher(
        module="legato.core.spec", script="in/main.py", folder="in", environment={"A": "of the launcher", "B": "b"}
    )
    work = Work(program=("main.py", "--x"), environment={"A": "a"}, parameters={"y": 2}, launcher=launcher)
    check_work(work, name="n", min_workers=1, max_workers=4, has_code=True)
    order = make_order(make_job(code="ab"), work, ("n/0",), code=Path("/code"), goes_on=False)
    assert order.spec.program == (spec.__file__, "main.py", "--x", "--y", "2")
    assert order.spec.environment == {"A": "a", "B": "b", "LEGATO_NODES": "1"}
    assert (order.find_script(), order.preloads, order.code_folder) == ("in/main.py", False, "in")
    gone = msgspec.structs.replace(work, launcher=Launcher(module="legato.nothing"))
    with pytest.raises(UsageError, match=r"has no 'legato\.nothing'"):
        check_work(gone, name="n", min_workers=1, max_workers=4, has_code=True)


@pytest.mark.parametrize("bounds", [(2, 2), (3, 3), (6, 6)])
def test_a_gang_hears_how_many_workers_begin_whatever_a_user_changed_meanwhile(bounds: tuple[int, int]) -> None:
    work = Work(program=("mpi.sh",), framework="command", launcher=Launcher(module="legato.train.process.command"))
    job = msgspec.structs.replace(make_job(code="ab"), min_workers=bounds[0], max_workers=bounds[1], is_elastic=False)
    order = make_order(job, work, ("n/0", "n/1", "n/2"), code=Path("/code"), goes_on=False)
    assert order.spec.environment["LEGATO_NODES"] == "3" == str(order.spec.num_workers)


def test_a_gang_that_holds_slots_is_not_resized_and_the_way_out_is_named() -> None:
    gang = Work(program=("mpi.sh",), framework="command", launcher=Launcher(module="legato.train.process.command"))
    job = msgspec.structs.replace(make_job(code="ab"), is_elastic=False)
    for stage in (Stage.QUEUED, Stage.PAUSED):
        check_resize(msgspec.structs.replace(job, stage=stage), gang)
    for stage in (Stage.STARTING, Stage.RUNNING, Stage.PAUSING):
        started = msgspec.structs.replace(job, stage=stage)
        with pytest.raises(UsageError, match=r"of the framework 'command' cannot change .* Pause it, resize it"):
            check_resize(started, gang)
        check_resize(started, msgspec.structs.replace(gang, launcher=None))


def test_a_gang_of_wmla_is_never_resized_because_it_waits_for_as_many_as_were_submitted() -> None:
    gang = Work(program=("launch.py",), environment={names.NUM_NODES: "3"})
    job = msgspec.structs.replace(make_job(code="ab"), is_elastic=False)
    for stage in (Stage.QUEUED, Stage.STARTING, Stage.RUNNING, Stage.PAUSED):
        with pytest.raises(UsageError, match=r"with which the job was submitted, 3\. Submit it again"):
            check_resize(msgspec.structs.replace(job, stage=stage), gang)
    check_resize(msgspec.structs.replace(job, is_elastic=True), gang)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
@pytest.mark.skipif(PYTHON_OF_ALL is None, reason="no Python that every user may run")
def test_a_jobs_places_are_looked_for_as_its_user_who_learns_nothing_of_what_others_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", PYTHON_OF_ALL)
    user = JobUser(uid=2_000_000_321, gid=2_000_000_321, name="ann", home="/")
    # Not below pytest's own folders, which are closed to others.
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        top = Path(name)
        top.chmod(0o755)
        (top / "private/data").mkdir(parents=True)
        (top / "private/train.py").touch()
        (top / "open").mkdir(mode=0o755)
        (top / "open/train.py").touch(0o644)

        def look(
            directory: str, data: str | None = None, program: str = "train.py", seer: JobUser | None = user
        ) -> None:
            where = None if data is None else str(top / data)
            told = "Cannot submit"
            check_places(told, "here", directory=str(top / directory), program=program, data=where, user=seer)

        look("open")
        (top / "private").chmod(0o700)
        look("private", "private/data", seer=None)
        with pytest.raises(UsageError, match=r"there is no directory '.*/private/data' on here") as closed:
            look("private/data")
        with pytest.raises(UsageError) as missing:
            look("private/nowhere")
        assert str(closed.value).replace("data", "nowhere") == str(missing.value)
        with pytest.raises(BadField, match=r"no data directory .* the system user 2000000321, as whom the job runs"):
            look("open", "private/data")
        with pytest.raises(UsageError, match=r"no program 'no\.py' in its directory that the system user"):
            look("open", program="no.py")
