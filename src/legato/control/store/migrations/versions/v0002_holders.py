"""Who may use which uploaded code, and how many jobs of each user wait. Never changed once released."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table of the holders of code: its uploaders."""
    op.create_table(
        "code_holders",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("user", sa.String(length=63), nullable=False),
        sa.ForeignKeyConstraint(
            ["sha256"], ["code_uploads.sha256"], name=op.f("fk_code_holders_sha256"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["user"], ["users.name"], name=op.f("fk_code_holders_user")),
        sa.PrimaryKeyConstraint("sha256", "user", name=op.f("pk_code_holders")),
    )
    op.create_index(op.f("ix_code_holders_user"), "code_holders", ["user"], unique=False)
    op.execute('INSERT INTO code_holders (sha256, "user") SELECT sha256, uploaded_by FROM code_uploads')
    op.create_index(op.f("ix_jobs_owner_stage"), "jobs", ["owner", "stage"], unique=False)


def downgrade() -> None:
    """Take them away."""
    op.drop_index(op.f("ix_jobs_owner_stage"), table_name="jobs")
    op.drop_table("code_holders")
