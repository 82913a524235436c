"""Uploaded code, and the outputs of jobs: logs, files, checkpoints and time series."""

from __future__ import annotations

from typing import Literal

import msgspec


class Log(msgspec.Struct, frozen=True):
    """A log of a job. ``log``: its name, ``driver`` or ``worker-N``."""

    log: str
    num_bytes: int
    modified_at: float


class File(msgspec.Struct, frozen=True):
    """A file or folder of a job. ``path``: relative to the job's directory; ``kind``: ``file`` or ``folder``."""

    path: str
    kind: str
    num_bytes: int
    modified_at: float


class Files(msgspec.Struct, frozen=True):
    """Files of a job. ``is_complete``: the list contains all of them."""

    items: tuple[File, ...]
    is_complete: bool


class Checkpoint(msgspec.Struct, frozen=True):
    """A checkpoint of a job. ``path``: the file of the job that contains it."""

    step: int
    path: str
    num_bytes: int
    modified_at: float


class Series(msgspec.Struct, frozen=True):
    """The values of one metric, as columns of the same length.

    Args:
        source: ``log``: the program logged them with ``run.log``; ``backward``: the mean losses of the steps, as
            ``run.backward`` or ``run.note_loss`` got them.
    """

    name: str
    step: tuple[int, ...]
    epoch: tuple[int, ...]
    time: tuple[float, ...]
    value: tuple[float | None, ...]
    source: Literal["log", "backward"] = "log"


class Steps(msgspec.Struct, frozen=True):
    """The first commit of each step, as columns of the same length."""

    step: tuple[int, ...]
    epoch: tuple[int, ...]
    view: tuple[int, ...]
    time: tuple[float, ...]


class Metrics(msgspec.Struct, frozen=True):
    """The time series of a job: what its program logged, the losses of its steps, and its committed steps."""

    series: tuple[Series, ...]
    steps: Steps


class Upload(msgspec.Struct, frozen=True, kw_only=True):
    """Uploaded code. ``uploaded_by``: the user who uploaded it first; ``used_at``: when it was last used."""

    sha256: str
    num_bytes: int
    uploaded_by: str
    created_at: float
    used_at: float
