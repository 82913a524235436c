"""Users' requests for access to projects. Never changed once released."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "access_requests",
        sa.Column("id", sa.String(12), nullable=False),
        sa.Column("user", sa.String(63), nullable=False),
        sa.Column("owner", sa.String(63), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("stage", sa.String(16), nullable=False),
        sa.Column("project", sa.String(12)),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("decided_at", sa.Double()),
        sa.ForeignKeyConstraint(["user"], ["users.name"], name=op.f("fk_access_requests_user")),
        sa.ForeignKeyConstraint(["owner"], ["users.name"], name=op.f("fk_access_requests_owner")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_access_requests")),
    )
    op.create_index(op.f("ix_access_requests_user_owner"), "access_requests", ["user", "owner"])
    op.create_index(op.f("ix_access_requests_owner"), "access_requests", ["owner"])


def downgrade() -> None:
    """Take it away."""
    op.drop_table("access_requests")
