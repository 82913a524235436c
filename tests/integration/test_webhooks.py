"""Webhooks of a real server with real jobs: a shrink, a wait and ends, of which some happen while no server runs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.serving import ROOT, Asker, Server, pids_of, servers_of, wait_until
from tests.unit.server.receivers import Receiver, receiving

from legato.client.client import Client

PROGRAM = ROOT / "tests/integration/programs/slow.py"
SETTINGS: dict[str, Any] = {"slots": 2, "loop_interval_s": 0.2, "stability_s": 0.2, "cooldown_factor": 0}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with servers_of(tmp_path / "home", monkeypatch) as made:
        allowed = {"webhook_networks": ["127.0.0.1/32"], "public_url": "https://legato.example.org"}
        made.append(Server(tmp_path / "home", **SETTINGS, **allowed))
        made[0].start()
        yield made[0]


def list_reported(receiver: Receiver) -> Counter[tuple[str, str]]:
    """Return how many messages report each event of each job. One that came twice, with its id, is one."""
    bodies = {headers["legato-delivery"]: json.loads(body) for _, headers, body in list(receiver.got)}
    return Counter((body["event"], body["job"]["name"]) for body in bodies.values())


def test_a_running_server_serves_webhooks(server: Server, tmp_path: Path) -> None:
    with receiving() as receiver, Client(server.url, server.secret) as client:
        client.add_webhook(f"http://127.0.0.1:{receiver.port}/", on=["failed"])
        client.submit("false", framework="command", name="fails", directory=tmp_path)
        wait_until(lambda: list_reported(receiver) == {("failed", "fails"): 1}, "the failure is not reported")


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_a_receiver_gets_each_message_once_although_the_server_is_killed(server: Server, tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    slow.touch()
    (tmp_path / "code").mkdir()
    script = tmp_path / "code/train.py"
    script.write_bytes(PROGRAM.read_bytes())
    with receiving() as receiver, Client(server.url, server.secret) as client:

        def submit(name: str) -> str:
            options: Any = {"name": name, "code": script.parent}
            return client.submit(script, "60", "result", "0.1", str(slow), max_workers=2, **options).id

        def reported() -> Counter[tuple[str, str]]:
            return list_reported(receiver)

        url = f"http://127.0.0.1:{receiver.port}/"
        hook = client.add_webhook(url, on=["ended"], below_workers=2, waiting_s=1.0).webhook
        first = submit("first")
        Asker(server).wait(f"jobs/{first}", lambda job: job["stage"] == "running" and job["num_slots"] == 2)
        submit("second")
        wait_until(lambda: ("shrunk", "first") in reported(), "the shrink is not reported")
        submit("third")
        wait_until(lambda: ("waiting", "third") in reported(), "the wait is not reported")
        server.kill()
        slow.unlink()
        wait_until(lambda: pids_of(server.home) == set(), "the jobs do not end by themselves")
        assert not any(event == "ended" for event, _ in reported())
        server.start()
        names = ("first", "second", "third")
        wait_until(lambda: all(("ended", name) in reported() for name in names), "ends are not reported")
        expected = [("shrunk", "first"), ("waiting", "third"), *(("ended", name) for name in names)]
        assert reported() == Counter(expected)
        shrunk = json.loads(receiver.got[0][2])
        assert shrunk["url"] == f"https://legato.example.org/#/jobs/{first}"
        assert shrunk["job"]["workers"] == 1
        assert "second" in shrunk["reason"], "the reason names the job that gets the slot"
        asker = Asker(server)
        found = asker.wait(f"webhooks/{hook.id}", lambda found: found["num_pending"] == 0)
        assert {one["state"] for one in found["deliveries"]} == {"delivered"}
