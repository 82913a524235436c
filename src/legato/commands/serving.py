"""Commands that run a server and show how it is set up; the only ones that load the platform, and only when called."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from legato.commands.connecting import open_client
from legato.commands.entry import Entry, enter, make_group
from legato.commands.login import CONFIG_ENTRIES
from legato.commands.options import OutputOption, ServerOption
from legato.commands.output import Output, make_table, write
from legato.commands.table import Column
from legato.core.errors import UsageError

if TYPE_CHECKING:
    from legato.control.settings import Settings
    from legato.server.guests import Guest

FileOption = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", metavar="FILE", help="Settings, as TOML. [default: legato.toml in the home directory]"
    ),
]
HomeOption = Annotated[str | None, typer.Option(metavar="FOLDER", help="Where everything is kept.")]
HostOption = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Where to listen. [default: this machine only]")
]
PortOption = Annotated[str | None, typer.Option(metavar="PORT", help="0: any free one.")]
SlotsOption = Annotated[str | None, typer.Option(metavar="NUMBER", help="How many GPUs, or CPU slots, to offer.")]
PolicyOption = Annotated[str | None, typer.Option(metavar="[fair|priority|fifo]", help="How the pool is divided.")]
CompatOption = Annotated[
    str | None,
    typer.Option(metavar="[wmla|none]", help="Whose requests to answer besides Legato's own. [default: wmla]"),
]
DatabaseOption = Annotated[str | None, typer.Option("--database-url", metavar="URL", help="Where the store is.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any other setting; may be repeated. See 'legato config show'."),
]


def up(
    config: FileOption = None,
    home: HomeOption = None,
    host: HostOption = None,
    port: PortOption = None,
    slots: SlotsOption = None,
    policy: PolicyOption = None,
    database_url: DatabaseOption = None,
    compat: CompatOption = None,
    other: SetOption = None,
) -> None:
    """Run a whole platform on this machine: server, scheduler, and its GPUs. Ctrl-C stops it, not the jobs."""
    said = {"home": home, "host": host, "port": port, "slots": slots, "policy": policy}
    said |= {"database_url": database_url, "compat": compat}
    _serve(_read_settings(config, said, other), runs_jobs=True)


server = make_group(
    "server", "Run a server among others; care for its store.", "legato server --config /etc/legato.toml --api-only"
)


@server.callback(invoke_without_command=True)
def run_server(
    context: typer.Context,
    config: FileOption = None,
    home: HomeOption = None,
    host: HostOption = None,
    port: PortOption = None,
    slots: SlotsOption = None,
    policy: PolicyOption = None,
    database_url: DatabaseOption = None,
    compat: CompatOption = None,
    other: SetOption = None,
    api_only: Annotated[
        bool, typer.Option("--api-only", help="Offer no GPUs and decide nothing: beside a server that does.")
    ] = False,
) -> None:
    """Run a server, as 'legato up' does; several of them can share a PostgreSQL. Also: migrate, token."""
    if context.invoked_subcommand is not None:
        return
    said = {"home": home, "host": host, "port": port, "slots": slots, "policy": policy}
    said |= {"database_url": database_url, "compat": compat}
    _serve(_read_settings(config, said, other), runs_jobs=not api_only)


def migrate(
    config: FileOption = None, home: HomeOption = None, database_url: DatabaseOption = None, other: SetOption = None
) -> None:
    """Bring the tables of a PostgreSQL to this version. SQLite needs it not."""
    from legato.server.serving import upgrade_store

    upgrade_store(_read_settings(config, {"home": home, "database_url": database_url}, other))
    typer.echo("The tables of the store are of this version.")


def token(
    name: Annotated[str, typer.Option(metavar="NAME", help="What it is for.")] = "recovery",
    config: FileOption = None,
    home: HomeOption = None,
    database_url: DatabaseOption = None,
    other: SetOption = None,
) -> None:
    """Make a token of the user 'admin', for who runs the server and has lost the first one; prints the secret alone."""
    from legato.server.serving import make_admin_token

    typer.echo(make_admin_token(_read_settings(config, {"home": home, "database_url": database_url}, other), name))


enter(
    server,
    (
        Entry(
            "migrate",
            migrate,
            "legato server migrate --database-url postgresql://legato@db/legato",
            short="Bring the store to this version.",
        ),
        Entry(
            "token", token, "legato server token | legato login --token-stdin", short="Make a token of the first user."
        ),
    ),
)

# ---------------------------------------------------------------- settings

config = make_group("config", "Show settings, and the platforms you know.", "legato config show")


def show_config(
    config: FileOption = None,
    home: HomeOption = None,
    other: SetOption = None,
    output: OutputOption = Output.table,
    server: ServerOption = None,
) -> None:
    """Show all settings: those that a server started here would have, or with --server those of one that runs."""
    if server is not None:
        if config is not None or home is not None or other:
            raise UsageError("Cannot show settings of a running server and of a file at once: leave one of them out.")
        found = [
            {"name": one.name, "value": one.value, "from": "the server", "meaning": one.meaning}
            for one in open_client(server).config()
        ]
    else:
        found = _describe(config, {"home": home}, other)

    def draw() -> Any:
        columns = (
            Column[dict[str, Any]]("NAME", lambda row: row["name"]),
            Column[dict[str, Any]]("VALUE", lambda row: _render_value(row["value"])),
            Column[dict[str, Any]]("FROM", lambda row: row["from"]),
            Column[dict[str, Any]]("MEANING", lambda row: row["meaning"], is_wide=True),
        )
        return make_table(columns, found, is_wide=output is Output.wide)

    write(found, output, draw)


enter(config, (Entry("show", show_config, "legato config show -o wide", short="Show all settings."), *CONFIG_ENTRIES))

GROUPS: Final = (server, config)
ENTRIES: Final = (Entry("up", up, "legato up --slots 4", short="Run a platform on this machine."),)


def _serve(settings: Settings, *, runs_jobs: bool) -> None:
    from legato.server.premises import enter as enter_premises

    with enter_premises(settings) as sockets:
        from legato.server.serving import serve

        serve(settings, sockets, say=typer.echo, runs_jobs=runs_jobs, guests=find_guests(settings))


def find_guests(settings: Settings) -> list[Guest]:
    """Return the guests that the settings name."""
    brings = {"wmla": _bring_wmla, "elasticdl": _bring_elasticdl}
    return [brings[name](settings) for name in dict.fromkeys(settings.compat)]


def _bring_elasticdl(_: Settings) -> Guest:
    """Return a guest that answers nothing of its own: the platform runs its programs."""
    from starlette.applications import Starlette

    from legato.compat.elasticdl.framework import NAME, ElasticPrograms
    from legato.server.guests import Guest

    return Guest(name=NAME, prefixes=(), make=lambda _: Starlette(), frameworks=(ElasticPrograms(),))


def _bring_wmla(settings: Settings) -> Guest:
    from legato.compat.wmla.rest.definitions import make_frameworks
    from legato.compat.wmla.rest.guest import PREFIXES, House, make_guest
    from legato.server.guests import Guest

    house = House(
        data_root=str(settings.wmla_data_path),
        upload_max_bytes=settings.upload_max_bytes,
        upload_max_unpacked_bytes=settings.upload_max_unpacked_bytes,
        upload_max_ratio=settings.upload_max_ratio,
        upload_max_files=settings.upload_max_files,
    )
    frameworks = make_frameworks(house.data_root)
    return Guest(name="wmla", prefixes=PREFIXES, make=lambda inside: make_guest(inside, house), frameworks=frameworks)


def _read_settings(file: Path | None, said: dict[str, Any], other: list[str] | None) -> Settings:
    from legato.control.settings import read_settings

    return read_settings(file, _read_flags(said, other))


def _read_flags(said: dict[str, Any], other: list[str] | None) -> dict[str, Any]:
    flags = dict(said)
    for one in other or ():
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise UsageError(f"Cannot read the setting '{one}'. Write NAME=VALUE, such as --set stability_s=2.")
        if flags.get(name) is not None:
            raise UsageError(f"The setting {name} is said twice. Leave one of them out.")
        flags[name] = value
    return flags


def _describe(file: Path | None, said: dict[str, Any], other: list[str] | None) -> list[dict[str, Any]]:
    from legato.control.settings import find_origins
    from legato.server.routes.operating import describe_settings

    flags = _read_flags(said, other)
    origins = find_origins(file, flags)
    return [
        {"name": one.name, "value": one.value, "from": origins[one.name], "meaning": one.meaning}
        for one in describe_settings(_read_settings(file, said, other))
    ]


def _render_value(value: Any) -> str:
    if value is None:
        return "none"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
