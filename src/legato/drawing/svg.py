"""Pictures as SVG: as text, small, readable on a light and on a dark background. Writes no file."""

from __future__ import annotations

from typing import Final
from xml.sax.saxutils import escape

from legato.drawing.colours import INKS, NUM_TEXTURES, TEXTURE_OPACITY, ink_on
from legato.drawing.shapes import DARK, LIGHT, Area, Line, Picture, Shape, Style, Text, to_line

_FONTS: Final = "system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif"

_TEXTURE_PATHS: Final = ("", "M0 6 L6 0 M-1 1 L1 -1 M5 7 L7 5", "M0 0 L6 6 M5 -1 L7 1 M-1 5 L1 7")


def to_svg(picture: Picture) -> str:
    """Return a picture as an SVG document."""
    assert len(_TEXTURE_PATHS) == NUM_TEXTURES
    rules = "".join(f".{role}{{fill:{colour}}}.{role}-line{{stroke:{colour}}}" for role, colour in DARK.items())
    textures = "".join(
        f'<pattern id="{_name_texture(Style(ink, number))}" width="6" height="6" patternUnits="userSpaceOnUse">'
        f'<path d="{path}" stroke="{ink}" stroke-opacity="{TEXTURE_OPACITY}" stroke-width="1.3"/></pattern>'
        for ink in INKS
        for number, path in enumerate(_TEXTURE_PATHS)
        if number
    )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {picture.width:g} {picture.height:g}" '
        f'width="{picture.width:g}" height="{picture.height:g}" role="img" font-family="{_FONTS}">'
    )
    parts = [
        head,
        f"<title>{_escape(picture.title)}</title>",
        f"<desc>{_escape(picture.told)}</desc>",
        f"<style>@media (prefers-color-scheme: dark){{{rules}}}</style>",
        f"<defs>{textures}</defs>",
        f'<rect width="{picture.width:g}" height="{picture.height:g}" fill="{LIGHT["ground"]}" class="ground"/>',
        *(_draw(shape) for shape in picture.shapes),
        "</svg>",
        "",
    ]
    return "\n".join(parts)


def _draw(shape: Shape) -> str:
    match shape:
        case Area():
            return _draw_area(shape)
        case Line(begin=(x1, y1), end=(x2, y2)):
            dashes = ' stroke-dasharray="3 3"' if shape.dashed else ""
            return (
                f'<path d="M{_short(x1)} {_short(y1)} L{_short(x2)} {_short(y2)}" stroke="{LIGHT[shape.role]}" '
                f'class="{shape.role}-line" stroke-width="{shape.width:g}"{dashes}/>'
            )
        case Text(at=(x, y)):
            colour = LIGHT.get(shape.role, shape.role)
            kind = f' class="{shape.role}"' if shape.role in LIGHT else ""
            weight = ' font-weight="600"' if shape.bold else ""
            anchor = f' text-anchor="{shape.anchor}"' if shape.anchor != "start" else ""
            return (
                f'<text x="{_short(x)}" y="{_short(y)}" font-size="{shape.size:g}" fill="{colour}"'
                f"{kind}{weight}{anchor}>{_escape(shape.text)}</text>"
            )


def _draw_area(area: Area) -> str:
    path = "M" + " L".join(f"{_short(x)} {_short(y)}" for x, y in area.corners) + " Z"
    edge = f'stroke="{LIGHT["dim"]}" class="dim-line" stroke-width="0.5"'
    filled = f'<path d="{path}" fill="{area.style.colour}" {edge}/>'
    if area.style.texture:
        texture = _name_texture(Style(ink_on(area.style.colour), area.style.texture))
        filled += f'<path d="{path}" fill="url(#{texture})"/>'
    return f"<g><title>{_escape(area.tooltip)}</title>{filled}</g>" if area.tooltip else filled


def _name_texture(style: Style) -> str:
    return f"lines-{style.texture}-{style.colour.removeprefix('#')}"


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def _escape(text: str) -> str:
    return escape(to_line(text))
