"""Commands on the clusters that give machines to the pool: list them with what they cost, and test one."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from legato.cli.entry import Entry, enter, make_group
from legato.cli.platform.connecting import open_client
from legato.cli.platform.options import OutputOption, ServerOption, WatchOption
from legato.cli.terminal.output import Output, make_table, watch, write
from legato.core.errors import LegatoError, NotFound, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from legato.api.pool import Cluster, ClusterTest, Node
    from legato.client.client import Client
    from legato.client.jobs import Job

_POLL_S: Final = 1.0
_CLEAN_LIMIT_S: Final = 180.0
_NONE: Final = (
    "The server takes no machines from a cluster: its settings have no section [slurm] or [kubernetes], or it has "
    "started a moment ago."
)

clusters = make_group("clusters", "legato clusters")


@clusters.callback(invoke_without_command=True)
def list_clusters(
    context: typer.Context,
    output: OutputOption = Output.table,
    again: WatchOption = False,
    server: ServerOption = None,
) -> None:
    """List the clusters that give machines to the pool: their state, machines, limits, and what idle ones cost."""
    if context.invoked_subcommand is not None:
        return
    client = open_client(server, is_watching=again)

    def look() -> tuple[Any, Any, bool]:
        from legato.cli.terminal.columns import cluster_columns

        found = client.clusters()
        if not output.is_for_people:
            return list(found), None, True
        told = [sentence for cluster in found for sentence in _describe(cluster)]
        told += _describe_own(client.nodes())
        if not found:
            return [], "\n".join((_NONE, *told)), True
        columns, is_wide = cluster_columns(time.time()), output is Output.wide
        return list(found), make_table(columns, found, is_wide=is_wide, below="\n".join(told) or None), True

    watch(look, output, again=again)


def _describe(cluster: Cluster) -> Sequence[str]:
    """Return what a cluster says, what its idle machines have cost, and its last test, as sentences."""
    told = list(cluster.describe())
    idle = cluster.idle
    if idle is not None and idle.given_slot_s:
        from legato.cli.terminal.formatting import render_time

        what = "GPU hours" if cluster.gpu_types else "slot hours"
        told.append(
            f"Since {render_time(idle.since)}, machines of {cluster.name} were idle for "
            f"{idle.total_slot_s / 3600:.1f} of {idle.given_slot_s / 3600:.1f} {what}."
        )
    if (test := cluster.test) is not None:
        state = "is running" if test.ended_at is None else test.state
        told.append(f"The last test of {cluster.name} {state}. {test.told}".rstrip())
    return told


def _describe_own(nodes: Sequence[Node]) -> Sequence[str]:
    """Return how many machines have joined with agents that no cluster has started, as a sentence."""
    states = Counter(
        node.agent.state for node in nodes if node.agent is not None and "legato.cluster" not in node.labels
    )
    if not states:
        return ()
    told = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
    number = states.total()
    return (f"{number} machine{'' if number == 1 else 's'} joined with a token: {told}. 'legato nodes' lists them.",)


def run_test(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The cluster, such as slurm. [default: the only one]")
    ] = None,
    output: OutputOption = Output.table,
    server: ServerOption = None,
) -> None:
    """Test a cluster: get one machine from it, train ten steps there, and give it back. For admins.

    Says in one sentence what is wrong and what to do. The machine is given back in every case, also after Ctrl-C.
    """
    client = open_client(server)
    cluster = _choose(client.clusters(), name)
    job = client.test_cluster(cluster.kind)
    tell = _Teller(is_silent=not output.is_for_people)
    tell(f"Testing {cluster.name} with job {job.id}. Ctrl-C ends the test.")
    try:
        found = _follow(client, cluster.kind, job, tell)
    except BaseException:
        tell("The test is stopped; the server gives the machine back.")
        with contextlib.suppress(LegatoError):  # the server also ends a test that it cannot be asked to stop
            job.stop(now=True)
        raise
    tell(f"{'Passed' if found.state == 'passed' else 'Failed'}: {found.told}")
    if not found.is_clean:
        tell(f"{cluster.name} gets the machine back.")
        found = _wait_until_clean(client, cluster.kind, found)
    if not output.is_for_people:
        write(found, output, str)
    raise typer.Exit(0 if found.state == "passed" else 1)


def _choose(found: Sequence[Cluster], name: str | None) -> Cluster:
    if not found:
        raise NotFound(_NONE)
    if name is None and len(found) == 1:
        return found[0]
    kinds = ", ".join(cluster.kind for cluster in found)
    if name is None:
        raise UsageError(
            f"Cannot choose a cluster: the server has {kinds}. Name one: legato clusters test {found[0].kind}"
        )
    for cluster in found:
        if name.lower() in (cluster.kind, cluster.name.lower()):
            return cluster
    raise NotFound(f"There is no cluster '{name[:100]}'. The server has: {kinds}.")


class _Teller:
    """Shows a line to the person who watches, unless it was the last one. Programs get none."""

    def __init__(self, *, is_silent: bool) -> None:
        self._is_silent = is_silent
        self._last = ""

    def __call__(self, line: str) -> None:
        if line and line != self._last and not self._is_silent:
            typer.echo(line)
        self._last = line


def _follow(client: Client, kind: str, job: Job, tell: _Teller) -> ClusterTest:
    """Tell what happens, until the server has decided. The server limits the time of each part of a test."""
    while True:
        test = _read_test(client, kind)
        if test is not None and test.job == job.id:
            if test.ended_at is not None:
                return test
            tell(test.told)
        elif job.refresh().has_ended:
            raise LegatoError(f"The test has no result: job {job.id} is {job.record.stage}: {job.record.reason}")
        time.sleep(_POLL_S)


def _wait_until_clean(client: Client, kind: str, found: ClusterTest) -> ClusterTest:
    """Wait until the cluster has its machine back; the server also does this if no one waits."""
    until = time.monotonic() + _CLEAN_LIMIT_S
    while not found.is_clean and time.monotonic() < until:
        time.sleep(_POLL_S)
        test = _read_test(client, kind)
        if test is None or test.job != found.job:
            break
        found = test
    return found


def _read_test(client: Client, kind: str) -> ClusterTest | None:
    return next((cluster.test for cluster in client.clusters() if cluster.kind == kind), None)


enter(
    clusters,
    (
        Entry(
            "test", run_test, "legato clusters test slurm", short="Get one machine, train ten steps, and give it back."
        ),
    ),
)

GROUPS: Final = (clusters,)
ENTRIES: Final[tuple[Entry, ...]] = ()
