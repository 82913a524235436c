"""The user to whom a pilot belongs. Never changed once released."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    op.add_column("pilots", sa.Column("owner", sa.String(63)))
    op.add_column("pilots", sa.Column("uid", sa.BigInteger()))
    op.add_column("node_agents", sa.Column("owner", sa.String(63)))


def downgrade() -> None:
    """Remove them."""
    op.drop_column("node_agents", "owner")
    op.drop_column("pilots", "uid")
    op.drop_column("pilots", "owner")
