"""Commands that run a server and show its settings. Only these load the platform, and only when called."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from legato.cli.entry import Entry, enter, make_group
from legato.cli.platform.connecting import open_client
from legato.cli.platform.login import CONFIG_ENTRIES
from legato.cli.platform.options import OutputOption, ServerOption
from legato.cli.terminal.output import Output, make_table, write
from legato.cli.terminal.table import Column
from legato.core.errors import SettingsError, UsageError

if TYPE_CHECKING:
    from legato.control.settings import Settings
    from legato.server.plugins import ServerPlugin

FileOption = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", metavar="FILE", help="TOML file with settings. [default: legato.toml in the home directory]"
    ),
]
HomeOption = Annotated[
    str | None,
    typer.Option(metavar="FOLDER", help="Directory with all files of the platform. [default: ~/.local/share/legato]"),
]
HostOption = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Address to listen on. [default: this machine only]")
]
PortOption = Annotated[str | None, typer.Option(metavar="PORT", help="Port to listen on; 0 for any free port.")]
SlotsOption = Annotated[str | None, typer.Option(metavar="NUMBER", help="Number of GPUs, or CPU slots, in the pool.")]
PolicyOption = Annotated[
    str | None,
    typer.Option(metavar="[fair|priority|fifo|throughput]", help="How to divide the GPUs among jobs. [default: fair]"),
]
CompatOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES", help="Interfaces of other systems: wmla, elasticdl, or none. [default: wmla,elasticdl]"
    ),
]
DatabaseOption = Annotated[str | None, typer.Option("--database-url", metavar="URL", help="URL of the database.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any other setting, see 'legato config show'. Repeatable."),
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
    """Run a platform on this machine: server, scheduler, and its GPUs. Ctrl-C stops the server; jobs keep running."""
    said = {"home": home, "host": host, "port": port, "slots": slots, "policy": policy}
    said |= {"database_url": database_url, "compat": compat}
    _serve(_read_settings(config, said, other), config, runs_jobs=True)


server = make_group(
    "server",
    "legato server --config /etc/legato.toml --api-only",
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
        bool, typer.Option("--api-only", help="Only answer requests; another server schedules the jobs.")
    ] = False,
) -> None:
    """Run a server, as 'legato up' does. Several servers can share one PostgreSQL database."""
    if context.invoked_subcommand is not None:
        return
    said = {"home": home, "host": host, "port": port, "slots": slots, "policy": policy}
    said |= {"database_url": database_url, "compat": compat}
    _serve(_read_settings(config, said, other), config, runs_jobs=not api_only)


def upgrade(
    config: FileOption = None, home: HomeOption = None, database_url: DatabaseOption = None, other: SetOption = None
) -> None:
    """Upgrade the tables of the store to this version. A server with SQLite does this automatically at its start."""
    from legato.server.serving import upgrade_store

    upgrade_store(_read_store_settings(config, home, database_url, other))
    typer.echo("The tables of the store are of this version.")


def downgrade(
    to: Annotated[
        str | None, typer.Option("--to", metavar="VERSION", help="Version of the tables. [default: the previous one]")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    config: FileOption = None,
    home: HomeOption = None,
    database_url: DatabaseOption = None,
    other: SetOption = None,
) -> None:
    """Downgrade the tables of the store to an older version. Stop all servers first; then install the older Legato."""
    from legato.server.serving import downgrade_store

    settings = _read_store_settings(config, home, database_url, other)
    if not yes:
        typer.confirm(
            "This deletes tables and columns that the older version does not know. Do you have a backup (legato server "
            "backup)? Continue?",
            abort=True,
        )
    before, now = downgrade_store(settings, to)
    typer.echo(
        f"The tables of the database have version {now} (before: {before}). Now install the Legato of that version: "
        "this one would upgrade them again."
    )


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write. It must not exist yet.")],
    config: FileOption = None,
    home: HomeOption = None,
    database_url: DatabaseOption = None,
    other: SetOption = None,
) -> None:
    """Write the whole platform into one file while it runs: database, code, jobs with their checkpoints, settings."""
    from legato.server.backups import write_backup

    settings = _read_store_settings(config, home, database_url, other)
    with _show_progress("backup") as tell:
        made = write_backup(settings, file, now=time.time(), report=tell)
    typer.echo(
        f"{file} contains {made.num_jobs} jobs and {made.num_files} files ({made.num_bytes / 2**20:,.1f} MiB). Protect "
        "it like the platform itself. It does not contain data sets, or checkpoints outside of the home."
    )
    if made.left_out:
        typer.echo(
            f"legato: warning: {len(made.left_out)} files or folders of jobs are not in it, because their paths are "
            f"too long; the first is {made.left_out[0][:200]!a}…",
            err=True,
        )


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The backup.")],
    home: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Home directory of the restored platform: new or empty.")
    ],
    config: FileOption = None,
    database_url: DatabaseOption = None,
    other: SetOption = None,
) -> None:
    """Restore a platform from a backup, on any machine and under any path. Jobs resume when you start the server."""
    from legato.server.restoring import restore_backup

    said = {"home": str(home), "database_url": database_url}

    def read(own: Path | None) -> Settings:
        return _read_settings(config or own, said, other)

    with _show_progress("restore") as tell:
        made = restore_backup(file, home, read, now=time.time(), report=tell)
    when = datetime.fromtimestamp(made.created_at).astimezone().isoformat(sep=" ", timespec="seconds")
    url = "" if database_url is None else f" --database-url {database_url}"
    if made.still_run:
        typer.echo(
            f"Warning: {len(made.still_run)} processes of the old platform's jobs still run on this machine: "
            f"{' '.join(map(str, made.still_run))}. End them before you start the server, or these jobs train twice.",
            err=True,
        )
    typer.echo(
        f"{home} is the platform of {when}, with {made.num_jobs} jobs, of which {made.num_going_on} resume when the "
        "server starts. Make sure that the old server and its jobs no longer run, then: "
        f"legato up --home {home}{url}"
    )


@contextlib.contextmanager
def _show_progress(name: str) -> Iterator[Callable[[int, int], None]]:
    """Show the progress on a terminal; show nothing elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(name, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def token(
    name: Annotated[str, typer.Option(metavar="NAME", help="A name that says what the token is for.")] = "recovery",
    config: FileOption = None,
    home: HomeOption = None,
    database_url: DatabaseOption = None,
    other: SetOption = None,
) -> None:
    """Add a token for the user 'admin', if the first one is lost. Prints the secret alone."""
    from legato.server.serving import make_admin_token

    typer.echo(make_admin_token(_read_store_settings(config, home, database_url, other), name))


enter(
    server,
    (
        Entry(
            "backup", backup, "legato server backup /backups/monday.legato", short="Back the platform up while it runs."
        ),
        Entry(
            "restore",
            restore,
            "legato server restore /backups/monday.legato --home /srv/legato",
            short="Restore a platform from a backup.",
        ),
        Entry(
            "upgrade",
            upgrade,
            "legato server upgrade --database-url postgresql://legato@db/legato",
            short="Upgrade the store to this version.",
        ),
        Entry(
            "downgrade",
            downgrade,
            "legato server downgrade --to 0004",
            short="Downgrade the store to an older version.",
        ),
        Entry(
            "token", token, "legato server token | legato login --token-stdin", short="Add a token for the first user."
        ),
    ),
)

# ---------------------------------------------------------------- settings

config = make_group("config", "legato config show")


@config.callback()
def describe_config() -> None:
    """Show the settings of a server, list the platforms that you are logged in to, or choose the current one."""


def show_config(
    config: FileOption = None,
    home: HomeOption = None,
    other: SetOption = None,
    output: OutputOption = Output.table,
    server: ServerOption = None,
) -> None:
    """Show the settings that a server started here would have, or with --server those of a running one."""
    if server is not None:
        if config is not None or home is not None or other:
            raise UsageError("--server cannot be combined with --config, --home or --set. Leave one of them out.")
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
ENTRIES: Final = (Entry("up", up, "legato up --slots 4"),)


def _serve(settings: Settings, config: Path | None, *, runs_jobs: bool) -> None:
    from legato.server.startup_checks import enter as enter_premises

    with enter_premises(settings) as sockets:
        from legato.server.serving import serve

        _note_config(settings.home_path, config)
        serve(
            settings,
            sockets,
            say=typer.echo,
            is_terminal=sys.stdout.isatty(),
            runs_jobs=runs_jobs,
            plugins=find_plugins(settings),
        )


def _note_config(home: Path, config: Path | None) -> None:
    """Write the settings file of this start into the home, for hints; warn if the last server had another one."""
    from legato.client.servers import LAST_CONFIG, find_start
    from legato.control.settings import FILE_NAME
    from legato.driver.journal import replace_file

    before = find_start(home)
    replace_file(home / LAST_CONFIG, b"" if config is None else str(config.absolute()).encode())
    if config is None and before != find_start(home) and not (home / FILE_NAME).exists():
        typer.echo(
            f"legato: the last server of this home read its settings from a file, and this one reads none. To use the "
            f"same settings, press Ctrl-C and type: {before}",
            err=True,
        )


def find_plugins(settings: Settings) -> list[ServerPlugin]:
    """Return the plugins that the settings name."""
    brings = {"wmla": _bring_wmla, "elasticdl": _bring_elasticdl}
    return [brings[name](settings) for name in dict.fromkeys(settings.compat)]


def _bring_elasticdl(_: Settings) -> ServerPlugin:
    """Return a plugin that handles no requests. It only adds the framework for programs of ElasticDL."""
    from starlette.applications import Starlette

    from legato.compat.elasticdl.framework import NAME, ElasticPrograms
    from legato.server.plugins import ServerPlugin

    return ServerPlugin(name=NAME, prefixes=(), make=lambda _: Starlette(), frameworks=(ElasticPrograms(),))


def _bring_wmla(settings: Settings) -> ServerPlugin:
    from legato.compat.wmla.rest.definitions import RUNTIMES, make_frameworks
    from legato.compat.wmla.rest.plugin import PREFIXES, PluginSettings, make_plugin
    from legato.server.plugins import ServerPlugin

    chosen = PluginSettings(
        data_root=str(settings.wmla_data_path),
        upload_max_bytes=settings.upload_max_bytes,
        upload_max_unpacked_bytes=settings.upload_max_unpacked_bytes,
        upload_max_ratio=settings.upload_max_ratio,
        upload_max_files=settings.upload_max_files,
        interpreters=tuple(settings.python_paths),
    )
    frameworks = make_frameworks(chosen.data_root)
    return ServerPlugin(
        name="wmla",
        prefixes=PREFIXES,
        make=lambda inside: make_plugin(inside, chosen),
        frameworks=frameworks,
        runtimes=RUNTIMES,
    )


def _read_settings(file: Path | None, said: dict[str, Any], other: list[str] | None) -> Settings:
    from legato.control.settings import read_settings

    try:
        return read_settings(file, _read_flags(said, other))
    except SettingsError as error:
        options = "|".join(name for name, value in said.items() if value is not None)
        told = re.sub(rf"(?<= )({options})(?= must )", lambda found: f"--{found[1].replace('_', '-')}", str(error))
        raise SettingsError(told if options else str(error)) from error


def _read_store_settings(
    file: Path | None, home: str | None, database_url: str | None, other: list[str] | None
) -> Settings:
    """Read the settings for a command on the store: its options are these four."""
    return _read_settings(file, {"home": home, "database_url": database_url}, other)


def _read_flags(said: dict[str, Any], other: list[str] | None) -> dict[str, Any]:
    flags = dict(said)
    for one in other or ():
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise UsageError(f"Cannot read the setting '{one}'. Write NAME=VALUE, such as --set stability_s=2.")
        if flags.get(name) is not None:
            raise UsageError(f"The setting {name} is given twice. Leave one of them out.")
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
