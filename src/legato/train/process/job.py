"""Whether a program runs alone or as a worker of a job. Set once per process; decides nothing."""

from __future__ import annotations

import atexit
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import torch

from legato.core import wire
from legato.core.errors import MismatchError, UsageError
from legato.train.checkpoints.checkpoint_interval import CheckpointInterval
from legato.train.membership.link import Link
from legato.train.process.allocator import keep_large_blocks

_KEY: Final = "legato"
_SEED: Final = "LEGATO_SEED"
_DEVICE: Final = "LEGATO_DEVICE"


@dataclass
class Place:
    """What a run needs to know about the process and the job in which it runs.

    Args:
        link: to the driver, None when the program runs alone.
        settings: of the job, None when alone.
        key: names the job in the store by which workers find one another.
        device: torch device name.
        num_threads: torch's threads, unless the program says otherwise.
        taken: a run has begun in this process.
        is_independent: the program is not meant to begin a run.
        endings: called when the program has ended.
    """

    link: Link | None
    settings: wire.Welcome | None
    device: str
    num_threads: int
    key: str = _KEY
    taken: bool = False
    is_independent: bool = False
    endings: list[Callable[[], None]] = field(default_factory=list)

    def on_end(self, ending: Callable[[], None]) -> None:
        """Register a function that is called when the program has ended."""
        self.endings.append(ending)


_place: Place | None = None


def set_place(place: Place) -> None:
    """Set where this process runs, before the program begins."""
    global _place  # noqa: PLW0603 - a process has one place, as it has one working directory
    _place = place


def take_place() -> Place:
    """Return where this process runs, for the only run that it may have.

    Raises:
        UsageError: this worker of a job has a run already, or the device does not exist.
    """
    keep_large_blocks()
    if _place is None:
        # It may name one device per worker; here is one worker.
        device = os.environ.get(_DEVICE, "").partition(",")[0] or ("cuda:0" if torch.cuda.is_available() else "cpu")
        check_device(
            device, "Set LEGATO_DEVICE=cpu to train on the CPU, or unset it to use the GPUs of this machine, if any."
        )
        return Place(None, None, device, int(os.environ.get("LEGATO_THREADS", "1")))
    if _place.taken:
        raise UsageError("legato.elastic was called twice. A worker takes part in one run; train one model per job.")
    _place.taken = True
    return _place


def has_run() -> bool:
    """Return whether this worker of a job has had its only run."""
    return _place is not None and _place.taken


def expect_no_run() -> None:
    """Declare that this program does not use `legato.elastic`.

    Then the driver counts its worker as a working one, and no event says that the program never called
    `legato.elastic`.
    """
    if _place is not None:
        _place.is_independent = True
        if _place.link is not None:
            _place.link.is_independent = True


def log_without_run(values: dict[str, float]) -> None:
    """Record metrics of a program that has no run. Call it once, at the end of the program, on one worker."""
    if _place is not None and _place.link is not None:
        link = _place.link
        link.send(wire.Metrics(index=link.num_metrics, step=0, epoch=0, values=values))


def at_end(ending: Callable[[], None]) -> None:
    """Register a function that is called when the program has ended; in a job, not if an error has ended it."""
    if _place is None:
        atexit.register(ending)
    else:
        _place.on_end(ending)


def is_to_leave() -> bool:
    """Return whether this worker was asked to end."""
    return _place is not None and _place.link is not None and _place.link.stop_reason is not None


def stay_on_cpu() -> None:
    """Make this program compute on the CPU, whatever device its slot has. Call it before the run begins."""
    os.environ[_DEVICE] = "cpu"
    if _place is not None:
        _place.device = "cpu"


def choose_seed(said: int) -> int:
    """Return the seed of this run: the job's seed if it has one, else the program's.

    Raises:
        UsageError: the seed is no whole number of at least 0.
    """
    of_job = os.environ.get(_SEED)
    if of_job is None:
        told, seed = f"seed={said}", said
    else:
        told, seed = f"{_SEED}={of_job}", int(of_job) if of_job.isascii() and of_job.isdecimal() else -1
    if seed < 0:
        raise UsageError(f"{told} cannot be used. Take a whole number of at least 0.")
    return seed


def check_device(name: str, remedy: str) -> None:
    """Raise UsageError, which says what to do, unless torch knows the device and, for a GPU, finds it here."""
    told = f"Cannot train on device '{name}'"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"{told}: torch knows no such device. {remedy}") from error
    # Only count the devices: a test whether CUDA works would initialise it, and the program may still fork.
    if device.type == "cuda" and (device.index or 0) >= (num_there := torch.cuda.device_count()):
        found = f"finds {num_there or 'no'} GPUs here" if torch.version.cuda else "was built without CUDA"
        raise UsageError(f"{told}: torch {found}. {remedy}")


def settings_alone(checkpoint_dir: str | None, checkpoint_every: str | None, keep: int, resume: bool) -> wire.Welcome:
    """Return the settings of a program that runs alone.

    Raises:
        UsageError: ``checkpoint_every`` is not understood, or ``keep`` is below 1.
    """
    if checkpoint_every is not None:
        CheckpointInterval.parse(checkpoint_every)
    if keep < 1:
        raise UsageError(f"Cannot keep {keep} checkpoints. Take keep=1 or more.")
    return wire.Welcome(
        heartbeat_interval_s=math.inf,
        away_limit_s=math.inf,
        checkpoint_dir=checkpoint_dir,
        checkpoint_every=checkpoint_every,
        keep=keep,
        resume=resume,
    )


def check_same_data(theirs: str, mine: str, whose: str) -> None:
    """Raise MismatchError if this worker's data set differs from another one's; unknown parts are not compared.

    Args:
        theirs: result of `describe_dataset` for the other data set.
        mine: result of `describe_dataset` for this worker's data set.
        whose: the owner of the other data set, for the message.
    """
    (kind, _, first), (own_kind, _, own_first) = theirs.partition(", first "), mine.partition(", first ")
    # Checkpoints that earlier releases wrote with reduction="fast" have the first sample.
    if theirs and mine and (kind != own_kind or (first and own_first and first != own_first)):
        raise MismatchError(
            f"This worker's data set differs from that of {whose}. This one: {mine}. The other one: {theirs}. Every "
            "worker must read the same data: check which files the data set reads, and what it draws, counts or keeps "
            "while it is built."
        )
