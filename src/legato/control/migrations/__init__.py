"""The history of the store's tables, for Alembic; `legato.control.migrate` runs it. Imported by nobody."""
