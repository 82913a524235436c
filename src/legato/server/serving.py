"""A server from its start to its end: the store, the control loop and the API in one process.

`serve` is what `legato up` and `legato server` call. Drivers and workers are its children in name only: they outlive
it, however it ends, and the next server adopts them.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import os
import secrets
import shlex
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import structlog
import uvicorn

import legato
from legato.client.servers import find_local_home
from legato.control.drivers.local import LocalDrivers
from legato.control.home_lock import claim_home
from legato.control.loop.loop import ControlLoop
from legato.control.loop.loop_stats import LoopStats
from legato.control.people import NewToken, TokenKind
from legato.control.roles import Asker, Role
from legato.control.settings import Settings
from legato.control.store import Loop, Store, migrate, open_store
from legato.control.store.database import Database
from legato.core.errors import LegatoError, StoreError, UsageError
from legato.driver.journal import replace_file
from legato.engines.cgroups import find_support, prepare_server
from legato.policy.snapshot import Decisions
from legato.server.app import make_app
from legato.server.http_protocol import limit_connections, make_protocol
from legato.server.isolation import JobUsers, check_isolation
from legato.server.local_login import LocalLogin, keep_local_login, write_private
from legato.server.log_lines import begin_log
from legato.server.machine import Declaration, find_slots, name_node
from legato.server.plugins import ServerPlugin
from legato.server.retention import keep_house
from legato.server.routes.session import LINK_S
from legato.server.services import CODE, JOBS, LoopHandle, NoLoop, Services, make_rules, make_services
from legato.server.startup_checks import allow_files, hold_home, is_loopback, tell_url
from legato.system.decoding import decode

_log = structlog.get_logger(__name__)

SERVER_FILE: Final = "server.json"
FIRST_FILE: Final = "first-login.txt"
_DAY_S: Final = 86_400.0
_NUM_READERS: Final = 4
_END_LIMIT_S: Final = 5
_IDLE_LIMIT_S: Final = 75
_ADMIN: Final = "admin"
_WARNING: Final = (
    "Warning: other machines can reach this server, and jobs run here as the user that runs it. Each user who may "
    "submit a job can read and change everything that this user can, including the database and the jobs of all users. "
    "Add only users whom you trust with that, and use TLS."
)

_Part = Callable[[], Coroutine[Any, Any, None]]  # runs until it is cancelled


class ServerFile(msgspec.Struct, frozen=True):
    """What is in ``server.json``, for programs on this machine: where the server answers, and its process."""

    url: str
    pid: int


def serve(
    settings: Settings,
    sockets: list[socket.socket],
    *,
    say: Callable[[str], None],
    is_terminal: bool = False,
    runs_jobs: bool = True,
    plugins: Sequence[ServerPlugin] = (),
) -> None:
    """Run a server until SIGTERM or SIGINT; a second SIGINT does not wait for open requests.

    The first start on a store without users makes the user ``admin``, and a token of it that is good for a day. At a
    terminal it is said; elsewhere, where what is said may be kept, it is in a file that the system user of the server
    alone can read. On the way out drivers and workers are left running.

    Args:
        settings: see `legato.control.settings`.
        sockets: as of `legato.server.startup_checks.enter`, which holds the directory too for as long as this takes.
        say: shows a line to the user who started it. Lines of the log go to standard error beside it.
        is_terminal: what is said is read by a person at a terminal, and kept nowhere.
        runs_jobs: offer the slots of this machine, and take part in the election of the one control loop. False: only
            answer requests, beside a server that does.
        plugins: who answer under paths of their own.

    Raises:
        UsageError: what the settings ask for is not possible: the slots, a store whose jobs are elsewhere. Nothing was
            started.
        StoreError: the store cannot be used. Nothing was started.
    """
    home = settings.home_path
    if runs_jobs:
        check_isolation(settings, is_open=not is_loopback(sockets))
    begin_log(settings)
    devices = find_slots(settings.slots) if runs_jobs else ()
    if runs_jobs:
        _check_limits(settings)
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(open_store(settings.store_url, request_limit_s=settings.request_limit_s))
        if runs_jobs:
            claim_home(store, home, time.time())
            if settings.store_url.startswith("sqlite:"):
                # Who had the lease is gone: this server alone has the directory, and the store is in it.
                store.loop.end_lease(time.time())
        url = tell_url(settings, sockets)
        stack.enter_context(_written(ServerFile(url, os.getpid()), settings))
        local = LocalLogin(store, home, url) if settings.local_login else None
        first = store.tokens.create_first(time.time())
        told = () if first is None else tuple(_tell_first(first, make_link(store, url, time.time())))
        if told and not is_terminal:
            write_private(home / FIRST_FILE, "\n".join((*told, "")))
            told = tuple(_tell_file(home / FIRST_FILE))
        if local is not None:
            _begin_local(local)
            stack.callback(lambda: local.end(time.time()))
        is_open = not is_loopback(sockets)
        for line in _greet(settings, url, devices, told, is_open=is_open, is_local=local is not None):
            say(line)
        asyncio.run(_run(settings, store, sockets, devices, plugins, local))
        say("Legato has stopped. Jobs keep training; the next start finds them.")


def _check_limits(settings: Settings) -> None:
    """Prepare the control groups by which jobs are limited, and say so where they cannot be."""
    prepare_server()
    support = find_support()
    if support.why_not:
        is_wanted = support.check(settings.limits) is not None
        say = _log.warning if is_wanted else _log.info
        say(
            "Legato cannot limit memory, CPU and processes of jobs on this machine: it refuses jobs that ask for a "
            "limit",
            can_limit=sorted(support.places),
            why=support.why_not,
        )


def upgrade_store(settings: Settings) -> None:
    """Bring the tables of the store to this version; for `legato server upgrade`.

    Raises:
        UsageError: the setting database_url cannot be used.
        StoreError: the store cannot be used, or its tables are of a newer version.
    """
    database = Database(settings.store_url)
    try:
        migrate.upgrade(database)
    finally:
        database.close()


def downgrade_store(settings: Settings, revision: str | None) -> tuple[str, str]:
    """Bring the tables of the store back to an older version; for `legato server downgrade`.

    Returns:
        The revision of the tables before, and now.

    Raises:
        UsageError: a server runs on the home or the store, or there is no such version.
        StoreError: the store cannot be used, or its tables are of another version.
    """
    is_sqlite = settings.store_url.startswith("sqlite:")
    with hold_home(settings.home_path, is_shared=False) if is_sqlite else contextlib.nullcontext():
        database = Database(settings.store_url)
        try:
            migrate.check(database)
            lease = None if is_sqlite else Loop(database).read_lease()
            if lease is not None and lease.expires_at > time.time():
                raise UsageError(
                    f"Cannot downgrade the store {database.name}: the server {lease.owner} runs on it. Stop it."
                )
            return migrate.downgrade(database, revision)
        finally:
            database.close()


def make_admin_token(settings: Settings, name: str) -> str:
    """Make a token of the user ``admin`` and return its secret; for who may read the store and has lost the first one.

    Args:
        settings: where the store is.
        name: of the token.

    Raises:
        UsageError: the name cannot be used, or the user is disabled.
        StoreError: the store cannot be used.
    """
    with open_store(settings.store_url) as store:
        now = time.time()
        first = store.tokens.create_first(now)
        # Not one of those that are counted: a user with too many must not be kept out.
        made = first or store.tokens.create(
            _ADMIN,
            name,
            Asker(_ADMIN, Role.ADMIN),
            now,
            expires_at=now + settings.token_days * _DAY_S,
            kind=TokenKind.LOCAL,
        )
        return made.secret


def make_link(store: Store, url: str, now: float) -> str:
    """Make a link that logs the user ``admin`` in, once and within an hour.

    Args:
        store: of the platform.
        url: of the server.
        now: seconds since 1970.
    """
    made = store.tokens.create_code(Asker(_ADMIN, Role.ADMIN), now, expires_at=now + LINK_S)
    # Behind '#': browsers send it to no server, so it is in no log.
    return f"{url}/#/welcome?code={made.code}"


# ---------------------------------------------------------------- inside


class _Web(uvicorn.Server):
    """Uvicorn without signal handlers: its caller stops it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _RunningLoop:
    """The control loop of this process; see `LoopHandle`."""

    starts_drivers = True

    def __init__(self, control: ControlLoop, owner: str, woken: asyncio.Event) -> None:
        self._control = control
        self._woken = woken
        self.owner = owner

    @property
    def decisions(self) -> Decisions | None:
        return self._control.decisions

    @property
    def stats(self) -> LoopStats:
        return self._control.stats

    def wake(self) -> None:
        self._woken.set()


async def _run(
    settings: Settings,
    store: Store,
    sockets: list[socket.socket],
    devices: Sequence[str],
    plugins: Sequence[ServerPlugin],
    local: LocalLogin | None,
) -> None:
    handle: LoopHandle = NoLoop()
    parts: dict[str, _Part] = {}
    async with contextlib.AsyncExitStack() as stack:
        followers = stack.enter_context(ThreadPoolExecutor(_NUM_READERS, "followers"))
        if devices:
            handle, parts["control loop"] = await stack.enter_async_context(_control_loop(settings, store, devices))
        services = make_services(store, settings, handle, followers, now=time.time)
        parts |= {"feed": services.feed.run, "keeping": functools.partial(keep_house, services)}
        if local is not None:
            parts["local login"] = functools.partial(keep_local_login, local, time.time())
        await _serve_until_stopped(_Web(_configure(services, settings, plugins)), sockets, services, parts)


@contextlib.asynccontextmanager
async def _control_loop(
    settings: Settings, store: Store, devices: Sequence[str]
) -> AsyncIterator[tuple[LoopHandle, _Part]]:
    """Make the control loop, and give its lease up at the end, so that another one need not wait."""
    home = settings.home_path
    node = name_node(home)
    drivers = LocalDrivers(
        home / JOBS,
        node=node,
        devices=devices,
        log_max_bytes=settings.log_max_bytes,
        limits=settings.limits,
        find_user=JobUsers(settings, store, time.time),
    )
    declaration = Declaration(store, node, devices)
    # A new name with each start: what an earlier life of this server wrote late is refused.
    owner = f"{node}-{os.getpid()}-{secrets.token_hex(4)}"
    thread = ThreadPoolExecutor(1, "control-loop")
    control = ControlLoop(
        store.loop,
        drivers,
        make_rules(settings),
        code=home / CODE,
        owner=owner,
        wall_clock=time.time,
        lease_s=settings.lease_s,
        on_lead=lambda lease: declaration.declare(lease, time.time()),
        # A thread of its own: the lease must not wait behind those who log in.
        in_thread=lambda call, *given: asyncio.get_running_loop().run_in_executor(
            thread, functools.partial(call, *given)
        ),
    )
    woken = asyncio.Event()
    try:
        yield _RunningLoop(control, owner, woken), functools.partial(control.run, settings.loop_interval_s, woken)
    finally:
        await drivers.close()
        # What is being written is written to its end first.
        await asyncio.to_thread(thread.shutdown)
        with contextlib.suppress(StoreError):
            lease = store.loop.read_lease()
            if lease is not None and lease.owner == owner:
                store.loop.give_up_lease(lease, time.time())


async def _serve_until_stopped(
    web: uvicorn.Server, sockets: list[socket.socket], services: Services, parts: Mapping[str, _Part]
) -> None:
    running = asyncio.get_running_loop()
    endings: set[asyncio.Task[None]] = set()

    def stop() -> None:
        web.force_exit |= web.should_exit
        web.should_exit = True
        # Streams end by themselves; else the end would wait for them.
        endings.add(asyncio.create_task(services.feed.close()))

    def note_end(task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            _log.critical(
                "a part of the server has failed; the server stops", part=task.get_name(), exc_info=task.exception()
            )
            stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        running.add_signal_handler(number, stop)
    # What is there by now stays: the collector of cycles need not look at it again and again while it answers.
    gc.collect()
    gc.freeze()
    tasks = [asyncio.create_task(part(), name=name) for name, part in parts.items()]
    for task in tasks:
        task.add_done_callback(note_end)
    try:
        await web.serve(sockets=sockets)
    finally:
        for task in tasks:
            task.remove_done_callback(note_end)
            task.cancel()
        await asyncio.gather(*tasks, *endings, return_exceptions=True)
        for number in (signal.SIGTERM, signal.SIGINT):
            running.remove_signal_handler(number)


def _configure(services: Services, settings: Settings, plugins: Sequence[ServerPlugin]) -> uvicorn.Config:
    return uvicorn.Config(
        make_app(services, plugins),
        http=cast("Any", make_protocol(limit_connections(settings, allow_files()))),
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        timeout_keep_alive=_IDLE_LIMIT_S,
        timeout_graceful_shutdown=_END_LIMIT_S,
    )


def _begin_local(local: LocalLogin) -> None:
    try:
        local.renew(time.time())
    except (LegatoError, OSError) as error:
        # Not without it: others log in as before.
        _log.warning("the server could not log its own system user in on this machine", error=str(error))


def _tell_first(first: NewToken, link: str) -> Iterator[str]:
    yield "First start. The platform has one user, 'admin'. Its token is valid for a day and is shown only now:"
    yield f"  {first.secret}"
    yield "This link logs a browser in to the web console, once and within an hour ('legato console' makes more):"
    yield f"  {link}"


def _tell_file(file: Path) -> Iterator[str]:
    yield f"First start. The platform has one user, 'admin'. A token for a day and a link are in '{file}', which only"
    yield "this system user can read. Delete it when you have logged in, and set a password: legato users password"


def _greet(
    settings: Settings,
    url: str,
    devices: Sequence[str],
    first: Sequence[str] = (),
    *,
    is_open: bool = False,
    is_local: bool = False,
) -> Iterator[str]:
    slots = f"{len(devices)} slots ({', '.join(sorted(set(devices)))})" if devices else "no slots"
    yield f"Legato {legato.__version__} answers at {url}, with {slots}; all its files are in {settings.home_path}"
    yield from first
    if devices and is_open and settings.run_jobs_as == "server":
        yield _WARNING
    if is_local:
        if settings.home_path != find_local_home():
            yield f"Commands find this home by a variable: export LEGATO_HOME={shlex.quote(str(settings.home_path))}"
        yield "You are logged in on this machine: 'legato ps' lists jobs, 'legato console' opens the web console."
    yield f"Log in with: legato login {url}"


@contextlib.contextmanager
def _written(told: ServerFile, settings: Settings) -> Iterator[None]:
    file = settings.home_path / SERVER_FILE
    replace_file(file, msgspec.json.encode(told))
    try:
        yield
    finally:
        # Of several servers on one directory the one that started last is reported; it may still run.
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            if decode(file.read_bytes(), ServerFile) == told:
                file.unlink()
