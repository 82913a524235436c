"""A counter of changes of jobs that no event tells of. Never changed once released."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Begin to count."""
    op.execute("INSERT INTO counters (name, value) VALUES ('quiet', 0)")


def downgrade() -> None:
    """Count no more."""
    op.execute("DELETE FROM counters WHERE name = 'quiet'")
