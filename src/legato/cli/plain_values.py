"""Reads the values of most options without pydantic, which typer loads for each command; that takes the longest time.

Typer builds the reader of a parameter when it is needed, and keeps it in a private attribute. This module puts a reader
there that handles missing values, texts, defaults and parameters with a parser of Legato's, with the same results and
errors; it leaves everything else to typer's reader. With a typer that has no such attribute nothing changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import typer

_PLAIN: Final = (str, int, float, bool)


def read_plainly(command: Any) -> None:
    """Prepare the parameters of a command, and of the commands below it."""
    for param in command.get_params(typer.Context(command)):
        if getattr(param, "_runtime_param", param) is None:
            param._runtime_param = _Reader()
    below: Mapping[str, Any] = getattr(command, "commands", {})
    for each in below.values():
        read_plainly(each)


class _Reader:
    """Takes the place of typer's reader of one parameter."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value that the command gets. Raises typer.BadParameter."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        annotation, info = param.type_descriptor.annotation, param.type_descriptor.parameter_info
        if annotation == list[str] and info.parser is None and isinstance(value, list | tuple):
            return list(value)
        if not param.multiple and param.nargs == 1:
            if info.parser is not None:
                try:
                    return info.parser(value)
                except ValueError:
                    pass  # typer renders the error
            elif type(value) is annotation and annotation in _PLAIN and info.min is None and info.max is None:
                return value
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)
