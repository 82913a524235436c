"""A table for people: fitted to the width of a terminal, or with one line per row for a pipe. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Literal, NamedTuple, TypeVar

from legato.cli.terminal.formatting import clean

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

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

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Yield the table for a terminal, with the columns that fit."""
        yield self._draw(self._choose_columns(options.max_width))

    def _choose_columns(self, max_width: int) -> Sequence[Column[R]]:
        """Return the columns to show: the last one, with the reason, has precedence over columns that give way."""
        rows = [[column.title for column in self.columns], *map(self._read, self.records)]
        widths = [max(map(_width, cells)) for cells in zip(*rows, strict=True)]
        widths[-1] = min(widths[-1], _LAST_FOLDED_WIDTH if self.is_folded else _LAST_CUT_WIDTH)
        shown = list(zip(self.columns, widths, strict=True))
        while sum(width + _GAP_WIDTH for _, width in shown) - _GAP_WIDTH > max_width:
            weakest = max(shown, key=lambda one: one[0].gives_way)
            if weakest[0].gives_way == 0:
                break
            shown.remove(weakest)
        return [column for column, _ in shown]

    def _draw(self, columns: Sequence[Column[R]]) -> RenderableType:
        from rich.console import Group
        from rich.table import Table as Grid
        from rich.text import Text

        grid = Grid(box=None, padding=(0, _GAP_WIDTH, 0, 0), header_style="dim", pad_edge=False)
        for column in columns:
            # If not all columns fit, the last one becomes narrower.
            is_last = column is columns[-1]
            grid.add_column(
                column.title,
                justify="right" if column.is_number else "left",
                no_wrap=not is_last,
                overflow="fold" if is_last else "ellipsis",
            )
        # Otherwise the style of the column.
        no_wrap = None if self.is_folded else True
        overflow: Literal["ellipsis"] | None = None if self.is_folded else "ellipsis"
        for record in self.records:
            styles = [column.style(record) if column.style else "" for column in columns]
            cells = zip(self._read(record, columns), styles, strict=True)
            grid.add_row(*(Text(text, style, no_wrap=no_wrap, overflow=overflow) for text, style in cells))
        return grid if self.below is None else Group(grid, Text(self.below, style="dim"))

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


def _width(text: str) -> int:
    """Return the width of a text in terminal cells; some characters take two, others none."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
