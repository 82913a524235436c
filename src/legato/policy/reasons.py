"""Writes the kind and the reason of every decision, and names the jobs that cause it. Changes nothing.

A sentence stays the same while the situation does: it contains no elapsed or remaining time.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import islice

from legato.policy.causes import MAX_CAUSES, Cause, Causes, count, explain_trial, ids, list_some, names
from legato.policy.claims import Claim, Refusal, SortedSnapshot
from legato.policy.rules import Policy, Rules
from legato.policy.snapshot import DecisionKind, Standing


def choose_kind(claim: Claim) -> DecisionKind:
    """Name what happens to a job's number of slots."""
    if claim.size == claim.had:
        return DecisionKind.KEEP if claim.size else DecisionKind.WAIT
    if claim.size > claim.had:
        return DecisionKind.GROW if claim.had else DecisionKind.START
    return DecisionKind.SHRINK if claim.size else DecisionKind.PAUSE


class Explainer:
    """Explains why every job has the slots that it has.

    Args:
        pool: with sizes set.
        rules: the settings by which they were set.
    """

    def __init__(self, pool: SortedSnapshot, rules: Rules) -> None:
        self._pool = pool
        self._rules = rules
        self._causes = Causes(pool, rules)
        self._gaining = [claim for claim in pool.claims if claim.target > claim.held]
        # Number of slots above their share that jobs give back although no other job can use them.
        self._useless = _count_useless(pool)
        # Number of slots that no job gets.
        self._unused = pool.capacity - sum(claim.target for claim in pool.claims)
        # Jobs with too many slots that are not resized, because a worker of theirs may still run on a lost node.
        self._leased = [claim for claim in pool.claims if claim.target < claim.held and _describe_lease([claim])]
        self._lease = _describe_lease(self._leased)
        self._kept_for = _find_keepers(pool, rules)

    def explain(self, claim: Claim, kind: DecisionKind) -> Cause:
        """Return the sentence for a job."""
        cause = self._explain_number(claim, kind)
        if not claim.moves:
            return cause
        old = ", ".join(sorted(slot.id for left, _, _ in claim.moves for slot in left))
        new = ", ".join(sorted(slot.id for _, taken, _ in claim.moves for slot in taken))
        gainers = list({gainer.job.id: gainer for _, _, gainer in claim.moves}.values())
        told = f"it moves from {old} to {new}, so that {names(gainers, len(gainers))} can use the former"
        because = dict.fromkeys((*ids(gainers), *cause.because))
        return Cause(f"{cause.text}; {told}", tuple(because)[:MAX_CAUSES])

    def _explain_number(self, claim: Claim, kind: DecisionKind) -> Cause:
        match kind:
            case DecisionKind.KEEP:
                return self._explain_kept(claim)
            case DecisionKind.START | DecisionKind.GROW:
                return self._explain_gain(claim, kind)
            case DecisionKind.SHRINK | DecisionKind.PAUSE:
                return self._explain_loss(claim, kind)
            case DecisionKind.WAIT:
                cause = self._explain_refusal(claim) if claim.refusal is not None else self._explain_coming(claim)
                return Cause(f"waits: {cause.text}", cause.because)

    def find_ceiling(self, claim: Claim) -> int | None:
        """Return the ceiling that keeps a job from having more, None if none does."""
        return self._causes.find_ceiling(claim)

    # ------------------------------------------------------------ more

    def _explain_gain(self, claim: Claim, kind: DecisionKind) -> Cause:
        cause = self._causes.explain_number(claim)
        way = f", on the way to {claim.target}" if claim.size < claim.target else ""
        if kind is DecisionKind.GROW:
            return Cause(f"grows {claim.had} → {claim.size}{way}: {cause.text}", cause.because)
        begins = "resumes" if claim.job.standing == Standing.PAUSED else "starts"
        return Cause(f"{begins} with {_of(claim)}{way}: {cause.text}{self._warn_of_kind(claim)}", cause.because)

    def _warn_of_kind(self, claim: Claim) -> str:
        """Warn if a job continues on another kind of machine, because its own has been removed from the pool."""
        if claim.job.machine_kind in (None, self._pool.kind):
            return ""
        before, now = (claim.job.machine_kind or "/").rpartition("/"), self._pool.kind.rpartition("/")
        # An unknown kind or GPU model may be the same.
        if not any(known and known != present for known, present in zip(before, now, strict=True)):
            return ""
        return (
            "; it began on another kind of machine, of which the pool has no more, so its results may differ in the "
            "last bits"
        )

    # ------------------------------------------------------------ less

    def _explain_loss(self, claim: Claim, kind: DecisionKind) -> Cause:
        causes, because = _list_lost(claim), ids(claim.gives_to)
        gainers, partner = claim.gives_to, claim.tries_with
        if partner is not None and claim.size < claim.held:
            causes.append(explain_trial(claim, partner).text)
            others = [gainer for gainer in gainers if gainer is not partner]
            because = ids([partner, *others])
            if others:
                causes.append(self._explain_gainers(claim, others))
        elif gainers:
            causes.append(self._explain_gainers(claim, gainers))
        elif not claim.target and claim.held < claim.lo:
            rest = "one is" if claim.held == 1 else f"{claim.held} are"
            causes.append(f"{rest} left, fewer than the {claim.lo} that it needs")
        elif claim.size < claim.held:
            excess = self._explain_excess(claim)
            causes.append(excess.text)
            because = excess.because
        told = "; ".join(causes)
        if kind is DecisionKind.SHRINK:
            return Cause(f"shrinks {claim.had} → {claim.size}: {told}", because)
        resumes = f"it resumes when {_are(claim.lo)} available again"
        if lease := claim.awaits_lease and _describe_lease([claim]):
            resumes = f"{lease}, and {resumes} after that"
        how = "with a checkpoint" if _can_save(claim) else "without a new checkpoint"
        return Cause(f"pauses {how}: {told}; {resumes}", because)

    def _explain_excess(self, claim: Claim) -> Cause:
        """Explain why a job loses slots that no other job gets."""
        if claim.held > claim.job.max_slots:
            most = claim.job.max_workers
            return Cause(f"its maximum is {most} worker{'' if most == 1 else 's'}")
        if claim.refusal is not None:
            cause = self._explain_refusal(claim)
            return Cause(f"it {cause.text}", cause.because)
        return self._causes.explain_number(claim)

    def _explain_gainers(self, claim: Claim, gainers: Sequence[Claim]) -> str:
        gainer = gainers[0]
        if gainer.held == 0:
            does = "was submitted" if gainer.job.wanted is None else "waits"
            if gainer.job.standing == Standing.PAUSED:
                does = "resumes"
        elif gainer.held < gainer.lo:
            does = "has lost slots and is below its minimum"
        else:
            does = f"grows to {gainer.target}"
        also = len(gainers) - 1
        told = f"; so do{'es' if also == 1 else ''} {names(gainers[1:], also)}" if also else ""
        if gainer.held == 0 and gainer.job.standing != Standing.PAUSED and also:
            told = f"; also {names(gainers[1:], also)}"
        return f"{gainer.job.title} {does} and {self._relation(claim, gainer)}{told}"

    def _relation(self, claim: Claim, gainer: Claim) -> str:
        """Explain why one job gets the slots of another."""
        queue = gainer.job.queue
        if queue != claim.job.queue and (self._rules.policy.is_fair or self._causes.is_within_floor(queue)):
            return f"queue '{queue}' is entitled to them"
        if self._pool.by_user and gainer.job.owner != claim.job.owner:
            total = self._pool.users[queue, gainer.job.owner].total
            return f"user {gainer.job.owner} is entitled to {count(total)}"
        if self._rules.policy == Policy.FIFO:
            return "comes before it" if gainer.order < claim.order else "can use them"
        if gainer.trial is not None:
            return "measures its speed with that many workers"
        if gainer.behind > claim.behind:
            return "has been below its share for longer"
        return self._compare_priorities(claim, gainer)

    def _compare_priorities(self, claim: Claim, gainer: Claim) -> str:
        mine, theirs = claim.job.priority, gainer.job.priority
        if claim.comes_after is not None and gainer.weight > claim.weight:
            return f"goes first, because {claim.job.title} is a long job that comes after {claim.comes_after.job.title}"
        if gainer.ratio is not None and gainer.target > gainer.lo:
            return "has a share by speed" if theirs == mine else f"has a share by speed with its priority {theirs}"
        if gainer.comes_after is not None:
            return f"is entitled to {count(gainer.target)}"
        if theirs == mine:
            return f"has the same {'weight' if self._rules.policy.is_fair else 'priority'}"
        if theirs > mine:
            return f"has the higher priority {theirs}"
        return f"is entitled to {count(gainer.target)} with its priority {theirs}"

    # ------------------------------------------------------------ nothing yet

    def _explain_refusal(self, claim: Claim) -> Cause:
        refusal = claim.refusal
        assert refusal is not None
        queue = claim.job.queue
        told = _needs(claim.lo)
        others = f"; {self._pool.others}" if self._pool.others else ""
        # Machines that are on their way may still be too few, or the ceiling of the queue too low.
        ceiling = self._pool.queues[queue].ceiling
        is_enough = refusal.left + claim.job.num_coming >= claim.lo and (ceiling is None or ceiling >= claim.lo)
        coming = claim.job.coming if is_enough else ""
        if refusal.why == "place":
            more = f"; {coming}" if coming else ""
            return Cause(f"{told}; {claim.limit_in_full}{more}", claim.limit_because)
        if refusal.why == "pool":
            has = "its kind of machine" if others else "the pool"
            then = coming or "lower its minimum or add nodes"
            return Cause(f"{told}, but {has} has {refusal.left or 'none'}{others}; {then}")
        if refusal.why == "ceiling":
            return Cause(f"{told}, but queue '{queue}' may have {refusal.left}; lower its minimum or raise the ceiling")
        if refusal.why == "reserved":
            before = (each for each in self._kept_for if each.turn < claim.turn and _keeps_from(each, claim))
            keepers = list(islice(before, MAX_CAUSES))
            keeper = keepers[0].job
            first = "has waited longer" if keeper.submitted_at < claim.job.submitted_at else "goes first"
            return Cause(f"{told}; the next free slots are reserved for {keeper.title}, which {first}", ids(keepers))
        return self._explain_rivals(claim, refusal, told)

    def _explain_rivals(self, claim: Claim, refusal: Refusal, told: str) -> Cause:
        queue = claim.job.queue
        if refusal.why == "share":
            cause = self._causes.explain_full_user(claim)
            return Cause(f"{told}, but {cause.text}", cause.because)
        rivals, number = self._causes.rivals(claim)
        place = f" in queue '{queue}', which is near its ceiling" if refusal.why == "queue" else ""
        if rivals:
            first = f"{names(rivals, number)} go{'es' if number == 1 else ''} first"
        elif refusal.why == "queue":
            first = "the rest is for its jobs on other kinds of machines"
        else:
            first = "the rest is for the floors of other queues"
        missing = claim.lo - refusal.left
        if refusal.first and refusal.left > 0:
            kept = f"{refusal.left} {_is(refusal.left)} reserved for it"
            lent = refusal.left - self._unused
            if lent > 0:
                kept += " and lent to other jobs" if lent == refusal.left else f", {lent} of them lent to other jobs"
            return Cause(f"{told}{place}; {kept}, {missing} more must become free; {first}", ids(rivals))
        spare = "none is" if refusal.left <= 0 else f"only {refusal.left} {_is(refusal.left)}"
        return Cause(f"{told}{place}, but {spare} left; {first}", ids(rivals))

    def _explain_coming(self, claim: Claim) -> Cause:
        if claim.awaits_lease:
            return Cause(f"{_describe_lease([claim])}; it gets {count(claim.target)} afterwards")
        if claim.leaving:
            return Cause(f"its previous workers still occupy {count(claim.leaving)}")
        more = "" if claim.target == claim.lo else f" and will get {claim.target}"
        told = f"{_needs(claim.lo)}{more}; {claim.from_free or 'none'} {_is(claim.from_free or 1)} free"
        if claim.unplaced and claim.from_free:
            fit = "it does not fit" if claim.from_free == 1 else "they do not fit"
            told += f", and {fit} yet ({claim.limit_in_full})"
        coming = claim.from_others
        freers = [source for source in claim.gains_from if source is not None]
        if coming:
            by = names(freers, len(freers)) if freers else "jobs that ended"
            more = " more" if claim.from_free else ""
            told += f", {coming}{more} {_is(coming)} being freed by {by}"
        late = claim.target - claim.from_free - coming
        leased = self._leased if late > 0 else []
        if late > sum(each.held - each.target for each in leased):
            leased = []  # jobs without a lost machine free some of them
        if late > 0:
            others = names(leased, len(leased)) if leased else "other jobs"
            told += f", {late} more can be freed after the resize of {others}"
        if lease := _describe_lease([*freers, *leased]):
            told += f": {lease}"
        because = dict.fromkeys((*ids(freers), *(claim.limit_because if claim.unplaced else ()), *ids(leased)))
        return Cause(told, tuple(because)[:MAX_CAUSES])

    # ------------------------------------------------------------ the same

    def _explain_kept(self, claim: Claim) -> Cause:
        told = _of(claim)
        if claim.refusal is not None:
            return self._explain_misfit(told)
        if claim.target == claim.held or claim.size > claim.held:
            cause = self._causes.explain_number(claim)
            way = f", on the way to {claim.target}" if claim.size < claim.target else ""
            return Cause(f"{told}{way}: {cause.text}{_name_new(claim)}", cause.because)
        if claim.frozen:
            change = "grows" if claim.target > claim.held else "shrinks"
            why = _describe_lease([claim]) or "its workers are starting or leaving"
            return Cause(f"{told}: {why}, and it {change} to {claim.target} afterwards")
        if claim.target < claim.held:
            return self._explain_surplus(claim, told)
        return self._explain_growth(claim, told)

    def _explain_misfit(self, told: str) -> Cause:
        if not self._gaining:
            return Cause(f"{told}, until it may be resized; its minimum does not fit any more")
        others = names(self._gaining, len(self._gaining))
        go = "goes" if len(self._gaining) == 1 else "go"
        return Cause(f"{told}, until {others} can use them, which {go} first", ids(self._gaining))

    def _explain_surplus(self, claim: Claim, told: str) -> Cause:
        if claim.tries_with is not None:
            cause = explain_trial(claim, claim.tries_with)
            return Cause(f"{told}, until {cause.text}", cause.because)
        over, ceiling = claim.held - claim.target, self._causes.find_ceiling(claim)
        these = "it" if over == 1 else "them"
        cause = Cause("more than its share")
        if claim.target == claim.hi:
            why = self._causes.explain_number(claim)
            cause = Cause(f"too many ({why.text})", why.because)
        elif ceiling is not None:
            cause = Cause(f"more than the ceiling of queue '{claim.job.queue}' ({ceiling}) allows")
        until = f", until other jobs can use {these}"
        if claim.ready_at > self._pool.now and self._useless > 0:
            until = f": it gives {these} back {self._explain_when(claim)}"
        return Cause(f"{told}, {over} {cause.text}{until}", cause.because)

    def _explain_growth(self, claim: Claim, told: str) -> Cause:
        told = f"{told}: will grow to {claim.target}"
        if claim.unplaced:
            return Cause(f"{told} when the slots fit ({claim.limit_in_full})", claim.limit_because)
        if claim.held < claim.lo or claim.ready_at <= self._pool.now:
            freers = [source for source in claim.gains_from if source is not None and source is not claim]
            if claim.gains_from:
                by = names(freers, len(freers)) if freers else "jobs that ended"
                have = "has" if len(freers) == 1 else "have"
                if claim in claim.gains_from:
                    by = f"its own leaving workers and {by}" if len(claim.gains_from) > 1 else "its own leaving workers"
                    have = "have"
                return Cause(f"{told} when {by} {have} freed the slots", ids(freers))
            if self._lease:
                these = names(self._leased, len(self._leased))
                return Cause(f"{told} when {these} may be resized again: {self._lease}", ids(self._leased))
            return Cause(f"{told} when other jobs may be resized again")
        return Cause(f"{told} {self._explain_when(claim)}")

    def _explain_when(self, claim: Claim) -> str:
        """Describe when a job may be resized for growth or fairness only."""
        assert claim.since is not None
        rules = self._rules
        if claim.ready_at > claim.since + rules.stability_s:
            wait_s = rules.cooldown_factor * (claim.job.resize_cost_s or 0.0)
            times = f"{rules.cooldown_factor:g} times as long as a resize takes"
            return f"when {wait_s:g} s have passed since its last resize, {times}"
        return f"if nothing changes for {rules.stability_s:g} s"


def _count_useless(pool: SortedSnapshot) -> int:
    over = sum(max(claim.size - claim.target, 0) for claim in pool.claims)
    needed = sum(max(claim.target - claim.size, 0) for claim in pool.claims)
    there = len(pool.free) + sum(number for _, number in pool.leaving)
    # Slots of jobs that shrink now become available; slots that are assigned now do not count any more.
    there += sum(claim.held - claim.size for claim in pool.claims)
    return over - max(needed - there, 0)


def _find_keepers(pool: SortedSnapshot, rules: Rules) -> list[Claim]:
    """Return the claims for which free slots are kept, because they have waited long, in the order of their turns."""
    limit_s = rules.reserve_after_s
    if limit_s is None:
        return []
    refused = (claim for claim in pool.claims if claim.refusal is not None and claim.refusal.why in ("room", "queue"))
    old = [claim for claim in refused if pool.now - claim.job.submitted_at >= limit_s]
    return sorted(old, key=operator.attrgetter("turn"))


def _keeps_from(keeper: Claim, claim: Claim) -> bool:
    """Whether slots that are kept for a claim are kept from another one: from its queue only, if that is full."""
    return keeper.job.queue == claim.job.queue or (keeper.refusal is not None and keeper.refusal.why == "room")


def _of(claim: Claim) -> str:
    job = claim.job
    if job.elastic:
        return f"{claim.size} of up to {count(job.max_slots)}"
    return count(claim.size) if claim.size == job.max_slots else f"{claim.size} of its {count(job.max_slots)}"


def _list_lost(claim: Claim) -> list[str]:
    """Describe the slots that a job cannot use any more."""
    told = []
    if claim.lost > claim.strayed:
        told.append(f"{_its(claim.lost - claim.strayed)} on {_name_lost(claim)}")
    if claim.strayed:
        told.append(_explain_strayed(claim))
    return told


def _name_new(claim: Claim) -> str:
    """Explain that a job has other slots instead of those that it has lost; "": it has not."""
    new = claim.size - claim.held
    return f"; {new} of them {_is(new)} new, because {'; '.join(_list_lost(claim))}" if new > 0 else ""


def _its(number: int) -> str:
    return "one of its slots is" if number == 1 else f"{number} of its slots are"


def _name_lost(claim: Claim) -> str:
    nodes = [f"{node} ({claim.lost_on[node] or 'down or drained'})" for node in sorted(claim.lost_on)]
    return f"node{'' if len(nodes) == 1 else 's'} {list_some(nodes)}"


def _can_save(claim: Claim) -> bool:
    """Whether a worker may be left that can write a checkpoint: not if all were on lost nodes."""
    return bool(claim.held or claim.strayed) or not claim.lost_on.keys() <= set(claim.job.lost_nodes)


def _describe_lease(claims: Sequence[Claim]) -> str:
    """Describe that jobs are not resized, or do not start, because of lost nodes; "": nothing keeps them."""
    nodes = sorted({node for claim in claims if claim.frozen or claim.awaits_lease for node in claim.job.lost_nodes})
    if not nodes:
        return ""
    if len(nodes) == 1:
        return f"a worker may still run on lost node {nodes[0]} until the lease of its agent is over"
    return f"workers may still run on lost nodes {list_some(nodes)} until the leases of their agents are over"


def _explain_strayed(claim: Claim) -> str:
    if claim.job.gpus_per_worker > 1:
        return f"{_its(claim.strayed)} of a worker that has lost another GPU, or on another kind of machine"
    return f"{_its(claim.strayed)} on another kind of machine than the others"


def _needs(number: int) -> str:
    return "needs 1 slot" if number == 1 else f"needs {number} slots at once"


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


def _are(number: int) -> str:
    return f"{count(number)} {_is(number)}"
