"""Commands on the machines of the pool: list them, let one join, drain it, remove it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import urlsplit

import typer

from legato.cli.entry import Entry, enter, make_group
from legato.cli.platform.completion import complete_nodes
from legato.cli.platform.connecting import open_client
from legato.cli.platform.options import OutputOption, ServerOption, WatchOption
from legato.cli.terminal.formatting import read_duration, render_time
from legato.cli.terminal.output import Output, make_table, watch, write
from legato.core.errors import NotFound

if TYPE_CHECKING:
    from legato.client.client import Client

NodeName = Annotated[str, typer.Argument(metavar="NODE", help="Name of the node.", autocompletion=complete_nodes)]

nodes = make_group("nodes", "legato nodes")


@nodes.callback(invoke_without_command=True)
def list_nodes(
    context: typer.Context,
    output: OutputOption = Output.table,
    again: WatchOption = False,
    server: ServerOption = None,
) -> None:
    """List the nodes of the pool, and how many of their GPUs are free. To change them: token, drain, resume, remove."""
    if context.invoked_subcommand is not None:
        return
    client = open_client(server, is_watching=again)

    def look() -> tuple[Any, Any, bool]:
        from legato.cli.terminal.columns import node_columns

        found = client.nodes()
        if not output.is_for_people:
            return list(found), None, True
        told = "\n".join(_describe_clusters(client))
        if not found:
            return [], told or "No machine has joined the pool yet.", True
        is_wide = output is Output.wide
        return list(found), make_table(node_columns(time.time()), found, is_wide=is_wide, below=told or None), True

    watch(look, output, again=again)


def _describe_clusters(client: Client) -> list[str]:
    """Return what the clusters of the pool say, as sentences."""
    try:
        return [sentence for cluster in client.clusters() for sentence in cluster.describe()]
    except NotFound:  # the server is of an earlier release
        return []


def add_token(
    expires: Annotated[
        str, typer.Option("--expires", metavar="DURATION", help="For how long it is valid: 10m, 1h, 7d.")
    ] = "1h",
    output: OutputOption = Output.table,
    server: ServerOption = None,
) -> None:
    """Add a token with which machines join the pool, and print its secret, which is shown only once. For admins."""
    from legato.client.servers import is_loopback

    client = open_client(server)
    made = client.add_join_token(read_duration(expires, "the time for which the token is valid"))
    if not output.is_for_people:
        write(made, output, str)
        return
    url = client.server.url
    if is_loopback(url):  # other machines need another name
        url = urlsplit(url)._replace(netloc=f"HOST:{urlsplit(url).port}").geturl()
    typer.echo(
        f"Join token {made.token.id}, valid until {render_time(made.token.expires_at)}. On the other machine, put it "
        f"into a file that only you can read, and type: legato agent --connect {url} --token-file FILE",
        err=True,
    )
    typer.echo(made.secret)


def list_tokens(output: OutputOption = Output.table, server: ServerOption = None) -> None:
    """List the join tokens. For admins."""
    found = open_client(server).join_tokens()

    def draw() -> Any:
        from legato.cli.terminal.columns import join_token_columns

        return make_table(join_token_columns(time.time()), found, is_wide=output is Output.wide)

    write(list(found), output, lambda: draw() if found else "There is no join token.")


def revoke_token(
    token: Annotated[str, typer.Argument(metavar="ID", help="Id of the join token.")], server: ServerOption = None
) -> None:
    """Revoke a join token: no further machine joins with it. Machines that have joined stay. For admins."""
    open_client(server).revoke_join_token(token)
    typer.echo(f"Join token {token} is revoked.")


def drain(
    node: NodeName,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; users of the pool see it.")] = "",
    server: ServerOption = None,
) -> None:
    """Stop using a node: jobs shrink off it, and none is stopped. For admins."""
    open_client(server).drain_node(node, reason)
    typer.echo(f"Node {node} is drained: jobs shrink off it. 'legato slots -w' shows when its slots are free.")


def resume(node: NodeName, server: ServerOption = None) -> None:
    """Use a drained node again. For admins."""
    open_client(server).resume_node(node)
    typer.echo(f"Node {node} is used again.")


def remove(node: NodeName, server: ServerOption = None) -> None:
    """Remove a node whose agent has left or does not answer. To join again, it needs a join token. For admins."""
    open_client(server).remove_node(node)
    typer.echo(f"Node {node} is removed.")


enter(
    nodes,
    (
        Entry("token", add_token, "legato nodes token --expires 1h", short="Add a join token."),
        Entry("tokens", list_tokens, "legato nodes tokens", short="List join tokens."),
        Entry("revoke", revoke_token, "legato nodes revoke n-35c1awg2qg", short="Revoke a join token."),
        Entry("drain", drain, "legato nodes drain gpu-2 --reason 'a new disk'", short="Stop using a node."),
        Entry("resume", resume, "legato nodes resume gpu-2", short="Use a drained node again."),
        Entry("remove", remove, "legato nodes remove gpu-2", short="Remove a node that is gone."),
    ),
)

GROUPS: Final = (nodes,)
ENTRIES: Final[tuple[Entry, ...]] = ()
