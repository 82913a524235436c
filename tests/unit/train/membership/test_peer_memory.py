"""Memory of another process, read where it lies: what arrives, and when it must not be believed."""

from __future__ import annotations

import datetime
import errno
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.unit.train.ranks import run_ranks

from legato.core.errors import BrokenView
from legato.train.membership import peer_memory
from legato.train.membership.connection import can_read_peers
from legato.train.membership.peer_memory import Loan, UnreadableLoan, borrow

NOW = datetime.timedelta()


def in_child(body: Callable[[], bool]) -> bool:
    """Run ``body`` in a child process; returns what it returned."""
    child = os.fork()
    if child == 0:
        code = 2
        try:
            code = 0 if body() else 1
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 1)
    return code == 0


def nothing() -> None:
    pass


@pytest.mark.parametrize("max_pieces", [1024, 2])
@pytest.mark.parametrize("chunk_bytes", [8 * 2**20, 64])
def test_all_bytes_arrive(monkeypatch: pytest.MonkeyPatch, chunk_bytes: int, max_pieces: int) -> None:
    monkeypatch.setattr(peer_memory, "_CHUNK_BYTES", chunk_bytes)
    monkeypatch.setattr(peer_memory, "_MAX_PIECES", max_pieces)
    have = [torch.randn(7, 3), torch.tensor(5), torch.zeros(0), torch.randn(40).bfloat16(), torch.randn(4, 4).t()]
    loan = Loan(have)
    targets = [torch.full(tensor.shape, 1, dtype=tensor.dtype) for tensor in have]
    # What it reads is the parent's: its own copy is wiped first.
    description = loan.describe()

    def read() -> bool:
        expected = [tensor.clone() for tensor in have]
        for tensor in have:
            tensor.zero_()
        chunks: list[None] = []
        borrow(description, targets, lambda: chunks.append(None))
        return bool(chunks) and all(map(torch.equal, targets, expected))

    assert in_child(read)


def test_a_loan_that_ended_meanwhile_is_not_believed() -> None:
    loan = Loan([torch.ones(4)])
    borrow(loan.describe(), [torch.zeros(4)], nothing)
    with pytest.raises(BrokenView, match="changed its state"):
        borrow(loan.describe(), [torch.zeros(4)], lambda: loan.wait(NOW))


def test_a_loan_that_ends_while_it_is_read_is_no_reason_never_to_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    loan = Loan([torch.ones(4)])
    read = peer_memory._read

    def end_and_fail(*pieces: Any) -> None:
        if not ended:
            ended.append(loan.wait(NOW))
            raise OSError(errno.EFAULT, "Bad address")
        read(*pieces)

    ended: list[None] = []
    monkeypatch.setattr(peer_memory, "_read", end_and_fail)
    with pytest.raises(BrokenView) as caught:
        borrow(loan.describe(), [torch.zeros(4)], nothing)
    assert not isinstance(caught.value, UnreadableLoan)


@pytest.mark.parametrize("number", [errno.EPERM, errno.EFAULT])
def test_a_loan_that_cannot_be_read_is_distinguished_from_one_that_ended(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    loan = Loan([torch.ones(4)])
    read = peer_memory._read

    def fail(pid: int, local: Any, remote: Any) -> None:
        if number == errno.EPERM or remote[0][0] != loan.describe()["mark_at"]:
            raise OSError(number, os.strerror(number))
        read(pid, local, remote)

    monkeypatch.setattr(peer_memory, "_read", fail)
    with pytest.raises(UnreadableLoan, match="cannot be read"):
        borrow(loan.describe(), [torch.zeros(4)], nothing)


def test_a_lender_that_died_is_a_broken_view() -> None:
    child = os.fork()
    if child == 0:
        signal.pause()
    description = Loan([torch.ones(4)]).describe() | {"pid": child}
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with pytest.raises(BrokenView, match="cannot be read") as caught:
        borrow(description, [torch.zeros(4)], nothing)
    assert not isinstance(caught.value, UnreadableLoan)


def test_memory_that_is_not_there_is_a_broken_view() -> None:
    description = Loan([torch.ones(4)]).describe() | {"parts": [(4096, 16)]}
    with pytest.raises(BrokenView, match="cannot be read"):
        borrow(description, [torch.zeros(4)], nothing)


def test_members_try_it_on_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_ranks(3, can_read_peers) == [True] * 3
    assert run_ranks(1, can_read_peers) == [False]
    monkeypatch.setattr(os, "getpid", lambda: 1)  # as in another container: the number means another process there
    assert run_ranks(2, can_read_peers) == [False] * 2


def test_if_one_member_cannot_no_member_does(monkeypatch: pytest.MonkeyPatch) -> None:
    first = iter([False])
    monkeypatch.setattr(peer_memory, "_let_peers_read", lambda: next(first, True))
    assert run_ranks(3, can_read_peers) == [False] * 3


def test_if_one_member_has_found_that_it_cannot_no_member_does() -> None:
    assert run_ranks(3, lambda group: can_read_peers(group, may_try=group.rank != 1)) == [False] * 3
