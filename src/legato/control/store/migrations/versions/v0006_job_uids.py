"""The number of the system's user as whom jobs of a user run. Never changed once released."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "job_uids",
        sa.Column("user", sa.String(length=63), nullable=False),
        sa.Column("uid", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["user"], ["users.name"], name=op.f("fk_job_uids_user")),
        sa.PrimaryKeyConstraint("user", name=op.f("pk_job_uids")),
        sa.UniqueConstraint("uid", name=op.f("uq_job_uids_uid")),
    )


def downgrade() -> None:
    """Take it away."""
    op.drop_table("job_uids")
