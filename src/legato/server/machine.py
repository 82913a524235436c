"""The machines of the pool: this one, with its name and slots, and those with agents or other servers."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from legato.agent.starting import find_address, list_addresses
from legato.clusters.pilots import CLUSTER_LABEL, name_test_node
from legato.control.drivers.process import DoorOrder
from legato.control.records import AGENT, AGENT_SILENT_S, GONE, LOCAL, DeclaredSlot, Lease, Node, StoredAgent
from legato.control.settings import Settings
from legato.control.store import Store
from legato.core.errors import SettingsError, UsageError
from legato.core.slots import make_slot
from legato.driver.journal import replace_file
from legato.engines.gpus import find_devices, find_gpu_types
from legato.engines.machine_kind import find_kind
from legato.policy.snapshot import OWNER_LABEL, TEST_LABEL
from legato.system.hosts import NAMES, Machine, find_this_machine, name_this_machine

_KEY_LENGTH: Final = 16
_ANY: Final = ("", "0.0.0.0", "::")  # noqa: S104 -- compared, not bound
_SOMEWHERE: Final = {
    4: "192.0.2.0/24",
    6: "2001:db8::/32",
}  # of documentation: the system only looks up the route to them
_NAME_FILE: Final = "node"
_MAX_NAMED: Final = 3


def find_slots(num_slots: int | None) -> tuple[str, ...]:
    """Return the torch device of each slot of this machine.

    Args:
        num_slots: the number of slots. None: one per GPU, or one per CPU core where there is no GPU.

    Raises:
        SettingsError: the machine has fewer GPUs than that.
    """
    if num_slots == 0:
        return ()
    devices = find_devices()
    if not devices:
        return ("cpu",) * (num_slots or len(os.sched_getaffinity(0)))
    if num_slots is not None and num_slots > len(devices):
        raise SettingsError(
            f"Cannot offer slots={num_slots}: this machine has {len(devices)} GPUs, one for each slot. Ask for fewer, "
            "or hide the GPUs with CUDA_VISIBLE_DEVICES= to offer slots of the CPU."
        )
    return devices[:num_slots]


def name_node(home: Path) -> str:
    """Return the name of this machine in the pool: the host name at the first start of a server.

    It stays the same when the host is renamed, because running jobs know their slots by it. The name belongs to the
    home: who restores a platform on another machine continues its jobs there.
    """
    file = home / _NAME_FILE
    if file.exists():
        return file.read_text().strip()
    name = name_this_machine()
    replace_file(file, f"{name}\n".encode())
    return name


def name_shared_node(home: Path, machine: Machine | None = None) -> str:
    """Return the name of this machine in a pool whose servers, on any machines, share a home.

    The home has a name for each machine. The first machine gets the name that the home had before.

    Args:
        home: of the platform.
        machine: this machine; None: find it.

    Raises:
        UsageError: another machine has the name.
    """
    machine = find_this_machine() if machine is None else machine
    file = home / NAMES / machine.key
    if file.exists():
        return file.read_text().strip()
    others = list_names(home)
    name = machine.name if others else name_node(home)
    if name in others:
        raise UsageError(
            f"Cannot start: another machine with a server on '{home}' has the name '{name}' in the pool. Give this "
            f"machine another host name. If it is the same machine, installed again, delete {others[name]}."
        )
    file.parent.mkdir(mode=0o700, exist_ok=True)
    replace_file(file, f"{name}\n".encode())
    return name


def list_names(home: Path) -> dict[str, Path]:
    """Return the names of the machines whose servers have shared a home, with the files that contain them."""
    folder = home / NAMES
    files = sorted(folder.iterdir()) if folder.is_dir() else ()
    # The names of files that are being written contain an underscore or are longer.
    return {file.read_text().strip(): file for file in files if len(file.name) == _KEY_LENGTH}


def _find_source(address: str, host: str) -> str | None:
    """Return the address from which this machine reaches another one; None: it has no route, or ``host`` is not it."""
    try:
        peer = ipaddress.ip_address(address)
        if host and peer.version != ipaddress.ip_address(host).version:
            return None
        return find_address(str(ipaddress.ip_network(peer)), None, is_inside=False)
    except (ValueError, UsageError):
        return None


class Declaration:
    """Declares the slots of the pool's machines in the store, while this server is the deciding one.

    Args:
        store: the store of the platform.
        node: the name of this machine.
        devices: the torch device of each slot, by number of the slot.
    """

    def __init__(self, store: Store, node: str, devices: Sequence[str]) -> None:
        self._store = store
        self._node = node
        self._devices = tuple(devices)
        self._kind = find_kind()
        self._declared: dict[str, Node] = {}
        self._counts_from: dict[str, float] = {}  # machine → when its silence began to count
        self._looked_at = 0.0
        self.has_agents = False
        """Whether machines with agents belong to the pool."""

    def declare(self, lease: Lease, now: float) -> None:
        """Declare the slots of all machines. Those that are neither this one nor have an agent are gone.

        Raises:
            FencedOut: another loop has the lease.
        """
        # Nodes are taken from ids of slots, because a damaged row may name a missing node.
        slots = self._store.pool.list_slots()
        self._forgive({slot.node for slot in slots if slot.node and slot.unusable_reason is None}, now)
        self._declared = {}
        self._refresh(lease, now, {slot.node for slot in slots if slot.node and slot.id.startswith(f"{slot.node}/")})

    def refresh(self, lease: Lease, now: float) -> None:
        """Declare what has changed since the last call. Errors as in `declare`."""
        self._refresh(lease, now, set(self._declared))

    def _refresh(self, lease: Lease, now: float, known: set[str]) -> None:
        if abs(now - self._looked_at) > AGENT_SILENT_S / 2:
            self._forgive({name for name, node in self._declared.items() if node.trouble is None}, now)
        self._looked_at = now
        agents = {agent.node: agent for agent in self._store.agents.list()}
        own = agents.pop(self._node, None)
        self.has_agents = any(agent.left_at is None for agent in agents.values())
        wanted = {self._node: self._describe_own(None if own is None else explain_drain(own))}
        there = [self._adjust(agent, now) for agent in agents.values() if agent.seen_at is not None]
        wanted |= {agent.node: describe(agent, now) for agent in there}
        wanted |= {name: Node(name=name, engine=GONE, slots=()) for name in known - set(wanted)}
        changed = [node for name, node in wanted.items() if self._declared.get(name) != node]
        if changed:
            self._store.pool.declare(changed, lease.fence, now)
            self._declared = wanted

    def _forgive(self, nodes: set[str], now: float) -> None:
        """Count the silence of machines from now on: no server may have run to take reports, or the clock was set."""
        self._counts_from, self._looked_at = dict.fromkeys(nodes, now), now

    def _adjust(self, agent: StoredAgent, now: float) -> StoredAgent:
        since = self._counts_from.get(agent.node)
        if since is None or agent.seen_at is None:
            return agent
        was_set_back = agent.seen_at - now > AGENT_SILENT_S  # the clock, after the report
        return msgspec.structs.replace(agent, seen_at=since if was_set_back else max(agent.seen_at, since))

    def _describe_own(self, trouble: str | None) -> Node:
        types = find_gpu_types(self._devices)
        # Also without agents: a job that begins before the first one joins keeps this kind.
        return Node(
            name=self._node,
            engine=LOCAL,
            slots=_make_slots(self._node, self._devices, types),
            trouble=trouble,
            kind=self._kind.name,
            traits=self._kind.traits,
        )


def describe(agent: StoredAgent, now: float) -> Node:
    """Return the machine of an agent, and whether its slots can be used at the time ``now``."""
    return Node(
        name=agent.node,
        engine=AGENT,
        slots=_make_slots(agent.node, agent.devices, agent.gpu_types),
        kind=agent.kind,
        traits=agent.traits,
        labels=_label(agent),
        trouble=_explain(agent, now),
    )


def _label(agent: StoredAgent) -> dict[str, str]:
    """Return the labels of a machine: those of its agent and, if it is a pilot, Legato's own."""
    if agent.cluster is None:
        return agent.labels
    is_for_test = agent.node == name_test_node(agent.cluster)
    own = {CLUSTER_LABEL: agent.cluster, **({TEST_LABEL: agent.cluster} if is_for_test else {})}
    own |= {} if agent.owner is None else {OWNER_LABEL: agent.owner}
    return {**agent.labels, **own}


def _explain(agent: StoredAgent, now: float) -> str | None:
    if agent.left_at is not None:
        return "its agent gives its slots back, or has ended"
    if (drain := explain_drain(agent)) is not None:
        return drain
    if agent.is_silent(now):
        return f"its {'server' if agent.is_server else 'agent'} does not answer"
    return None


def explain_drain(agent: StoredAgent) -> str | None:
    """Return who drains a machine and why; None: it is not drained."""
    if agent.drained_at is None:
        return None
    return f"{agent.drained_by} drains its machine" + (f": {agent.drain_reason}" if agent.drain_reason else "")


def _make_slots(node: str, devices: Sequence[str], types: Sequence[str | None]) -> tuple[DeclaredSlot, ...]:
    return tuple(
        DeclaredSlot(make_slot(node, number), device, gpu_type)
        for number, (device, gpu_type) in enumerate(zip(devices, types, strict=True))
    )


class DoorFinder:
    """Finds where drivers listen for agents.

    Args:
        settings: of the platform.
        declaration: which knows whether there are agents.
        find_address: returns the address at which other machines reach this one.
        is_shared: servers of other machines may take attempts over.
    """

    def __init__(
        self,
        settings: Settings,
        declaration: Declaration,
        find_address: Callable[[], str],
        *,
        is_shared: bool = False,
    ) -> None:
        self._settings = settings
        self._declaration = declaration
        self._find_address = find_address
        self._is_shared = is_shared

    def __call__(self) -> DoorOrder | None:
        """Return where the driver of an attempt listens; None: this machine is the only one that can run its jobs.

        Raises:
            UsageError: this machine has no address at which the others can reach it.
        """
        # Agents look the users of jobs up by name; a user of the pool has none on other machines.
        expects_agents = self._declaration.has_agents or self._is_shared or bool(self._settings.clusters)
        if self._settings.run_jobs_as == "pool" or not expects_agents:
            return None
        return DoorOrder(
            host=self._settings.host,
            ports=self._settings.driver_port_range,
            address=self._find_address(),
            is_shared=self._is_shared,
        )


def find_own_address(settings: Settings, store: Store, node: str) -> str:
    """Return the address at which other machines of the pool reach this one.

    Without the setting ``network`` it is the one from which this machine reaches most of them. If it reaches none, or
    none is known, it is that of the default route, or the only one that the machine has.

    Args:
        settings: of the platform.
        store: which knows the other machines.
        node: the name of this machine.

    Raises:
        UsageError: this machine has none.
    """
    host, network = settings.host, settings.network
    if network is not None:
        return find_address(network, None)
    if host not in _ANY:
        return socket.gethostbyname(host) if host == "localhost" else host
    agents = [agent for agent in store.agents.list() if agent.node != node and agent.left_at is None]
    counted = Counter(filter(None, (_find_source(agent.address, host) for agent in agents)))
    if counted:
        return max(counted, key=lambda address: (not ipaddress.ip_address(address).is_loopback, counted[address]))
    versions = (4, 6) if host == "" else (ipaddress.ip_address(host).version,)  # "::" listens on IPv6 only
    for version in versions:
        with contextlib.suppress(UsageError):
            return find_address(_SOMEWHERE[version], None, is_inside=False)
    own = [(ipaddress.ip_address(address), interface) for address, interface in list_addresses()]
    usable = [(str(ip), interface) for ip, interface in own if ip.version in versions and not ip.is_loopback]
    if len(usable) == 1:
        return usable[0][0]
    named = ", ".join(f"{address} ({interface})" for address, interface in usable[:_MAX_NAMED]) or "none"
    others = ", ".join(f"{agent.node} ({agent.address})" for agent in agents[:_MAX_NAMED])
    raise UsageError(
        "Cannot find the address of this machine for the other machines of the pool: it has no default route"
        f"{f', and no route to {others}' if others else ''}. Its addresses for host={host or '*'} are: {named}. Name "
        "the network of the machines with the setting network, such as 10.0.0.0/24."
    )
