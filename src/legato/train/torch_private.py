"""Every use of torch's private API, with its reason and what happens on a torch that does not have it.

No other module names a private attribute or module of torch: a test checks that. So for a new version of torch only
this module has to be checked. Names without a leading underscore are here too if torch neither documents nor types
them.

Where the public API can do the same, more slowly, the functions here use it on a torch without the private one. Where
it cannot, they raise `ProgramError` with the versions of torch that Legato works with.
"""

from __future__ import annotations

import datetime
import functools
import math
import operator
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import context
from typing import Any, Final, TypeAlias

import torch
import torch.distributed
import torch.multiprocessing

from legato.core.errors import ProgramError

_distributed: Final[Any] = torch.distributed


def _part(owner: Any, name: str) -> Any:
    """Return a part of torch.

    Raises:
        ProgramError: this torch has no such part.
    """
    try:
        return getattr(owner, name)
    except AttributeError as error:
        place = getattr(owner, "__qualname__", None) or getattr(owner, "__name__", None) or type(owner).__qualname__
        raise ProgramError(
            f"torch {torch.__version__} has no {place}.{name}, which Legato needs. Legato works with torch 2.8 and "
            "later versions of torch 2: install one of these."
        ) from error


# ------------------------------------------------------------ process groups
#
# Why: a worker holds the groups of two views at once while it changes from one to the next, and gives up a broken one
# without the agreement of its peers. `torch.distributed.init_process_group` has one global group that all ranks must
# end together. If missing: ProgramError, because workers cannot be connected without them.


def make_store(address: str, port: int, limit: datetime.timedelta) -> Any:
    """Return a client of a key-value store through which the ranks of a view find each other.

    Args:
        address: of the machine that serves the store.
        port: of the store.
        limit: how long one wait may last.
    """
    return _part(_distributed, "TCPStore")(address, port, None, False, timeout=limit, wait_for_workers=False)


def prefixed(prefix: str, store: Any) -> Any:
    """Return a store whose keys all have a prefix in another store."""
    return _part(_distributed, "PrefixStore")(prefix, store)


def filtered(store: Any, write: Callable[[str, bytes], bytes], read: Callable[[str], bytes]) -> Any:
    """Return a store whose values pass through two functions; `make_gloo_group` accepts it.

    Why: gloo's addresses come from the store, and any process that reaches the store can write there. Torch documents
    stores, but not that process groups accept one that is written in Python. If missing: ProgramError.

    Args:
        store: has the values.
        write: receives key and value, and returns the value to write.
        read: receives a key, waits for its value, and returns what to read instead.
    """
    return _filtered_kind()(store, write, read)


@functools.cache
def _filtered_kind() -> Any:
    kind: Any = _part(_distributed, "Store")

    class Filtered(kind):  # type: ignore[misc]
        def __init__(self, store: Any, write: Callable[[str, bytes], bytes], read: Callable[[str], bytes]) -> None:
            super().__init__()
            self._store, self._write, self._read = store, write, read

        def set(self, key: str, value: str | bytes) -> None:
            self._store.set(key, self._write(key, value.encode() if isinstance(value, str) else bytes(value)))

        def get(self, key: str) -> bytes:
            return self._read(key)

        def wait(self, keys: Sequence[str], *_limit: datetime.timedelta) -> None:
            """Do nothing: `get` waits."""

    return Filtered


def listen_with_gloo(host: str) -> Any:
    """Return a device of gloo that listens on a free port of an address of this machine.

    Raises:
        RuntimeError: gloo cannot listen there.
    """
    return _part(_part(_distributed, "ProcessGroupGloo"), "create_device")(hostname=host)


def make_gloo_group(store: Any, rank: int, size: int, device: Any, limit: datetime.timedelta) -> Any:
    """Return a process group over gloo that is not torch's global group.

    Args:
        store: through which the ranks find each other.
        rank: of this worker.
        size: number of ranks.
        device: of `listen_with_gloo`; the public constructor chooses one by itself and does not say which.
        limit: for connecting.
    """
    kind = _part(_distributed, "ProcessGroupGloo")
    options = _part(kind, "_Options")()
    options._devices = [device]
    options._timeout = limit
    return kind(store, rank, size, options)


def set_limit(group: Any, limit: datetime.timedelta) -> None:
    """Set how long an operation of a gloo group may last; only at the construction is there a public way."""
    _part(group, "_set_default_timeout")(limit)


# The driver decides what follows from a death. torch would end the processes of the survivors after an error of NCCL or
# a long silence. torch reads these variables when it makes a group; groups of the program's own are made as it says.
_NCCL_WITHOUT_REACTIONS: Final = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_BLOCKING_WAIT": "0",
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
    "TORCH_NCCL_PROPAGATE_ERROR": "0",
}
_making_nccl: Final = threading.Lock()


def make_nccl_group(store: Any, rank: int, size: int, limit: datetime.timedelta) -> Any:
    """Return a process group over NCCL that is not torch's global group; its operations may last ``limit``.

    It connects at its first operation. No error of NCCL and no silence of a peer ends this process.

    Raises:
        ProgramError: this torch was built without NCCL.
    """
    kind = _part(_distributed, "ProcessGroupNCCL")
    options = kind.Options()
    options._timeout = limit
    with _making_nccl:
        before = {name: os.environ.get(name) for name in _NCCL_WITHOUT_REACTIONS}
        os.environ.update(_NCCL_WITHOUT_REACTIONS)
        try:
            return kind(store, rank, size, options)
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def end_nccl_group(group: Any) -> None:
    """End a group of `make_nccl_group` without its peers: operations in progress, here and at peers, never complete.

    Torch's own shutdown waits for the peers. Without this call the destructor warns, and waits too. Can be called more
    than once, from any thread. If missing: ProgramError.
    """
    _part(group, "abort")()


def all_reduce(group: Any, tensor: torch.Tensor) -> Any:
    """Start to sum a tensor over the ranks of a group, in place; return torch's handle of the operation."""
    return group.allreduce([tensor], _part(_distributed, "AllreduceOptions")())


def all_to_all(
    group: Any, out: torch.Tensor, given: torch.Tensor, num_out: Sequence[int], num_given: Sequence[int]
) -> Any:
    """Start to exchange pieces of tensors of one axis between all ranks; returns torch's handle.

    Args:
        group: over NCCL.
        out: receives the pieces of all ranks, in rank order.
        given: the pieces for all ranks, in rank order.
        num_out: numbers that come from each rank.
        num_given: numbers that go to each rank.
    """
    options = _part(_distributed, "AllToAllOptions")()
    return group.alltoall_base(out, given, list(num_out), list(num_given), options)


# ------------------------------------------------------------ backward passes


def after_backward(call: Callable[[], None]) -> None:
    """Register a function that is called at the end of the running backward pass.

    Why: the gradient of a step is complete, and the ranks sum it, before ``loss.backward()`` returns, so that the next
    lines of the program's loop see it. Torch's own data parallelism uses the same hook. If missing: ProgramError;
    programs that call ``run.backward(loss)`` never call this function.
    """
    engine: Any = _part(torch.autograd.Variable, "_execution_engine")
    _part(engine, "queue_callback")(call)


def is_last_hook(parameter: torch.Tensor, hook: Callable[[torch.Tensor], None]) -> bool:
    """Return whether no other hook sees the gradient of a parameter after this one.

    Why: a hook that the program registers during training may change the gradient, so it is not complete before. If
    missing: False, so gradients are added after the whole backward pass.
    """
    hooks: Any = getattr(parameter, "_post_accumulate_grad_hooks", None)
    return hooks is not None and bool(hooks[next(reversed(hooks))] == hook)


def has_own_memory(tensor: torch.Tensor) -> bool:
    """Return whether no other tensor, and nothing outside of torch, uses the memory of a tensor.

    Why: autograd takes over the tensors that a program's autograd function returns as gradients, also one that shares
    the memory of a buffer, which the function writes again in its next backward pass. If missing: nothing is known to
    have memory of its own.
    """
    if _use_count is None:
        return False
    storage = tensor.untyped_storage()
    num_uses = _use_count(storage._cdata) + sys.getrefcount(storage)  # as in `count_uses`, without another call
    # Memory of NumPy cannot be resized.
    return storage.nbytes() == tensor.nbytes and storage.resizable() and num_uses <= _USES_OF_ONE


def count_uses(tensor: torch.Tensor) -> float:
    """Return how many tensors and other objects use the memory of a tensor, and a few more, always as many.

    Why: the program may keep a view of a gradient, whose memory Legato would write again in the next step. If missing:
    NaN, which is no number that was counted before.
    """
    if _use_count is None:
        return math.nan
    # All references to the object of the storage in Python count as one use.
    storage = tensor.untyped_storage()
    return _use_count(storage._cdata) + sys.getrefcount(storage)


_use_count: Final[Callable[[int], int] | None] = getattr(torch._C, "_storage_Use_Count", None)
_USES_OF_ONE: Final = count_uses(torch.empty(1))


def _has_unknown_holders(_tensor: torch.Tensor) -> int:
    return 2


num_holders: Final[Callable[[torch.Tensor], int]] = getattr(torch.Tensor, "_use_count", _has_unknown_holders)
"""Returns how often torch holds a tensor: 1 if only Python has it; another parameter's ``.grad`` counts as well.

Why: as `count_uses`; before torch 2.10, Python's count of references does not include those. If missing: 2.
"""


def _copy_each(targets: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
    for target, value in zip(targets, values, strict=True):
        target.copy_(value)


def _add_each(targets: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
    for target, value in zip(targets, values, strict=True):
        target.add_(value)


copy_each: Final[Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor]], Any]] = getattr(
    torch, "_foreach_copy_", _copy_each
)
"""Copies tensors into others, in one call. Why: a step has hundreds of gradients. If missing: one after the other."""
add_each: Final[Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor]], Any]] = getattr(
    torch, "_foreach_add_", _add_each
)
"""Adds tensors to others in place, in one call. If missing: one after the other, which gives the same bits."""


def _scale_each(targets: Sequence[torch.Tensor], factor: float) -> None:
    for target in targets:
        target.mul_(factor)


_NARROW: Final = {torch.bfloat16, torch.float16}
_scale_alike: Final[Callable[[Sequence[torch.Tensor], float], Any]] = getattr(torch, "_foreach_mul_", _scale_each)


def scale_each(targets: Sequence[torch.Tensor], factor: float) -> None:
    """Multiply tensors by a number in place, with the bits of ``target * factor``.

    Why: in one call for all tensors of a dtype. On a CPU that call rounds the number to the dtype of bfloat16 and
    float16 tensors first, so these are multiplied one after the other. If missing: all of them are.
    """
    kinds: dict[tuple[torch.device, torch.dtype], list[torch.Tensor]] = {}
    for target in targets:
        if target.is_cpu and target.dtype in _NARROW:
            target.mul_(factor)
        else:
            kinds.setdefault((target.device, target.dtype), []).append(target)
    for alike in kinds.values():
        _scale_alike(alike, factor)


# ------------------------------------------------------------ modules, optimizers, schedulers, tensors


Table: TypeAlias = dict[str, Any]


def parameters_of(module: torch.nn.Module) -> Table:
    """Return a module's own table of parameters by attribute.

    Why: each step asks whether a program has changed its model, and to compare the tables takes microseconds where
    ``named_parameters()`` takes milliseconds; it also leaves out the entries that are None. If missing: ProgramError.
    """
    table: Table = _part(module, "_parameters")
    return table


def children_of(module: torch.nn.Module) -> Table:
    """Return a module's own table of modules by attribute; as `parameters_of`."""
    table: Table = _part(module, "_modules")
    return table


def buffers_of(module: torch.nn.Module) -> Table:
    """Return a module's own table of buffers by attribute; as `parameters_of`. A buffer is set to None only here."""
    table: Table = _part(module, "_buffers")
    return table


def is_persistent(module: torch.nn.Module, attribute: str) -> bool:
    """Return whether a buffer is part of ``state_dict()``.

    Why: the public way is to make the whole ``state_dict()``, which a module may have overridden. If missing: every
    buffer counts as persistent, so caches that differ between workers are reported as differences.
    """
    return attribute not in getattr(module, "_non_persistent_buffers_set", ())


def schedulers_in(scheduler: Any) -> Sequence[Any]:
    """Return the schedulers of which a scheduler is made, such as those of ``SequentialLR``; it has no public list.

    If missing: none, so the parts of a prepared scheduler have to be prepared as well.
    """
    parts: Sequence[Any] = getattr(scheduler, "_schedulers", ())
    return parts


def has_scheduler(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether a scheduler was ever made for an optimizer, by the mark that it leaves on ``optimizer.step``.

    Why: the mark shows at once that a scheduler was made after training began; a search for one goes through all
    objects. If missing: an unprepared scheduler that was made after training began is not detected.
    """
    return hasattr(optimizer.step, "_wrapped_by_lr_sched")


_part(torch.Tensor, "_version")
num_changes: Final[Callable[[torch.Tensor], int]] = operator.attrgetter("_version")
"""Returns how often a tensor was changed in place; a tensor made in inference mode has no such count: RuntimeError.

Why: after each micro-batch every buffer is asked whether the forward pass has changed it, and a large one cannot be
compared with a copy each time. If missing: ProgramError when this module is loaded, for a change that is not seen would
make a result depend on the number of workers.
"""


# ------------------------------------------------------------ data loading


def pin(batch: Any) -> Any:
    """Return a batch, however nested, in page-locked memory, as ``DataLoader(pin_memory=True)`` does.

    Why: torch offers it for single tensors only, and types of the user's batches have hooks of their own there. If
    missing: the batch unchanged, whose copy to a GPU is slower.
    """
    try:
        from torch.utils.data._utils.pin_memory import pin_memory
    except ImportError:
        return batch
    return pin_memory(batch)  # type: ignore[no-untyped-call]


def reduce_storage(storage: torch.UntypedStorage, collect: Callable[[int], Any]) -> Any:
    """Return how torch pickles the memory of a tensor for another process.

    Why: torch sends each descriptor of shared memory through a connection and a thread of its own, and has no public
    way to send them otherwise. But a program that starts a process passes descriptors to it, and torch asks for that.
    If missing: ProgramError with loader processes; if torch asks otherwise, it sends the descriptor in its own way.

    Args:
        storage: of a tensor.
        collect: receives the descriptor of the memory, which the storage owns. Returns what stands for it in the
            pickle; its method ``detach()`` must return a descriptor in the other process.
    """
    reduce = _part(_part(torch.multiprocessing, "reductions"), "reduce_storage")
    collector: Any = _Collector(collect)
    context.set_spawning_popen(collector)
    try:
        return reduce(storage)
    finally:
        context.set_spawning_popen(None)


class _Collector:
    """What `multiprocessing.reduction.DupFd` needs of a process that is being started."""

    def __init__(self, collect: Callable[[int], Any]) -> None:
        self.DupFd = collect

    def duplicate_for_child(self, fd: int) -> int:
        """Return the number of the descriptor: it is not duplicated."""
        return fd


def describe_loader_process(index: int, num_processes: int, seed: int, dataset: Any) -> None:
    """Make ``torch.utils.data.get_worker_info()`` answer in this process, which no DataLoader of torch has started.

    Why: data sets call it to find their process. If missing: ProgramError with loader processes; ``num_workers=0``
    loads without them.

    Args:
        index: of this process, from 0.
        num_processes: of its loader.
        seed: of the job.
        dataset: that it loads.
    """
    worker: Any = _part(torch.utils.data, "_utils").worker
    worker._worker_info = _part(worker, "WorkerInfo")(id=index, num_workers=num_processes, seed=seed, dataset=dataset)


@contextmanager
def as_in_training_process() -> Iterator[None]:
    """Let ``torch.utils.data.get_worker_info()`` return None, as in the process that trains.

    Why: with an answer, the default collation stacks all samples into contiguous memory, also channels-last ones; so a
    batch would have another layout in a loader process. If missing: nothing is done, as without an answer.
    """
    worker: Any = torch.utils.data._utils.worker if hasattr(torch.utils.data, "_utils") else None
    info = getattr(worker, "_worker_info", None)
    if info is None:
        yield
        return
    worker._worker_info = None
    try:
        yield
    finally:
        worker._worker_info = info


def is_loading(batches: Any) -> bool:
    """Return whether all processes of an iterator of torch's DataLoader live, and none has delivered anything yet.

    Why: a worker that waits for its turn must see that a loader process has failed before it asked for a record; the
    iterator itself says so only when the next batch is taken. If missing, or without processes: True.
    """
    results = getattr(batches, "_worker_result_queue", None)
    is_silent = results is None or results.empty()
    return is_silent and all(process.is_alive() for process in getattr(batches, "_workers", ()))
