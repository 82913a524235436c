"""Groups: what frees a rank whose peer hangs."""

from __future__ import annotations

import contextlib
import datetime
import functools
import gc
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from tests import fork_server
from tests.unit.train.ranks import run_ranks, run_threads
from torch.distributed import TCPStore

from legato.core.errors import BrokenView
from legato.core.view import Member, View
from legato.train import torch_private
from legato.train.membership import groups, store_clients
from legato.train.membership.groups import Group, build
from legato.train.membership.view_secret import ViewSecret

PEER = """
    import sys, torch
    from legato.core.view import Member, View
    from legato.train.membership.groups import build
    view = View(1, (Member(0, "127.0.0.1"), Member(1, "127.0.0.1")), sys.argv[1])
    group = build(view, 1, "test", torch.device("cpu"))
    group.barrier()
    work = group.receive(torch.empty(2**26), 0, 1)
    print("here", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("way", ["gloo", "half sent", "barrier"])
def test_break_connections_frees_a_rank_whose_peer_is_stopped(way: str) -> None:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    where = f"127.0.0.1:{store.port}"
    view = View(1, (Member(0, "127.0.0.1"), Member(1, "127.0.0.1")), where)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    peer = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PEER), where],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert peer.stdin and peer.stdout
        group = build(view, 0, "test", torch.device("cpu"))
        group.barrier()
        assert b"here\n" in iter(peer.stdout.readline, b"")  # gloo of torch 2.8 prints lines of its own
        peer.send_signal(signal.SIGSTOP)
        outcome: list[BaseException] = []

        def wait_for_the_peer() -> None:
            try:
                if way == "gloo":
                    group.finish([group.receive(torch.empty(4), 1, 0)])
                elif way == "half sent":
                    # More than the buffers of the sockets take: gloo forgets it when the connection ends.
                    group.finish([group.send(torch.empty(2**26), 1, 1)])
                else:
                    group.barrier()
            except BrokenView as error:
                outcome.append(error)

        waiting = threading.Thread(target=wait_for_the_peer, daemon=True)
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive(), "nothing can have come from a stopped peer"
        begun = time.monotonic()
        group.break_connections()
        waiting.join(10)
        assert not waiting.is_alive()
        assert time.monotonic() - begun < 2
        assert isinstance(outcome[0], BrokenView)
        group.break_connections()
        group.drop()
    finally:
        peer.send_signal(signal.SIGCONT)
        peer.kill()
        peer.communicate()


SENDER = """
    import os, signal, sys, torch
    from legato.core.view import Member, View
    from legato.train.membership.groups import build
    view = View(1, (Member(0, "127.0.0.1"), Member(1, "127.0.0.1")), sys.argv[1])
    group = build(view, 1, "test", torch.device("cpu"))
    work = group.send(torch.ones(2**26), 0, 0)
    sys.stdin.read()
"""


def test_a_peer_that_dies_in_the_middle_of_a_message_is_found_without_a_report() -> None:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    where = f"127.0.0.1:{store.port}"
    view = View(1, (Member(0, "127.0.0.1"), Member(1, "127.0.0.1")), where)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    peer = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SENDER), where], env=environment, stdin=subprocess.PIPE
    )
    try:
        group = build(view, 0, "test", torch.device("cpu"))
        arriving = torch.zeros(2**26)
        work = group.receive(arriving, 1, 0)
        while not arriving[0]:
            pass
        peer.kill()
        if not arriving[-1]:
            with pytest.raises(BrokenView):
                group.finish([work])
            assert group.is_broken
        group.drop()
    finally:
        peer.kill()
        peer.communicate()


def test_groups_that_break_while_a_rank_waits_leave_no_descriptor_open() -> None:
    def break_it(group: Group) -> bool:
        group.barrier()
        breaking = threading.Timer(0.05, group.break_connections)
        if group.rank == 0:
            breaking.start()
        with pytest.raises(BrokenView):
            group.finish([group.receive(torch.empty(4), 1 - group.rank, 0)])
        return group._break_state.has_lost_works

    def num_open() -> int:
        return len(os.listdir("/proc/self/fd"))

    gc.collect()
    run_ranks(2, break_it)
    gc.disable()
    try:
        before, deadline = num_open(), time.monotonic() + 10
        assert not any(run_ranks(2, break_it)[0] for _ in range(5)), "nothing was sent, so gloo forgets nothing"
        # They are ended beside this thread.
        while num_open() > before and time.monotonic() < deadline:
            time.sleep(0.05)
        assert num_open() <= before
    finally:
        gc.enable()


def test_a_program_that_begins_to_listen_at_the_same_moment_is_not_taken_for_the_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create_device = torch.distributed.ProcessGroupGloo.create_device
    opened: list[socket.socket] = []

    def create_beside_others(hostname: str) -> Any:
        if len(opened) < 3:
            opened.append(socket.create_server(("127.0.0.1", 0)))
        return create_device(hostname=hostname)

    monkeypatch.setattr(torch.distributed.ProcessGroupGloo, "create_device", create_beside_others)

    def play(group: Group) -> bool:
        group.barrier()
        assert group._own_port not in {0, *(listener.getsockname()[1] for listener in opened)}
        return True

    try:
        assert run_ranks(2, play) == [True, True]
        assert len(opened) == 3
    finally:
        for listener in opened:
            listener.close()


def test_a_rank_that_breaks_its_group_frees_all_others() -> None:
    def play(group: Group) -> bool:
        group.barrier()
        if group.rank == 1:
            group.break_connections()
            return True
        with pytest.raises(BrokenView):
            group.finish([group.receive(torch.empty(4), 1, 0)])
        return True

    assert run_ranks(3, play) == [True] * 3


def test_each_worker_sends_to_all_others() -> None:
    def play(group: Group) -> list[float]:
        mine = torch.full((3,), float(group.rank))
        theirs = [torch.empty(3) for _ in range(group.size)]
        theirs[group.rank] = mine
        group.all_gather(mine, theirs)
        return [float(tensor.sum()) for tensor in theirs]

    assert run_ranks(4, play) == [[0.0, 3.0, 6.0, 9.0]] * 4


def test_a_program_that_ends_right_after_a_view_ends_with_0(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("from tests.unit.train.ranks import run_ranks\nrun_ranks(3, lambda group: group.barrier())\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    for _ in range(3):
        done = fork_server.run([sys.executable, str(program)], env=environment, timeout=100)
        assert done.returncode == 0, done.stderr


def test_one_thread_ends_groups_however_many_are_built_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    come = threading.Barrier(2)

    class SlowThread:
        """Takes as long to make as it takes another build to come here, if any does."""

        def __init__(self, **_: object) -> None:
            with contextlib.suppress(threading.BrokenBarrierError):
                come.wait(0.2)

        def start(self) -> None:
            started.append(self)

        def join(self, limit_s: float) -> None:
            pass

    real = threading.Thread
    monkeypatch.setattr(groups, "_start_dropping", functools.cache(groups._start_dropping.__wrapped__))
    monkeypatch.setattr(groups.threading, "Thread", SlowThread)
    alone = View(0, (Member(0, "127.0.0.1"),), "")
    builds = [real(target=build, args=(alone, 0, "test", torch.device("cpu"))) for _ in range(2)]
    for thread in builds:
        thread.start()
    for thread in builds:
        thread.join()
    assert len(started) == 1


def test_collectives_wait_for_a_peer_that_comes_late_for_as_long_as_the_driver_lets_them() -> None:
    def limit_of(group: Group) -> float:
        group.all_reduce(torch.ones(4))
        group.barrier()
        return float(group._process_group.options._timeout.total_seconds())

    assert min(run_ranks(2, limit_of)) > 365 * 24 * 3600


def of_job(num_members: int, port: int, *, proves: bool = True) -> View:
    members = [Member(rank, "127.0.0.1", proves=proves or rank > 0) for rank in range(num_members)]
    return View(1, tuple(members), f"127.0.0.1:{port}")


def connect_all(view: View, secrets: list[str]) -> list[Group]:
    cpu = torch.device("cpu")
    return run_threads(
        [lambda rank=rank: build(view, rank, "job", cpu, secrets[rank]) for rank in range(len(secrets))]  # type: ignore[misc]
    )


def drop_all(connected: list[Group]) -> None:
    for group in connected:
        group.break_connections()
        group.drop()


def test_members_of_an_earlier_release_still_connect() -> None:
    """One of them cannot prove anything, so none needs to."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    connected = connect_all(of_job(2, store.port, proves=False), ["", "secret"])
    run_threads([group.barrier for group in connected])
    drop_all(connected)


def test_later_views_use_the_connections_to_the_store_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """To connect takes a lookup of a name, which takes seconds where the DNS server does not answer."""
    opened = []
    make_store = torch_private.make_store

    def count(address: str, port: int, limit: datetime.timedelta) -> Any:
        opened.append(port)
        return make_store(address, port, limit)

    monkeypatch.setattr(torch_private, "make_store", count)
    first = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    for number in (1, 2, 3):
        drop_all(connect_all(msgspec.structs.replace(of_job(2, first.port), number=number), ["secret"] * 2))
    assert opened == [first.port] * 2
    second = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    drop_all(connect_all(of_job(2, second.port), ["secret"] * 2))
    assert opened == [first.port] * 2 + [second.port] * 2


def test_a_connection_to_a_store_that_has_ended_is_not_used_again() -> None:
    ended = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    port = ended.port
    drop_all(connect_all(of_job(2, port), ["secret"] * 2))
    assert store_clients._idle
    del ended
    store = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    drop_all(connect_all(of_job(2, port), ["secret"] * 2))
    del store


def test_a_process_with_another_secret_joins_no_view(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "_BUILD_LIMIT_S", 0.5)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with pytest.raises(BrokenView, match=r"does not come from a worker of this job|it has not connected"):
        connect_all(of_job(2, store.port), ["secret", "another"])


def test_a_stranger_that_writes_into_the_store_redirects_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "_BUILD_LIMIT_S", 0.5)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with socket.create_server(("127.0.0.1", 0)) as trap:
        port = trap.getsockname()[1]
        for key, value in {"listens/0": f"127.0.0.1 {port}", "mesh/0": f"{port}", "0/0": os.urandom(186)}.items():
            torch_private.prefixed("job/1", store).set(key, value)
        with pytest.raises(BrokenView, match="does not come from a worker of this job"):
            build(of_job(2, store.port), 1, "job", torch.device("cpu"), "secret")
        trap.setblocking(False)
        with pytest.raises(BlockingIOError):
            trap.accept()


def test_strangers_at_the_port_of_gloo_do_not_stop_a_view(monkeypatch: pytest.MonkeyPatch) -> None:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    listen = groups._listen
    with contextlib.ExitStack() as strangers:

        def be_found(host: str) -> tuple[Any, int]:
            device, port = listen(host)
            for content in (b"", b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096)):
                stranger = strangers.enter_context(socket.create_connection((host, port)))
                stranger.sendall(content)
            return device, port

        monkeypatch.setattr(groups, "_listen", be_found)
        connected = connect_all(of_job(3, store.port), ["secret"] * 3)
        run_threads([lambda group=group: group.all_reduce(torch.ones(4)) for group in connected])  # type: ignore[misc]
        drop_all(connected)


@pytest.mark.parametrize("proves", [True, False])
def test_no_stranger_connects_to_gloo_once_a_view_is_connected(*, proves: bool) -> None:
    """Gloo would keep a descriptor of each, and end the process when there are no more."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    connected = connect_all(of_job(3, store.port, proves=proves), ["secret"] * 3)
    with contextlib.ExitStack() as strangers:
        for group in connected:
            stranger = strangers.enter_context(socket.socket())
            stranger.setblocking(False)
            # On this machine, a listening socket takes a connection before the call returns.
            stranger.connect_ex(("127.0.0.1", group._own_port))
            with pytest.raises(OSError, match="not connected"):
                stranger.getpeername()
        run_threads([lambda group=group: group.all_reduce(torch.ones(2**20)) for group in connected])  # type: ignore[misc]
    drop_all(connected)


def test_a_process_that_takes_a_place_in_gloo_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 1 has met its peer on the control sockets; but gloo's connection ends in a process without the secret."""
    prove = groups._prove_gloo

    def prove_with_another(group: Group, secret: ViewSecret, *others: Any) -> None:
        prove(group, ViewSecret("another", "job", 1) if group.rank == 1 else secret, *others)

    monkeypatch.setattr(groups, "_prove_gloo", prove_with_another)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with pytest.raises(BrokenView, match=r"gloo's connection to rank [01] ends in a process that does not belong"):
        connect_all(of_job(2, store.port), ["secret"] * 2)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_group_listens_on_the_address_of_its_worker_only(host: str) -> None:
    listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    port = listener.getsockname()[1]
    store = TCPStore(host, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
    view = View(1, tuple(Member(rank, host, proves=True) for rank in range(2)), f"{host}:{port}")
    before = listening()
    connected = connect_all(view, ["secret"] * 2)
    run_threads([group.barrier for group in connected])
    assert {address for inode, address in listening().items() if inode not in before} == {host}
    drop_all(connected)
    del store


def listening() -> dict[int, str]:
    """The addresses at which this process listens, by the inode of the socket."""
    found = {}
    for descriptor in groups._socket_descriptors():
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as one:
            if one.family in (socket.AF_INET, socket.AF_INET6) and one.getsockopt(
                socket.SOL_SOCKET, socket.SO_ACCEPTCONN
            ):
                found[os.fstat(one.fileno()).st_ino] = one.getsockname()[0]
    return found


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "[/__w/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:4711. This is a guess. Look.",
            "Connection closed by peer [10.0.0.2]:4711",
        ),
        (
            "[../gloo/transport/tcp/pair.cc:534] Read error [10.0.0.2]:4711: No route\nmore",
            "Read error [10.0.0.2]:4711: No route",
        ),
        ("it is gone. So is the other", "it is gone. So is the other"),
        ("", "RuntimeError"),
    ],
)
def test_errors_of_gloo_lose_their_place_in_the_source_and_the_guess_at_the_cause(said: str, told: str) -> None:
    assert groups._first_line(RuntimeError(said)) == told
