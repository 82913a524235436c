"""Options of the tests, and what the network may not do to them."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import fork_server, tiers
from tests.hosts.bed import Hosts, why_not
from tests.hosts.ssh import Ssh, find_server
from tests.shared import Shared

# To collect the tests imports all that they use. It stays, and is searched for garbage neither meanwhile nor later.
gc.disable()

# torch asks for the name of every address that it connects to, also of this machine's. A name server that leaves a
# question unanswered would hold a test up for five seconds; it is asked again after one. For processes of tests too.
os.environ.setdefault("RES_OPTIONS", "timeout:1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", choices=("cuda", "cpu"), default="cuda", help="of the tests marked gpu")
    parser.addoption("--soak-seed", type=int, default=None, help="seed of the soak's disturbances; None for a new one")
    parser.addoption("--soak-events", type=int, default=None, help="how many disturbances a soak makes")
    parser.addoption("--soak-schedule", default=None, help="what happens to a job on several hosts, instead of a seed")
    parser.addoption("--soak-seconds", type=float, default=None, help="for how long a platform is disturbed")
    parser.addoption("--share", type=tiers.read_share, default=None, metavar="K/N", help="of the tests marked soak")


def pytest_configure(config: pytest.Config) -> None:
    folder = fork_server.open_folder()
    folder.__enter__()
    config.add_cleanup(lambda: folder.__exit__(None, None, None))
    # No test may find the platform of the account that runs the tests. Processes of xdist have the folder of the first.
    if not hasattr(config, "workerinput"):
        for name in [name for name in os.environ if name.startswith("LEGATO_") and name != "LEGATO_TESTBED"]:
            del os.environ[name]
        home = tempfile.TemporaryDirectory(prefix="legato-home-")
        os.environ["LEGATO_HOME"] = home.name
        config.add_cleanup(home.cleanup)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep one share of the slow tests, and let each process begin with those that may take long.

    None of these runs alone at the end then: pytest-xdist gives each process an equal part of the list. Tests of a
    folder that share a server or a browser get one process, so that it starts once.
    """
    if share := config.getoption("--share"):
        slow = [item for item in items if item.get_closest_marker("soak")]
        slow.sort(key=lambda item: (-_limit_s(item), item.nodeid))
        left_out = {item for item in tiers.leave_out(slow, *share) if not item.get_closest_marker("every_share")}
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    num = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    limits = {item: _limit_s(item) for item in items}
    sharing = sorted(folder for folder in Shared.folders if any(folder in item.path.parents for item in items))
    first_of: list[list[pytest.Item]] = [[] for _ in range(num)]
    rest = []
    for item in sorted(items, key=lambda item: -limits[item]):
        place = next((place for place, folder in enumerate(sharing) if folder in item.path.parents), None)
        if place is not None:
            first_of[place % num].append(item)
        elif limits[item]:
            min(first_of, key=len).append(item)
        else:
            rest.append(item)
    total, start = len(items), 0
    items.clear()
    for number, first in enumerate(first_of):
        stop = start + max(0, (total - len(items)) // (num - number) - len(first))
        items += [*first, *rest[start:stop]]
        start = stop
    items += rest[start:]


def _limit_s(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0]) if marker is not None else 0.0


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Set aside what a module's tests leave in memory: each training in a test searches all other objects."""
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what the soak counted."""
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()) if getattr(report, "when", "") == "call" else ():
                if name == "soak":
                    terminalreporter.write_line(f"soak: {value}")


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    """Three hosts of one test (`tests/hosts/bed.py`)."""
    if reason := why_not():
        pytest.skip(reason)
    with Hosts(3) as made:
        yield made


@pytest.fixture
def ssh(hosts: Hosts, tmp_path: Path) -> Iterator[Ssh]:
    """OpenSSH's servers on the hosts of the test (`tests/hosts/ssh.py`)."""
    if find_server() is None:
        pytest.skip("OpenSSH's server is not installed (Debian: apt-get install openssh-server)")
    (tmp_path / "ssh").mkdir()
    made = Ssh(hosts, tmp_path / "ssh")
    yield made
    made.stop_all()
