"""Each object of the loop writes its own fields alone."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import legato

LOOP = Path(legato.__file__).parent / "train" / "loop"


@pytest.mark.parametrize("name", ["elastic", "evaluation", "fast_forward", "reporting", "session", "stepping"])
def test_no_field_of_another_object_is_written(name: str) -> None:
    tree = ast.parse((LOOP / f"{name}.py").read_text())
    written = {
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) != "self"
    }
    # The user's modules go back into the modes in which they were.
    assert written - {"module.training"} == set()


def test_the_session_does_not_know_the_stepper() -> None:
    assert "stepp" not in "".join(
        line for line in (LOOP / "session.py").read_text().splitlines() if line.startswith(("from ", "import "))
    )
