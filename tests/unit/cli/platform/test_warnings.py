"""Input that the user may not have meant is refused before anything is uploaded, or causes a warning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.conftest import Call
from tests.unit.client.platform import Platform

from legato.client import submission
from legato.core.errors import UsageError

POOL = {"policy": "fair", "num_slots": 4, "num_usable": 4, "num_free": 4, "num_leaving": 0, "jobs": {}, "summary": None}


@pytest.fixture
def script(place: Path) -> str:
    (place / "here" / "train.py").write_text("print('hello')\n")
    (place / "here" / "job.yaml").write_text("program: train.py\npriority: 7000\n")
    return "train.py"


# ---------------------------------------------------------------- more than there is


@pytest.mark.parametrize(
    ("flags", "want"),
    [
        (("--workers", "8", "--static"), "needs 8 slots at once, but the pool has 4: it waits until the pool grows"),
        (
            (
                "--workers",
                "6..8",
            ),
            "needs 6 slots at once, but the pool has 4",
        ),
        (("--workers", "3..8", "-q", "night"), "needs 3 slots at once, but its queue may have 2"),
        (("--workers", "8"), ""),
        (("--workers", "4", "--static"), ""),
        (("--workers", "2", "--static", "-q", "night"), ""),
    ],
)
def test_a_job_that_needs_more_than_there_is_gets_a_warning(
    platform: Platform, call: Call, script: str, flags: tuple[str, ...], want: str
) -> None:
    platform.canned["/pool"] = POOL
    platform.add_queue("night", ceiling=2)
    code, out, err = call("submit", "-d", *flags, script)
    assert (code, "is submitted" in out, len(platform.jobs)) == (0, True, 1)
    assert err.startswith(f"legato: job 'train' {want}") if want else err == ""


def test_a_pool_that_cannot_be_seen_does_not_prevent_submission(platform: Platform, call: Call, script: str) -> None:
    assert call("submit", "-d", "--workers", "8", "--static", script)[::2] == (0, "")


# ---------------------------------------------------------------- options in the wrong place


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (("job.yaml", "-d", "--priority", "100"), "'-d' is passed to the program, because it comes after 'job.yaml'"),
        (("train.py", "-d", "--priority=100"), "'--priority=100' is passed to the program"),
        (("train.py", "--epochs", "3", "-d"), ""),
        (("train.py", "--", "--priority", "100"), ""),
        (("job.yaml", "--", "-d"), ""),
    ],
)
def test_options_after_the_program_get_a_warning(
    platform: Platform, call: Call, script: str, arguments: tuple[str, ...], want: str
) -> None:
    code, _, err = call("submit", "-d", *arguments)
    assert code == 0
    assert err.startswith(f"legato: {want}") if want else err == ""
    (job,) = platform.jobs
    handed = [word for word in arguments[1:] if word != "--"]
    assert platform.specs[job]["program"] == ["train.py", *handed], "it is said, and done as documented"


# ---------------------------------------------------------------- folders that are no program


def test_what_is_not_python_is_refused_before_anything_is_read(
    platform: Platform, call: Call, place: Path, script: str
) -> None:
    (place / "here" / "data.csv").write_text("a,b\n")
    (place / "here" / "run").write_text("#!/usr/bin/env python3\n")
    code, _, err = call("submit", "-d", "data.csv")
    assert (code, platform.requests) == (2, [])
    assert "'data.csv': it is not a Python script" in err.replace(f"{place}/here/", "")
    assert call("submit", "-d", "run")[0] == 0
    assert call("submit", "-d", "--directory", "/work", "far.sh")[0] == 0, "what lies there is not known here"


@pytest.mark.parametrize(
    ("folder", "is_refused"),
    [
        *(("/etc", True), ("/etc/app", True), ("/usr/share/app", True), ("/tmp", True), ("/", True), ("/home", True)),
        *(("/home/anna", True), ("/home/anna/work", True), ("/home/anna/other", False), ("/srv/app", False)),
    ],
)
def test_a_folder_that_holds_more_than_a_program_is_not_uploaded_unasked(
    monkeypatch: pytest.MonkeyPatch, folder: str, is_refused: bool
) -> None:
    monkeypatch.setattr(Path, "home", lambda: Path("/home/anna"))
    here = Path("/home/anna/work/mnist")
    assert submission._is_no_project(Path(folder), here) is is_refused
    assert submission._is_no_project(here, here) is False


def test_a_script_above_the_present_directory_is_refused(
    platform: Platform, call: Call, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "train.py").touch()
    code, _, err = call("submit", "-d", "../train.py")
    assert (code, platform.requests) == (2, [])
    assert "would upload all of it" in err
    assert call("submit", "-d", "--code", "..", "../train.py")[0] == 0, "it is said clearly"


# ---------------------------------------------------------------- what cannot be read


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (("queues", "set", "a", "--weight", "x"), "Cannot read --weight: it must be a number."),
        (("events", "--after", "x"), "Cannot read --after: it must be a whole number."),
        (("explain", "a", "-d", "0"), "Cannot read --decisions: it must be at least 1."),
    ],
)
def test_a_refusal_names_the_option(platform: Platform, call: Call, arguments: tuple[str, ...], want: str) -> None:
    assert call(*arguments) == (2, "", f"legato: {want}\n")


def test_a_refusal_names_the_file(platform: Platform, call: Call, script: str) -> None:
    platform.faults.extend([None, None])  # the code
    platform.say("invalid", 422, "body.priority: it must be a whole number.")
    assert call("submit", "-d", "job.yaml") == (
        2,
        "",
        "legato: 'job.yaml': body.priority: it must be a whole number.\n",
    )
    platform.faults.extend([None])
    platform.say("invalid", 422, "Cannot submit.")
    assert call("submit", "-d", script)[2] == "legato: Cannot submit.\n"
    Path("bad.yaml").write_text("a: [1,\nb: }")
    (err,) = call("submit", "bad.yaml")[2].splitlines()
    assert err.startswith("legato: Cannot read 'bad.yaml': ")
    assert "at line 2, column 4." in err
    assert "string>" not in err


# ---------------------------------------------------------------- only a part of the whole


def test_usage_says_whether_others_are_left_out(platform: Platform, call: Call) -> None:
    used: list[dict[str, Any]] = [{"owner": "anna", "queue": "default", "slot_s": 3600.0, "num_jobs": 1}]
    platform.canned["/usage"] = {"items": used}
    assert "OF ALL" in call("usage")[1]
    platform.role = "user"
    assert call("usage")[1].splitlines() == [
        "OWNER  QUEUE    GPU HOURS  OF YOURS  JOBS",
        "anna   default       1.00     100 %     1",
        "only your usage; admins see that of all users",
    ]


def test_a_link_to_a_script_is_still_refused_as_a_link(platform: Platform, place: Path, script: str) -> None:
    (place / "here" / "link.py").symlink_to(place / "here" / "train.py")
    with pytest.raises(UsageError, match="it is a link"):
        platform.client().submit("link.py")
