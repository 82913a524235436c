"""Requests about the pool: slots now and over time, queues. Divides nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from legato.api.jobs import Allocation, Event, JobRecord
from legato.api.lists import Page
from legato.api.outputs import SystemSeries
from legato.api.people import Version
from legato.api.pool import (
    Cluster,
    JoinToken,
    NewJoinToken,
    Node,
    Pool,
    Queue,
    QueueShare,
    QueuesPlan,
    Slot,
    SlotMove,
    Timeline,
    Usage,
    UserShare,
    WaitingJob,
)
from legato.client.connection import Line
from legato.client.jobs import Job
from legato.client.lists import Listing
from legato.client.paths import name_path
from legato.core.errors import NotFound
from legato.system.decoding import decode

_PAGE: Final = 500


class PoolCalls:
    """A part of `legato.Client`."""

    _line: Line

    def pool(self) -> Pool:
        """Return the pool in numbers."""
        return self._line.ask(Pool, "GET", "/pool")

    def nodes(self) -> Listing[Node]:
        """Return the nodes."""
        return Listing(self._line.ask(Page[Node], "GET", "/nodes").items)

    def node_metrics(self, name: str) -> SystemSeries:
        """Return what a machine used in the last hour, as far as it has reported to the server that answers."""
        return self._line.ask(SystemSeries, "GET", f"{name_path('node', name)}/system-metrics")

    def clusters(self) -> Listing[Cluster]:
        """Return the clusters that give machines to the pool, with their machines."""
        return Listing(self._line.ask(Page[Cluster], "GET", "/clusters").items)

    def test_cluster(self, kind: str) -> Job:
        """Begin to test a cluster; returns the job that trains on its machine. `Cluster.test` says what comes out.

        For admins. To end the test, stop the job.

        Args:
            kind: of the cluster, such as ``slurm``.
        """
        return Job(self._line, self._line.ask(JobRecord, "POST", f"{name_path('cluster', kind)}/test"))

    def drain_node(self, name: str, reason: str = "") -> None:
        """Stop using a machine with an agent: jobs shrink off it, and none is stopped. For admins."""
        self._line.send("POST", f"{name_path('node', name)}/drain", body={"reason": reason})

    def resume_node(self, name: str) -> None:
        """Use a drained machine again. For admins."""
        self._line.send("POST", f"{name_path('node', name)}/resume")

    def remove_node(self, name: str) -> None:
        """Remove a machine whose agent does not answer; it then needs a join token again. For admins."""
        self._line.send("DELETE", name_path("node", name))

    def add_join_token(self, expires_in_s: float = 3600.0) -> NewJoinToken:
        """Create a token with which machines join the pool, valid for some seconds. For admins."""
        return self._line.ask(NewJoinToken, "POST", "/join-tokens", body={"expires_in_s": expires_in_s})

    def join_tokens(self) -> Listing[JoinToken]:
        """Return the join tokens, the newest first. For admins."""
        return Listing(self._line.ask(Page[JoinToken], "GET", "/join-tokens").items)

    def revoke_join_token(self, token: str) -> None:
        """Let no further machine join with a token. For admins."""
        self._line.send("DELETE", name_path("join token", token))

    def slots(self) -> Listing[Slot]:
        """Return the slots and the jobs that hold them."""
        return Listing(self._line.ask(Page[Slot], "GET", "/slots").items)

    def allocations(self, since: float | None = None, until: float | None = None) -> Listing[Allocation]:
        """Return the allocations that were open at any time between two times, the oldest first.

        Args:
            since: seconds since 1970. None: an hour ago.
            until: None: now.
        """
        params = {"since": since, "until": until}
        return Listing(self._line.ask(Page[Allocation], "GET", "/allocations", params=params).items)

    def usage(self, since: float | None = None, until: float | None = None) -> Listing[Usage]:
        """Return slot seconds by user and queue between two times.

        Args:
            since: seconds since 1970. None: a day ago.
            until: None: now.
        """
        params = {"since": since, "until": until}
        return Listing(self._line.ask(Page[Usage], "GET", "/usage", params=params).items)

    def timeline(
        self,
        since: float | None = None,
        until: float | None = None,
        *,
        by: Literal["job", "owner", "queue", "project"] = "job",
        points: int | None = None,
        jobs: Sequence[str] | None = None,
    ) -> Timeline:
        """Return slots held over time, as step lines.

        Args:
            since: seconds since 1970. None: an hour ago.
            until: None: now.
            by: whose slots one line shows.
            points: maximum number of points per line. None: 500.
            jobs: only these jobs, by id or name. None: all.
        """
        params = {"since": since, "until": until, "by": by, "points": points, "job": jobs}
        return self._line.ask(Timeline, "GET", "/timeline", params=params)

    def moves(self, since: float | None = None, until: float | None = None, *, limit: int = 100) -> Listing[SlotMove]:
        """Return slots that jobs got, or were asked to give up, with the reasons, the newest first.

        Args:
            since: seconds since 1970. None: an hour ago.
            until: None: now.
            limit: maximum number of moves.
        """
        params = {"since": since, "until": until, "limit": limit}
        return Listing(self._line.ask(Page[SlotMove], "GET", "/moves", params=params).items)

    def shares(self) -> Listing[QueueShare]:
        """Return the share of each queue: fair share, and slots that it holds, borrows and wants."""
        return Listing(self._line.ask(Page[QueueShare], "GET", "/pool/shares").items)

    def use(self, over: float | None = None) -> Listing[UserShare]:
        """Return what each user has used of each queue, and the weights that follow from it.

        Args:
            over: for how many seconds up to now, from 3600 on, because use is counted by hour. None: 7 days.
        """
        return Listing(self._line.ask(Page[UserShare], "GET", "/pool/use", params={"over": over}).items)

    def waiting(self) -> Listing[WaitingJob]:
        """Return the jobs that wait for slots, each with its position in its queue."""
        return Listing(self._line.ask(Page[WaitingJob], "GET", "/pool/waiting").items)

    def plan_queues(self, queues: Sequence[Mapping[str, Any]]) -> QueuesPlan:
        """Return the effect of a change of queues, without changing them. For admins.

        Args:
            queues: each with its ``name``, and ``weight``, ``floor`` and ``ceiling``; those that are not given have
                their defaults. Other queues do not change.
        """
        body = {"queues": [dict(queue) for queue in queues]}
        return self._line.ask(QueuesPlan, "POST", "/queues/plan", body=body)

    def events(self, follow: bool = False, *, after: int | Literal["now"] | None = None) -> Iterator[Event]:
        """Yield the events of the platform that you may see, the oldest first.

        Args:
            follow: continue without end.
            after: begin after the event with this ``seq``. None: with the oldest one that is kept.
        """
        if follow:
            for message in self._line.follow("/events", params={"after": after}):
                yield decode(message.data, Event)
            return
        params = {"limit": _PAGE}
        while (page := self._line.ask(Page[Event], "GET", "/events", params={**params, "after": after})).items:
            yield from page.items
            after = int(page.after or 0)

    def last_event(self) -> int:
        """Return the ``seq`` of the newest event."""
        params = {"after": "now", "limit": 1}
        return int(self._line.ask(Page[Event], "GET", "/events", params=params).after or 0)

    # ------------------------------------------------------------ queues

    def queues(self) -> Listing[Queue]:
        """Return the queues that you may see."""
        return Listing(self._line.ask(Page[Queue], "GET", "/queues").items)

    def queue(self, name: str) -> Queue:
        """Return a queue."""
        return self._line.ask(Queue, "GET", name_path("queue", name))

    def set_queue(
        self,
        name: str,
        *,
        weight: float | None = None,
        floor: int | None = None,
        ceiling: int | Literal["none"] | None = None,
        is_open: bool | None = None,
        members: Sequence[str] | None = None,
    ) -> Queue:
        """Create or change a queue; None keeps a value, or sets its default. For admins.

        Args:
            name: of the queue.
            weight: its share in proportion to the other queues'.
            floor: number of slots that it can always claim.
            ceiling: maximum number of slots; ``none``: the whole pool.
            is_open: all users may submit to it.
            members: all members; the list replaces the old one.
        """
        try:
            found = self.queue(name)
            body = {key: getattr(found, key) for key in ("weight", "floor", "ceiling", "is_open", "members")}
        except NotFound:
            body = {}
        said = {"weight": weight, "floor": floor, "ceiling": ceiling, "is_open": is_open, "members": members}
        body |= {key: value for key, value in said.items() if value is not None}
        if ceiling == "none":
            body["ceiling"] = None
        return self._line.ask(Queue, "PUT", name_path("queue", name), body=body)

    def delete_queue(self, name: str) -> None:
        """Delete a queue that no job uses. For admins."""
        self._line.send("DELETE", name_path("queue", name))

    def version(self) -> Version:
        """Return the version of the server; needs no token."""
        return self._line.ask(Version, "GET", "/version", is_open=True)
