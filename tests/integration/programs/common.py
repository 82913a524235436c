"""What the programs of the integration tests share: data made of nothing, digests, and the reins of the test.

The reins never change a result: a directory named by ``LEGATO_TEST_REINS`` holds how long a step and a round of an
evaluation sleep, and takes a mark when a program comes to a place that a test waits for. Alone, there are none.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import faulthandler
import hashlib
import os
import random
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from slot_locks import hold_slot
from torch.utils.data import Dataset

import legato
from legato.train.membership.groups import Group
from legato.train.process import faults

_REINS = os.environ.get("LEGATO_TEST_REINS")
# A harness that runs out of time asks every process for the stacks of its threads: they go to the worker's log.
faulthandler.register(signal.SIGUSR1, all_threads=True)


class Images(Dataset[tuple[torch.Tensor, int]]):
    """Noise images of 4 classes, shape ``[1, 8, 8]``; with augmentation every reading of one is different."""

    def __init__(self, num_samples: int, *, augment: bool = False, start: int = 7) -> None:
        generator = torch.Generator().manual_seed(start)
        self._images = torch.rand(num_samples, 1, 8, 8, generator=generator)
        self._targets = torch.randint(4, (num_samples,), generator=generator).tolist()
        self._augment = augment
        self.brightness = 1.0

    def __len__(self) -> int:
        return len(self._targets)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = self._images[index] * self.brightness
        if self._augment:
            if random.random() < 0.5:
                image = image.flip(-1)
            image = image * float(np.random.uniform(0.5, 1.5)) + 0.1 * torch.randn(image.shape)
        return image, self._targets[index]


class Words(Dataset[torch.Tensor]):
    """Rows of 9 token numbers below 23."""

    def __init__(self, num_samples: int) -> None:
        self._rows = torch.randint(23, (num_samples, 9), generator=torch.Generator().manual_seed(3))

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self._rows[index]


def pace(run: legato.Run) -> None:
    """Call it in every turn of the loop over batches."""
    if _REINS is not None and run.step != _last_paced[0]:
        _last_paced[0] = run.step
        if Path(_REINS, "print").exists():
            print("." * 2000)
        _sleep("pace")
        _arm(run.step + 1)


def pace_evaluation() -> None:
    """Call it in a metric."""
    _sleep("pace-evaluation")
    if _REINS is not None:
        _arm(0)


def mark(name: str) -> None:
    """Say that this worker has come to a place."""
    if _REINS is not None:
        Path(_REINS, f"mark-{name}-{os.environ['LEGATO_WORKER']}").touch()


def tell(run: legato.Run, *things: Any) -> None:
    """Print the digest of all state; the last thing a program does."""
    digest = hashlib.sha256()
    for piece in _pieces([thing.state_dict() for thing in things]):
        digest.update(piece)
    print(f"sha256 {digest.hexdigest()} steps {run.step}", flush=True)


def _wait_to_begin() -> None:
    """Stay away while the test wants it."""
    while _REINS is not None and Path(_REINS, "closed").exists():
        time.sleep(0.02)


_all_gather = Group.all_gather
_last_paced = [-1]
hold_slot()
_wait_to_begin()


def _sleep(name: str) -> None:
    if _REINS is None:
        return
    with contextlib.suppress(FileNotFoundError):
        time.sleep(float(Path(_REINS, name).read_text()))


def _arm(step: int) -> None:
    """Plan a fault that the test wants now for this step, or for the next one if this one's moment is over."""
    worker = os.environ["LEGATO_WORKER"]
    try:
        fault = Path(str(_REINS), f"fault-{worker}").read_text()
    except FileNotFoundError:
        return
    if fault.startswith("hold="):
        Path(str(_REINS), f"fault-{worker}").unlink()
        _hold(fault.removeprefix("hold="))
    elif fault == "partly=kill":
        Group.all_gather = _send_to_one_and_die  # type: ignore[method-assign]
    else:
        faults.plan(int(worker), f"{worker}@{step + fault.startswith('forward')}:{fault}")


def _hold(how: str) -> None:
    """Hang: with Python's lock held, computing or asleep, while the test wants it; or forever without the lock."""
    if how == "lock":
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    held, system, before_s = bytes(Path(str(_REINS), "held")), ctypes.PyDLL(None), sys.getswitchinterval()
    mark(f"hold-{how}")
    # Calls of this kind keep the lock, and no other thread asks for it within this time.
    sys.setswitchinterval(1e6)
    while system.access(held, os.F_OK) == 0:
        if how == "compute":
            sum(range(10_000))
        else:
            system.usleep(10_000)
    sys.setswitchinterval(before_s)


def _send_to_one_and_die(group: Group, mine: torch.Tensor, theirs: Sequence[torch.Tensor]) -> None:
    """Die when one peer has all that it waits for, and the others have not."""
    if mine.numel() == 1 or not group.peers:
        # A barrier: it does not end a round. A worker that is alone misses nothing.
        _all_gather(group, mine, theirs)
        return
    pair = sorted([group.rank, group.peers[-1]])
    _all_gather(group.among(pair), mine, [theirs[rank] for rank in pair])
    os.kill(os.getpid(), signal.SIGKILL)


def _pieces(node: Any) -> Iterator[bytes]:
    if isinstance(node, torch.Tensor):
        yield f"{node.dtype}{tuple(node.shape)}".encode()
        yield node.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    elif isinstance(node, Mapping):
        for key in sorted(node, key=str):
            yield f"{key}:".encode()
            yield from _pieces(node[key])
    elif isinstance(node, list | tuple | deque):
        for value in node:
            yield from _pieces(value)
    elif dataclasses.is_dataclass(node):
        yield from _pieces(vars(node))
    elif not callable(node):
        yield repr(node).encode()
