"""Finds jobs that together want more slots than the nodes have which they can use. Pure; changes no claim.

The answer does not depend on where elastic jobs have their slots, because these can move. So a job that waits and a job
that runs compete for the same slots in the same way, whichever of the two has them now.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from legato.policy.claims import Claim, Needs, SortedSnapshot
from legato.policy.free_slots import has_labels
from legato.policy.moves import sort_by_difficulty
from legato.policy.node_sets import list_bits
from legato.policy.snapshot import OWNER_LABEL

_NO_CROWD: Final = -1
"""Of places where no slots are left: some of them are in a crowd, and others are not."""


class Crowd(msgspec.Struct, frozen=True):
    """Claims that can use some nodes only and want more slots than these have.

    Args:
        claims: in order of precedence.
        nodes: by name.
        room: slots of these nodes that are not taken.
        wanted: by these claims.
    """

    claims: list[Claim]
    nodes: list[str]
    room: int
    wanted: int


class _Group(msgspec.Struct, eq=False):
    """Claims with the same needs. ``regions``: whose places they can use, except those that have refused them.

    ``refusals``: the nodes that have refused them, as in `NodeSets`.
    """

    claims: list[Claim]
    wanted: int
    regions: list[_Region]
    refusals: int


class _Place(msgspec.Struct, eq=False):
    """Nodes that the same claims can use. ``left``: slots that are not given yet. ``given``: to each group."""

    region: _Region
    nodes: list[str]
    bit: int
    room: int
    left: int = 0
    given: dict[_Group, int] = {}

    def change(self, number: int) -> None:
        """Add or remove slots that are left."""
        self.left += number
        if self.left:
            self.region.open |= self.bit
        else:
            self.region.open &= ~self.bit


class _Region(msgspec.Struct, eq=False):
    """Nodes with the same labels.

    Args:
        name: of a node.
        places: by the number of the bit of their first node.
        bits: of the first nodes of all places.
        open: the same, of places of which slots are left.
    """

    name: str
    places: dict[int, _Place] = {}
    bits: int = 0
    open: int = 0

    def list_places(self, bits: int) -> Iterator[_Place]:
        """Yield the places with these bits, in the order of their first nodes."""
        return (self.places[number] for number in list_bits(bits))


class Flow:
    """A maximum flow from claims to the nodes that they can use.

    Args:
        pool: the slots of one kind of machine.
        wanted: slots that are to be placed, by job; claims with several GPUs per worker count as if their workers could
            be divided. 0: claims that may get slots later.
        taken: slots that are not to be had, by node.
    """

    def __init__(self, pool: SortedSnapshot, wanted: Mapping[str, int], taken: Mapping[str, int]) -> None:
        self._wanted = wanted
        self._groups = _make_groups(pool, wanted, taken)
        self._closed: dict[_Place, int] = {}
        self._could_add: dict[Needs, bool] = {}
        self.crowds = self._find_crowds()

    def _find_crowds(self) -> list[Crowd]:
        """Find claims whose slots cannot be placed together, no two of these crowds with a node in common.

        A claim that does not fit, and all others that could leave slots which it can use, directly or one for the
        other, are a crowd: together they can use no other nodes. Others that do not fit and can use only these nodes
        are in it too.
        """
        found: list[tuple[list[_Group], list[_Place]]] = []
        for group in self._groups.values():
            missing = _fill(group, group.wanted)
            while missing:
                way = _find_way(group, missing, self._closed)
                if isinstance(way, int):
                    missing -= way
                    continue
                # No slots of these places are left, and no group can leave them.
                known = {self._closed.get(place) for place in way[1]}
                crowd = known.pop() if len(known) == 1 else _NO_CROWD
                if crowd is None:
                    crowd = len(found)
                    found.append(way)
                elif crowd != _NO_CROWD:
                    found[crowd][0].append(group)
                for place in way[1]:
                    self._closed.setdefault(place, crowd)
                break
        crowds = [_describe(groups, places, self._wanted) for groups, places in found]
        return [crowd for crowd in crowds if len(crowd.claims) > 1]

    def can_add(self, claim: Claim) -> bool:
        """Whether a claim of ``wanted`` could have one slot more. Claims with the same needs get the same answer."""
        known = self._could_add.get(claim.needs)
        if known is None:
            known = self._could_add[claim.needs] = self.add(claim, 1)
            if known:
                _take_back(self._groups[claim.needs], 1)
        return known

    def add(self, claim: Claim, num_slots: int) -> bool:
        """Find more slots for a claim of ``wanted``. Returns whether so many are left; others may move for it."""
        group = self._groups[claim.needs]
        missing = _fill(group, num_slots)
        while missing:
            found = _find_way(group, missing, self._closed)
            if not isinstance(found, int):
                if missing == num_slots:
                    self._closed.update(dict.fromkeys(found[1], _NO_CROWD))
                else:
                    _take_back(group, num_slots - missing)
                return False
            missing -= found
        return True


def _make_groups(pool: SortedSnapshot, wanted: Mapping[str, int], taken: Mapping[str, int]) -> dict[Needs, _Group]:
    """Return the claims by needs, those that fit on the fewest nodes first."""
    by_needs: dict[Needs, list[Claim]] = {}
    for claim in pool.claims:
        if claim.job.id in wanted:
            by_needs.setdefault(claim.needs, []).append(claim)
    refused = 0
    for needs in by_needs:
        refused |= pool.node_sets.join(needs[2])
    regions = _make_regions(pool, refused, taken)
    known: dict[object, list[_Region]] = {}
    groups = {}
    for first in sort_by_difficulty(claims[0] for claims in by_needs.values()):
        needs, job, claims = first.needs, first.job, by_needs[first.needs]
        owner = job.owner if job.owner in regions else ""
        usable = known.get((needs[1], owner))
        if usable is None:
            # Machines of single users first, so that those of all users are left for the others.
            some = [*(regions[owner] if owner else ()), *regions.get("", ())]
            usable = [one for one in some if has_labels(pool.nodes.get(one.name), job)]
            known[needs[1], owner] = usable
        number = sum([wanted[claim.job.id] for claim in claims])
        groups[needs] = _Group(claims, number, usable, pool.node_sets.join(needs[2]))
    return groups


def _make_regions(pool: SortedSnapshot, refused: int, taken: Mapping[str, int]) -> dict[str, list[_Region]]:
    """Return the regions by owner; "": those of all users. ``refused``: nodes that have refused a claim."""
    inside: dict[object, tuple[_Region, dict[int, _Place]]] = {}
    found: dict[str, list[_Region]] = {}
    for name in sorted(pool.usable):
        node = pool.nodes.get(name)
        labels = None if node is None or not node.labels else tuple(sorted(node.labels.items()))
        room = pool.usable[name] - taken.get(name, 0)
        known = inside.get(labels)
        if known is None:
            known = inside[labels] = _Region(name), {}
            owner = "" if node is None else node.labels.get(OWNER_LABEL, "")
            found.setdefault(owner, []).append(known[0])
        region, places = known
        bit = pool.node_sets.find(name)
        place = places.get(bit & refused)
        if place is None:
            place = places[bit & refused] = _Place(region, [], bit, 0)
            region.places[bit.bit_length() - 1] = place
            region.bits |= bit
        place.nodes.append(name)
        place.room += room
        place.change(room)
    return found


def _fill(group: _Group, missing: int) -> int:
    """Give a group slots that are left; return how many of those that it wants are missing."""
    for region in group.regions:
        for place in region.list_places(region.open & ~group.refusals):
            if not missing:
                return 0
            number = place.left if place.left < missing else missing
            place.given[group] = place.given.get(group, 0) + number
            place.change(-number)
            missing -= number
    return missing


def _take_back(group: _Group, number: int) -> None:
    """Take slots from a group, of any places."""
    for region in group.regions:
        for place in region.list_places(region.bits & ~group.refusals):
            part = min(place.given.get(group, 0), number)
            if part:
                place.given[group] -= part
                if not place.given[group]:
                    del place.given[group]
                place.change(part)
                number -= part


def _find_way(group: _Group, missing: int, closed: Collection[_Place]) -> int | tuple[list[_Group], list[_Place]]:
    """Let other groups leave slots for one, for others that are left. Returns how many slots it gained.

    If no slots are left in all places that these groups can reach: these groups and places.

    Args:
        group: wants slots.
        missing: how many.
        closed: places where no slots are left, and that no group can leave for others.
    """
    groups, places = [group], list[_Place]()
    came_from: dict[_Group, _Place] = {}
    used_by: dict[_Place, _Group] = {}
    unseen: dict[_Region, int] = {}
    for one in groups:  # grows meanwhile
        for region in one.regions:
            rest = unseen.get(region, region.bits)
            usable = rest & ~one.refusals
            unseen[region] = rest ^ usable
            first = next(region.list_places(usable & region.open), None)
            if first is not None:
                used_by[first] = one
                return _pass_on(group, first, missing, came_from, used_by)
            for place in region.list_places(usable):
                used_by[place] = one
                places.append(place)
                if place not in closed:
                    for other in place.given:
                        if other is not group and other not in came_from:
                            came_from[other] = place
                            groups.append(other)
    return groups, places


def _pass_on(
    group: _Group, last: _Place, missing: int, came_from: Mapping[_Group, _Place], used_by: Mapping[_Place, _Group]
) -> int:
    """Let each group on a way to a place with slots that are left use the next place; return how many slots moved."""
    way = [(used_by[last], last)]
    while way[-1][0] is not group:
        place = came_from[way[-1][0]]
        way.append((used_by[place], place))
    # A group gets slots of one place and leaves as many of the place by which it was found.
    changes = [(one, place) for (one, _), (_, place) in itertools.pairwise(way)]
    number = min(missing, last.left, *(place.given[one] for one, place in changes))
    last.change(-number)
    for one, place in way:
        place.given[one] = place.given.get(one, 0) + number
    for one, place in changes:
        place.given[one] -= number
        if not place.given[one]:
            del place.given[one]
    return number


def _describe(groups: Iterable[_Group], places: Iterable[_Place], wanted: Mapping[str, int]) -> Crowd:
    claims = sorted([claim for group in groups for claim in group.claims], key=operator.attrgetter("order"))
    return Crowd(
        claims=claims,
        nodes=sorted([node for place in places for node in place.nodes]),
        room=sum([place.room for place in places]),
        wanted=sum([wanted[claim.job.id] for claim in claims]),
    )
