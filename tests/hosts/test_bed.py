"""The hosts of `tests.hosts.bed`: what they share, what they do not, and what happens to them."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.hosts.bed import DISK, Command, Hosts

PORT = 4000
LIMIT_S = 20.0
LISTEN = f"""
import socket
with socket.create_server(("", {PORT}), family=socket.AF_INET6, dualstack_ipv6=True) as server:
    print("ready", flush=True)
    while True:
        connection, _ = server.accept()
        with connection:
            while data := connection.recv(65536):
                connection.sendall(data[:1])
"""
CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=float(sys.argv[3])).close()
except OSError as error:
    print(error)
else:
    print("connected")
"""


@contextmanager
def listening(hosts: Hosts, host: int) -> Iterator[Command]:
    """Run a server on a host that answers everything with its first byte."""
    with hosts.popen(host, [sys.executable, "-ISc", LISTEN], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None and server.stdout.readline() == "ready\n"
            yield server
        finally:
            server.kill()


def reach(hosts: Hosts, host: int, address: str, *, limit_s: float = LIMIT_S) -> bool:
    return hosts.run_on(host, sys.executable, "-ISc", CONNECT, address, str(PORT), str(limit_s)) == "connected\n"


def miss(hosts: Hosts, host: int, address: str) -> bool:
    return not reach(hosts, host, address, limit_s=0.2)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_hosts_know_their_names_and_reach_one_another_and_the_head(hosts: Hosts) -> None:
    assert [hosts.run_on(host, "uname", "-n") for host in hosts.numbers] == ["h1\n", "h2\n", "h3\n"]
    with listening(hosts, 2):
        assert all(reach(hosts, 1, address) for address in ("h2", hosts.address(2), hosts.address_6(2)))
        with socket.create_connection((hosts.address(2), PORT)) as connection:
            connection.sendall(b"hello")
            assert connection.recv(5) == b"h"
    with socket.create_server((hosts.head, PORT)):
        assert reach(hosts, 3, "head")
    assert miss(hosts, 3, "no-such-host")


def test_processes_memory_and_disks_are_a_hosts_own_and_other_folders_shared(hosts: Hosts, tmp_path: Path) -> None:
    with listening(hosts, 1):
        listed = [hosts.run_on(host, "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '") for host in (1, 2)]
        assert "create_server" in listed[0] and "create_server" not in listed[1]
    for place in (f"{DISK}/own", "/dev/shm/own", "/run/own", str(tmp_path / "shared")):
        hosts.run_on(1, "touch", place)
    seen = hosts.run_on(2, "sh", "-c", f"ls {DISK} /dev/shm /run {tmp_path}")
    assert "own" not in seen and "shared" in seen
    assert [path.name for path in hosts.disk(1).iterdir()] == ["own"]
    assert not Path(DISK, "own").exists()


def test_a_command_ends_as_it_would_here(hosts: Hosts, tmp_path: Path) -> None:
    told = hosts.run_on(1, "sh", "-c", "pwd; echo $WORD", cwd=tmp_path, env={"WORD": "passed on"})
    assert told == f"{tmp_path}\npassed on\n"
    with pytest.raises(subprocess.CalledProcessError) as failed:
        hosts.run_on(1, "sh", "-c", "exit 3")
    assert failed.value.returncode == 3
    with listening(hosts, 1) as server:
        server.terminate()
        assert server.wait() == -signal.SIGTERM
    wait_until(lambda: not hosts.pids(1))


def test_a_cut_host_runs_on_and_is_reached_again_after_healing(hosts: Hosts) -> None:
    with listening(hosts, 1):
        hosts.cut(1)
        assert miss(hosts, 2, "h1")
        assert reach(hosts, 1, "h1")
        hosts.heal(1)
        assert reach(hosts, 2, "h1")


def test_a_split_network_is_whole_again_after_healing(hosts: Hosts) -> None:
    with listening(hosts, 1), socket.create_server((hosts.head, PORT)):
        hosts.split([1, 2])
        assert reach(hosts, 2, "h1")
        assert miss(hosts, 2, "head")
        assert miss(hosts, 3, "h1")
        assert reach(hosts, 3, "head")
        hosts.heal()
        assert reach(hosts, 2, "head") and reach(hosts, 3, "h1")


def test_a_crash_ends_all_processes_without_a_word_to_others_and_leaves_the_disk(hosts: Hosts) -> None:
    hosts.run_on(1, "sh", "-c", f"echo kept > {DISK}/file; (setsid sleep 1000 > /dev/null &)")
    (stray,) = hosts.pids(1)
    with listening(hosts, 1) as server, socket.create_connection((hosts.address(1), PORT)) as connection:
        hosts.crash(1)
        assert server.wait() == -signal.SIGKILL
        assert not Path(f"/proc/{stray}").exists()
        assert not hosts.is_up(1) and hosts.pids(1) == []
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(1)
    with pytest.raises(ValueError, match="h1 is down"):
        hosts.run_on(1, "true")
    hosts.boot(1)
    assert hosts.run_on(1, "cat", f"{DISK}/file") == "kept\n"
    with listening(hosts, 1):
        assert reach(hosts, 2, "h1")


def test_a_link_has_a_rate_and_counts_its_bytes(hosts: Hosts) -> None:
    size, burst, mbit = 1_250_000, 262_144, 20
    hosts.rate(1, mbit)
    before = hosts.bytes_sent(1), hosts.bytes_received(2)
    code = f"import socket; s = socket.create_connection(('h2', {PORT})); s.sendall(bytes({size})); s.shutdown(1)"
    with listening(hosts, 2):
        began = time.monotonic()
        hosts.run_on(1, sys.executable, "-ISc", f"{code}\nwhile s.recv(65536): pass")
        assert time.monotonic() - began > (size - burst) * 8 / (mbit * 1e6)
    assert size < hosts.bytes_sent(1) - before[0] < 1.2 * size
    assert size < hosts.bytes_received(2) - before[1] < 1.2 * size
    hosts.rate(1, None)
    assert "tbf" not in hosts.run_on(1, "tc", "qdisc")


def test_a_frozen_host_does_nothing_until_it_is_thawed(hosts: Hosts) -> None:
    def states() -> set[str]:
        found = [Path(f"/proc/{pid}/stat").read_text() for pid in hosts.pids(1)]
        return {re.sub(r".*\) ", "", text)[0] for text in found}

    with listening(hosts, 1):
        hosts.freeze(1)
        wait_until(lambda: states() == {"T"})
        hosts.thaw(1)
        wait_until(lambda: "T" not in states())


def test_two_beds_do_not_meet(hosts: Hosts) -> None:
    with Hosts(1) as other, listening(hosts, 1):
        assert other.address(1) != hosts.address(1)
        assert miss(other, 1, hosts.address(1))
        assert other.run_on(1, "uname", "-n") == "h1\n"


@pytest.mark.usefixtures("hosts")
def test_nothing_is_left_when_the_owner_is_killed() -> None:
    code = (
        "from tests.hosts.bed import Hosts\n"
        "with Hosts(2) as hosts:\n"
        "    hosts.run_on(1, 'sh', '-c', '(setsid sleep 1000 > /dev/null 2>&1 &)')\n"
        "    print(hosts.head, *hosts.pids(1), hosts.disk(1), flush=True)\n"
        "    input()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True, env=environment) as owner:
        assert owner.stdout is not None
        head, stray, disk = owner.stdout.readline().split()
        assert Path(disk).exists() and Path(f"/proc/{stray}").exists()
        owner.kill()
    wait_until(lambda: not Path(f"/proc/{stray}").exists() and not Path(disk).exists())
    wait_until(lambda: head not in subprocess.run(["ip", "address"], capture_output=True, text=True).stdout)


@pytest.mark.usefixtures("hosts")
def test_a_machine_that_allows_no_hosts_is_left_out_with_the_reason() -> None:
    code = "from tests.hosts.bed import why_not; print(why_not())"
    command = ["setpriv", "--bounding-set=-sys_admin", sys.executable, "-c", code]
    told = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]).stdout
    assert "this machine allows no hosts of their own" in told and "not permitted" in told
