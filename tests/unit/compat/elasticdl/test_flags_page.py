"""The page says of every flag what becomes of it."""

from __future__ import annotations

import re
from pathlib import Path

from legato.compat.elasticdl.flags import FLAGS

PAGE = (Path(__file__).parents[4] / "docs/elasticdl.md").read_text()
TOLD = {"used": "supported", "accepted": "accepted", "refused": "not supported"}


def test_every_flag_of_train_is_documented_with_its_effect() -> None:
    rows = re.findall(r"^\| (`--[^|]+) \| ([a-z ]+) \| ([^\n]+) \|$", PAGE, re.MULTILINE)
    told = [(flag, fate) for flags, fate, _ in rows for flag in re.findall(r"`--(\w+)`", flags)]
    assert sorted(told) == sorted((flag.name, TOLD[flag.fate]) for flag in FLAGS["train"])


def test_every_flag_of_the_other_commands_is_documented() -> None:
    for command in ("pods", "zoo init", "zoo build"):
        (row,) = (line for line in PAGE.splitlines() if line.startswith(f"| `elasticdl {command}"))
        assert [flag.name for flag in FLAGS[command] if f"--{flag.name}" not in row] == []
