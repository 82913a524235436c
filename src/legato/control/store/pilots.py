"""Pilots in the store: the agents that a cluster starts, the tokens with which they join, and what clusters say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, delete, insert, select, update

from legato.api.pool import Cluster
from legato.control.credentials import hash_secret
from legato.control.records import StoredAgent, StoredPilot
from legato.control.store.agents import JOIN_PREFIX, MAX_TOKEN_S, SECRET_BITS, has_ended
from legato.control.store.database import Database
from legato.control.store.pool import forget_node, is_held
from legato.control.store.rows import read_all, read_one
from legato.control.store.schema import cluster_states, node_agents, pilots
from legato.control.store.transactions import writing
from legato.core.errors import Conflict
from legato.core.slots import check_node
from legato.system.decoding import convert

_STATE_KEPT_S: Final = 180.0
"""A state of a cluster that the leading server has not written for so long is no longer shown."""
_ENDED: Final = "its pilot has ended"


class Pilots:
    """The pilots of all clusters.

    Args:
        database: the store's.
        random_bits: returns a random number of so many bits.
    """

    def __init__(self, database: Database, random_bits: Callable[[int], int]) -> None:
        self._database = database
        self._random_bits = random_bits

    def add(self, cluster: str, node: str, now: float, *, owner: str | None = None, uid: int | None = None) -> str:
        """Record a new pilot; returns the join token of its agent, which only this machine can use, and only once.

        Args:
            cluster: kind of the cluster.
            node: name of its machine.
            now: seconds since 1970.
            owner: the only user whose jobs use the machine. None: all users' jobs do.
            uid: number of the system user as whom the pilot runs. None: that of the server.

        Raises:
            Conflict: a machine has the name.
        """
        check_node(node)
        secret = f"{JOIN_PREFIX}{self._random_bits(SECRET_BITS):064x}"
        with writing(self._database, now) as transaction:
            connection = transaction.connection
            if _exists(connection, node):
                raise Conflict(f"Cannot start a pilot as '{node}': a machine has this name.")
            row: dict[str, Any] = {"node": node, "cluster": cluster, "created_at": now, "owner": owner, "uid": uid}
            row |= {"expires_at": now + MAX_TOKEN_S, "secret_sha256": hash_secret(secret)}
            connection.execute(insert(pilots), row)
        return secret

    def list(self) -> tuple[StoredPilot, ...]:
        """Return all pilots, by machine."""
        with self._database.reading() as connection:
            return read_all(connection, select(pilots).order_by(pilots.c.node), StoredPilot)

    def drain(self, node: str, cluster: str, reason: str, now: float) -> None:
        """Let jobs leave a pilot; its agent then ends by itself. Does nothing if it is drained already, or gone.

        Args:
            node: name of its machine.
            cluster: its name for people.
            reason: why, as a part of a sentence.
            now: seconds since 1970.
        """
        columns = node_agents.c
        chosen = (columns.node == node, columns.cluster.is_not(None), columns.drained_at.is_(None))
        values = {"drained_at": now, "drained_by": cluster, "drain_reason": reason}
        with writing(self._database, now) as transaction:
            if transaction.connection.execute(update(node_agents).where(*chosen).values(values)).rowcount:
                transaction.note("node", f"node {node} is let go: {reason}", detail={"node": node})

    def forget(self, node: str, now: float) -> bool:
        """Forget a pilot that has ended, with its machine. Returns False if jobs hold its slots, or its agent reports.

        Its token is not valid any more, also if the machine cannot be forgotten yet.
        """
        with writing(self._database, now) as transaction:
            connection = transaction.connection
            agent = read_one(connection, select(node_agents).where(node_agents.c.node == node), StoredAgent)
            if agent is not None and agent.cluster is not None:
                if is_held(connection, node) or not has_ended(connection, agent, now):
                    connection.execute(update(pilots).where(pilots.c.node == node).values(expires_at=now))
                    return False
                connection.execute(delete(node_agents).where(node_agents.c.node == node))
                forget_node(transaction, node, _ENDED)
                transaction.note("node", f"node {node} has left the pool: {_ENDED}", detail={"node": node})
            connection.execute(delete(pilots).where(pilots.c.node == node))
        return True

    def write_state(self, state: Cluster, now: float) -> None:
        """Keep what a cluster says, for all servers of the platform."""
        values = {"updated_at": now, "state": msgspec.to_builtins(state)}
        with writing(self._database, now) as transaction:
            if not transaction.insert_new(cluster_states, {"cluster": state.kind, **values}):
                chosen = update(cluster_states).where(cluster_states.c.cluster == state.kind)
                transaction.connection.execute(chosen.values(values))

    def read_states(self, now: float, *, with_old: bool = False) -> tuple[Cluster, ...]:
        """Return what the clusters of the platform say, by kind.

        Args:
            now: seconds since 1970.
            with_old: also those that no server has observed for some minutes.
        """
        with self._database.reading() as connection:
            return read_clusters(connection, 0.0 if with_old else now - _STATE_KEPT_S)


def read_clusters(connection: Connection, oldest: float = 0.0) -> tuple[Cluster, ...]:
    """Return what the clusters of the platform say, by kind. ``oldest``: what was written before is left out."""
    statement = select(cluster_states.c.state).where(cluster_states.c.updated_at > oldest)
    rows = connection.execute(statement.order_by(cluster_states.c.cluster)).scalars().all()
    return tuple(found for row in rows if (found := _read_state(row)) is not None)


def _read_state(row: Any) -> Cluster | None:
    try:
        return convert(row, Cluster)
    except msgspec.ValidationError:
        return None  # of another release; the leading server replaces it


def _exists(connection: Connection, node: str) -> bool:
    for table in (pilots, node_agents):
        if connection.execute(select(table.c.node).where(table.c.node == node)).first() is not None:
            return True
    return is_held(connection, node)
