"""The command that makes this machine a node of a server's pool."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from legato.cli.entry import Entry
from legato.core.errors import UsageError
from legato.core.slots import check_node_labels

_MAX_TOKEN_BYTES: Final = 4096
_NO_LABELS: Final = "none"
_SILENT_S: Final = 45
"""As the server's `AGENT_SILENT_S`, which commands do not load."""


def agent(
    connect: Annotated[
        str, typer.Option("--connect", metavar="URL[,URL...]", help="URL of the server, or of each server.")
    ],
    token_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="File with a join token ('legato nodes token'), or - for standard input. Only needed to join.",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of this machine in the pool. [default: its host name]")
    ] = None,
    slots: Annotated[
        int | None, typer.Option(min=1, max=1024, metavar="NUMBER", help="Number of GPUs, or CPU slots, to offer.")
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A label for jobs to ask for. Repeatable; 'none': no labels. [default: the labels of the last start]",
        ),
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(
            metavar="NETWORK",
            help="Network in which other machines reach this one, such as 10.0.0.0/24; 'none': that of the way to the "
            "server. [default: the network of the last start]",
        ),
    ] = None,
    home: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Directory for the files of jobs. [default: ~/.local/share/legato]"),
    ] = None,
    pilot: Annotated[
        bool, typer.Option("--pilot", help="A cluster has started this: SIGTERM and SIGUSR1 give the GPUs back.")
    ] = False,
    gpus: Annotated[
        int, typer.Option(min=0, metavar="NUMBER", help="End with an error if the machine has fewer GPUs.")
    ] = 0,
) -> None:
    """Make this machine a node of a server's pool. Ctrl-C gives its GPUs back: jobs shrink off it, none is stopped.

    SIGTERM ends the command at once, and the workers train on.
    """
    import asyncio
    import logging
    import signal

    from legato.agent.pool_agent import PoolAgent
    from legato.clusters.base import check_network
    from legato.system.hosts import name_this_machine

    logging.basicConfig(level=logging.WARNING, format="legato: %(message)s")
    if gpus:
        _check_gpus(gpus)
    pool_agent = PoolAgent(
        connect,
        name or name_this_machine(),
        token=None if token_file is None else _read_token(token_file),
        num_slots=slots,
        labels=_read_labels(label),
        network="" if network == "none" else network and check_network(network),
        home=home,
        is_pilot=pilot,
        say=typer.echo,
    )

    async def run() -> None:
        loop = asyncio.get_running_loop()
        running = loop.create_task(pool_agent.run())
        if pilot:
            # The cluster ends the machine soon: at its time limit, or because it needs it for something else.
            for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
                why = f"The cluster takes this machine back ({number.name})."
                loop.add_signal_handler(number, pool_agent.begin_leave, why)
            await running
            return
        loop.add_signal_handler(signal.SIGINT, pool_agent.leave)
        # Service managers send it also for a restart, from which jobs must notice nothing.
        loop.add_signal_handler(signal.SIGTERM, running.cancel)
        try:
            await running
        except asyncio.CancelledError:
            typer.echo(
                f"This command ends, and its jobs train on. If it does not start again within {_SILENT_S} s, jobs "
                "shrink off this machine."
                if pool_agent.has_jobs
                else "This command ends. No job uses this machine."
            )

    asyncio.run(run())


def _check_gpus(number: int) -> None:
    """Raise UsageError if this machine has fewer GPUs than its cluster was asked for."""
    import os

    from legato.engines.gpus import find_devices

    found = len(find_devices())
    if found < number and "LEGATO_DEVICE" not in os.environ:
        raise UsageError(
            f"Cannot join the pool: this machine must have {number} GPUs, and Legato finds {found}. Check nvidia-smi "
            "there, and CUDA_VISIBLE_DEVICES."
        )


def _read_token(file: str) -> str:
    try:
        if file == "-":
            content = sys.stdin.read(_MAX_TOKEN_BYTES)
        else:
            with Path(file).open(encoding="utf-8") as opened:
                content = opened.read(_MAX_TOKEN_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"Cannot read the join token from '{file}': {error}.") from error
    token = content.strip()
    if not token or not token.isprintable() or " " in token:
        raise UsageError(
            f"Cannot use the join token in '{file}': it must be one word, as 'legato nodes token' shows it."
        )
    return token


def _read_labels(labels: list[str] | None) -> dict[str, str] | None:
    if not labels:
        return None
    if labels == [_NO_LABELS]:
        return {}
    found = {}
    for label in labels:
        key, _, value = label.partition("=")
        if not key or not value:
            raise UsageError(f"Cannot use the label '{label[:200]}': write it as NAME=VALUE, such as site=berlin.")
        found[key] = value
    check_node_labels(found)
    return found


ENTRIES: Final = (Entry("agent", agent, "legato agent --connect https://legato.lab --token-file token.txt"),)
