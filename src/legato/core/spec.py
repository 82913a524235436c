"""The description of one job, and the rules that it must keep. Reads no files and starts nothing."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from legato.core.cpu import check_capability, variables_of_capability
from legato.core.errors import LayoutError, UsageError
from legato.core.limits import Limits, check_limits

DEFAULT_LOG_BYTES: Final = 2**30
MIN_LOG_BYTES: Final = 2**16
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_EVERY: Final = re.compile(r"[1-9][0-9]*(steps?|epochs?|s)")
_COUNT: Final = re.compile(r"[0-9]+")
_GUEST: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


class GuestSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The plugin of a job, which runs in its driver's process; see `legato.driver.plugin`.

    Args:
        entry: ``module:function`` of the function that makes the plugin.
        options: of the plugin.
    """

    entry: str
    options: dict[str, str] = {}


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The complete description of one job: what to run, on how many workers, and with which time limits.

    Args:
        name: letters, digits, ``.``, ``_`` and ``-``, at most 63 of them; a directory name and part of host names.
        program: the script and its arguments, as in ``sys.argv``.
        directory: working directory of the workers.
        environment: variables of the workers, in addition to those of the process that starts them.
        min_workers: with fewer the job keeps its state and waits. 1: training never waits without need.
        max_workers: the most workers that the job can have.
        num_workers: workers at the start; later changed by ``scale``.
        gpus_per_worker: GPUs of each worker, all on one node. A worker trains on the first of them; its program may use
            the others, for example for the parts of a large model.
        num_threads: threads per worker inside an operation, the same for all, because results depend on it.
            1: many workers share one machine.
        cpu_capability: the instruction set to which torch, oneDNN and MKL are limited in all workers, because results
            depend on it: ``default``, ``avx2`` or ``avx512``. None: what each machine has; workers that differ are
            refused.
        python: the Python executable of the workers, by its absolute path. None: that of the driver.
        checkpoint_every: ``100steps``, ``2epochs`` or ``60s``. None: only at the end, on stop and on hold.
        checkpoint_dir: directory of checkpoints. None: ``checkpoints`` in the job's directory.
        keep: checkpoints kept; older ones are deleted. 3: one may be torn and one bad.
        resume: continue from the newest checkpoint if there is one.
        heartbeat_interval_s: interval of heartbeats, both ways. 0.25: far below the limit, and cheap.
        heartbeat_limit_s: a worker that is silent for this long is fenced, unless its process computes or waits. 5:
            longer than pauses of a healthy machine.
        away_limit_s: workers without a driver for this long save and end. 60: a driver restarts in much less time.
        grace_s: from the request to leave until the worker is killed. 10: one step and the exit.
        stop_limit_s: from ``stop`` to being killed. 60: one step and one checkpoint.
        start_limit_s: from the start of a process to its Hello. 120: a cold import over a slow disk.
        collective_limit_s: a worker that has neither computed nor made progress for this long is fenced, and workers
            that have waited for one another for this long are connected again. 1800: longer than a healthy program
            waits for a disk or a network.
        form_patience_s: once a worker is warm, the first view waits this long for the others. 10: all start together
            if they start at about the same time.
        join_patience_s: once a joiner is warm, the change waits this long for other joiners. 2: joiners come in
            batches, and each change costs a moment.
        broken_patience_s: after a broken collective, wait this long for news of a death before the same workers try
            again. 1: deaths are known within milliseconds.
        prepare_limit_s: a view that a worker has not connected after this long, without a reason, is replaced. 60:
            far more than a connection takes.
        max_deaths: more deaths than this in one slot in a row, without a step committed that was never committed
            before, and the job (or a joiner's slot) is given up.
        max_breaks: more views than this in a row that break, or cannot be connected, with no worker dead and no round
            completed, and the job fails.
        memory_bytes: of each worker with all that it starts; the kernel ends a worker that uses more. None: no limit.
        num_cpus: of each worker. None: no limit.
        max_processes: processes and threads of the whole job. None: no limit.
        must_limit: where these cannot be enforced the job does not run. False: it does, and an event says so.
        log_max_bytes: of each worker's log; its oldest part is dropped beyond that. 1 GiB: weeks of ordinary output.
        guest: the plugin that runs in the driver's process. None: no plugin.
    """

    name: str
    program: tuple[str, ...]
    directory: str
    environment: dict[str, str] = {}
    max_workers: int
    num_workers: int
    min_workers: int = 1
    gpus_per_worker: int = 1
    num_threads: int = 1
    cpu_capability: str | None = None
    python: str | None = None
    checkpoint_every: str | None = None
    checkpoint_dir: str | None = None
    keep: int = 3
    resume: bool = False
    heartbeat_interval_s: float = 0.25
    heartbeat_limit_s: float = 5.0
    away_limit_s: float = 60.0
    grace_s: float = 10.0
    stop_limit_s: float = 60.0
    start_limit_s: float = 120.0
    collective_limit_s: float = 1800.0
    form_patience_s: float = 10.0
    join_patience_s: float = 2.0
    broken_patience_s: float = 1.0
    prepare_limit_s: float = 60.0
    max_deaths: int = 5
    max_breaks: int = 3
    memory_bytes: int | None = None
    num_cpus: float | None = None
    max_processes: int | None = None
    must_limit: bool = True
    log_max_bytes: int = DEFAULT_LOG_BYTES
    guest: GuestSpec | None = None

    def validate(self) -> JobSpec:
        """Return the spec itself if every rule holds.

        Raises:
            LayoutError: the worker counts do not fit together.
            UsageError: another field is unusable.
        """
        check_name(self.name)
        self._check_workers()
        if not self.program:
            raise UsageError(f"Cannot run job '{self.name}': there is no program. Name a Python script.")
        for field in ("gpus_per_worker", "num_threads", "keep"):
            value = getattr(self, field)
            if value < 1:
                raise UsageError(f"Cannot run job '{self.name}': {field}={value} is below 1. Give 1 or more.")
        check_capability(f"Cannot run job '{self.name}'", self.cpu_capability)
        check_limits(self.memory_bytes, self.num_cpus, f"Cannot run job '{self.name}'")
        if self.log_max_bytes < MIN_LOG_BYTES:
            raise UsageError(
                f"Cannot run job '{self.name}': log_max_bytes={self.log_max_bytes} is below {MIN_LOG_BYTES}. Give a "
                "larger number of bytes."
            )
        for field in self.__struct_fields__:
            value = getattr(self, field)
            if field.endswith("_s") and not value > 0:
                raise UsageError(
                    f"Cannot run job '{self.name}': {field}={value} is not above 0. Give a number of seconds."
                )
        if not self.heartbeat_interval_s * 2 <= self.heartbeat_limit_s:
            raise UsageError(
                f"Cannot run job '{self.name}': heartbeat_limit_s={self.heartbeat_limit_s} is too short: a "
                f"heartbeat comes every {self.heartbeat_interval_s} s, and one may be lost. Make it at "
                "least twice heartbeat_interval_s."
            )
        if self.checkpoint_every is not None and not _EVERY.fullmatch(self.checkpoint_every):
            raise UsageError(
                f"Cannot run job '{self.name}': checkpoint_every='{self.checkpoint_every}' is not understood. "
                "Write a whole number and a unit: 100steps, 2epochs or 60s."
            )
        return self

    @property
    def variables(self) -> dict[str, str]:
        """The environment of the workers, with the variables that limit them to one instruction set."""
        return {**self.environment, **variables_of_capability(self.cpu_capability)}

    @property
    def limits(self) -> Limits:
        """The limits of the job's use of its machines."""
        return Limits(
            memory_bytes=self.memory_bytes,
            num_cpus=self.num_cpus,
            num_processes=self.max_processes,
            must_hold=self.must_limit,
        )

    def is_same_job(self, other: JobSpec) -> bool:
        """Whether workers of one spec can continue as workers of the other; how the job began does not matter."""
        return msgspec.structs.replace(other, resume=self.resume) == self

    def check_num_workers(self, num_workers: int) -> None:
        """Raise LayoutError unless the job may be scaled to that many workers."""
        if num_workers > self.max_workers:
            raise LayoutError(
                f"Cannot scale job '{self.name}' to {count_workers(num_workers)}: its maximum is {self.max_workers}. "
                f"Ask for {self.max_workers} or fewer; the maximum is set when the job starts."
            )
        if num_workers < self.min_workers:
            raise LayoutError(
                f"Cannot scale job '{self.name}' to {count_workers(num_workers)}: its minimum is {self.min_workers}. "
                f"Ask for {self.min_workers} or more, or stop the job with 'legato stop {self.name}'."
            )

    def _check_workers(self) -> None:
        told = f"Cannot run job '{self.name}'"
        if self.min_workers < 1:
            raise LayoutError(f"{told}: min_workers={self.min_workers} is below 1. Give 1 or more.")
        if self.max_workers < self.min_workers:
            raise LayoutError(
                f"{told}: min_workers={self.min_workers} is above max_workers={self.max_workers}. "
                "Lower the minimum or raise the maximum."
            )
        if not self.min_workers <= self.num_workers <= self.max_workers:
            raise LayoutError(
                f"{told}: num_workers={self.num_workers} is outside {self.min_workers}..{self.max_workers}. "
                "Start with a number inside the range."
            )


def count_workers(number: int) -> str:
    """Return a number of workers as text.

    >>> count_workers(1), count_workers(4)
    ('1 worker', '4 workers')
    """
    return f"{number} worker{'' if number == 1 else 's'}"


def check_name(name: str, what: str = "a job") -> None:
    """Raise UsageError unless ``name`` can be the name of a job, or of another object with the same rule."""
    if not name:
        raise UsageError(f"Cannot name {what} '': the name is empty. Give one, for example 'mnist-1'.")
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"Cannot name {what} '{name}': a name has 1 to 63 letters, digits, '.', '_' or '-', and begins with a "
            "letter or digit."
        )


def parse_guest(text: str) -> GuestSpec:
    """Read ``MODULE:FUNCTION`` and the options of the plugin after it.

    Raises:
        UsageError: the text has another form.

    >>> parse_guest("my.guest:make size=4").options
    {'size': '4'}
    """
    entry, *words = text.split() or [""]
    options = dict(word.split("=", 1) for word in words if "=" in word)
    if not _GUEST.fullmatch(entry) or len(options) != len(words):
        raise UsageError(
            f"Cannot read the plugin '{text}'. Write MODULE:FUNCTION, followed by options, each once: "
            "'my.guest:make size=4'."
        )
    return GuestSpec(entry=entry, options=options)


def parse_workers(text: str) -> tuple[int, int, int]:
    """Read ``4`` or ``1..4`` as the minimum, the maximum and the number of workers to start with.

    Raises:
        LayoutError: the text has neither form, or the numbers do not fit together.

    >>> parse_workers("4"), parse_workers("2..4")
    ((1, 4, 4), (2, 4, 4))
    """
    low, dots, high = text.strip().partition("..")
    if not dots:
        low, high = "1", low
    if not (_COUNT.fullmatch(low) and _COUNT.fullmatch(high)):
        raise LayoutError(f"Cannot read the number of workers '{text}'. Write a number, 4, or a range, 1..4.")
    min_workers, max_workers = int(low), int(high)
    if min_workers < 1 or max_workers < 1:
        told = f"1..{max_workers}" if dots and max_workers >= 1 else "1"
        raise LayoutError(f"Cannot run with '{text}' workers: the number is below 1. Write '{told}', or more.")
    if min_workers > max_workers:
        raise LayoutError(
            f"Cannot run with '{text}' workers: the minimum is above the maximum. Write '{max_workers}..{min_workers}'."
        )
    return min_workers, max_workers, max_workers
