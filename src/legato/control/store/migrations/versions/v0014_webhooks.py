"""Webhooks and their deliveries. Never changed once released."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "webhooks",
        sa.Column("id", sa.String(12), nullable=False),
        sa.Column("owner", sa.String(63), nullable=False),
        sa.Column("project", sa.String(12)),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("news", sa.JSON(), nullable=False),
        sa.Column("below_workers", sa.Integer()),
        sa.Column("waiting_s", sa.Double()),
        sa.Column("secret", sa.Text(), nullable=False),
        sa.Column("seen_seq", sa.BigInteger(), nullable=False),
        sa.Column("num_dropped", sa.Integer(), nullable=False),
        sa.Column("tried_at", sa.Double()),
        sa.Column("held_until", sa.Double()),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["owner"], ["users.name"], name=op.f("fk_webhooks_owner")),
        sa.ForeignKeyConstraint(["project"], ["projects.id"], name=op.f("fk_webhooks_project"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhooks")),
    )
    for column in ("owner", "project"):
        op.create_index(op.f(f"ix_webhooks_{column}"), "webhooks", [column])
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", sa.String(34), nullable=False),
        sa.Column("webhook", sa.String(12), nullable=False),
        sa.Column("cause", sa.String(64), nullable=False),
        sa.Column("event", sa.String(16), nullable=False),
        sa.Column("job", sa.String(12)),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("num_tries", sa.Integer(), nullable=False),
        sa.Column("tried_at", sa.Double()),
        sa.Column("next_at", sa.Double()),
        sa.Column("status", sa.Integer()),
        sa.Column("error", sa.Text()),
        sa.Column("done_at", sa.Double()),
        sa.ForeignKeyConstraint(
            ["webhook"], ["webhooks.id"], name=op.f("fk_webhook_deliveries_webhook"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_deliveries")),
    )
    op.create_index(
        op.f("uq_webhook_deliveries_webhook_cause"), "webhook_deliveries", ["webhook", "cause"], unique=True
    )
    for columns in (["webhook", "created_at"], ["webhook", "next_at"], ["done_at"]):
        op.create_index(op.f(f"ix_webhook_deliveries_{'_'.join(columns)}"), "webhook_deliveries", columns)


def downgrade() -> None:
    """Remove them."""
    op.drop_table("webhook_deliveries")
    op.drop_table("webhooks")
