"""Notes of jobs. Never changed once released."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column. Jobs that are there have no notes."""
    op.add_column("jobs", sa.Column("notes", sa.Text(), nullable=False, server_default=sa.text("''")))


def downgrade() -> None:
    """Remove it."""
    op.drop_column("jobs", "notes")
