"""Several ranks in one process: real groups over the loopback interface, one thread each."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch.distributed import TCPStore

from legato.core.view import Member, View
from legato.train.membership.groups import Group, build

T = TypeVar("T")
LIMIT_S = 60.0
MAX_DESCRIPTORS = 200
"""More are open: garbage collection closes the connections of ended groups, which are parts of cycles."""


def run_ranks(num_ranks: int, body: Callable[[Group], T], nodes: Sequence[str] | None = None) -> list[T]:
    """Connect so many ranks, let each run ``body(group)`` in its thread, and return what they returned, by rank.

    Args:
        num_ranks: number of ranks.
        body: what each rank runs.
        nodes: the nonce of each rank's node; None: no rank has one.
    """
    if len(os.listdir("/proc/self/fd")) > MAX_DESCRIPTORS:
        gc.collect()
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    nonces = [""] * num_ranks if nodes is None else nodes
    members = tuple(Member(rank, "127.0.0.1", nonce, proves=True) for rank, nonce in enumerate(nonces))
    view = View(1, members, f"127.0.0.1:{store.port}")

    def play(rank: int) -> T:
        group = build(view, rank, "test", torch.device("cpu"), "secret of the test")
        try:
            return body(group)
        finally:
            group.drop()

    return run_threads([lambda rank=rank: play(rank) for rank in range(num_ranks)])  # type: ignore[misc]


def run_threads(bodies: Sequence[Callable[[], T]]) -> list[T]:
    """Run functions beside each other; raise what one of them raised."""
    results: dict[int, T] = {}
    errors: list[BaseException] = []

    def run(index: int) -> None:
        try:
            results[index] = bodies[index]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    if errors:
        raise errors[0]
    assert len(results) == len(bodies), "a rank waits forever"
    return [results[index] for index in range(len(bodies))]
