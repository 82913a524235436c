"""One suite over what starts the agents of a job by commands: ssh, and steps of Slurm inside an allocation.

They are not clusters with pilots, whose suite is in `suite`: their machines are given, and only need agents. The
commands are scripts here, which say what a machine would say.
"""

from __future__ import annotations

import asyncio
import functools
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from legato.agent.orders import AgentOrder
from legato.agent.starting import Facts, Reply
from legato.clusters import base
from legato.clusters.base import CommandStarter
from legato.clusters.slurm import Allocation, SlurmStarter
from legato.clusters.ssh import Host, Hosts, SshStarter
from legato.system.door import Door

SECRET = "lgt_secret"
LIMIT_S = 30.0
GOOD = Facts(python="3.12", torch="2.9.0", capability="AVX512", address="10.0.0.1")


def encode(message: msgspec.Struct) -> str:
    return msgspec.json.encode(message).decode()


class StarterBed(ABC):
    """Machines whose agents a starter starts.

    Args:
        folder: an empty one.
        monkeypatch: of the test.
    """

    program: str
    """The command that leads to a machine."""
    find_node: str
    """Lines of the shell that set ``node`` from the arguments, and say what the command itself says."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.refusals: dict[str, list[str]] = {}
        self._door = Door()
        self._keeping: dict[str, asyncio.Task[None]] = {}
        log = f'echo "$node: $*" >> {folder}/calls; env >> {folder}/calls'
        program = folder / "bin" / self.program
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\n{self.find_node}\n{log}\necho $$ > {folder}/$node.pid\n. {folder}/$node.sh\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{folder}/bin:/usr/bin:/bin")
        monkeypatch.setattr(base, "_RETRY_S", 0.05)
        monkeypatch.setattr(base, "_FIRST_LIMIT_S", 0.2)

    @abstractmethod
    def make(self, nodes: list[str], door: Door) -> CommandStarter:
        """Return a starter over machines with two slots each."""

    def let_say(self, node: str, *lines: str) -> None:
        """Let a machine run these lines of the shell for each connection."""
        part = self.folder / f"{node}.part"
        part.write_text("\n".join((*lines, "")))
        part.rename(self.folder / f"{node}.sh")

    def let_train(self, node: str, facts: Facts = GOOD) -> None:
        """Let a machine start its agent, and keep its connection until it is closed."""
        self.let_say(node, *self.start(node, facts), "cat > /dev/null")

    def start(self, node: str, facts: Facts = GOOD) -> list[str]:
        """Return the lines by which a machine starts its agent."""
        return [f"echo '{encode(facts)}'", f"read -r order && echo \"$order\" >> {self.orders(node)}",
                f"echo '{encode(Reply())}'"]  # fmt: skip

    def orders(self, node: str) -> Path:
        return self.folder / f"{node}.orders"

    def read_orders(self, node: str) -> list[AgentOrder]:
        """Return the orders that a machine got."""
        file = self.orders(node)
        return (
            [msgspec.json.decode(line, type=AgentOrder) for line in file.read_bytes().splitlines()]
            if file.exists()
            else []
        )

    @asynccontextmanager
    async def keep(self, *nodes: str) -> AsyncIterator[None]:
        """Keep the agents of machines started."""
        await self._door.open()
        starter = self.make(list(nodes), self._door)
        for node in nodes:
            refused = self.refusals.setdefault(node, [])
            self._keeping[node] = asyncio.create_task(starter.keep(node, SECRET, refused.append))
        try:
            yield
        finally:
            for task in self._keeping.values():
                task.cancel()
            await asyncio.gather(*self._keeping.values(), return_exceptions=True)
            await self._door.close()

    def lives(self, node: str) -> bool:
        """Whether the last command to a machine runs."""
        try:
            os.kill(int((self.folder / f"{node}.pid").read_text()), 0)
        except ProcessLookupError:
            return False
        return True


class SshBed(StarterBed):
    program = "ssh"
    find_node = (
        'for word in "$@"; do [ "$before" = -- ] && node=$word; before=$word; done\n'
        "echo 'Allocated port 4321 for remote forward to 127.0.0.1:1' >&2"
    )

    def make(self, nodes: list[str], door: Door) -> CommandStarter:
        return SshStarter(Hosts(tuple(Host(node, 2) for node in nodes)), "job", door)


class SlurmBed(StarterBed):
    program = "srun"
    find_node = 'for word in "$@"; do case $word in --nodelist=*) node=${word#--nodelist=};; esac; done'

    def make(self, nodes: list[str], door: Door) -> CommandStarter:
        shown = self.folder / "shown"
        shown.write_text("")
        allocation = Allocation(job="42", number="42", node_list=",".join(nodes), slots=dict.fromkeys(nodes, 2))
        return SlurmStarter(allocation, "job", door, "127.0.0.1", None, shown)


Bed = StarterBed


def in_loop(test: Callable[[Bed], Coroutine[Any, Any, None]]) -> Callable[[Bed], None]:
    @functools.wraps(test)
    def run(bed: Bed) -> None:
        asyncio.run(test(bed))

    return run


async def wait_until(condition: Callable[[], Any]) -> Any:
    async with asyncio.timeout(LIMIT_S):
        while True:
            if found := condition():
                return found
            await asyncio.sleep(0.02)


@pytest.fixture(params=[SshBed, SlurmBed], ids=["ssh", "slurm"])
def bed(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bed:
    made = request.param(tmp_path, monkeypatch)
    assert isinstance(made, StarterBed)
    return made


@in_loop
async def test_each_machine_gets_its_own_order_and_the_secret_is_on_no_command_line_and_in_no_variable(
    bed: Bed,
) -> None:
    bed.let_train("a")
    bed.let_train("b", msgspec.structs.replace(GOOD, address="10.0.0.2"))
    async with bed.keep("a", "b"):
        await wait_until(lambda: bed.read_orders("a") and bed.read_orders("b"))
    orders = [bed.read_orders(node)[0] for node in ("a", "b")]
    assert [(each.node, each.address, each.num_slots) for each in orders] == [
        ("a", "10.0.0.1", 2),
        ("b", "10.0.0.2", 2),
    ]
    for each in orders:
        assert (each.job, each.token) == ("job", SECRET)
        assert each.urls
    assert SECRET not in (bed.folder / "calls").read_text()
    assert bed.refusals == {"a": [], "b": []}


@in_loop
async def test_what_a_shell_of_the_machine_prints_at_its_start_is_skipped(bed: Bed) -> None:
    bed.let_say("a", "echo Welcome to a", 'echo \'{"not": "ours"}\'', *bed.start("a"), "cat > /dev/null")
    async with bed.keep("a"):
        await wait_until(lambda: bed.read_orders("a"))
    assert bed.refusals == {"a": []}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"legato": "0.0.1"}, "install the same release on both"),
        ({"torch": "2.8.0"}, "it has torch 2.8.0, and a has 2.9.0: results would differ"),
        ({"error": "workers cannot be started there"}, "workers cannot be started there"),
    ],
)
def test_a_machine_that_cannot_train_with_the_others_gets_no_order_and_the_others_train(
    bed: Bed, changes: dict[str, Any], told: str
) -> None:
    async def run() -> None:
        bed.let_train("a")
        bed.let_train("b", msgspec.structs.replace(GOOD, **changes))
        async with bed.keep("a", "b"):
            await wait_until(lambda: bed.read_orders("a") and bed.refusals["b"])
        assert told in bed.refusals["b"][0]
        assert (bed.read_orders("b"), bed.refusals["a"]) == ([], [])

    asyncio.run(run())


@in_loop
async def test_a_command_that_fails_says_why_once_and_is_tried_again(bed: Bed) -> None:
    bed.let_say("a", "echo 'the machine is on fire' >&2", "exit 1")
    async with bed.keep("a"):
        await wait_until(lambda: bed.refusals["a"])
        bed.let_train("a")
        await wait_until(lambda: bed.read_orders("a"))
    (told,) = bed.refusals["a"]
    assert "the machine is on fire" in told


@in_loop
async def test_a_machine_that_says_nothing_keeps_no_other_one_from_training(bed: Bed) -> None:
    bed.let_say("a", "cat > /dev/null")
    bed.let_train("b")
    async with bed.keep("a", "b"):
        await wait_until(lambda: bed.read_orders("b"))
    assert (bed.read_orders("a"), bed.refusals["b"]) == ([], [])


@in_loop
async def test_a_connection_that_breaks_is_made_again_without_a_refusal_and_asks_only_for_the_address(bed: Bed) -> None:
    bed.let_train("a")
    bed.let_say("b", 'case "$*" in *--again*)', *bed.start("b", Facts(address="10.0.0.3")), "cat > /dev/null;;",
                "*)", *bed.start("b"), "exit 1;;", "esac")  # fmt: skip
    async with bed.keep("a", "b"):
        await wait_until(lambda: len(bed.read_orders("b")) == 2)
    first, second = bed.read_orders("b")
    assert (first.address, second) == ("10.0.0.1", msgspec.structs.replace(first, address="10.0.0.3"))
    assert bed.refusals == {"a": [], "b": []}


@in_loop
async def test_no_command_outlives_the_job(bed: Bed) -> None:
    bed.let_train("a")
    async with bed.keep("a"):
        await wait_until(lambda: bed.read_orders("a"))
        assert bed.lives("a")
    await wait_until(lambda: not bed.lives("a"))
