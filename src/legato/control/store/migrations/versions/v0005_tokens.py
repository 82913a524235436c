"""Tokens say what they are, and each of them ends. Never changed once released."""

from __future__ import annotations

import json
import time

import sqlalchemy as sa
import structlog
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_log = structlog.get_logger(__name__)

_DAY_S = 86400.0
_LEFT_S = 90 * _DAY_S


def upgrade() -> None:
    """Tell sessions and links from other tokens, and give those without an end 90 days from now."""
    op.add_column("tokens", sa.Column("kind", sa.String(length=16), nullable=False, server_default="token"))
    op.add_column("tokens", sa.Column("sessions_until", sa.Double()))
    # Only log-ins were so short, and codes of links, which last an hour. Those of browsers are known by their name too:
    # a platform may have had a long login_hours.
    short = "expires_at - created_at <= 86400 OR (name = 'console' AND expires_at IS NOT NULL)"
    op.execute(sa.text(f"UPDATE tokens SET kind = 'session' WHERE {short}"))  # noqa: S608 -- both parts stand above
    op.execute(sa.text("UPDATE tokens SET kind = 'link' WHERE kind = 'session' AND name = 'link'"))
    now = time.time()
    ends = now + _LEFT_S
    connection = op.get_bind()
    endless = connection.execute(
        sa.text('SELECT id, "user", name FROM tokens WHERE expires_at IS NULL AND revoked_at IS NULL ORDER BY id')
    ).all()
    audit = sa.table(
        "audit_log",
        *(sa.column(name) for name in ("who", "action", "target")),
        sa.column("time", sa.Double),
        sa.column("detail", sa.JSON),
    )
    for token, user, name in endless:
        detail = {"user": user, "name": name, "expires_at": ends}
        row = {"time": now, "who": "upgrade", "action": "token.expire", "target": token, "detail": detail}
        connection.execute(sa.insert(audit).values(row))
    if endless:
        _log.warning(
            "tokens must expire: those without an end expire in 90 days; make new ones in time (legato tokens add)",
            tokens=json.dumps([f"{user}/{name} ({token})" for token, user, name in endless]),
        )
    connection.execute(sa.text("UPDATE tokens SET expires_at = :ends WHERE expires_at IS NULL"), {"ends": ends})


def downgrade() -> None:
    """Forget what tokens are; their ends stay."""
    op.drop_column("tokens", "sessions_until")
    op.drop_column("tokens", "kind")
