"""Views: numbered memberships, and the pure rules for the next view. Never decides when a view changes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec


class Member(msgspec.Struct, frozen=True):
    """One worker of a view.

    Args:
        worker: the worker's number in its job; never used twice.
        host: the address at which its peers reach it.
        node: the nonce of its node, equal for all workers of one engine and different from every other engine's; "":
            the worker runs an earlier release, or without an engine.
        proves: it can prove to its peers that it belongs to the job; False: the worker runs an earlier release.
    """

    worker: int
    host: str
    node: str = ""
    proves: bool = False


class View(msgspec.Struct, frozen=True):
    """A numbered membership: the workers that take part, in rank order.

    Args:
        number: grows with every view of a job; a message or a process group of a lower number is stale.
        members: in rank order; rank 0 writes checkpoints and acts for the job.
        rendezvous: ``host:port`` of the store by which the members find one another.
        newcomers: in a view that only adds workers, those without the job's state, if all know how the newcomers' first
            step is divided (`legato.core.balance.ease_in`); otherwise none.
    """

    number: int
    members: tuple[Member, ...]
    rendezvous: str
    newcomers: tuple[int, ...] = ()

    @property
    def workers(self) -> tuple[int, ...]:
        return tuple(member.worker for member in self.members)

    def num_on_node(self, rank: int) -> int:
        """Return the number of members on the node of a rank, itself included."""
        return sum(member.node == self.members[rank].node for member in self.members)

    def rank_of(self, worker: int) -> int | None:
        """Return the rank of a worker, or None if it is not a member."""
        return next((rank for rank, member in enumerate(self.members) if member.worker == worker), None)


def next_members(current: Iterable[Member], leaving: Collection[int], joining: Iterable[Member]) -> tuple[Member, ...]:
    """Keep the order of the present members, drop the leaving ones, append the joining ones ordered by number.

    >>> a, b, c = (Member(n, "h") for n in (1, 2, 3))
    >>> [m.worker for m in next_members([b, a], {2}, [c])]
    [1, 3]
    """
    staying = [member for member in current if member.worker not in leaving]
    return (*staying, *sorted(joining, key=lambda member: member.worker))


def knows_nodes(members: Iterable[Member]) -> bool:
    """Return whether every member has proved on which node it is."""
    return all(member.node for member in members)


def proves(members: Iterable[Member]) -> bool:
    """Return whether every member can prove to the others that it belongs to the job."""
    return all(member.proves for member in members)


def nodes_of(members: Sequence[Member]) -> tuple[int, ...]:
    """Return the number of each member's node, in rank order; the nodes are numbered by their first ranks.

    Members are on one node if they have the same nonce. Equal addresses prove nothing: two machines, or two containers,
    can have the same one. Only if a member has no nonce, as in earlier releases, does the address count: all members
    are on one node if all addresses are equal, and otherwise each is on a node of its own.

    >>> a, b, c = Member(1, "10.0.0.1", "x"), Member(2, "10.0.0.1", "y"), Member(3, "10.0.0.1", "x")
    >>> nodes_of([a, b, c]), nodes_of([a, Member(4, "10.0.0.1")])
    ((0, 1, 0), (0, 0))
    """
    if not knows_nodes(members):
        is_one = len({member.host for member in members}) == 1
        return tuple(0 if is_one else rank for rank in range(len(members)))
    numbers: dict[str, int] = {}
    return tuple(numbers.setdefault(member.node, len(numbers)) for member in members)


def agreed_view(votes: Iterable[int], current: int) -> int | None:
    """Return the view for which all members voted, or None if they voted for different views or for the current one.

    >>> agreed_view([5, 5], current=4), agreed_view([5, 6], current=4), agreed_view([4, 4], current=4)
    (5, None, None)
    """
    distinct = set(votes)
    if len(distinct) == 1:
        (number,) = distinct
        if number > current:
            return number
    return None
