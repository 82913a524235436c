"""What the agent of a machine says when it cannot join a pool (`legato.agent.pool_agent`)."""

from __future__ import annotations

import asyncio
import shutil
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from legato.agent import pool_agent, process
from legato.agent.orders import AgentOrder
from legato.agent.pool_agent import PoolAgent, check_url
from legato.core.errors import UsageError

LIMIT_S = 30.0


def make_agent(
    home: Path, url: str, say: Callable[[str], None] = print, network: str | None = None, node: str = "b"
) -> PoolAgent:
    return PoolAgent(url, node, token="lgj_1.plain", num_slots=1, network=network, home=home, say=say)


def first_words(home: Path, url: str, meanwhile: Callable[[], Awaitable[None]] | None = None) -> str:
    """Run an agent until it has said something, and let it leave: it was never in the pool, so it ends at once."""
    said: list[str] = []

    async def run() -> None:
        has_spoken = asyncio.Event()

        def say(words: str) -> None:
            said.append(words)
            has_spoken.set()

        agent = make_agent(home, url, say)
        running = asyncio.create_task(agent.run())
        async with asyncio.timeout(LIMIT_S):
            await has_spoken.wait()
            if meanwhile is not None:
                await meanwhile()
            assert not agent.has_jobs
            agent.leave()
            await running

    asyncio.run(run())
    return said[0]


@pytest.mark.parametrize(
    ("host", "want"),
    [
        ("nowhere.invalid", "this machine does not know the name 'nowhere.invalid'. Check --connect, DNS and"),
        ("127.0.0.1", "Check that the server runs, that it listens on an address that this machine reaches"),
    ],
)
def test_a_server_that_cannot_be_reached_is_named_with_what_to_check(tmp_path: Path, host: str, want: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    words = first_words(tmp_path, f"http://{host}:{port}")
    assert words.startswith(f"The server http://{host}:{port} cannot be reached: ") and want in words
    assert "Jobs train on" not in words, "there are none"


def test_a_silent_server_is_not_taken_for_another_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_agent, "_ANSWER_LIMIT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        words = first_words(tmp_path, f"https://127.0.0.1:{silent.getsockname()[1]}")
    assert "Check that the server runs" in words and "TLS" not in words and "authority" not in words, words


def test_a_limit_of_time_of_the_socket_is_explained_with_what_to_check() -> None:
    told = pool_agent._explain_outage(TimeoutError("The handshake operation timed out"), "a")
    assert told.startswith("The handshake operation timed out. Check that the server runs"), told


def serve_other(home: Path, scheme: str) -> str:
    """Return why a machine does not join where another program answers, which closes each connection afterwards."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(2**16)
        writer.write(b"HTTP/1.0 404 Not Found\r\n\r\nno such page")
        writer.close()

    async def run() -> str:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server, asyncio.timeout(LIMIT_S):
            url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            with pytest.raises(UsageError) as caught:
                await make_agent(home, url).run()
            return str(caught.value).replace(url, "URL")

    return asyncio.run(run())


def test_another_program_at_the_address_of_the_server_is_named_as_such(tmp_path: Path) -> None:
    told = "Cannot join the pool at URL:"
    assert serve_other(tmp_path, "http") == f"{told} what answers there is no server of this release (HTTP 404)."
    assert serve_other(tmp_path, "https").startswith(f"{told} it does not use TLS. Correct the port in --connect, or")


@pytest.mark.parametrize("url", ["ftp://a", "http://", "a:8765", "http://::1:8765", "http://a:99999", "http://a:b"])
def test_urls_that_are_none_are_refused_with_an_example(url: str) -> None:
    with pytest.raises(UsageError, match=r"Write --connect https://HOST:8765, .* https://\[fd00::1\]:8765"):
        check_url(url)
    assert check_url("http://[::1]:8765/") == "http://[::1]:8765"


def test_a_network_without_an_address_of_this_machine_is_refused_with_the_addresses(tmp_path: Path) -> None:
    agent = make_agent(tmp_path, "http://127.0.0.1:1", network="203.0.113.0/24")
    with pytest.raises(UsageError, match=r"--network 203\.0\.113\.0/24: this machine has .* 127\.0\.0\.1 \(lo\)"):
        asyncio.run(agent.run())


def test_a_full_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_MIN_FREE_BYTES", 2 * shutil.disk_usage(tmp_path).total)
    with pytest.raises(UsageError, match=r"The disk with .*agents/b is full .* LEGATO_HOME or --home"):
        asyncio.run(make_agent(tmp_path, "http://127.0.0.1:1").run())


def test_the_driver_hears_why_the_process_of_an_agent_cannot_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []

    async def refuse(_order: AgentOrder, reason: str) -> bool:
        told.append(reason)
        return True

    monkeypatch.setattr(pool_agent, "refuse_job", refuse)
    monkeypatch.setattr(sys, "executable", "false")
    agent = PoolAgent("http://127.0.0.1:1", "b", num_slots=1, home=tmp_path, say=lambda _line: None)
    order = AgentOrder(job="j", node="b", urls=("wss://127.0.0.1:1/agent",), token="t", address="127.0.0.1")

    async def run() -> None:
        async with httpx.AsyncClient() as http:
            await agent._apply_safely(http, order)

    asyncio.run(run())
    assert len(told) == 1 and told[0].startswith("its agent cannot be started: Command ")
    assert "Cannot start the agent of job j" in caplog.text


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "agents").write_text("a file")
    with pytest.raises(UsageError, match=r"Cannot write into .*agents/b: .* --home"):
        asyncio.run(make_agent(tmp_path, "http://127.0.0.1:1").run())


def test_the_second_agent_of_a_name_on_one_machine_is_refused(tmp_path: Path) -> None:
    async def start_another() -> None:
        with pytest.raises(UsageError, match="an agent of the name 'b' runs already on this machine"):
            await make_agent(tmp_path, "http://127.0.0.1:1").run()

    first_words(tmp_path, "http://127.0.0.1:1", start_another)
