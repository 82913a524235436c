"""The agent of a machine in a pool with several servers: it uses one as long as that answers, and then the next one."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import os
import socket
import stat
import subprocess
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from legato.agent import pool_agent
from legato.agent.code_cache import DIGEST_HEADER, digest_of
from legato.agent.orders import AgentOrder
from legato.agent.pool_agent import PoolAgent, PoolState
from legato.api.problems import PREFIX
from legato.core.errors import Unauthenticated, UsageError
from legato.core.system_metrics import MachineMetrics, SystemSample
from legato.server.problems import Problem

CLIENT = httpx.AsyncClient
URLS = ("https://one:8765", "https://two")


def run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: Callable[[httpx.Request], httpx.Response],
    until: Callable[[list[str]], bool],
    urls: tuple[str, ...] = URLS,
    token: str | None = "lgj_token",
    labels: dict[str, str] | None = None,
    *,
    network: str | None = None,
    is_pilot: bool = False,
) -> list[str]:
    """Run an agent until the lines that it says are as asked for; returns these lines."""
    said: list[str] = []
    monkeypatch.setattr(
        pool_agent.httpx, "AsyncClient", lambda **more: CLIENT(transport=httpx.MockTransport(answer), **more)
    )
    monkeypatch.setattr(pool_agent, "_NEXT_S", 0.0)
    monkeypatch.setattr(pool_agent, "_MAX_RETRY_S", 0.0)

    async def play() -> None:
        agent = PoolAgent(
            ",".join(urls),
            "b",
            token=token,
            num_slots=1,
            labels=labels,
            network=network,
            home=tmp_path,
            is_pilot=is_pilot,
            say=said.append,
        )
        agent._address = "10.0.0.3"
        running = asyncio.create_task(agent.run())
        deadline = time.monotonic() + 30
        while not until(said) and not running.done():
            assert time.monotonic() < deadline, said
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        if not running.cancelled():
            running.result()

    asyncio.run(play())
    return said


def test_it_asks_the_next_server_when_one_does_not_answer_and_shows_both_the_same_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    down: set[str] = set()
    reports: list[tuple[str, str]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        host = request.url.host
        if host in down:
            if host == "two":
                return httpx.Response(503, json={"detail": "the store cannot be used"})
            raise httpx.ConnectError("Connection refused")
        if request.url.path == "/api/v1/agents/join":
            assert json.loads(request.content)["token"] == "lgj_token"
            return httpx.Response(200, json={"secret": f"of-{host}"})
        reports.append((host, request.headers["Authorization"]))
        # The first server goes down, and later the second one, while the first one is back.
        down.clear()
        down.add(host)
        return httpx.Response(200, json={"orders": [], "beat_every_s": 0.0})

    said = run(tmp_path, monkeypatch, answer, lambda _said: len(reports) >= 3)
    assert reports[:3] == [("one", "Bearer of-one"), ("two", "Bearer of-one"), ("one", "Bearer of-one")]
    assert "The server https://one:8765 cannot be reached" in said[1] and said[1].endswith("tries the next one.")
    assert said[2].startswith("This machine is node b of the pool at https://two")

    # After a restart, also with another list that contains the server, no token is needed.
    reports.clear()
    down.clear()
    other = ("https://three", "https://one:8765")
    run(tmp_path, monkeypatch, answer, lambda _said: bool(reports), other, token=None)
    assert reports[0] == ("three", "Bearer of-one")
    # Servers of another pool must not see the secret.
    with pytest.raises(UsageError, match="it needs a join token"):
        run(tmp_path, monkeypatch, answer, lambda _said: False, ("https://four",), token=None)


def test_metrics_go_only_to_a_server_that_has_said_that_it_takes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = MachineMetrics(cpus=1.0, num_cpus=1, memory_bytes=1, total_bytes=1)
    monkeypatch.setattr(pool_agent.Samples, "take", lambda _: SystemSample(machine=machine))
    reports: list[tuple[str, bool]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        host = request.url.host
        if request.url.path == "/api/v1/agents/join":
            return httpx.Response(200, json={"secret": "s"})
        if host == "one" and len(reports) == 2:
            raise httpx.ConnectError("Connection refused")
        reports.append((host, "metrics" in json.loads(request.content)))
        return httpx.Response(200, json={"orders": [], "beat_every_s": 0.0, "takes_metrics": host == "one"})

    run(tmp_path, monkeypatch, answer, lambda _said: len(reports) >= 3)
    assert reports[:3] == [("one", False), ("one", True), ("two", False)], "the second is of an earlier release"


@pytest.mark.parametrize("closes", [False, True])
def test_the_address_is_the_one_from_which_the_server_was_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, closes: bool
) -> None:
    """The server's name has an IPv6 address too, which the resolver returns first, but it listens on IPv4 only.

    It, or a proxy, may close each connection after its answer.
    """
    reported: list[str] = []
    resolve = socket.getaddrinfo

    def resolve_both(host: Any, *more: Any, **named: Any) -> list[Any]:
        hosts = ("::1", "127.0.0.1") if host in ("dual.test", b"dual.test") else (host,)
        return [found for each in hosts for found in resolve(each, *more, **named)]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = head.lower().partition("content-length:")[2].split()
                sent = await reader.readexactly(int(length[0])) if length else b""
                if "/report " in head:
                    reported.append(json.loads(sent)["address"])
                body = b'{"secret": "s", "orders": [], "beat_every_s": 0.0}'
                then = b"close" if closes else b"keep-alive"
                writer.write(b"HTTP/1.1 200 OK\r\nConnection: %b\r\nContent-Length: %d\r\n\r\n" % (then, len(body)))
                writer.write(body)
                if closes:
                    break
        writer.close()

    def say(line: str) -> None:
        said.append(line)
        spoken.set()

    async def play() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server, asyncio.timeout(30):
            url = f"http://dual.test:{server.sockets[0].getsockname()[1]}"
            agent = PoolAgent(url, "b", token="lgj_1.plain", num_slots=1, home=tmp_path, say=say)
            running = asyncio.create_task(agent.run())
            await asyncio.wait([running, asyncio.create_task(spoken.wait())], return_when=asyncio.FIRST_COMPLETED)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    said: list[str] = []
    spoken = asyncio.Event()
    monkeypatch.setattr(socket, "getaddrinfo", resolve_both)
    asyncio.run(play())
    assert reported[0] == "127.0.0.1", "already in the first report"
    assert said[0].endswith("Its address for other machines is 127.0.0.1.")


class Stream:
    """A connection from an address of this machine."""

    def __init__(self, address: str) -> None:
        self._address = address

    def get_extra_info(self, name: str) -> tuple[str, int] | None:
        return (self._address, 1) if name == "client_addr" else None


@pytest.mark.parametrize("address", ["10.0.0.1", "fd00::2"])
def test_a_machine_announces_the_address_from_which_it_has_first_reached_the_server(
    tmp_path: Path, address: str
) -> None:
    agent = PoolAgent("http://127.0.0.1:1", "b", num_slots=1, home=tmp_path, say=print)
    agent._note_address(httpx.Response(200, extensions={"network_stream": Stream(address)}))
    assert agent._address == address


def test_the_address_follows_the_way_to_the_server_but_keeps_its_family_while_the_machine_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"10.0.0.1", "10.0.0.2", "fd00::2"}
    monkeypatch.setattr(pool_agent, "_has_address", own.__contains__)

    agent = PoolAgent("http://127.0.0.1:1", "b", num_slots=1, home=tmp_path, say=print)
    answers = {
        "10.0.0.1": "10.0.0.1",
        "10.0.0.2": "10.0.0.2",  # another route
        "fd00::2": "10.0.0.2",
    }
    for used, want in answers.items():
        agent._note_address(httpx.Response(200, extensions={"network_stream": Stream(used)}))
        assert agent._address == want
    own.remove("10.0.0.2")
    agent._note_address(httpx.Response(200, extensions={"network_stream": Stream("fd00::2")}))
    assert agent._address == "fd00::2"


def test_each_url_of_the_list_is_checked(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Cannot use the URL 'two'"):
        PoolAgent("http://one,two", "b", home=tmp_path, say=print)


def test_the_state_names_the_server_of_which_the_secret_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host == "one":
            raise httpx.ConnectError("Connection refused")
        body: Any = {"secret": "s"} if request.url.path.endswith("join") else {"orders": [], "beat_every_s": 0.0}
        return httpx.Response(200, json=body)

    run(tmp_path, monkeypatch, answer, lambda said: len(said) >= 2)
    state = msgspec.json.decode((tmp_path / "agents/b/.pool.json").read_bytes(), type=PoolState)
    assert (state.url, state.secret) == ("https://two", "s")


def test_an_agent_keeps_its_labels_until_others_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[dict[str, str]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("join"):
            return httpx.Response(200, json={"secret": "s"})
        reported.append(json.loads(request.content)["labels"])
        return httpx.Response(200, json={"orders": [], "beat_every_s": 0.0})

    def start(labels: dict[str, str] | None, token: str | None = None) -> str:
        reported.clear()
        (line,) = run(tmp_path, monkeypatch, answer, bool, token=token, labels=labels)
        return line.partition(", with ")[2].partition(".")[0]

    rack = {"rack": "r1"}
    assert start(rack, "lgj_token") == "1 slot and the label rack=r1" and reported[0] == rack
    assert start(None) == "1 slot and the label rack=r1" and reported[0] == rack
    other = {"site": "x", "disk": "ssd"}
    assert start(other) == "1 slot and the labels disk=ssd, site=x" and reported[0] == other
    assert start(None) == "1 slot and the labels disk=ssd, site=x" and reported[0] == other
    assert start({}) == "1 slot and no labels" and reported[0] == {}
    assert start(None) == "1 slot and no labels" and reported[0] == {}


def test_an_agent_keeps_its_network_until_another_one_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("join"):
            return httpx.Response(200, json={"secret": "s"})
        reported.append(json.loads(request.content)["address"])
        return httpx.Response(200, json={"orders": [], "beat_every_s": 0.0})

    def start(network: str | None, token: str | None = None) -> str:
        reported.clear()
        run(tmp_path, monkeypatch, answer, bool, token=token, network=network)
        return reported[0]

    assert start("127.0.0.0/8", "lgj_token") == start(None) == "127.0.0.1"
    assert start("") == start(None) == "10.0.0.3", "the address on the way to the server"


def test_a_server_that_refuses_the_agent_is_not_called_unreachable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_reports = 0

    def answer(request: httpx.Request) -> httpx.Response:
        nonlocal num_reports
        if request.url.path.endswith("join"):
            taken = {"detail": "Cannot join as 'b': another agent has this name."}
            return httpx.Response(409, json=taken) if num_reports else httpx.Response(200, json={"secret": "s"})
        num_reports += 1
        orders = {"orders": [], "beat_every_s": 0.0}
        unknown = {"type": f"{PREFIX}unauthenticated", "detail": "unknown"}
        return httpx.Response(200, json=orders) if num_reports == 1 else httpx.Response(401, json=unknown)

    said = run(tmp_path, monkeypatch, answer, lambda said: len(said) >= 2, ("https://one",))
    assert said[1].startswith("The server https://one refuses this agent: Cannot join the pool at https://one: ")
    assert "another agent has this name. " in said[1] and "cannot be reached" not in said[1]


def serve_reports(num_reports: list[int]) -> Callable[[httpx.Request], httpx.Response]:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("join"):
            return httpx.Response(200, json={"secret": "s"})
        num_reports.append(1)
        return httpx.Response(200, json={"orders": [], "beat_every_s": 0.0})

    return answer


@pytest.fixture
def old_job(tmp_path: Path) -> Iterator[Path]:
    """The folder of a job's agent that has ended long ago, with deeply nested folders."""
    folder = tmp_path / "agents/b/j-0000000001-abc"
    folder.mkdir(parents=True)
    at = os.open(folder, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=at)
        inner = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(at)
    os.utime(folder, (0, time.time() - 8 * 86_400))
    yield folder
    subprocess.run(["rm", "-rf", str(folder)], check=True)  # pytest cannot remove it


def test_deeply_nested_folders_of_a_job_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old_job: Path
) -> None:
    reports: list[int] = []
    run(tmp_path, monkeypatch, serve_reports(reports), lambda _said: not old_job.exists())
    assert reports


def test_reports_wait_for_no_removal_and_outlive_one_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, old_job: Path
) -> None:
    removals: list[int] = []
    reports: list[int] = []
    enough = threading.Event()

    def delete(_path: Path) -> list[str]:
        removals.append(len(reports))
        assert enough.wait(30)
        raise RecursionError

    def is_done(_said: list[str]) -> bool:
        if removals and len(reports) >= removals[0] + 5:
            enough.set()
        return len(removals) >= 2

    monkeypatch.setattr(pool_agent, "delete_tree", delete)
    run(tmp_path, monkeypatch, serve_reports(reports), is_done)
    assert removals[1] >= removals[0] + 5
    assert "cannot be removed" in caplog.text


def pack() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("train.py", "print(1)\n" * 1000)
    return packed.getvalue()


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda content: content[: len(content) // 2],
        lambda content: content[:40] + b"\xff" * 20 + content[60:],
        lambda content: bytes(len(content)),
    ],
    ids=["empty", "cut", "changed", "zeros"],
)
def test_code_that_is_damaged_on_the_disk_is_downloaded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[bytes], bytes]
) -> None:
    content, sha256 = pack(), "ab" * 32
    order = AgentOrder(job="job", node="b", urls=("ws://10.0.0.1:1/agent",), token="t", address="", code=sha256)

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.path == f"/agents/code/{sha256}"
        digest = digest_of(hashlib.sha256(content))
        return httpx.Response(200, content=content, headers={DIGEST_HEADER: digest})

    async def fetch() -> None:
        agent = PoolAgent(URLS[0], "b", num_slots=1, home=tmp_path, say=print)
        agent._folder.mkdir(parents=True)
        (agent._folder / f".code-{sha256}.zip").write_bytes(damage(content))
        async with CLIENT(transport=httpx.MockTransport(answer), base_url="http://server") as http:
            await agent._fetch_code(http, order, tmp_path)
        assert (agent._folder / f".code-{sha256}.zip").read_bytes() == content

    asyncio.run(fetch())
    assert (tmp_path / "work" / "train.py").read_text().startswith("print(1)")


@pytest.mark.parametrize("is_joining", [True, False])
def test_a_proxy_that_answers_401_while_the_server_is_away_ends_no_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_joining: bool
) -> None:
    num_asked = 0

    def answer(request: httpx.Request) -> httpx.Response:
        nonlocal num_asked
        num_asked += 1
        if num_asked == (1 if is_joining else 2):
            return httpx.Response(401, text="<html>Log in</html>")
        if num_asked == (2 if is_joining else 3):
            return httpx.Response(401, json={"type": "about:blank", "detail": "Log in"})
        body: Any = {"secret": "s"} if request.url.path.endswith("join") else {"orders": [], "beat_every_s": 0.0}
        return httpx.Response(200, json=body)

    said = run(tmp_path, monkeypatch, answer, lambda said: len(said) >= 2, URLS[:1])
    assert "cannot be reached: it answers 401" in said[0]
    assert said[1].startswith("This machine is node b of the pool")


def test_the_server_itself_says_that_a_secret_is_not_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_request: httpx.Request) -> httpx.Response:
        problem = Problem("unauthenticated", "This join token has expired.").render("1")
        return httpx.Response(problem.status_code, content=bytes(problem.body))

    with pytest.raises(Unauthenticated, match="This join token has expired"):
        run(tmp_path, monkeypatch, refuse, lambda _said: False)


def test_the_folder_of_a_job_is_closed_to_other_users(tmp_path: Path) -> None:
    (tmp_path / "packed.zip").write_bytes(pack())
    before = os.umask(0o022)
    try:
        pool_agent._unpack(tmp_path / "packed.zip", tmp_path / "job", "_submitted/mnist")
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE((tmp_path / path).stat().st_mode) for path in ("job", "job/work")}
    assert modes == {"job": 0o700, "job/work": 0o700}
    assert (tmp_path / "job/work/_submitted/mnist/train.py").exists()


def test_an_agent_that_the_server_lets_go_gives_its_slots_back_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaving: list[bool] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("join"):
            return httpx.Response(200, json={"secret": "s"})
        leaving.append(json.loads(request.content)["leaving"])
        return httpx.Response(200, json={"orders": [], "beat_every_s": 0.0, "leave": True})

    said = run(tmp_path, monkeypatch, answer, lambda said: "No job uses this machine any more." in said)
    assert leaving == [False, True]
    assert said[1:] == ["The server lets this machine go.", "No job uses this machine any more."]


def test_a_pilot_waits_for_the_agents_of_jobs_because_its_cluster_kills_them_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = tmp_path / "agents/b/j-0000000001-abc"
    job.mkdir(parents=True)
    num_asked = 0

    def is_running(directory: Path) -> bool:
        nonlocal num_asked
        num_asked += directory == job
        return num_asked < 3

    monkeypatch.setattr(pool_agent, "is_running", is_running)
    monkeypatch.setattr(pool_agent, "_JOBS_POLL_S", 0.0)

    def answer(request: httpx.Request) -> httpx.Response:
        joined = {"secret": "s"} if request.url.path.endswith("join") else {}
        return httpx.Response(200, json={"orders": [], "beat_every_s": 0.0, "leave": True, **joined})

    run(tmp_path, monkeypatch, answer, lambda _said: num_asked >= 3, is_pilot=True)
    assert num_asked == 3
