"""The history of the store's tables, for Alembic; `legato.control.store.migrate` runs it. No module imports it."""
