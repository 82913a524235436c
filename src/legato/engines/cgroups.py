"""Limits the resources of a job with the kernel's control groups, versions 1 and 2. Decides nothing.

A job has a group, which contains one group for each worker and one for the warm parent. These groups are below the
group of the process that makes them, so its limits apply too. Groups are removed after their processes have ended.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from legato.core.errors import LegatoError, UsageError
from legato.core.limits import Limits, render_size

CONTROLLERS: Final = ("memory", "cpu", "pids")
_PREFIX: Final = "legato-"
_SERVER: Final = "legato-server"
_PARENT: Final = "parent"
_PARENT_BYTES: Final = 2**30  # more than torch and what programs import need
_CPU_PERIOD_US: Final = 100_000
_PROC: Final = Path("/proc")
_KERNEL_LOG: Final = Path("/dev/kmsg")
KERNEL_PID_SPACE: Final = 0xEFFF_FFFC  # the inode of the process-number namespace that the kernel's log uses
_RECORD_BYTES: Final = 2**13  # the kernel's own limit
_LOG_SLACK_S: Final = 1.0
_MOST_USED: Final = "max_usage_in_bytes"
_HUGE_PAGE: Final = 2**21  # the request that exceeds the limit may be a huge page, so the peak may be so far below it
_KILL_TRIES: Final = 200
_NO_LIMIT: Final = 2**60
_KILL_PAUSE_S: Final = 0.01


class Place(NamedTuple):
    """The folder in which groups of a controller can be made. ``version``: of control groups, 1 or 2."""

    version: int
    base: Path


class Support(NamedTuple):
    """The limits that can be enforced on this machine.

    Args:
        places: by controller; missing controllers cannot be used.
        why_not: why controllers are missing, as a part of a sentence; "": none is missing.
    """

    places: Mapping[str, Place]
    why_not: str

    def check(self, limits: Limits) -> str | None:
        """Return why limits cannot be enforced, None if they can."""
        needed = {"memory": limits.memory_bytes, "cpu": limits.num_cpus, "pids": limits.num_processes}
        missing = [name for name, value in needed.items() if value is not None and name not in self.places]
        if not missing:
            return None
        return f"this machine cannot limit {' and '.join(missing)} of a job: {self.why_not}"


def find_support(proc: Path = _PROC) -> Support:
    """Return the places in which this process can make groups, and why others are missing. Changes nothing."""
    found: dict[str, Place] = {}
    faults: list[str] = []
    for name, place in _find_places(proc).items():
        if not os.access(place.base, os.W_OK | os.X_OK):
            faults.append(f"{place.base} is not writable for this user")
        elif place.version == 2 and name not in _read_words(place.base / "cgroup.subtree_control"):
            faults.append(f"{place.base} does not hand {name} on to groups below it")
        else:
            found[name] = place
    if not found and not faults:
        faults.append("no control groups are mounted")
    elif len(found) + len(faults) < len(CONTROLLERS):
        faults += [f"there is no controller {name}" for name in CONTROLLERS if name not in found]
    hint = "" if len(found) == len(CONTROLLERS) else ". Run Legato as root, or under systemd with Delegate=yes"
    return Support(found, f"{'; '.join(dict.fromkeys(faults))}{hint}" if hint else "")


def prepare_server(proc: Path = _PROC) -> None:
    """Allow limits of groups below this process's group (version 2), if it is alone in its group.

    Version 2 limits groups only below a group without processes, so this process moves into a new subgroup.
    """
    places = [place for place in _find_places(proc).values() if place.version == 2]
    if not places or not os.access(places[0].base, os.W_OK):
        return
    base = places[0].base
    wanted = [name for name in CONTROLLERS if name in _read_words(base / "cgroup.controllers")]
    if set(wanted) <= set(_read_words(base / "cgroup.subtree_control")):
        return
    inside = set(_read_words(base / "cgroup.procs"))
    if inside - {str(os.getpid())}:
        return  # other processes, such as a terminal, are not moved
    with contextlib.suppress(OSError):
        leaf = base / _SERVER
        leaf.mkdir(exist_ok=True)
        (leaf / "cgroup.procs").write_text(str(os.getpid()))
        (base / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in wanted))


class JobGroup:
    """The groups of one job.

    Args:
        directory: of the job; each job directory has different groups.
        limits: of the job.
        support: of this machine.
    """

    def __init__(self, directory: Path, limits: Limits, support: Support) -> None:
        self._limits = limits
        self._name = _PREFIX + hashlib.sha256(os.fsencode(directory.absolute())).hexdigest()[:12]
        self._places = dict(support.places)

    def open(self) -> None:
        """Make the job's groups, or find existing ones.

        Raises:
            UsageError: the kernel refuses.
        """
        try:
            for name, place in self._places.items():
                top = place.base / self._name
                top.mkdir(exist_ok=True)
                if name == "pids":
                    # Done without limits too: an earlier attempt with remaining processes may have left a limit.
                    (top / "pids.max").write_text(str(self._limits.num_processes or "max"))
                if place.version == 2:
                    (top / "cgroup.subtree_control").write_text(f"+{name}")
        except OSError as error:
            self.close()
            raise UsageError(f"Cannot limit what the job uses: {error}. Submit it without limits.") from error

    def add_parent(self, pid: int) -> None:
        """Move the warm parent into the job's groups. The processes that it forks are in them too.

        The warm parent's group has a memory limit, which also limits a worker that the job hides from its driver.

        Raises:
            UsageError: the kernel refuses.
        """
        memory = self._limits.memory_bytes
        limits = Limits(memory_bytes=None if memory is None else max(memory, _PARENT_BYTES))
        try:
            self._add(_PARENT, pid, limits)
        except OSError as error:
            raise UsageError(f"Cannot limit what the job uses: {error}. Submit it without limits.") from error

    def add_worker(self, worker: int, pid: int) -> None:
        """Move a worker into a separate group with its limits. The processes that it starts are in it too.

        Raises:
            UsageError: the kernel refuses.
        """
        try:
            self._add(_name_worker(worker), pid, self._limits)
        except OSError as error:
            raise UsageError(f"Cannot limit what worker {worker} uses: {error}.") from error

    @property
    def counts_oom_kills(self) -> bool:
        """Whether the kernel counts, for each worker, the processes that it killed for memory."""
        return "memory" in self._places

    def count_oom_kills(self, worker: int) -> int:
        """Return how many processes of a worker the kernel has killed, for the machine's or the worker's limit."""
        place = self._places.get("memory")
        if place is None:
            return 0
        file = "memory.events" if place.version == 2 else "memory.oom_control"
        return _read_count(place.base / self._name / _name_worker(worker) / file, "oom_kill")

    def has_reached_limit(self, worker: int) -> bool:
        """Return whether a worker has ever reached its memory limit."""
        if self._limits.memory_bytes is None:
            return False
        place = self._places["memory"]
        folder = place.base / self._name / _name_worker(worker)
        if place.version == 2:
            return _read_count(folder / "memory.events", "oom") > 0
        # Newer kernels do not count how often the limit was reached (memory.failcnt is 0), but all record the peak.
        most = [int(word) for word in _read_words(folder / "memory.max_usage_in_bytes") if word.isdecimal()]
        return any(num_bytes > self._limits.memory_bytes - _HUGE_PAGE for num_bytes in most)

    def kill(self) -> None:
        """Kill all remaining processes of the job, and wait until they have ended.

        A process cannot leave its group: children are in it even with a new session, an ended parent, or an environment
        without Legato's variables.

        Raises:
            LegatoError: some processes still run.
        """
        places = [place for place in self.folders() if place.is_dir()]
        left: list[int] = []
        failure: OSError | None = None
        for _ in range(_KILL_TRIES):
            try:
                left = sorted({pid for place in places for pid in _kill_all_in(place)} - {os.getpid()})
            except OSError as error:
                failure = error  # a group may be removed while it is read
            else:
                failure = None
                if not left:
                    return
            time.sleep(_KILL_PAUSE_S)
        if failure is not None:
            raise LegatoError(f"Cannot end the leftover processes of a job: {failure}. End it by hand.") from failure
        raise LegatoError(
            f"Processes {', '.join(map(str, left[:10]))} of a job that has ended cannot be killed; they may wait for a "
            "disk. End them by hand."
        )

    def remove_worker(self, worker: int) -> None:
        """Remove a worker's groups that are empty. `kill` ends remaining processes at the end of the job."""
        for place in self.folders(_name_worker(worker)):
            _remove(place)

    def close(self) -> None:
        """Remove all groups of the job that are empty."""
        for top in self.folders():
            with contextlib.suppress(OSError):
                for inner in [path for path in top.iterdir() if path.is_dir()]:
                    _remove(inner)
            _remove(top)

    def folders(self, *parts: str) -> list[Path]:
        """Return the folders of the job's groups, or of groups within them, which need not exist."""
        return list(dict.fromkeys(place.base.joinpath(self._name, *parts) for place in self._places.values()))

    def _add(self, group: str, pid: int, limits: Limits) -> None:
        for name, place in self._places.items():
            folder = place.base / self._name / group
            folder.mkdir(exist_ok=True)
            for file, value in _settings(name, place.version, limits):
                _write(folder / file, value)
        for folder in self.folders(group):
            try:
                (folder / "cgroup.procs").write_text(str(pid))
            except ProcessLookupError:
                return  # it has ended already
            except OSError as error:
                if error.errno != errno.ESRCH:
                    raise


class LimitHits(NamedTuple):
    """How often the group of this process, and the groups around it, have hit their memory limits.

    Args:
        counts: by group, from the innermost to the outermost readable one.
        is_certain: all groups up to the machine's root group are readable, and all counts are exact.
    """

    counts: Mapping[Path, int]
    is_certain: bool


def count_limit_hits(proc: Path = _PROC) -> LimitHits:
    """Return how often memory limits were hit in the enclosing groups, as far as these are readable."""
    place = _find_places(proc).get("memory")
    counts: dict[Path, int] = {}
    is_certain, is_root = True, False
    for folder in _enclosing(place):
        assert place is not None
        if place.version == 2:
            # The machine's root group has no counts; a container's root group looks like any other group.
            is_root = not (folder / "cgroup.events").exists()
            # Older kernels have only memory.events, whose counts include those of inner groups.
            counts[folder] = _read_count(folder / "memory.events.local", "oom")
            is_certain &= is_root or (folder / "memory.events.local").exists()
        else:
            is_root = (folder / "release_agent").exists()
            counts[folder] = next((int(word) for word in _read_words(folder / "memory.failcnt") if word.isdecimal()), 0)
            is_certain &= is_root or not _may_be_full(folder)
    return LimitHits(counts, is_certain and is_root)


class EnclosingLimits(NamedTuple):
    """The narrowest limits of the groups in which this process runs; None: not limited, or not readable.

    Args:
        memory_bytes: of all processes of the group.
        num_cpus: CPU time of all processes of the group, in cores.
    """

    memory_bytes: int | None
    num_cpus: float | None


def read_enclosing_limits(proc: Path = _PROC) -> EnclosingLimits:
    """Return the limits of this process's container or service."""
    places = _find_places(proc)
    cpus: list[float] = []
    for folder in _enclosing(places.get("cpu")):
        words = _read_words(folder / "cpu.max")
        words = words or [*_read_words(folder / "cpu.cfs_quota_us"), *_read_words(folder / "cpu.cfs_period_us")]
        if len(words) == 2 and all(word.isdecimal() and int(word) for word in words):
            cpus.append(int(words[0]) / int(words[1]))
    memory = filter(None, map(_read_memory_limit, _enclosing(places.get("memory"))))
    return EnclosingLimits(min(memory, default=None), min(cpus, default=None))


def _read_memory_limit(folder: Path) -> int | None:
    """Return the memory limit of a group in bytes; None if it has none."""
    words = _read_words(folder / "memory.max") or _read_words(folder / "memory.limit_in_bytes")
    # Version 1 writes a huge number for no limit.
    return next((int(word) for word in words if word.isdecimal() and int(word) < _NO_LIMIT), None)


def _enclosing(place: Place | None) -> Iterator[Path]:
    """Yield the groups that enclose this process, from the innermost to the outermost readable one."""
    folder = None if place is None else place.base
    while folder is not None and (folder / "cgroup.procs").exists():
        yield folder
        folder = folder.parent


def _may_be_full(folder: Path) -> bool:
    """Return whether a group of version 1 may have hit its limit: newer kernels do not count that."""
    known = {name: next(iter(_read_words(folder / f"memory.{name}")), "") for name in ("limit_in_bytes", _MOST_USED)}
    limit, used = (int(word) if word.isdecimal() else None for word in known.values())
    return limit is None or used is None or used > limit - _HUGE_PAGE


def explain_oom(limit: int) -> str:
    """Describe the death of a worker that the kernel killed because it had reached the limit of its job."""
    return (
        f"killed by the kernel: out of memory; the limit is {render_size(limit)} for each worker. Use a smaller "
        "micro-batch or fewer loader processes, or ask for more memory (--memory)"
    )


def explain_outer_oom(before: LimitHits, now: LimitHits) -> str:
    """Describe the death of a worker that the kernel killed for memory although its job had not reached its limit.

    Args:
        before: counts at the start of the worker.
        now: counts after its death.
    """
    full = next((folder for folder, count in now.counts.items() if count > before.counts.get(folder, count)), None)
    if full is not None:
        num_bytes = _read_memory_limit(full)
        limit = "" if num_bytes is None else f" of {render_size(num_bytes)}"
        return (
            f"killed by the kernel: the control group {full}, in which Legato runs, has reached its limit{limit}. Use "
            "a smaller micro-batch or fewer workers on this machine, or raise the limit of this container or service"
        )
    what = "the machine" if before.is_certain and now.is_certain else "the machine or an enclosing container"
    return (
        f"killed by the kernel: {what} was out of memory. Use a smaller micro-batch, fewer workers on this machine, or "
        "a machine with more memory"
    )


def explain_oom_nearby(num_killed: int) -> str:
    """Describe a killed worker's death if the kernel says only that it has killed some process for memory."""
    processes = "1 process" if num_killed == 1 else f"{num_killed} processes"
    return (
        f"killed by SIGKILL by an unknown process. While it ran, the kernel killed {processes} of this machine "
        "because memory was used up, perhaps this one: 'dmesg' names them"
    )


def is_named_victim(pid: int, since_s: float, log: Path = _KERNEL_LOG, pid_space: int | None = None) -> bool | None:
    """Return whether the kernel's log says that it killed this process for memory; None if the log is not readable.

    Args:
        pid: of the process.
        since_s: seconds on the clock ``time.monotonic``; earlier entries of the log are ignored.
        log: file that returns one record for each read: ``PRIORITY,NUMBER,MICROSECONDS,FLAGS;TEXT``.
        pid_space: the inode of the namespace of ``pid``; None: this process's namespace. In a container it usually
            differs from the kernel's, and the log then says nothing about this number.
    """
    if (_read_pid_space() if pid_space is None else pid_space) != KERNEL_PID_SPACE:
        return None
    told = f"Killed process {pid} ("
    try:
        descriptor = os.open(log, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        while record := _read_record(descriptor):
            about, _, text = record.partition(";")
            fields = about.split(",")
            if told in text and len(fields) > 2 and int(fields[2]) / 1e6 >= since_s - _LOG_SLACK_S:
                return True
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)
    return False


def _read_pid_space() -> int | None:
    try:
        return (_PROC / "self/ns/pid").stat().st_ino
    except OSError:
        return None


def _read_record(descriptor: int) -> str:
    """Return the next record of the kernel's log; "" at its end."""
    while True:
        try:
            return os.read(descriptor, _RECORD_BYTES).decode(errors="replace")
        except BlockingIOError:
            return ""
        except BrokenPipeError:
            continue  # records were overwritten; the next read returns the oldest remaining one


def count_machine_oom_kills(proc: Path = _PROC) -> int | None:
    """Return the number of processes that the kernel of this machine has killed for memory; None if unknown."""
    found = _read_count(proc / "vmstat", "oom_kill", missing=-1)
    return None if found < 0 else found


def prefer_as_victim(pid: int) -> None:
    """Make the kernel kill this process and its children before others when the machine has no memory left.

    Otherwise it might choose the server or a driver.
    """
    with contextlib.suppress(OSError):
        (_PROC / str(pid) / "oom_score_adj").write_text("500")


def _settings(controller: str, version: int, limits: Limits) -> Iterable[tuple[str, str]]:
    """Yield the files of a worker's group and their values; names of files that may be missing begin with ``?``."""
    memory, cpus = limits.memory_bytes, limits.num_cpus
    if controller == "memory" and memory is not None:
        if version == 2:
            yield from (("memory.max", str(memory)), ("?memory.swap.max", "0"), ("?memory.oom.group", "1"))
        else:
            yield from (("memory.limit_in_bytes", str(memory)), ("?memory.memsw.limit_in_bytes", str(memory)))
    if controller == "cpu" and cpus is not None:
        quota = max(int(cpus * _CPU_PERIOD_US), 1000)
        if version == 2:
            yield "cpu.max", f"{quota} {_CPU_PERIOD_US}"
        else:
            yield from (("cpu.cfs_period_us", str(_CPU_PERIOD_US)), ("cpu.cfs_quota_us", str(quota)))


def _kill_all_in(place: Path) -> list[int]:
    """Kill the processes of a group and of its subgroups, and return those that remain."""
    folders = [place, *(path for path in place.rglob("*") if path.is_dir())]
    found = [pid for folder in folders for pid in _read_pids(folder)]
    if not found:
        return []
    if (place / "cgroup.kill").exists():
        # Version 2 kills all processes at once, including new ones.
        (place / "cgroup.kill").write_text("1")
        return found
    if (place / "pids.max").exists():
        # They may start no process, so that none is started faster than others are killed.
        (place / "pids.max").write_text("0")
    for folder in folders:
        for pid in _read_pids(folder):
            _kill_in(folder, pid)
    return found


def _kill_in(folder: Path, pid: int) -> None:
    """Kill a process of a group. Its number may have been reused, so hold it and check its group again."""
    if pid == os.getpid():
        return
    try:
        held = os.pidfd_open(pid)
    except OSError:
        return  # it has ended
    try:
        if pid in _read_pids(folder):
            signal.pidfd_send_signal(held, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        os.close(held)


def _read_pids(folder: Path) -> list[int]:
    return [int(word) for word in _read_words(folder / "cgroup.procs") if word.isdecimal()]


def _write(file: Path, value: str) -> None:
    if not file.name.startswith("?"):
        file.write_text(value)
        return
    # Swap may be off, and old kernels kill one process only.
    with contextlib.suppress(OSError):
        file.with_name(file.name[1:]).write_text(value)


def _name_worker(worker: int) -> str:
    return f"worker-{worker}"


def _remove(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


def _find_places(proc: Path) -> dict[str, Place]:
    """Return the place of this process's group for each controller."""
    own: dict[str, str] = {}
    for line in _read_lines(proc / "self/cgroup"):
        _, names, path = line.split(":", 2)
        own |= dict.fromkeys(names.split(","), path)  # version 2 has no controller names
    found: dict[str, Place] = {}
    for line in _read_lines(proc / "self/mountinfo"):
        before, _, after = line.partition(" - ")
        root, mounted = before.split()[3:5]
        kind, _, options = after.split(" ")[:3]  # the source of a mount may be empty
        if kind == "cgroup":
            for name in set(options.split(",")) & set(CONTROLLERS) & own.keys():
                found[name] = Place(1, _join(mounted, root, own[name]))
        elif kind == "cgroup2" and "" in own:
            base = _join(mounted, root, own[""])
            base = base.parent if base.name == _SERVER else base
            for name in set(_read_words(base / "cgroup.controllers")) & set(CONTROLLERS):
                found.setdefault(name, Place(2, base))
    return found


def _join(mounted: str, root: str, path: str) -> Path:
    """Return the folder of a group if only a part of the hierarchy is mounted, as in a container."""
    inside = path.removeprefix(root) if root != "/" and path.startswith(root) else path
    return Path(mounted) / inside.lstrip("/")


def _read_lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []


def _read_words(file: Path) -> list[str]:
    return [word for line in _read_lines(file) for word in line.split()]


def _read_count(file: Path, name: str, missing: int = 0) -> int:
    for line in _read_lines(file):
        key, _, value = line.partition(" ")
        if key == name and value.isdecimal():
            return int(value)
    return missing
