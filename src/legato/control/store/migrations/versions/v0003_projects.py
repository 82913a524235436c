"""Projects, training definitions, experiments, and which job came from which of them. Never changed once released."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_ORIGINS: Final = ("project", "experiment", "definition")


def upgrade() -> None:
    """Make the tables, and the columns of jobs that name them."""
    _make_projects()
    _make_definitions()
    _make_experiments()
    for column in (*_ORIGINS, "parent"):
        op.add_column("jobs", sa.Column(column, sa.String(length=12), nullable=True))
    for column in _ORIGINS:
        op.create_index(op.f(f"ix_jobs_{column}_id"), "jobs", [column, "id"], unique=False)
    op.create_index(op.f("ix_jobs_parent"), "jobs", ["parent"], unique=False)


def downgrade() -> None:
    """Take them away."""
    op.drop_index(op.f("ix_jobs_parent"), table_name="jobs")
    for column in _ORIGINS:
        op.drop_index(op.f(f"ix_jobs_{column}_id"), table_name="jobs")
    for column in (*_ORIGINS, "parent"):
        op.drop_column("jobs", column)
    for table in ("experiment_definitions", "experiments", "definitions", "project_members", "projects"):
        op.drop_table(table)


def _make_projects() -> None:
    op.create_table(
        "projects",
        sa.Column("id", sa.String(length=12), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("owner", sa.String(length=63), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("queue", sa.String(length=63), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["owner"], ["users.name"], name=op.f("fk_projects_owner")),
        sa.ForeignKeyConstraint(["queue"], ["queues.name"], name=op.f("fk_projects_queue")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_projects")),
    )
    op.create_index("uq_projects_owner_name", "projects", ["owner", "name"], unique=True)
    op.create_index(op.f("ix_projects_name_id"), "projects", ["name", "id"], unique=False)
    op.create_index(op.f("ix_projects_queue"), "projects", ["queue"], unique=False)
    op.create_table(
        "project_members",
        sa.Column("project", sa.String(length=12), nullable=False),
        sa.Column("user", sa.String(length=63), nullable=False),
        sa.ForeignKeyConstraint(
            ["project"], ["projects.id"], name=op.f("fk_project_members_project"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["user"], ["users.name"], name=op.f("fk_project_members_user")),
        sa.PrimaryKeyConstraint("project", "user", name=op.f("pk_project_members")),
    )
    op.create_index(op.f("ix_project_members_user"), "project_members", ["user"], unique=False)


def _make_definitions() -> None:
    op.create_table(
        "definitions",
        sa.Column("id", sa.String(length=12), nullable=False),
        sa.Column("project", sa.String(length=12), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("framework", sa.String(length=63), nullable=False),
        sa.Column("command", sa.Text(), nullable=False),
        sa.Column("code", sa.String(length=64), nullable=True),
        sa.Column("plan", sa.JSON(), nullable=False),
        sa.Column("created_by", sa.String(length=63), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["project"], ["projects.id"], name=op.f("fk_definitions_project")),
        sa.ForeignKeyConstraint(["code"], ["code_uploads.sha256"], name=op.f("fk_definitions_code")),
        sa.ForeignKeyConstraint(["created_by"], ["users.name"], name=op.f("fk_definitions_created_by")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_definitions")),
    )
    op.create_index("uq_definitions_project_name", "definitions", ["project", "name"], unique=True)
    op.create_index(op.f("ix_definitions_name_id"), "definitions", ["name", "id"], unique=False)
    op.create_index(op.f("ix_definitions_code"), "definitions", ["code"], unique=False)


def _make_experiments() -> None:
    op.create_table(
        "experiments",
        sa.Column("id", sa.String(length=12), nullable=False),
        sa.Column("project", sa.String(length=12), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("data", sa.Text(), nullable=True),
        sa.Column("arguments", sa.Text(), nullable=False),
        sa.Column("created_by", sa.String(length=63), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["project"], ["projects.id"], name=op.f("fk_experiments_project")),
        sa.ForeignKeyConstraint(["created_by"], ["users.name"], name=op.f("fk_experiments_created_by")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_experiments")),
    )
    op.create_index("uq_experiments_project_name", "experiments", ["project", "name"], unique=True)
    op.create_index(op.f("ix_experiments_name_id"), "experiments", ["name", "id"], unique=False)
    op.create_table(
        "experiment_definitions",
        sa.Column("experiment", sa.String(length=12), nullable=False),
        sa.Column("definition", sa.String(length=12), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment"], ["experiments.id"], name=op.f("fk_experiment_definitions_experiment"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["definition"], ["definitions.id"], name=op.f("fk_experiment_definitions_definition")),
        sa.PrimaryKeyConstraint("experiment", "definition", name=op.f("pk_experiment_definitions")),
    )
    op.create_index(
        op.f("ix_experiment_definitions_definition"), "experiment_definitions", ["definition"], unique=False
    )
