"""Terms: the drivers of a job are ordered, and one that is not the newest leads no longer."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import pytest
from tests.unit.driver.players import Orchestra, Player, make_spec
from tests.unit.driver.test_driver import Stage, raise_stage

from legato.core import wire
from legato.core.errors import LegatoError, Superseded
from legato.core.terms import TERMS_PER_LEASE, first_term, next_term
from legato.driver.driver import Driver
from legato.driver.journal import JobDirectory, JobJournal
from legato.engines.base import Launch
from legato.engines.fake import FakeEngine, FakeMachine


def term_of(stage: Stage) -> int:
    journal = stage.directory.read_journal()
    assert journal is not None
    return journal.term


def files_of(stage: Stage) -> dict[str, bytes]:
    directory = stage.directory
    paths = (directory.journal_file, directory.events_file, directory.metrics_file, directory.ledger_file)
    return {path.name: path.read_bytes() for path in paths if path.exists()}


def test_each_driver_of_a_job_takes_a_higher_term_and_writes_it_down_first(tmp_path: Path) -> None:
    opened: list[tuple[int, int]] = []

    class Engine(FakeEngine):
        async def open(self, term: int = 0) -> None:
            journal = JobDirectory.of("job-1", tmp_path).read_journal()
            opened.append((term, 0 if journal is None else journal.term))
            await super().open(term)

    async def play() -> None:
        async with raise_stage(tmp_path) as stage:
            await stage.until_training(2)
            assert term_of(stage) == 1
            assert {player.term for player in stage.orchestra.members()} == {1}
            for term in (2, 3):
                await stage.drop_driver()
                driver = stage.driver = Driver(None, Engine(stage.machine), stage.directory)
                stage.running = asyncio.create_task(driver.run())
                await stage.orchestra.until(lambda: {p.term for p in stage.orchestra.members()} == {term})  # noqa: B023
                await stage.until_training(2)
                assert term_of(stage) == term
            await stage.finish()
            # The next run under this name does not begin again with 1.
            driver = Driver(make_spec(), Engine(FakeMachine(Orchestra().behave)), stage.directory)
            begun = asyncio.create_task(driver.run())
            await stage.orchestra.until(lambda: len(opened) == 3)
            begun.cancel()
            await asyncio.gather(begun, return_exceptions=True)

    asyncio.run(play())
    assert opened == [(2, 2), (3, 3), (4, 4)]


def test_a_term_of_a_later_server_is_above_all_that_earlier_servers_can_have_given() -> None:
    known = 0
    for _ in range(1000):
        known = next_term(known, first_term(3))
    assert known < next_term(0, first_term(4))
    assert next_term(known, 0) == known + 1, "a driver without a server takes the next one"
    assert next_term(0, first_term(0)) == 1, "a job at a terminal begins with 1"
    assert first_term(2**20) < 2**63 - TERMS_PER_LEASE, "it fits into a message"


def test_a_driver_that_cannot_write_its_term_does_not_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = FakeMachine(Orchestra().behave)

    def write_journal(self: JobDirectory, journal: JobJournal) -> None:
        raise OSError(28, "No space left on device", str(self.journal_file))

    monkeypatch.setattr(JobDirectory, "write_journal", write_journal)
    driver = Driver(make_spec(), FakeEngine(machine), JobDirectory.of("job-1", tmp_path))
    with pytest.raises(LegatoError, match=r"Cannot write the journal .*No space left.*Make room"):
        asyncio.run(driver.run())
    assert machine.engine is None
    assert machine.launches == {}


def test_a_job_that_cannot_begin_leaves_no_journal(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "step-1.legato").touch()
    spec = make_spec(checkpoint_dir=str(tmp_path / "mine"))
    directory = JobDirectory.of("job-1", tmp_path)
    with pytest.raises(LegatoError, match="holds checkpoints of an earlier run"):
        asyncio.run(Driver(spec, FakeEngine(FakeMachine(Orchestra().behave)), directory).run())
    assert directory.read_journal() is None


def test_a_driver_that_learns_of_a_later_one_stops_and_leaves_all_as_it_is(tmp_path: Path) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path) as stage:
            await stage.until_training(2)
            await stage.orchestra.commit(1)
            # The driver writes its records in the background, and drops what is not yet on disk when it stops leading.
            await stage.orchestra.until(lambda: stage.directory.read_last_committed() is not None)
            before = files_of(stage)
            witness, other = stage.player(0), stage.player(1)
            witness.term = 7
            heard = len(other.heard)
            assert witness.connection is not None
            await witness.connection.close()
            with pytest.raises(Superseded) as raised:
                async with asyncio.timeout(10):
                    await stage.running
            await stage.orchestra.commit(2)
            assert str(raised.value) == (
                "This driver stops leading job 'job-1': worker 0 has seen a driver of term 7; this driver has term 1."
            )
            after = files_of(stage)
            assert after["journal.json"] == before["journal.json"]
            assert after["ledger.jsonl"] == before["ledger.jsonl"]
            assert after["events.jsonl"].startswith(before["events.jsonl"])
            kinds = [json.loads(line)["kind"] for line in after["events.jsonl"].splitlines()]
            assert not {"failed", "fenced", "died", "recovered"} & set(kinds)
            # The workers train on, and none has received a request.
            assert len(stage.machine.running) == 2
            assert all(isinstance(message, wire.Heartbeat) for message in other.heard[heard:])
            assert not any(witness.heard_of(kind) for kind in (wire.Stop, wire.Refused, wire.Hold))

    asyncio.run(play())


def test_a_driver_stops_before_it_replaces_the_journal_of_a_later_one(tmp_path: Path) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path) as stage:
            await stage.until_training(2)
            journal = stage.directory.read_journal()
            assert journal is not None
            stage.directory.write_journal(msgspec.structs.replace(journal, term=7))
            before = stage.directory.journal_file.read_bytes()
            stage.driver.scale(1, "asked")
            with pytest.raises(Superseded, match=r"its journal has a driver of term 7; this driver has term 1"):
                async with asyncio.timeout(10):
                    await stage.running
            assert stage.directory.journal_file.read_bytes() == before
            assert len(stage.machine.running) == 2, "the workers train on"

    asyncio.run(play())


def test_a_worker_of_a_release_that_is_too_far_away_is_refused_by_name(tmp_path: Path) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path, min_workers=1, num_workers=1) as stage:
            await stage.until_training(1)

            async def behave_as_a_later_release(launch: Launch) -> int:
                player = stage.orchestra.players[launch.worker] = Player(stage.orchestra, launch)
                player.protocol = wire.PROTOCOL + 2
                return await player.live()

            stage.machine.behaviour = behave_as_a_later_release
            stage.driver.scale(2, "test")
            await stage.orchestra.until(lambda: "refused" in stage.kinds())
            told = next(event.reason for event in stage.events if event.kind == "refused")
            assert "worker 1 runs a release of Legato whose protocol has number 3; this one has number 1" in told
            assert "Install the same release of Legato on all machines" in told
            await stage.until_training(1)
            await stage.finish()

    asyncio.run(play())


def test_members_of_a_release_that_is_too_far_away_are_left_to_write_their_checkpoint(tmp_path: Path) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path) as stage:
            await stage.until_training(2)
            await stage.drop_driver()
            for player in stage.orchestra.players.values():
                player.protocol = wire.PROTOCOL + 2
            stage.raise_curtain(adopting=True)
            with pytest.raises(Superseded, match=r"write a checkpoint and end. Continue from that checkpoint"):
                async with asyncio.timeout(10):
                    await stage.running
            assert len(stage.machine.running) == 2
            assert not any(player.heard_of(wire.Refused) for player in stage.orchestra.players.values())

    asyncio.run(play())


def test_a_journal_of_an_earlier_release_has_term_0(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path / "job-1")
    directory.make()
    directory.write_journal(JobJournal(spec=make_spec(), token="t", term=4))
    fields = json.loads(directory.journal_file.read_bytes())
    assert fields.pop("term") == 4
    directory.journal_file.write_bytes(msgspec.json.encode(fields))
    journal = directory.read_journal()
    assert journal is not None
    assert journal.term == 0


def test_a_driver_of_a_server_that_lost_its_lease_does_not_begin_after_one_of_a_later_server(tmp_path: Path) -> None:
    directory = JobDirectory.of("job-1", tmp_path)
    directory.make()
    spec = make_spec()
    directory.write_journal(JobJournal(spec=spec, token="t", term=first_term(3) + 1))
    before = directory.journal_file.read_bytes()
    machine = FakeMachine(Orchestra().behave)
    driver = Driver(spec, FakeEngine(machine), directory, term=first_term(2))
    with pytest.raises(Superseded, match=r"the server that started it has lost its lease.*with term 3145729"):
        asyncio.run(driver.run())
    assert directory.journal_file.read_bytes() == before
    assert machine.engine is None


def test_a_reserved_term_stops_the_driver_that_leads_and_leaves_its_journal(tmp_path: Path) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path) as stage:
            await stage.until_training(2)
            before = stage.directory.journal_file.read_bytes()
            stage.directory.reserve_term(7)
            stage.directory.reserve_term(5)
            assert stage.directory.read_term() == 7
            stage.driver.scale(1, "asked")
            with pytest.raises(Superseded, match=r"its journal has a driver of term 7; this driver has term 1"):
                async with asyncio.timeout(10):
                    await stage.running
            assert stage.directory.journal_file.read_bytes() == before
            assert len(stage.machine.running) == 2, "the workers train on"

    asyncio.run(play())


def test_the_term_is_checked_after_the_new_journal_is_written_and_before_it_replaces_the_old_one(
    tmp_path: Path,
) -> None:
    directory = JobDirectory(tmp_path / "job-1")
    directory.make()
    directory.write_journal(JobJournal(spec=make_spec(), token="old"))
    seen: list[int] = []

    def check() -> None:
        seen.extend(path.stat().st_size for path in directory.path.glob("journal.json?*"))
        raise Superseded("another one leads")

    with pytest.raises(Superseded):
        directory.write_journal(JobJournal(spec=make_spec(), token="new"), check=check)
    assert len(seen) == 1 and seen[0] > 100, "the new one was complete"
    journal = directory.read_journal()
    assert journal is not None and journal.token == "old"
    assert list(directory.path.glob("journal.json?*")) == []
