"""Reads memory of another process on this machine: with one copy, and without work of that process.

The owner *lends* tensors and continues; a peer *borrows* them: it reads them by the system call for that. A loan has a
mark in the owner's memory, which the owner erases when the loan ends. A reader that finds the mark after reading knows
that nothing had changed before. Knows nothing of what the tensors mean. Only processes that have tested it on each
other use it (`can_read_each_other`).
"""

from __future__ import annotations

import ctypes
import datetime
import errno
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch

from legato.core.errors import BrokenView

_MARK_BYTES: Final = 16
_CHUNK_BYTES: Final = 8 * 2**20
_MAX_PIECES: Final = 1024
_PR_SET_PTRACER: Final = 0x59616D61
_libc: Final = ctypes.CDLL(None, use_errno=True)


class _Piece(ctypes.Structure):
    _fields_ = (("address", ctypes.c_void_p), ("num_bytes", ctypes.c_size_t))


class UnreadableLoan(BrokenView):
    """A loan is valid, but this process cannot read it; it does not try to read its peers' memory again."""


class Loan:
    """Tensors that peers may read until the loan ends.

    Args:
        tensors: must not change until then.
    """

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._parts = [_bytes_of(tensor) for tensor in tensors]
        self._mark = torch.frombuffer(bytearray(secrets.token_bytes(_MARK_BYTES)), dtype=torch.uint8)

    def describe(self) -> dict[str, Any]:
        """Return, as plain values, what a peer needs to read the tensors."""
        return {
            "pid": os.getpid(),
            "mark": bytes(self._mark.tolist()).hex(),
            "mark_at": self._mark.data_ptr(),
            "parts": [(part.data_ptr(), part.numel()) for part in self._parts],
        }

    def wait(self, limit: datetime.timedelta) -> None:  # noqa: ARG002 -- as `groups.Pending` has it
        """End the loan, even if peers still read."""
        self._mark.zero_()
        self._parts.clear()


def can_read_each_other(all_gather: Callable[[str], list[str]], rank: int, *, may_try: bool = True) -> bool:
    """Find out whether all members of a view can read each other's memory. All call this together.

    Args:
        all_gather: sends a short text to every rank and returns the texts of all ranks, in rank order.
        rank: of this member.
        may_try: False: this member has found before that it cannot read its peers.
    """
    mark = torch.frombuffer(bytearray(secrets.token_bytes(_MARK_BYTES)), dtype=torch.uint8)
    is_able = may_try and _let_peers_read()
    told = all_gather(f"{os.getpid()} {mark.data_ptr()} {bytes(mark.tolist()).hex()}" if is_able else "")
    readable = all(told) and all(_has_mark(*text.split()) for peer, text in enumerate(told) if peer != rank)
    return all(all_gather("yes" if readable else ""))


def borrow(loan: dict[str, Any], targets: Sequence[torch.Tensor], on_chunk: Callable[[], None]) -> None:
    """Read a loan into contiguous CPU tensors of the same shapes.

    Args:
        loan: the result of the owner's `Loan.describe`.
        targets: the tensors that receive the bytes.
        on_chunk: called after each chunk.

    Raises:
        BrokenView: the owner is gone or has ended the loan; the targets are worthless then.
        UnreadableLoan: this process is not allowed to read the memory, or it is memory that cannot be read so.
    """
    pid = loan["pid"]
    try:
        for local, remote in _chunks(targets, loan["parts"]):
            _read(pid, local, remote)
            on_chunk()
        is_whole = _has_mark(pid, loan["mark_at"], loan["mark"])
    except OSError as error:
        if error.errno == errno.EPERM or _has_mark(pid, loan["mark_at"], loan["mark"]):
            raise UnreadableLoan(f"the state that the process {pid} lent cannot be read: {error}") from error
        raise BrokenView(f"the process {pid} that lent its state cannot be read any more: {error}") from error
    if not is_whole:
        raise BrokenView(f"the process {pid} changed its state before it was read")


def _let_peers_read() -> bool:
    if not hasattr(_libc, "process_vm_readv"):
        return False
    # On systems where only ancestors of a process may read its memory by default, allow all processes of the same user,
    # as elsewhere.
    _libc.prctl(_PR_SET_PTRACER, ctypes.c_ulong(-1), 0, 0, 0)
    return True


def _has_mark(pid: int | str, address: int | str, mark: str) -> bool:
    found = torch.zeros(_MARK_BYTES, dtype=torch.uint8)
    try:
        _read(int(pid), [(found.data_ptr(), _MARK_BYTES)], [(int(address), _MARK_BYTES)])
    except OSError:
        return False
    return bytes(found.tolist()).hex() == mark


def _chunks(
    targets: Sequence[torch.Tensor], parts: Sequence[tuple[int, int]]
) -> Iterator[tuple[list[tuple[int, int]], list[tuple[int, int]]]]:
    """Yield what to read by one call: pieces ``(address, bytes)`` of this process and of the owner."""
    local: list[tuple[int, int]] = []
    remote: list[tuple[int, int]] = []
    room = _CHUNK_BYTES
    for target, (address, num_bytes) in zip(targets, parts, strict=True):
        done = 0
        while done < num_bytes:
            taken = min(num_bytes - done, room)
            local.append((target.data_ptr() + done, taken))
            remote.append((address + done, taken))
            done += taken
            room -= taken
            if room == 0 or len(local) == _MAX_PIECES:
                yield local, remote
                local, remote, room = [], [], _CHUNK_BYTES
    if local:
        yield local, remote


def _read(pid: int, local: Sequence[tuple[int, int]], remote: Sequence[tuple[int, int]]) -> None:
    wanted = sum(num_bytes for _, num_bytes in local)
    here = (_Piece * len(local))(*(_Piece(*piece) for piece in local))
    there = (_Piece * len(remote))(*(_Piece(*piece) for piece in remote))
    _libc.process_vm_readv.restype = ctypes.c_ssize_t
    got = _libc.process_vm_readv(
        ctypes.c_int(pid), here, ctypes.c_ulong(len(local)), there, ctypes.c_ulong(len(remote)), ctypes.c_ulong(0)
    )
    if got != wanted:
        number = ctypes.get_errno() if got < 0 else 0
        raise OSError(number, os.strerror(number) if number else f"only {got} of {wanted} bytes could be read")


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().resolve_conj().resolve_neg().contiguous().cpu().reshape(-1).view(torch.uint8)
