"""A made-up world around a `Membership`: processes, collectives, connections and a clock, all at the tester's command.

The workers keep the protocol's rules as real ones do, without tensors. The world checks what must hold at every moment.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from legato.core import wire
from legato.core.lifecycle import JobState
from legato.core.slots import list_slots, node_of
from legato.core.spec import JobSpec
from legato.core.view import View, agreed_view
from legato.driver import events
from legato.driver.membership import Membership
from legato.engines.base import EngineEvent, Exited, Started, StoreMoved
from legato.system.processes import ProcessState, Vital

TICK_S = 0.25


def make_world_spec(**changes: Any) -> JobSpec:
    values: dict[str, Any] = {
        "name": "world",
        "program": ("train.py",),
        "directory": "/",
        "max_workers": 4,
        "num_workers": 3,
        "start_limit_s": 20.0,
        "max_deaths": 10_000,
        "max_breaks": 10_000,
    }
    return JobSpec(**{**values, **changes})


@dataclass
class Body:
    """One worker process. ``at`` is the view whose collective it is in; ``doing`` says what it does there."""

    number: int
    slot: str
    doing: str = "joining"  # joining, warm, settling, training, waiting
    at: View | None = None
    has_state: bool = False
    joined_once: bool = False
    num_rounds: int = 0
    step: int = 0
    proposed: View | None = None
    recovery: View | None = None
    stop: bool = False
    hung: bool = False
    hangs_as: ProcessState = "stopped"  # what its process looks like while it is hung
    cpu_s: float = 0.0
    is_waiting: bool = False  # what its heartbeats say
    is_old: bool = False  # its release's heartbeats do not say that, and it knows no newcomers
    unlucky: bool = False  # it cannot connect the next view
    connected: bool = False
    last_beat: float = 0.0
    host: str = "h"
    boot: str = ""
    inbox: list[wire.DriverMessage] = field(default_factory=list)
    outbox: list[wire.Message] = field(default_factory=list)

    @property
    def number_at(self) -> int:
        return self.at.number if self.at else 0

    @property
    def phase(self) -> str:
        if self.joined_once:
            return "member"
        return "joining" if self.doing == "joining" else "warm"

    def hello(self) -> wire.Hello:
        return wire.Hello(
            view=self.number_at,
            worker=self.number,
            pid=self.number,
            host=self.host,
            current=self.at,
            phase=self.phase,
            num_rounds=self.num_rounds,
            eases_in=not self.is_old,
            boot=self.boot,
        )


class World:
    """Everything outside the state machine."""

    def __init__(
        self, spec: JobSpec, slots: tuple[str, ...] | None = None, available: tuple[str, ...] | None = None
    ) -> None:
        self.spec = spec
        self.now = 100.0
        self.bodies: dict[int, Body] = {}
        self.hosts: dict[str, str] = {}  # node → address of its workers
        self.boots: dict[str, str] = {}  # node → the boot of its machine
        self.engine_events: list[EngineEvent] = []
        self.snapshot: events.MembershipSnapshot | None = None
        self.records: list[events.Record] = []
        self.ends: list[events.End] = []
        self.dying: dict[int, int] = {}
        self.building: dict[int, set[int]] = {}  # view → who has begun to connect it; it stands when all have
        self.highest_issued = 0
        self.most_rounds = 0
        self.can_save = True
        self.num_micro_batches: int | None = None
        self.store = "store:1"
        self.membership: Membership | None = Membership(
            spec,
            self.store,
            checkpoint_dir="/c",
            now=self.now,
            available=list_slots("n", spec.max_workers) if available is None else available,
            slots=slots,
        )
        self.obey(self.membership.begin(self.now))

    # ------------------------------------------------------------ the driver's side

    def feed(self, event: events.Event) -> None:
        if self.membership is not None:
            self.obey(self.membership.handle(event, self.now))

    def obey(self, instructions: list[events.Instruction]) -> None:
        assert not (self.ends and instructions), "an instruction came after the end"
        for instruction in instructions:
            match instruction:
                case events.Journal(snapshot=snapshot):
                    self.snapshot = snapshot
                case events.Record():
                    self.records.append(instruction)
                    self.check_fence(instruction)
                case events.End():
                    self.ends.append(instruction)
                    assert not self.bodies, "the job ended with workers alive"
                case events.StartWorker(worker=worker, slot=slot):
                    assert self.snapshot is not None
                    assert worker < self.snapshot.next_worker, "started before it was journaled"
                    assert all(body.slot != slot for body in self.bodies.values()), f"slot {slot} has two workers"
                    self.bodies[worker] = Body(
                        worker, slot, host=self.hosts.get(node := node_of(slot), "h"), boot=self.boots.get(node, "")
                    )
                    self.engine_events.append(Started(worker, worker))
                case events.StopWorker(worker=worker, force=force):
                    if worker in self.bodies:
                        self.dying[worker] = -9 if force else -15
                case events.Send(worker=worker, message=message):
                    if isinstance(message, wire.Prepare | wire.Recover):
                        self.check_view(message)
                    if worker in self.bodies and self.bodies[worker].connected:
                        self.bodies[worker].inbox.append(message)

    def check_fence(self, record: events.Record) -> None:
        """Workers are given up for silence only if their processes are stopped, or who only wait for too long."""
        if record.kind != "fenced" or "silent" not in record.reason or record.worker not in self.bodies:
            return
        body = self.bodies[record.worker]
        assert body.hung and body.hangs_as != "running", record.reason
        assert body.hangs_as in ("stopped", "gone") or "uses no CPU" in record.reason, record.reason

    def check_view(self, message: wire.Prepare | wire.Recover) -> None:
        assert self.membership is not None
        assert self.snapshot is not None
        job, view = self.membership.job, message.proposed
        assert view.number <= self.snapshot.last_view, "a view number was used before it was journaled"
        if view.number <= self.highest_issued:
            return  # said again to one who may have missed it
        self.highest_issued = view.number
        for number in view.workers:
            assert job.workers[number].active, f"view {view.number} has worker {job.workers[number]}"
        assert len(set(view.workers)) == len(view.workers) > 0
        keepers = [worker.number for worker in job.present() if worker.has_state]
        if keepers:
            assert set(keepers) & set(view.workers), f"view {view.number} leaves out all who have the state: {keepers}"

    def crash_driver(self) -> None:
        self.membership = None
        for body in self.bodies.values():
            self.disconnect(body)

    def restart_driver(self) -> None:
        assert self.membership is None
        assert self.snapshot is not None
        running = {number: number for number in self.bodies}
        self.membership = Membership.adopt(
            self.spec, self.store, self.snapshot, running, checkpoint_dir="/c", now=self.now
        )
        self.obey(self.membership.begin(self.now))

    def move_store(self) -> None:
        """Let the store die and another one start; the driver hears of it later."""
        self.store = f"store:{int(self.store.partition(':')[2]) + 1}"
        self.engine_events.append(StoreMoved(self.store))

    # ------------------------------------------------------------ the workers' side

    def die(self, number: int, exit_code: int, reason: str = "") -> None:
        body = self.bodies.pop(number, None)
        if body is not None:
            self.deliver(body)
            self.engine_events.append(Exited(number, exit_code, reason))
            if body.connected:
                self.feed(events.Lost(number))

    def disconnect(self, body: Body, *, losing: bool = True) -> None:
        body.connected = False
        body.inbox.clear()
        if losing:
            body.outbox.clear()

    def connect(self, body: Body) -> None:
        if self.membership is None or body.connected or body.hung:
            return
        body.connected = True
        body.outbox.insert(0, body.hello())
        if body.doing == "waiting":
            body.outbox.append(wire.Broken(view=body.number_at, num_rounds=body.num_rounds, reason="again"))

    def say(self, body: Body, message: wire.Message) -> None:
        body.outbox.append(message)

    def deliver(self, body: Body, limit: int = 1000) -> None:
        """Bring what a worker said to the driver."""
        while body.outbox and body.connected and limit and self.membership is not None:
            limit -= 1
            self.feed(events.Heard(body.number, body.outbox.pop(0)))  # type: ignore[arg-type]

    def deliver_engine(self) -> None:
        """Let signals arrive, and tell the driver who started and who exited."""
        for number, exit_code in list(self.dying.items()):
            # A hung process hears SIGTERM only when it wakes; every process hears SIGKILL.
            if exit_code == -9 or not (number in self.bodies and self.bodies[number].hung):
                self.die(number, exit_code)
                del self.dying[number]
        while self.engine_events and self.membership is not None:
            self.feed(self.engine_events.pop(0))

    def read(self, body: Body) -> None:
        """Let a worker read what it was sent."""
        while body.inbox and not body.hung and body.number in self.bodies:
            self.hear(body, body.inbox.pop(0))

    def hear(self, body: Body, message: wire.DriverMessage) -> None:
        match message:
            case wire.Welcome() if body.doing == "joining":
                body.doing = "warm"
                self.say(body, wire.Warm(fingerprint={"model": "m"}, num_micro_batches=self.num_micro_batches))
            case wire.Prepare(proposed=view) if self.is_news(body, view) and self.fails_to_build(body, view):
                pass
            case wire.Prepare(proposed=view) if self.is_news(body, view):
                body.proposed = view
                self.say(body, wire.Prepared(view=body.number_at, prepared=view.number))
                if not body.has_state and body.number in view.workers:
                    body.at, body.doing = view, "settling"  # connected, it speaks from the proposed view
            case wire.Recover(proposed=view) if self.is_news(body, view):
                body.recovery, body.proposed = view, None
                if body.number in view.workers and self.fails_to_build(body, view):
                    body.at, body.doing = (body.at, "waiting") if body.has_state else (None, "warm")
                elif body.number in view.workers:
                    body.at, body.doing = view, "settling"
                    self.say(body, wire.Prepared(view=body.number_at, prepared=view.number))
                elif body.has_state:
                    self.say(body, wire.Leaving(view=body.number_at, num_rounds=body.num_rounds, reason="superseded"))
                    self.die(body.number, 0)
                elif body.doing == "settling":
                    body.at, body.doing = None, "warm"
            case wire.Stop():
                body.stop = True
                if body.doing in ("joining", "warm", "waiting"):
                    self.leave(body, "stopped")
            case wire.Refused():
                self.die(body.number, 75)
            case _:
                pass

    def fails_to_build(self, body: Body, view: View) -> bool:
        unlucky, body.unlucky = body.unlucky or view.rendezvous != self.store, False
        if not unlucky:
            self.building.setdefault(view.number, set()).add(body.number)
        else:
            self.say(body, wire.Unbuilt(view=body.number_at, failed=view.number, reason="no such address"))
        return unlucky

    def stands(self, view: View) -> bool:
        # A leaver connects nothing, but it votes.
        return self.building.get(view.number, set()).issuperset(view.workers)

    def is_news(self, body: Body, view: View) -> bool:
        known = [seen.number for seen in (body.proposed, body.recovery, body.at) if seen is not None]
        return view.number > max(known, default=0)

    def leave(self, body: Body, reason: str) -> None:
        if reason == "stopped" and body.has_state and self.can_save:
            self.say(body, wire.Saved(view=body.number_at, step=body.step, path=f"/c/step-{body.step}"))
        self.say(body, wire.Leaving(view=body.number_at, num_rounds=body.num_rounds, reason=reason))
        self.die(body.number, 0)

    def compute(self) -> None:
        """Let every view's collective get as far as it can by one round."""
        views = {body.at.number: body.at for body in self.bodies.values() if body.at is not None}
        for view in views.values():
            self.compute_view(view)

    def compute_view(self, view: View) -> None:
        here = [body for body in self.bodies.values() if body.number_at == view.number]
        gone = [n for n in view.workers if n not in self.bodies or self.bodies[n].number_at > view.number]
        waiting = [body for body in here if body.doing == "waiting"]
        if gone or waiting:
            for body in [body for body in here if not body.hung and body.doing in ("settling", "training")]:
                self.break_view(body, view)
            return
        if len(here) < len(view.workers) or any(body.hung for body in here):
            return  # a worker has not come yet, or never will: all wait in the collective
        if all(body.doing == "settling" for body in here):
            newest = max((body for body in here), key=lambda body: (body.has_state, body.num_rounds))
            for body in here:
                body.doing, body.has_state, body.joined_once = "training", True, True
                body.num_rounds, body.step = newest.num_rounds, newest.step
                self.say(body, wire.Joined(view=view.number, num_rounds=body.num_rounds, pause_s=0.0))
        elif all(body.doing == "training" for body in here):
            self.run_round(here, view)

    def break_view(self, body: Body, view: View) -> None:
        if body.has_state:
            body.doing = "waiting"
            body.proposed = None
            self.say(body, wire.Broken(view=view.number, num_rounds=body.num_rounds, reason="a peer is gone"))
        else:
            body.at, body.doing = None, "warm"
            self.say(body, wire.Broken(view=view.number, num_rounds=0, reason="a peer is gone"))
        if body.stop:
            self.leave(body, "stopped")

    def run_round(self, here: list[Body], view: View) -> None:
        for body in here:
            body.num_rounds += 1
            body.step += 1
            self.say(body, progress(view.number, body.step))
        self.most_rounds = max(self.most_rounds, here[0].num_rounds)
        if any(body.stop for body in here):
            for body in here:
                self.leave(body, "stopped")
            return
        votes = [body.proposed.number if body.proposed and self.stands(body.proposed) else view.number for body in here]
        agreed = agreed_view(votes, view.number)
        if agreed is None:
            return
        target = next(body.proposed for body in here if body.proposed is not None)
        for body in here:
            body.proposed = None
            if body.number in target.workers:
                body.at, body.doing = target, "settling"
            else:
                self.leave(body, "shrunk")

    # ------------------------------------------------------------ time

    def tick(self) -> None:
        self.now += TICK_S
        for body in list(self.bodies.values()):
            if body.connected and not body.hung:
                is_waiting = None if body.is_old else self.waits_for_peers(body)
                self.say(body, wire.Heartbeat(view=body.number_at, num_rounds=body.num_rounds, is_waiting=is_waiting))
            body.cpu_s += TICK_S * (body.hung and body.hangs_as == "running")
        self.feed(events.Tick(self.examine()))

    def waits_for_peers(self, body: Body) -> bool:
        """Whether a worker is in a collective to which a worker does not come."""
        here = [other for other in self.bodies.values() if other.number_at == body.number_at]
        return body.is_waiting or (body.doing in ("training", "settling") and any(other.hung for other in here))

    def examine(self) -> dict[int, Vital]:
        """Answer what the driver asks of the engine."""
        asked = self.membership.suspects(self.now) if self.membership is not None else []
        bodies = [self.bodies[number] for number in asked if number in self.bodies]
        return {body.number: Vital(body.hangs_as if body.hung else "waiting", body.cpu_s) for body in bodies}

    def calm(self, seconds: float) -> None:
        """Let time pass with everything delivered, all workers connected and nothing going wrong."""
        for _ in range(int(seconds / TICK_S)):
            for body in list(self.bodies.values()):
                self.connect(body)
                self.deliver(body)
            self.deliver_engine()
            for body in list(self.bodies.values()):
                self.read(body)
            self.compute()
            for body in list(self.bodies.values()):
                self.deliver(body)
            self.deliver_engine()
            self.tick()
            if self.ends:
                return

    def check_at_peace(self) -> None:
        """Check that the job is where it was wanted to be, and trains."""
        assert self.membership is not None
        job = self.membership.job
        story = "\n".join(record.reason for record in self.records[-30:])
        assert job.state is JobState.TRAINING, f"{job.state}\n{story}"
        assert job.settled, story
        assert job.pending is None, story
        assert sorted(worker.slot for worker in job.members()) == sorted(job.wanted), story
        assert {body.number for body in self.bodies.values()} == {worker.number for worker in job.members()}, story
        before = self.most_rounds
        self.calm(2)
        assert self.most_rounds > before, story


def progress(view: int, step: int) -> wire.Progress:
    return wire.Progress(
        view=view, first_step=step, last_step=step, epoch=0, loss=None, num_samples=1, num_steps=None, num_epochs=None
    )
