"""OpenSSH servers on the hosts of a bed, with keys of their own. ``ssh -F CONFIG h1 true`` then works from the head."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from typing import Final

from tests.hosts.bed import DISK, Command, Hosts

_LIMIT_S: Final = 30.0
_SERVER: Final = """
HostKey {folder}/host-key
AuthorizedKeysFile {folder}/user-key.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
MaxStartups 100
PrintMotd no
PrintLastLog no
Subsystem sftp internal-sftp
SetEnv LEGATO_HOME={disk} LEGATO_DEVICE=cpu
"""
_CLIENT: Final = """
Host *
    User root
    IdentityFile {folder}/user-key
    IdentitiesOnly yes
    IdentityAgent none
    UserKnownHostsFile {folder}/known-hosts
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    BatchMode yes
"""


def find_server() -> str | None:
    """Return the path of ``sshd``, None where it is not installed."""
    return shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")


class Ssh:
    """Servers on all hosts of a bed; they end with their hosts.

    Args:
        hosts: that are up.
        folder: an empty one for keys, configuration and the logs of the servers.

    Attributes:
        config: of ``ssh``; its hosts have the names of the bed's.
        programs: a folder with an ``ssh`` that uses this configuration, for the front of ``PATH``.
    """

    def __init__(self, hosts: Hosts, folder: Path) -> None:
        self._hosts, self._folder = hosts, folder
        for name in ("host-key", "user-key"):
            key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(folder / name)]
            subprocess.run(key, check=True)
        (folder / "known-hosts").write_text(f"* {(folder / 'host-key.pub').read_text()}")
        (folder / "server").write_text(_SERVER.format(folder=folder, disk=DISK))
        self.config = folder / "config"
        entries = [f"Host {hosts.name(host)}\n    HostName {hosts.address(host)}\n" for host in hosts.numbers]
        self.config.write_text("".join(entries) + _CLIENT.format(folder=folder))
        self.programs = folder / "programs"
        self.programs.mkdir()
        program = self.programs / "ssh"
        program.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {self.config} "$@"\n')
        program.chmod(0o755)
        self._servers: dict[int, Command] = {}
        for host in hosts.numbers:
            self.start(host)

    def start(self, host: int) -> None:
        """Start the server of a host, also after the host was started again."""
        self.stop(host)
        log = self._folder / f"server-{host}.log"
        log.unlink(missing_ok=True)
        self._hosts.run_on(host, "mkdir", "-p", "/run/sshd")
        command = [str(find_server()), "-D", "-f", str(self._folder / "server"), "-E", str(log)]
        self._servers[host] = self._hosts.popen(host, command, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + _LIMIT_S
        while not (log.exists() and "Server listening" in log.read_text()):
            assert time.monotonic() < deadline and self._servers[host].poll() is None, log.read_text()
            time.sleep(0.01)

    def stop(self, host: int) -> None:
        """Stop the server of a host; connections that are open stay so."""
        if server := self._servers.pop(host, None):
            server.kill()
            server.wait()

    def stop_all(self) -> None:
        for host in self._hosts.numbers:
            self.stop(host)
