"""Runs a server: the store, the control loop and the REST interface in one process.

`legato up` and `legato server` call `serve`. The server starts drivers and workers, but they survive its end, also a
crash, and the next server adopts them.
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
import ssl
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

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
from legato.driver.journal import list_platform_jobs, replace_file
from legato.engines.cgroups import find_support, prepare_server
from legato.policy.snapshot import Decisions, Snapshot
from legato.server.app import make_app
from legato.server.clusters import make_pools
from legato.server.http_protocol import limit_connections, make_protocol
from legato.server.isolation import JobUsers, check_isolation
from legato.server.local_login import FILE as LOCAL_FILE
from legato.server.local_login import LocalLogin, keep_local_login, write_private
from legato.server.log_lines import begin_log
from legato.server.machine import (
    Declaration,
    DoorFinder,
    find_own_address,
    find_slots,
    list_names,
    name_node,
    name_shared_node,
)
from legato.server.node_samples import measure_own
from legato.server.own_machine import OwnMachine
from legato.server.plugins import ServerPlugin
from legato.server.retention import run_retention
from legato.server.routes.session import LINK_S
from legato.server.services import CODE, JOBS, LoopHandle, NoLoop, Services, make_rules, make_services
from legato.server.startup_checks import allow_files, find_url, hold_home, is_loopback
from legato.server.sweeps import Sweeper
from legato.server.tls import ServerTls, choose_public_url
from legato.server.webhooks import WebhookLoop
from legato.system.decoding import decode
from legato.system.hosts import find_own_file, find_this_machine

_log = structlog.get_logger(__name__)

SERVER_FILE: Final = "server.json"
FIRST_FILE: Final = "first-login.txt"
_DAY_S: Final = 86_400.0
_NUM_READERS: Final = 4
_END_LIMIT_S: Final = 5
_IDLE_LIMIT_S: Final = 75
_NUM_NEW_OBJECTS: Final = 50_000  # until the garbage collector examines them
_ADMIN: Final = "admin"
_WARNING: Final = (
    "Warning: other machines can reach this server, and jobs run here as the user that runs it. Each user who may "
    "submit a job can read and change everything that this user can, including the database and the jobs of all users. "
    "Add only users whom you trust with that"
)
_USE_TLS: Final = ", and use TLS (tls=own)"

_Part = Callable[[], Coroutine[Any, Any, None]]  # runs until it is cancelled


class ServerFile(msgspec.Struct, frozen=True):
    """The content of ``server.json``, for programs on this machine: the URL of the server, and its process id."""

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

    The first start on a store without users creates the user ``admin`` and a token that is valid for a day. At a
    terminal the server shows the token. Otherwise its output may be stored, so it writes the token into a file that
    only the server's system user can read. When the server stops, drivers and workers keep running.

    Args:
        settings: see `legato.control.settings`.
        sockets: those of `legato.server.startup_checks.enter`, which must also hold the home directory meanwhile.
        say: shows a line to the user who started the server. Lines of the log go to standard error.
        is_terminal: a person at a terminal reads these lines, and they are stored nowhere.
        runs_jobs: offer the slots of this machine, and take part in the election of the one control loop. False: only
            answer requests; another server runs jobs.
        plugins: the plugins, each of which answers requests under its own paths.

    Raises:
        UsageError: the settings cannot be fulfilled: the machine does not have the slots, the store belongs to another
            home, or another machine has this one's name. Nothing was started.
        StoreError: the store cannot be used. Nothing was started.
    """
    home = settings.home_path
    if runs_jobs:
        check_isolation(settings, is_open=not is_loopback(sockets))
    begin_log(settings)
    devices = find_slots(settings.slots) if runs_jobs else ()
    if runs_jobs:
        _check_limits(settings)
    tls = ServerTls(settings, time.time()) if settings.has_tls else None
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(open_store(settings.store_url, request_limit_s=settings.request_limit_s))
        claim_home(store, home, time.time())
        here: _Here | None = None
        if runs_jobs:
            here = _find_here(settings, store, devices, is_open=not is_loopback(sockets))
        if runs_jobs and settings.store_url.startswith("sqlite:"):
            # The server that had the lease is gone, because this server has locked the directory with the store.
            store.loop.end_lease(time.time())
        url = find_url(settings, sockets)
        stack.enter_context(_written(ServerFile(url, os.getpid()), _place_own(settings, SERVER_FILE)))
        ca = "" if tls is None else tls.authority
        local = LocalLogin(store, _place_own(settings, LOCAL_FILE), url, ca) if settings.local_login else None
        first = store.tokens.create_first(time.time())
        welcome = () if first is None else tuple(_welcome(first, make_link(store, url, time.time())))
        if welcome and not is_terminal:
            write_private(home / FIRST_FILE, "\n".join((*welcome, "")))
            welcome = tuple(_welcome_by_file(home / FIRST_FILE))
        if local is not None:
            _begin_local(local)
            stack.callback(lambda: local.end(time.time()))
        is_open = not is_loopback(sockets)
        for line in _greet(settings, url, devices, welcome, is_open=is_open, is_local=local is not None, tls=tls):
            say(line)
        asyncio.run(_run(settings, store, sockets, here, plugins, local, tls))
        say(_describe_left_jobs(sum(job.is_locked() for job in list_platform_jobs(settings.home_path))))


def _place_own(settings: Settings, name: str) -> Path:
    """Return the path of a file of this server; with PostgreSQL, servers of other machines may share the home."""
    if settings.store_url.startswith("sqlite:"):
        return settings.home_path / name
    file = find_own_file(settings.home_path, name)
    file.parent.mkdir(mode=0o700, exist_ok=True)
    return file


class _Here(NamedTuple):
    """The machine of a server that runs jobs. ``own`` keeps it in the pool of several servers; None: there is one."""

    node: str
    devices: Sequence[str]
    own: OwnMachine | None


def _find_here(settings: Settings, store: Store, devices: Sequence[str], *, is_open: bool) -> _Here:
    """Return what the pool has to know of this machine; with PostgreSQL, its server may be one of several machines'.

    Raises:
        UsageError: another machine has the same name; or servers of other machines use the home, and this one cannot
            take part.
    """
    home = settings.home_path
    if settings.store_url.startswith("sqlite:"):
        return _Here(name_node(home), devices, None)
    machine = find_this_machine()
    node = name_shared_node(home, machine)
    if is_open and settings.run_jobs_as == "server":
        find_address = functools.partial(find_own_address, settings, store, node)
        own = OwnMachine(store, home / JOBS, node, machine, devices, find_address=find_address)
        own.join()
        return _Here(node, devices, own)
    others = {name: file for name, file in list_names(home).items() if name != node}
    if others:
        why = (
            "other machines cannot reach it, because it listens on the loopback address: change the setting host"
            if not is_open
            else "jobs run as other system users (the setting run_jobs_as), which several machines cannot do yet"
        )
        raise UsageError(
            f"Cannot run jobs here: servers on {', '.join(others)} use '{home}' too, so each must be able to take over "
            f"the jobs of the others. But {why}; or run this server with --api-only. If these machines have no server "
            f"any more, delete {' and '.join(map(str, others.values()))}."
        )
    return _Here(node, devices, None)


def _check_limits(settings: Settings) -> None:
    """Prepare the control groups that limit jobs. If this machine does not support some limits, log that."""
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
    """Upgrade the tables of the store to this version, for `legato server upgrade`.

    Raises:
        UsageError: the setting database_url cannot be used.
        StoreError: the store cannot be used, or its tables are those of a newer version.
    """
    database = Database(settings.store_url)
    try:
        migrate.upgrade(database)
    finally:
        database.close()


def downgrade_store(settings: Settings, revision: str | None) -> tuple[str, str]:
    """Downgrade the tables of the store to an older version, for `legato server downgrade`.

    Returns:
        The revision of the tables before and after.

    Raises:
        UsageError: a server runs on the home or the store, or there is no such version.
        StoreError: the store cannot be used, or its tables are those of another version.
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
    """Create a token of the user ``admin`` and return its secret, for operators who have lost the first token.

    Args:
        settings: the settings with the URL of the store, which the operator must be able to use.
        name: of the token.

    Raises:
        UsageError: the name cannot be used, or the user is disabled.
        StoreError: the store cannot be used.
    """
    with open_store(settings.store_url) as store:
        now = time.time()
        first = store.tokens.create_first(now)
        # Tokens of this kind do not count for the maximum of a user, so that an admin who has reached it gets one.
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
    """Return a link that logs the user ``admin`` in, once and within an hour.

    Args:
        store: the store of the platform.
        url: of the server.
        now: seconds since 1970.
    """
    made = store.tokens.create_code(Asker(_ADMIN, Role.ADMIN), now, expires_at=now + LINK_S)
    # After '#', because browsers do not send this part to servers, so it is in no log.
    return f"{url}/#/welcome?code={made.code}"


# ---------------------------------------------------------------- inside


class _Web(uvicorn.Server):
    """Uvicorn without its signal handlers, because `_serve_until_stopped` handles signals."""

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
    def snapshot(self) -> Snapshot | None:
        return self._control.snapshot

    @property
    def stats(self) -> LoopStats:
        return self._control.stats

    def wake(self) -> None:
        self._woken.set()


async def _run(
    settings: Settings,
    store: Store,
    sockets: list[socket.socket],
    here: _Here | None,
    plugins: Sequence[ServerPlugin],
    local: LocalLogin | None,
    tls: ServerTls | None,
) -> None:
    handle: LoopHandle = NoLoop()
    parts: dict[str, _Part] = {}
    async with contextlib.AsyncExitStack() as stack:
        followers = stack.enter_context(ThreadPoolExecutor(_NUM_READERS, "followers"))
        if here is not None:
            handle, parts["control loop"] = await stack.enter_async_context(_control_loop(settings, store, here))
            if here.own is not None:
                parts["own machine"] = here.own.run
        node = "" if here is None else here.node
        ca = tls.authority if tls is not None and tls.is_own else ""
        own_url = find_url(settings, sockets)
        services = make_services(
            store,
            settings,
            handle,
            followers,
            now=time.time,
            node=node,
            ca=ca,
            url=settings.public_url or choose_public_url(settings, own_url),
        )
        if here is not None:  # a server that never leads may lack what the clusters need, such as credentials
            pools = make_pools(
                settings,
                store,
                own_url,
                ca,
                read_snapshot=lambda: handle.snapshot,
                leads=services.leads,
                now=time.time,
            )
            parts |= {f"cluster {name}": pool.run for name, pool in pools.items()}
            parts["sweeps"] = Sweeper(services).run
            parts["webhooks"] = WebhookLoop(services).run
        if here is not None:
            parts["machine metrics"] = functools.partial(
                measure_own, services.node_samples, node, here.devices, services.now
            )
        parts |= {"feed": services.feed.run, "retention": functools.partial(run_retention, services)}
        if local is not None:
            parts["local login"] = functools.partial(keep_local_login, local, time.time())
        if tls is not None:
            parts["certificates"] = tls.keep_fresh
        web = _Web(_configure(services, settings, plugins, None if tls is None else tls.context))
        await _serve_until_stopped(web, sockets, services, parts)


@contextlib.asynccontextmanager
async def _control_loop(settings: Settings, store: Store, here: _Here) -> AsyncIterator[tuple[LoopHandle, _Part]]:
    """Make the control loop. At the end, give up its lease, so that another server can take it at once."""
    home, node, devices = settings.home_path, here.node, here.devices
    declaration = Declaration(store, node, devices)
    drivers = LocalDrivers(
        home / JOBS,
        node=node,
        devices=devices,
        log_max_bytes=settings.log_max_bytes,
        limits=settings.limits,
        find_user=JobUsers(settings, store, time.time),
        find_door=DoorFinder(
            settings,
            declaration,
            functools.partial(find_own_address, settings, store, node),
            is_shared=here.own is not None,
        ),
    )
    # A new name at each start, so that the store refuses late writes of an earlier process of this server.
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
        on_round=lambda lease: declaration.refresh(lease, time.time()),
        expects_agents=bool(settings.clusters),
        # In its own thread, so that the renewal of the lease does not wait for password hashes.
        in_thread=lambda call, *given: asyncio.get_running_loop().run_in_executor(
            thread, functools.partial(call, *given)
        ),
    )
    woken = asyncio.Event()
    try:
        yield _RunningLoop(control, owner, woken), functools.partial(control.run, settings.loop_interval_s, woken)
    finally:
        await drivers.close()
        # First wait until the current write has ended.
        await asyncio.to_thread(thread.shutdown)
        with contextlib.suppress(StoreError):
            lease = store.loop.read_lease()
            if lease is not None and lease.owner == owner:
                store.loop.give_up_lease(lease, time.time())


async def _serve_until_stopped(
    web: uvicorn.Server, sockets: list[socket.socket], services: Services, parts: Mapping[str, _Part]
) -> None:
    running = asyncio.get_running_loop()

    def stop() -> None:
        web.force_exit |= web.should_exit
        web.should_exit = True
        # Streams must end first, because the server waits for open requests.
        services.feed.close()

    def note_end(task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            _log.critical(
                "a part of the server has failed; the server stops", part=task.get_name(), exc_info=task.exception()
            )
            stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        running.add_signal_handler(number, stop)
    _collect_rarely()
    tasks = [asyncio.create_task(part(), name=name) for name, part in parts.items()]
    for task in tasks:
        task.add_done_callback(note_end)
    try:
        await web.serve(sockets=sockets)
    finally:
        for task in tasks:
            task.remove_done_callback(note_end)
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for number in (signal.SIGTERM, signal.SIGINT):
            running.remove_signal_handler(number)


def _collect_rarely() -> None:
    """Let the garbage collector work rarely, but then thoroughly."""
    # Objects that exist now stay until the end, so the garbage collector need not examine them again.
    gc.collect()
    gc.freeze()
    # A round of the control loop makes several objects for each job and needs them all. With the usual threshold, the
    # collector would examine them again and again, for a fifth of the round's time. The zeros make every second
    # collection one of older objects too: with the usual tens, closed streams with TLS, of which each leaves 50 KiB in
    # cycles, would fill gigabytes until then.
    gc.set_threshold(_NUM_NEW_OBJECTS, 0, 0)


def _configure(
    services: Services, settings: Settings, plugins: Sequence[ServerPlugin], tls: ssl.SSLContext | None
) -> uvicorn.Config:
    return uvicorn.Config(
        make_app(services, plugins),
        http=cast("Any", make_protocol(limit_connections(settings, allow_files()), tls)),
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
        # The server starts nevertheless, because users can log in otherwise.
        _log.warning("the server could not log its own system user in on this machine", error=str(error))


def _welcome(first: NewToken, link: str) -> Iterator[str]:
    yield "First start. The platform has one user, 'admin'. Its token is valid for a day and is shown only now:"
    yield f"  {first.secret}"
    yield "This link logs a browser in to the web console, once and within an hour ('legato console' makes more):"
    yield f"  {link}"


def _welcome_by_file(file: Path) -> Iterator[str]:
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
    tls: ServerTls | None = None,
) -> Iterator[str]:
    slots = f"{len(devices)} slots ({', '.join(sorted(set(devices)))})" if devices else "no slots"
    yield f"Legato {legato.__version__} answers at {url}, with {slots}; all its files are in {settings.home_path}"
    yield from first
    if devices and is_open and settings.run_jobs_as == "server":
        yield f"{_WARNING}{_USE_TLS if tls is None else ''}."
    login = f"legato login {url if tls is None else choose_public_url(settings, url)}"
    if tls is not None and tls.is_own:
        login = f"{login} --ca {tls.pin}"
    if is_local:
        if settings.home_path != find_local_home():
            yield f"Commands find this home by a variable: export LEGATO_HOME={shlex.quote(str(settings.home_path))}"
        yield "You are logged in on this machine: 'legato ps' lists jobs, 'legato console' opens the web console."
        yield f"Other users log in with: {login}"
    else:
        yield f"Log in with: {login}"


def _describe_left_jobs(num_jobs: int) -> str:
    """Say that the server has stopped, and whether jobs run without it.

    >>> _describe_left_jobs(0), _describe_left_jobs(1)
    ('Legato has stopped. No job is running.', 'Legato has stopped. 1 job keeps running; the next start finds it.')
    """
    if not num_jobs:
        return "Legato has stopped. No job is running."
    jobs = (
        "1 job keeps running; the next start finds it"
        if num_jobs == 1
        else f"{num_jobs} jobs keep running; the next start finds them"
    )
    return f"Legato has stopped. {jobs}."


@contextlib.contextmanager
def _written(content: ServerFile, file: Path) -> Iterator[None]:
    replace_file(file, msgspec.json.encode(content))
    try:
        yield
    finally:
        # If several servers share the directory, the file is that of the one that started last, which may still run.
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            if decode(file.read_bytes(), ServerFile) == content:
                file.unlink()
