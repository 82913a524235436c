"""Two people share a pool of four slots, as a user tells it: through the command line, with real training."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.jobs import PROGRAMS
from benchmarks.platform import Platform, platform
from tests import fork_server

from legato.client.client import Client

PROGRAM = PROGRAMS / "slow_digits.py"
EPOCHS, WAIT_S = 3, 0.1  # no less than 115 s on four slots, unless the test lets it go before
LIMIT_S = 120.0
HASH = re.compile(r"weights sha256 (\w{64})")
RUNNING = "running"


class Person:
    """A user at a terminal.

    Args:
        name: of the user.
        environment: of the commands.
    """

    def __init__(self, name: str, environment: dict[str, str]) -> None:
        self.name = name
        self._environment = environment

    def types(self, *words: object) -> str:
        """Run a command to its end; returns what it shows."""
        done = subprocess.run(
            [sys.executable, "-m", "legato.cli", *map(str, words)],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
        assert done.returncode == 0, f"legato {words}: {done.stdout}{done.stderr}"
        return done.stdout

    def sees(self, *words: object) -> Any:
        """Run a command, and read the JSON that it shows."""
        return json.loads(self.types(*words, "-o", "json"))

    def slots_of(self, name: str) -> tuple[str, int, int]:
        """Return stage, slots and workers of a job."""
        job = self.sees("show", name)
        return job["stage"], job["num_slots"], (job["progress"] or {"num_workers": 0})["num_workers"]

    def waits_until(self, wanted: tuple[str, int, int], name: str) -> None:
        """Wait until a job is as it should be, and see it so."""
        deadline = time.monotonic() + LIMIT_S
        with Client(self._environment["LEGATO_SERVER"], self._environment["LEGATO_TOKEN"]) as client:
            while True:
                job = client.job(name)
                found = (job.stage, job.num_slots, job.progress.num_workers if job.progress else 0)
                # The client asks again and again, as it costs little; what counts is what the command shows.
                if found == wanted and (found := self.slots_of(name)) == wanted:
                    return
                assert time.monotonic() < deadline, f"{name}: {found}, never {wanted}: {self.types('ps', '--all')}"
                time.sleep(0.1)


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Platform]:
    for name in [name for name in os.environ if name.startswith("LEGATO_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    # Jobs share, not users: so a priority weighs against jobs of others too.
    prefix = fork_server.prefix_of_server()
    with platform(tmp_path / "platform", slots=4, prefix=prefix, stability_s=0.5, fair_by="job") as made:
        yield made


def arrive(running: Platform, name: str) -> Person:
    """Make a user, and a token for them."""
    admin = Person("admin", running.environment)
    admin.types("users", "add", name)
    made = admin.sees("tokens", "add", "laptop", "--user", name)
    return Person(name, {**running.environment, "LEGATO_TOKEN": made["secret"]})


def submit(person: Person, name: str, seed: int, slow_while: Path) -> None:
    slow_while.touch()
    job = ("--detach", "--workers", "1..4", "--name", name, "--directory", PROGRAMS)
    person.types("submit", *job, PROGRAM.name, "--", EPOCHS, WAIT_S, seed, slow_while)


def weights_alone(seed: int) -> str:
    alone = fork_server.run(
        [sys.executable, str(PROGRAM), str(EPOCHS), "0", str(seed)], env=os.environ, timeout=LIMIT_S
    )
    return found_in(alone.stdout)


def found_in(text: str) -> str:
    (found,) = set(HASH.findall(text))
    return str(found)


@pytest.mark.timeout(600)
def test_two_people_share_four_slots(running: Platform, tmp_path: Path) -> None:
    ann, bob = arrive(running, "ann"), arrive(running, "bob")
    submit(ann, "first", 1, tmp_path / "first-is-slow")
    ann.waits_until((RUNNING, 4, 4), "first")

    submit(bob, "second", 2, tmp_path / "second-is-slow")
    bob.waits_until((RUNNING, 2, 2), "second")
    ann.waits_until((RUNNING, 2, 2), "first")
    assert "second" in ann.types("explain", "first")

    bob.types("set", "second", "--priority", 10_000)
    bob.waits_until((RUNNING, 3, 3), "second")
    ann.waits_until((RUNNING, 1, 1), "first")
    assert "bob/second" in ann.types("explain", "first")

    (tmp_path / "first-is-slow").unlink()
    ann.types("wait", "first")
    bob.waits_until((RUNNING, 4, 4), "second")
    (tmp_path / "second-is-slow").unlink()
    bob.types("wait", "second")

    for person, name, seed in ((ann, "first", 1), (bob, "second", 2)):
        job = person.sees("show", name)
        assert (job["stage"], job["attempt"], job["num_slots"]) == ("succeeded", 1, 0)
        assert found_in(person.types("logs", name)) == weights_alone(seed)
