"""Agents of machines, and the tokens with which they join. Never changed once released."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "join_tokens",
        sa.Column("id", sa.String(12), nullable=False),
        sa.Column("secret_sha256", sa.String(64), nullable=False),
        sa.Column("created_by", sa.String(63), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.Column("revoked_at", sa.Double()),
        sa.Column("num_uses", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["created_by"], ["users.name"], name=op.f("fk_join_tokens_created_by")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_join_tokens")),
        sa.UniqueConstraint("secret_sha256", name=op.f("uq_join_tokens_secret_sha256")),
    )
    op.create_table(
        "node_agents",
        sa.Column("node", sa.String(255), nullable=False),
        sa.Column("identity", sa.String(64), nullable=False),
        sa.Column("secret_sha256", sa.String(64), nullable=False),
        sa.Column("joined_at", sa.Double(), nullable=False),
        sa.Column("joined_by", sa.String(63), nullable=False),
        sa.Column("version", sa.String(64), nullable=False),
        sa.Column("address", sa.String(255), nullable=False),
        sa.Column("devices", sa.JSON(), nullable=False),
        sa.Column("gpu_types", sa.JSON(), nullable=False),
        sa.Column("kind", sa.String(255), nullable=False),
        sa.Column("traits", sa.JSON(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("seen_at", sa.Double()),
        sa.Column("left_at", sa.Double()),
        sa.Column("drained_at", sa.Double()),
        sa.Column("drained_by", sa.String(63)),
        sa.Column("drain_reason", sa.Text()),
        sa.PrimaryKeyConstraint("node", name=op.f("pk_node_agents")),
        sa.UniqueConstraint("secret_sha256", name=op.f("uq_node_agents_secret_sha256")),
    )


def downgrade() -> None:
    """Remove them."""
    op.drop_table("node_agents")
    op.drop_table("join_tokens")
