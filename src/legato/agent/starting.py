"""Starts the agent of a job on this machine for a driver that is connected by ssh, or by a step of Slurm.

``python -m legato.agent.starting [--python PATH] [--network NETWORK]`` writes `Facts` as a line of JSON, reads an
`AgentOrder` as a line, starts the agent, which outlives this process, and writes `Reply`. It ends when its input ends:
until then the ssh connection forwards a port to the driver, and an agent that dies is started again.

With ``--again`` the driver knows the machine from an earlier connection, and the facts have only its address. So the
agent learns the new port before the driver counts the machine as lost.

With ``--step`` it ends when the agent does, because Slurm kills the processes of a step when its command ends. Slurm
sends signals to this command only; it reports them to the driver by a line `SIGNAL` with the signal's name.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import ipaddress
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec

from legato.agent.orders import AgentOrder, find_agent_directory
from legato.agent.process import has_died, start_agent, wait_for_agent
from legato.core.errors import LegatoError, UsageError
from legato.core.version import __version__
from legato.engines.gpus import find_devices
from legato.engines.interpreter import ask_python
from legato.system.decoding import decode

SIGNAL: Final = "legato.agent.starting: signal "
_DISCARD_PORT: Final = 9
_GET_ADDRESS: Final = 0x8915  # SIOCGIFADDR
_GLOBAL_SCOPE: Final = "00"
REPORTED: Final = (signal.SIGTERM, signal.SIGUSR1)
"""What Slurm sends before it ends a job."""
_MAX_ADDRESSES: Final = 10
_LOOK_EVERY_S: Final = 1.0


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a driver must know of a machine before it uses it.

    Args:
        legato: version of the agent's Legato.
        python, torch: versions of the workers' interpreter.
        capability: the instruction set of its torch.
        address: at which other machines reach this one.
        sees_file: the file of ``--sees`` has the same content here: both machines share its folder.
        error: why the machine cannot be used, a sentence; None: it can.
    """

    legato: str = __version__
    python: str = ""
    torch: str = ""
    capability: str = ""
    address: str = ""
    sees_file: bool = True
    error: str | None = None


class Reply(msgspec.Struct, frozen=True):
    """Whether the agent runs; ``error`` is a sentence."""

    error: str | None = None


def find_address(network: str | None, connection: str | None, *, is_inside: bool = True) -> str:
    """Return the address of this machine at which other machines reach it.

    Args:
        network: in which the address must be, such as ``10.0.0.0/24``. None: the address to which ssh connected.
        is_inside: the address must be in the network; False: it is the one from which the network is reached.
        connection: the variable ``SSH_CONNECTION``: address and port of the client, then of the server.

    Raises:
        UsageError: there is no such address, or other machines cannot use it.
    """
    if network is None:
        words = (connection or "").split()
        if len(words) != 4:
            raise UsageError("ssh does not say to which of its addresses it connected: name the network by --network")
        found = words[2].removeprefix("::ffff:")
        if ":" in found and ipaddress.ip_address(found).is_link_local:
            raise UsageError(
                f"ssh connected to its link-local address {found}, at which other machines cannot reach it. "
                f"{_name_addresses()}. Add it by --network, or name the host by another address"
            )
        return found
    wanted = ipaddress.ip_network(network, strict=False)
    family = socket.AF_INET if wanted.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            # No packet is sent: the system only chooses the address from which it would send one.
            probe.connect((str(wanted[min(1, wanted.num_addresses - 1)]), _DISCARD_PORT))
            found = str(probe.getsockname()[0])
        except OSError as error:
            raise UsageError(
                f"it has no route to the network {network}: {error.strerror}. {_name_addresses()}"
            ) from error
    if is_inside and ipaddress.ip_address(found) not in wanted:
        raise UsageError(f"it has no address in the network {network}. {_name_addresses()}")
    return found


def list_addresses() -> list[tuple[str, str]]:
    """Return the IPv4 and global IPv6 addresses of this machine, each with the name of its interface."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has no IPv4 address
                answer = fcntl.ioctl(probe, _GET_ADDRESS, struct.pack("256s", name[:15].encode()))
                found.append((socket.inet_ntoa(answer[20:24]), name))
    with contextlib.suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            digits, _, _, scope, _, name = line.split()
            if scope == _GLOBAL_SCOPE:
                found.append((str(ipaddress.IPv6Address(int(digits, 16))), name))
    return found


def _name_addresses() -> str:
    """Name the addresses of this machine from which a user can choose a network, as a sentence without its period."""
    named = ", ".join(f"{address} ({name})" for address, name in list_addresses()[:_MAX_ADDRESSES])
    return f"Name a network that all machines share; its addresses are {named or 'unknown'}"


def find_facts(options: argparse.Namespace) -> Facts:
    """Return the facts of this machine. Without ``--again`` it takes seconds: another process imports torch.

    Args:
        options: of the command line.
    """
    executable = Path(options.python or sys.executable)
    try:
        if options.toward is not None and options.network is None:
            address = find_address(options.toward, None, is_inside=False)
        else:
            address = find_address(options.network, os.environ.get("SSH_CONNECTION"))
        if options.again:
            return Facts(address=address)
        _check_gpus(options.gpus)
        found = ask_python(executable, os.environ)
    except LegatoError as error:
        return Facts(error=str(error).rstrip("."))
    version = ".".join(map(str, found.python[:2]))
    if found.error is not None or found.torch is None:
        return Facts(error=f"workers cannot be started with {executable}: {found.error or 'it has no torch'}")
    return Facts(
        python=version,
        torch=found.torch,
        capability=found.capability or "",
        address=address,
        sees_file=options.sees is None or _sees(*options.sees),
    )


def _check_gpus(num_gpus: int) -> None:
    """Raise UsageError if this machine shows fewer GPUs than it must."""
    found = len(find_devices()) if num_gpus else 0
    if found < num_gpus:
        raise UsageError(
            f"it must have {num_gpus} GPUs, and Legato finds {found}: check nvidia-smi there, or set LEGATO_DEVICE=cpu "
            "to train on CPUs"
        )


def _sees(path: str, digest: str) -> bool:
    try:
        return hash_file(Path(path)) == digest
    except OSError:
        return False


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a small file. Raises OSError."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def find_directory(order: AgentOrder) -> Path:
    """Return the directory of an agent; each run of a job has one of its own, because each has another token."""
    run = hashlib.sha256(order.token.encode()).hexdigest()[:12]
    return find_agent_directory(order.node, f"{order.job}-{run}")


def main() -> int:
    """Talk with the driver; returns the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--python")
    parser.add_argument("--network")
    parser.add_argument("--step", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--toward", metavar="ADDRESS")
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("--sees", nargs=2, metavar=("FILE", "SHA256"))
    options = parser.parse_args()
    if options.step:
        for number in REPORTED:
            signal.signal(number, lambda number, _: _write(f"{SIGNAL}{signal.Signals(number).name}".encode()))
    _write(msgspec.json.encode(find_facts(options)))
    line = sys.stdin.buffer.readline()
    if not line.strip():
        return 0  # the driver does not use this machine
    try:
        order = decode(line, AgentOrder).validate()
        directory = find_directory(order)
        start_agent(directory, order)
    except (LegatoError, OSError, msgspec.DecodeError) as error:
        _write(msgspec.json.encode(Reply(error=f"its agent cannot be started: {str(error).rstrip('.')}")))
        return 1
    _write(msgspec.json.encode(Reply()))
    if options.step:
        return 0 if wait_for_agent(directory) else 1
    _keep_agent(directory, order)
    return 0


def _keep_agent(directory: Path, order: AgentOrder) -> None:
    """Start the agent again when it has died, until the input ends. It finds its workers, which have trained on."""
    while not select.select([sys.stdin], [], [], _LOOK_EVERY_S)[0] or os.read(sys.stdin.fileno(), 2**16):
        # What prevents it may pass; meanwhile the driver says that the machine is lost.
        with contextlib.suppress(LegatoError, OSError, subprocess.SubprocessError):
            if has_died(directory):
                start_agent(directory, order)


def _write(line: bytes) -> None:
    with contextlib.suppress(OSError):  # the driver has gone, and the agent waits for the next one
        os.write(1, line + b"\n")


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main())
