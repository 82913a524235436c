"""Shows the progress of a training: a live chart where a notebook can show one, else lines. Decides nothing."""

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
    """Where a training is shown."""

    def show(self, curves: Curves) -> None:
        """Show what there is now."""


class Lines:
    """Writes a line for each point.

    Args:
        write: takes a line.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._num_points = 0

    def show(self, curves: Curves) -> None:
        """Write a line for each point that has come since the last time."""
        for point in curves.points[self._num_points :]:
            self._write(f"step {point.iteration}  {'  '.join(curves.titles_at(point))}")
        self._num_points = len(curves.points)


class Chart:
    """A picture that is replaced by the next one: losses above, speed and GPUs below, over the steps of all epochs.

    Args:
        display: as IPython's; a handle with ``update`` comes back.
    """

    def __init__(self, display: Callable[..., Any]) -> None:
        self._display = display
        self._handle: Any = None

    def show(self, curves: Curves) -> None:
        """Redraw the picture."""
        # The text is what is shown where no picture can be, and what is found in a notebook that was saved.
        content = {"image/png": draw(curves), "text/plain": "\n".join(curves.titles)}
        if self._handle is None:
            self._handle = self._display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)


def draw(curves: Curves) -> bytes:
    """Return the chart as a PNG picture."""
    from matplotlib.figure import Figure

    # Without pyplot, which would show it a second time at the end of the cell.
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
    """Return a chart where a notebook runs and matplotlib is there, else lines."""
    display = _find_display()
    if display is None or importlib.util.find_spec("matplotlib") is None:
        return Lines(write)
    return Chart(display)


def _find_display() -> Callable[..., Any] | None:
    """Return how a notebook shows things; None where none runs, as in a terminal."""
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
