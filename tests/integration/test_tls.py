"""A pool whose server has TLS: machines verify it by their join token, and nothing of theirs goes to a stranger."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.serving import LIMIT_S, ROOT, Asker, Server, servers_of, wait_until
from tests.integration.test_pool_agents import (
    SETTINGS,
    Machine,
    check_done,
    join,
    nodes_of,
    num_workers,
    submit,
    weights,
)
from tests.ports import find_port

from legato.agent.pool_agent import PoolAgent
from legato.core.errors import UsageError
from legato.system.certificates import issue, make_authority
from legato.system.tls import load_certificate, make_server_context

__all__ = ["weights"]  # a fixture


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Server, Callable[[str], Machine]]]:
    """A server with TLS, and machines that may join it."""
    machines: list[Machine] = []

    def new(name: str) -> Machine:
        machines.append(Machine(tmp_path / name, name, 1))
        return machines[-1]

    with servers_of(tmp_path / "home", monkeypatch) as made:
        made.append(Server(tmp_path / "home", **SETTINGS, port=find_port(), tls="own"))
        try:
            yield made[0], new
        finally:
            for machine in machines:
                machine.crash()


class Stranger:
    """A program with an authority of its own at an address. It shows this authority, and keeps what clients tell it."""

    def __init__(self, port: int) -> None:
        now = time.time()
        authority = make_authority("Legato CA", now)
        made = issue(authority, ["localhost", "127.0.0.1"], now)
        body = authority.certificate.encode()
        self._answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        self._context = make_server_context()
        load_certificate(self._context, made.certificate, made.key)
        self._server = socket.create_server(("127.0.0.1", port), reuse_port=False)
        self.num_refused = 0
        self.heard = b""
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            connection.settimeout(LIMIT_S)
            try:
                with self._context.wrap_socket(connection, server_side=True) as opened:
                    self.heard += opened.recv(2**16)
                    opened.sendall(self._answer)
            except OSError:
                self.num_refused += 1

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()


def refuse_to_join(home: Path, url: str, token: str) -> str:
    """Return why a machine does not join."""
    with pytest.raises(UsageError) as caught:
        asyncio.run(PoolAgent(url, "x", token=token, home=home, say=lambda _: None).run())
    return str(caught.value)


@pytest.mark.timeout(300)
def test_a_job_trains_on_two_machines_over_tls_and_survives_the_server_the_agent_and_the_driver(
    pool: tuple[Server, Callable[[str], Machine]], tmp_path: Path, weights: str
) -> None:
    server, new = pool
    server.start()
    assert server.url.startswith("https://")
    ask, b = Asker(server), new("b")
    join(ask, server, b)
    job = submit(ask, tmp_path, 2)
    ask.wait(f"jobs/{job}", lambda found: num_workers(found) == 2)
    assert "b" in nodes_of(ask, job)
    (directory,) = (path.parent for path in (b.home / "agents/b").glob("*/agent.json"))
    order = json.loads((directory / "agent.json").read_bytes())
    address = json.loads((directory / "address.json").read_bytes())
    assert order["urls"][0].startswith("wss://") and address["url"].startswith("wss://")
    assert order["certificate"] == address["certificate"] != ""
    for path in (*(server.home / "jobs" / job).rglob("*"), *directory.rglob("*")):
        if path.is_file() and path.stat().st_size < 2**20:
            assert b"PRIVATE KEY" not in path.read_bytes(), f"{path} has a key"
    # What remains of the join token is the authority, and with it the machine finds the server again.
    server.kill()
    server.start()
    ask = ask.at(server)
    b.stop(signal.SIGTERM)
    b.start(server)
    ask.wait("nodes", lambda found: any((node["agent"] or {}).get("state") == "ready" for node in found["items"]))
    driver = json.loads((server.home / "jobs" / job / "driver.json").read_bytes())["pid"]
    os.kill(driver, 9)
    wait_until(
        lambda: json.loads((directory / "agent.json").read_bytes())["certificate"] != order["certificate"],
        "the machine does not hear of the next driver",
    )
    ask.wait(f"jobs/{job}", lambda found: num_workers(found) == 2)
    check_done(ask, server.home, tmp_path, job, weights)


@pytest.mark.timeout(300)
def test_a_machine_with_another_fingerprint_or_without_one_is_refused_with_the_remedy(
    pool: tuple[Server, Callable[[str], Machine]], tmp_path: Path
) -> None:
    server, _ = pool
    server.start()
    token = Asker(server).post("join-tokens", {}, 201)["secret"]
    secret = token.partition(".")[0]
    for shown, told in (
        (f"{secret}.{'0' * 64}", "does not have the certificate authority of the join token"),
        (secret, "its certificate cannot be verified"),
    ):
        assert told in refuse_to_join(tmp_path / "x", server.url, shown)


@pytest.mark.timeout(300)
def test_a_stranger_at_the_address_of_the_server_hears_nothing_of_a_machine_that_has_joined_or_of_a_user(
    pool: tuple[Server, Callable[[str], Machine]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, new = pool
    server.start()
    ask, b = Asker(server), new("b")
    token = ask.post("join-tokens", {}, 201)["secret"]
    join(ask, server, b)
    for name in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "user"))
    monkeypatch.setenv("LEGATO_HOME", str(tmp_path / "nowhere"))

    def call(*words: str, given: str = "") -> Any:
        command = [sys.executable, "-m", "legato.cli", *words]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        return subprocess.run(command, input=given, capture_output=True, text=True, env=environment, timeout=LIMIT_S)

    pin = token.partition(".")[2]
    assert call("login", server.url, "--token-stdin", "--ca", pin, given=str(server.secret)).returncode == 0

    server.kill()
    stranger = Stranger(int(server.url.rpartition(":")[2]))
    try:
        wait_until(lambda: "its certificate cannot be verified" in b.log(), "the machine does not say why it waits")
        assert "cannot be reached" in b.log()
        why = refuse_to_join(tmp_path / "x", server.url, token)
        assert "does not have the certificate authority of the join token" in why
        done = call("ps")
        assert done.returncode != 0 and "Another program may answer at this address" in done.stderr
        assert stranger.num_refused > 0
        # Only the fetch of the authority is not verified, and it has no secret.
        secrets = [token.partition(".")[0], str(server.secret), json.loads(state_of(b).read_bytes())["secret"]]
        assert not any(secret.encode() in stranger.heard for secret in secrets), stranger.heard
    finally:
        stranger.close()
    server.start()
    ask = ask.at(server)
    ask.wait("nodes", lambda found: any((node["agent"] or {}).get("state") == "ready" for node in found["items"]))


def state_of(machine: Machine) -> Path:
    return machine.home / "agents" / machine.name / ".pool.json"
