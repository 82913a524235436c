"""Pilots of clusters, and what clusters say. Never changed once released."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables and the column."""
    op.create_table(
        "pilots",
        sa.Column("node", sa.String(255), nullable=False),
        sa.Column("cluster", sa.String(63), nullable=False),
        sa.Column("secret_sha256", sa.String(64), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.Column("identity", sa.String(64)),
        sa.PrimaryKeyConstraint("node", name=op.f("pk_pilots")),
        sa.UniqueConstraint("secret_sha256", name=op.f("uq_pilots_secret_sha256")),
    )
    op.create_table(
        "cluster_states",
        sa.Column("cluster", sa.String(63), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("state", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", name=op.f("pk_cluster_states")),
    )
    op.add_column("node_agents", sa.Column("cluster", sa.String(63)))


def downgrade() -> None:
    """Remove them."""
    op.drop_column("node_agents", "cluster")
    op.drop_table("cluster_states")
    op.drop_table("pilots")
