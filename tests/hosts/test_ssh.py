"""Real ssh to the hosts of a bed."""

from __future__ import annotations

import os
import subprocess

from tests.hosts.bed import Hosts
from tests.hosts.ssh import Ssh


def test_ssh_reaches_all_hosts_until_they_crash_and_again_after(hosts: Hosts, ssh: Ssh) -> None:
    def run(host: int, command: str) -> subprocess.CompletedProcess[str]:
        line = ["ssh", "-F", str(ssh.config), "-o", "ConnectTimeout=2", hosts.name(host), command]
        return subprocess.run(line, capture_output=True, text=True, stdin=subprocess.DEVNULL)

    told = [run(host, "uname -n") for host in hosts.numbers]
    assert [done.stdout for done in told] == ["h1\n", "h2\n", "h3\n"], told
    environment = {**os.environ, "PATH": f"{ssh.programs}:{os.environ['PATH']}"}
    assert subprocess.run(["ssh", "h2", "exit 3"], env=environment).returncode == 3
    hosts.crash(1)
    assert run(1, "true").returncode == 255
    hosts.boot(1)
    ssh.start(1)
    assert run(1, "uname -n").stdout == "h1\n"
