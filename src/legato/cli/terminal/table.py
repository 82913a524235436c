"""A table for people: fitted to the width of a terminal, or with one line per row for a pipe. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from legato.cli.terminal.formatting import clean

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

R = TypeVar("R")

_GAP_WIDTH: Final = 2
_LAST_FOLDED_WIDTH: Final = 20  # characters that the last column has before others give way to it
_LAST_CUT_WIDTH: Final = 40


class Column(NamedTuple, Generic[R]):
    """A column of a table.

    Args:
        title: in capitals.
        read: returns the text of a cell, from the record.
        style: returns the style of a cell, from the record. None: the default style.
        is_wide: shown only in wide output.
        is_number: aligned to the right.
        gives_way: hidden if the terminal is too narrow, the columns with the highest number first. 0: never hidden.
        read_short: returns a shorter text, for a terminal that is too narrow for all columns. None: as `read`.
    """

    title: str
    read: Callable[[R], object]
    style: Callable[[R], str] | None = None
    is_wide: bool = False
    is_number: bool = False
    gives_way: int = 0
    read_short: Callable[[R], object] | None = None


@dataclass(frozen=True)
class Table(Generic[R]):
    """Records, a row each.

    Args:
        columns: to show.
        records: in the order of the rows.
        is_folded: the last column is wrapped if it is too long for one line. False: it is cut off.
        below: a line under the table. None: no line.
    """

    columns: Sequence[Column[R]]
    records: Sequence[R]
    is_folded: bool
    below: str | None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType | Segment]:
        """Yield the table for a terminal, with the columns that fit.

        Rich's own table would take five times as long. Here, Rich only cuts and wraps the cells that are too long.
        """
        from rich.segment import Segment
        from rich.text import Text

        rows = self._read_rows()
        all_widths = _measure(rows)
        places = self._choose_columns(all_widths, options.max_width)
        if len(places) < len(self.columns) and any(column.read_short for column in self.columns):
            rows = self._read_rows(is_short=True)
            all_widths = _measure(rows)
            places = self._choose_columns(all_widths, options.max_width)
        columns = [self.columns[place] for place in places]
        *widths, last_width = _fit([all_widths[place] for place in places], options.max_width)
        of_records = ([column.style(one) if column.style else "" for column in columns] for one in self.records)
        for number, (row, styles) in enumerate(zip(rows, (["dim"] * len(columns), *of_records), strict=True)):
            *others, last = [row[place] for place in places]
            is_title = number == 0
            is_folded = is_title or self.is_folded
            lines = _fold(last, last_width, console) if is_folded else [_cut(last, last_width)]
            cells = [_cut(cell, width - _GAP_WIDTH) for cell, width in zip(others, widths, strict=True)]
            # Titles stand directly above the cells.
            shown_at = len(lines) - 1 if is_title else 0
            for at, line in enumerate(lines):
                gap = ""
                beside = zip(columns, cells, widths, styles, strict=False)
                for column, cell, width, style in beside:
                    shown = cell if at == shown_at else ""
                    room = " " * (width - _GAP_WIDTH - _width(shown))
                    yield Segment(gap + room if column.is_number else gap)
                    yield Segment(shown, console.get_style(style))
                    gap = " " * _GAP_WIDTH if column.is_number else room + " " * _GAP_WIDTH
                room = " " * (last_width - _width(line))
                yield Segment(gap + room if columns[-1].is_number else gap)
                yield Segment(line, console.get_style(styles[-1]))
                yield Segment.line()
        if self.below is not None:
            yield Text(self.below, style="dim")

    def _choose_columns(self, widths: Sequence[int], max_width: int) -> list[int]:
        """Return the places of the columns to show: the last one has precedence over columns that give way.

        Args:
            widths: of all columns.
            max_width: of the terminal. The last column, with the reason, need not be shown in its whole width.
        """
        enough = min(widths[-1], _LAST_FOLDED_WIDTH if self.is_folded else _LAST_CUT_WIDTH)
        shown = list(enumerate([*widths[:-1], enough]))
        while sum(width + _GAP_WIDTH for _, width in shown) - _GAP_WIDTH > max_width:
            weakest = max(shown, key=lambda one: self.columns[one[0]].gives_way)
            if self.columns[weakest[0]].gives_way == 0:
                break
            shown.remove(weakest)
        return [place for place, _ in shown]

    def render_plain(self) -> str:
        r"""Return the table for a pipe: without wrapping, cuts or colours.

        >>> columns = [Column("NAME", str.lower), Column("SIZE", len, is_number=True)]
        >>> Table(columns, ["A", "BCD"], is_folded=True, below="and more").render_plain()
        'NAME  SIZE\na        1\nbcd      3\nand more'
        """
        rows = self._read_rows()
        widths = _measure(rows)
        lines = []
        for row in rows:
            cells = []
            for column, width, text in zip(self.columns, widths, row, strict=True):
                gap = " " * (width - _width(text))
                cells.append(gap + text if column.is_number else text + gap)
            lines.append("  ".join(cells).rstrip())
        return "\n".join(lines if self.below is None else [*lines, self.below])

    def _read_rows(self, *, is_short: bool = False) -> list[list[str]]:
        """Return the titles, and then the cells of each record."""
        rows = [[column.title for column in self.columns]]
        reads = [(is_short and column.read_short) or column.read for column in self.columns]
        for record in self.records:
            values = [read(record) for read in reads]
            rows.append(["" if value is None else clean(value) for value in values])
        return rows


def _measure(rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the width of each column."""
    return [max(map(_width, cells)) for cells in zip(*rows, strict=True)]


def _fit(widths: list[int], max_width: int) -> list[int]:
    """Return the widths of columns with gaps: if not all fit, the last one becomes narrower, and then the widest ones.

    >>> _fit([4, 4, 9], 30), _fit([4, 4, 9], 16), _fit([4, 4, 9], 9)
    ([6, 6, 9], [6, 6, 4], [4, 5, 0])
    """
    *others, last = [*(width + _GAP_WIDTH for width in widths[:-1]), widths[-1]]
    last = max(min(last, max_width - sum(others)), 0)
    while sum(others) > max_width:
        others[others.index(max(others))] -= 1
    return [*others, last]


def _cut(text: str, width: int) -> str:
    text = text.rstrip()
    if _width(text) <= width:
        return text
    if width < 1:
        return ""
    from rich.text import Text

    cut = Text(text)
    cut.truncate(width, overflow="ellipsis")
    return cut.plain


def _fold(text: str, width: int, console: Console) -> list[str]:
    if _width(text) <= width or width < 1:
        return [_cut(text, width)]
    from rich.text import Text

    return [line.plain.rstrip() for line in Text(text).wrap(console, width, overflow="fold")]


def _width(text: str) -> int:
    """Return the width of a text in terminal cells; some characters take two, others none."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
