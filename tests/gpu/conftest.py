"""What the tests of GPUs share. They are device-agnostic: `--device cpu` rehearses them on a machine without a GPU."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from benchmarks.parts import FACTS, note_fact
from tests.gpu.runs import Bench

collect_ignore_glob = ["programs/*"]  # they train when they are imported


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # The hook sees the items of all folders.
    own = [item for item in items if Path(__file__).parent in item.path.parents]
    is_missing = config.getoption("--device") == "cuda" and not torch.cuda.is_available()
    for item in own:
        item.add_marker(pytest.mark.gpu)
        if is_missing:
            item.add_marker(pytest.mark.skip(reason="torch finds no GPU here; --device cpu rehearses on the CPU"))


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--device"))


@pytest.fixture
def bench(device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setenv("LEGATO_HOME", str(tmp_path / "home"))
    for name in [name for name in os.environ if name.startswith("LEGATO_") and name != "LEGATO_HOME"]:
        monkeypatch.delenv(name)
    return Bench(device, tmp_path, monkeypatch)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Keep why a test was skipped; the file of results shows it."""
    for report in terminalreporter.stats.get("skipped", ()):
        if isinstance(report.longrepr, tuple):
            note_fact("skipped", why=report.longrepr[2].removeprefix("Skipped: "))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """End with the code of a skipped part if no test ran."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if exitstatus == 0 and reporter is not None and FACTS in os.environ and not reporter.stats.get("passed"):
        session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED
