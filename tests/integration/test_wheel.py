"""``pip install legato[train]``: a wheel with the console inside, built from the sources, in an empty environment."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.integration.image import UNREACHABLE
from tests.ports import find_port

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

ROOT: Final = Path(__file__).parents[2]
LIMIT_S: Final = 600.0
PAGES: Final = "legato/server/pages/"
PROGRAM: Final = """
import torch, legato
run = legato.elastic(global_batch_size=8, micro_batch_size=2, seed=0)
model = torch.nn.Linear(3, 1)
model, optimizer = run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
inputs = torch.arange(96.0).reshape(32, 3) / 96
for epoch in run.epochs(2):
    for batch, targets in run.batches(torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))):
        run.backward(torch.nn.functional.mse_loss(model(batch), targets))
        optimizer.step()
        optimizer.zero_grad()
"""


def do(*words: object, **options: object) -> str:
    """Run a program to its end; skip the test where pip, or npm below it, reaches no index."""
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=LIMIT_S, **options)  # type: ignore[call-overload]
    told = str(done.stdout + done.stderr)
    reasons = (*UNREACHABLE, "ENOTFOUND", "ECONNREFUSED", "ETIMEDOUT") if words[1:3] == ("-m", "pip") else ()
    if done.returncode and any(reason in told for reason in reasons):
        pytest.skip(f"no package index is reached: {told[-1000:]}")
    assert done.returncode == 0, told[-5000:]
    return told


@pytest.mark.parametrize(("module", "ends"), [("pip", pytest.skip.Exception), ("legato", AssertionError)])
def test_only_pip_may_be_skipped(module: str, ends: type[BaseException], tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'ECONNREFUSED: timed out'\nexit 1\n")
    python.chmod(0o755)
    with pytest.raises(ends):
        do(python, "-m", module, "install")
    with pytest.raises(AssertionError):
        do(python, "doctor")


def copy_sources(folder: Path) -> Path:
    """Copy what git knows, as a clone has it: without the pages of the console."""
    listed = do("git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", "--", "src", "console", "*.*", "LICENSE")
    for name in listed.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("npm") is None:
        pytest.skip("there is no npm, which builds the console")
    folder = tmp_path_factory.mktemp("wheel")
    sources = copy_sources(folder / "sources")
    assert not (sources / "src" / PAGES).exists()
    do(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", folder, sources)
    (built,) = folder.glob("legato-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of an environment that had nothing before."""
    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder / "environment", with_pip=True)
    programs = folder / "environment/bin"
    constraints = ROOT / "constraints.txt"
    do(programs / "python", "-m", "pip", "install", "--constraint", constraints, f"legato[train] @ {wheel.as_uri()}")
    return programs


def test_the_wheel_has_the_console_and_all_that_is_no_module(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert f"{PAGES}index.html" in names
    page = zipfile.ZipFile(wheel).read(f"{PAGES}index.html").decode()
    scripts = re.findall(r'(?:src|href)="\.?/(assets/[^"]+)"', page)
    assert scripts and {f"{PAGES}{script}" for script in scripts} <= names
    assert "legato/py.typed" in names
    assert [name for name in names if name.startswith(("tests/", "console/", "docs/"))] == []


def test_a_wheel_without_npm_is_refused_with_what_to_do(tmp_path: Path) -> None:
    sources = copy_sources(tmp_path / "sources")
    # pip's own programs, but no node.
    environment = {**os.environ, "PATH": str(tmp_path)}
    words = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", str(tmp_path), str(sources)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    if any(reason in done.stderr for reason in UNREACHABLE):
        pytest.skip("pip reaches no package index")
    assert done.returncode != 0
    assert "needs npm with Node.js 20.19 or newer" in done.stdout + done.stderr
    do(*words, env={**environment, "LEGATO_WITHOUT_CONSOLE": "1"})


class Server:
    """``legato up`` of the environment, for a user who has nothing yet."""

    def __init__(self, programs: Path, home: Path) -> None:
        self.port = find_port()
        self.environment = {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(home),
            "LEGATO_PORT": str(self.port),
            "CUDA_VISIBLE_DEVICES": "",
        }
        self._log = home / "up.txt"
        with self._log.open("wb") as log:
            words = ["legato", "up", "--slots", "2"]
            self._process = subprocess.Popen(words, env=self.environment, cwd=home, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while "answers at" not in self._log.read_text():
            assert self._process.poll() is None and time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.1)

    def end(self) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.wait(60)


@pytest.fixture
def server(installed: Path, tmp_path: Path) -> Iterator[Server]:
    found = Server(installed, tmp_path)
    yield found
    found.end()


def test_an_empty_environment_gets_a_platform_with_its_console_and_trains(server: Server, tmp_path: Path) -> None:
    with urllib.request.urlopen(f"http://localhost:{server.port}/", timeout=60) as answer:
        assert '<div id="root">' in answer.read().decode()
    (tmp_path / "program").mkdir()
    (tmp_path / "program/train.py").write_text(PROGRAM)
    options = {"env": server.environment, "cwd": tmp_path / "program"}
    told = do("legato", "doctor", **options)
    assert "ok      Python" in told and "ok      torch" in told, told
    assert ".venv" not in told, "nothing of the environment of the tests is used"
    do("legato", "submit", "--workers", "1..2", "--name", "first", "train.py", **options)
    assert '"succeeded"' in do("legato", "show", "first", "-o", "json", **options)
    assert "loss" in do("legato", "metrics", "first", **options)
