"""The agent of a machine in a pool: reports to the server, and starts an agent for each job that gets slots here.

It dials out to the server. It starts no worker itself: the agents of the jobs do, each connected to the driver of its
job. So jobs train on while the server, or this process, is away.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import logging
import os
import secrets
import shutil
import socket
import struct
import subprocess
import time
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import msgspec

from legato.agent.code_cache import CodeCache, check_answer
from legato.agent.leftovers import POOL_LOCK, SCRATCH, move_own, remove_dead, sign, take_turn
from legato.agent.orders import SERVER, AgentOrder, find_agent_directory, read_agent_order
from legato.agent.process import check_disk, is_running, start_agent
from legato.agent.refusing import refuse_job
from legato.agent.samples import Samples
from legato.agent.starting import find_address
from legato.core.agent_messages import AGENT_PROTOCOL
from legato.core.errors import LegatoError, Unauthenticated, UsageError
from legato.core.slots import check_node
from legato.core.version import __version__
from legato.driver.journal import replace_file
from legato.engines.gpus import find_devices, find_gpu_types
from legato.engines.machine_kind import find_kind
from legato.engines.system_meter import SystemMeter
from legato.system.decoding import decode
from legato.system.plain_files import delete_tree
from legato.system.tls import (
    explain_tls_error,
    fetch_authority,
    find_tls_error,
    fingerprint,
    is_about_name,
    is_loopback,
    is_without_tls,
    keep_first,
    make_client_context,
)

_log = logging.getLogger(__name__)

_API: Final = "/api/v1"
_STATE: Final = ".pool.json"
_WORK: Final = "work"
_ROOT: Final = 0
_JOIN_PREFIX: Final = "lgj_"
_PLAIN: Final = "plain"  # instead of a fingerprint in a join token: the operator allows machines without TLS
_ANSWER_LIMIT_S: Final = 10.0
_ONE_OF_SEVERAL_LIMIT_S: Final = 3.0
"""Of one of several servers: the next one is asked before jobs miss this machine."""
_NEXT_S: Final = 0.1
_MAX_RETRY_S: Final = 5.0
_KEEP_S: Final = 7 * 86_400.0
_JOBS_LIMIT_S: Final = 240.0
_JOBS_POLL_S: Final = 0.5
_MAX_SCRATCH_PATH: Final = 70
"""Bytes. Loader processes have sockets in it, whose paths may have 107 bytes; their names need 33."""


class PoolState(msgspec.Struct):
    """The content of ``.pool.json``.

    Args:
        url: of a server, of which the secret is.
        identity: of this machine's agent; no other agent has it.
        secret: with which the agent authenticates. "": it has not joined.
        ca: certificate (PEM) of the server's own authority. "": the system's authorities verify the server.
        labels: with which the agent was last started.
        network: too. "": none.
    """

    url: str = ""
    identity: str = msgspec.field(default_factory=lambda: secrets.token_hex(16))
    secret: str = ""
    ca: str = ""
    labels: dict[str, str] = {}
    network: str = ""


class _Joined(msgspec.Struct):
    secret: str


class _Orders(msgspec.Struct):
    orders: tuple[AgentOrder, ...]
    beat_every_s: float
    leave: bool = False
    takes_metrics: bool = False  # of an earlier release


class PoolAgent:
    """Keeps a machine in a pool.

    Args:
        url: of the server; of several servers of one pool, separated by commas. The agent uses one as long as it
            answers, and then the next one.
        node: name of this machine in the pool.
        token: a join token. None: the machine has joined before.
        num_slots: None: one per GPU, or one per CPU core if there is no GPU.
        labels: that jobs may ask for. None: those of the last start.
        network: in which other machines reach this one; "": that of the way to the server. None: as at the last start.
        home: folder for the files; None: as `find_agent_directory` chooses it.
        is_pilot: a cluster has started it, and kills all processes of the machine when this one ends. So it waits for
            the agents of jobs.
        say: shows a line to the user who started it.
    """

    def __init__(
        self,
        url: str,
        node: str,
        *,
        token: str | None = None,
        num_slots: int | None = None,
        labels: Mapping[str, str] | None = None,
        network: str | None = None,
        home: Path | None = None,
        is_pilot: bool = False,
        say: Callable[[str], None],
    ) -> None:
        self._urls = tuple(dict.fromkeys(check_url(each) for each in url.split(",")))
        self._url = self._urls[0]
        self._node = check_node(node)
        self._token = None if token is None else _check_token(token).partition(".")[0]
        self._pin = (token or "").partition(".")[2]
        self._labels = None if labels is None else dict(labels)
        self._network = network
        self._home = home
        self._is_pilot = is_pilot
        self._folder = find_agent_directory(node, "", home)
        self._codes = CodeCache(self._folder)
        self._say = say
        self._devices = _find_slots(num_slots)
        self._kind = find_kind()
        self._address = ""
        self._state = PoolState()
        self._applying: dict[str, asyncio.Task[None]] = {}
        self._removing: asyncio.Task[None] | None = None
        self._samples = Samples()
        self._takes_metrics = False
        self._is_leaving = self._has_told_users = False
        self._changed = asyncio.Event()
        self._outage: str | None = None

    def leave(self) -> None:
        """Give the machine's slots back: jobs shrink off it first. A second call ends `run` at once."""
        if self._is_leaving:
            raise SystemExit(130)
        self.begin_leave("")

    def begin_leave(self, why: str) -> None:
        """Give the machine's slots back. ``why``: a sentence for the log; repeated calls do nothing."""
        if self._is_leaving:
            return
        if why:
            self._say(why)
        self._is_leaving = True
        self._changed.set()

    async def run(self) -> None:
        """Keep the machine in the pool until `leave` is called and no job uses it.

        Raises:
            UsageError: the machine cannot join.
        """
        try:
            if self._is_pilot:
                with take_turn(self._folder.parent):
                    move_own(self._folder)
                    lock = self._lock()
                    sign(lock)
            else:
                lock = self._lock()
        except OSError as error:
            raise UsageError(
                f"Cannot write into {self._folder}: {error.strerror}. Choose another folder with --home."
            ) from error
        try:
            self._state = self._read_state()
            self._keep_options()
            if not self._state.secret:
                check_disk(self._folder)  # jobs may use a machine that has joined before: it goes on as long as it can
            self._check_scheme()
            measuring = asyncio.create_task(self._measure_forever())
            try:
                async with contextlib.AsyncExitStack() as stack:
                    await self._run(stack)
            finally:
                measuring.cancel()
        finally:
            tasks = [*self._applying.values(), *([] if self._removing is None else [self._removing])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            os.close(lock)

    async def _measure_forever(self) -> None:
        """Measure this machine. Reports never wait for it."""
        meter = SystemMeter()
        await self._samples.measure_forever(lambda: asyncio.to_thread(meter.measure, {}, self._devices))

    async def _run(self, stack: contextlib.AsyncExitStack) -> None:
        http: httpx.AsyncClient | None = None
        wait_s = 1.0
        num_failed = 0
        has_joined = False
        while True:
            self._changed.clear()
            try:
                if http is None:
                    http = await stack.enter_async_context(await self._make_http())
                http.base_url = httpx.URL(f"{self._url}{_API}")
                await self._find_address(http)
                if not self._state.secret:
                    await self._join(http)
                answer = await self._report(http)
            except Unauthenticated:
                raise
            except (httpx.HTTPError, msgspec.MsgspecError, OSError, UsageError) as error:
                if isinstance(error, UsageError) and not has_joined:
                    raise
                # A proxy, or another program at the address, may answer anything while the server is away.
                if self._is_leaving and not self._state.secret:
                    return  # the machine has never been in the pool
                self._note_failure(error)
                num_failed += 1
                self._url = self._urls[(self._urls.index(self._url) + 1) % len(self._urls)]
                self._takes_metrics = False  # the next server may be of an earlier release
                wait_s = _NEXT_S if num_failed % len(self._urls) else min(2 * wait_s, _MAX_RETRY_S)
            else:
                num_failed = 0
                if not has_joined or self._outage is not None:
                    has_joined, self._outage = True, None
                    self._say(
                        f"This machine is node {self._node} of the pool at {self._url}, with "
                        f"{self._describe_offer()}. Its address for other machines is {self._address}."
                    )
                wait_s = answer.beat_every_s
                if await self._may_end(answer):
                    return
                self._apply_all(http, answer.orders)
                self._begin_removal(answer.orders)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()

    async def _may_end(self, answer: _Orders) -> bool:
        """Take what the server answers about the end of this agent; returns whether it can end now."""
        if self._is_leaving and not answer.orders:
            self._say("No job uses this machine any more.")
            if self._is_pilot:
                await self._wait_for_jobs()
            return True
        if self._is_leaving and not self._has_told_users:
            self._has_told_users = True
            hint = "" if self._is_pilot else " Press Ctrl-C again to end at once; workers here then train on."
            self._say(f"{_count_users(len(answer.orders))} off it.{hint}")
        if answer.leave:
            self.begin_leave("The server lets this machine go.")
        return False

    async def _wait_for_jobs(self) -> None:
        """Wait until the agents of jobs have ended, which still send files to their drivers, at most some minutes."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_JOBS_LIMIT_S):
                while await asyncio.to_thread(self._has_jobs):  # noqa: ASYNC110 -- other processes
                    await asyncio.sleep(_JOBS_POLL_S)

    def _has_jobs(self) -> bool:
        return any(path.is_dir() and is_running(path) for path in self._list())

    def _note_failure(self, error: Exception) -> None:
        """Say why the server cannot be used now. Raises UsageError if the machine cannot join it."""
        distrust = self._describe_distrust(error)
        if distrust is not None and not self._state.secret:
            raise UsageError(f"Cannot join the pool at {self._url}: {distrust}") from error
        failure = "refuses this agent" if isinstance(error, UsageError) else "cannot be reached"
        self._note_outage(f"{failure}: {distrust or _explain_outage(error, self._host)}".rstrip("."))

    def _note_outage(self, reason: str) -> None:
        if reason != self._outage:
            self._outage = reason
            then = "tries again" if len(self._urls) == 1 else "tries the next one"
            trains_on = "Jobs train on; this" if self._state.secret else "This"
            self._say(f"The server {self._url} {reason}. {trains_on} agent {then}.")

    @property
    def _host(self) -> str:
        return urlsplit(self._url).hostname or ""

    # ------------------------------------------------------------ TLS

    def _check_scheme(self) -> None:
        """Raise UsageError if secrets would cross a network unencrypted against the will of the operator."""
        is_plain = urlsplit(self._url).scheme == "http"
        if len({urlsplit(url).scheme for url in self._urls}) > 1:
            raise UsageError(
                "Cannot use servers with and without TLS together. Write https:// for all URLs of --connect."
            )
        if self._pin not in ("", _PLAIN) and is_plain:
            raise UsageError(
                f"Cannot join the pool at {self._url}: the server of this join token speaks TLS. Write --connect "
                f"https:{self._url.partition(':')[2]}"
            )
        is_here = all(is_loopback(urlsplit(url).hostname or "") for url in self._urls)
        if is_plain and self._token is not None and self._pin != _PLAIN and not is_here:
            raise UsageError(
                f"Cannot join the pool at {self._url}: without TLS, others in the network could read the join token "
                "and the secrets of jobs. Set tls=own on the server, make a new join token, and connect to https://. "
                "On a network that you trust, set allow_plain_agents=true on the server instead, and make a new token."
            )

    async def _make_http(self) -> httpx.AsyncClient:
        """Return the client of the server. If the join token has a fingerprint, it trusts only this authority.

        Raises:
            UsageError: the server does not show that authority.
            OSError: the server cannot be reached.
        """
        if self._token is not None and self._pin != (fingerprint(self._state.ca) if self._state.ca else ""):
            self._state.ca = await asyncio.to_thread(self._fetch_authority)
            if self._state.secret:
                self._write_state()
        is_plain = urlsplit(self._url).scheme == "http"
        return httpx.AsyncClient(
            timeout=_ANSWER_LIMIT_S if len(self._urls) == 1 else _ONE_OF_SEVERAL_LIMIT_S,
            trust_env=False,
            verify=False if is_plain else await asyncio.to_thread(make_client_context, self._state.ca),
        )

    def _fetch_authority(self) -> str:
        if self._pin in ("", _PLAIN):
            return ""
        found = fetch_authority(self._url)
        if found is None or fingerprint(found) != self._pin:
            raise UsageError(
                f"Cannot join the pool at {self._url}: the server there does not have the certificate authority of the "
                f"join token, whose SHA-256 is {self._pin}. Another program may answer at this address: nothing was "
                "sent to it. If the server has a new authority, make a new join token."
            )
        return found

    def _describe_distrust(self, error: Exception) -> str | None:
        """Return why the server cannot be trusted, as sentences; None: the error has another cause."""
        found = find_tls_error(error)
        if found is None:
            return None
        if is_about_name(found):
            return f"{explain_tls_error(found)}. Use another name of the server, or add this one to its allowed_hosts."
        if is_without_tls(found) and not self._state.ca and self._pin in ("", _PLAIN):
            return (
                f"{explain_tls_error(found)}. Correct the port in --connect, or write http:// if the server has no TLS."
            )
        return (
            f"{explain_tls_error(found)}. Another program may answer at this address: nothing was sent to it. If the "
            "server has another certificate authority now, join with a new token."
        )

    # ------------------------------------------------------------ the server

    async def _join(self, http: httpx.AsyncClient) -> None:
        if self._token is None:
            raise UsageError(
                f"Cannot join the pool at {self._url}: this machine has not joined it before, so it needs a join "
                "token. An admin makes one with 'legato nodes token'; pass it with --token-file FILE."
            )
        said = {
            "token": self._token,
            "node": self._node,
            "identity": self._state.identity,
            "version": __version__,
            "protocol": AGENT_PROTOCOL,
        }
        answer = await http.post("/agents/join", json=said)
        check_answer(answer, f"Cannot join the pool at {self._url}")
        self._state.secret = decode(answer.content, _Joined).secret
        self._state.url = self._url
        self._write_state()

    async def _report(self, http: httpx.AsyncClient) -> _Orders:
        said: dict[str, Any] = {
            "devices": self._devices,
            "gpu_types": await asyncio.to_thread(find_gpu_types, self._devices),
            "address": self._address,
            "version": __version__,
            "kind": self._kind.name,
            "traits": self._kind.traits,
            "labels": self._state.labels,
            "leaving": self._is_leaving,
        }
        if self._takes_metrics and (sample := self._samples.take()) is not None:
            said["metrics"] = msgspec.to_builtins(sample.machine)
        answer = await http.post("/agents/report", json=said, headers=self._credentials)
        try:
            check_answer(answer, f"The server {self._url} does not take the report of this agent")
        except Unauthenticated:
            if self._token is None:
                raise
            # The machine was removed from the pool, or the server is a new one.
            self._state.secret = ""
            await self._join(http)
            return await self._report(http)
        self._note_address(answer)
        orders = decode(answer.content, _Orders)
        self._takes_metrics = orders.takes_metrics
        return orders

    @property
    def _credentials(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._state.secret}"}

    async def _find_address(self, http: httpx.AsyncClient) -> None:
        if self._state.network:
            self._address = await asyncio.to_thread(_find_in_network, self._state.network)
        elif not self._address:
            # Read before the body: a server, or a proxy, may close the connection after its answer.
            async with http.stream("GET", f"{self._url}/healthz") as answer:
                self._note_address(answer)

    def _note_address(self, answer: httpx.Response) -> None:
        """Take the address from which this machine has reached the server.

        If the server has IPv4 and IPv6 addresses, the next connection may be of the other family: the first address is
        kept then, as long as this machine has it, because jobs use it.
        """
        found, stream = None, answer.extensions.get("network_stream")
        with contextlib.suppress(OSError):  # it is closed
            found = None if stream is None else stream.get_extra_info("client_addr")
        if self._state.network or not found:
            return
        address = str(found[0])
        is_other = self._address != "" and (":" in address) != (":" in self._address)
        if not is_other or not _has_address(self._address):
            self._address = address

    # ------------------------------------------------------------ the agents of jobs

    @property
    def has_jobs(self) -> bool:
        """Whether jobs use this machine."""
        return any(path.is_dir() and is_running(path) for path in self._list())

    def _apply_all(self, http: httpx.AsyncClient, orders: tuple[AgentOrder, ...]) -> None:
        self._applying = {job: task for job, task in self._applying.items() if not task.done()}
        for order in orders:
            if order.job not in self._applying:
                self._applying[order.job] = asyncio.create_task(self._apply_safely(http, order))

    async def _apply_safely(self, http: httpx.AsyncClient, order: AgentOrder) -> None:
        try:
            await self._apply(http, order)
        except (LegatoError, OSError, subprocess.SubprocessError, httpx.HTTPError, zipfile.BadZipFile) as error:
            # The next report brings the order again, unless the driver gives the slots back.
            _log.warning("Cannot start the agent of job %s: %s", order.job, error)
            is_temporary = isinstance(error, httpx.HTTPError)
            if not is_temporary and not await asyncio.to_thread(is_running, self._find_directory(order)):
                await refuse_job(self._complete(order), f"its agent cannot be started: {str(error).rstrip('.')}")

    async def _apply(self, http: httpx.AsyncClient, order: AgentOrder) -> None:
        """Let the agent of a job run with the newest order."""
        directory = self._find_directory(order)
        work = directory / _WORK
        order = msgspec.structs.replace(self._complete(order), work=str(work) if order.code else "")
        if order.code and not work.is_dir():
            await self._fetch_code(http, order, directory)
        is_same = await asyncio.to_thread(_is_same, directory, order)
        if not is_same or not await asyncio.to_thread(is_running, directory):
            self._say(f"Job {order.job} uses this machine.")
            await asyncio.to_thread(start_agent, directory, order, self._make_scratch())

    def _make_scratch(self) -> Path | None:
        """Return the folder for temporary files of jobs. None: that of the system, or of the cluster's choice."""
        # Slurm sets TMPDIR to /tmp unless the cluster chooses another folder. What a killed job leaves there stays.
        if not self._is_pilot or os.environ.get("TMPDIR", "").rstrip("/") not in ("", "/tmp"):  # noqa: S108
            return None
        scratch = self._folder / SCRATCH
        if len(os.fsencode(scratch)) > _MAX_SCRATCH_PATH:
            return None
        scratch.mkdir(mode=0o700, exist_ok=True)
        return scratch

    def _complete(self, order: AgentOrder) -> AgentOrder:
        """Return an order with what only this machine knows."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return msgspec.structs.replace(
            order,
            node=self._node,
            urls=tuple(url.replace(SERVER, host) for url in order.urls),
            address=self._address,
            num_slots=len(self._devices),
        )

    def _find_directory(self, order: AgentOrder) -> Path:
        """Return the directory of a job's agent; each attempt of the job has one of its own."""
        attempt = hashlib.sha256(order.token.encode()).hexdigest()[:12]
        return find_agent_directory(self._node, f"{order.job}-{attempt}", self._home)

    async def _fetch_code(self, http: httpx.AsyncClient, order: AgentOrder, directory: Path) -> None:
        told = f"Cannot fetch the code of job {order.job}"
        try:
            packed = await self._codes.fetch(http, order.code, self._credentials, told)
            await asyncio.to_thread(_unpack, packed, directory, order.code_folder)
        except zipfile.BadZipFile as error:
            _log.warning("The code of job %s is damaged on this disk, and is downloaded again: %s", order.job, error)
            await asyncio.to_thread(self._codes.drop, order.code)
            packed = await self._codes.fetch(http, order.code, self._credentials, told)
            await asyncio.to_thread(_unpack, packed, directory, order.code_folder)

    def _begin_removal(self, orders: tuple[AgentOrder, ...]) -> None:
        """Begin to remove what no job uses. Reports do not wait for it: a job may have left a million files."""
        if self._removing is None or self._removing.done():
            self._removing = asyncio.create_task(self._remove_all_old(orders))

    async def _remove_all_old(self, orders: tuple[AgentOrder, ...]) -> None:
        try:
            await asyncio.to_thread(self._remove_old, {order.job for order in orders})
            await asyncio.to_thread(self._codes.remove_old, {order.code for order in orders})
            if self._is_pilot:
                await asyncio.to_thread(remove_dead, self._folder)
        except Exception:  # noqa: BLE001 -- what a job left on the disk must not take the machine out of the pool
            _log.exception("Old files in %s cannot be removed", self._folder)

    def _remove_old(self, jobs: set[str]) -> None:
        """Remove the files of agents that have ended long ago without the end of their job."""
        for path in self._list():
            if path.name.rpartition("-")[0] in jobs:
                continue
            # An agent may remove its directory at the same moment.
            with contextlib.suppress(OSError):
                is_old = path.is_dir() and path.name != SCRATCH and time.time() - path.stat().st_mtime > _KEEP_S
                if is_old and not is_running(path) and (failure := delete_tree(path)) is not None:
                    _log.warning("Old files in %s cannot be removed: %s", path, failure)

    def _list(self) -> list[Path]:
        try:
            return list(self._folder.iterdir())
        except OSError:
            return []  # the next round tries again

    # ------------------------------------------------------------ files

    def _keep_options(self) -> None:
        """Keep labels and network for later starts, and take those that this start does not give from the last one."""
        known, state = (self._state.labels, self._state.network), self._state
        state.labels = state.labels if self._labels is None else self._labels
        state.network = state.network if self._network is None else self._network
        if (state.labels, state.network) == known:
            return
        try:
            if state.secret:  # otherwise the file is written when the machine has joined
                self._write_state()
        except OSError as error:
            # A full disk does not take the machine out of the pool.
            told = "Cannot keep the labels and the network in %s: %s. Give --label and --network at the next start too"
            _log.warning(told, self._folder, error)

    def _describe_offer(self) -> str:
        num_slots, labels = len(self._devices), self._state.labels
        slots = f"{num_slots} slot{'' if num_slots == 1 else 's'}"
        if not labels:
            return f"{slots} and no labels"
        named = ", ".join(f"{name}={value}" for name, value in sorted(labels.items()))
        return f"{slots} and the label{'' if len(labels) == 1 else 's'} {named}"

    def _lock(self) -> int:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.geteuid() == _ROOT:
            self._folder.chmod(0o711)  # system users of jobs pass through it to their own folders; they cannot list it
        lock = os.open(self._folder / POOL_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise UsageError(
                f"Cannot start: an agent of the name '{self._node}' runs already on this machine. Stop it, or give "
                "this one another name with --name."
            ) from None
        return lock

    def _read_state(self) -> PoolState:
        path = self._folder / _STATE
        try:
            state = decode(path.read_bytes(), PoolState)
            state.ca = keep_first(state.ca) if state.ca else ""
        except FileNotFoundError:
            return PoolState()
        except (OSError, msgspec.DecodeError, UsageError) as error:
            raise UsageError(f"Cannot read {path}: {error}. Remove it, and join again with a join token.") from error
        # Another server does not know the secret, and must not see it.
        return state if state.url in self._urls else PoolState(identity=state.identity)

    def _write_state(self) -> None:
        replace_file(self._folder / _STATE, msgspec.json.encode(self._state))


def _check_token(token: str) -> str:
    """Return a join token. Raises UsageError if it is none; the error does not show it, because it may be a secret."""
    if not token.startswith(_JOIN_PREFIX):
        raise UsageError(
            f"Cannot join with this token: it is no join token, which begins with {_JOIN_PREFIX}. A token of 'legato "
            "tokens' logs a user in, and joins no machine. An admin makes a join token with 'legato nodes token'."
        )
    return token


def check_url(url: str) -> str:
    """Return the URL of a server without a slash at its end. Raises UsageError if it is none."""
    parts = urlsplit(url)
    try:
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is no number, or too large
        is_url = False
    if not is_url:
        raise UsageError(
            f"Cannot use the URL '{url[:200]}'. Write --connect https://HOST:8765, with the port of the server, or "
            "http:// if it has no TLS, and an IPv6 address in brackets: https://[fd00::1]:8765."
        )
    return url.rstrip("/")


def _explain_outage(error: Exception, host: str) -> str:
    """Explain why a server does not answer, and what to check; a sentence without its period."""
    told = (str(error) or type(error).__name__).rstrip(".")
    match error:
        case _ if _is_about_resolving(error):
            return f"this machine does not know the name '{host[:200]}'. Check --connect, DNS and /etc/hosts"
        case httpx.ConnectError() | httpx.ConnectTimeout() | TimeoutError():
            return (
                f"{told}. Check that the server runs, that it listens on an address that this machine reaches (the "
                "setting host), and that no firewall is between"
            )
        case httpx.TimeoutException():
            return f"it has not answered within {_ANSWER_LIMIT_S:g} s"
        case msgspec.MsgspecError():
            return f"what answers there is no server of this release ({told})"
    return told


def _is_about_resolving(error: BaseException | None) -> bool:
    """Return whether an error was caused by a name for which there is no address."""
    while error is not None and not isinstance(error, socket.gaierror):
        error = error.__cause__ or error.__context__
    return error is not None


def _count_users(num_jobs: int) -> str:
    """Say how many jobs use this machine.

    >>> _count_users(1), _count_users(2)
    ('1 job still uses this machine: it shrinks', '2 jobs still use this machine: they shrink')
    """
    if num_jobs == 1:
        return "1 job still uses this machine: it shrinks"
    return f"{num_jobs} jobs still use this machine: they shrink"


def _find_in_network(network: str) -> str:
    """Return the address of this machine in a network. Raises UsageError if it has none."""
    try:
        return find_address(network, None)
    except UsageError as error:
        told = str(error).removeprefix("it ")
        raise UsageError(
            f"Cannot use --network {network}: this machine {told}. It is kept for later starts; 'none' drops it."
        ) from error


def _has_address(address: str) -> bool:
    """Return whether an address belongs to this machine."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def _find_slots(num_slots: int | None) -> tuple[str, ...]:
    devices = find_devices()
    if not devices:
        return ("cpu",) * (num_slots or len(os.sched_getaffinity(0)))
    if num_slots is not None and num_slots > len(devices):
        raise UsageError(f"Cannot offer {num_slots} slots: this machine has {len(devices)} GPUs, one for each slot.")
    return devices[:num_slots]


def _is_same(directory: Path, order: AgentOrder) -> bool:
    try:
        return read_agent_order(directory) == order
    except UsageError:
        return False


def _unpack(packed: Path, directory: Path, folder: str) -> None:
    """Unpack the code of a job into its working directory, completely or not at all.

    Raises:
        zipfile.BadZipFile: the file is damaged.
        OSError: the directory cannot be written.
    """
    scratch = directory / f".{_WORK}-{secrets.token_hex(4)}"
    target = scratch / folder
    for each in (directory, scratch):  # 'parents' would open them to all users
        each.mkdir(mode=0o700, exist_ok=True)
    target.mkdir(parents=True, exist_ok=True)
    try:
        with zipfile.ZipFile(packed) as archive:
            for entry in archive.infolist():
                path = Path(archive.extract(entry, target))
                mode = entry.external_attr >> 16 & 0o777
                if mode and path.is_file():
                    path.chmod(mode | 0o600)
        scratch.rename(directory / _WORK)
    except (zlib.error, struct.error, EOFError, RuntimeError, ValueError) as error:
        raise zipfile.BadZipFile(f"it cannot be unpacked ({error})") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
