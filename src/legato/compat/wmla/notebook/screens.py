"""Shows the progress of a training: as a live chart if the notebook can show it, else as lines."""

from __future__ import annotations

import importlib.util
import io
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from legato.compat.wmla.notebook.curves import Curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE_INCHES: Final = (8.0, 7.0)
_DPI: Final = 72
_STEPS: Final = "steps"


class Screen(Protocol):
    """Shows a training."""

    def show(self, curves: Curves) -> None:
        """Show the present points."""


class Lines:
    """Writes a line for each point.

    Args:
        write: prints a line.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._num_points = 0

    def show(self, curves: Curves) -> None:
        """Write a line for each point since the last call."""
        for point in curves.points[self._num_points :]:
            self._write(f"step {point.iteration}  {'  '.join(curves.titles_at(point))}")
        self._num_points = len(curves.points)


class Chart:
    """A picture that is updated: losses above, speed and GPUs below, over the micro-batches of all epochs.

    Args:
        display: IPython's ``display``, which returns a handle with ``update``.
    """

    def __init__(self, display: Callable[..., Any]) -> None:
        self._display = display
        self._handle: Any = None

    def show(self, curves: Curves) -> None:
        """Redraw the picture."""
        # The text is shown if pictures cannot be shown, and makes saved notebooks searchable.
        content = {"image/png": draw(curves), "text/plain": "\n".join(curves.titles)}
        if self._handle is None:
            self._handle = self._display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)


def draw(curves: Curves) -> bytes:
    """Return the chart as a PNG picture."""
    from matplotlib.figure import Figure

    # Not with pyplot, which would show the chart a second time at the end of the cell.
    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    upper, lower = figure.subplots(2, 1)
    steps = [point.iteration for point in curves.points]
    mark = "." if len(steps) == 1 else ""
    upper.plot(steps, [point.loss for point in curves.points], marker=mark, label="train loss")
    upper.plot([test.iteration for test in curves.tests], [test.loss for test in curves.tests], ".-", label="test loss")
    lower.plot(steps, [point.per_s for point in curves.points], marker=mark, label="avg steps per sec")
    lower.plot(steps, [point.num_gpus for point in curves.points], marker=mark, drawstyle="steps-post", label="gpus")
    for axes, title in zip((upper, lower), curves.titles, strict=True):
        _describe(axes, title)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=_DPI)
    return picture.getvalue()


def open_screen(write: Callable[[str], None]) -> Screen:
    """Return a `Chart` in a notebook with matplotlib, else `Lines`."""
    display = _find_display()
    if display is None or importlib.util.find_spec("matplotlib") is None:
        return Lines(write)
    return Chart(display)


def _find_display() -> Callable[..., Any] | None:
    """Return IPython's ``display`` in a notebook; None elsewhere, for example in a terminal."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if getattr(shell, "kernel", None) is None:
        return None
    from IPython.display import display

    found: Callable[..., Any] = display
    return found


def _describe(axes: Axes, title: str) -> None:
    axes.set_title(title)
    axes.set_xlabel(_STEPS)
    axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    axes.legend(loc="upper right")
