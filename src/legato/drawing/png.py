"""Pictures as PNG, by matplotlib, an optional library: it has its own fonts and needs no library of the system.

Other libraries turn SVG into PNG, but they need a library of the system (CairoSVG) or leave words out where the
system has no fonts (resvg).
"""

from __future__ import annotations

import importlib.util
import io
import warnings
from typing import TYPE_CHECKING, Any, Final

from legato.core.errors import UsageError
from legato.drawing.colours import TEXTURE_OPACITY, ink_on
from legato.drawing.shapes import LIGHT, Area, Line, Picture, Shape, Text, to_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DOTS_PER_INCH: Final = 100.0  # a pixel of the picture is a hundredth of an inch
_SHARPNESS: Final = 2.0  # dots of the file per pixel of the picture
_POINTS_PER_PIXEL: Final = 72.0 / _DOTS_PER_INCH
_HATCHES: Final = ("", "////", "\\\\\\\\")


def check_library() -> None:
    """Check that this installation can write PNG files.

    Raises:
        UsageError: the library is not installed; the message says what to install.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError(
            "Cannot draw PNG: matplotlib is not installed. Name a file that ends in .svg, or install it: "
            "pip install 'legato[png]'."
        )


def to_png(picture: Picture) -> bytes:
    """Return a picture as a PNG file, light, two dots per pixel. Characters missing in DejaVu Sans become boxes.

    Raises:
        UsageError: the library is not installed.
    """
    check_library()
    from matplotlib.figure import Figure

    width, height = picture.width, picture.height
    figure = Figure(
        figsize=(width / _DOTS_PER_INCH, height / _DOTS_PER_INCH),
        dpi=_DOTS_PER_INCH * _SHARPNESS,
        facecolor=LIGHT["ground"],
    )
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    for depth, shape in enumerate(picture.shapes):
        _draw(axes, shape, depth)
    written = io.BytesIO()
    described = {"Title": to_line(picture.title), "Description": to_line(picture.told)}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(written, format="png", metadata=described)
    return written.getvalue()


def _draw(axes: Axes, shape: Shape, depth: int) -> None:
    from matplotlib.patches import Polygon

    match shape:
        case Area():
            look: dict[str, Any] = {"facecolor": shape.style.colour, "edgecolor": LIGHT["dim"], "linewidth": 0.4}
            axes.add_patch(Polygon(shape.corners, zorder=depth, **look))
            if shape.style.texture:
                lines: dict[str, Any] = {"edgecolor": ink_on(shape.style.colour), "alpha": TEXTURE_OPACITY}
                hatch = _HATCHES[shape.style.texture]
                axes.add_patch(Polygon(shape.corners, fill=False, hatch=hatch, linewidth=0, zorder=depth, **lines))
        case Line(begin=(x1, y1), end=(x2, y2)):
            axes.plot(
                (x1, x2),
                (y1, y2),
                color=LIGHT[shape.role],
                linewidth=shape.width * _POINTS_PER_PIXEL,
                linestyle=":" if shape.dashed else "-",
                zorder=depth,
            )
        case Text(at=(x, y)):
            horizontal = {"start": "left", "middle": "center", "end": "right"}[shape.anchor]
            axes.text(
                x,
                y,
                to_line(shape.text),
                parse_math=False,
                fontsize=shape.size * _POINTS_PER_PIXEL,
                color=LIGHT.get(shape.role, shape.role),
                weight="bold" if shape.bold else "normal",
                horizontalalignment=horizontal,
                verticalalignment="baseline",
                zorder=depth,
            )
