"""Which slots: least movement, own nodes, one node before two, best fit, whole workers."""

from __future__ import annotations

from tests.unit.policy.world import make_job

from legato.policy.claims import Claim, SortedSnapshot
from legato.policy.free_slots import FreeSlots
from legato.policy.moves import Plan
from legato.policy.place import place
from legato.policy.rules import Rules
from legato.policy.snapshot import Node, Slot


def slots(*names: str, worker: str = "") -> list[Slot]:
    return [Slot(id=name, node=name.partition("/")[0], worker=worker) for name in names]


def on_nodes(**numbers: int) -> list[Slot]:
    return slots(*(f"{node}/{index}" for node, number in numbers.items() for index in range(number)))


def make_claim(held: list[Slot], size: int, **fields: object) -> Claim:
    each = int(str(fields.get("gpus_per_worker", 1)))
    return Claim(
        job=make_job("u/j", 99, **fields), order=("j",), lo=each, hi=99, weight=5000, slots=list(held), size=size
    )


def placed(held: list[Slot], size: int, free: list[Slot], nodes: tuple[Node, ...] = (), **fields: object) -> list[str]:
    claim = make_claim(held, size, **fields)
    by_name = {node.name: node for node in nodes}
    pool = SortedSnapshot(
        now=0.0, claims=[claim], queues={}, capacity=0, free=free, leaving=[], coming=[], nodes=by_name
    )
    place(pool, Plan(pool), Rules())
    return sorted(slot.id for slot in claim.slots)


def test_an_incumbent_keeps_its_slots() -> None:
    held = slots("a/0", "c/1")
    assert placed(held, 2, slots("a/1", "b/0", "b/1")) == ["a/0", "c/1"]


def test_growth_goes_to_its_own_nodes_first() -> None:
    free = slots("a/1", "b/0", "b/1", "b/2", "c/0", "c/3")
    assert placed(slots("c/1", "c/2", "a/0"), 6, free) == ["a/0", "a/1", "c/0", "c/1", "c/2", "c/3"]


def test_a_new_job_gets_the_smallest_node_on_which_it_fits() -> None:
    free = on_nodes(a=1, b=8, c=3, d=4)
    assert placed([], 3, free) == ["c/0", "c/1", "c/2"]
    assert placed([], 2, free) == ["c/0", "c/1"]
    assert placed([], 1, free) == ["a/0"]


def test_a_job_that_fits_on_no_node_uses_the_fewest_nodes() -> None:
    free = on_nodes(a=1, b=3, c=2, d=4, e=1)
    assert placed([], 6, free) == ["c/0", "c/1", "d/0", "d/1", "d/2", "d/3"]


def test_a_growing_job_fills_its_own_node_and_then_the_smallest_that_fits() -> None:
    assert placed(slots("a/0"), 4, slots("a/1", "b/0", "c/0", "c/1", "d/0", "d/1", "d/2")) == [
        *("a/0", "a/1"),
        *("c/0", "c/1"),
    ]


def test_a_shrinking_job_gives_up_stragglers() -> None:
    assert placed(slots("a/0", "b/0", "b/1", "c/0"), 2, []) == ["b/0", "b/1"]


def test_free_slots_run_out_node_by_node() -> None:
    free, job = FreeSlots(on_nodes(a=2, b=3)), make_job("u/j", 99)
    taken = [sorted(slot.id for slot in free.take(number, [], job)) for number in (1, 1, 2, 2)]
    assert taken == [["a/0"], ["a/1"], ["b/0", "b/1"], ["b/2"]]


def test_a_worker_has_all_of_its_gpus_on_one_node() -> None:
    free = on_nodes(a=3, b=3, c=1)
    assert placed([], 4, free, gpus_per_worker=2) == ["a/0", "a/1", "b/0", "b/1"]
    assert placed([], 3, on_nodes(a=2, b=2, c=3), gpus_per_worker=3) == ["c/0", "c/1", "c/2"]


def test_a_job_with_several_gpus_per_worker_gets_as_many_whole_workers_as_fit() -> None:
    claim = make_claim([], 6, gpus_per_worker=2)
    free = on_nodes(a=3, b=1, c=3)
    pool = SortedSnapshot(now=0.0, claims=[claim], queues={}, capacity=0, free=free, leaving=[], coming=[])
    place(pool, Plan(pool), Rules())
    assert (claim.size, len(claim.slots), claim.unplaced) == (4, 4, True)
    assert claim.limit == "2 GPUs per worker: node a has 1 left, node b has 1 left, node c has 1 left"


def test_a_shrinking_job_gives_up_whole_workers() -> None:
    held = [
        *slots("a/0", "a/3", worker="a/0+3"),
        *slots("b/1", "b/2", worker="b/1+2"),
        *slots("b/0", "b/3", worker="b/0+3"),
    ]
    assert placed(held, 4, [], gpus_per_worker=2) == ["b/0", "b/1", "b/2", "b/3"]
    assert placed(held, 2, [], gpus_per_worker=2) == ["b/0", "b/3"]


def test_nodes_that_have_refused_the_job_are_left_out_of_the_same_choice() -> None:
    free = on_nodes(a=3, b=1, c=2, d=4, e=2)
    assert placed([], 2, free, refusals={"c": "no data"}) == ["e/0", "e/1"]
    assert placed([], 2, free, refusals=dict.fromkeys("ace", "no data")) == ["d/0", "d/1"]
    assert placed([], 4, free, refusals={"d": "no data"}) == ["a/0", "a/1", "a/2", "b/0"]
    assert placed(slots("a/9"), 2, free, refusals={"a": "no data"}) == ["a/9", "b/0"]
    assert placed([], 1, free, refusals=dict.fromkeys("abcde", "no data")) == []


def test_labels_restrict_the_nodes() -> None:
    nodes = tuple(Node(name=name, labels={"disk": disk}) for name, disk in (("a", "ssd"), ("b", "hdd"), ("c", "ssd")))
    free = on_nodes(a=3, b=1, c=2, d=1)
    assert placed([], 1, free, nodes, labels={"disk": "ssd"}) == ["c/0"]
    assert placed([], 4, free, nodes, labels={"disk": "ssd"}) == ["a/0", "a/1", "a/2", "c/0"]
    assert placed([], 3, free, nodes, labels={"disk": "tape"}) == []
