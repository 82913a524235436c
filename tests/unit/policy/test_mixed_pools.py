"""What must hold in a pool of several kinds of machines, with labels, GPU models and several GPUs per worker."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import msgspec
from hypothesis import strategies as st
from tests.unit.policy.test_promises import make_eager
from tests.unit.policy.world import EAGER, carry_out, make_job, settle, wanted, with_job
from tests.unit.policy.worlds import any_rules, for_any, mixed_snapshots

from legato.policy.free_slots import can_run
from legato.policy.kinds import is_type, kind_of
from legato.policy.policies import decide
from legato.policy.rules import FairBy, Policy, Rules
from legato.policy.sizes import fit_size, next_size, smallest_size
from legato.policy.snapshot import OWNER_LABEL, DecisionKind, Decisions, JobDemand, Node, Slot, Snapshot


def live(snapshot: Snapshot, rules: Rules, seed: int) -> Iterator[tuple[Snapshot, Decisions]]:
    """Let the jobs come one after the other, drop slots and let jobs end; yield each snapshot with its decisions."""
    source = random.Random(seed)
    waiting = list(snapshot.jobs)
    snapshot = msgspec.structs.replace(snapshot, jobs=())
    for _ in range(2 * len(waiting) + 6):
        if waiting:
            snapshot = with_job(snapshot, waiting.pop())
        decisions = decide(snapshot, rules)
        yield snapshot, decisions
        snapshot = carry_out(snapshot, decisions, after_s=4.0, slow=source.random() < 0.3)
        if snapshot.jobs and source.random() < 0.2:
            gone = source.choice(snapshot.jobs).id
            snapshot = msgspec.structs.replace(snapshot, jobs=tuple(job for job in snapshot.jobs if job.id != gone))
        if snapshot.slots and source.random() < 0.2:
            index = source.randrange(len(snapshot.slots))
            changed = msgspec.structs.replace(snapshot.slots[index], usable=not snapshot.slots[index].usable)
            snapshot = msgspec.structs.replace(
                snapshot, slots=(*snapshot.slots[:index], changed, *snapshot.slots[index + 1 :])
            )


def check_places(snapshot: Snapshot, decisions: Decisions) -> None:
    slots = {slot.id: slot for slot in snapshot.slots}
    nodes = {node.name: node for node in snapshot.nodes}
    given = Counter(name for decision in decisions.decisions for name in decision.slots)
    assert not given or max(given.values()) == 1
    for job in snapshot.jobs:
        decision = decisions.of(job.id)
        mine = [slots[name] for name in decision.slots]
        assert all(slot.usable and not slot.leaving and slot.holder in (None, job.id) for slot in mine)
        kinds = {kind_of(nodes.get(slot.node), slot) for slot in mine}
        assert len(kinds) <= 1 and (not mine or decision.machine_kind == kinds.pop())
        for slot in mine:
            assert job.labels.items() <= nodes[slot.node].labels.items()
            assert slot.node not in job.refusals
            assert nodes[slot.node].labels.get(OWNER_LABEL, job.owner) == job.owner
            assert job.gpu_type is None or is_type(job.gpu_type, slot.gpu_type)
        check_workers(job, decision.workers, mine)


def check_workers(job: JobDemand, workers: tuple[tuple[str, ...], ...], mine: list[Slot]) -> None:
    if job.gpus_per_worker == 1:
        assert workers == ()
        return
    assert sorted(name for worker in workers for name in worker) == sorted(slot.id for slot in mine)
    node_of = {slot.id: slot.node for slot in mine}
    before = {slot.id: slot.worker for slot in mine if slot.holder == job.id}
    for worker in workers:
        assert len(worker) == job.gpus_per_worker
        assert len({node_of[name] for name in worker}) == 1
        # A worker that goes on has the same GPUs as before.
        assert len({before.get(name) for name in worker}) == 1
    assert all(slot.device != "cpu" for slot in mine)


@for_any(mixed_snapshots() | mixed_snapshots(owned=True), any_rules(), st.integers(0, 1000))
def test_no_slot_is_given_twice_and_every_slot_suits_its_job(snapshot: Snapshot, rules: Rules, seed: int) -> None:
    for moment, decisions in live(snapshot, rules, seed):
        check_places(moment, decisions)


@for_any(mixed_snapshots() | mixed_snapshots(owned=True), any_rules(), st.integers(0, 1000))
def test_a_job_stays_on_its_kind_of_machine(snapshot: Snapshot, rules: Rules, seed: int) -> None:
    began: dict[str, str] = {}
    for _, decisions in live(snapshot, rules, seed):
        for decision in decisions.decisions:
            if decision.machine_kind is not None:
                assert began.setdefault(decision.job, decision.machine_kind) == decision.machine_kind


@for_any(mixed_snapshots() | mixed_snapshots(owned=True), any_rules(), st.integers(0, 1000))
def test_numbers_are_those_of_the_policy_or_the_reason_says_why(snapshot: Snapshot, rules: Rules, seed: int) -> None:
    for moment, decisions in live(snapshot, rules, seed):
        had = Counter(slot.holder for slot in moment.slots if slot.usable and not slot.leaving)
        for job in moment.jobs:
            decision = decisions.of(job.id)
            assert decision.reason and "None" not in decision.reason and "  " not in decision.reason
            assert len(decision.slots) % job.gpus_per_worker == 0
            assert decision.wanted == fit_size(job, decision.wanted)
            size = len(decision.slots)
            assert size in (0, had[job.id]) or smallest_size(job) <= size <= job.max_slots or size < had[job.id]


@for_any(mixed_snapshots() | mixed_snapshots(owned=True), any_rules())
def test_all_comes_to_rest_with_no_slot_idle_that_a_job_could_use(snapshot: Snapshot, rules: Rules) -> None:
    after, decisions = settle(snapshot, make_eager(rules), rounds=250)
    check_places(after, decisions)
    for job in after.jobs:
        decision = decisions.of(job.id)
        assert len(decision.slots) == decision.wanted, decision
    ceilings = {queue.name for queue in after.queues if queue.ceiling is not None}
    nodes = {node.name: node for node in after.nodes}
    free = [slot for slot in after.slots if slot.usable and slot.holder is None]
    kinds = {kind_of(nodes.get(slot.node), slot) for slot in after.slots}
    for job in after.jobs:
        decision = decisions.of(job.id)
        larger = next_size(job, decision.wanted)
        # Which kind of machine a job waits for is not said, and its GPUs may be missing there.
        needs_gpus = job.gpu_type is not None or job.gpus_per_worker > 1
        known = decision.machine_kind is not None or (len(kinds) == 1 and not needs_gpus)
        if job.queue in ceilings or larger is None or not known:
            continue
        suits = Counter(
            slot.node
            for slot in free
            if kind_of(nodes.get(slot.node), slot) == (decision.machine_kind or min(kinds))
            and can_run(slot.node, nodes[slot.node], job)
        )
        each = job.gpus_per_worker
        assert sum(number // each * each for number in suits.values()) < larger - decision.wanted, decision


def refusing(job: JobDemand, nodes: str) -> JobDemand:
    return msgspec.structs.replace(job, refusals={f"n{number}": "no data" for number in nodes})


def test_a_minimum_that_cannot_be_placed_takes_no_slots_from_others() -> None:
    """j7 needs 6 of the 8 slots of n3 to n5, beside j2 and j4, which can use few others. It waits, and the others rest.

    In some places of j6 it first won its minimum from j0, j5 and j9, and they paused for nothing, without end.
    """
    jobs = (
        refusing(make_job("ann/j1", 3, at=1.0, num_micro_batches=8), "035"),
        refusing(make_job("cleo/j2", 8, at=1.0, min_workers=5), "015"),
        refusing(make_job("ann/j4", 1), "0124"),
        refusing(make_job("cleo/j5", 5, at=3.0, num_micro_batches=6), "134"),
        refusing(make_job("cleo/j6", 3, at=2.0, priority=1000), "245"),
        refusing(make_job("cleo/j7", 9, at=1.0, elastic=False, num_micro_batches=6), "012"),
        refusing(make_job("cleo/j8", 6, at=2.0, elastic=False, num_micro_batches=8), "34"),
        refusing(make_job("ann/j9", 7, at=1.0, min_workers=2, num_micro_batches=4), "13"),
    )
    slots = tuple(
        Slot(id=f"n{node}/{index}", node=f"n{node}", device="GPU-1", gpu_type="A100")
        for node, number in enumerate((1, 3, 3, 4, 1, 3))
        for index in range(number)
    )
    nodes = tuple(Node(name=f"n{node}") for node in range(6))
    rules = msgspec.structs.replace(EAGER, policy=Policy.THROUGHPUT, fair_by=FairBy.JOB)
    _, decisions = settle(Snapshot(now=0.0, slots=slots, jobs=jobs, nodes=nodes), rules)
    assert wanted(decisions)["j7"] == 0 and wanted(decisions)["j2"] == 5


@for_any(mixed_snapshots() | mixed_snapshots(owned=True), any_rules(), st.integers(0, 1000), st.booleans())
def test_no_job_waits_for_a_slot_that_another_could_leave(
    snapshot: Snapshot, rules: Rules, seed: int, plain: bool
) -> None:
    """It could leave the slot for another one, or because it is above its minimum and does not come before."""
    rules = make_eager(rules)
    nodes = tuple(msgspec.structs.replace(node, kind="") for node in snapshot.nodes)
    slots = tuple(msgspec.structs.replace(slot, device="GPU-1", gpu_type="A100") for slot in snapshot.slots)
    changes = {"gpu_type": None} | ({"gpus_per_worker": 1} if plain else {})
    jobs = tuple(msgspec.structs.replace(job, **changes) for job in snapshot.jobs)
    snapshot = msgspec.structs.replace(snapshot, nodes=nodes, slots=slots, jobs=jobs)
    *_, (last, _) = live(snapshot, rules, seed)
    after, decisions = settle(last, rules, rounds=250)
    by_name = {node.name: node for node in nodes}
    of = {job.id: job for job in after.jobs}

    def suits(job: JobDemand, slot: Slot) -> bool:
        return slot.usable and can_run(slot.node, by_name[slot.node], job)

    is_fair = rules.policy is Policy.FAIR and not any(queue.floor or queue.ceiling for queue in after.queues)
    free = [slot for slot in after.slots if slot.holder is None]
    for job in after.jobs:
        has_ceiling = any(queue.ceiling is not None for queue in after.queues if queue.name == job.queue)
        if decisions.of(job.id).slots or smallest_size(job) > 1 or has_ceiling:
            continue
        for slot in after.slots:
            if not suits(job, slot):
                continue
            assert slot.holder is not None, decisions.of(job.id)
            other = of[slot.holder]
            if other.elastic and other.gpus_per_worker == 1:
                assert not any(suits(other, idle) for idle in free), (job.id, other.id, slot.id)
                has_more = len(decisions.of(other.id).slots) > smallest_size(other)
                assert not (is_fair and has_more), (job.id, other.id, slot.id)


@for_any(mixed_snapshots() | mixed_snapshots(owned=True), any_rules(), st.integers(0, 1000))
def test_a_decision_repeated_on_its_own_result_changes_nothing(snapshot: Snapshot, rules: Rules, seed: int) -> None:
    *_, (last, _) = live(snapshot, rules, seed)
    after, decisions = settle(last, make_eager(rules), rounds=250)
    for _ in range(3):
        after = carry_out(after, decisions, after_s=100.0)
        again = decide(after, make_eager(rules))
        assert [each.slots for each in again.decisions] == [each.slots for each in decisions.decisions]
        assert wanted(again) == wanted(decisions)


@for_any(
    mixed_snapshots() | mixed_snapshots(owned=True),
    any_rules(),
    st.integers(0, 1000),
    st.randoms(use_true_random=False),
)
def test_the_order_of_the_input_does_not_matter(
    snapshot: Snapshot, rules: Rules, seed: int, source: random.Random
) -> None:
    *_, (snapshot, _) = live(snapshot, rules, seed)
    mixed = {name: list(getattr(snapshot, name)) for name in ("slots", "jobs", "queues", "nodes")}
    for things in mixed.values():
        source.shuffle(things)
    shuffled = Snapshot(now=snapshot.now, **{name: tuple(things) for name, things in mixed.items()})
    assert decide(shuffled, rules) == decide(snapshot, rules)


@for_any(mixed_snapshots() | mixed_snapshots(owned=True), any_rules())
def test_a_new_job_that_fits_on_one_node_is_on_one_node(snapshot: Snapshot, rules: Rules) -> None:
    if not snapshot.jobs:
        return
    *others, new = snapshot.jobs
    rest, _ = settle(msgspec.structs.replace(snapshot, jobs=tuple(others)), make_eager(rules), rounds=250)
    before = {slot.id for slot in rest.slots if slot.holder is None and slot.usable}
    decisions = decide(with_job(rest, new), make_eager(rules))
    decision = decisions.of(new.id)
    if decision.kind is not DecisionKind.START or any(
        other.kind not in (DecisionKind.KEEP, DecisionKind.WAIT)
        for other in decisions.decisions
        if other is not decision
    ):
        return
    nodes = {node.name: node for node in rest.nodes}
    free = Counter(
        slot.node
        for slot in rest.slots
        if slot.id in before
        and kind_of(nodes.get(slot.node), slot) == decision.machine_kind
        and can_run(slot.node, nodes[slot.node], new)
    )
    if any(nodes[node].labels.get(OWNER_LABEL) == new.owner for node in free):
        return  # It uses these first.
    used = {name.partition("/")[0] for name in decision.slots}
    fitting = [number for number in free.values() if number >= len(decision.slots)]
    if fitting:
        assert len(used) == 1
        assert free[used.pop()] == min(fitting)


@for_any(mixed_snapshots() | mixed_snapshots(owned=True), any_rules())
def test_ceilings_hold_over_all_kinds(snapshot: Snapshot, rules: Rules) -> None:
    used: Counter[str] = Counter()
    sizes = wanted(decide(snapshot, rules))
    for job in snapshot.jobs:
        used[job.queue] += sizes[job.id]
    for queue in snapshot.queues:
        assert queue.ceiling is None or used[queue.name] <= queue.ceiling
