"""A training is shown as a chart in a notebook, else as lines."""

from __future__ import annotations

import io
import math
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from matplotlib.image import imread

from legato.compat.wmla.notebook import screens
from legato.compat.wmla.notebook.curves import Curves, Point, Validation


def curves_of(num_points: int) -> Curves:
    curves = Curves()
    curves.points = [Point(50 * index, 2.0 / index, 40.0 + index, index % 3) for index in range(1, num_points + 1)]
    curves.tests = [Validation(60, 1.5)]
    return curves


def test_lines_tell_each_point_once() -> None:
    lines: list[str] = []
    screen = screens.Lines(lines.append)
    screen.show(curves_of(2))
    screen.show(curves_of(2))
    screen.show(curves_of(3))
    assert lines == [
        "step 50  train loss: 2 test loss: -  avg steps per sec: 41.0 gpus: 1",
        "step 100  train loss: 1 test loss: 1.5  avg steps per sec: 42.0 gpus: 2",
        "step 150  train loss: 0.6667 test loss: 1.5  avg steps per sec: 43.0 gpus: 0",
    ]


def test_a_chart_is_shown_once_and_then_replaced() -> None:
    shown: list[Any] = []
    updates: list[Any] = []

    def display(content: Any, **options: Any) -> Any:
        shown.append((content, options))
        return SimpleNamespace(update=lambda content, **options: updates.append((content, options)))

    chart = screens.Chart(display)
    chart.show(curves_of(1))
    chart.show(curves_of(3))
    ((first, options),) = shown
    ((second, _),) = updates
    assert options == {"raw": True, "display_id": True}
    assert first["text/plain"] == "train loss: 2 test loss: -\navg steps per sec: 41.0 gpus: 1"
    assert second["text/plain"] == "train loss: 0.6667 test loss: 1.5\navg steps per sec: 43.0 gpus: 0"
    assert first["image/png"] != second["image/png"]


def test_the_picture_has_two_axes_with_the_titles_and_all_points(monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib.figure

    made: list[Any] = []

    class Kept(matplotlib.figure.Figure):
        def __init__(self, *args: Any, **named: Any) -> None:
            super().__init__(*args, **named)
            made.append(self)

    monkeypatch.setattr(matplotlib.figure, "Figure", Kept)
    curves = curves_of(3)
    picture = imread(io.BytesIO(screens.draw(curves)))
    assert picture.shape[0] > 400 and picture.std() > 0
    upper, lower = made[0].axes
    assert (upper.get_title(), lower.get_title()) == curves.titles
    plotted = [[list(line.get_xdata()) for line in axes.get_lines()] for axes in (upper, lower)]
    assert plotted == [[[50, 100, 150], [60]], [[50, 100, 150], [50, 100, 150]]]
    assert list(upper.get_lines()[0].get_ydata()) == [2.0, 1.0, 2.0 / 3]
    assert list(lower.get_lines()[1].get_ydata()) == [1, 2, 0]


def test_a_chart_with_unknown_values_can_be_drawn() -> None:
    curves = Curves()
    curves.points = [Point(1, math.nan, math.nan, 0)]
    assert screens.draw(curves).startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("shell", "has_matplotlib", "kind"),
    [
        (SimpleNamespace(kernel=object()), True, screens.Chart),
        (SimpleNamespace(kernel=object()), False, screens.Lines),
        (SimpleNamespace(), True, screens.Lines),
        (None, True, screens.Lines),
    ],
)
def test_a_chart_needs_a_notebook_and_matplotlib(
    monkeypatch: pytest.MonkeyPatch, shell: Any, has_matplotlib: bool, kind: type
) -> None:
    import IPython

    monkeypatch.setattr(IPython, "get_ipython", lambda: shell)
    if not has_matplotlib:
        monkeypatch.setattr(screens.importlib.util, "find_spec", lambda _: None)
    assert isinstance(screens.open_screen(print), kind)


def test_without_ipython_there_are_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert isinstance(screens.open_screen(print), screens.Lines)
