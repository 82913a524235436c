"""Names of projects, training definitions, experiments and their runs. Pure."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from legato.core.errors import BadField

_MAX_TITLE_LENGTH: Final = 100
_MAX_DESCRIPTION_LENGTH: Final = 10_000
_MAX_RUN_NAME_LENGTH: Final = 63
_ODD: Final = re.compile(r"[^A-Za-z0-9._-]+")


def check_title(doing: str, title: str) -> None:
    """Raise BadField unless the title is one line of 1 to 100 characters that begins and ends with a visible one."""
    if not 1 <= len(title) <= _MAX_TITLE_LENGTH or not title.isprintable() or title != title.strip():
        raise BadField(
            "name",
            f"Cannot {doing}: a name is one line of 1 to {_MAX_TITLE_LENGTH} characters, without spaces around it.",
        )


def check_description(doing: str, description: str, field: str = "description") -> None:
    """Raise BadField if the description, or the text of another field, is too long."""
    if len(description) > _MAX_DESCRIPTION_LENGTH:
        raise BadField(
            field,
            f"Cannot {doing}: the {field} has {len(description)} characters. Give at most {_MAX_DESCRIPTION_LENGTH}.",
        )


def name_run(experiment: str | None, definition: str) -> str:
    """Return the name of a run, made of its experiment and its definition, in the form that names of jobs have.

    >>> name_run("Digits, all", "Näive CNN"), name_run("mnist", "mnist"), name_run(None, "數字")
    ('Digits-all-Naive-CNN', 'mnist', 'run')
    """
    parts = [_as_name(part) for part in (experiment, definition) if part is not None]
    name = "-".join(dict.fromkeys(part for part in parts if part))
    return name[:_MAX_RUN_NAME_LENGTH].strip("-._") or "run"


def _as_name(title: str) -> str:
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode()
    return _ODD.sub("-", plain).strip("-._")
