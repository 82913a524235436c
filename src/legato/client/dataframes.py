"""Time series as tables of pandas, if it is installed. Sends no requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from legato.api.outputs import Metrics
from legato.core.errors import UsageError

if TYPE_CHECKING:
    import pandas


def need_pandas() -> Any:
    """Return pandas.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import pandas
    except ImportError:
        raise UsageError(
            "Cannot make a table: pandas is not installed. Install it with 'pip install pandas', or use a method that "
            "works without it, such as job.series()."
        ) from None
    return pandas


def make_frame(metrics: Metrics) -> pandas.DataFrame:
    """Return the values of metrics: a row for each step, a column for each name, and ``epoch`` and ``time``.

    If a name was logged several times in a step, the last value counts.
    """
    pandas = need_pandas()
    rows: dict[int, dict[str, Any]] = {}
    for series in metrics.series:
        for step, epoch, time, value in zip(series.step, series.epoch, series.time, series.value, strict=True):
            row = rows.setdefault(step, {})
            row |= {"epoch": epoch, "time": time, series.name: float("nan") if value is None else value}
    columns = ["epoch", "time", *(series.name for series in metrics.series)]
    index = pandas.Index(sorted(rows), name="step", dtype="int64")
    return pandas.DataFrame([rows[step] for step in index], index=index, columns=list(dict.fromkeys(columns)))
