"""Compares every part of a reason with the snapshot, the rules and the decisions: who, how many, and by which rule."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection
from typing import Final

from tests.unit.policy.sentences import Part, read, read_names
from tests.unit.policy.true_places import PlaceChecks

from legato.policy.curves import find_doubt, find_gain, find_ratio, is_measured
from legato.policy.policies import decide_by_kind
from legato.policy.rules import FairBy, Policy, Rules
from legato.policy.sizes import fit_size, largest_size, next_size, smallest_size
from legato.policy.snapshot import Decision, DecisionKind, Decisions, JobDemand, Slot, Snapshot, Standing

_KINDS: Final = {
    "start": DecisionKind.START,
    "grow": DecisionKind.GROW,
    "shrink": DecisionKind.SHRINK,
    "pause": DecisionKind.PAUSE,
    "keep": DecisionKind.KEEP,
    "wait": DecisionKind.WAIT,
}


class Truth:
    """What is true of one decision on a pool."""

    def __init__(self, snapshot: Snapshot, rules: Rules, decisions: Decisions) -> None:
        self.snapshot, self.rules, self.decisions = snapshot, rules, decisions
        self.by_title = {job.title: job for job in snapshot.jobs}
        self.of = {decision.job: decision for decision in decisions.decisions}
        self.wanted = {decision.job: decision.wanted for decision in decisions.decisions}
        self.queues = {queue.name: queue for queue in snapshot.queues}
        self.levels = {(level.queue, level.user): level.level for level in decisions.use_levels}
        self.by_user = (
            rules.policy.is_fair and rules.fair_by is FairBy.USER and len({job.owner for job in snapshot.jobs}) > 1
        )
        pools, _ = decide_by_kind(snapshot, rules)
        self.num_kinds = len(pools)
        self.kind_of: dict[str, int] = {}
        self.capacity: list[int] = []
        self.held: dict[str, int] = {}
        for index, pool in enumerate(pools):
            self.capacity.append(pool.capacity)
            for claim in pool.claims:
                self.kind_of[claim.job.id] = index
                self.held[claim.job.id] = claim.held
        self.nodes_of: list[dict[str, list[Slot]]] = [{} for _ in pools]
        kinds = {pool.kind: index for index, pool in enumerate(pools)}
        nodes = {node.name: node for node in snapshot.nodes}
        for slot in snapshot.slots:
            node = nodes.get(slot.node)
            kind = f"{'' if node is None else node.kind}/{'cpu' if slot.device == 'cpu' else slot.gpu_type}"
            index = kinds[kind] if len(pools) > 1 else 0
            self.nodes_of[index].setdefault(slot.node, []).append(slot)

    def admitted(self, kind: int) -> list[JobDemand]:
        """Return the jobs of a kind of machine that have a share."""
        return [job for job in self.snapshot.jobs if self.kind_of[job.id] == kind and self.wanted[job.id]]

    def slots_of(self, job: JobDemand) -> list[Slot]:
        """Return the slots that a job had, as far as it was not asked to give them back."""
        return [slot for slot in self.snapshot.slots if slot.holder == job.id and not slot.leaving]

    def freeing(self) -> set[str]:
        """Return the jobs that are giving slots back, or that are asked to do so now."""
        found = {slot.holder for slot in self.snapshot.slots if slot.leaving and slot.holder is not None}
        return {job for job in found if job in self.of} | {
            job.id
            for job in self.snapshot.jobs
            if len(self.of[job.id].slots) < len(self.slots_of(job)) or self.of[job.id].kind is DecisionKind.PAUSE
        }

    def check_all(self) -> set[str]:
        """Check the reasons of all jobs; return which rules of the grammar they follow."""
        used: set[str] = set()
        for job in self.snapshot.jobs:
            tree = read(self.of[job.id].reason)
            try:
                _Check(self, job, tree).run()
            except AssertionError as error:
                raise AssertionError(f"{job.title}: {self.of[job.id].reason!r}: {error}") from error
            used |= {part.rule for part in tree.walk()}
        return used


class _Check(PlaceChecks):
    """Checks the reason of one job."""

    def __init__(self, truth: Truth, job: JobDemand, tree: Part) -> None:
        self._truth, self._job, self._tree = truth, job, tree
        self._decision: Decision = truth.of[job.id]
        self._kind = truth.kind_of[job.id]
        self._held = truth.held[job.id]
        self._had = len(truth.slots_of(job))
        self._wanted = self._decision.wanted
        self._named: set[str] = set()

    def run(self) -> None:
        for part in self._tree.walk():
            check = getattr(self, f"see_{part.rule}", None)
            if check is not None:
                check(part)
        because = set(self._decision.because)
        assert self._named - {self._job.id} <= because or len(because) == 5, (self._named, because)

    # ------------------------------------------------------------ help

    def _jobs(self, part: Part, number: int | None = None, *, most: int | None = None) -> list[JobDemand]:
        """Return the jobs that are named; with those that are counted there are so many, or at most so many."""
        titles, counted = read_names(part.text)
        jobs = [self._truth.by_title[title] for title in titles]
        assert len(set(titles)) == len(titles), "a job is named twice"
        assert self._job not in jobs, "a job is named in its own reason"
        assert number is None or counted == number, (part.text, number)
        assert most is None or counted <= most, (part.text, most)
        self._named |= {job.id for job in jobs}
        return jobs

    def _same_kind(self) -> list[JobDemand]:
        return self._truth.admitted(self._kind)

    def _inside(self) -> list[JobDemand]:
        return [job for job in self._same_kind() if job.queue == self._job.queue]

    def _gains(self, job: JobDemand) -> bool:
        return self._truth.wanted[job.id] > self._truth.held[job.id]

    def _could_use_more(self, job: JobDemand) -> bool:
        return self._truth.wanted[job.id] < largest_size(job)

    def _users(self) -> Counter[str]:
        """Return the slots of the users of the job's queue that have some."""
        totals: Counter[str] = Counter()
        for job in self._inside():
            totals[job.owner] += self._truth.wanted[job.id]
        return totals

    # ------------------------------------------------------------ what happens

    def see_reason(self, part: Part) -> None:
        kind = next(kind for name, kind in _KINDS.items() if part.has(name))
        assert kind is self._decision.kind
        size = len(self._decision.slots)
        assert (kind is DecisionKind.START) == (self._had == 0 and size > 0)
        assert (kind is DecisionKind.GROW) == (size > self._had > 0)
        assert (kind is DecisionKind.SHRINK) == (self._had > size > 0)
        assert (kind is DecisionKind.PAUSE) == (self._had > size == 0)

    def see_moves(self, part: Part) -> None:
        had, has = {slot.id for slot in self._truth.slots_of(self._job)}, set(self._decision.slots)
        old, new = (set(part.parts[name].text.split(", ")) for name in ("old", "new"))
        assert old <= had - has and new <= has - had
        assert all(self._gains(job) for job in self._jobs(part.parts["gainers"]))

    def see_start(self, part: Part) -> None:
        assert part.has("resumes") == (self._job.standing is Standing.PAUSED)
        self._check_way(part)
        if part.has("warning"):
            kinds = {self._truth.of[job].machine_kind for job in self._truth.of}
            assert self._job.machine_kind is not None and self._job.machine_kind not in kinds

    def _check_way(self, part: Part) -> None:
        size = len(self._decision.slots)
        assert part.has("way") == (size < self._wanted) and size <= self._wanted
        if part.has("way"):
            assert part.parts["way"].number("to") == self._wanted

    def see_grow(self, part: Part) -> None:
        assert (part.number("had"), part.number("size")) == (self._had, len(self._decision.slots))
        self._check_way(part)

    def see_shrink(self, part: Part) -> None:
        assert (part.number("had"), part.number("size")) == (self._had, len(self._decision.slots))

    def see_pause(self, part: Part) -> None:
        assert part.number("least") == smallest_size(self._job)
        slots = self._truth.slots_of(self._job)
        can_save = any(slot.usable or slot.node not in self._job.lost_nodes for slot in slots)
        assert part.has("saved") == can_save
        assert part.has("lease") == part.has("after")

    # ------------------------------------------------------------ losses

    def see_keep(self, part: Part) -> None:
        size = len(self._decision.slots)
        assert size == self._had
        assert part.has("new") == (size > self._held)
        if part.has("new"):
            assert part.number("new") == size - self._held
            self._check_way(part)

    def see_replaced(self, part: Part) -> None:
        self.see_losses(part)

    def see_losses(self, part: Part) -> None:
        slots = self._truth.slots_of(self._job)
        unusable = [slot for slot in slots if not slot.usable]
        assert part.has("lost") == bool(unusable)
        if part.has("lost"):
            assert _read_its(part.parts["lost"]) == len(unusable)
            why = {slot.node: slot.trouble or "down or drained" for slot in unusable}
            told = part.parts["lost"].parts["lost_nodes"].text
            told, more = re.sub(r" and \d+ more$", "", told), re.search(r" and (\d+) more$", told)
            found = dict(re.findall(r"(\w+) \(([^()]+)\)", told))
            assert found.items() <= why.items() and len(found) + int(more[1] if more else 0) == len(why)
        strayed = self._had - self._held - len(unusable)
        assert part.has("strayed") == (strayed > 0)
        if part.has("strayed"):
            assert _read_its(part.parts["strayed"]) == strayed
            assert part.parts["strayed"].has("other_kind") == (self._job.gpus_per_worker == 1)

    def see_gainer(self, part: Part) -> None:
        gainer = self._truth.by_title[part.parts["title"].text]
        self._named.add(gainer.id)
        assert gainer is not self._job and self._gains(gainer)
        held, wanted = self._truth.held[gainer.id], self._truth.wanted[gainer.id]
        does = part.parts["does"]
        paused = gainer.standing is Standing.PAUSED
        assert does.has("does_resume") == (not held and paused)
        assert does.has("does_submit") == (not held and not paused and gainer.wanted is None)
        assert does.has("does_wait") == (not held and not paused and gainer.wanted is not None)
        assert does.has("does_recover") == (0 < held < smallest_size(gainer))
        if does.has("does_grow"):
            assert does.parts["does_grow"].number("to") == wanted
        if part.has("others"):
            gaining = [job for job in self._truth.snapshot.jobs if self._gains(job)]
            others = self._jobs(part.parts["others"], most=len(gaining) - 1)
            assert gainer not in others and all(self._gains(job) for job in others)
        self._check_relation(part.parts["relation"], gainer)

    def _check_relation(self, part: Part, gainer: JobDemand) -> None:
        truth, job, policy = self._truth, self._job, self._truth.rules.policy
        (rule,) = part.parts.values()
        wanted, priority = truth.wanted[gainer.id], rule.number("priority", gainer.priority)
        assert priority == gainer.priority
        match rule.rule:
            case "queue_entitled":
                assert rule.parts["queue"].text == gainer.queue != job.queue
                if not policy.is_fair:
                    inside = [each for each in self._same_kind() if each.queue == gainer.queue]
                    floor = truth.queues[gainer.queue].floor if gainer.queue in truth.queues else 0
                    assert sum(truth.wanted[each.id] for each in inside) <= floor
            case "user_entitled":
                assert truth.by_user and rule.parts["user"].text == gainer.owner != job.owner
                assert gainer.queue == job.queue
                assert rule.number("total") == self._users()[gainer.owner]
            case "comes_first":
                assert policy is Policy.FIFO
                assert (gainer.submitted_at, gainer.id) < (job.submitted_at, job.id)
            case "can_use":
                assert policy is Policy.FIFO
            case "behind":
                assert policy.is_fair and truth.of[gainer.id].behind > self._decision.behind
            case "by_speed":
                assert policy is Policy.THROUGHPUT
                assert rule.has("priority") == (gainer.priority != job.priority)
            case "same_weight":
                assert policy.is_fair and gainer.priority == job.priority
            case "same_priority":
                assert policy is Policy.PRIORITY and gainer.priority == job.priority
            case "higher":
                assert policy is not Policy.FIFO and gainer.priority > job.priority
            case "entitled":
                assert policy is not Policy.FIFO and gainer.priority < job.priority
                assert rule.number("total") == wanted
            case "measures":
                trial = truth.of[gainer.id].trial
                assert policy is Policy.THROUGHPUT and trial is not None and trial.tried == wanted > trial.usual
                assert (gainer.queue, gainer.owner if truth.by_user else "") == (
                    job.queue,
                    job.owner if truth.by_user else "",
                )
            case "goes_first":
                assert rule.parts["late"].text == job.title
                self._check_long(job, rule.parts["early"])
            case "long_entitled":
                assert self._is_long(gainer) and rule.number("total") == wanted
            case _:
                raise AssertionError(rule.rule)

    def _is_long(self, job: JobDemand) -> bool:
        rules = self._truth.rules
        return rules.policy.is_fair and rules.long_job_slot_s is not None and job.used_slot_s >= rules.long_job_slot_s

    def _check_long(self, late: JobDemand, early: Part) -> None:
        """Check that both are long jobs which share with one another, in this order."""
        first = self._truth.by_title[early.text]
        assert first is not late and self._is_long(late) and self._is_long(first)
        assert first.queue == late.queue and (first.owner == late.owner or not self._truth.by_user)
        assert self._truth.kind_of[first.id] == self._truth.kind_of[late.id]
        before, after = ((-job.priority, job.submitted_at, job.id) for job in (first, late))
        assert before < after

    def see_long_job(self, part: Part) -> None:
        self._named.add(self._truth.by_title[part.parts["early"].text].id)
        self._check_long(self._job, part.parts["early"])

    def see_too_few(self, part: Part) -> None:
        assert part.number("left", 1) == self._held < part.number("least") == smallest_size(self._job)
        assert not self._wanted

    def see_maximum_is(self, part: Part) -> None:
        assert part.number("most") == self._job.max_workers
        assert self._held > self._job.max_slots

    # ------------------------------------------------------------ waits

    def see_needs(self, part: Part) -> None:
        assert part.number("least") == smallest_size(self._job)
        assert part.text.endswith("at once") == (part.number("least") > 1)

    def see_cannot_place(self, part: Part) -> None:
        assert not self._wanted

    def see_pool_too_small(self, part: Part) -> None:
        assert part.number("has") == self._truth.capacity[self._kind] < smallest_size(self._job)

    def see_on_the_way(self, part: Part) -> None:
        assert part.text == self._job.coming
        assert self._job.num_coming > 0

    def see_whole(self, part: Part) -> None:
        others = any(
            slot.usable
            for index, nodes in enumerate(self._truth.nodes_of)
            if index != self._kind
            for slots in nodes.values()
            for slot in slots
        )
        assert part.has("of_kind") == others

    def see_ceiling_too_low(self, part: Part) -> None:
        queue = self._truth.queues[part.parts["queue"].text]
        assert queue.name == self._job.queue
        assert part.number("has") == queue.ceiling and queue.ceiling < smallest_size(self._job)

    def see_reserved(self, part: Part) -> None:
        keeper = self._truth.by_title[part.parts["title"].text]
        self._named.add(keeper.id)
        limit_s = self._truth.rules.reserve_after_s
        assert keeper is not self._job and not self._truth.wanted[keeper.id]
        assert limit_s is not None and self._truth.snapshot.now - keeper.submitted_at >= limit_s
        assert part.has("waited") == (keeper.submitted_at < self._job.submitted_at)

    def see_user_full(self, part: Part) -> None:
        totals = self._users()
        assert part.parts["user"].text == self._job.owner
        assert part.number("total") == totals[self._job.owner]
        assert part.has("queue") == (len({job.queue for job in self._same_kind()}) > 1)
        if part.has("queue"):
            assert part.parts["queue"].text == self._job.queue
        if part.has("left"):
            assert set(totals) == {self._job.owner}
            assert part.number("left") < smallest_size(self._job)

    def see_queue_rivals(self, part: Part) -> None:
        queue = self._truth.queues[part.parts["queue"].text]
        assert queue.name == self._job.queue and queue.ceiling is not None
        if part.parts["rivals"].has("first"):
            rivals = self._jobs(part.parts["rivals"].parts["first"], most=len(self._inside()))
            assert all(rival in self._inside() for rival in rivals)
        self._check_rivals(part.parts["rivals"])

    def see_pool_rivals(self, part: Part) -> None:
        self._check_rivals(part.parts["rivals"])

    def _check_rivals(self, part: Part) -> None:
        if part.has("first"):
            rivals = self._jobs(part.parts["first"], most=len(self._same_kind()))
            for rival in rivals:
                assert rival in self._same_kind()
                if self._truth.rules.policy is Policy.FIFO:
                    assert (rival.submitted_at, rival.id) < (self._job.submitted_at, self._job.id)
                elif self._truth.rules.policy is Policy.PRIORITY:
                    assert rival.priority >= self._job.priority
        elif part.has("for_floors"):
            self.see_floors(part)
        else:
            assert self._is_elsewhere()
        if part.has("kept"):
            kept = part.parts["kept"]
            assert kept.number("kept") + kept.number("missing") == smallest_size(self._job)
            used = sum(self._truth.wanted[job.id] for job in self._same_kind())
            lent = max(kept.number("kept") - self._truth.capacity[self._kind] + used, 0)
            told = kept.parts["lent"].number("part", kept.number("kept")) if kept.has("lent") else 0
            assert told == lent
        else:
            assert part.parts["spare"].number("left", 0) < smallest_size(self._job)

    def see_floors(self, part: Part) -> None:
        """Other queues have floors."""
        assert any(queue.floor for queue in self._truth.queues.values() if queue.name != self._job.queue)

    def _is_elsewhere(self) -> bool:
        """Whether jobs of the queue are on another kind of machine."""
        return any(job.queue == self._job.queue and not self._is_beside(job) for job in self._truth.snapshot.jobs)

    def see_waits_for_lease(self, part: Part) -> None:
        assert part.number("target") == self._wanted and self._job.lost_nodes

    def see_own_leaving(self, part: Part) -> None:
        own = [slot for slot in self._truth.snapshot.slots if slot.holder == self._job.id and slot.usable]
        assert part.number("leaving") == len(own)

    def see_coming(self, part: Part) -> None:
        assert part.number("target", smallest_size(self._job)) == self._wanted
        free, freed, later = part.number("free"), 0, 0
        idle = [slot for slot in self._truth.snapshot.slots if slot.usable and slot.holder is None and not slot.leaving]
        assert free <= len(idle)
        if part.has("freed"):
            freed = part.parts["freed"].number("number")
            self._check_freers(part.parts["freed"])
        if part.has("later"):
            later = part.parts["later"].number("number")
            busy = [
                job
                for job in self._truth.snapshot.jobs
                if job.standing is Standing.RESIZING and self._truth.wanted[job.id] < self._truth.held[job.id]
            ]
            assert busy
            if part.parts["later"].has("leased"):
                assert all(job in busy for job in self._jobs(part.parts["later"].parts["leased"], most=len(busy)))
        assert free + freed + later == self._wanted
        if part.has("unplaced"):
            assert ("it does" in part.parts["unplaced"].text) == (free == 1)

    def _check_freers(self, part: Part) -> None:
        freeing = self._truth.freeing()
        if part.has("ended"):
            known = {job.id for job in self._truth.snapshot.jobs}
            gone = [slot for slot in self._truth.snapshot.slots if slot.holder is not None and slot.holder not in known]
            assert gone
        if part.has("freers"):
            freers = self._jobs(part.parts["freers"], most=len(freeing))
            assert {job.id for job in freers} <= freeing

    def see_lease(self, part: Part) -> None:
        lost = {node for job in self._truth.snapshot.jobs for node in job.lost_nodes}
        assert part.parts["node"].text in lost if part.has("node") else len(lost) > 1

    # ------------------------------------------------------------ keeps

    def see_of(self, part: Part) -> None:
        assert part.number("size") == len(self._decision.slots)
        if part.has("most"):
            assert part.number("most") == self._job.max_slots
            assert ("up to" in part.text) == self._job.elastic
        else:
            assert not self._job.elastic and part.number("size") == self._job.max_slots

    def see_misfit(self, part: Part) -> None:
        assert not self._wanted and self._held
        assert not any(self._gains(job) for job in self._truth.snapshot.jobs if self._is_beside(job))

    def see_until_first(self, part: Part) -> None:
        gaining = [job for job in self._truth.snapshot.jobs if self._gains(job) and self._is_beside(job)]
        assert not self._wanted and set(map(id, self._jobs(part.parts["first"], len(gaining)))) <= set(map(id, gaining))

    def see_frozen(self, part: Part) -> None:
        assert self._job.standing is Standing.RESIZING
        assert part.number("target") == self._wanted != self._held
        assert ("grows" in part.text) == (self._wanted > self._held)
        if part.has("lease"):
            assert self._job.lost_nodes

    def see_surplus(self, part: Part) -> None:
        assert part.number("over") == self._held - self._wanted
        if not part.has("number"):
            assert self._could_use_more(self._job)
        if part.has("queue"):
            queue = self._truth.queues[part.parts["queue"].text]
            assert (queue.name, queue.ceiling) == (self._job.queue, part.number("ceiling"))

    def see_will_grow(self, part: Part) -> None:
        assert part.number("target") == self._wanted > len(self._decision.slots) == self._held
        if part.has("freeing"):
            self._check_freers(part.parts["freeing"])
        if part.has("leased"):
            assert all(
                self._truth.wanted[job.id] < self._truth.held[job.id] for job in self._jobs(part.parts["leased"])
            )

    def see_when(self, part: Part) -> None:
        rules, now, job = self._truth.rules, self._truth.snapshot.now, self._job
        if part.has("wait"):
            wait_s = rules.cooldown_factor * (job.resize_cost_s or 0.0)
            assert float(part.parts["wait"].text) == wait_s
            assert float(part.parts["times"].text) == rules.cooldown_factor
            assert job.last_resized_at is not None and job.last_resized_at + wait_s > now
        else:
            assert float(part.parts["stability"].text) == rules.stability_s
            assert self._decision.wanted_since is not None and self._decision.wanted_since + rules.stability_s > now

    # ------------------------------------------------------------ numbers

    @property
    def _num_workers(self) -> int:
        return self._wanted // self._job.gpus_per_worker

    def see_at_maximum(self, part: Part) -> None:
        assert self._wanted == self._job.max_slots and self._job.elastic

    def see_all_needed(self, part: Part) -> None:
        assert self._wanted == self._job.max_slots and not self._job.elastic

    def see_few_micro_batches(self, part: Part) -> None:
        assert part.number("total") == self._job.num_micro_batches == self._num_workers
        least = self._job.min_workers if self._job.elastic else self._job.max_workers
        assert part.has("below_minimum") == (least > self._num_workers)
        if part.has("below_minimum"):
            assert part.parts["below_minimum"].number("least") == least

    def see_slower(self, part: Part) -> None:
        slowdown = self._job.slowdown
        assert slowdown is not None
        assert (part.number("slower"), part.number("best")) == (slowdown.slower, slowdown.best)
        assert self._num_workers <= slowdown.most
        is_earlier = [number in self._job.earlier for number in (slowdown.slower, slowdown.best)]
        assert (part.has("earlier"), part.has("own_best")) == (is_earlier[0], is_earlier == [True, False])

    def see_tries(self, part: Part) -> None:
        partner = self._truth.by_title[part.parts["partner"].text]
        self._named.add(partner.id)
        mine, theirs = self._decision.trial, self._truth.of[partner.id].trial
        assert mine is not None and theirs is not None and self._truth.rules.policy is Policy.THROUGHPUT
        assert (mine.partner, theirs.partner) == (partner.id, self._job.id)
        assert (mine.tried, theirs.tried) == (self._wanted, self._truth.wanted[partner.id])
        assert part.number("mine") == self._num_workers
        assert part.number("theirs") == theirs.tried // partner.gpus_per_worker
        assert mine.tried + theirs.tried == mine.usual + theirs.usual

    def see_useless(self, part: Part) -> None:
        total, first = self._job.num_micro_batches, part.number("first")
        assert total is not None and part.number("total") == total and not self._job.shares_freely
        assert part.number("has") == self._num_workers == first - 1
        last = part.number("last", first)
        rounds = -(-total // self._num_workers)
        assert all(-(-total // number) == rounds for number in range(first, last + 1))
        assert last == self._job.max_workers or -(-total // (last + 1)) < rounds

    def see_all_slots(self, part: Part) -> None:
        assert self._wanted == self._truth.capacity[self._kind]

    def _ceiling(self, name: str) -> int:
        assert name == self._job.queue
        ceiling = self._truth.queues[name].ceiling
        assert ceiling is not None
        used = sum(self._truth.wanted[job.id] for job in self._truth.snapshot.jobs if job.queue == name)
        larger = next_size(self._job, self._wanted)
        if self._truth.num_kinds == 1:
            assert larger is not None and used + larger - self._wanted > ceiling
        return ceiling

    def see_queue_ceiling(self, part: Part) -> None:
        assert part.number("ceiling") == self._ceiling(part.parts["queue"].text)
        assert self._inside() == [self._job]

    def see_queue_share(self, part: Part) -> None:
        assert part.parts["queue"].text == self._job.queue
        self._check_beside(part)

    def see_queue_rest(self, part: Part) -> None:
        self._check_beside(part)
        others = [job for job in self._same_kind() if job.queue != self._job.queue]
        assert all(self._truth.wanted[job.id] == smallest_size(job) for job in others)
        has = sum(self._truth.wanted[job.id] for job in others) + self._wanted
        assert has == self._truth.capacity[self._kind]

    def _check_beside(self, part: Part) -> None:
        """Check the other queues beside the only job of a queue."""
        assert self._truth.rules.policy.is_fair and self._inside() == [self._job]
        others = {job.queue for job in self._same_kind()} - {self._job.queue}
        assert part.number("number", 1) == len(others)
        assert not part.has("other") or {part.parts["other"].text} == others

    def see_order_share(self, part: Part) -> None:
        assert part.number("ceiling") == self._ceiling(part.parts["queue"].text)
        assert ("by priority" in part.text) == (self._truth.rules.policy is Policy.PRIORITY)
        inside = self._inside()
        assert all(job in inside for job in self._jobs(part.parts["others"], len(inside) - 1))

    def see_left_by(self, part: Part) -> None:
        job, policy = self._job, self._truth.rules.policy
        peers: list[JobDemand] = []
        if policy is Policy.PRIORITY:
            peers = self._peers()
            before = [each for each in self._same_kind() if each.priority > job.priority]
        else:
            before = [each for each in self._same_kind() if (each.submitted_at, each.id) < (job.submitted_at, job.id)]
        assert part.has("first") == bool(before)
        if before:
            assert part.has("a_higher") == (policy is Policy.PRIORITY) != part.has("submitted")
            assert all(each in before for each in self._jobs(part.parts["first"], len(before)))
        # All of these together have all slots, apart from floors and from less than a worker.
        used = sum(self._truth.wanted[each.id] for each in (*before, *peers, job))
        assert part.has("floors") == (used + job.gpus_per_worker <= self._truth.capacity[self._kind])

    def see_among(self, part: Part) -> None:
        if part.has("own"):
            assert part.parts["own"].text == self._job.queue
            assert part.number("size") == sum(self._truth.wanted[job.id] for job in self._inside())
        else:
            assert part.number("size") == self._ceiling(part.parts["limited"].text)

    # ------------------------------------------------------------ shares with jobs

    def _peers(self) -> list[JobDemand]:
        """Return the jobs among which a job shares, without it."""
        inside = self._inside()
        if self._truth.by_user and len(self._users()) > 1:
            inside = [job for job in inside if job.owner == self._job.owner]
        elif self._truth.rules.policy is Policy.PRIORITY:
            inside = [job for job in self._same_kind() if job.priority == self._job.priority]
        return [job for job in inside if job is not self._job]

    def see_job_minimum(self, part: Part) -> None:
        assert self._wanted == smallest_size(self._job) > 1
        peers = self._peers()
        assert all(job in peers for job in self._jobs(part.parts["others"], len(peers)))

    def see_shares(self, part: Part) -> None:
        self._check_sharers(part)
        assert part.has("speed") == (self._truth.rules.policy is Policy.THROUGHPUT)
        rivals = self._jobs(part.parts["rivals"])
        if any(map(self._is_long, (*self._peers(), self._job))):  # their weights are not their priorities
            return
        assert not part.has("by_weight")
        if part.has("equal"):
            assert all(rival.priority == self._job.priority for rival in rivals)
        if part.has("weighted"):
            assert part.parts["weighted"].number("priority") == self._job.priority
            assert any(peer.priority != self._job.priority for peer in self._peers())
        if part.has("by_queue"):
            assert self._truth.rules.policy is Policy.PRIORITY
            assert any(peer.queue != self._job.queue for peer in self._peers())
        elif not part.has("speed"):
            for rival in rivals:
                self._check_equality(rival)

    def _check_equality(self, rival: JobDemand) -> None:
        """Check that two jobs that share have numbers in proportion to their weights, within a slot."""
        if any(
            job.gpus_per_worker > 1 or not job.elastic or (job.num_micro_batches is not None and not job.shares_freely)
            for job in (*self._peers(), self._job)
        ):
            return
        mine, theirs = self._wanted, self._truth.wanted[rival.id]
        assert (theirs - 1) / rival.priority <= (mine + 1) / self._job.priority + 1e-9, "it has too few"

    def see_remains(self, part: Part) -> None:
        self._check_sharers(part)

    def _check_sharers(self, part: Part) -> None:
        peers, counted = self._peers(), 0
        for name in ("rivals", "leavers"):
            if part.has(name):
                jobs = self._jobs(part.parts[name])
                counted += read_names(part.parts[name].text)[1]
                assert all(job in peers for job in jobs), name
                if name == "rivals":
                    assert all(self._could_use_more(job) for job in jobs), "a rival can use no more"
        assert counted == len(peers), (counted, len(peers))

    def see_gains(self, part: Part) -> None:
        truth, job = self._truth, self._job
        rival = truth.by_title[part.parts["title"].text]
        self._named.add(rival.id)
        assert rival in self._peers() and truth.rules.policy is Policy.THROUGHPUT
        larger = next_size(job, self._wanted)
        assert larger is not None and (larger - self._wanted) // job.gpus_per_worker == part.number("more", 1)
        has = truth.wanted[rival.id]
        before = fit_size(rival, has - rival.gpus_per_worker)
        assert (has - before) // rival.gpus_per_worker == part.number("last", 1)
        mine = find_gain(job, find_ratio(job), self._wanted, larger)
        theirs = find_gain(rival, find_ratio(rival), before, has)
        assert (part.number("mine"), part.number("theirs")) == (_percent(mine), _percent(theirs))
        if rival.num_micro_batches is None:
            worth = job.priority * math.log(mine) / (larger - self._wanted)
            doubt = find_doubt(rival) * (rival.gpus_per_worker / before - rival.gpus_per_worker / has)
            kept = rival.priority * (1.1 * math.log(theirs) + doubt) / (has - before)
            assert kept >= worth - 1e-9
        assert part.has("priority") == (rival.priority != job.priority)
        assert part.number("priority", rival.priority) == rival.priority
        assert part.has("bound") != is_measured(job) and part.has("rival_bound") != is_measured(rival)

    # ------------------------------------------------------------ shares with users

    def see_of_user(self, part: Part) -> None:
        assert self._truth.by_user
        own = [job for job in self._inside() if job.owner == self._job.owner]
        assert len(self._users()) > 1
        assert part.has("by_peers") == (len(own) > 1)
        if part.has("user"):
            assert part.parts["user"].text == self._job.owner
            assert part.number("total") == self._users()[self._job.owner]

    def _named_users(self, part: Part, counted: list[int]) -> Collection[str]:
        users, number = read_names(part.text)
        counted.append(number)
        assert set(users) <= set(self._users()) - {self._job.owner}
        return users

    def see_lone_minimum(self, part: Part) -> None:
        assert self._wanted == smallest_size(self._job) + _read_more(part)
        self._check_users(part, [])

    def see_user_minimums(self, part: Part) -> None:
        own = [job for job in self._inside() if job.owner == self._job.owner]
        assert self._users()[self._job.owner] == sum(map(smallest_size, own)) + _read_more(part)
        self._check_users(part, [])

    def see_left_over(self, part: Part) -> None:
        self._check_users(part, [])

    def see_user_remains(self, part: Part) -> None:
        self._check_users(part, [])

    def see_user_equal(self, part: Part) -> None:
        counted: list[int] = []
        rivals = self._named_users(part.parts["rivals"], counted)
        levels = {user: self._truth.levels.get((self._job.queue, user), 0) for user in (*rivals, self._job.owner)}
        if part.has("weight"):
            assert part.parts["weight"].text == ("1", "1/2", "1/4")[levels[self._job.owner]]
        else:
            assert len(set(levels.values())) == 1
        self._check_users(part, counted)

    def see_alone(self, part: Part) -> None:
        self._check_equal_users(part)

    def see_user_share(self, part: Part) -> None:
        self._check_equal_users(part)

    def _check_equal_users(self, part: Part) -> None:
        """Check that users with an equal share have equally many slots, within one, if no job restricts that."""
        jobs = [job for job in self._truth.snapshot.jobs if job.queue == self._job.queue]
        if not part.has("user_equal") or part.parts["user_equal"].has("weight") or not all(map(_is_plain, jobs)):
            return
        totals = self._users()
        for user in read_names(part.parts["user_equal"].parts["rivals"].text)[0]:
            assert abs(totals[user] - totals[self._job.owner]) <= 1 + _read_more(part)

    def see_more(self, part: Part) -> None:
        assert 0 < part.number("more") < self._users()[self._job.owner]

    def _check_users(self, rule: Part, counted: list[int]) -> None:
        for name in ("leavers", "others"):
            if rule.has(name):
                self._named_users(rule.parts[name], counted)
        assert sum(counted) == len(self._users()) - 1


def _read_its(part: Part) -> int:
    found = re.match(r"\d+", part.parts["its"].text)
    return int(found[0]) if found else 1


def _is_plain(job: JobDemand) -> bool:
    """Whether a job can use any number of any slots."""
    is_free = job.num_micro_batches is None or job.shares_freely
    restricts = bool(job.labels or job.refusals or job.gpu_type or job.slowdown)
    return is_free and job.elastic and job.gpus_per_worker == 1 and smallest_size(job) == 1 and not restricts


def _read_more(part: Part) -> int:
    return part.parts["more"].number("more") if part.has("more") else 0


def _percent(gain: float) -> int:
    return round((gain - 1) * 100)
