"""A platform for tests of its API: a real store, a real server in a thread, no control loop, and a clock to turn."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import argon2
import httpx
import uvicorn

from legato.control.credentials import Passwords
from legato.control.loop.loop_stats import LoopStats
from legato.control.records import DeclaredSlot, Job, JobChange, Lease, Node
from legato.control.roles import Asker, Role
from legato.control.settings import Settings
from legato.control.stages import Stage
from legato.control.store import Store, migrate
from legato.control.store.database import Database
from legato.policy.snapshot import Decision, Decisions, Snapshot
from legato.server.app import make_app
from legato.server.http_protocol import limit_connections, make_protocol
from legato.server.plugins import ServerPlugin
from legato.server.services import Services, make_services
from legato.server.startup_checks import find_url, listen
from legato.server.tls import ServerTls
from legato.system.tls import make_client_context

ADMIN = Asker("admin", Role.ADMIN)
NOW = 1_800_000_000.0
LIMIT_S = 30.0
API = "/api/v1"
JOB = {"name": "mnist", "program": ["train.py"], "directory": "/d"}


class StandInLoop:
    """What routes see of a control loop; decides nothing."""

    def __init__(self) -> None:
        self.owner = "the-loop"
        self.starts_drivers = False
        self.decisions: Decisions | None = None
        self.snapshot: Snapshot | None = None
        self.stats = LoopStats()
        self.num_wakes = 0
        self.woken = threading.Event()

    def wake(self) -> None:
        self.num_wakes += 1
        self.woken.set()


class Platform:
    """The platform, and those who ask it.

    Args:
        home: its directory.
        template: a store with the users and their tokens.
        plugins: who answer under paths of their own; made of the settings.
        settings: that differ from the usual ones.
    """

    def __init__(
        self,
        home: Path,
        template: Path,
        *,
        plugins: Callable[[Settings], Sequence[ServerPlugin]] = lambda _: (),
        **settings: Any,
    ) -> None:
        home.mkdir(exist_ok=True)
        self.home = home
        self.now = NOW
        self.settings = Settings(
            **{"home": home, "slots": 2, "port": 0, "requests_per_s": 1e6, "requests_burst": 10**6, **settings}
        )
        self.plugins = plugins(self.settings)
        self.tls = ServerTls(self.settings, time.time()) if self.settings.has_tls else None
        shutil.copyfile(template, home / "legato.db")
        self.store = open_store(self.settings.store_url)
        self.loop = StandInLoop()
        self.secrets: dict[str, str] = json.loads(_find_secrets(template).read_text())
        self.services: Services = None  # type: ignore[assignment]  # made inside of the server's loop
        self.http: httpx.Client = None  # type: ignore[assignment]

    # ------------------------------------------------------------ the server

    @contextlib.contextmanager
    def running(self) -> Iterator[Platform]:
        """Run the server for as long as the block lasts."""
        (listener,) = listen(self.settings)
        self.url = find_url(self.settings, [listener])
        ready = threading.Event()
        self._ready = ready
        thread = threading.Thread(target=lambda: asyncio.run(self._serve(listener)))
        thread.start()
        try:
            assert ready.wait(LIMIT_S), "the server does not start"
            # Plain HTTP shows no certificate, and to read those that are trusted takes long.
            verify = False if self.tls is None else make_client_context(self.tls.authority)
            with httpx.Client(base_url=self.url, timeout=LIMIT_S, verify=verify) as self.http:
                yield self
        finally:
            self._running.call_soon_threadsafe(self._stop.set)
            thread.join(LIMIT_S)
            listener.close()
            self.store.close()
            assert not thread.is_alive(), "the server does not end"

    async def _serve(self, listener: socket.socket) -> None:
        self._running, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self.loop_thread = threading.get_ident()
        with ThreadPoolExecutor(4) as followers:
            ca = self.tls.authority if self.tls is not None and self.tls.is_own else ""
            self.services = make_services(self.store, self.settings, self.loop, followers, now=lambda: self.now, ca=ca)
            web = uvicorn.Server(
                uvicorn.Config(
                    make_app(self.services, self.plugins),
                    http=make_protocol(  # type: ignore[arg-type]
                        limit_connections(self.settings, 65_536), None if self.tls is None else self.tls.context
                    ),
                    lifespan="off",
                    ws="none",
                    log_config=None,
                    access_log=False,
                    proxy_headers=bool(self.settings.trusted_proxies),
                    forwarded_allow_ips=list(self.settings.trusted_proxies),
                )
            )
            feeding = asyncio.create_task(self.services.feed.run())
            serving = asyncio.create_task(web.serve(sockets=[listener]))
            # The socket listens already: a client that connects now is answered in a moment.
            self._ready.set()
            await self._stop.wait()
            web.should_exit = True
            self.services.feed.close()
            await serving
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)

    # ------------------------------------------------------------ asking

    def headers(self, who: str | None, **more: str) -> dict[str, str]:
        shown = {"Authorization": f"Bearer {self.secrets[who]}"} if who is not None else {}
        return shown | more

    def ask(
        self, method: str, path: str, body: Any = None, *, who: str | None = "ann", **headers: str
    ) -> httpx.Response:
        """Ask something; ``headers`` with ``_`` for ``-``."""
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        where = path if path.startswith("/") else f"{API}/{path}"
        content = None
        if body is not None:
            content = json.dumps(body).encode()
            more = {"Content-Type": "application/json", **more}
        return self.http.request(method, where, content=content, headers=self.headers(who, **more))

    def get(self, path: str, *, who: str | None = "ann", want: int = 200, **headers: str) -> Any:
        """Return the body of an answer, which has the status ``want``."""
        answer = self.ask("GET", path, who=who, **headers)
        assert answer.status_code == want, answer.text
        return answer.json()

    def submit(self, who: str = "ann", **fields: Any) -> str:
        """Submit a job through the API and return its id."""
        answer = self.ask("POST", "jobs", JOB | fields, who=who)
        assert answer.status_code == 201, answer.text
        made: str = answer.json()["id"]
        return made

    @contextlib.contextmanager
    def stream(self, path: str, *, who: str = "ann", **headers: str) -> Iterator[Messages]:
        """Follow something."""
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        shown = self.headers(who, Accept="text/event-stream", **more)
        with self.http.stream("GET", f"{API}/{path}", headers=shown) as answer:
            assert answer.status_code == 200, answer.read()
            assert answer.headers["content-type"].startswith("text/event-stream")
            yield Messages(answer)

    def ask_raw(self, method: str, path: str, *, who: str = "ann") -> httpx.Response:
        """Ask for a path as it is: other clients tidy it up before they send it."""
        host = self.url.partition("://")[2]
        connection = http.client.HTTPConnection(host, timeout=LIMIT_S)
        try:
            connection.request(method, path, headers=self.headers(who))
            answer = connection.getresponse()
            return httpx.Response(answer.status, headers=answer.getheaders(), content=answer.read())
        finally:
            connection.close()

    # ------------------------------------------------------------ what a control loop would write

    def lead(self, num_slots: int = 2) -> Lease:
        """Take the lease and declare a node."""
        lease = self.store.loop.take_lease(self.loop.owner, self.now, 10.0)
        assert lease is not None
        slots = tuple(DeclaredSlot(f"node/{number}", "cpu") for number in range(num_slots))
        self.store.pool.declare([Node(name="node", engine="local", slots=slots)], lease.fence, self.now)
        return lease

    def write(self, job: str, **change: Any) -> Job:
        """Write one change of a job as the loop does."""
        lease = self.store.loop.take_lease(self.loop.owner, self.now, 10.0)
        assert lease is not None
        found = self.store.jobs.get(job)
        made = JobChange(job=job, seen_stage=found.stage, seen_attempt=found.attempt, **change)
        assert self.store.loop.write([made], lease.fence, self.now).stale == ()
        return self.store.jobs.get(job)

    def start(self, job: str, *slots: str) -> Job:
        """Bring a queued job to running."""
        self.write(job, stage=Stage.STARTING, granted=slots, reason="starts")
        return self.write(job, stage=Stage.RUNNING, reason="its workers train")

    def end(self, job: str, stage: Stage = Stage.SUCCEEDED) -> Job:
        """Bring a running job to its end."""
        slots = tuple(one.slot for one in self.store.pool.list_open() if one.job == job)
        return self.write(
            job, stage=stage, closed=slots, reason="it ended", exit_code=int(stage is not Stage.SUCCEEDED)
        )

    def decide(self, *decisions: Decision) -> None:
        """Have the loop of this process have decided."""
        self.loop.decisions = Decisions(decisions=decisions, summary="as decided")

    def directory(self, job: str) -> Path:
        """Return the directory of a job, made."""
        found = self.home / "jobs" / job
        (found / "logs").mkdir(parents=True, exist_ok=True)
        return found


class Messages:
    """The messages of a stream, one after the other: their fields by name, comments left out."""

    def __init__(self, answer: httpx.Response) -> None:
        self._lines = answer.iter_lines()

    def __iter__(self) -> Iterator[dict[str, str]]:
        return self

    def __next__(self) -> dict[str, str]:
        message: dict[str, str] = {}
        for line in self._lines:
            if not line and message:
                return message
            name, _, value = line.partition(": ")
            if name and value and not line.startswith(":"):
                message[name] = value
        raise StopIteration


def open_store(url: str) -> Store:
    """Open a store whose hashes of passwords take no time."""
    return Store(Database(url), passwords=Passwords(argon2.PasswordHasher(1, 8, 1)))


def make_template(file: Path) -> Path:
    """Make a store with its tables and the users; their tokens are beside it."""
    url = f"sqlite:///{file}"
    database = Database(url)
    migrate.upgrade(database)
    database.close()
    store = open_store(url)
    assert store.tokens.create_first(NOW) is not None
    secrets = {"admin": store.tokens.create("admin", "test", ADMIN, NOW, expires_at=NOW + 1e7).secret}
    for name, role in (("ann", Role.USER), ("ben", Role.USER), ("eye", Role.VIEWER)):
        store.accounts.create(name, role, ADMIN, NOW)
        secrets[name] = store.tokens.create(name, "test", ADMIN, NOW, expires_at=NOW + 1e7).secret
    store.close()
    _find_secrets(file).write_text(json.dumps(secrets))
    return file


def _find_secrets(template: Path) -> Path:
    return template.with_suffix(".json")


def wait_for_memory(platform: Platform) -> None:
    """Wait until followers are answered from memory, as far as everything has happened by now."""
    feed, events = platform.services.feed, platform.store.events
    deadline = time.monotonic() + LIMIT_S
    # Also as far as the jobs below: their events would come later, in the middle of the test.
    while not (feed._recent and feed._recent[-1].seq >= events.read_last_seq()):
        assert time.monotonic() < deadline
        if not feed._recent:
            platform.submit("admin", name="more")  # the first ones it only counts
        time.sleep(0.05)


def check_problem(answer: httpx.Response, status: int, name: str, told: str = "") -> Any:
    """Check that an answer is this problem, and return it."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["type"] == f"urn:legato:problem:{name}", problem
    assert problem["status"] == status
    assert problem["title"]
    assert problem["request_id"] == answer.headers["x-request-id"]
    assert told in problem["detail"], problem["detail"]
    assert problem["detail"].endswith((".", "'.")), problem["detail"]
    return problem
