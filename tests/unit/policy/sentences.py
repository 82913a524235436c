"""Reads the reasons of decisions completely: every sentence that the policy can say, as a tree of its parts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

GRAMMAR: Final = {
    "reason": "(?:<start>|<grow>|<shrink>|<pause>|<keep>|<wait>)<moves>?",
    "moves": "; it moves from <slots:old> to <slots:new>, so that <names:gainers> can use the former",
    # The number of slots becomes larger.
    "start": "(?:<starts>|<resumes>) with <of><way>?: <number><warning>?",
    "starts": "starts",
    "resumes": "resumes",
    "way": ", on the way to <n:to>",
    "warning": "; it began on another kind of machine, of which the pool has no more, so its results may differ in "
    "the last bits",
    "grow": "grows <n:had> → <n:size><way>?: <number>",
    # The number of slots becomes smaller.
    "shrink": "shrinks <n:had> → <n:size>: <losses>",
    "pause": "pauses (?:<saved>|<unsaved>): <losses>; (?:<lease>, and )?it resumes when <n:least> slots? (?:is|are) "
    "available again(?:<after>)?",
    "saved": "with a checkpoint",
    "unsaved": "without a new checkpoint",
    "after": " after that",
    "losses": "(?:<lost>(?:; <strayed>)?(?:; <loss>)?|<strayed>(?:; <loss>)?|<loss>)",
    "lost": "<its> on nodes? <lost_nodes>",
    "lost_nodes": r"\w+ \([^()]+\)(?:, \w+ \([^()]+\))*(?: and \d+ more)?",
    "its": r"(?:one of its slots is|\d+ of its slots are)",
    "strayed": "<its> (?:<other_kind>|<incomplete>)",
    "other_kind": "on another kind of machine than the others",
    "incomplete": "of a worker that has lost another GPU, or on another kind of machine",
    "loss": "(?:<tries>(?:; <gainer>)?|<gainer>|<too_few>|<maximum_is>|it <refusal>|<number>)",
    "gainer": "<title> <does> and <relation>(?:; (?:so does|so do|also) <names:others>)?",
    "does": "(?:<does_resume>|<does_submit>|<does_wait>|<does_recover>|<does_grow>)",
    "does_resume": "resumes",
    "does_submit": "was submitted",
    "does_wait": "waits",
    "does_recover": "has lost slots and is below its minimum",
    "does_grow": "grows to <n:to>",
    "relation": "(?:<queue_entitled>|<user_entitled>|<comes_first>|<can_use>|<behind>|<by_speed>|<same_weight>"
    "|<same_priority>|<higher>|<entitled>|<goes_first>|<long_entitled>"
    "|<measures>)",
    "queue_entitled": "queue '<word:queue>' is entitled to them",
    "user_entitled": "user <word:user> is entitled to <n:total> slots?",
    "comes_first": "comes before it",
    "can_use": "can use them",
    "behind": "has been below its share for longer",
    "by_speed": "has a share by speed(?: with its priority <n:priority>)?",
    "same_weight": "has the same weight",
    "same_priority": "has the same priority",
    "higher": "has the higher priority <n:priority>",
    "entitled": "is entitled to <n:total> slots? with its priority <n:priority>",
    "measures": "measures its speed with that many workers",
    "goes_first": "goes first, because <title:late> is a long job that comes after <title:early>",
    "long_entitled": "is entitled to <n:total> slots?",
    "too_few": "(?:one is|<n:left> are) left, fewer than the <n:least> that it needs",
    "maximum_is": "its maximum is <n:most> workers?",
    # No slots yet.
    "wait": "waits: (?:<refusal>|<coming>|<waits_for_lease>|<own_leaving>)",
    "refusal": "(?:<pool_too_small>|<ceiling_too_low>|<reserved>|<user_full>|<queue_rivals>|<pool_rivals>"
    "|<cannot_place>)",
    "needs": "needs <n:least> slots?(?: at once)?",
    "cannot_place": "<needs>; <limit>(?:; <on_the_way>)?",
    "pool_too_small": "<needs>, but <whole> has <none_or_n:has>(?:; <others>)?; (?:<on_the_way>|<advice>)",
    "advice": "lower its minimum or add nodes",
    "on_the_way": r"(?:(?:1 machine of \w+ is on its way|\d+ machines of \w+ are on their way"
    r"|\w+ may give more machines)(?:; )?)+(?<!; )",
    "whole": "(?:<of_kind>|<of_pool>)",
    "of_kind": "its kind of machine",
    "of_pool": "the pool",
    "ceiling_too_low": "<needs>, but queue '<word:queue>' may have <n:has>; lower its minimum or raise the ceiling",
    "reserved": "<needs>; the next free slots are reserved for <title>, which (?:<waited>|<precedes>)",
    "waited": "has waited longer",
    "precedes": "goes first",
    "user_full": "<needs>, but user <word:user> has <n:total> slots?(?: of queue '<word:queue>')?, "
    "(?:and <none_or_n:left> more (?:is|are) left|<user_share>)",
    "queue_rivals": "<needs> in queue '<word:queue>', which is near its ceiling<rivals>",
    "pool_rivals": "<needs><rivals>",
    "rivals": "(?:<kept>|, but <spare> left); (?:<names:first> go(?:es)? first|<for_floors>|<for_others>)",
    "for_floors": "the rest is for the floors of other queues",
    "for_others": "the rest is for its jobs on other kinds of machines",
    "kept": "; <n:kept> (?:is|are) reserved for it<lent>?, <n:missing> more must become free",
    "lent": "(?: and|, <n:part> of them) lent to other jobs",
    "spare": "(?:none is|only <n:left> (?:is|are))",
    "waits_for_lease": "<lease>; it gets <n:target> slots? afterwards",
    "own_leaving": "its previous workers still occupy <n:leaving> slots?",
    "coming": "<needs>(?: and will get <n:target>)?; <none_or_n:free> (?:is|are) free<unplaced>?<freed>?<later>?"
    "(?:: <lease>)?",
    "unplaced": r", and (?:it does|they do) not fit yet \(<limit>\)",
    "freed": ", <n:number>(?: more)? (?:is|are) being freed by (?:<ended>|<names:freers>)",
    "ended": "jobs that ended",
    "later": ", <n:number> more can be freed after the resize of (?:<other_jobs>|<names:leased>)",
    "other_jobs": "other jobs",
    "lease": "(?:a worker may still run on lost node <word:node> until the lease of its agent is over"
    "|workers may still run on lost nodes <list> until the leases of their agents are over)",
    # The same number.
    "keep": "<of>(?:<until_trial>|<misfit>|<until_first>|<frozen>|<surplus>|<will_grow>"
    "|<way>?: <number>; <n:new> of them (?:is|are) new, because <replaced>|: <number>)",
    "replaced": "(?:<lost>; <strayed>|<lost>|<strayed>)",
    "until_trial": ", until <tries>",
    "misfit": ", until it may be resized; its minimum does not fit any more",
    "until_first": ", until <names:first> can use them, which (?:goes|go) first",
    "frozen": ": (?:<lease>|<busy>), and it (?:grows|shrinks) to <n:target> afterwards",
    "busy": "its workers are starting or leaving",
    "surplus": r", <n:over> (?:more than <its_share>"
    r"|more than the ceiling of queue '<word:queue>' \(<n:ceiling>\) allows"
    r"|too many \(<number>\))(?:: it gives (?:it|them) back <when>|, until other jobs can use (?:it|them))",
    "its_share": "its share",
    "will_grow": r": will grow to <n:target> (?:when the slots fit \(<limit>\)"
    "|when <freeing> ha(?:s|ve) freed the slots"
    "|when <names:leased> may be resized again: <lease>|when <others_resized>|<when>)",
    "freeing": "(?:<own_workers> and <ended>|<own_workers> and <names:freers>|<own_workers>|<ended>|<names:freers>)",
    "own_workers": "its own leaving workers",
    "others_resized": "other jobs may be resized again",
    "when": "(?:when <real:wait> s have passed since its last resize, <real:times> times as long as a resize takes"
    "|if nothing changes for <real:stability> s)",
    # Why the number is not larger.
    "of": "(?:<n:size> of up to <n:most> slots?|<n:size> of its <n:most> slots?|<n:size> slots?)",
    "number": "(?:<tries>|<at_maximum>|<all_needed>|<few_micro_batches>|<slower>"
    "|(?:<useless>|<share>)(?:; <others>)?|<limit>)",
    "at_maximum": "its maximum",
    "all_needed": "all that it needs",
    "few_micro_batches": "its step has only <n:total> micro-batch(?:es)?(?:<below_minimum>)?",
    "below_minimum": ", fewer than its minimum of <n:least> workers",
    "slower": "(?:it was|<earlier>) slower with <n:slower> workers than (?:<own_best>)?with <n:best>",
    "earlier": "earlier runs of its code were",
    "own_best": "it is ",
    "tries": "it tries <n:mine> workers?, and <title:partner> <n:theirs>, to measure their speeds",
    "useless": "<n:first>(?: to <n:last>)? workers would be no faster than <n:has> with its <n:total> micro-batches",
    "share": "(?:<all_slots>|<queue_ceiling>|<queue_share>|<queue_rest>|<order_share>|<left_by>|<of_user>|<by_peers>)",
    "all_slots": "all that <whole> has",
    "queue_ceiling": "the ceiling of queue '<word:queue>', <n:ceiling> slots?",
    "queue_rest": "the slots that the minimums of (?:queue '<word:other>'|<n:number> other queues) leave",
    "queue_share": "the fair share of queue '<word:queue>', next to (?:queue '<word:other>'|<n:number> other queues)",
    "order_share": "its share by (?:priority|submission) of the <n:ceiling> slots? that queue '<word:queue>' can have "
    "at most, shared with <names:others>",
    "left_by": "(?:the slots left by <floors>|<by_peers> of the slots left by <floors>"
    "|the slots left by <names:first>, which (?:has|have|was|were) (?:<a_higher>|<submitted>)"
    "(?:, and by <floors>)?(?:; <by_peers>)?)",
    "floors": "the floors of other queues",
    "a_higher": "a higher priority",
    "submitted": "submitted earlier",
    "among": " of the <n:size> slots? (?:of queue '<word:own>'|that queue '<word:limited>' can have at most)",
    "by_peers": "(?:<job_minimum>|<gains>|<shares>|<remains>|<long_job>)",
    "long_job": "it is a long job that comes after <title:early>",
    "job_minimum": "its minimum<among>?, next to <names:others>",
    "gains": "(?:one more worker|<n:more> more workers) would make it <at_most:bound>?<n:mine> % faster; "
    "<title>(?:, with its priority <n:priority>,)? gains <at_most:rival_bound>?<n:theirs> % from its last "
    "(?:one|<n:last>)",
    "at_most": "at most ",
    "shares": "(?:<equal>|<weighted>|<speed>|<by_queue>|<by_weight>) with <names:rivals>"
    "(?: of the slots that <names:leavers> leaves?)?<among>?",
    "equal": "an equal share",
    "weighted": "a share by its priority <n:priority>",
    "speed": "a share by speed",
    "by_weight": r"a share by weight \(later long jobs weigh less\)",
    "by_queue": "a share by the weights of their queues",
    "remains": "the slots that <names:leavers> leaves?<among>?",
    "of_user": "(?:<by_peers>; user <word:user> has <n:total> slots?<among>?, <user_share>|<alone>)",
    "alone": "(?:<user_equal><among>?(?:, and <more>)?|<user_remains><among>?|<left_over><among>?|<lone_minimum>)",
    "lone_minimum": "its minimum(?: and <more>)?<among>?, next to <users:others>",
    "user_share": "(?:<user_equal>(?:, and <more>)?|<user_remains>|<left_over>|<user_minimums>)",
    "more": "<n:more> more that (?:is|are) left over",
    "user_equal": r"(?:an equal share|a share by recent use \(weight <weight>\)) with <users:rivals>"
    "(?: of the slots that <users:leavers> leaves?)?",
    "user_remains": "the slots that <users:leavers> leaves?",
    "left_over": "left over by <users:others>",
    "user_minimums": "as many as the minimums of its jobs(?: and <more>)?, next to <users:others>",
    "weight": "1(?:/[24])?",
    "others": "<other_kinds>",
    "other_kinds": r"(?:nodes? [\w, ]+ (?:is|are) of another kind(?: \([^()]*\))?(?:; )?)+(?<!; )",
    # Why no other slots fit.
    "limit": "(?:<no_gpus>|<no_such_gpu>|<own_machine>|<other_nodes>|<owned_nodes>|<room>|<scarce_share>|<scarce_first>"
    "|<node_share>|<node_first>|<left>|<none_fit>|<movers>)<bound>?<refusals>?",
    "no_gpus": "it asks for (?:<n:each> GPUs per worker|GPU type <word:type>), and the pool has no GPUs",
    "no_such_gpu": "it asks for GPU type <word:type>, and the pool has <list>",
    "own_machine": "it can use the server's own machine only, which has <room_has><out>?",
    "other_nodes": "the other nodes have <room_has><out>?",
    "room": "it asks for <asks>, for which its kind of machine has <room_has><out>?",
    "owned_nodes": "<owners> have <room_has><out>?",
    "owners": "machines that belong to (?:no other user than <owner_names>|<no_owner>|<one_owner>)",
    "no_owner": "no user",
    "one_owner": "user <word:owner>",
    "owner_names": r"\w+ and \d+ others|\w+ and \w+|\w+",
    "room_has": "(?:no|<n:room>) slots?(?: on <owners>)?(?: for it)?",
    "out": r"(?:; node \w+ cannot be used: [^;()]+)+(?:; \d+ more nodes? cannot be used)?",
    "asks": r"(?:GPU type \w+|\d+ GPUs per worker|the server's own machine|labels [\w=,]+"
    r"|nodes other than \w+(?:, \w+)*| and (?!machines that belong))*(?:(?: and )?<owners>)?",
    "scarce_share": "its share of the <n:room> slots? for <asks>(?:, with <names:others>)?",
    "scarce_first": "its kind of machine has <n:room> slots? for <asks>(?:, and <names:first> go(?:es)? first)?",
    "node_share": "its share of the <n:room> slots? of nodes? <list>, with <names:others>, which can use no others",
    "node_first": "it can use only nodes? <list>, with <n:room> slots?, and <names:first> go(?:es)? first",
    "left": "<n:each> GPUs per worker: (?:<left_on>|<nodes> ha(?:s|ve) none left)",
    "left_on": r"node \w+ has \d+ left(?:, node \w+ has \d+ left)*(?:, \d+ other nodes? ha(?:s|ve) fewer than \d+"
    "(?: each)?)?",
    "nodes": r"(?:(?:nodes with labels [\w=,]+|the server's own machine|other nodes|its nodes)(?: that <belong>)?"
    "|<owners>)",
    "belong": r"belong to no other user than \w+",
    "none_fit": "it needs slots of <nodes>, and there are no more for it",
    "movers": "<names:movers> first moves? to other slots",
    "bound": "; it reads a private file",
    "refusals": r"(?:; node \w+ has refused it: [^;()]+)+(?:; \d+ more nodes? ha(?:s|ve) refused it)?",
    # Words.
    "names": r"\w+/\w+ and \d+ others|\w+/\w+ and \w+/\w+|\w+/\w+",
    "users": r"user \w+ and \d+ other users|users \w+ and \w+|user \w+",
    "title": r"\w+/\w+",
    "list": r"\w+(?:, \w+)*(?: and \d+ more)?",
    "slots": r"\w+/\w+(?:, \w+/\w+)*",
    "n": r"\d+",
    "none_or_n": r"none|no|\d+",
    "real": r"[\d.]+",
    "word": r"\w+",
}
"""Each part of a sentence: an expression in which ``<part:name>`` stands for another part."""

_REFERENCE: Final = re.compile(r"<(?P<rule>[a-z]\w*)(?::(?P<label>\w+))?>")


class Part(NamedTuple):
    """A part of a sentence: the rule of the grammar that it follows, and the smaller parts in it, by their names."""

    rule: str
    text: str
    parts: dict[str, Part]

    def walk(self) -> Iterator[Part]:
        """Yield this part and all parts in it."""
        yield self
        for part in self.parts.values():
            yield from part.walk()

    def has(self, *names: str) -> bool:
        """Whether one of these parts is there."""
        return any(name in self.parts for name in names)

    def number(self, name: str, default: int = -1) -> int:
        """Return a part as a number; ``default`` if it is not there, and 0 for none."""
        part = self.parts.get(name)
        return default if part is None else int(part.text) if part.text.isdecimal() else 0


class _Reader:
    """Compiles the grammar to one expression, in which every part is a group."""

    def __init__(self) -> None:
        self._groups: list[tuple[str, str, int]] = []
        self._expression = re.compile(self._expand("reason", "reason", -1))

    def _expand(self, rule: str, label: str, parent: int) -> str:
        index = len(self._groups)
        self._groups.append((rule, label, parent))
        inside = _REFERENCE.sub(
            lambda found: self._expand(found["rule"], found["label"] or found["rule"], index), GRAMMAR[rule]
        )
        return f"({inside})"

    def read(self, text: str) -> Part | None:
        found = self._expression.fullmatch(text)
        if found is None:
            return None
        parts: dict[int, Part] = {}
        for index, part in enumerate(found.groups()):
            if part is not None:
                rule, label, parent = self._groups[index]
                parts[index] = Part(rule, part, {})
                if parent >= 0:
                    parts[parent].parts[label] = parts[index]
        return parts[0]


_READER: Final = _Reader()


@lru_cache(maxsize=4096)
def read(reason: str) -> Part:
    """Return a reason as a tree.

    Raises:
        ValueError: it is no sentence of the grammar.
    """
    found = _READER.read(reason)
    if found is None:
        raise ValueError(f"no known sentence: {reason!r}")
    return found


def read_names(text: str) -> tuple[tuple[str, ...], int]:
    """Return the named jobs or users, and how many there are with those that are only counted.

    >>> read_names("ann/a and 2 others"), read_names("users ann and ben")
    ((('ann/a',), 3), (('ann', 'ben'), 2))
    """
    text = text.removeprefix("users ").removeprefix("user ")
    first, _, rest = text.partition(" and ")
    if not rest:
        return (first,), 1
    if rest.split()[0].isdecimal():
        return (first,), 1 + int(rest.split()[0])
    return (first, rest), 2
