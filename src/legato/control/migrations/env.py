"""Run migrations on the connection that `legato.control.migrate` opened. Opens none itself."""

from __future__ import annotations

from alembic import context

from legato.control.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, compare_type=True)
context.run_migrations()
