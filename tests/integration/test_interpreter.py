"""A job with a Python of its own: all its workers run with it, joins too, and the weights are the same."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest
from tests.integration.harness import Act, Reference, Stage, at_step, both, kill, nothing, scale, settled, with_members

from legato.engines import parent
from legato.engines.interpreter import find_python


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A virtual environment with the packages of this one. Each start of its Python leaves a line in ``starts``."""
    folder = tmp_path / "env"
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    starts = f"import sys; open({str(tmp_path / 'starts')!r}, 'a').write(sys.prefix + chr(10))\n"
    (site / "all.pth").write_text("".join(f"{path}\n" for path in sys.path if path) + starts)
    return folder


def test_workers_run_with_the_python_of_the_job_and_the_weights_are_the_same(
    stage: Stage, reference: Reference, environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Real processes, not forks of a process that has this interpreter.
    monkeypatch.setattr(parent, "subprocess", subprocess)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    want = reference.of("vision.py")
    result = stage.run(
        "vision.py",
        workers=(1, 2, 1),
        plan=[
            Act(at_step(2), scale(2), "grow"),
            Act(both(settled, with_members(2)), kill(1), "kill"),
            Act(with_members(2), nothing, "whole again"),
        ],
        python=str(find_python(str(environment))),
    )
    result.check(want)
    starts = set((tmp_path / "starts").read_text().split())
    assert starts == {str(environment)}
