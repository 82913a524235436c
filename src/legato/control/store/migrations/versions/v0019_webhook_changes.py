"""When a webhook got its URL and its conditions. Never changed once released."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

_ADDED = ("url_since", "conditions_since")


def upgrade() -> None:
    """Add the columns. Webhooks that are there have had both from their beginning."""
    for name in _ADDED:
        op.add_column("webhooks", sa.Column(name, sa.Double(), nullable=False, server_default=sa.text("0")))


def downgrade() -> None:
    """Remove them."""
    for name in _ADDED:
        op.drop_column("webhooks", name)
