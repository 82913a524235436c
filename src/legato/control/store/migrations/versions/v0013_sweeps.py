"""Sweeps and their trials. Never changed once released."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "sweeps",
        sa.Column("id", sa.String(12), nullable=False),
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("owner", sa.String(63), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("queue", sa.String(63), nullable=False),
        sa.Column("plan", sa.JSON(), nullable=False),
        sa.Column("job", sa.JSON(), nullable=False),
        sa.Column("template", sa.JSON(), nullable=False),
        sa.Column("stage", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double()),
        sa.ForeignKeyConstraint(["owner"], ["users.name"], name=op.f("fk_sweeps_owner")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sweeps")),
    )
    for columns in (["name", "id"], ["owner", "id"], ["stage"], ["ended_at"]):
        op.create_index(op.f(f"ix_sweeps_{'_'.join(columns)}"), "sweeps", columns)
    op.create_table(
        "trials",
        sa.Column("sweep", sa.String(12), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("job", sa.String(12), nullable=False),
        sa.Column("parameters", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("value", sa.Double()),
        sa.Column("reports", sa.JSON(), nullable=False),
        sa.Column("marks", sa.JSON(), nullable=False),
        sa.Column("reason", sa.Text()),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double()),
        sa.ForeignKeyConstraint(["sweep"], ["sweeps.id"], name=op.f("fk_trials_sweep"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("sweep", "number", name=op.f("pk_trials")),
        sa.UniqueConstraint("job", name=op.f("uq_trials_job")),
    )


def downgrade() -> None:
    """Remove them. Jobs of trials stay."""
    op.drop_table("trials")
    op.drop_table("sweeps")
