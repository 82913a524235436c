"""The numbers of the system's users that jobs no longer get after a restore. Never changed once released."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "skipped_uids",
        sa.Column("first", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("first", name=op.f("pk_skipped_uids")),
    )


def downgrade() -> None:
    """Take it away."""
    op.drop_table("skipped_uids")
