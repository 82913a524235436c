"""Compares the parts of a reason that speak of nodes, labels and kinds of machines with the pool."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from tests.unit.policy.sentences import Part, read_names

from legato.policy.kinds import is_type
from legato.policy.snapshot import OWN_MACHINE, OWNER_LABEL, JobDemand

if TYPE_CHECKING:
    from tests.unit.policy.truth import Truth


def _read_owners(part: Part) -> tuple[tuple[str, ...], int]:
    """Return the users who are named, and how many there are with those that are only counted."""
    return read_names(part.parts["owner_names"].text) if part.has("owner_names") else ((), 0)


class PlaceChecks:
    """Checks such parts of the reason of one job."""

    _truth: Truth
    _job: JobDemand
    _kind: int
    _wanted: int

    def _jobs(self, part: Part, number: int | None = None, *, most: int | None = None) -> list[JobDemand]:
        raise NotImplementedError

    def _is_beside(self, job: JobDemand) -> bool:
        """Whether a job is on the same kind of machine."""
        return self._truth.kind_of[job.id] == self._kind

    def see_other_kinds(self, part: Part) -> None:
        told = re.findall(r"nodes? ([\w, ]+?) (?:is|are) of another kind", part.text)
        for names in told:
            more = re.search(r" and (\d+) more$", names)
            nodes = names.removesuffix(more[0] if more else "").split(", ")
            (kind,) = {self._kind_of_node(node) for node in nodes}
            assert kind != self._kind
            usable = [node for node, slots in self._truth.nodes_of[kind].items() if any(slot.usable for slot in slots)]
            assert set(nodes) <= set(usable) and len(nodes) + int(more[1] if more else 0) == len(usable)
        kinds = [
            index
            for index, nodes in enumerate(self._truth.nodes_of)
            if index != self._kind and any(slot.usable for slots in nodes.values() for slot in slots)
        ]
        assert len(told) == len(kinds)

    def _kind_of_node(self, node: str) -> int:
        return next(index for index, nodes in enumerate(self._truth.nodes_of) if node in nodes)

    def _room_on(self, nodes: Iterable[str]) -> int:
        each = self._job.gpus_per_worker
        slots = self._truth.nodes_of[self._kind]
        return sum(sum(slot.usable for slot in slots.get(node, ())) // each * each for node in nodes)

    def _fitting(self, labels: dict[str, str], refused: Collection[str]) -> list[str]:
        return self._fitting_users(labels, refused, {self._job.owner, ""})

    def _fitting_users(self, labels: dict[str, str], refused: Collection[str], users: Collection[str]) -> list[str]:
        """Return the nodes that belong to one of these users; "": to no user."""
        known = {node.name: node.labels for node in self._truth.snapshot.nodes}
        nodes = dict.fromkeys(slot.node for slot in self._truth.snapshot.slots)
        return [
            node
            for node in nodes
            if labels.items() <= known.get(node, {}).items()
            and node not in refused
            and known.get(node, {}).get(OWNER_LABEL, "") in users
        ]

    def _list_owners(self) -> set[str]:
        return {node.labels[OWNER_LABEL] for node in self._truth.snapshot.nodes if OWNER_LABEL in node.labels}

    def see_owners(self, part: Part) -> None:
        """Some of the machines belong to users, and the users that are named have some, or are the job's owner."""
        owners = self._list_owners()
        assert owners
        if part.has("one_owner"):
            assert part.parts["one_owner"].parts["owner"].text == self._job.owner in owners
        users, number = _read_owners(part)
        assert set(users) <= owners | {self._job.owner} and number <= len(owners) + 1

    def see_belong(self, part: Part) -> None:
        assert part.text.split()[-1] == self._job.owner
        assert self._list_owners() - {self._job.owner}

    def see_owned_nodes(self, part: Part) -> None:
        job = self._job
        assert not job.labels and job.gpus_per_worker == 1 and job.gpu_type is None
        self._check_room(part.parts["room_has"])

    def see_limit(self, part: Part) -> None:
        job = self._job
        assert part.has("bound") == bool(job.bound_because)
        nodes = sorted(job.refusals)
        told = "".join(f"; node {node} has refused it: {job.refusals[node]}" for node in nodes[:3])
        if len(nodes) > 3:
            more = len(nodes) - 3
            told += f"; {more} more node{' has' if more == 1 else 's have'} refused it"
        assert (part.parts["refusals"].text if part.has("refusals") else "") == told

    def _types(self) -> list[str]:
        return sorted({slot.gpu_type for slot in self._truth.snapshot.slots if slot.device != "cpu"})

    def see_no_gpus(self, part: Part) -> None:
        assert not self._types()
        if part.has("each"):
            assert part.number("each") == self._job.gpus_per_worker > 1
        else:
            assert part.parts["type"].text == self._job.gpu_type

    def see_no_such_gpu(self, part: Part) -> None:
        types = self._types()
        assert part.parts["type"].text == self._job.gpu_type
        assert part.parts["list"].text == ", ".join(types)
        assert not any(is_type(self._job.gpu_type or "", found) for found in types)

    def see_own_machine(self, part: Part) -> None:
        assert self._job.labels == dict([OWN_MACHINE])
        assert part.parts["room_has"].text.endswith("for it") == bool(self._job.refusals)
        self._check_room(part.parts["room_has"])

    def see_other_nodes(self, part: Part) -> None:
        assert self._job.refusals and not self._job.labels and self._job.gpus_per_worker == 1
        self._check_room(part.parts["room_has"])

    def see_room(self, part: Part) -> None:
        asks = part.parts["asks"].text
        assert (f"{self._job.gpus_per_worker} GPUs per worker" in asks) == (self._job.gpus_per_worker > 1)
        assert (f"GPU type {self._job.gpu_type}" in asks) == (self._job.gpu_type is not None)
        labels = ",".join(f"{name}={value}" for name, value in sorted(self._job.labels.items()))
        if tuple(self._job.labels.items()) == (OWN_MACHINE,):
            assert "the server's own machine" in asks
        else:
            assert (f"labels {labels}" in asks) == bool(labels)
        self._check_room(part.parts["room_has"])

    def _check_room(self, part: Part) -> None:
        own = [slot for slots in self._truth.nodes_of[self._kind].values() for slot in slots]
        types = {slot.gpu_type for slot in own}
        room = self._room_on(self._fitting(self._job.labels, self._job.refusals))
        if self._job.gpu_type is not None and not any(is_type(self._job.gpu_type, found) for found in types):
            room = 0
        if self._job.gpus_per_worker > 1 and all(slot.device == "cpu" for slot in own):
            room = 0
        assert part.number("room", 0) == room, room
        assert self._wanted <= room

    def see_out(self, part: Part) -> None:
        told = re.findall(r"node (\w+) cannot be used: ([^;()]+)", part.text)
        fitting = self._fitting(self._job.labels, self._job.refusals)
        assert {node for node, _ in told} <= set(fitting)
        for node, trouble in told:
            slots = self._truth.nodes_of[self._kind][node]
            assert trouble in {slot.trouble or "it is down or drained" for slot in slots if not slot.usable}

    def see_asks(self, part: Part) -> None:
        job = self._job
        if found := re.search(r"(\d+) GPUs per worker", part.text):
            assert int(found[1]) <= job.gpus_per_worker
        if found := re.search(r"labels ([\w=,]+)", part.text):
            assert {tuple(label.split("=")) for label in found[1].split(",")} <= job.labels.items()
        if found := re.search(r"nodes other than (\w+(?:, \w+)*)", part.text):
            assert set(found[1].split(", ")) <= job.refusals.keys()

    def see_scarce_share(self, part: Part) -> None:
        self._check_scarce(part, "others")
        assert self._wanted

    def see_scarce_first(self, part: Part) -> None:
        self._check_scarce(part, "first")
        assert not self._wanted

    def _check_scarce(self, part: Part, name: str) -> None:
        assert part.number("room") <= self._truth.capacity[self._kind]
        if part.has("asks"):
            self._check_scarce_room(part.parts["asks"], part.number("room"))
        if part.has(name):
            assert all(self._is_beside(job) for job in self._jobs(part.parts[name]))

    def _check_scarce_room(self, asks: Part, room: int) -> None:
        """Check how many slots there are for what some jobs ask for."""
        found = re.search(r"(\d+) GPUs per worker", asks.text)
        each = int(found[1]) if found else 1
        found = re.search(r"labels ([\w=,]+)", asks.text)
        labels = dict(label.split("=") for label in found[1].split(",")) if found else {}
        if "the server's own machine" in asks.text:
            labels |= dict([OWN_MACHINE])
        found = re.search(r"nodes other than (\w+(?:, \w+)*)", asks.text)
        refused = found[1].split(", ") if found else []
        users = {"", *self._list_owners()}
        if asks.has("owners"):
            owners = asks.parts["owners"]
            names, number = _read_owners(owners)
            if number > len(names):
                return  # not all of them are named
            users = {self._job.owner} if owners.has("one_owner") else {"", *names}
        slots = self._truth.nodes_of[self._kind]
        nodes = self._fitting_users(labels, refused, users)
        assert room == sum(sum(slot.usable for slot in slots.get(node, ())) // each * each for node in nodes)

    def see_node_share(self, part: Part) -> None:
        self._check_scarce(part, "others")
        assert self._wanted

    def see_node_first(self, part: Part) -> None:
        self._check_scarce(part, "first")
        assert not self._wanted

    def see_left(self, part: Part) -> None:
        each = self._job.gpus_per_worker
        assert part.number("each") == each > 1
        if part.has("left_on"):
            for node, number in re.findall(r"node (\w+) has (\d+) left", part.text):
                assert node in self._fitting(self._job.labels, self._job.refusals)
                assert int(number) < each

    def see_none_fit(self, part: Part) -> None:
        assert self._job.gpus_per_worker == 1

    def see_movers(self, part: Part) -> None:
        assert all(self._truth.held[job.id] for job in self._jobs(part.parts["movers"]))
