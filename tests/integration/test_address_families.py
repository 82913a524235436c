"""Machines of a pool with IPv6 only among machines with IPv4, and the reverse: they are left out with the reason."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.hosts.bed import DISK, Command, Hosts
from tests.integration.serving import ROOT, Asker, Server, servers_of
from tests.integration.test_pool_agents import check_done, nodes_of, num_workers, submit
from tests.integration.test_takeover import EPOCHS, PORT, weights

from legato.driver.journal import JobDirectory

__all__ = ["weights"]  # the fixture
TEXT = "node {} announces the IPv6 address {}, and the others IPv4 addresses such as {}."


def show(ask: Asker, *words: str) -> str:
    """Return what a command writes."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "1000"}
    environment |= {"LEGATO_SERVER": str(ask.http.base_url).partition("/api")[0], "LEGATO_TOKEN": ask.secret}
    command = [sys.executable, "-m", "legato.cli", *words]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("odd", [1, 3], ids=["server", "agent"])
def test_a_machine_of_another_address_family_is_left_out_with_the_reason_and_the_others_train(
    hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weights: str, odd: int
) -> None:
    network = {4: f"{hosts.address(1).rpartition('.')[0]}.0/24", 6: f"{hosts.address_6(1).rpartition('::')[0]}::/64"}
    for host in {2, 3} - {odd}:
        hosts.run_on(host, "ip", "address", "delete", f"{hosts.address_6(host)}/64", "dev", "eth0")
    if odd == 3:
        hosts.run_on(3, "ip", "address", "delete", f"{hosts.address(3)}/24", "dev", "eth0")
    agents: list[Command] = []

    def end() -> None:
        for host in hosts.numbers:
            hosts.crash(host)
        for agent in agents:
            agent.wait()

    with servers_of(tmp_path / "home", monkeypatch) as made, contextlib.ExitStack() as stack:
        server = Server(
            tmp_path / "home",
            prefix=hosts.command_on(1, []),
            forks=False,
            host="",
            port=PORT,
            allowed_hosts=[hosts.address(1), hosts.address_6(1), "localhost"],
            allow_jobs_as_server=True,
            allow_plain_agents=True,
            network=network[6 if odd == 1 else 4],
            slots=1,
            loop_interval_s=0.2,
            stability_s=0.2,
            cooldown_factor=0,
        )
        made.append(server)
        stack.callback(end)
        server.start()
        server.url = f"http://{hosts.address(1)}:{PORT}"
        ask = Asker(server)
        for host in (2, 3):
            url = f"http://[{hosts.address_6(1)}]:{PORT}" if host == odd else server.url
            words = ["agent", "--connect", url, "--slots", "1", "--home", f"{DISK}/home", "--token-file", "-"]
            environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
            with (tmp_path / f"agent-{host}.log").open("ab") as log:
                command = [sys.executable, "-m", "legato.cli", *words]
                agent = hosts.popen(host, command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment)
            agents.append(agent)
            assert agent.stdin is not None
            with agent.stdin as given:
                given.write(ask.post("join-tokens", {}, 201)["secret"].encode())
        ask.wait("slots", lambda found: sum(slot["is_free"] for slot in found["items"]) == 3)
        program = ["train.py", str(EPOCHS), str(tmp_path / "result"), "0.1", str(tmp_path / "slow"), "1"]
        job = submit(ask, tmp_path, 3, program=program)
        others = {"h1", "h2", "h3"} - {f"h{odd}"}
        ask.wait(f"jobs/{job}", lambda found: num_workers(found) == 2 and nodes_of(ask, job) == others)
        usual = min(hosts.address(host) for host in {1, 2, 3} - {odd})
        told = TEXT.format(f"h{odd}", hosts.address_6(odd), usual)[:-3]
        assert told in show(ask, "ps")
        assert f"the job continues without node h{odd}: {told}" in " ".join(show(ask, "explain", job).split())
        assert f"h{odd}" in show(ask, "nodes")
        check_done(ask, server.home, tmp_path, job, weights, epochs=EPOCHS)
        events = JobDirectory(server.home / "jobs" / job).events_file.read_text()
        assert events.count('"kind":"proposed"') == 1, "the first view needs no second try"
