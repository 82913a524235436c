"""Numbers of events: above a panel where there is space, and in order below it. Draws nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from legato.drawing.shapes import measure

LABEL_SIZE: Final = 11.0
_GAP: Final = 7.0


class Label(NamedTuple):
    """The numbers of one mark, or of several that are too close to one another for a line each."""

    x: float
    first: int
    last: int

    @property
    def text(self) -> str:
        """The text above the line."""
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"

    @property
    def ends_at(self) -> float:
        """The x position at which the text ends, in pixels."""
        return self.x + measure(self.text, LABEL_SIZE) / 2


def place_labels(places: Sequence[float]) -> list[Label]:
    """Return the labels of marks, numbered from 1; labels that would touch are joined.

    Args:
        places: x positions of the marks, in order, in pixels.

    >>> [(label.x, label.text) for label in place_labels([10, 12, 100])]
    [(10, '1-2'), (100, '3')]
    """
    labels: list[Label] = []
    for number, x in enumerate(places, start=1):
        label = Label(x, number, number)
        while labels and 2 * label.x - label.ends_at < labels[-1].ends_at + _GAP:
            before = labels.pop()
            label = Label(before.x, before.first, number)
        labels.append(label)
    return labels
