"""The libraries for host names are loaded before a process has threads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from legato.train.process import worker
from legato.train.process.name_services import list_services, load_name_services

_LOAD = """
import pathlib, sys
from legato.train.process import worker
from legato.train.process.name_services import load_name_services
load_name_services(pathlib.Path(sys.argv[1]))
print("libnss_compat" in pathlib.Path("/proc/self/maps").read_text())
"""


@pytest.mark.parametrize(
    ("configuration", "services"),
    [
        ("hosts: files dns", ["files", "dns"]),
        ("# hosts: no\n hosts :\tfiles [ NOTFOUND=return ] resolve [!UNAVAIL=return]dns", ["files", "resolve", "dns"]),
        ("hosts: ../evil files", ["files"]),
        ("passwd: files", []),
        ("", []),
    ],
)
def test_services_are_read(configuration: str, services: list[str]) -> None:
    assert list_services(configuration) == services


def test_libraries_are_loaded_and_missing_ones_do_not_matter(tmp_path: Path) -> None:
    configuration = tmp_path / "nsswitch.conf"
    configuration.write_text("hosts: files no_such compat dns\n")
    told = subprocess.run([sys.executable, "-c", _LOAD, configuration], capture_output=True, text=True, check=True)
    assert told.stdout == "True\n"
    load_name_services(tmp_path / "missing")
    configuration.write_bytes(b"\xff")
    load_name_services(configuration)


def test_a_worker_loads_them_first(monkeypatch: pytest.MonkeyPatch) -> None:
    class Loaded(Exception):
        pass

    def load() -> None:
        raise Loaded

    monkeypatch.setattr(worker, "load_name_services", load)
    with pytest.raises(Loaded):
        worker.main([])
