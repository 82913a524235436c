"""A worker's end of its connection to the driver: what it says, and says again to the next one."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from legato.core import wire
from legato.core.errors import ProgramError
from legato.core.view import View
from legato.system.certificates import Certificate, make_door_certificate
from legato.system.processes import boot_id
from legato.system.tls import load_certificate, make_server_context
from legato.train.membership import link as link_module
from legato.train.membership import outbox as outbox_module
from legato.train.membership.link import Link, StaleDriver

HOST = "127.0.0.1"
LIMIT_S = 20.0
WELCOME = wire.Welcome(
    heartbeat_interval_s=1.0,
    away_limit_s=60.0,
    checkpoint_dir=None,
    checkpoint_every=None,
    keep=1,
    resume=False,
)


class Line:
    """A connection that keeps what is sent over it."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def send(self, frame: bytes) -> None:
        self.said.append(wire.decode_worker_message(frame))

    def indices(self) -> list[int]:
        return [said.index for said in self.said if isinstance(said, wire.Metrics)]


@pytest.fixture
def link() -> Link:
    link = Link(Path("/nowhere"), 0, HOST)
    threading.Thread(target=link._outbox.send_forever, daemon=True).start()
    return link


def connect(link: Link) -> Line:
    line = Line()
    link._hear(WELCOME, line)  # type: ignore[arg-type]
    link.flush()
    settle(link)
    return line


def settle(link: Link) -> None:
    assert link._outbox.wait_until_sent(LIMIT_S)


def log(link: Link, *indices: int) -> None:
    for index in indices:
        link.send(wire.Metrics(index=index, step=index, epoch=0, values={}))


def test_the_next_driver_hears_again_what_is_not_known_to_stand_in_the_records(link: Link) -> None:
    first = connect(link)
    log(link, 0, 1, 2)
    link.send(wire.Note(level="info", text="heard"))
    settle(link)
    link._hear(wire.Heartbeat(num_metrics=2), first)  # type: ignore[arg-type]
    assert link.num_metrics == 2
    second = connect(link)
    assert first.indices() == [0, 1, 2]
    assert second.said == [wire.Metrics(index=2, step=2, epoch=0, values={})]


def test_unsent_messages_are_sent_once_and_in_order(link: Link) -> None:
    log(link, 0, 1)
    link.send(wire.Note(level="info", text="unheard"))
    log(link, 2)
    line = connect(link)
    assert line.indices() == [0, 1, 2]
    assert len(line.said) == 4
    log(link, 3)
    settle(link)
    assert line.indices() == [0, 1, 2, 3]


def test_the_next_driver_hears_again_of_the_last_checkpoint_and_of_where_the_job_went_on(link: Link) -> None:
    connect(link)
    past = progress(1, 5, num_samples=0)
    link.send(past)
    for step in (7, 9):
        link.send(wire.Saved(step=step, path=f"step-{step}"))
    link.report(progress(6, 9))
    link.flush()
    settle(link)
    link.send(wire.Saved(step=11, path="step-11"))
    settle(link)
    assert connect(link).said == [past, wire.Saved(step=11, path="step-11"), progress(6, 9)]


def test_the_phase_of_a_resumed_job_repeats_no_step_for_the_next_driver(link: Link) -> None:
    connect(link)
    past = progress(1, 5, num_samples=0)
    link.send(past)
    link.report(msgspec.structs.replace(progress(5, 5, num_samples=0), phase="evaluate"))
    link.flush()
    link.report(progress(6, 9))
    link.flush()
    settle(link)
    assert connect(link).said == [past, progress(6, 9)]


def test_however_long_a_driver_is_away_nothing_is_dropped(link: Link) -> None:
    link.send(wire.Saved(step=1, path="step-1"))
    link.send(wire.Saved(step=2, path="step-2"))
    log(link, *range(20_000))
    said = connect(link).said
    assert [message.step for message in said if isinstance(message, wire.Saved)] == [1, 2]
    assert [message.index for message in said if isinstance(message, wire.Metrics)] == list(range(20_000))


def test_steps_of_one_epoch_are_distinguished_from_those_of_the_next(link: Link) -> None:
    line = connect(link)
    for step, epoch in ((1, 0), (2, 0), (3, 1), (4, 1)):
        link.report(
            msgspec.structs.replace(
                progress(step, step), epoch=epoch, sent_bytes=10 * step, measured_s=4.0, waited_s=3.0
            )
        )
    link.flush()
    settle(link)
    told = [said for said in line.said if isinstance(said, wire.Progress)]
    assert [(said.first_step, said.last_step, said.epoch) for said in told] == [(1, 2, 0), (3, 4, 1)]
    assert [said.sent_bytes for said in told] == [30, 70]
    assert [(said.measured_s, said.waited_s) for said in told] == [(8.0, 6.0), (8.0, 6.0)]


def test_losses_are_sent_once_and_those_that_are_not_recorded_again_to_the_next_driver(link: Link) -> None:
    def train(*steps: int) -> None:
        for step in steps:
            link.report(msgspec.structs.replace(progress(step, step), loss=1 / step))

    def told(line: Line) -> list[tuple[int, float]]:
        return [(one.step, one.loss) for said in line.said if isinstance(said, wire.Progress) for one in said.losses]

    line = connect(link)
    train(1, 2)
    link.flush()
    train(3)
    # A report of the phase repeats its step.
    link.report(msgspec.structs.replace(progress(3, 3, num_samples=0), loss=1 / 3, phase="evaluate"))
    link.flush()
    settle(link)
    assert told(line) == [(1, 1.0), (2, 1 / 2), (3, 1 / 3)]
    link._hear(wire.Heartbeat(losses_to_step=2), line)  # type: ignore[arg-type]
    link._outbox.disconnect()
    train(4, 5)
    assert told(connect(link)) == [(3, 1 / 3), (4, 1 / 4), (5, 1 / 5)]


def test_losses_that_wait_for_a_driver_are_thinned_out_evenly(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "_MAX_LOSSES", 9)
    for step in range(1, 101):
        link.report(msgspec.structs.replace(progress(step, step), loss=1.0))
    (said,) = [said for said in connect(link).said if isinstance(said, wire.Progress)]
    steps = [one.step for one in said.losses]
    assert steps == list(range(16, 101, 16)), "even, however many steps there were"


def progress(first: int, last: int, num_samples: int = 8) -> wire.Progress:
    return wire.Progress(
        first_step=first,
        last_step=last,
        epoch=0,
        loss=None,
        num_samples=num_samples,
        num_steps=None,
        num_epochs=None,
    )


def test_what_was_being_sent_as_the_connection_was_lost_is_said_over_the_next(link: Link) -> None:
    second = Line()

    class Failing(Line):
        def send(self, frame: bytes) -> None:
            super().send(frame)
            if self.said == [farewell]:
                link._hear(WELCOME, second)  # type: ignore[arg-type]

    farewell = wire.Leaving(num_rounds=3, reason="shrunk")
    link._hear(WELCOME, Failing())  # type: ignore[arg-type]
    link.send(farewell)
    settle(link)
    assert second.said == [farewell]


def test_a_worker_that_is_welcomed_again_over_the_same_connection_repeats_nothing_in_between(link: Link) -> None:
    class Again(Line):
        def send(self, frame: bytes) -> None:
            super().send(frame)
            if len(self.said) in (2, 4):
                link._hear(WELCOME, self)  # type: ignore[arg-type]

    note, beat, line = wire.Note(level="info", text="once"), wire.Heartbeat(), Again()
    link._hear(WELCOME, line)  # type: ignore[arg-type]
    log(link, 0)
    settle(link)
    link.send(note)
    settle(link)
    metrics = line.said[0]
    assert line.said == [metrics, note, metrics]
    link._hear(wire.Heartbeat(num_metrics=1), line)  # type: ignore[arg-type]
    link._outbox.put_heartbeat(beat)
    settle(link)
    link.send(note)
    settle(link)
    assert line.said[3:] == [beat, note]


def test_texts_that_cannot_be_encoded_and_long_ones_are_said_as_far_as_can_be(link: Link) -> None:
    line = connect(link)
    told = "caf\u00e9 caf\udce9 " + "x" * 20_000_000 + " the last line"
    link.send(wire.Failed(error="caf\udce9", traceback=told, exit_code=1))
    link.send(wire.Metrics(index=0, step=1, epoch=0, values={"caf\udce9": 1.0, "loss": 2.0}))
    settle(link)
    failed, metrics = line.said
    assert failed.error == r"caf\udce9"
    assert failed.traceback.startswith("caf\u00e9 caf\\udce9 xxx") and failed.traceback.endswith("x the last line")
    assert "characters are left out here" in failed.traceback
    assert metrics.values == {r"caf\udce9": 1.0, "loss": 2.0}


def test_metrics_that_no_driver_would_take_are_refused_where_they_are_logged(link: Link) -> None:
    line = connect(link)
    with pytest.raises(ProgramError, match="too large"):
        link.send(wire.Metrics(index=0, step=0, epoch=0, values={f"{n:0100}": 0.0 for n in range(160_000)}))
    log(link, 1)
    settle(link)
    assert line.indices() == [1]


def test_the_oldest_metrics_go_when_too_many_wait_and_the_next_driver_learns_which(
    link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = len(wire.encode(wire.Metrics(index=100, step=100, epoch=0, values={})))
    monkeypatch.setattr(outbox_module, "_MAX_METRICS_BYTES", 100 * size)
    connect(link)
    link._outbox.disconnect()
    log(link, *range(100, 400))
    dropped = link.num_metrics
    assert 300 <= dropped < 313, "the state of training need not keep them either"
    assert sum(isinstance(each, wire.Metrics) for each in link._outbox._unsent) == 400 - dropped
    line = connect(link)
    assert line.indices() == list(range(dropped, 400))
    (note,) = [said for said in line.said if isinstance(said, wire.Note)]
    assert note.text == (
        f"Too much was waiting for a driver, so this worker has dropped the metrics of {dropped - 100} calls of "
        f"run.log, of steps 100 to {dropped - 1}. Another worker may still have it."
    )


def test_notes_without_a_driver_are_bounded(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "_MAX_NOTES", 5)
    connect(link)
    link._outbox.disconnect()
    log(link, *range(10))
    for number in range(8):
        link.send(wire.Note(level="info", text=str(number)))
    line = connect(link)
    told = [said.text for said in line.said if isinstance(said, wire.Note)]
    assert told[:5] == list("01234") and "has dropped 3 messages" in told[5], told


# ---------------------------------------------------------------- drivers that do not lead any more


def of_term(term: int) -> wire.Welcome:
    return msgspec.structs.replace(WELCOME, term=term, away_limit_s=float(term))


@pytest.mark.parametrize(
    "message",
    [
        wire.Stop(reason="stale"),
        wire.Hold(save=True, reason="stale"),
        wire.Recover(proposed=View(9, (), "s:1"), reason="stale"),
        wire.Prepare(proposed=View(9, (), "s:1")),
        wire.Heartbeat(num_metrics=9),
    ],
)
def test_a_driver_of_a_lower_term_has_no_effect(link: Link, message: wire.DriverMessage) -> None:
    link._hear(of_term(5), Line())  # type: ignore[arg-type]
    log(link, 0)
    heard_at = link._last_heard
    link._term_here = 0  # another connection, over which this driver has not said Welcome
    line: Any = Line()
    link._hear(message, line)
    with pytest.raises(StaleDriver, match="a driver of term 4 is refused, because this worker has seen one of term 5"):
        link._hear(of_term(4), line)
    link._hear(message, line)
    with pytest.raises(StaleDriver):
        link._hear(wire.Refused(reason="fenced", term=4), line)
    assert link.settings is not None
    assert link.settings.away_limit_s == 5.0
    assert (link.stop_reason, link.hold, link.recovery, link.proposed, link.num_metrics) == (None, None, None, None, 0)
    assert link._last_heard == heard_at, "it does not count as a driver that listens"
    assert line.said == []


def test_a_driver_of_a_higher_term_counts_and_is_shown_to_the_next(link: Link) -> None:
    for term in (0, 1, 1, 7):
        line: Any = Line()
        link._term_here = 0
        link._hear(of_term(term), line)
        link._hear(wire.Stop(reason=str(term)), line)
        assert link.stop_reason == str(term)
    assert link.term == 7


def test_a_driver_whose_protocol_is_too_far_away_is_not_followed(link: Link) -> None:
    line: Any = Line()
    link._hear(WELCOME, line)
    later = msgspec.structs.replace(WELCOME, protocol=wire.PROTOCOL + 2, term=9)
    with pytest.raises(StaleDriver, match=r"the driver runs a release .* protocol has number 3"):
        link._hear(later, line)
    assert link.settings == WELCOME
    assert link.term == 0


# ---------------------------------------------------------------- with a real driver's door


class Door:
    """A driver that welcomes a worker, and reads what it says when the test lets it.

    Args:
        driver_file: says where this one is.
        away_limit_s: that it tells.
        term: of this driver.
        tls: its certificate. None: it uses no TLS.
        certificate: the one in the file.
    """

    def __init__(
        self,
        driver_file: Path,
        away_limit_s: float,
        term: int = 0,
        tls: Certificate | None = None,
        certificate: str = "",
    ) -> None:
        context = None
        if tls is not None:
            context = make_server_context()
            load_certificate(context, tls.certificate, tls.key)
        self.heard: list[Any] = []
        self.reads = threading.Event()
        self._welcome = wire.encode(msgspec.structs.replace(WELCOME, away_limit_s=away_limit_s, term=term))
        self._news = threading.Condition()
        self._server = serve(self._meet, HOST, 0, compression=None, max_size=None, ssl=context)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        port = self._server.socket.getsockname()[1]
        url = f"{'ws' if tls is None else 'wss'}://{HOST}:{port}/worker"
        driver_file.write_text(json.dumps({"url": url, "token": "t", "certificate": certificate}))

    def _meet(self, connection: ServerConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            self._hear(connection.recv())
            connection.send(self._welcome)
            self.reads.wait(LIMIT_S)
            for frame in connection:
                self._hear(frame)

    def _hear(self, frame: Any) -> None:
        with self._news:
            self.heard.append(wire.decode_worker_message(frame))
            self._news.notify_all()

    def await_heard(self, kind: type, num: int = 1) -> list[Any]:
        def of_kind() -> list[Any]:
            return [message for message in self.heard if isinstance(message, kind)]

        with self._news:
            assert self._news.wait_for(lambda: len(of_kind()) >= num, LIMIT_S), f"heard {len(of_kind())} {kind}"
        return of_kind()

    def shut(self) -> None:
        self.reads.set()
        self._server.shutdown()
        self._thread.join(LIMIT_S)


@pytest.fixture
def open_door(tmp_path: Path) -> Iterator[Callable[..., Door]]:
    doors: list[Door] = []

    def open_another(away_limit_s: float = 60.0, **more: Any) -> Door:
        doors.append(Door(tmp_path / "driver.json", away_limit_s, **more))
        return doors[-1]

    yield open_another
    for door in doors:
        door.shut()


def in_time(body: Callable[[], None]) -> None:
    """Run something that must come to an end."""
    running = threading.Thread(target=body, daemon=True)
    running.start()
    running.join(LIMIT_S)
    assert not running.is_alive(), "it waits for the driver"


def speak_much(link: Link, num_notes: int) -> None:
    """Say more than fits into the buffers on the way."""
    for index in range(num_notes):
        link.send(wire.Note(level="info", text=f"{index:04}" + "x" * 1_000_000))
        link.report(progress(index + 1, index + 1))
        link.flush()
    link.send(wire.Saved(step=num_notes, path="step"))


def test_a_stopped_driver_delays_no_worker_counts_as_away_and_misses_nothing(
    tmp_path: Path, open_door: Callable[..., Door]
) -> None:
    door = open_door(away_limit_s=0.5)
    link = Link(tmp_path / "driver.json", 0, HOST)
    link.open()
    in_time(lambda: speak_much(link, 50))
    with link.changed:
        assert link.changed.wait_for(lambda: link.stop_reason == "orphaned", LIMIT_S)
    door.reads.set()
    notes = door.await_heard(wire.Note, 50)
    assert [note.text[:4] for note in notes] == [f"{index:04}" for index in range(50)]
    assert door.await_heard(wire.Saved) == [wire.Saved(step=50, path="step")]
    assert door.await_heard(wire.Progress)[-1].last_step == 50
    in_time(link.close)


def test_a_worker_leaves_a_driver_that_is_silent_when_another_one_is_at_another_address(
    tmp_path: Path, open_door: Callable[..., Door], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine of the first driver lost its power: nothing ends the connection to it."""
    monkeypatch.setattr(link_module, "_SILENT_S", 0.2)
    first = open_door(term=1)
    link = Link(tmp_path / "driver.json", 0, HOST)
    link.open()
    first.reads.set()
    beats = first.await_heard(wire.Heartbeat, 2)
    assert len(first.await_heard(wire.Hello)) == 1, "a silent driver may come back, so the connection stays"
    second = open_door(term=2)
    second.reads.set()
    assert second.await_heard(wire.Hello)[0].term == 1
    link.send(wire.Saved(step=3, path="step-3"))
    second.await_heard(wire.Saved)
    assert beats
    in_time(link.close)


def test_a_worker_keeps_looking_for_its_driver_while_only_an_earlier_one_answers(
    tmp_path: Path, open_door: Callable[..., Door], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "_STALE_RETRY_S", 0.01)
    lead = open_door(term=5)
    link = Link(tmp_path / "driver.json", 0, HOST)
    link.open()
    (hello,) = lead.await_heard(wire.Hello)
    assert (hello.term, hello.boot) == (0, boot_id()) and hello.boot
    stale = open_door(term=4)
    lead.shut()
    link.send(wire.Saved(step=3, path="step-3"))
    assert {hello.term for hello in stale.await_heard(wire.Hello, 3)} == {5}
    last = open_door(term=6)
    last.reads.set()
    assert last.await_heard(wire.Hello)[0].term == 5
    assert last.await_heard(wire.Saved) == [wire.Saved(step=3, path="step-3")]
    assert not any(isinstance(message, wire.Saved) for message in stale.heard)
    in_time(link.close)


def test_a_worker_connects_again_when_its_driver_is_silent_and_sends_what_the_network_may_have_lost(
    tmp_path: Path, open_door: Callable[..., Door], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "_SILENCE_LIMIT_S", 0.3)
    monkeypatch.setattr(link_module, "_SILENT_BEATS", 0)
    door = open_door()  # it sends no heartbeat, and reads nothing
    link = Link(tmp_path / "driver.json", 0, HOST)
    link.open()
    in_time(lambda: speak_much(link, 50))
    door.await_heard(wire.Hello, 2)
    door.reads.set()
    assert door.await_heard(wire.Saved)[-1] == wire.Saved(step=50, path="step")
    in_time(link.close)


def test_a_driver_is_not_silent_for_the_time_in_which_the_link_could_not_run(
    tmp_path: Path, open_door: Callable[..., Door], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "_SILENCE_LIMIT_S", 5.0)
    door = open_door()
    link = Link(tmp_path / "driver.json", 0, HOST)
    link.open()
    now = time.monotonic() + 300.0
    monkeypatch.setattr(link_module.time, "monotonic", lambda: now)
    door.reads.set()
    link.send(wire.Saved(step=3, path="step-3"))
    assert door.await_heard(wire.Saved) == [wire.Saved(step=3, path="step-3")]
    assert len(door.await_heard(wire.Hello)) == 1
    monkeypatch.undo()
    in_time(link.close)


def test_a_worker_talks_only_to_the_driver_whose_certificate_is_in_the_file(
    tmp_path: Path, open_door: Callable[..., Door], capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = make_door_certificate(), make_door_certificate()
    lead = open_door(tls=first, certificate=first.certificate)
    link = Link(tmp_path / "driver.json", 0, HOST)
    link.open()
    assert lead.await_heard(wire.Hello)[0].worker == 0
    # Two threads use the connection: one sends, one receives.
    lead.reads.set()
    in_time(lambda: speak_much(link, 50))
    assert lead.await_heard(wire.Progress)
    stranger = open_door(tls=second, certificate=first.certificate)
    lead.shut()
    link.send(wire.Saved(step=3, path="step-3"))
    for _ in range(500):
        if "is not the driver: its certificate cannot be verified" in (said := capsys.readouterr().err):
            break
        time.sleep(0.01)
    assert said.count("legato: worker 0: the process that answers at wss://") == 1
    last = open_door(tls=second, certificate=second.certificate)
    last.reads.set()
    assert last.await_heard(wire.Saved, 2)[-1] == wire.Saved(step=3, path="step-3")
    assert stranger.heard == []
    in_time(link.close)


def test_a_worker_that_ends_without_a_driver_leaves_after_the_limit(
    tmp_path: Path, open_door: Callable[..., Door]
) -> None:
    open_door(away_limit_s=0.5)
    link = Link(tmp_path / "driver.json", 0, HOST)
    link.open()
    in_time(lambda: speak_much(link, 50))
    in_time(link.close)


def test_a_worker_that_ends_without_a_driver_waits_for_the_next_to_tell_it(
    tmp_path: Path, open_door: Callable[..., Door]
) -> None:
    first = open_door()
    link = Link(tmp_path / "driver.json", 0, HOST)
    link.open()
    first.shut()
    link.send(wire.Finished(num_rounds=3, trained=True))
    closing = threading.Thread(target=link.close, daemon=True)
    closing.start()
    second = open_door()
    second.reads.set()
    assert second.await_heard(wire.Finished) == [wire.Finished(num_rounds=3, trained=True)]
    closing.join(LIMIT_S)
    assert not closing.is_alive()


def test_time_in_which_the_links_own_thread_could_not_run_is_no_time_without_a_driver(
    link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [link._last_heard]
    link._last_run = now[0]
    monkeypatch.setattr(link_module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(link_module, "read_boot_clock", lambda: now[0])
    link._hear(msgspec.structs.replace(WELCOME, away_limit_s=60.0), Line())  # type: ignore[arg-type]
    link._check_away()
    now[0] += 300.0
    link._check_away()
    assert link.stop_reason is None
    for _ in range(61):
        now[0] += 1.0
        link._check_away()
    assert link.stop_reason == "orphaned"


def test_time_in_which_the_machine_was_suspended_is_time_without_a_driver(
    link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspended_s = 0.0
    now = [link._last_run]
    ahead_s = link._last_heard - now[0]
    monkeypatch.setattr(link_module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(link_module, "read_boot_clock", lambda: now[0] + ahead_s + suspended_s)
    link._hear(msgspec.structs.replace(WELCOME, away_limit_s=60.0), Line())  # type: ignore[arg-type]
    link._check_away()
    suspended_s = 3600.0
    for _ in range(10):
        link._check_away()
        now[0] += 1.0
    assert link.stop_reason is None, "a driver of the same machine was suspended too, and may still be heard"
    for _ in range(2):
        link._check_away()
        now[0] += 1.0
    assert link.stop_reason == "orphaned"
