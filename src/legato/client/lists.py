"""A list of the server's answers, which a notebook shows as a table. Sends no requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from legato.client.dataframes import need_pandas
from legato.client.html import render_records

if TYPE_CHECKING:
    import pandas

R = TypeVar("R", bound=msgspec.Struct)


class Listing(list[R]):
    """A list of records of one kind."""

    def to_pandas(self) -> pandas.DataFrame:
        """Return a table, a row for each record.

        Raises:
            UsageError: pandas is not installed.
        """
        frame: pandas.DataFrame = need_pandas().DataFrame([msgspec.to_builtins(record) for record in self])
        return frame

    def _repr_html_(self) -> str:
        return render_records(self)
