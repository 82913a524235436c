"""Run migrations on the connection that `legato.control.store.migrate` opened. Opens none itself."""

from __future__ import annotations

from alembic import context

from legato.control.store.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, compare_type=True)
context.run_migrations()
