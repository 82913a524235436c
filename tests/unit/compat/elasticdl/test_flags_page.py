"""The page states the effect of every flag."""

from __future__ import annotations

import re
from pathlib import Path

from legato.compat.elasticdl.flags import FLAGS

PAGE = (Path(__file__).parents[4] / "docs/elasticdl.md").read_text()
WORDS = {"used": "supported", "accepted": "accepted", "refused": "not supported"}


def test_every_flag_of_train_is_documented_with_its_effect() -> None:
    rows = re.findall(r"^\| (`--[^|]+) \| ([a-z ]+) \| ([^\n]+) \|$", PAGE, re.MULTILINE)
    documented = [(flag, effect) for flags, effect, _ in rows for flag in re.findall(r"`--(\w+)`", flags)]
    assert sorted(documented) == sorted((flag.name, WORDS[flag.effect]) for flag in FLAGS["train"])


def test_every_flag_of_the_other_commands_is_documented() -> None:
    for command in ("pods", "zoo init", "zoo build"):
        (row,) = (line for line in PAGE.splitlines() if line.startswith(f"| `elasticdl {command}"))
        assert [flag.name for flag in FLAGS[command] if f"--{flag.name}" not in row] == []
