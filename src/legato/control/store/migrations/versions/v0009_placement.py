"""Kinds, labels and GPU models of nodes; several GPUs per worker. Never changed once released."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns. The kind and the GPU models of nodes are unknown until they are declared again."""
    op.add_column("nodes", sa.Column("kind", sa.String(255)))
    op.add_column("nodes", sa.Column("traits", sa.JSON()))
    op.add_column("nodes", sa.Column("labels", sa.JSON()))
    op.add_column("slots", sa.Column("gpu_type", sa.String(255)))
    op.add_column("jobs", sa.Column("gpus_per_worker", sa.Integer(), nullable=False, server_default="1"))
    op.add_column("jobs", sa.Column("machine_kind", sa.Text()))
    op.add_column("allocations", sa.Column("worker", sa.Text()))


def downgrade() -> None:
    """Remove them."""
    op.drop_column("allocations", "worker")
    op.drop_column("jobs", "machine_kind")
    op.drop_column("jobs", "gpus_per_worker")
    op.drop_column("slots", "gpu_type")
    op.drop_column("nodes", "labels")
    op.drop_column("nodes", "traits")
    op.drop_column("nodes", "kind")
