"""The log replayer passes on every entry once, and the files are complete after a change of rank 0."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from legato.compat.wmla.fabric.log_replayer import LogReplayer, copy_history
from legato.compat.wmla.fabric.training_log import Entry, TrainingLog

NUM_SAMPLES, BATCH_SIZE, NUM_ENGINES = 10, 4, 2


class Listener:
    """Keeps the entries that it receives, and writes them to the driver's directory."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self.began_at: float | None = None
        self.has_ended = False

    def begin(self, began_at: float) -> None:
        self.began_at = began_at

    def receive(self, entry: Entry) -> None:
        self.received.append(entry["n"])
        for name in ("stdout", "parts/deep"):
            path = Path(os.environ["LOG_DIR"], name)
            path.parent.mkdir(exist_ok=True)
            with path.open("a") as file:
                file.write(f"{entry['n']}\n")

    def end(self) -> None:
        self.has_ended = True


def train(log: TrainingLog, num_steps: int) -> None:
    """Add steps of two micro-batches each. An epoch has three micro-batches, so two steps."""
    for _ in range(num_steps):
        if log.num_batches_of_epoch in (0, 3):
            log.begin_epoch(log.epoch + (log.num_batches_of_epoch == 3))
        number = 2 if log.num_batches_of_epoch == 0 else 1
        first = log.num_batches + 1
        log.add_step({"loss": [float(first + index) for index in range(number)]}, 1)
        if log.num_batches_of_epoch == 3:
            log.add_test({"loss": 0.5}, 1)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOG_DIR", "/own")
    made = tmp_path / "log/driver"
    made.mkdir(parents=True)
    return made


Make = Callable[..., tuple[LogReplayer, Listener]]


@pytest.fixture
def replayer_of(home: Path) -> Iterator[Make]:
    made = []

    def make(worker: int, now: float = 7.0) -> tuple[LogReplayer, Listener]:
        replayer, listener = LogReplayer(home, worker, clock=lambda: now), Listener()
        replayer.add(listener)
        made.append(replayer)
        return replayer, listener

    yield make
    for replayer in made:
        replayer.close()


def told(home: Path, name: str = "stdout") -> list[int]:
    return [int(line) for line in (home / name).read_text().splitlines()]


def test_averages_are_over_the_samples_of_the_epoch() -> None:
    log = TrainingLog(NUM_SAMPLES, BATCH_SIZE, NUM_ENGINES)
    assert not log.is_live
    log.begin_epoch(0)
    log.add_step({"accuracy": [0.5, 0.25], "loss": [1.0, 3.0]}, 2)
    log.add_step({"accuracy": [1.0], "loss": [5.0]}, 2)
    first, second, third = log.recent(0)
    assert first == {
        "n": 1,
        "kind": "train",
        "epoch": 0,
        "iteration": 1,
        "workers": 2,
        "metrics": {"loss": 1.0, "accuracy": 0.5},
    }
    assert list(first["metrics"]) == ["loss", "accuracy"]
    assert second["metrics"]["loss"] == 2.0
    # The last micro-batch has two samples, the others four.
    assert third["metrics"] == {"loss": (4 * 1.0 + 4 * 3.0 + 2 * 5.0) / 10, "accuracy": (4 * 0.5 + 4 * 0.25 + 2) / 10}
    log.begin_epoch(1)
    log.add_step({"accuracy": [0.0, 0.0], "loss": [7.0, 9.0]}, 1)
    assert log.averages == {"loss": 8.0, "accuracy": 0.0}
    assert [entry["iteration"] for entry in log.recent(3)] == [4, 5]


def test_only_workers_that_have_something_to_compute_are_counted() -> None:
    log = TrainingLog(NUM_SAMPLES, BATCH_SIZE, NUM_ENGINES)
    log.begin_epoch(0)
    log.add_step({"loss": [1.0, 3.0]}, 4)
    assert [entry["workers"] for entry in log.recent(0)] == [2, 2]


def test_a_log_is_sent_to_another_worker() -> None:
    log, other = TrainingLog(NUM_SAMPLES, BATCH_SIZE, NUM_ENGINES), TrainingLog(NUM_SAMPLES, BATCH_SIZE, NUM_ENGINES)
    train(log, 1)
    other.load_state_dict(json.loads(json.dumps(log.state_dict())))
    for each in (log, other):
        train(each, 2)
    assert other.state_dict() == log.state_dict() and other.is_live
    assert other.averages == log.averages


def test_a_log_does_not_grow() -> None:
    log = TrainingLog(NUM_SAMPLES, BATCH_SIZE, NUM_ENGINES)
    train(log, 100)
    assert len(log.recent(0)) < 15 and log.num_entries == 200


def test_every_entry_is_logged_once_and_in_the_drivers_directory(home: Path, replayer_of: Make) -> None:
    log = TrainingLog(NUM_SAMPLES, BATCH_SIZE, NUM_ENGINES)
    replayer, listener = replayer_of(0)
    replayer.pass_on(log)
    assert (listener.began_at, listener.received) == (None, []), "nothing has happened yet"
    for _ in range(5):
        train(log, 1)
        replayer.pass_on(log)
        replayer.pass_on(log)
    replayer.end(log)
    want = list(range(1, log.num_entries + 1))
    assert listener.received == want == told(home) == told(home, "parts/deep")
    assert (listener.began_at, listener.has_ended) == (7.0, True)
    assert os.environ["LOG_DIR"] == "/own"
    assert [path.name for path in home.parent.iterdir()] == ["driver"]
    lines = [json.loads(line) for line in (home / "history.jsonl").read_text().splitlines()]
    assert lines[0] == {"n": 0, "began_at": 7.0} and [line["n"] for line in lines] == [0, *want]


@pytest.mark.parametrize("num_ahead", [0, 1])
def test_a_new_rank_0_replays_everything_into_complete_files(home: Path, replayer_of: Make, num_ahead: int) -> None:
    log = TrainingLog(NUM_SAMPLES, BATCH_SIZE, NUM_ENGINES)
    first, _ = replayer_of(0)
    for _ in range(5):
        train(log, 1)
        first.pass_on(log)
    # The first worker dies; the second one is a step further than the first has passed on, or not.
    train(log, num_ahead)
    second, listener = replayer_of(1, now=99.0)
    second.pass_on(log)
    train(log, 1)
    second.pass_on(log)
    want = list(range(1, log.num_entries + 1))
    assert listener.received == want == told(home) == told(home, "parts/deep")
    assert listener.began_at == 7.0, "the training began with the first one"
    # Later writes of the dead worker go to another file, which is not read.
    assert not os.path.samestat(os.fstat(first._file.fileno()), (home / "history.jsonl").stat())  # type: ignore[union-attr]


def test_entries_of_lost_steps_are_cut_off(home: Path, replayer_of: Make) -> None:
    log = TrainingLog(NUM_SAMPLES, BATCH_SIZE, NUM_ENGINES)
    first, _ = replayer_of(0)
    checkpoint = {}
    for step in range(6):
        train(log, 1)
        first.pass_on(log)
        if step == 2:
            checkpoint = copy.deepcopy(log.state_dict())
    again = TrainingLog(NUM_SAMPLES, BATCH_SIZE, NUM_ENGINES)
    again.load_state_dict(checkpoint)
    second, listener = replayer_of(4)
    train(again, 1)
    second.pass_on(again)
    want = list(range(1, again.num_entries + 1))
    assert again.num_entries < log.num_entries
    assert listener.received == want == told(home)
    assert len((home / "history.jsonl").read_text().splitlines()) == len(want) + 1


def test_an_incomplete_last_line_is_logged_again_and_so_is_an_unfinished_change_of_rank_0(
    home: Path, replayer_of: Make
) -> None:
    log = TrainingLog(NUM_SAMPLES, BATCH_SIZE, NUM_ENGINES)
    first, _ = replayer_of(0)
    for _ in range(3):
        train(log, 1)
        first.pass_on(log)
    history = home / "history.jsonl"
    history.write_text(history.read_text()[:-9])
    (home.parent / ".driver.1/parts").mkdir(parents=True)
    (home.parent / ".driver.1/stdout").write_text("1\n2\n")
    (home.parent / ".driver.7").mkdir()
    second, listener = replayer_of(1)
    second.pass_on(log)
    assert listener.received == list(range(1, log.num_entries + 1)) == told(home)
    assert [path.name for path in home.parent.iterdir()] == ["driver"]


def test_a_gap_in_the_history_is_reported(replayer_of: Make, capsys: pytest.CaptureFixture[str]) -> None:
    log = TrainingLog(NUM_SAMPLES, BATCH_SIZE, NUM_ENGINES)
    train(log, 20)
    replayer, listener = replayer_of(0)
    replayer.pass_on(log)
    missing = log.num_entries - len(listener.received)
    assert missing > 0 and f"{missing} of {log.num_entries} entries are missing" in capsys.readouterr().err


def test_without_a_history(tmp_path: Path) -> None:
    assert copy_history(tmp_path / "history.jsonl", tmp_path / "copy", 10) == (None, 0)


class Slow(Listener):
    """Takes a second for each entry, by its own clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def receive(self, entry: Entry) -> None:
        self.now += 1.0
        super().receive(entry)


@pytest.fixture
def slow_replayer(home: Path) -> Iterator[tuple[LogReplayer, Slow]]:
    listener = Slow()
    replayer = LogReplayer(home, 1, clock=lambda: 99.0, timer=lambda: listener.now)
    replayer.add(listener)
    yield replayer, listener
    replayer.close()


@pytest.fixture
def long_log(home: Path, replayer_of: Make) -> TrainingLog:
    """The history that a worker has written before it died, with many entries."""
    log = TrainingLog(NUM_SAMPLES, BATCH_SIZE, NUM_ENGINES)
    first, _ = replayer_of(0)
    for _ in range(40):
        train(log, 1)
        first.pass_on(log)
    return log


def test_a_long_replay_does_not_stop_the_training_and_completes_the_files(
    home: Path, slow_replayer: tuple[LogReplayer, Slow], long_log: TrainingLog
) -> None:
    log, before = long_log, list(range(1, 81))
    replayer, listener = slow_replayer
    replayer.pass_on(log)
    assert len(listener.received) == 1, "more would hold up the others"
    assert told(home) == before, "what there was stays until it can be replaced"
    counts = [1]
    for step_s in (0.0, 40.0) * 80:
        if told(home) != before:
            break
        train(log, 1)
        listener.now += step_s
        replayer.pass_on(log)
        counts.append(len(listener.received) - sum(counts))
    # One entry more than the two of the step, or a quarter of the step's time.
    assert set(counts[1:-1]) == {3, 10}
    train(log, 1)
    replayer.pass_on(log)
    replayer.close()
    want = list(range(1, log.num_entries + 1))
    assert listener.received == want == told(home) == told(home, "parts/deep")
    assert [path.name for path in home.parent.iterdir()] == ["driver"]


@pytest.mark.parametrize("ends", [True, False], ids=["ends", "dies"])
def test_workers_are_free_in_the_middle_of_a_long_replay(
    home: Path, replayer_of: Make, slow_replayer: tuple[LogReplayer, Slow], long_log: TrainingLog, ends: bool
) -> None:
    log = long_log
    replayer: LogReplayer
    listener: Listener
    replayer, listener = slow_replayer
    for _ in range(30):
        train(log, 1)
        replayer.pass_on(log)
    assert len(listener.received) < log.num_entries
    if ends:
        replayer.end(log)
        assert listener.has_ended
    else:
        # The training log alone no longer has all entries of this time.
        replayer, listener = replayer_of(2)
        replayer.pass_on(log)
    want = list(range(1, log.num_entries + 1))
    assert listener.received == want == told(home) == told(home, "parts/deep")
    assert listener.began_at == 7.0


def test_a_worker_that_leaves_passes_on_entries_for_some_seconds(
    home: Path, replayer_of: Make, slow_replayer: tuple[LogReplayer, Slow], long_log: TrainingLog
) -> None:
    slow, hasty = slow_replayer
    slow.pass_on(long_log)
    slow.close()
    assert len(hasty.received) < 10 and told(home) == list(range(1, 81)), "there is not time for all of it"
    assert [path.name for path in home.parent.iterdir()] == ["driver"]
    other, listener = replayer_of(2)
    other.pass_on(long_log)
    assert listener.received == told(home) == list(range(1, 81))


def test_the_training_began_before_its_first_step_was_done(home: Path) -> None:
    now = [3.0]
    replayer, listener = LogReplayer(home, 0, clock=lambda: now[0]), Listener()
    replayer.add(listener)
    now[0], log = 20.0, TrainingLog(NUM_SAMPLES, BATCH_SIZE, NUM_ENGINES)
    train(log, 1)
    replayer.pass_on(log)
    replayer.close()
    assert listener.began_at == 3.0


def test_stored_checkpoints_know_the_log_by_its_former_name() -> None:
    assert TrainingLog.__qualname__ == "Diary"
