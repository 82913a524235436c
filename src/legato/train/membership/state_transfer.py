"""The state of a job as a tree of tensors and plain values, and its transfer to joining workers.

A tree is split into a *skeleton* (plain values, with a marker for each tensor) and its tensors. The skeleton is sent in
one piece. The tensors are one range of bytes: every source sends a share of it, so that their bandwidths add up; or, on
one machine, the first source lends it and the joiner reads it. Knows nothing of what the tensors mean.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import torch

from legato.core.span import split
from legato.train.checkpoints.checkpoint import refuse_unreadable
from legato.train.membership.groups import Group, Pending, Work
from legato.train.membership.peer_memory import Loan, borrow
from legato.train.process import faults
from legato.train.state.serialization import MAPPINGS

_MARK: Final = "__legato_tensor__"
_CHUNK_BYTES: Final = 8 * 2**20
_LENGTH_TAG, _SKELETON_TAG, _TENSOR_TAG, _THANKS_TAG = 1000, 1001, 1002, 1003


class TensorSpec(NamedTuple):
    """What a receiver must know of a tensor before the tensor arrives.

    Args:
        shape: of the tensor.
        stride: in elements, without gaps.
        dtype: of the tensor.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    def empty(self) -> torch.Tensor:
        """Return an uninitialised tensor of this kind on the CPU."""
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype)

    def is_met_by(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor has this shape, dtype and order in memory."""
        if tensor.shape != self.shape or tensor.dtype != self.dtype:
            return False
        return lies_alike(tensor, self.empty())


def layout_of(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return the strides with which a copy of a tensor keeps its order in memory, without gaps."""
    return torch.empty_like(tensor, device="meta").stride()


def lies_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors of the same shape have their elements in the same order in memory.

    The stride of a dimension with one element counts as well: no element depends on it, but torch's choice of kernels
    does.
    """
    return layout_of(one) == layout_of(other)


def take_apart(tree: Any) -> tuple[Any, list[torch.Tensor]]:
    """Split a tree of plain values into its skeleton and its tensors, in a fixed order."""
    tensors: list[torch.Tensor] = []

    def walk(node: Any) -> Any:
        if isinstance(node, torch.Tensor):
            tensors.append(node.detach())
            dtype = str(node.dtype).removeprefix("torch.")
            mark = len(tensors) - 1
            return {_MARK: mark, "shape": list(node.shape), "stride": list(layout_of(node)), "dtype": dtype}
        kind = type(node)
        if kind in MAPPINGS:
            return kind({key: walk(value) for key, value in node.items()})
        if kind in (list, tuple):
            return kind(walk(value) for value in node)
        return node

    return walk(tree), tensors


def put_together(skeleton: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """Undo `take_apart`."""

    def walk(node: Any) -> Any:
        kind = type(node)
        if kind in MAPPINGS:
            if _MARK in node:
                return tensors[node[_MARK]]
            return kind({key: walk(value) for key, value in node.items()})
        if kind in (list, tuple):
            return kind(walk(value) for value in node)
        return node

    return walk(skeleton)


def aligned(skeleton: Any, own: Any) -> dict[int, torch.Tensor]:
    """Return the tensors of a tree at the places where a skeleton has one, by their numbers in the skeleton.

    The trees may differ: a buffer may be None in one and a tensor in the other.
    """
    found: dict[int, torch.Tensor] = {}

    def walk(node: Any, mine: Any) -> None:
        if isinstance(node, dict) and _MARK in node:
            if isinstance(mine, torch.Tensor):
                found[node[_MARK]] = mine.detach()
        elif isinstance(node, dict) and isinstance(mine, dict):
            for key in node.keys() & mine.keys():
                walk(node[key], mine[key])
        elif isinstance(node, list | tuple) and isinstance(mine, list | tuple):
            for part, other in zip(node, mine, strict=False):
                walk(part, other)

    walk(skeleton, own)
    return found


def specs(skeleton: Any) -> list[TensorSpec]:
    """Return the specs of a skeleton's tensors, in their order."""
    found: dict[int, TensorSpec] = {}

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            if _MARK in node:
                dtype = getattr(torch, node["dtype"])
                found[node[_MARK]] = TensorSpec(tuple(node["shape"]), tuple(node["stride"]), dtype)
                return
            for value in node.values():
                walk(value)
        elif isinstance(node, list | tuple):
            for value in node:
                walk(value)

    walk(skeleton)
    return [found[index] for index in range(len(found))]


def rehearse() -> None:
    """Run the code of a transfer with a small tree, so that it is loaded before other ranks wait for a real one."""
    tree = [torch.zeros(1)]
    skeleton, _ = take_apart(tree)
    skeleton = decode(encode(skeleton))
    own = aligned(skeleton, tree)
    put_together(skeleton, [own[index] for index, spec in enumerate(specs(skeleton)) if spec.is_met_by(own[index])])


def encode(skeleton: Any) -> bytes:
    """Encode a skeleton.

    Raises:
        CheckpointError: the skeleton holds an object that cannot be read back safely.
    """
    refuse_unreadable(skeleton)
    buffer = io.BytesIO()
    torch.save(skeleton, buffer)
    return buffer.getvalue()


def decode(encoded: bytes) -> Any:
    """Decode a skeleton; nothing in it is executed."""
    return torch.load(io.BytesIO(encoded), weights_only=True)


def send_bytes(group: Group, peers: Sequence[int], payload: bytes) -> list[Work]:
    """Start to send bytes to some peers; pass the returned operations to ``group.finish``."""
    length = torch.tensor([len(payload)], dtype=torch.int64)
    body = torch.frombuffer(bytearray(payload), dtype=torch.uint8)
    parts = ((length, _LENGTH_TAG), (body, _SKELETON_TAG))
    return group.start_all(group.send(part, peer, tag) for peer in peers for part, tag in parts)


def receive_bytes(group: Group, peer: int) -> bytes:
    """Receive what `send_bytes` sent."""
    length = torch.empty(1, dtype=torch.int64)
    group.finish([group.receive(length, peer, _LENGTH_TAG)])
    body = torch.empty(int(length), dtype=torch.uint8)
    group.finish([group.receive(body, peer, _SKELETON_TAG)])
    return bytes(body.numpy())


class TransferHeader(NamedTuple):
    """What a joiner receives before the tensors.

    Args:
        skeleton: of the state.
        loan: where the tensors can be read; None: every source sends its share of them.
        refusal: why the state cannot be sent; nothing follows then. Empty if it can be sent.
    """

    skeleton: Any
    loan: dict[str, Any] | None
    refusal: str = ""


def send_tree(group: Group, sources: Sequence[int], joiners: Sequence[int], tree: Any) -> list[Pending]:
    """Start to send a state to the joiners; all sources call this together; any other rank sends nothing.

    The tree must not change until ``group.finish`` has returned for the result.

    Raises:
        BrokenView: a peer is gone; all operations and loans of this call have ended.
    """
    if group.rank not in sources:
        return []
    skeleton, tensors = take_apart(tree)
    is_first = group.rank == sources[0]
    loan = Loan(tensors) if is_first and group.reads_peers else None
    lent: list[Pending] = [] if loan is None else [loan]
    pending: list[Pending] = []
    try:
        if is_first:
            header = TransferHeader(skeleton, loan.describe() if loan is not None else None)
            pending += send_bytes(group, joiners, encode(header._asdict()))
        faults.strike("transfer")
        if loan is not None:
            pending += await_thanks(group, joiners)
        elif not group.reads_peers:
            pending += send_share(group, sources, joiners, tensors)
    except BaseException:
        group.give_up([*pending, *lent])
        raise
    return [*pending, *lent]


def send_refusal(group: Group, sources: Sequence[int], joiners: Sequence[int], reason: str) -> list[Work]:
    """Start to tell the joiners that they will get no state, and why; any rank but the first source sends nothing.

    Raises:
        BrokenView: a peer is gone; all operations of this call have ended.
    """
    if group.rank != sources[0]:
        return []
    return send_bytes(group, joiners, encode(TransferHeader(None, None, reason)._asdict()))


def receive_header(group: Group, source: int) -> TransferHeader:
    """Receive the first message of `send_tree`, or the only one of `send_refusal`."""
    return TransferHeader(**decode(receive_bytes(group, source)))


def receive_tree(group: Group, sources: Sequence[int], header: TransferHeader, own: Mapping[int, torch.Tensor]) -> Any:
    """Receive the state that `send_tree` sends.

    Args:
        group: of the view.
        sources: ranks that have the state.
        header: from the first source.
        own: tensors of this rank, by their numbers in the header's skeleton; those that fit receive the values in
            place.

    Raises:
        BrokenView: a source is gone; the values in ``own`` are undefined then.
    """
    targets = []
    for index, spec in enumerate(specs(header.skeleton)):
        mine = own.get(index)
        targets.append(mine if mine is not None and spec.is_met_by(mine) else spec.empty())
    if header.loan is not None:
        receive_loan(group, sources[0], header.loan, targets, lambda: faults.strike("transfer"))
    else:
        receive_shares(group, sources, targets, lambda: faults.strike("transfer"))
    return put_together(header.skeleton, targets)


def send_share(
    group: Group, sources: Sequence[int], joiners: Sequence[int], tensors: Sequence[torch.Tensor]
) -> list[Work]:
    """Start to send this rank's share of the tensors to every joiner.

    The tensors must not change until ``group.finish`` has returned for the returned operations.
    """

    def start() -> Iterator[Work]:
        for chunk in _chunks(tensors, len(sources), sources.index(group.rank)):
            pieces = [_bytes_of(tensors[index])[start:stop] for index, start, stop in chunk]
            body = pieces[0] if len(pieces) == 1 else torch.cat(pieces)
            yield from (group.send(body, peer, _TENSOR_TAG) for peer in joiners)

    return group.start_all(start())


def receive_shares(
    group: Group, sources: Sequence[int], tensors: Sequence[torch.Tensor], on_chunk: Callable[[], None]
) -> None:
    """Receive all tensors, in place, from all sources at once.

    Raises:
        BrokenView: a source is gone; the values of the tensors are undefined then.
    """
    with _on_host(tensors) as hosts:
        streams = [_chunks(hosts, len(sources), share) for share in range(len(sources))]
        arriving: list[tuple[Work, torch.Tensor, list[tuple[int, int, int]]]] = []
        for source, stream in zip(sources, streams, strict=True):
            for chunk in stream:
                if len(chunk) == 1:
                    index, start, stop = chunk[0]
                    body = _bytes_of(hosts[index])[start:stop]
                else:
                    body = torch.empty(sum(stop - start for _, start, stop in chunk), dtype=torch.uint8)
                arriving.append((group.receive(body, source, _TENSOR_TAG), body, chunk))
        for work, body, chunk in arriving:
            group.finish([work])
            on_chunk()
            if len(chunk) > 1:
                offset = 0
                for index, start, stop in chunk:
                    _bytes_of(hosts[index])[start:stop].copy_(body[offset : offset + stop - start])
                    offset += stop - start


def await_thanks(group: Group, joiners: Sequence[int]) -> list[Work]:
    """Start to wait for the message of every joiner that it has read the loan."""
    return group.start_all(group.receive(torch.empty(1, dtype=torch.uint8), peer, _THANKS_TAG) for peer in joiners)


def receive_loan(
    group: Group, source: int, loan: dict[str, Any], tensors: Sequence[torch.Tensor], on_chunk: Callable[[], None]
) -> None:
    """Read all tensors, in place, from the memory of a source on this machine, and confirm it.

    Raises:
        BrokenView: the source is gone, or continues without this rank; the values of the tensors are undefined then.
    """
    with _on_host(tensors) as hosts:
        borrow(loan, hosts, on_chunk)
        group.finish([group.send(torch.ones(1, dtype=torch.uint8), source, _THANKS_TAG)])


@contextmanager
def _on_host(tensors: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Give contiguous CPU memory for each tensor, its own if possible; at the end copy what was written there back."""
    hosts = [
        tensor
        if tensor.device.type == "cpu" and tensor.is_contiguous()
        else torch.empty(tensor.shape, dtype=tensor.dtype)
        for tensor in tensors
    ]
    yield hosts
    for host, tensor in zip(hosts, tensors, strict=True):
        if host is not tensor:
            tensor.copy_(host)


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().resolve_conj().resolve_neg().contiguous().cpu().reshape(-1).view(torch.uint8)


def _chunks(tensors: Sequence[torch.Tensor], num_shares: int, share: int) -> Iterator[list[tuple[int, int, int]]]:
    """Yield one share's chunks: pieces ``(tensor, first byte, last byte + 1)``, ``_CHUNK_BYTES`` at most together."""
    sizes = [tensor.numel() * tensor.element_size() for tensor in tensors]
    bounds = split(sum(sizes), num_shares)[share]
    chunk: list[tuple[int, int, int]] = []
    room = _CHUNK_BYTES
    begin = 0
    for index, size in enumerate(sizes):
        start, stop = max(bounds.start - begin, 0), min(bounds.stop - begin, size)
        begin += size
        while start < stop:
            taken = min(stop - start, room)
            chunk.append((index, start, start + taken))
            start += taken
            room -= taken
            if room == 0:
                yield chunk
                chunk, room = [], _CHUNK_BYTES
    if chunk:
        yield chunk
