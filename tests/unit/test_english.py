"""Texts name the actor and use plain words.

Checked are pages, and in code: strings, docstrings, comments, names of tests.
"""

from __future__ import annotations

import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).parents[2]

BANNED: Final = {
    r"anew": "again, or from the beginning",
    r"(some|no|every|any)body": "the actor: a user, another job, the server",
    r"whoever|whomever": "the actor: the user who, the process that",
    r"shall": "must, will",
    r"lacks": "has no, is missing",
    r"(is|are|was|were|be|been|being) told": "gets, receives, is reported; or name who says it",
    r"(leaves?|left|leaving) off": "stops",
    r"for ever": "forever, for good, or how long",
    r"as ever": "as before, as in the original",
    r"pass(es|ed) over": "skips, ignores",
    r"(is|are|be) left alone|leaves? (it|them) alone": "is not touched, is not replaced",
    r"afresh": "from scratch",
    r"as of(?= [`\[])": "as in, as for",
}
"""Turns that readers had to read twice, and what to write."""

SUFFIXES: Final = (".md", ".py", ".ts", ".tsx")
APART: Final = ("tests/unit/test_english.py", "console/src/api/schema.ts")
"""This list, and what a program writes."""


def files() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [name for name in listed.stdout.splitlines() if name.endswith(SUFFIXES) and name not in APART]


def texts(name: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file that are English."""
    text = (ROOT / name).read_text()
    if not name.endswith(".py"):
        yield from enumerate(text.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
        elif token.type == tokenize.STRING and " " in token.string:  # else a word of a program, such as a user's name
            for offset, line in enumerate(token.string.splitlines()):
                # Not the names of an f-string.
                yield token.start[0] + offset, re.sub(r"\{[^{}]*\}", "{}", line)
        elif token.type == tokenize.NAME and token.string.startswith("test_"):
            yield token.start[0], token.string.replace("_", " ")


def find(name: str) -> dict[str, list[str]]:
    """Return where a file uses which banned turn."""
    found: dict[str, list[str]] = {}
    if not re.search("|".join(BANNED), (ROOT / name).read_text().replace("_", " "), re.IGNORECASE):
        return found
    for number, line in texts(name):
        for turn in BANNED:
            for match in re.finditer(rf"\b({turn})\b", line, re.IGNORECASE):
                found.setdefault(turn, []).append(f"{name}:{number}: '{match[0]}' in: {line.strip()[:100]}")
    return found


@pytest.fixture(scope="module")
def everything() -> dict[str, dict[str, list[str]]]:
    return {name: found for name in files() if (ROOT / name).exists() and (found := find(name))}


def test_texts_use_no_banned_turn(everything: dict[str, dict[str, list[str]]]) -> None:
    wrong = [
        f"{place}  (write: {BANNED[turn]})"
        for name, found in everything.items()
        for turn, places in found.items()
        for place in places
    ]
    assert wrong == [], "\n".join(wrong)


def test_turns_are_found_in_strings_comments_and_names_of_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    code = 'def test_nobody_waits():\n    nobody = 1  # begins anew\n    return f"{nobody} is told"\n'
    (tmp_path / "a.py").write_text(code)
    assert [places[0].split(": ")[0] for places in find("a.py").values()] == ["a.py:1", "a.py:2", "a.py:3"]
