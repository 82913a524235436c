"""Processes of this machine: identifies a process, and ends exactly that one.

The system reuses process numbers, so a process is identified by its number and its start time, and both are checked
before a signal is sent. A process that may belong to another program gets no signal. If a job has a separate user, the
numbers come from a file that the job can write, so only processes of that user get signals. Decides nothing about
workers.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple

from legato.core.errors import LegatoError

_PROC: Final = Path("/proc")
_LISTENING: Final = "0A"


ProcessState = Literal["running", "waiting", "stopped", "gone", "unreachable"]


class Stat(NamedTuple):
    """Fields of ``/proc/PID/stat`` of a process.

    Args:
        state: one letter: R runs or waits for a CPU, S sleeps, D waits for a disk, T and t are stopped, Z has ended.
        group: its process group: the number of the group's first leader.
        session: its session: the number of the session's first leader.
        cpu_ticks: CPU time of all its threads, in clock ticks.
        start_time: in clock ticks since boot.
        rss_pages: resident memory in pages.
        reaped_ticks: CPU time of its children that have ended, and of theirs, in clock ticks.
    """

    state: str
    group: int
    session: int
    cpu_ticks: int
    start_time: int
    rss_pages: int = 0
    reaped_ticks: int = 0

    @property
    def has_ended(self) -> bool:
        """Whether it waits to be reaped; its number is not reused before that."""
        return self.state in "ZX"


class SessionUse(NamedTuple):
    """What a process and the processes of its session use: CPU time in seconds, and resident memory.

    The time of processes that have ended counts, if another process of the session has reaped them.
    """

    cpu_s: float
    memory_bytes: int


class Vital(NamedTuple):
    """A sample of a process: whether it makes progress. Its session consists of it and the processes that it started.

    Args:
        state: ``stopped`` by a signal or a debugger; ``gone``; else ``running`` if a thread of its session computes or
            waits for a CPU, or ``waiting`` if all of them wait for something else, a disk included.
            ``unreachable``: its machine does not answer now, so nothing is known.
        cpu_s: CPU time of its session, in seconds.
    """

    state: ProcessState
    cpu_s: float


def parse_stat(text: str) -> Stat:
    """Read the text of ``/proc/PID/stat``.

    The name in brackets may contain spaces and brackets, so fields are counted from the last bracket.

    >>> parse_stat("7 (a) b) S 1 7 6 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 1 2")
    Stat(state='S', group=7, session=6, cpu_ticks=11, start_time=4711, rss_pages=2, reaped_ticks=15)
    """
    fields = text[text.rindex(")") + 2 :].split()
    cpu_ticks = int(fields[11]) + int(fields[12])
    reaped_ticks = int(fields[13]) + int(fields[14])
    return Stat(fields[0], int(fields[2]), int(fields[3]), cpu_ticks, int(fields[19]), int(fields[21]), reaped_ticks)


def start_time_of(pid: int) -> int | None:
    """Return when a process began (clock ticks since boot), None if it is gone, 0 where the system does not tell.

    A process that has ended and waits to be reaped still has a start time.
    """
    found = _stat_of(pid)
    if found is not None:
        return found.start_time
    return None if _has_proc() or not _answers(pid) else 0


def is_alive(pid: int, start_time: int, user: int | None = None) -> bool:
    """Return whether the process with this number and start time runs; with ``user``: and belongs to that user."""
    found = _stat_of(pid)
    if found is not None:
        return not found.has_ended and found.start_time == start_time and belongs_to(pid, user)
    return not _has_proc() and _answers(pid)


def examine(leaders: Mapping[int, tuple[int, int]]) -> dict[int, Vital]:
    """Return samples of processes, each of which leads a session.

    Args:
        leaders: key of each process → its number and start time.

    Returns:
        One entry for each process that the system shows; none if it has no ``/proc``.
    """
    if not leaders or not _has_proc():
        return {}
    found = {name: _stat_of(pid) for name, (pid, _) in leaders.items()}
    sessions: dict[int, list[tuple[int, Stat]]] = {pid: [] for pid, _ in leaders.values()}
    for pid, stat in _all_stats():
        if stat.session in sessions:
            sessions[stat.session].append((pid, stat))
    vitals = {}
    for name, (pid, start_time) in leaders.items():
        leader = found[name]
        if leader is None and _answers(pid):
            continue  # hidden: unknown whether it runs
        if leader is None or leader.has_ended or leader.start_time != start_time:
            vitals[name] = Vital("gone", 0.0)
        else:
            vitals[name] = _vital_of(leader, sessions[pid])
    return vitals


def measure_sessions(leaders: Mapping[int, tuple[int, int]]) -> dict[int, SessionUse]:
    """Return what processes use, each of which leads a session; without those that have ended or are hidden.

    Args:
        leaders: key of each process → its number and start time.
    """
    if not leaders or not _has_proc():
        return {}
    ticks_per_s, page_bytes = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    names = {pid: (name, start_time) for name, (pid, start_time) in leaders.items()}
    sums: dict[int, list[int]] = {}
    present = set()
    for pid, stat in _all_stats():
        if stat.session not in names:
            continue
        name, start_time = names[stat.session]
        if pid == stat.session and stat.start_time == start_time and not stat.has_ended:
            present.add(name)
        counted = sums.setdefault(name, [0, 0])
        # A process that has ended counts as it is until its parent reaps it, and with its parent from then on.
        counted[0] += stat.cpu_ticks + stat.reaped_ticks
        counted[1] += stat.rss_pages
    return {name: SessionUse(sums[name][0] / ticks_per_s, sums[name][1] * page_bytes) for name in present}


def boot_id() -> str:
    """Return the id of the machine's boot, from which start times count; "" if the system has none."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def send_signal(pid: int, start_time: int, number: signal.Signals, user: int | None = None) -> None:
    """Send a signal to a process. Does nothing if it has ended, even if its number was reused.

    Args:
        pid: of the process.
        start_time: of the process.
        number: of the signal.
        user: the signal is sent only if the process belongs to this user. None: any user.

    Raises:
        LegatoError: the system refuses it.
    """
    with contextlib.suppress(ProcessLookupError):
        held = _hold(pid)
        try:
            if not start_time or start_time_of(pid) != start_time or not belongs_to(pid, user):
                return
            if held is not None:
                signal.pidfd_send_signal(held, number)
            else:
                os.kill(pid, number)
        except PermissionError as error:
            raise _refused(pid) from error
        finally:
            if held is not None:
                os.close(held)


def kill_group(pid: int, start_time: int, mark: str, user: int | None = None) -> None:
    """Kill a process that leads a process group, and the remaining processes of the group that certainly belong to it.

    The system does not reuse a group's number while the group has members. So while the leader exists, running or as a
    zombie, the group is the right one; if another process has the number, the group is empty. If there is no process
    with the number, another process may have led a group of the same number since. Then the group is killed only if one
    of its members has the mark.

    Args:
        pid: of the leader.
        start_time: of the leader.
        mark: a variable, ``NAME=VALUE``, that the leader had at its start, and that its children inherit.
        user: the group is killed only if the leader, or the member with the mark, is this user's. None: any user's.

    Raises:
        LegatoError: the system refuses it.
    """
    found = _stat_of(pid)
    if found is not None:
        is_meant = found.start_time == start_time and belongs_to(pid, user)
    else:
        is_meant = any(_shows(member, mark) and belongs_to(member, user) for member in _members(pid, start_time))
    if is_meant and start_time:
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        except PermissionError as error:
            raise _refused(pid) from error


def kill_marked(mark: str) -> None:
    """Kill all processes of this user that have a mark, except this one, even if no record names them.

    Args:
        mark: as in `kill_group`.
    """
    for entry in _PROC.glob("[0-9]*"):
        pid = int(entry.name)
        if pid == os.getpid() or not belongs_to(pid, os.getuid()):
            continue
        if (started := start_time_of(pid)) is not None and _shows(pid, mark):
            send_signal(pid, started, signal.SIGKILL)


def values_in(pid: int, variable: str) -> list[str]:
    """Return the values of a variable at the start of a process.

    Raises:
        OSError: the system does not show the variables of this process.
    """
    start = os.fsencode(f"{variable}=")
    variables = (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    return [os.fsdecode(each.removeprefix(start)) for each in variables if each.startswith(start)]


def values_in_line(pid: int, variable: str) -> list[str] | None:
    """Return the values of a variable in a process and in all its ancestors.

    Args:
        pid: the process.
        variable: its name.

    Returns:
        The values at the start of the processes. None: the system does not show the variables of this process.
    """
    found: list[str] = []
    number = pid
    while number > 0:
        try:
            values = values_in(number, variable)
            status = (_PROC / str(number) / "status").read_text(errors="replace")
        except OSError:
            return None if number == pid else found
        found += values
        number = next((int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid:")), 0)
    return found


def kill_all_of(
    users: Collection[int], min_age_s: float, is_spared: Callable[[int, int], bool] = lambda _pid, _user: False
) -> dict[int, int]:
    """Kill all processes of system users, even if they try to hide.

    Args:
        users: numbers of the users, all of whose processes must end.
        min_age_s: minimum age of the processes in seconds; younger ones are not killed.
        is_spared: called with a process and its user; the process is not killed if it returns True.

    Returns:
        The number of killed processes, by user; users without any are left out.

    Raises:
        LegatoError: the system refuses it.
    """
    killed: dict[int, int] = {}
    up_s = float((_PROC / "uptime").read_text().split()[0])
    for pid, found in _all_stats():
        user = _user_of(pid)
        age_s = up_s - found.start_time / os.sysconf("SC_CLK_TCK")
        if user is None or user not in users or found.has_ended or age_s < min_age_s or pid == os.getpid():
            continue
        if not is_spared(pid, user):
            send_signal(pid, found.start_time, signal.SIGKILL, user)
            killed[user] = killed.get(user, 0) + 1
    return killed


def _members(group: int, start_time: int) -> Iterator[int]:
    """Yield the processes of a group whose leader led a session; only those that are younger than the leader."""
    for pid, found in _all_stats():
        if (found.group, found.session) == (group, group) and found.start_time >= start_time:
            yield pid


def _vital_of(leader: Stat, session: list[tuple[int, Stat]]) -> Vital:
    cpu_s = sum(stat.cpu_ticks for _, stat in session) / os.sysconf("SC_CLK_TCK")
    if leader.state in "Tt":
        return Vital("stopped", cpu_s)
    is_running = any(stat.state == "R" or _has_running_thread(pid) for pid, stat in session)
    return Vital("running" if is_running else "waiting", cpu_s)


def _has_running_thread(pid: int) -> bool:
    # The state of a process in `/proc` is the state of its first thread only.
    tasks = _PROC / str(pid) / "task"
    try:
        threads = os.listdir(tasks)
    except OSError:
        # It has ended meanwhile.
        return False
    for thread in threads:
        with contextlib.suppress(OSError):
            if parse_stat((tasks / thread / "stat").read_bytes().decode(errors="replace")).state == "R":
                return True
    return False


def _all_stats() -> Iterator[tuple[int, Stat]]:
    for entry in _PROC.glob("[0-9]*"):
        found = _stat_of(int(entry.name))
        if found is not None:
            yield int(entry.name), found


def belongs_to(pid: int, user: int | None) -> bool:
    """Return whether a process belongs to a user and to no other; ``user`` None: True for any process."""
    return user is None or _user_of(pid) == user


def _user_of(pid: int) -> int | None:
    """Return the only user of a process; None: it does not exist, or its user ids differ."""
    try:
        status = (_PROC / str(pid) / "status").read_text(errors="replace")
    except OSError:
        return None
    # The real, effective, saved and file-system user id.
    line = next((line for line in status.splitlines() if line.startswith("Uid:")), "")
    users = set(line.split()[1:])
    return int(users.pop()) if len(users) == 1 else None


def _refused(pid: int) -> LegatoError:
    return LegatoError(
        f"Cannot end process {pid}: the system refuses it. User {os.geteuid()} may not send signals to this process; "
        "run the server as root, or with the capability KILL."
    )


def _shows(pid: int, mark: str) -> bool:
    try:
        return os.fsencode(mark) in (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _hold(pid: int) -> int | None:
    """Return a descriptor of the process that has this number now; None if the system has none.

    Take it before you check the start time: if that is right, the descriptor's process is the right one too.
    """
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OverflowError:
        # A job that can write its record can name any number.
        raise ProcessLookupError from None
    except (AttributeError, OSError):
        return None


def _stat_of(pid: int) -> Stat | None:
    try:
        return parse_stat((_PROC / str(pid) / "stat").read_bytes().decode(errors="replace"))
    except OSError:
        # The process has ended, or is hidden and thus another user's.
        return None


def _has_proc() -> bool:
    return (_PROC / "self/stat").exists()


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def listens_here(port: int) -> bool:
    """Return whether only processes of this system user listen on a port of this machine.

    Returns True on systems without ``/proc``.
    """
    owners: set[int] = set()
    tables = [path for name in ("tcp", "tcp6") if (path := (_PROC / "self/net" / name)).exists()]
    for table in tables:
        for line in table.read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                owners.add(int(fields[7]))
    return owners == {os.geteuid()} if tables else True


if __name__ == "__main__":
    kill_marked(sys.argv[1])
