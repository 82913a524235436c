"""Agents of machines in the store: join tokens, the agents that have joined, their reports, and drained machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, delete, func, insert, select, update

from legato.api.pool import NewJoinToken
from legato.control.credentials import hash_secret
from legato.control.ids import make_id
from legato.control.records import (
    AGENT_SILENT_S,
    LOCAL,
    SERVER_PREFIX,
    AgentReport,
    JoinToken,
    StoredAgent,
    StoredPilot,
)
from legato.control.roles import Asker, check_is_admin
from legato.control.store.database import Database
from legato.control.store.pool import forget_node, is_held
from legato.control.store.rows import read_all, read_one
from legato.control.store.schema import join_tokens, node_agents, nodes, pilots, slots
from legato.control.store.transactions import Transaction, writing
from legato.core.errors import BadField, Conflict, NotFound, Unauthenticated, UsageError
from legato.core.slots import check_node

JOIN_PREFIX: Final = "lgj_"
AGENT_PREFIX: Final = "lga_"
MAX_TOKEN_S: Final = 30 * 86_400.0
_MIN_TOKEN_S: Final = 60.0
SECRET_BITS: Final = 256
_MAX_SLOTS: Final = 1024
_MAX_PAIRS: Final = 64
_MAX_LENGTH: Final = 255
_NODE: Final = "node"
_BY_SERVER: Final = "server"
_REMOVED: Final = "an admin has removed its machine"
_NEW_TOKEN: Final = "An admin makes a new one with 'legato nodes token'."  # noqa: S105


class Agents:
    """The agents of machines.

    Args:
        database: the store's.
        random_bits: returns a random number of so many bits; for ids and secrets.
    """

    def __init__(self, database: Database, random_bits: Callable[[int], int]) -> None:
        self._database = database
        self._random_bits = random_bits

    # ------------------------------------------------------------ join tokens

    def create_token(self, asker: Asker, now: float, *, expires_at: float) -> NewJoinToken:
        """Create a token with which machines join the pool until it expires.

        Raises:
            Forbidden: the asker is no admin.
            UsageError: the expiry cannot be used.
        """
        check_is_admin("create a join token", asker)
        if not _MIN_TOKEN_S <= expires_at - now <= MAX_TOKEN_S:
            raise UsageError("Cannot create a join token: it must be valid for 60 seconds to 30 days.")
        secret = self._make_secret(JOIN_PREFIX)
        with writing(self._database, now) as transaction:
            last = transaction.connection.execute(select(func.max(join_tokens.c.id))).scalar_one()
            token = JoinToken(
                id=make_id("n", now, self._random_bits, last),
                created_by=asker.name,
                created_at=now,
                expires_at=expires_at,
                revoked_at=None,
                num_uses=0,
            )
            row = {**msgspec.structs.asdict(token), "secret_sha256": hash_secret(secret)}
            transaction.connection.execute(insert(join_tokens), row)
            transaction.audit(asker.name, "join_token.create", token.id, {"expires_at": expires_at})
            return NewJoinToken(token, secret)

    def list_tokens(self, asker: Asker) -> tuple[JoinToken, ...]:
        """Return all join tokens, the newest first. Raises Forbidden if the asker is no admin."""
        check_is_admin("list join tokens", asker)
        with self._database.reading() as connection:
            return read_all(connection, select(join_tokens).order_by(join_tokens.c.id.desc()), JoinToken)

    def revoke_token(self, token: str, asker: Asker, now: float) -> None:
        """Let no further machine join with a token; machines that have joined stay.

        Raises:
            Forbidden: the asker is no admin.
            NotFound: there is no such token.
        """
        check_is_admin("revoke a join token", asker)
        with writing(self._database, now) as transaction:
            found = transaction.connection.execute(select(join_tokens.c.id).where(join_tokens.c.id == token)).first()
            if found is None:
                raise NotFound(f"There is no join token '{token[:100]}'. 'legato nodes tokens' lists them.")
            revoked = update(join_tokens).where(join_tokens.c.id == token, join_tokens.c.revoked_at.is_(None))
            transaction.connection.execute(revoked.values(revoked_at=now))
            transaction.audit(asker.name, "join_token.revoke", token)

    # ------------------------------------------------------------ what agents do

    def join(self, token: str, node: str, identity: str, now: float) -> str:
        """Let a machine join the pool, or join it again; returns the secret with which its agent authenticates.

        Args:
            token: a join token, or that of a pilot, which only its machine can use, and only its first agent.
            node: name of the machine.
            identity: of its agent; no other agent has it.
            now: seconds since 1970.

        Raises:
            Unauthenticated: the token is not valid.
            Conflict: another agent has the name.
            UsageError: the name cannot be used.
        """
        check_node(node)
        secret = self._make_secret(AGENT_PREFIX)
        with writing(self._database, now) as transaction:
            connection = transaction.connection
            pilot = _use_pilot(connection, token, node, identity, now)
            given_by = _use_token(connection, token, now) if pilot is None else pilot.cluster
            if _is_server(connection, node):
                raise Conflict(
                    f"Cannot join as '{node}': the server's machine has this name. Give this one another name with "
                    "--name."
                )
            before = read_one(connection, select(node_agents).where(node_agents.c.node == node), StoredAgent)
            if before is not None and before.identity != identity and not _may_replace(connection, before, now):
                raise Conflict(
                    f"Cannot join as '{node}': another agent has this name. Give each machine its own name with "
                    f"--name, or, if this machine was installed again, remove the other one with 'legato nodes remove "
                    f"{node}'."
                )
            values = {"identity": identity, "secret_sha256": hash_secret(secret), "joined_at": now}
            values |= {"joined_by": given_by, "cluster": None, "owner": None}
            values |= {} if pilot is None else {"cluster": pilot.cluster, "owner": pilot.owner}
            if before is None:
                nothing: dict[str, Any] = {"version": "", "address": "", "kind": ""}
                nothing |= {"devices": (), "gpu_types": (), "traits": {}, "labels": {}}
                connection.execute(insert(node_agents).values(node=node, **nothing, **values))
            else:
                connection.execute(update(node_agents).where(node_agents.c.node == node).values(**values))
            transaction.audit(given_by, "node.join", node, {"identity": identity})
            told = "joined the pool" if before is None else "joined the pool again"
            transaction.note(_NODE, f"node {node} {told}", detail={"node": node})
        return secret

    def keep_server(self, node: str, identity: str, said: AgentReport, now: float) -> None:
        """Keep the machine of one of several servers in the pool. Whichever server leads, it then knows the machine.

        Args:
            node: name of the machine.
            identity: of the machine; no other machine has it.
            said: what its server reports.
            now: seconds since 1970.

        Raises:
            Conflict: another machine has the name.
            BadField: a field is too long.
        """
        check_node(node)
        _check_report(said, fewest=0)
        identity = f"{SERVER_PREFIX}{identity}"
        values = {**msgspec.structs.asdict(said), "identity": identity, "seen_at": now, "left_at": None}
        del values["leaving"]
        with writing(self._database, now) as transaction:
            connection = transaction.connection
            before = read_one(connection, select(node_agents).where(node_agents.c.node == node), StoredAgent)
            if before is not None and before.identity != identity and not before.is_silent(now):
                other = "server" if before.is_server else "agent"
                raise Conflict(
                    f"Cannot keep this machine in the pool as '{node}': the {other} of another machine has this name. "
                    "Give each machine its own host name and its own /etc/machine-id. (A copied disk has the id of the "
                    "first one: delete that file, and run systemd-machine-id-setup.)"
                )
            if before is None or before.identity != identity:
                # The secret is unknown to all, so an agent that had the name before cannot report any more.
                values["secret_sha256"] = hash_secret(self._make_secret(AGENT_PREFIX))
                values |= {"joined_at": now, "joined_by": _BY_SERVER, "cluster": None, "owner": None}
                transaction.note(_NODE, f"node {node} joined the pool with its server", detail={"node": node})
            if before is None:
                connection.execute(insert(node_agents).values(node=node, **values))
            else:
                connection.execute(update(node_agents).where(node_agents.c.node == node).values(**values))

    def verify(self, secret: str) -> str:
        """Return the machine of the agent that has a secret. Raises Unauthenticated if none has it."""
        statement = select(node_agents.c.node).where(node_agents.c.secret_sha256 == hash_secret(secret))
        with self._database.reading() as connection:
            node = connection.execute(statement).scalar()
        if node is None:
            raise Unauthenticated(
                "The server does not know this agent: its machine was removed from the pool, or joined again. "
                f"Start it with a join token. {_NEW_TOKEN}"
            )
        return str(node)

    def report(self, node: str, said: AgentReport, now: float) -> bool:
        """Keep the report of a machine's agent; returns whether the agent must leave, because its pilot is let go.

        Raises:
            BadField: a field is too long.
            NotFound: the machine was removed meanwhile.
        """
        _check_report(said)
        values = msgspec.structs.asdict(said)
        is_leaving = values.pop("leaving")
        columns = node_agents.c
        statement = update(node_agents).where(columns.node == node)
        left_at = func.coalesce(columns.left_at, now) if is_leaving else None
        with writing(self._database, now) as transaction:
            if not transaction.connection.execute(statement.values(**values, seen_at=now, left_at=left_at)).rowcount:
                raise NotFound(f"There is no agent of a node '{node}'.")
            let_go = (columns.node == node, columns.cluster.is_not(None), columns.drained_at.is_not(None))
            return transaction.connection.execute(select(columns.node).where(*let_go)).first() is not None

    # ------------------------------------------------------------ what people do

    def list(self) -> tuple[StoredAgent, ...]:
        """Return all agents, by machine."""
        with self._database.reading() as connection:
            return read_all(connection, select(node_agents).order_by(node_agents.c.node), StoredAgent)

    def drain(self, node: str, reason: str, asker: Asker, now: float) -> None:
        """Stop using a machine: jobs shrink off it. Repeated calls replace the reason.

        Raises:
            Forbidden: the asker is no admin.
            NotFound: no machine with an agent has the name.
            BadField: the reason is too long.
        """
        check_is_admin("drain a node", asker)
        if len(reason) > _MAX_LENGTH:
            raise BadField("reason", f"Cannot drain node '{node[:100]}': the reason has more than 255 characters.")
        values = {"drained_at": now, "drained_by": asker.name, "drain_reason": reason or None}
        self._change(node, "drain", values, asker, now)

    def resume(self, node: str, asker: Asker, now: float) -> None:
        """Use a drained machine again. Errors as in `drain`."""
        check_is_admin("resume a node", asker)
        self._change(node, "resume", {"drained_at": None, "drained_by": None, "drain_reason": None}, asker, now)

    def remove(self, node: str, asker: Asker, now: float) -> None:
        """Forget a machine with an agent, which then needs a join token again.

        Raises:
            Forbidden: the asker is no admin.
            NotFound: no machine with an agent has the name.
            Conflict: its agent answers, and has not left.
        """
        check_is_admin("remove a node", asker)
        with writing(self._database, now) as transaction:
            agent = _find(transaction.connection, node, "remove")
            if not has_ended(transaction.connection, agent, now):
                raise Conflict(f"Cannot remove node '{node}': {_explain_presence(agent, now)}")
            transaction.connection.execute(delete(node_agents).where(node_agents.c.node == node))
            forget_node(transaction, node, _REMOVED)
            _record(transaction, node, "remove", "removed", asker)

    # ------------------------------------------------------------ inside

    def _make_secret(self, prefix: str) -> str:
        return f"{prefix}{self._random_bits(SECRET_BITS):064x}"

    def _change(self, node: str, verb: str, values: dict[str, Any], asker: Asker, now: float) -> None:
        with writing(self._database, now) as transaction:
            _find(transaction.connection, node, verb)
            transaction.connection.execute(update(node_agents).where(node_agents.c.node == node).values(**values))
            _record(transaction, node, verb, "drained" if verb == "drain" else "resumed", asker, values)


def _record(
    transaction: Transaction, node: str, verb: str, done: str, asker: Asker, detail: dict[str, Any] | None = None
) -> None:
    transaction.audit(asker.name, f"node.{verb}", node, detail)
    transaction.note(_NODE, f"node {node} was {done} by '{asker.name}'", detail={"node": node})


def _find(connection: Connection, node: str, verb: str) -> StoredAgent:
    found = read_one(connection, select(node_agents).where(node_agents.c.node == node), StoredAgent)
    if found is None:
        raise NotFound(
            f"Cannot {verb} node '{node[:100]}': no machine with an agent has this name. 'legato nodes' lists all "
            "machines."
        )
    return found


def _use_token(connection: Connection, secret: str, now: float) -> str:
    """Count the use of a join token, and return the user who made it."""
    chosen = join_tokens.c.secret_sha256 == hash_secret(secret)
    token = read_one(connection, select(join_tokens).where(chosen), JoinToken)
    if token is None:
        raise Unauthenticated(f"This is no join token of this server. {_NEW_TOKEN}")
    if token.revoked_at is not None:
        raise Unauthenticated(f"This join token was revoked. {_NEW_TOKEN}")
    if token.expires_at <= now:
        raise Unauthenticated(f"This join token has expired. {_NEW_TOKEN}")
    connection.execute(update(join_tokens).where(chosen).values(num_uses=join_tokens.c.num_uses + 1))
    return token.created_by


def _use_pilot(connection: Connection, secret: str, node: str, identity: str, now: float) -> StoredPilot | None:
    """Use the join token of a pilot, and return the pilot; None: it is no such token."""
    chosen = pilots.c.secret_sha256 == hash_secret(secret)
    pilot = read_one(connection, select(pilots).where(chosen), StoredPilot)
    if pilot is None:
        return None
    if pilot.node != node:
        raise Unauthenticated(f"This join token is that of the pilot '{pilot.node}', and of no other machine.")
    if pilot.expires_at <= now:
        raise Unauthenticated("This join token has expired: the server has let this pilot go, or it waited too long.")
    if pilot.identity not in (None, identity):
        raise Unauthenticated("This join token was used: it is valid for the first agent of its pilot only.")
    connection.execute(update(pilots).where(chosen).values(identity=identity))
    return pilot


def _is_server(connection: Connection, node: str) -> bool:
    """Return whether a name is that of a server's own machine, which has no agent."""
    own = select(slots.c.id).join(nodes, nodes.c.name == slots.c.node)
    own = own.where(nodes.c.name == node, nodes.c.engine == LOCAL, slots.c.unusable_since.is_(None))
    return connection.execute(own.limit(1)).first() is not None


def _may_replace(connection: Connection, before: StoredAgent, now: float) -> bool:
    """Return whether another agent may take the name of one: that one has ended, and no job holds its slots."""
    return has_ended(connection, before, now) and not is_held(connection, before.node)


def has_ended(connection: Connection, agent: StoredAgent, now: float) -> bool:
    """Return whether an agent is silent, or has left: it ends when no job holds its slots any more."""
    return now - _heard_at(agent) > AGENT_SILENT_S or (_is_leaving(agent) and not is_held(connection, agent.node))


def _heard_at(agent: StoredAgent) -> float:
    """Return when an agent joined or reported last. The first report follows a moment after the machine has joined."""
    return max(agent.joined_at, agent.seen_at or 0.0)


def _is_leaving(agent: StoredAgent) -> bool:
    """Return whether an agent gives its slots back; not if the one that had its name before did."""
    return agent.left_at is not None and agent.left_at >= agent.joined_at


def _explain_presence(agent: StoredAgent, now: float) -> str:
    """Return why an agent has not ended, and what to do, as sentences."""
    if _is_leaving(agent):
        return "jobs still hold slots of it, and shrink off it. Try again when it holds none: see 'legato slots -w'."
    ago_s = max(0.0, now - _heard_at(agent))
    return (
        f"its agent answered {ago_s:.0f} s ago. Stop it with Ctrl-C on that machine, and try again when 'legato "
        "nodes' says that it has left. If it was stopped in another way, as 'systemctl stop legato-agent' does, try "
        f"again in {AGENT_SILENT_S - ago_s + 1:.0f} s."
    )


def _check_report(said: AgentReport, *, fewest: int = 1) -> None:
    if not fewest <= len(said.devices) <= _MAX_SLOTS or len(said.gpu_types) != len(said.devices):
        raise BadField("devices", f"A machine has 1 to {_MAX_SLOTS} slots, each with a device and a GPU type.")
    for name, pairs in (("traits", said.traits), ("labels", said.labels)):
        if len(pairs) > _MAX_PAIRS:
            raise BadField(name, f"A machine has at most {_MAX_PAIRS} {name}.")
    texts = [*said.devices, *(found for found in said.gpu_types if found is not None), said.address, said.kind]
    texts += [text for pairs in (said.traits, said.labels) for pair in pairs.items() for text in pair]
    if any(len(text) > _MAX_LENGTH for text in texts) or len(said.version) > _MAX_PAIRS:
        raise BadField("devices", f"The report of an agent has a text of more than {_MAX_LENGTH} characters.")
