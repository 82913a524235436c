"""How the workers of a gang find one another, and what ends a gang."""

from __future__ import annotations

import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from legato.compat.wmla.fabric.gang import variables_of_gang
from legato.core.errors import LegatoError, UsageError
from legato.train.membership.gang import Gang, Seat, name_attempt, reserve_port

LIMIT_S = 60.0


def test_all_get_the_same_picture_in_any_order_of_arrival(tmp_path: Path) -> None:
    # A second attempt begins with numbers of its own; the tenth worker is behind the ninth.
    numbers = (10, 9, 4)
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(Gang(tmp_path, one, 3, limit_s=LIMIT_S).meet, f"node:{4000 + one}") for one in numbers]
        seats = [one.result(LIMIT_S) for one in waiting]
    addresses = ("node:4004", "node:4009", "node:4010")
    assert seats == [Seat(2, addresses), Seat(1, addresses), Seat(0, addresses)]


def test_no_worker_joins_a_gang_later(tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / f"come-{number}").write_text("node:1")
    with pytest.raises(LegatoError, match="A worker of this job is gone, and worker 2 has come in its place"):
        Gang(tmp_path, 2, 2).meet("node:2")
    # Who had not begun yet does not either.
    with pytest.raises(LegatoError, match="worker 2 has come in its place"):
        Gang(tmp_path, 1, 2).meet("node:1")


def test_missing_workers_are_reported(tmp_path: Path) -> None:
    now = 0.0

    def sleep(pause_s: float) -> None:
        nonlocal now
        assert now < 7.0, "it waits for longer than it may"
        now += pause_s

    (tmp_path / "come-8").write_text("node:1")
    (tmp_path / ".come-9").write_text("half an addr")
    gang = Gang(tmp_path, 7, 3, limit_s=7.0, clock=lambda: now, sleep=sleep)
    with pytest.raises(LegatoError, match=r"Only 2 of the 3 workers of this job came within 7 s \(workers 7, 8\)\."):
        gang.meet("node:2")
    assert now >= 7.0


def test_all_go_together(tmp_path: Path) -> None:
    tmp_path.joinpath("come-0").touch()
    has_gone, waits = threading.Event(), threading.Event()

    def go() -> None:
        Gang(tmp_path, 0, 2, sleep=lambda _: waits.set()).part()
        has_gone.set()

    going = threading.Thread(target=go)
    going.start()
    assert waits.wait(LIMIT_S)
    assert not has_gone.is_set()
    Gang(tmp_path, 1, 2).part()
    assert has_gone.wait(LIMIT_S)
    going.join()


def test_attempts_are_distinguished_and_their_secret_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "driver.json"
    found = []
    for url, token in (("ws://a", "one"), ("ws://b", "one"), ("ws://b", "two")):
        file.write_text(json.dumps({"url": url, "token": token}))
        found.append(name_attempt(file))
    assert found[0] == found[1] != found[2]
    assert found[0].isalnum() and "one" not in found[0]
    file.write_text(json.dumps({"url": "ws://a", "attempt": "0123"}))
    assert name_attempt(file) == "0123"
    file.write_text("{}")
    with pytest.raises(UsageError, match="cannot be read"):
        name_attempt(file)


def test_a_reserved_port_belongs_to_its_server_only() -> None:
    with reserve_port() as held:
        port = held.getsockname()[1]
        with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.1", port))
        # Servers of torch and TensorFlow allow that an address is used again.
        with socket.create_server(("127.0.0.1", port)) as server, socket.create_connection(server.getsockname()):
            server.accept()[0].close()


def test_the_store_of_torch_gets_the_reserved_port() -> None:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    with reserve_port() as held:
        for _ in range(2):
            store = TCPStore("127.0.0.1", held.getsockname()[1], 1, is_master=True)
            store.set("a", "b")
            assert store.get("a") == b"b"
            del store


def test_variables() -> None:
    seat = Seat(1, ("127.0.0.1:4000", "127.0.0.1:4001", "127.0.0.1:4002"))
    found = variables_of_gang(seat, for_tensorflow=False)
    assert found == {
        "WMLA_NWORKER": "3",
        "WMLA_WORKER_NDEVICE": "1",
        "NODE_RANK": "1",
        "RANK": "1",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "3",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "4000",
    }
    config = variables_of_gang(seat, for_tensorflow=True)["TF_CONFIG"]
    assert json.loads(config) == {"cluster": {"worker": list(seat.addresses)}, "task": {"type": "worker", "index": 1}}
