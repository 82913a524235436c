"""Commands on webhooks: add, list, show, change, test and remove."""

from __future__ import annotations

import enum
from typing import Annotated, Final, Literal

import typer

from legato.cli.entry import Entry, enter, make_group
from legato.cli.options import read_one_of, read_whole
from legato.cli.platform.completion import complete_projects
from legato.cli.platform.connecting import open_client
from legato.cli.platform.options import OutputOption, ServerOption
from legato.cli.terminal.columns import DELIVERY_COLUMNS, WEBHOOK_COLUMNS, describe_conditions
from legato.cli.terminal.formatting import read_duration
from legato.cli.terminal.output import Output, make_table, write, write_list
from legato.core.errors import UsageError

WebhookId = Annotated[str, typer.Argument(metavar="ID", help="Id of the webhook, see 'legato webhooks'.")]


class End(enum.StrEnum):
    """Which ends of jobs a webhook tells."""

    ended = "ended"
    failed = "failed"


class ChangedEnd(enum.StrEnum):
    """The same for a change. ``none``: it tells no ends any more."""

    ended = "ended"
    failed = "failed"
    none = "none"


_read_below: Final = read_whole("the number of workers", 4, highest=1_000_000)

webhooks = make_group("webhooks", "legato webhooks")


@webhooks.callback(invoke_without_command=True)
def list_webhooks(context: typer.Context, output: OutputOption = Output.table, server: ServerOption = None) -> None:
    """List your webhooks, for admins those of all users. More: add, show, change, test, remove."""
    if context.invoked_subcommand is not None:
        return
    found = open_client(server).webhooks()
    write_list(found, output, WEBHOOK_COLUMNS, "There are none. To add one: legato webhooks add URL --on ended")


def add_webhook(
    url: Annotated[str, typer.Argument(metavar="URL", help="The server sends messages to it, by POST.")],
    on: Annotated[
        list[End] | None,
        typer.Option(
            "--on",
            parser=read_one_of("the condition", End),
            metavar="[ended|failed]",
            help="When a job has ended in any way, or has failed.",
        ),
    ] = None,
    below: Annotated[
        int | None,
        typer.Option(
            "--below",
            parser=_read_below,
            metavar="NUMBER",
            help="When a job that trains is shrunk from this number of workers or more to fewer.",
        ),
    ] = None,
    waiting: Annotated[
        str | None,
        typer.Option("--waiting", metavar="TIME", help="When a job has waited in its queue for so long: 30m or 2h."),
    ] = None,
    project: Annotated[
        str | None,
        typer.Option(
            "--project",
            "-p",
            metavar="PROJECT",
            help="For the jobs of this project. [default: for your jobs]",
            autocompletion=complete_projects,
        ),
    ] = None,
    output: OutputOption = Output.table,
    server: ServerOption = None,
) -> None:
    """Add a webhook and print the secret that signs its messages, which is shown only once.

    Standard output contains the secret alone.
    """
    if not on and below is None and waiting is None:
        raise UsageError(
            "Cannot add a webhook that is never called. Give --on ended, --on failed, --below NUMBER or --waiting TIME."
        )
    made = open_client(server).add_webhook(
        url,
        on=on or (),
        below_workers=below,
        waiting_s=None if waiting is None else read_duration(waiting, "the time"),
        project=project,
    )
    if not output.is_for_people:
        write(made, output, str)
        return
    found = made.webhook
    typer.echo(
        f"Webhook {found.id} is added ({describe_conditions(found)}). To try it: legato webhooks test {found.id}. Its "
        "secret, with which receivers check the signature:",
        err=True,
    )
    typer.echo(made.secret)


def change_webhook(
    webhook: WebhookId,
    url: Annotated[str | None, typer.Option("--url", metavar="URL", help="The server sends messages to it.")] = None,
    on: Annotated[
        list[ChangedEnd] | None,
        typer.Option(
            "--on",
            parser=read_one_of("the condition", ChangedEnd),
            metavar="[ended|failed|none]",
            help="When a job has ended in any way, or has failed; none: neither. Replaces the present choice.",
        ),
    ] = None,
    below: Annotated[
        str | None,
        typer.Option("--below", metavar="NUMBER|none", help="As for 'legato webhooks add'; none: not any more."),
    ] = None,
    waiting: Annotated[
        str | None,
        typer.Option("--waiting", metavar="TIME|none", help="As for 'legato webhooks add'; none: not any more."),
    ] = None,
    project: Annotated[
        str | None,
        typer.Option(
            "--project",
            "-p",
            metavar="PROJECT|none",
            help="For the jobs of this project; none: for those of the webhook's owner.",
            autocompletion=complete_projects,
        ),
    ] = None,
    output: OutputOption = Output.table,
    server: ServerOption = None,
) -> None:
    """Change a webhook. Its secret stays, and pending messages go to the new URL."""
    if all(value is None for value in (url, below, waiting, project)) and not on:
        raise UsageError(
            f"Cannot change webhook '{webhook}': no change is given. Give --url, --on, --below, --waiting or --project."
        )
    if on and ChangedEnd.none in on and len(set(on)) > 1:
        raise UsageError("Cannot use --on none together with another --on: give one of them.")
    found = open_client(server).change_webhook(
        webhook,
        url=url,
        on=None if not on else [one.value for one in on if one is not ChangedEnd.none],
        below_workers="none" if below == "none" else None if below is None else _read_below(below),
        waiting_s=_read_waiting(waiting),
        project=project,
    )
    told = f"Webhook {found.id} is changed: {describe_conditions(found)}, to {found.url}."
    write(found, output, lambda: told)


def _read_waiting(text: str | None) -> float | Literal["none"] | None:
    return "none" if text == "none" else None if text is None else read_duration(text, "the time")


def show_webhook(webhook: WebhookId, output: OutputOption = Output.table, server: ServerOption = None) -> None:
    """Show the last messages of a webhook, what became of them, and their errors."""
    found = open_client(server).webhook(webhook)
    told = (
        f"{found.id} of {found.owner}: {describe_conditions(found)}, to {found.url}. {found.num_pending} pending, "
        f"{found.num_failed} given up, {found.num_dropped} dropped."
    )
    is_wide = output is Output.wide
    write(found, output, lambda: make_table(DELIVERY_COLUMNS, found.deliveries, is_wide=is_wide, below=told))


def try_webhook(webhook: WebhookId, output: OutputOption = Output.table, server: ServerOption = None) -> None:
    """Send a test message now, once. The exit code is 1 if the receiver does not accept it."""
    found = open_client(server).test_webhook(webhook)
    told = f"is accepted (status {found.status})" if found.error is None else f"is not accepted: {found.error}."
    write(found, output, lambda: f"The test of webhook {webhook} {told}")
    if found.error is not None:
        raise typer.Exit(1)


def remove_webhook(webhook: WebhookId, server: ServerOption = None) -> None:
    """Remove a webhook. Pending messages are not sent any more."""
    client = open_client(server)
    pending = client.webhook(webhook).num_pending
    client.remove_webhook(webhook)
    told = "" if not pending else f" Its {pending} pending {'message is' if pending == 1 else 'messages are'} not sent."
    typer.echo(f"Webhook {webhook} is removed.{told}")


enter(
    webhooks,
    (
        Entry(
            "add",
            add_webhook,
            "legato webhooks add https://hooks.slack.com/services/T0/B0/X --on failed --waiting 1h",
            short="Add a webhook.",
        ),
        Entry("show", show_webhook, "legato webhooks show h-37efnd0000", short="Show the last messages and errors."),
        Entry(
            "change",
            change_webhook,
            "legato webhooks change h-37efnd0000 --on failed --waiting none",
            short="Change a webhook.",
        ),
        Entry("test", try_webhook, "legato webhooks test h-37efnd0000", short="Send a test message now."),
        Entry("remove", remove_webhook, "legato webhooks remove h-37efnd0000", short="Remove a webhook."),
    ),
)

GROUPS: Final = (webhooks,)
ENTRIES: Final[tuple[Entry, ...]] = ()
