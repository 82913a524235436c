"""Writes a picture into a file, in the format that the file's name has."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from legato.core.errors import UsageError
from legato.drawing.png import check_library, to_png
from legato.drawing.shapes import Picture
from legato.drawing.svg import to_svg

FORMATS: Final = (".svg", ".png")


def check_path(path: Path) -> None:
    """Check that a picture can be written to a path, before a long computation.

    Raises:
        UsageError: the name has no known format, the folder does not exist, or the library for PNG is missing.
    """
    told = f"Cannot draw '{path}'"
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"{told}: its name has no known ending. Give a name that ends in {' or '.join(FORMATS)}.")
    if path.is_dir():
        raise UsageError(f"{told}: it is a folder. Name a file.")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"{told}: there is no folder '{path.absolute().parent}'. Make it first.")
    if path.suffix.lower() == ".png":
        check_library()


def write_picture(path: Path, picture: Picture) -> None:
    """Write a picture as SVG or PNG.

    Raises:
        UsageError: as `check_path`; or the file cannot be written.
    """
    check_path(path)
    is_png = path.suffix.lower() == ".png"
    written = to_png(picture) if is_png else to_svg(picture).encode()
    try:
        path.write_bytes(written)
    except OSError as error:
        raise UsageError(f"Cannot draw '{path}': {error.strerror}. Choose another place.") from error
