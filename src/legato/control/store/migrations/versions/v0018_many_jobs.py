"""Counters of ended jobs, and the labels of jobs as rows, by which they are found. Never changed once released."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

# Labels that cannot be read have no rows: the column is no JSON object, or a value is no text or too long for a label.
# PostgreSQL's JSON may hold a character 0, its texts may not. Two backslashes stand for one, and begin no character.
_LABELS = {
    "sqlite": r"""
        INSERT INTO job_labels (key, value, job)
        SELECT pair.key, pair.value, jobs.id
        FROM jobs, json_each(
            CASE WHEN NOT json_valid(labels) THEN '{}' WHEN json_type(labels) = 'object' THEN labels ELSE '{}' END
        ) AS pair
        WHERE pair.type = 'text' AND length(pair.key) <= 63 AND length(pair.value) <= 255
        ON CONFLICT DO NOTHING""",
    "postgresql": r"""
        INSERT INTO job_labels (key, value, job)
        SELECT pair.key, pair.value #>> '{}', jobs.id
        FROM jobs, json_each(
            CASE WHEN position('\u0000' IN replace(labels\:\:text, '\\', '')) > 0 THEN '{}'
            WHEN json_typeof(labels) = 'object' THEN labels ELSE '{}' END
        ) AS pair
        WHERE json_typeof(pair.value) = 'string' AND length(pair.key) <= 63 AND length(pair.value #>> '{}') <= 255
        ON CONFLICT DO NOTHING""",
}


def upgrade() -> None:
    """Count the jobs, and read their labels."""
    for stage in ("failed", "stopped", "succeeded"):
        counted = sa.text("INSERT INTO counters (name, value) SELECT :name, count(*) FROM jobs WHERE stage = :stage")
        op.execute(counted.bindparams(name=f"jobs_{stage}", stage=stage))
    op.create_table(
        "job_labels",
        sa.Column("key", sa.String(63), nullable=False),
        sa.Column("value", sa.String(255), nullable=False),
        sa.Column("job", sa.String(12), nullable=False),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name=op.f("fk_job_labels_job"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("key", "value", "job", name=op.f("pk_job_labels")),
    )
    op.create_index(op.f("ix_job_labels_job"), "job_labels", ["job"])
    op.execute(_LABELS[op.get_bind().dialect.name])


def downgrade() -> None:
    """Remove them."""
    op.drop_table("job_labels")
    op.execute("DELETE FROM counters WHERE name IN ('jobs_failed', 'jobs_stopped', 'jobs_succeeded')")
