"""Files that a program writes on machines with disks of their own: they are where `legato download` finds them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.serving import ROOT, Asker, Server, wait_until
from tests.integration.test_pool_agents import Machine, driver_of, join, num_workers, pool

from legato.client.packing import pack

__all__ = ["pool"]

PROGRAM = ROOT / "tests/integration/programs/writes.py"
Pool = tuple[Server, Callable[[str, int], Machine]]

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="a machine with another disk needs root"),
    pytest.mark.timeout(300),
]


class Work:
    """A job that runs on machines with the label ``site=far`` only, and what has come of its files."""

    def __init__(self, ask: Asker, server: Server, tmp_path: Path, *arguments: str, **more: Any) -> None:
        self.ask, self.home = ask, server.home
        folder = tmp_path / "code"
        folder.mkdir(exist_ok=True)
        (folder / "writes.py").write_bytes(PROGRAM.read_bytes())
        (folder / "config.json").write_text('{"lr": 1}')
        packed = pack(folder)
        assert ask.http.put(f"code/{packed.sha256}", content=packed.content).status_code in (200, 201)
        body = {"name": "writes", "program": ["writes.py", *arguments], "code": packed.sha256, "max_workers": 1}
        body["node_labels"] = {"site": "far"}
        self.id: str = ask.post("jobs", body | more, 201)["id"]

    def end(self, stage: str = "succeeded") -> list[str]:
        """Wait for the end; returns the job's events."""
        ended = self.ask.wait(f"jobs/{self.id}", lambda found: found["ended_at"] is not None, limit_s=120)
        assert ended["stage"] == stage, (ended, self.events())
        return self.events()

    def events(self) -> list[str]:
        lines = (self.home / "jobs" / self.id / "events.jsonl").read_text().splitlines()
        return [json.loads(line)["reason"] for line in lines]

    def read(self, path: str) -> str:
        """Download a file."""
        answer = self.ask.http.get(f"jobs/{self.id}/files/work/{path}")
        assert answer.status_code == 200, (path, answer.text)
        return answer.text

    def names(self) -> set[str]:
        answer = self.ask.http.get(f"jobs/{self.id}/files", params={"path": "work", "recursive": True})
        found = answer.json()["items"]
        return {each["path"].removeprefix("work/") for each in found if each["kind"] == "file"}


@pytest.fixture
def far(pool: Pool) -> Iterator[tuple[Server, Asker, Callable[[str], Machine]]]:
    server, new = pool
    server.start()
    ask = Asker(server)

    def join_far(name: str) -> Machine:
        machine = new(name, 1)
        machine._words = ["--label", "site=far"]
        join(ask, server, machine)
        return machine

    return server, ask, join_far


Far = tuple[Server, Asker, Callable[[str], Machine]]


def test_what_a_program_wrote_on_private_disks_can_be_downloaded_when_the_job_has_ended(
    far: Far, tmp_path: Path
) -> None:
    server, ask, join_far = far
    machines = {name: join_far(name) for name in ("b", "c")}
    work = Work(ask, server, tmp_path, "3", max_workers=2, min_workers=2)
    events = work.end()
    assert work.names() == {
        *("writes.py", "config.json", "metrics.csv", "same.txt", "of-0.txt", "of-1.txt", "out/model.pt")
    }, events
    lines = [line.split(",") for line in work.read("metrics.csv").splitlines()]
    assert [epoch for epoch, _ in lines] == ["0", "1", "2"]
    first = lines[0][1]
    assert work.read("same.txt") == f"by worker {first}", "the file of rank 0's machine"
    assert json.loads(work.read("config.json")) == {"lr": 1, "done": True}
    assert any("1 file of" in told and "same.txt" in told and "rank 0" in told for told in events), events
    for machine in machines.values():
        wait_until(lambda each=machine: not list(each.home.glob(f"agents/*/{work.id}-*")), "files of the job are left")


@pytest.mark.soak
def test_a_job_that_goes_on_elsewhere_finds_its_files_and_ends_with_all_of_them(far: Far, tmp_path: Path) -> None:
    server, ask, join_far = far
    slow = tmp_path / "slow"
    slow.touch()
    b = join_far("b")
    work = Work(ask, server, tmp_path, "40", str(slow))
    written = "agents/*/*/work/metrics.csv"
    wait_until(lambda: any(_lines(path) >= 2 for path in b.home.glob(written)), "nothing is written")
    ask.post(f"jobs/{work.id}/pause", {}, 200)
    ask.wait(f"jobs/{work.id}", lambda found: found["stage"] == "paused")
    before = work.read("metrics.csv")
    assert before.count("\n") >= 2, "paused, and its files are here"
    assert ask.http.post("nodes/b/drain", json={"reason": "a new disk"}).status_code == 204
    join_far("c")
    slow.unlink()
    ask.post(f"jobs/{work.id}/resume", {}, 200)
    events = work.end()
    after = work.read("metrics.csv")
    assert after.startswith(before), "the program went on with its own file"
    assert [int(line.split(",")[0]) for line in after.splitlines()][-1] == 39
    assert not any("other versions" in told or "did not come" in told for told in events), events
    assert "out/model.pt" in work.names()


@pytest.mark.soak
def test_files_come_also_if_the_driver_dies_meanwhile_and_a_job_that_failed_has_its_files(
    far: Far, tmp_path: Path
) -> None:
    server, ask, join_far = far
    b = join_far("b")
    # A file that takes a while, at the end of a program that fails.
    more = "open('big.bin', 'wb').truncate(2**28); raise SystemExit('wrong data')"
    work = Work(ask, server, tmp_path, "2", str(tmp_path / "none"), more)
    stage = server.home / "jobs" / work.id / "incoming"
    wait_until(lambda: any(_size(path) > 2**16 for path in stage.glob("b/.*.part")), "no large file comes")
    driver = driver_of(server.home, work.id)
    assert driver is not None
    os.kill(driver, signal.SIGKILL)
    events = work.end("failed")
    assert {"big.bin", "metrics.csv", "out/model.pt"} <= work.names(), events
    assert (server.home / "jobs" / work.id / "work" / "big.bin").stat().st_size == 2**28
    assert not any("other versions" in told for told in events), events
    assert not stage.exists()
    wait_until(lambda: not b.pids(), "processes are left over")


@pytest.mark.soak
def test_a_machine_that_a_job_has_left_keeps_no_process_and_no_file_of_it(far: Far, tmp_path: Path) -> None:
    server, ask, join_far = far
    slow = tmp_path / "slow"
    slow.touch()
    b = join_far("b")
    work = Work(ask, server, tmp_path, "100000", str(slow), max_workers=2)
    written = f"agents/*/{work.id}-*/work/metrics.csv"
    wait_until(lambda: any(_lines(path) >= 2 for path in b.home.glob(written)), "nothing is written")
    c = join_far("c")
    ask.wait(f"jobs/{work.id}", lambda found: num_workers(found) == 2)
    before = ask.get(f"jobs/{work.id}")["progress"]["step"]
    assert ask.http.post("nodes/b/drain", json={"reason": "a new disk"}).status_code == 204
    wait_until(lambda: not b.pids(), "the agent or the warm parent is left", limit_s=120)
    wait_until(lambda: not list(b.home.glob(f"agents/b/{work.id}-*")), "files are left")
    assert work.read("metrics.csv").startswith("0,0\n"), "the files of the first rank 0 are here already"
    assert any("the job leaves its machine" in told for told in work.events()), "it had the store"

    assert ask.http.post("nodes/b/resume").status_code == 204
    ask.wait(f"jobs/{work.id}", lambda found: num_workers(found) == 2, limit_s=90)
    assert b.pids(), "another agent has started"
    assert ask.get(f"jobs/{work.id}")["progress"]["step"] > before
    assert not any("died" in told or "lost" in told for told in work.events())
    assert ask.http.post(f"jobs/{work.id}/stop").status_code == 200
    work.end("stopped")
    assert {"metrics.csv", "metrics.csv.before-c"} <= work.names()
    wait_until(lambda: not (b.pids() | c.pids()), "processes are left over")


def _size(path: Path) -> int:
    """Return the size of a file; 0 if it has come completely, and so has another name."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _lines(path: Path) -> int:
    return path.read_text().count("\n")
