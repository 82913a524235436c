"""An index by which the earlier runs of a job's code are found. Never changed once released."""

from __future__ import annotations

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Replace the index on the code alone."""
    op.create_index(op.f("ix_jobs_code_owner_id"), "jobs", ["code", "owner", "id"])
    op.drop_index(op.f("ix_jobs_code"), "jobs")


def downgrade() -> None:
    """Restore it."""
    op.create_index(op.f("ix_jobs_code"), "jobs", ["code"])
    op.drop_index(op.f("ix_jobs_code_owner_id"), "jobs")
