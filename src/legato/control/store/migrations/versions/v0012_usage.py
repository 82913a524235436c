"""Slot-seconds that users have used, by queue and hour. Never changed once released."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table and the counter of the time up to which use was counted."""
    op.create_table(
        "usage",
        sa.Column("user", sa.String(63), nullable=False),
        sa.Column("queue", sa.String(63), nullable=False),
        sa.Column("hour", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("slot_s", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["user"], ["users.name"], name=op.f("fk_usage_user")),
        sa.PrimaryKeyConstraint("user", "queue", "hour", name=op.f("pk_usage")),
    )
    op.create_index(op.f("ix_usage_hour"), "usage", ["hour"])
    op.execute("INSERT INTO counters (name, value) VALUES ('usage', 0)")


def downgrade() -> None:
    """Remove them."""
    op.execute("DELETE FROM counters WHERE name = 'usage'")
    op.drop_table("usage")
