"""Makes the page of settings from the settings. ``python -m legato.control.settings_page FILE`` writes it."""

from __future__ import annotations

import re
import sys
import types
import typing
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from legato.control.cluster_settings import KubernetesSettings, SlurmSettings
from legato.control.settings import FILE_NAME, PREFIX, Settings

_HEAD: Final = f"""# Settings of the platform

You can give each setting as a flag of `legato up` and `legato server` (`--port 8080`, or `--set NAME=VALUE` for a
setting without its own flag), in the environment, or in a file. A flag overrides the environment, the environment
overrides the file, and the file overrides the default. `legato config show` prints each value and its source. The
file is `{FILE_NAME}` in `home`, or the one given with `--config`. It contains lines such as `port = 8080`. In the
environment the name is in capitals and starts with `{PREFIX}`: `{PREFIX}PORT=8080`. There, separate the items of a
list by commas, and write `none` for an empty list or no value; in the file, write `"none"` in quotes. A server
refuses to start with an unknown name in the file. Most descriptions end with the default value and the reason for it.

`python -m legato.control.settings_page docs/settings.md` generates this page from the source.

| setting | environment | type | default | meaning |
|---|---|---|---|---|
"""


_SECTION_HEAD: Final = """| setting | type | default | meaning |
|---|---|---|---|
"""
_SECTIONS: Final[dict[str, type[BaseModel]]] = {"slurm": SlurmSettings, "kubernetes": KubernetesSettings}


def render_page() -> str:
    """Return the page, as Markdown."""
    rows = [
        f"| `{name}` | `{PREFIX}{name.upper()}` | {_render_field(field)} |"
        for name, field in Settings.model_fields.items()
    ]
    sections = [_render_section(name, fields) for name, fields in _SECTIONS.items()]
    return _HEAD + "\n".join(rows) + "\n" + "".join(sections)


def _render_section(name: str, fields: type[BaseModel]) -> str:
    rows = [f"| `{field}` | {_render_field(found)} |" for field, found in fields.model_fields.items()]
    return f"\n## The section `[{name}]`\n\n{_SECTION_HEAD}" + "\n".join(rows) + "\n"


def _render_field(field: FieldInfo) -> str:
    meaning = (field.description or "").replace("|", "\\|")
    default = "required" if field.is_required() else _render_default(field.default)
    return f"{_render_type(field.annotation)} | {default} | {meaning}"


def _render_type(annotation: Any) -> str:
    if typing.get_origin(annotation) is typing.Literal:
        return " or ".join(f"`{choice}`" for choice in typing.get_args(annotation))
    if isinstance(annotation, types.UnionType):
        return " or ".join(_render_type(part) for part in typing.get_args(annotation))
    if annotation is types.NoneType:
        return "none"
    if typing.get_origin(annotation) is tuple:
        return "list of text"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "section"
    return {bool: "true or false", int: "whole number", float: "number", str: "text", Path: "path"}[annotation]


def _render_default(default: Any) -> str:
    if default is None:
        return "none"
    if default in ((), ""):
        return "none"
    if isinstance(default, tuple):
        return ", ".join(f"`{item}`" for item in default)
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, int | float):
        return f"{default:g}" if default < 1e6 else re.sub(r"(?<=\d)(?=(\d{3})+$)", " ", str(default))
    return f"`{default}`"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render_page())
