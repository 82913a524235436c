"""Reads the job's directories and the settings of ``--msd-env`` from the environment variables of a program.

The launcher (`site/launch.py`) sets the variables. A program also runs without the launcher, outside of a job; it then
writes below its working directory. Writes nothing itself.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from legato.compat.wmla import names
from legato.core.errors import UsageError

LOSS_SCALE: Final = "EDT_LOSS_SCALE"
"""If it is ``batch``, loggers of generation 1 receive the mean loss divided once more by the batch size, as in WMLA."""

PULL_LIMIT: Final = "EDT_PULL_WEIGHT_TIME_OUT"
PULL_FAILURES: Final = "EDT_PULL_FAILED_LIMITS"
DRIVER_LOG: Final = "WMLA_DRIVER_LOG"
"""The driver's log directory; set by the launcher."""

_DEFAULT_PULL_LIMIT_S: Final = 300.0
_DEFAULT_PULL_FAILURES: Final = 3


class Pulling(NamedTuple):
    """How long a worker that joins a running training waits for its weights.

    Args:
        limit_s: seconds after which the worker prints PULL_FAILED and waits again.
        max_failures: if it has printed PULL_FAILED more often, the worker stops.
    """

    limit_s: float
    max_failures: int


class JobEnvironment(NamedTuple):
    """What the environment variables say about the job.

    Args:
        result_dir: of the job.
        driver_dir: log directory of the driver; rank 0 writes there.
        is_in_job: whether this process is a worker of a job.
        worker: number of this worker; 0 outside of a job.
        max_workers: maximum number of workers that the submission asked for; 1 if it is not known.
        divides_loss: see `LOSS_SCALE`.
        pulling: limits for a joining worker; None: no limit.
    """

    result_dir: Path
    driver_dir: Path
    is_in_job: bool
    worker: int
    max_workers: int
    divides_loss: bool
    pulling: Pulling | None

    @property
    def model_dir(self) -> Path:
        """The directory for trained models."""
        return self.result_dir / names.MODEL / names.TRAINED


def read_environment(environment: Mapping[str, str] = os.environ) -> JobEnvironment:
    """Read the environment variables of a program.

    Raises:
        UsageError: a variable has a value that cannot be used.
    """
    result_dir = Path(environment.get("RESULT_DIR") or Path.cwd()).absolute()
    driver_dir = environment.get(DRIVER_LOG) or result_dir / names.LOG / "driver"
    scale = environment.get(LOSS_SCALE, "mean")
    if scale not in ("mean", "batch"):
        raise UsageError(f"{LOSS_SCALE}={scale} is not known. Set it to batch, or leave it out for the mean loss.")
    return JobEnvironment(
        result_dir,
        Path(driver_dir),
        is_in_job="LEGATO_WORKER" in environment,
        worker=int(environment.get("LEGATO_WORKER", "0")),
        max_workers=_read_count(environment, names.MAX_WORKERS, 1, 1),
        divides_loss=scale == "batch",
        pulling=_read_pulling(environment),
    )


def _read_pulling(environment: Mapping[str, str]) -> Pulling | None:
    if not {PULL_LIMIT, PULL_FAILURES} & environment.keys():
        return None
    value = environment.get(PULL_LIMIT)
    try:
        limit_s = _DEFAULT_PULL_LIMIT_S if value is None else float(value)
    except ValueError:
        limit_s = 0.0
    if not 0 < limit_s < float("inf"):
        raise UsageError(f"{PULL_LIMIT}={value} cannot be used. Give a number of seconds above 0.")
    return Pulling(limit_s, _read_count(environment, PULL_FAILURES, _DEFAULT_PULL_FAILURES, 0))


def _read_count(environment: Mapping[str, str], name: str, default: int, least: int) -> int:
    value = environment.get(name)
    if value is None:
        return default
    number = int(value) if value.isascii() and value.isdecimal() else -1
    if number < least:
        raise UsageError(f"{name}={value} cannot be used. Give a whole number of at least {least}.")
    return number
