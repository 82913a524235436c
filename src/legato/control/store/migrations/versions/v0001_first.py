"""The first tables. Never changed once released."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# Triggers of the database protect rows that must never change.
_SQLITE_GUARD = """
CREATE TRIGGER audit_log_{verb} BEFORE {verb} ON audit_log
BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END
"""
_POSTGRESQL_GUARD = """
CREATE FUNCTION refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'the audit log is append-only'; END $$
"""
_POSTGRESQL_TRIGGER = """
CREATE TRIGGER audit_log_guard BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_log
FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_change()
"""


def upgrade() -> None:
    """Make the tables, the queue that jobs go to by default, and the sequence of events."""
    _make_accounts()
    _make_pool()
    _make_jobs()
    _make_events()
    _guard_audit_log()
    op.execute("INSERT INTO counters (name, value) VALUES ('events', 0)")
    op.execute(
        "INSERT INTO queues (name, weight, floor, ceiling, is_open, created_at) VALUES ('default', 1, 0, NULL, true, 0)"
    )


def downgrade() -> None:
    """Drop them all."""
    for table in (
        "counters",
        "events",
        "decisions",
        "allocations",
        "attempts",
        "jobs",
        "code_uploads",
        "leases",
        "queue_members",
        "queues",
        "slots",
        "nodes",
        "audit_log",
        "idempotency_keys",
        "tokens",
        "users",
    ):
        op.drop_table(table)
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION refuse_audit_change()")


def _guard_audit_log() -> None:
    if op.get_bind().dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            op.execute(_SQLITE_GUARD.format(verb=verb))
    else:
        op.execute(_POSTGRESQL_GUARD)
        op.execute(_POSTGRESQL_TRIGGER)


def _make_accounts() -> None:
    op.create_table(
        "users",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("password_hash", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("disabled_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_users")),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(length=12), nullable=False),
        sa.Column("user", sa.String(length=63), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("secret_sha256", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("revoked_at", sa.Double(), nullable=True),
        sa.Column("used_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["user"], ["users.name"], name=op.f("fk_tokens_user")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("secret_sha256", name=op.f("uq_tokens_secret_sha256")),
    )
    op.create_index(op.f("ix_tokens_user"), "tokens", ["user"], unique=False)
    op.create_table(
        "idempotency_keys",
        sa.Column("user", sa.String(length=63), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("request_sha256", sa.String(length=64), nullable=False),
        sa.Column("answer", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["user"], ["users.name"], name=op.f("fk_idempotency_keys_user")),
        sa.PrimaryKeyConstraint("user", "key", name=op.f("pk_idempotency_keys")),
    )
    op.create_index(op.f("ix_idempotency_keys_created_at"), "idempotency_keys", ["created_at"], unique=False)
    op.create_table(
        "audit_log",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("time", sa.Double(), nullable=False),
        sa.Column("who", sa.String(length=255), nullable=False),
        sa.Column("action", sa.String(length=64), nullable=False),
        sa.Column("target", sa.String(length=255), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_log")),
    )


def _make_pool() -> None:
    op.create_table(
        "nodes",
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("engine", sa.String(length=32), nullable=False),
        sa.Column("declared_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_nodes")),
    )
    op.create_table(
        "slots",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("node", sa.String(length=255), nullable=False),
        sa.Column("device", sa.String(length=255), nullable=False),
        sa.Column("declared_at", sa.Double(), nullable=False),
        sa.Column("unusable_since", sa.Double(), nullable=True),
        sa.Column("unusable_reason", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["node"], ["nodes.name"], name=op.f("fk_slots_node")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_slots")),
    )
    op.create_index(op.f("ix_slots_node"), "slots", ["node"], unique=False)
    op.create_table(
        "queues",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("weight", sa.Double(), nullable=False),
        sa.Column("floor", sa.Integer(), nullable=False),
        sa.Column("ceiling", sa.Integer(), nullable=True),
        sa.Column("is_open", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.CheckConstraint("weight > 0", name=op.f("ck_queues_weight")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_queues")),
    )
    op.create_table(
        "queue_members",
        sa.Column("queue", sa.String(length=63), nullable=False),
        sa.Column("user", sa.String(length=63), nullable=False),
        sa.ForeignKeyConstraint(["queue"], ["queues.name"], name=op.f("fk_queue_members_queue"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["user"], ["users.name"], name=op.f("fk_queue_members_user")),
        sa.PrimaryKeyConstraint("queue", "user", name=op.f("pk_queue_members")),
    )
    op.create_index(op.f("ix_queue_members_user"), "queue_members", ["user"], unique=False)
    op.create_table(
        "leases",
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("owner", sa.String(length=255), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_leases")),
    )


def _make_jobs() -> None:
    op.create_table(
        "code_uploads",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("num_bytes", sa.BigInteger(), nullable=False),
        sa.Column("uploaded_by", sa.String(length=63), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("used_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["uploaded_by"], ["users.name"], name=op.f("fk_code_uploads_uploaded_by")),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_code_uploads")),
    )
    op.create_index(op.f("ix_code_uploads_used_at"), "code_uploads", ["used_at"], unique=False)
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=12), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("owner", sa.String(length=63), nullable=False),
        sa.Column("queue", sa.String(length=63), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("min_workers", sa.Integer(), nullable=False),
        sa.Column("max_workers", sa.Integer(), nullable=False),
        sa.Column("is_elastic", sa.Boolean(), nullable=False),
        sa.Column("max_retries", sa.Integer(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("code", sa.String(length=64), nullable=True),
        sa.Column("stage", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("num_retries", sa.Integer(), nullable=False),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("stop_now", sa.Boolean(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("submitted_at", sa.Double(), nullable=False),
        sa.Column("staged_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("decided_slots", sa.Integer(), nullable=True),
        sa.Column("decided_reason", sa.Text(), nullable=True),
        sa.Column("progress", sa.JSON(), nullable=True),
        sa.CheckConstraint("min_workers >= 1 AND max_workers >= min_workers", name=op.f("ck_jobs_workers")),
        sa.ForeignKeyConstraint(["code"], ["code_uploads.sha256"], name=op.f("fk_jobs_code")),
        sa.ForeignKeyConstraint(["owner"], ["users.name"], name=op.f("fk_jobs_owner")),
        sa.ForeignKeyConstraint(["queue"], ["queues.name"], name=op.f("fk_jobs_queue")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )
    op.create_index(op.f("ix_jobs_code"), "jobs", ["code"], unique=False)
    op.create_index(op.f("ix_jobs_ended_at"), "jobs", ["ended_at"], unique=False)
    op.create_index(op.f("ix_jobs_name_id"), "jobs", ["name", "id"], unique=False)
    op.create_index(op.f("ix_jobs_owner_id"), "jobs", ["owner", "id"], unique=False)
    op.create_index(op.f("ix_jobs_queue_id"), "jobs", ["queue", "id"], unique=False)
    op.create_index(op.f("ix_jobs_stage_id"), "jobs", ["stage", "id"], unique=False)
    op.create_table(
        "attempts",
        sa.Column("job", sa.String(length=12), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("outcome", sa.String(length=16), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name=op.f("fk_attempts_job"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job", "attempt", name=op.f("pk_attempts")),
    )
    op.create_table(
        "allocations",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("slot", sa.String(length=255), nullable=False),
        sa.Column("job", sa.String(length=12), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("since", sa.Double(), nullable=False),
        sa.Column("release_asked_at", sa.Double(), nullable=True),
        sa.Column("until", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["job", "attempt"],
            ["attempts.job", "attempts.attempt"],
            name=op.f("fk_allocations_job"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(["slot"], ["slots.id"], name=op.f("fk_allocations_slot")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_allocations")),
    )
    op.create_index(op.f("ix_allocations_job_attempt"), "allocations", ["job", "attempt"], unique=False)
    op.create_index(op.f("ix_allocations_until"), "allocations", ["until"], unique=False)
    op.create_index(
        "uq_allocations_open_slot",
        "allocations",
        ["slot"],
        unique=True,
        sqlite_where=sa.text("until IS NULL"),
        postgresql_where=sa.text("until IS NULL"),
    )
    op.create_table(
        "decisions",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("job", sa.String(length=12), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("time", sa.Double(), nullable=False),
        sa.Column("num_slots", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name=op.f("fk_decisions_job"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_decisions")),
    )
    op.create_index(op.f("ix_decisions_job_id"), "decisions", ["job", "id"], unique=False)


def _make_events() -> None:
    op.create_table(
        "events",
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("time", sa.Double(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("job", sa.String(length=12), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name=op.f("fk_events_job"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_events")),
    )
    op.create_index(op.f("ix_events_job_seq"), "events", ["job", "seq"], unique=False)
    op.create_table(
        "counters",
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_counters")),
    )
