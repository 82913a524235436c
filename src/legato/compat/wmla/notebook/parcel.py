"""The former name of `legato.compat.wmla.notebook.notebook_bundle`; programs of stored jobs import it."""

from __future__ import annotations

from legato.compat.wmla.notebook.notebook_bundle import train_parcel

__all__ = ["train_parcel"]
