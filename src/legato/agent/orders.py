"""What an agent needs to know before it can connect: the file ``agent.json``. Starts nothing."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

import msgspec

from legato.core.errors import UsageError
from legato.core.slots import check_node
from legato.core.spec import check_name
from legato.driver.journal import replace_small_file
from legato.system.decoding import decode

ORDER_FILE: Final = "agent.json"
STATE_FILE: Final = "agent-state.json"
SERVER: Final = "{server}"
"""Stands for the server's host in the URL of a driver, as the agent's machine reaches the server."""


class AgentOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``agent.json``; written again when the driver has another address.

    Args:
        job: name of the job.
        node: name of this machine in the job.
        urls: of the driver's door for agents, such as ``wss://10.0.0.1:4000/agent``; the first that answers is used.
        token: with which the agent connects.
        address: at which workers of other machines reach this machine. "": the machine's pool agent knows it.
        num_slots: the machine's first GPUs, or slots on the CPU if it has no GPU. None: all GPUs, or one slot.
        is_temporary: delete the agent's directory when the job has ended.
        code: SHA-256 of the job's uploaded code. "": it has none.
        code_folder: folder of the working directory into which the code goes; "": the working directory itself.
        work: the working directory with a copy of the code on this machine; "": none.
        certificate: of the driver (PEM): the agent and its workers talk to this driver only. "": it uses no TLS.
    """

    job: str
    node: str
    urls: tuple[str, ...]
    token: str
    address: str
    num_slots: int | None = None
    is_temporary: bool = False
    code: str = ""
    code_folder: str = ""
    work: str = ""
    certificate: str = ""

    def validate(self) -> AgentOrder:
        """Return the order itself. Raises UsageError if a field is unusable."""
        check_name(self.job)
        check_node(self.node)
        if not self.urls:
            raise UsageError("Cannot start an agent: its order names no address of a driver.")
        return self


class AgentState(msgspec.Struct):
    """The content of ``agent-state.json``.

    Args:
        identity: of the agent; no other agent has it.
        term: the highest term of a driver that the agent has seen.
    """

    identity: str = msgspec.field(default_factory=lambda: secrets.token_hex(16))
    term: int = 0


def find_agent_directory(node: str, job: str, home: Path | None = None) -> Path:
    """Return the directory of an agent: in ``home``, in ``$LEGATO_HOME`` or in the user's data directory.

    Machines may share a home, so the path contains the name of the machine.
    """
    if home is None:
        told = os.environ.get("LEGATO_HOME")
        home = Path(told) if told else Path.home() / ".local" / "share" / "legato"
    return home.absolute() / "agents" / check_node(node) / job


def read_agent_order(directory: Path) -> AgentOrder:
    """Return the order of an agent.

    Raises:
        UsageError: there is none, or it cannot be read.
    """
    try:
        return decode((directory / ORDER_FILE).read_bytes(), AgentOrder).validate()
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"Cannot read the agent's order {directory / ORDER_FILE}: {error}.") from error


def write_agent_order(directory: Path, order: AgentOrder) -> None:
    """Write the order of an agent; a running agent reads it before its next connection."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_small_file(directory / ORDER_FILE, msgspec.json.encode(order.validate()))


def read_state(directory: Path) -> AgentState:
    """Return the state of an agent, a new one if it has none yet.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        return decode((directory / STATE_FILE).read_bytes(), AgentState)
    except FileNotFoundError:
        return AgentState()
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"Cannot read the agent's state {directory / STATE_FILE}: {error}.") from error


def write_state(directory: Path, state: AgentState) -> None:
    """Write the state of an agent."""
    replace_small_file(directory / STATE_FILE, msgspec.json.encode(state))
