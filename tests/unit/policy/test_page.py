"""docs/scheduling.md says what is so."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from legato.policy.rules import Rules

PAGE = (Path(__file__).parents[3] / "docs/scheduling.md").read_text()


def test_every_setting_is_documented_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (\S+) \|", PAGE, re.MULTILINE))
    told = {field.name: field.default for field in msgspec.structs.fields(Rules)}
    assert rows == {
        name: "none" if default is None else f"{default:g}" if isinstance(default, float) else str(default)
        for name, default in told.items()
    }


def test_the_sentences_of_the_story_are_those_of_the_tests() -> None:
    story = PAGE[PAGE.index("## Two users") : PAGE.index("## What a job specifies")]
    sentences = [row.split("|")[3].strip() for row in re.findall(r"^\| \w+/.*$", story, re.MULTILINE)]
    tests = (Path(__file__).parent / "test_reasons.py").read_text()
    assert len(sentences) == 7
    assert [sentence for sentence in sentences if sentence not in tests] == []
