"""The examples as a newcomer runs them: alone, with workers, with a worker killed; and the demo as a whole."""

from __future__ import annotations

import ast
import difflib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from rich.console import Console
from tests.mnist_files import write_mnist
from tests.png_folders import write_png_folders
from tests.tiers import first_now

from legato.compat.elasticdl.site import launch as elasticdl_launch
from legato.compat.wmla.site import launch as wmla_launch

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
MAX_CHANGED_LINES = 6  # five make the loop elastic; the sixth, run.backward, also shows the loss
LIMIT_S, DEMO_LIMIT_S = 100.0, 220.0


def run(home: Path, *words: object, limit_s: float = LIMIT_S, **environment: str) -> str:
    """Run Python with these words; returns what it wrote."""
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        env={**os.environ, "PYTHONPATH": path, "LEGATO_HOME": str(home), **environment},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=limit_s,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def read_digest(output: str) -> str:
    (digest,) = re.findall(r"^weights sha256 (\w{64})$", output, re.MULTILINE)
    return str(digest)


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("program", "arguments"),
    first_now(
        [
            ("digits_elastic.py", ("--epochs", 2)),
            ("digits_trainer.py", ("--epochs", 3)),
            ("mnist_elastic.py", ("--epochs", 1)),
            ("hugging_face_datasets.py", ("--epochs", 1)),
            ("digits_tensorboard.py", ("--epochs", 1, "--mlflow")),
            ("tiny_gpt.py", ("--epochs", 1, "--letters", 20_000)),
            ("tiny_gpt.py", ("--epochs", 1, "--letters", 20_000, "--bf16")),
        ],
        several=True,
    ),
)
def test_an_example_gives_the_same_weights_alone_and_with_workers(
    tmp_path: Path, program: str, arguments: tuple[object, ...]
) -> None:
    alone = run(tmp_path, EXAMPLES / program, *arguments)
    together = run(tmp_path, "-m", "legato.cli", "run", "--workers", 2, EXAMPLES / program, *arguments)
    assert read_digest(alone) == read_digest(together)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "saved"),
    [
        ("hugging_face.py", "digits-model/model.safetensors"),
        ("lightning_digits.py", "digits-lightning/epoch=1-step=48.ckpt"),
    ],
)
def test_an_example_of_a_framework_gives_the_same_weights_alone_and_with_workers(
    tmp_path: Path, name: str, saved: str
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from runpy import run_path\n"
        "from tests.torchvision_operators import make_torchvision_importable\n"
        "make_torchvision_importable()\n"
        f"run_path({str(EXAMPLES / name)!r}, run_name='__main__')\n"
    )
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    alone = run(tmp_path, program, "--epochs", 2, PYTHONPATH=path)
    words = ("-m", "legato.cli", "run", "--workers", 2, program, "--epochs", 2)
    together = run(tmp_path, *words, PYTHONPATH=path)
    assert read_digest(alone) == read_digest(together)
    assert (tmp_path / saved).exists()


def test_the_program_for_wmla_gives_the_same_weights_alone_and_with_workers(tmp_path: Path) -> None:
    write_mnist(tmp_path / "data", every=20)
    code = tmp_path / "_submitted_code" / "mnist"
    shutil.copytree(EXAMPLES / "wmla", code)
    words = ("_submitted_code/mnist/pytorch_mnist_EDT.py", "--epochs", 2)
    alone = run(tmp_path, wmla_launch.__file__, *words, DATA_DIR=str(tmp_path / "data"))
    together = run(
        tmp_path,
        *("-m", "legato.cli", "run", "--workers", 2, wmla_launch.__file__, *words),
        DATA_DIR=str(tmp_path / "data"),
    )
    assert read_digest(alone) == read_digest(together)


def test_the_program_for_elasticdl_gives_the_same_weights_alone_and_with_workers(tmp_path: Path) -> None:
    write_png_folders(tmp_path / "data", every=20)
    folders = ("--training_data", tmp_path / "data/training", "--validation_data", tmp_path / "data/testing")
    program = (elasticdl_launch.__file__, EXAMPLES / "elasticdl/mnist_pytorch.py", *folders)
    alone = run(tmp_path, *program, WORKER_NUM="4")
    together = run(tmp_path, "-m", "legato.cli", "run", "--workers", 2, *program, WORKER_NUM="4")
    assert read_digest(alone) == read_digest(together)


@pytest.mark.soak
def test_the_trainer_gives_the_same_weights_when_a_worker_is_killed(tmp_path: Path) -> None:
    program = (EXAMPLES / "digits_trainer.py", "--epochs", 3)
    alone = run(tmp_path, *program)
    words = ("-m", "legato.cli", "run", "--workers", 2, "--name", "job", *program)
    run(tmp_path, *words, LEGATO_FAULTS="1@30:reduce=kill")
    # From the logs: the first worker at the end need not be the one that the terminal shows.
    logs = "".join(path.read_text() for path in (tmp_path / "jobs" / "job" / "logs").iterdir())
    assert read_digest(alone) == read_digest(logs)
    assert '"kind":"died"' in (tmp_path / "jobs" / "job" / "events.jsonl").read_text()


@pytest.mark.soak
def test_the_plain_loop_learns(tmp_path: Path) -> None:
    accuracies = re.findall(r"accuracy ([\d.]+)", run(tmp_path, EXAMPLES / "digits_plain.py", "--epochs", 3))
    assert float(accuracies[-1]) > 0.85


def test_few_lines_make_a_plain_loop_elastic() -> None:
    plain, elastic = (
        [line for line in (EXAMPLES / f"digits_{kind}.py").read_text().splitlines() if line.strip()]
        for kind in ("plain", "elastic")
    )
    new = [line for line in difflib.ndiff(plain, elastic) if line.startswith("+ ")]
    old = [line for line in difflib.ndiff(plain, elastic) if line.startswith("- ")]
    assert 0 < len(new) <= MAX_CHANGED_LINES
    assert len(old) < len(new)


def test_every_example_says_what_it_is_and_how_it_runs() -> None:
    told = (EXAMPLES / "README.md").read_text()
    for program in EXAMPLES.glob("*.py"):
        assert ast.get_docstring(ast.parse(program.read_text())), program
        assert f"`{program.name}`" in told, program


# ---------------------------------------------------------------- the demo


def test_the_chart_shows_who_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    draw_chart = load("chart", monkeypatch).draw_chart
    assert draw_chart([1] * 4 + [3] * 4 + [2] * 2, 16, 4, {4: "▲", 8: "▼"}, width=8) == [
        "workers",
        "   4 │",
        "   3 │  ██",
        "   2 │  ███",
        "   1 │█████···",
        "     └────────",
        "       ▲ ▼",
        "      step 10 of 16",
    ]


def test_a_chart_may_be_wider_than_the_training_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    draw_chart = load("chart", monkeypatch).draw_chart
    assert draw_chart([2, 1], 2, 2, {2: "✖"}, width=6)[1:5] == [
        "   2 │███",
        "   1 │██████",
        "     └──────",
        "         ✖",
    ]
    assert draw_chart([], 1, 1, width=4)[1] == "   1 │····"


def test_a_difference_is_reported_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    demo = load("demo", monkeypatch)
    for digests, word, want in ((("a" * 64, "a" * 64), "EQUAL", True), (("a" * 64, "b" * 64), "DIFFERENT", False)):
        console = Console(record=True, width=100, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
        with console.file:
            assert demo.tell_verdict(console, {"steps": ("1", "1")}, digests) is want
        assert f"\n{word} " in console.export_text()


@pytest.mark.timeout(240)
@pytest.mark.soak
def test_the_demo_ends_with_equal_weights(tmp_path: Path) -> None:
    told = run(tmp_path, EXAMPLES / "demo.py", "--epochs", 12, limit_s=DEMO_LIMIT_S)
    assert "\nEQUAL " in told
    first, second = re.findall(r"^  (?:un)?disturbed +(\w{64})$", told, re.MULTILINE)
    assert first == second
    assert "killed by SIGKILL" in told
    # On a busy machine newcomers may be ready, and join, one after the other.
    assert re.search(r"workers +(4 → )?1 → (\d → )*4 → (\d → )*2 → 1 → (\d → )*4 ", told)
    assert [told.count(mark) for mark in ("▲", "▼", "✖")] == [3, 2, 2]  # each also in the legend
