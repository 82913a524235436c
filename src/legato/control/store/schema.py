"""The tables of the store. Opens no database; `migrations` makes these tables, and a test compares the two.

Times are seconds since 1970. Users, queues, nodes and slots have their name as the key, so that rows are readable
without joins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Dialect,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    text,
)

metadata: Final = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)

# SQLite numbers rows only if the type is spelled INTEGER.
_NUMBER = BigInteger().with_variant(Integer, "sqlite")
_NAME = String(63)
_TITLE = String(100)
_JOB_ID = String(12)
_TRUTHS: Final = {0: False, 1: True}


class _YesOrNo(Boolean):
    """A truth value. SQLite stores any value; a value that is neither true nor false must not be read as true."""

    cache_ok = True

    def result_processor(self, dialect: Dialect, _kind: Any) -> Callable[[Any], Any] | None:
        """Read 0 and 1 as truth values, and do not change other values."""
        return None if dialect.supports_native_boolean else lambda value: _TRUTHS.get(value, value)


def _job_column() -> Column[str]:
    return Column("job", _JOB_ID, ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False)


users = Table(
    "users",
    metadata,
    Column("name", _NAME, primary_key=True),
    Column("role", String(16), nullable=False),
    Column("password_hash", Text),  # None: the user has tokens only
    Column("created_at", Double, nullable=False),
    Column("disabled_at", Double),  # users are never deleted, because jobs and the audit log name them
)

job_uids = Table(
    "job_uids",
    metadata,
    Column("user", _NAME, ForeignKey("users.name"), primary_key=True),
    Column("uid", BigInteger, nullable=False, unique=True),  # of the system user; never given to another user
)

# Numbers that are no longer assigned: before a restore other users may have had them, and their files still exist.
skipped_uids = Table(
    "skipped_uids",
    metadata,
    Column("first", BigInteger, primary_key=True, autoincrement=False),
    Column("last", BigInteger, nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", _JOB_ID, primary_key=True),
    Column("user", _NAME, ForeignKey("users.name"), nullable=False),
    Column("name", _NAME, nullable=False),
    Column("role", String(16), nullable=False),
    Column("secret_sha256", String(64), nullable=False, unique=True),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
    Column("revoked_at", Double),
    Column("used_at", Double),
    Column("kind", String(16), nullable=False, server_default="token"),  # a TokenKind
    Column("sessions_until", Double),  # of a link: latest end of the log-in that it gives
    Index(None, "user"),
)

access_requests = Table(
    "access_requests",
    metadata,
    Column("id", _JOB_ID, primary_key=True),
    Column("user", _NAME, ForeignKey("users.name"), nullable=False),  # who asks
    Column("owner", _NAME, ForeignKey("users.name"), nullable=False),  # of projects
    Column("message", Text, nullable=False),
    Column("stage", String(16), nullable=False),
    Column("project", _JOB_ID),  # that was granted; it may have been deleted since
    Column("created_at", Double, nullable=False),
    Column("decided_at", Double),
    Index(None, "user", "owner"),
    Index(None, "owner"),
)

queues = Table(
    "queues",
    metadata,
    Column("name", _NAME, primary_key=True),
    Column("weight", Double, nullable=False),
    Column("floor", Integer, nullable=False),  # slots that the queue can always claim
    Column("ceiling", Integer),  # maximum of slots; None: the whole pool
    Column("is_open", _YesOrNo, nullable=False),  # whether all users may submit to it
    Column("created_at", Double, nullable=False),
    CheckConstraint("weight > 0", name="weight"),
)

queue_members = Table(
    "queue_members",
    metadata,
    Column("queue", _NAME, ForeignKey("queues.name", ondelete="CASCADE"), primary_key=True),
    Column("user", _NAME, ForeignKey("users.name"), primary_key=True),
    Index(None, "user"),
)

nodes = Table(
    "nodes",
    metadata,
    Column("name", String(255), primary_key=True),
    Column("engine", String(32), nullable=False),
    Column("declared_at", Double, nullable=False),
    Column("kind", String(255)),  # None: unknown
    Column("traits", JSON),  # what makes the kind: name → value, for people
    Column("labels", JSON),
)

join_tokens = Table(
    "join_tokens",
    metadata,
    Column("id", _JOB_ID, primary_key=True),
    Column("secret_sha256", String(64), nullable=False, unique=True),
    Column("created_by", _NAME, ForeignKey("users.name"), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
    Column("revoked_at", Double),
    Column("num_uses", Integer, nullable=False),
)

# An agent reports before its node is declared.
node_agents = Table(
    "node_agents",
    metadata,
    Column("node", String(255), primary_key=True),
    Column("identity", String(64), nullable=False),
    Column("secret_sha256", String(64), nullable=False, unique=True),
    Column("joined_at", Double, nullable=False),
    Column("joined_by", _NAME, nullable=False),  # the user who made the join token
    Column("version", String(64), nullable=False),
    Column("address", String(255), nullable=False),
    Column("devices", JSON, nullable=False),
    Column("gpu_types", JSON, nullable=False),
    Column("kind", String(255), nullable=False),
    Column("traits", JSON, nullable=False),
    Column("labels", JSON, nullable=False),
    Column("seen_at", Double),  # None: it has not reported
    Column("left_at", Double),  # since when it gives its slots back
    Column("drained_at", Double),
    Column("drained_by", _NAME),
    Column("drain_reason", Text),
    Column("cluster", _NAME),  # kind of the cluster of which it is a pilot; None: it is none
    Column("owner", _NAME),  # the only user whose jobs use the machine; None: all users' jobs do
)

# Pilots that a cluster has, or has had until a moment ago: each with the join token of its agent.
pilots = Table(
    "pilots",
    metadata,
    Column("node", String(255), primary_key=True),
    Column("cluster", _NAME, nullable=False),
    Column("secret_sha256", String(64), nullable=False, unique=True),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
    Column("identity", String(64)),  # of the agent that has joined with it
    Column("owner", _NAME),  # the only user whose jobs use its machine; None: all users' jobs do
    Column("uid", BigInteger),  # the system user as whom it runs; None: that of the server
)

cluster_states = Table(
    "cluster_states",
    metadata,
    Column("cluster", _NAME, primary_key=True),
    Column("updated_at", Double, nullable=False),
    Column("state", JSON, nullable=False),
)

slots = Table(
    "slots",
    metadata,
    Column("id", String(255), primary_key=True),
    Column("node", String(255), ForeignKey("nodes.name"), nullable=False),
    Column("device", String(255), nullable=False),
    Column("declared_at", Double, nullable=False),
    Column("unusable_since", Double),  # since when its node does not declare it; rows are never deleted
    Column("unusable_reason", Text),
    Column("gpu_type", String(255)),  # model of the GPU; None: no GPU, or unknown
    Index(None, "node"),
)

code_uploads = Table(
    "code_uploads",
    metadata,
    Column("sha256", String(64), primary_key=True),
    Column("num_bytes", BigInteger, nullable=False),
    Column("uploaded_by", _NAME, ForeignKey("users.name"), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("used_at", Double, nullable=False),
    Index(None, "used_at"),
)

# Users who have sent the bytes. A SHA-256 alone, which others may have seen, gives no access.
code_holders = Table(
    "code_holders",
    metadata,
    Column("sha256", String(64), ForeignKey("code_uploads.sha256", ondelete="CASCADE"), primary_key=True),
    Column("user", _NAME, ForeignKey("users.name"), primary_key=True),
    Index(None, "user"),
)

projects = Table(
    "projects",
    metadata,
    Column("id", _JOB_ID, primary_key=True),
    Column("name", _TITLE, nullable=False),
    Column("owner", _NAME, ForeignKey("users.name"), nullable=False),
    Column("description", Text, nullable=False),
    Column("queue", _NAME, ForeignKey("queues.name"), nullable=False),
    Column("version", Integer, nullable=False),
    Column("created_at", Double, nullable=False),
    Index("uq_projects_owner_name", "owner", "name", unique=True),
    Index(None, "name", "id"),
    Index(None, "queue"),
)

project_members = Table(
    "project_members",
    metadata,
    Column("project", _JOB_ID, ForeignKey("projects.id", ondelete="CASCADE"), primary_key=True),
    Column("user", _NAME, ForeignKey("users.name"), primary_key=True),
    Index(None, "user"),
)

definitions = Table(
    "definitions",
    metadata,
    Column("id", _JOB_ID, primary_key=True),
    Column("project", _JOB_ID, ForeignKey("projects.id"), nullable=False),
    Column("name", _TITLE, nullable=False),
    Column("description", Text, nullable=False),
    Column("framework", _NAME, nullable=False),
    Column("command", Text, nullable=False),
    Column("code", String(64), ForeignKey("code_uploads.sha256")),
    Column("plan", JSON, nullable=False),  # the other settings of its runs; never changed
    Column("created_by", _NAME, ForeignKey("users.name"), nullable=False),
    Column("version", Integer, nullable=False),
    Column("created_at", Double, nullable=False),
    Index("uq_definitions_project_name", "project", "name", unique=True),
    Index(None, "name", "id"),
    Index(None, "code"),
)

experiments = Table(
    "experiments",
    metadata,
    Column("id", _JOB_ID, primary_key=True),
    Column("project", _JOB_ID, ForeignKey("projects.id"), nullable=False),
    Column("name", _TITLE, nullable=False),
    Column("description", Text, nullable=False),
    Column("data", Text),
    Column("arguments", Text, nullable=False),
    Column("created_by", _NAME, ForeignKey("users.name"), nullable=False),
    Column("version", Integer, nullable=False),
    Column("created_at", Double, nullable=False),
    Index("uq_experiments_project_name", "project", "name", unique=True),
    Index(None, "name", "id"),
)

experiment_definitions = Table(
    "experiment_definitions",
    metadata,
    Column("experiment", _JOB_ID, ForeignKey("experiments.id", ondelete="CASCADE"), primary_key=True),
    Column("definition", _JOB_ID, ForeignKey("definitions.id"), primary_key=True),
    Column("place", Integer, nullable=False),  # from 0, in the requested order
    Index(None, "definition"),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", _JOB_ID, primary_key=True),
    Column("name", _NAME, nullable=False),
    Column("owner", _NAME, ForeignKey("users.name"), nullable=False),
    Column("queue", _NAME, ForeignKey("queues.name"), nullable=False),
    Column("priority", Integer, nullable=False),
    Column("min_workers", Integer, nullable=False),
    Column("max_workers", Integer, nullable=False),
    Column("is_elastic", _YesOrNo, nullable=False),
    Column("max_retries", Integer, nullable=False),
    Column("labels", JSON, nullable=False),
    Column("spec", JSON, nullable=False),  # as submitted; the columns above have the present values
    Column("code", String(64), ForeignKey("code_uploads.sha256")),
    # Its origin, as long as that exists. No foreign keys: SQLite cannot add them to an existing table.
    Column("project", _JOB_ID),
    Column("experiment", _JOB_ID),
    Column("definition", _JOB_ID),
    Column("parent", _JOB_ID),  # the job of which it is a clone
    Column("stage", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("num_retries", Integer, nullable=False),
    Column("exit_code", Integer),
    Column("stop_now", _YesOrNo, nullable=False),  # whether a user asked for an end without a checkpoint
    Column("version", Integer, nullable=False),
    Column("submitted_at", Double, nullable=False),
    Column("staged_at", Double, nullable=False),
    Column("started_at", Double),
    Column("ended_at", Double),
    # Copies of the newest row of `decisions`, so that lists need no join; the reason has its newest wording.
    Column("decided_slots", Integer),
    Column("decided_reason", Text),
    Column("progress", JSON),
    Column("gpus_per_worker", Integer, nullable=False, server_default="1"),
    Column("machine_kind", Text),  # of the machines on which its training began; None: it has not begun
    Column("notes", Text, nullable=False, server_default=text("''")),
    CheckConstraint("min_workers >= 1 AND max_workers >= min_workers", name="workers"),
    Index(None, "name", "id"),
    Index(None, "owner", "id"),
    Index(None, "owner", "stage"),
    Index(None, "queue", "id"),
    Index(None, "stage", "id"),
    Index(None, "ended_at"),
    Index(None, "code", "owner", "id"),
    Index(None, "project", "id"),
    Index(None, "experiment", "id"),
    Index(None, "definition", "id"),
    Index(None, "parent"),
)

# The labels of jobs as rows, by which lists of jobs are filtered. The column `labels` says what a job has.
job_labels = Table(
    "job_labels",
    metadata,
    Column("key", String(63), primary_key=True),
    Column("value", String(255), primary_key=True),
    Column("job", _JOB_ID, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Index(None, "job"),
)

sweeps = Table(
    "sweeps",
    metadata,
    Column("id", _JOB_ID, primary_key=True),
    Column("name", _NAME, nullable=False),
    Column("owner", _NAME, ForeignKey("users.name"), nullable=False),
    Column("role", String(16), nullable=False),  # of the request that started it; its jobs are submitted with it
    Column("queue", _NAME, nullable=False),  # of its jobs; it may have been deleted since
    Column("plan", JSON, nullable=False),  # never changed, as the next two
    Column("job", JSON, nullable=False),  # what the trials run, as it was submitted
    Column("template", JSON, nullable=False),  # the job of a trial, without its name and parameters
    Column("stage", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("ended_at", Double),
    Index(None, "name", "id"),
    Index(None, "owner", "id"),
    Index(None, "stage"),
    Index(None, "ended_at"),
)

# A trial is inserted together with its job, which may be deleted earlier.
trials = Table(
    "trials",
    metadata,
    Column("sweep", _JOB_ID, ForeignKey("sweeps.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("job", _JOB_ID, nullable=False, unique=True),
    Column("parameters", JSON, nullable=False),
    Column("state", String(16), nullable=False),
    Column("value", Double),
    Column("reports", JSON, nullable=False),
    Column("marks", JSON, nullable=False),  # what the pruner noted
    Column("reason", Text),
    Column("started_at", Double, nullable=False),
    Column("ended_at", Double),
)

# A hash is not enough for the secret: the server signs with it.
webhooks = Table(
    "webhooks",
    metadata,
    Column("id", _JOB_ID, primary_key=True),
    Column("owner", _NAME, ForeignKey("users.name"), nullable=False),
    Column("project", _JOB_ID, ForeignKey("projects.id", ondelete="CASCADE")),  # None: the owner's jobs
    Column("url", Text, nullable=False),
    Column("news", JSON, nullable=False),
    Column("below_workers", Integer),
    Column("waiting_s", Double),
    Column("secret", Text, nullable=False),
    Column("seen_seq", BigInteger, nullable=False),  # number of the last event that was considered for it
    Column("num_dropped", Integer, nullable=False),
    Column("tried_at", Double),  # when a message was last sent to it
    Column("held_until", Double),  # no message is sent before, because the last try has failed
    Column("url_since", Double, nullable=False, server_default=text("0")),  # when its URL was changed last
    Column("conditions_since", Double, nullable=False, server_default=text("0")),  # the same of project and waiting_s
    Column("created_at", Double, nullable=False),
    Index(None, "owner"),
    Index(None, "project"),
)

webhook_deliveries = Table(
    "webhook_deliveries",
    metadata,
    Column("id", String(34), primary_key=True),
    Column("webhook", _JOB_ID, ForeignKey("webhooks.id", ondelete="CASCADE"), nullable=False),
    Column("cause", String(64), nullable=False),
    Column("event", String(16), nullable=False),
    Column("job", _JOB_ID),  # it may have been deleted since
    Column("body", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("num_tries", Integer, nullable=False),
    Column("tried_at", Double),
    Column("next_at", Double),  # None: it was accepted or given up
    Column("status", Integer),
    Column("error", Text),
    Column("done_at", Double),
    Index("uq_webhook_deliveries_webhook_cause", "webhook", "cause", unique=True),
    Index(None, "webhook", "created_at"),
    Index(None, "webhook", "next_at"),
    Index(None, "done_at"),
)

attempts = Table(
    "attempts",
    metadata,
    Column("job", _JOB_ID, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("started_at", Double, nullable=False),
    Column("ended_at", Double),
    Column("outcome", String(16)),  # the stage into which the job went at its end
    Column("reason", Text),
)

allocations = Table(
    "allocations",
    metadata,
    Column("id", _NUMBER, primary_key=True, autoincrement=True),
    Column("slot", String(255), ForeignKey("slots.id"), nullable=False),
    Column("job", _JOB_ID, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("since", Double, nullable=False),
    Column("release_asked_at", Double),
    Column("until", Double),
    Column("worker", Text),  # all slots of the worker, if it has several, as in `legato.core.slots.join_slots`
    ForeignKeyConstraint(["job", "attempt"], ["attempts.job", "attempts.attempt"], ondelete="CASCADE"),
    # Guarantees one owner per slot, even if there is a bug.
    Index(
        "uq_allocations_open_slot",
        "slot",
        unique=True,
        sqlite_where=text("until IS NULL"),
        postgresql_where=text("until IS NULL"),
    ),
    Index(None, "job", "attempt"),
    Index(None, "until"),
)

decisions = Table(
    "decisions",
    metadata,
    Column("id", _NUMBER, primary_key=True, autoincrement=True),
    _job_column(),
    Column("attempt", Integer, nullable=False),
    Column("time", Double, nullable=False),
    Column("num_slots", Integer, nullable=False),
    Column("reason", Text, nullable=False),
    Index(None, "job", "id"),
)

events = Table(
    "events",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("time", Double, nullable=False),
    Column("kind", String(32), nullable=False),
    Column("job", _JOB_ID, ForeignKey("jobs.id", ondelete="CASCADE")),  # None: of the pool
    Column("attempt", Integer),
    Column("reason", Text, nullable=False),
    Column("detail", JSON),
    Index(None, "job", "seq"),
)

# One row for each stored sequence.
counters = Table(
    "counters",
    metadata,
    Column("name", String(32), primary_key=True),
    Column("value", BigInteger, nullable=False),
)

# What users have used, by hours since 1970. The queue may have been deleted since.
usage = Table(
    "usage",
    metadata,
    Column("user", _NAME, ForeignKey("users.name"), primary_key=True),
    Column("queue", _NAME, primary_key=True),
    Column("hour", BigInteger, primary_key=True, autoincrement=False),
    Column("slot_s", Double, nullable=False),
    Index(None, "hour"),
)

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("user", _NAME, ForeignKey("users.name"), primary_key=True),
    Column("key", String(255), primary_key=True),
    Column("request_sha256", String(64), nullable=False),
    Column("answer", Text),  # None: in flight
    Column("created_at", Double, nullable=False),
    Index(None, "created_at"),
)

audit_log = Table(
    "audit_log",
    metadata,
    Column("id", _NUMBER, primary_key=True, autoincrement=True),
    Column("time", Double, nullable=False),
    Column("who", String(255), nullable=False),  # no foreign key: it also contains unknown names
    Column("action", String(64), nullable=False),
    Column("target", String(255), nullable=False),
    Column("detail", JSON),
)

# The row "loop" is the lease of the control loop; the owner of the row "home" is the home with the jobs' directories.
leases = Table(
    "leases",
    metadata,
    Column("name", String(32), primary_key=True),
    Column("owner", String(255), nullable=False),
    Column("expires_at", Double, nullable=False),
    Column("fence", BigInteger, nullable=False),
)
