"""The jobs for which a machine of the pool must have an agent, as orders for that machine. Starts nothing."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

import structlog

from legato.agent.orders import SERVER, AgentOrder
from legato.control.drivers.own_agent import make_urls
from legato.control.drivers.process import DoorOrder, read_order
from legato.core.errors import LegatoError
from legato.engines.agents import RECORD
from legato.engines.agents_record import read_record

_ANY: Final = ("", "0.0.0.0", "::")  # noqa: S104 -- compared, not bound
_log = structlog.get_logger(__name__)


def list_orders(jobs: Path, node: str, ids: Collection[str], own_node: str = "") -> tuple[AgentOrder, ...]:
    """Return the orders of a machine, by job. The machine fills in its own address.

    Args:
        jobs: the folder of all jobs' directories.
        node: name of the machine.
        ids: of the jobs that hold slots of it.
        own_node: the name of this server's machine; "": it has none, because the server runs no jobs.
    """
    found = []
    for job in sorted(ids):
        try:
            order = _find_order(jobs / job, node, own_node)
        except (LegatoError, OSError) as error:
            _log.warning("the order of a machine for a job cannot be read", job=job, node=node, error=str(error))
            continue
        if order is not None:
            found.append(order)
    return tuple(found)


def _find_order(directory: Path, node: str, own_node: str) -> AgentOrder | None:
    """Return the order of a machine for one job; None: the job has no driver yet, or does not use other machines."""
    found = read_order(directory)
    if found is None or found.door is None or found.node == node:
        return None
    record = read_record(directory / RECORD)
    if record is None or not record.port or not record.certificate:
        return None
    hosts = _find_hosts(found.door, is_here=found.node == own_node)
    return AgentOrder(
        job=found.order.job,
        node=node,
        urls=tuple(url for host in hosts for url in make_urls(host, record.port)),
        certificate=record.certificate,
        token=record.secret,
        address="",
        is_temporary=True,
        code=Path(found.order.code).name if found.order.code is not None else "",
        code_folder=found.order.code_folder,
    )


def _find_hosts(door: DoorOrder, *, is_here: bool) -> tuple[str, ...]:
    """Return at which hosts an agent tries a driver: that of the server, or that of the driver's own machine.

    They differ if the agent asks one of several servers, and the driver runs on the machine of another one. The address
    of the driver's machine may not be the one at which agents reach it, for example behind NAT.
    """
    if door.host not in _ANY:
        return (door.host,)
    if not door.is_shared:
        return (SERVER,)
    return (SERVER, door.address) if is_here else (door.address, SERVER)
