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
    """

    title: str
    read: Callable[[R], object]
    style: Callable[[R], str] | None = None
    is_wide: bool = False
    is_number: bool = False
    gives_way: int = 0


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

        columns = self._choose_columns(options.max_width)
        *widths, last_width = _fit(self._measure(columns), options.max_width)
        titles = [column.title for column in columns], ["dim"] * len(columns)
        rows = (
            (self._read(one, columns), [column.style(one) if column.style else "" for column in columns])
            for one in self.records
        )
        for place, ((*others, last), styles) in enumerate((titles, *rows)):
            is_title = place == 0
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

    def _choose_columns(self, max_width: int) -> Sequence[Column[R]]:
        """Return the columns to show: the last one, with the reason, has precedence over columns that give way."""
        widths = self._measure(self.columns)
        widths[-1] = min(widths[-1], _LAST_FOLDED_WIDTH if self.is_folded else _LAST_CUT_WIDTH)
        shown = list(zip(self.columns, widths, strict=True))
        while sum(width + _GAP_WIDTH for _, width in shown) - _GAP_WIDTH > max_width:
            weakest = max(shown, key=lambda one: one[0].gives_way)
            if weakest[0].gives_way == 0:
                break
            shown.remove(weakest)
        return [column for column, _ in shown]

    def _measure(self, columns: Sequence[Column[R]]) -> list[int]:
        rows = [[column.title for column in columns], *(self._read(record, columns) for record in self.records)]
        return [max(map(_width, cells)) for cells in zip(*rows, strict=True)]

    def render_plain(self) -> str:
        r"""Return the table for a pipe: without wrapping, cuts or colours.

        >>> columns = [Column("NAME", str.lower), Column("SIZE", len, is_number=True)]
        >>> Table(columns, ["A", "BCD"], is_folded=True, below="and more").render_plain()
        'NAME  SIZE\na        1\nbcd      3\nand more'
        """
        rows = [[column.title for column in self.columns], *map(self._read, self.records)]
        widths = [max(map(_width, cells)) for cells in zip(*rows, strict=True)]
        lines = []
        for row in rows:
            cells = []
            for column, width, text in zip(self.columns, widths, row, strict=True):
                gap = " " * (width - _width(text))
                cells.append(gap + text if column.is_number else text + gap)
            lines.append("  ".join(cells).rstrip())
        return "\n".join(lines if self.below is None else [*lines, self.below])

    def _read(self, record: R, columns: Sequence[Column[R]] | None = None) -> list[str]:
        values = [column.read(record) for column in columns or self.columns]
        return ["" if value is None else clean(value) for value in values]


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
