"""Command lines and parameters: how a line is read as words, and parameters are written as arguments. Runs no shell."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping
from typing import Final

from legato.api.projects import Parameter
from legato.core.errors import BadField

_MAX_LINE_LENGTH: Final = 10_000
_MAX_WORDS: Final = 1_000
_MAX_PARAMETERS: Final = 1_000
_MAX_VALUE_LENGTH: Final = 10_000
_PARAMETER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,62}")


def split_line(field: str, line: str) -> tuple[str, ...]:
    """Return the words of a line, split as a shell does; nothing in it is replaced, and nothing is run.

    Args:
        field: in which it came, for errors.
        line: the line.

    Raises:
        BadField: the text has more than one line, or a quotation in it has no end.

    >>> split_line("command", "train.py --name 'two words' $HOME")
    ('train.py', '--name', 'two words', '$HOME')
    """
    if len(line) > _MAX_LINE_LENGTH or len(line.splitlines()) > 1:
        raise BadField(field, f"The {field} is more than one line, or than {_MAX_LINE_LENGTH} characters. Shorten it.")
    try:
        words = tuple(shlex.split(line))
    except ValueError as error:
        raise BadField(field, f"The {field} cannot be split into words: {error}. Close all quotes.") from error
    if len(words) > _MAX_WORDS:
        raise BadField(field, f"The {field} has {len(words)} words. Give at most {_MAX_WORDS}.")
    return words


def split_command(line: str) -> tuple[str, ...]:
    """Return the words of a command, at least one. Raises the errors of `split_line`."""
    words = split_line("command", line)
    if not words or not words[0]:
        raise BadField("command", "The command is empty. Write a command, such as 'train.py --epochs 3'.")
    return words


def check_parameters(parameters: Mapping[str, Parameter]) -> None:
    """Raise BadField unless the parameters can be written as arguments."""
    if len(parameters) > _MAX_PARAMETERS:
        raise BadField("parameters", f"There are {len(parameters)} parameters. Give at most {_MAX_PARAMETERS}.")
    for name, value in parameters.items():
        if not _PARAMETER.fullmatch(name):
            raise BadField(
                "parameters",
                f"'{name[:100]}' is not a valid name of a parameter. Use 1 to 63 letters, digits, '_', '-' and '.', "
                "and begin with a letter; Legato adds the two dashes.",
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise BadField("parameters", f"The parameter '{name}' is not a finite number. Pass it as a string.")
        if isinstance(value, str) and len(value) > _MAX_VALUE_LENGTH:
            raise BadField("parameters", f"The parameter '{name}' has more than {_MAX_VALUE_LENGTH} characters.")


def write_parameters(parameters: Mapping[str, Parameter]) -> tuple[str, ...]:
    """Return parameters as arguments.

    >>> write_parameters({"epochs": 3, "rate": 0.1, "verbose": True, "quiet": False, "shift": -1, "title": "a b"})
    ('--epochs', '3', '--rate', '0.1', '--verbose', '--shift=-1', '--title', 'a b')
    """
    words: list[str] = []
    for name, value in parameters.items():
        if isinstance(value, bool):
            words += [f"--{name}"] if value else []
            continue
        text = value if isinstance(value, str) else repr(value)
        # The program would read a separate value with a leading dash as another option.
        words += [f"--{name}={text}"] if text.startswith("-") else [f"--{name}", text]
    return tuple(words)
