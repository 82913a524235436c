"""A made-up world of several nodes: links that are cut, agents with leases, drivers that do not know of a later one.

A cut node reaches neither the driver nor the workers of other nodes; its own workers reach one another and train on.
"""

from __future__ import annotations

from typing import Any

from tests.unit.driver.world import Body, World, make_world_spec

from legato.core import wire
from legato.core.slots import node_of
from legato.core.view import View
from legato.driver import events
from legato.driver.membership import Membership
from legato.engines.base import Exited, NodeBack, NodeLost, Started
from legato.system.processes import Vital

SILENCE_S = 4.0  # the engine takes a node for lost after this


class NodesWorld(World):
    """Everything outside of the state machines of a job on several nodes."""

    def __init__(self, slots: tuple[str, ...], **changes: Any) -> None:
        self.node_of_worker: dict[int, str] = {}
        self.slots = slots
        self.cut_at: dict[str, float] = {}
        self.lost: set[str] = set()
        self.unreported: dict[str, list[Exited]] = {}
        self.term = self.journal_term = 1
        self.earlier: list[Membership] = []
        self.terms: dict[int, int] = {}  # worker → the highest term that it has seen
        self.issued: dict[int, View] = {}
        self.lineages: dict[int, int] = {}  # worker → the lineage of its state
        self.num_lineages = 0
        self.newest_lineage = 0  # that has committed a round
        values = {"num_workers": len(slots), "max_workers": len(slots), **changes}
        super().__init__(make_world_spec(**values), slots)
        assert self.membership is not None
        self.membership.job.term = 1

    # ------------------------------------------------------------ nodes

    def side_of(self, number: int) -> str:
        node = self.node_of_worker[number]
        return node if node in self.cut_at else ""

    def bodies_on(self, node: str) -> list[Body]:
        return [body for body in self.bodies.values() if self.node_of_worker[body.number] == node]

    def cut(self, node: str) -> None:
        """Cut a node off. What its workers have said and not sent stays with them."""
        if node not in self.cut_at:
            self.cut_at[node] = self.now
            for body in self.bodies_on(node):
                self.disconnect(body, losing=False)

    def lose(self, node: str) -> None:
        """Let the engine take a cut node for lost."""
        if node in self.cut_at and node not in self.lost and self.membership is not None:
            self.lost.add(node)
            self.feed(NodeLost(node, "its agent is silent", self.now - self.cut_at[node]))
            for body in self.bodies_on(node):
                self.feed(events.Lost(body.number))

    def end_lease(self, node: str) -> None:
        """Let the agent of a lost node kill its workers, and then the engine report that, by its own clock."""
        if node not in self.lost:
            return
        for body in self.bodies_on(node):
            del self.bodies[body.number]
            self.unreported.setdefault(node, []).append(Exited(body.number, -9))
        if self.membership is not None:
            for event in self.unreported.pop(node, []):
                self.feed(event)

    def heal(self, node: str) -> None:
        """Let a node reach the others again. Its agent has kept what happened, and gets its orders again."""
        if self.cut_at.pop(node, None) is None:
            return
        was_lost = node in self.lost
        self.lost.discard(node)
        if was_lost:
            self.feed(NodeBack(node))
        self.engine_events += self.unreported.pop(node, [])

    def die(self, number: int, exit_code: int, reason: str = "") -> None:
        if number in self.bodies and self.side_of(number):
            del self.bodies[number]
            node = self.node_of_worker[number]
            self.unreported.setdefault(node, []).append(Exited(number, exit_code, reason))
        else:
            super().die(number, exit_code, reason)

    def deliver_engine(self) -> None:
        unreached = {
            number: code for number, code in self.dying.items() if number in self.bodies and self.side_of(number)
        }
        self.dying = {number: code for number, code in self.dying.items() if number not in unreached}
        super().deliver_engine()
        self.dying |= unreached

    def connect(self, body: Body) -> None:
        if not self.side_of(body.number):
            super().connect(body)

    def examine(self) -> dict[int, Vital]:
        unreachable = Vital("unreachable", 0.0)
        return {number: unreachable if self.side_of(number) else vital for number, vital in super().examine().items()}

    def tick(self) -> None:
        for node, since in list(self.cut_at.items()):
            if self.now - since >= SILENCE_S:
                self.lose(node)
        super().tick()

    # ------------------------------------------------------------ drivers

    def restart_driver(self) -> None:
        """Let another driver adopt the job; it knows from the engine's record which workers may run."""
        assert self.membership is None
        assert self.snapshot is not None
        self.term = self.journal_term = self.term + 1
        running = {number: number for number in self.bodies}
        running |= {event.worker: 0 for events_there in self.unreported.values() for event in events_there}
        running |= {event.worker: 0 for event in self.engine_events if isinstance(event, Exited)}
        self.membership = Membership.adopt(
            self.spec, self.store, self.snapshot, running, checkpoint_dir="/c", now=self.now, term=self.term
        )
        self.obey(self.membership.begin(self.now))
        for node in sorted(set(map(node_of, self.slots)) - self.lost):
            self.feed(NodeBack(node))
        for node in sorted(self.lost):
            self.feed(NodeLost(node, "its agent has not connected"))
        for node in self.cut_at:
            self.cut_at[node] = self.now

    def take_over(self) -> None:
        """Let another driver adopt the job while the present one runs on and does not know that."""
        assert self.membership is not None
        self.earlier.append(self.membership)
        self.crash_driver()
        self.restart_driver()

    def meet_earlier(self, earlier: Membership, body: Body) -> None:
        """Let a worker connect to a driver that has been superseded."""
        hello = wire.Hello(**{**_fields(body.hello()), "term": self.terms.get(body.number, 0)})
        self.obey_earlier(earlier, earlier.handle(events.Heard(body.number, hello), self.now))

    def obey_earlier(self, earlier: Membership, instructions: list[events.Instruction]) -> None:
        """Carry out what a superseded driver decides, as far as journal, agents and workers let it."""
        for instruction in instructions:
            match instruction:
                case events.Journal() if self.journal_term > earlier.job.term:
                    earlier.job.superseded = "its journal has a later term"
                    return
                case events.StepDown():
                    return
                case events.StartWorker() | events.StopWorker() | events.End():
                    raise AssertionError(f"a superseded driver does something: {instruction}")
                case events.Send(worker=worker, message=message):
                    body = self.bodies.get(worker)
                    if body is not None and self.terms.get(worker, 0) <= earlier.job.term:
                        raise AssertionError(f"worker {worker} obeys a superseded driver: {message}")

    # ------------------------------------------------------------ what is checked

    def obey(self, instructions: list[events.Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, events.StartWorker):
                assert instruction.worker not in self.node_of_worker, f"worker {instruction.worker} starts twice"
                self.node_of_worker[instruction.worker] = node_of(str(instruction.slot))
                assert node_of(str(instruction.slot)) not in self.lost, f"a start on a lost node: {instruction}"
        super().obey(instructions)
        for number in [n for n in self.bodies if self.side_of(n) and not self.bodies[n].joined_once]:
            # The order to start it does not reach its agent.
            if self.bodies[number].doing == "joining" and Started(number, number) in self.engine_events:
                del self.bodies[number]
                self.engine_events.remove(Started(number, number))
                self.unreported.setdefault(self.node_of_worker[number], []).append(Exited(number, -9))

    def check_view(self, message: wire.Prepare | wire.Recover) -> None:
        view = message.proposed
        assert self.issued.setdefault(view.number, view) == view, f"view number {view.number} is used twice"
        super().check_view(message)

    def hear(self, body: Body, message: wire.DriverMessage) -> None:
        if isinstance(message, wire.Welcome):
            assert message.term >= self.terms.get(body.number, 0)
            self.terms[body.number] = message.term
        super().hear(body, message)

    def compute(self) -> None:
        self.trained: list[View] = []
        super().compute()
        assert len({view.number for view in self.trained}) <= 1, f"two views train at the same time: {self.trained}"

    def compute_view(self, view: View) -> None:
        sides = {self.side_of(number) for number in view.workers}
        if len(sides) > 1:
            return  # they wait for one another, and none notices an end
        here = [body for body in self.bodies.values() if body.number_at == view.number]
        begins = {body.number for body in here if body.doing == "settling"}
        super().compute_view(view)
        settled = [body for body in here if body.number in begins and body.doing == "training"]
        if settled:
            known = [self.lineages[body.number] for body in here if body.number in self.lineages]
            if not known:
                self.num_lineages += 1
            for body in here:
                self.lineages[body.number] = max(known, default=self.num_lineages)

    def run_round(self, here: list[Body], view: View) -> None:
        lineage = self.lineages[here[0].number]
        assert lineage >= self.newest_lineage, f"view {view.number} trains although a later lineage has begun"
        self.newest_lineage = lineage
        self.trained.append(view)
        for other in self.bodies.values():
            if other not in here and other.has_state and self.lineages[other.number] == lineage:
                assert other.num_rounds <= here[0].num_rounds, f"round {other.num_rounds} is computed a second time"
        super().run_round(here, view)


def _fields(message: wire.Hello) -> dict[str, Any]:
    return {name: getattr(message, name) for name in message.__struct_fields__}
