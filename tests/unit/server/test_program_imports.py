"""How much of an uploaded program is read for its imports."""

from __future__ import annotations

from pathlib import Path

import pytest

from legato.server import program_imports
from legato.server.program_imports import read_imports


def test_all_files_together_are_read_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = [f"import part{number}, module{number}\n" for number in (1, 2, 3)]
    for number, source in enumerate(sources):
        (tmp_path / f"part{number}.py").write_text(source)
    files = [f"part{number}.py" for number in range(3)]
    monkeypatch.setattr(program_imports, "_MAX_BYTES", len("".join(sources[:2])))
    assert read_imports(tmp_path, "part0.py", files) == {"part1", "module1", "part2", "module2"}
