"""The processes of this machine: which process a number means, and how to end exactly that one.

Numbers are given out again, so a process is meant by its number and its start time together, and both are looked at
before anything is sent. A process that might be another program's is not touched. Where a job has a user of its own,
numbers come from a file that the job can write, so only processes of that user are meant. Decides nothing about
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


ProcessState = Literal["running", "waiting", "stopped", "gone"]


class Stat(NamedTuple):
    """What ``/proc/PID/stat`` tells of a process.

    Args:
        state: one letter: R runs or waits for a CPU, S sleeps, D waits for a disk, T and t are stopped, Z has ended.
        group: the process group it belongs to: the number of the process that led it first.
        session: likewise.
        cpu_ticks: CPU time that all its threads have used, in clock ticks.
        start_time: in clock ticks since boot.
    """

    state: str
    group: int
    session: int
    cpu_ticks: int
    start_time: int

    @property
    def has_ended(self) -> bool:
        """Whether it waits to be reaped; its number is not given out again before that."""
        return self.state in "ZX"


class Vital(NamedTuple):
    """Whether a process makes progress, as the system sees it. Its session is it and the processes that it has started.

    Args:
        state: ``stopped`` by a signal or a debugger; ``gone``; else ``running`` if a thread of its session computes or
            waits for a CPU, or ``waiting`` if all of them wait for something else, a disk included.
        cpu_s: CPU time that its session has used, in seconds.
    """

    state: ProcessState
    cpu_s: float


def parse_stat(text: str) -> Stat:
    """Read the text of ``/proc/PID/stat``.

    The name in brackets may hold anything, spaces and brackets too, so that fields count from the last bracket.

    >>> parse_stat("7 (a) b) S 1 7 6 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 1 2")
    Stat(state='S', group=7, session=6, cpu_ticks=11, start_time=4711)
    """
    fields = text[text.rindex(")") + 2 :].split()
    return Stat(fields[0], int(fields[2]), int(fields[3]), int(fields[11]) + int(fields[12]), int(fields[19]))


def start_time_of(pid: int) -> int | None:
    """Return when a process began (clock ticks since boot), None if it is gone, 0 where the system does not tell.

    A process that has ended and waits to be reaped is not gone.
    """
    found = _stat_of(pid)
    if found is not None:
        return found.start_time
    return None if _has_proc() or not _answers(pid) else 0


def is_alive(pid: int, start_time: int, user: int | None = None) -> bool:
    """Return whether a process runs, and is the one that began then; with ``user``: and belongs to that user."""
    found = _stat_of(pid)
    if found is not None:
        return not found.has_ended and found.start_time == start_time and belongs_to(pid, user)
    return not _has_proc() and _answers(pid)


def examine(leaders: Mapping[int, tuple[int, int]]) -> dict[int, Vital]:
    """Say whether processes that each lead a session make progress.

    Args:
        leaders: what to call each of them → its number and start time.

    Returns:
        One entry for each process of which the system tells anything; none where it has no ``/proc``.
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
            continue  # hidden: neither alive nor gone can be said of it
        if leader is None or leader.has_ended or leader.start_time != start_time:
            vitals[name] = Vital("gone", 0.0)
        else:
            vitals[name] = _vital_of(leader, sessions[pid])
    return vitals


def boot_id() -> str:
    """Return a name for the time since the machine started, "" where the system has none: start times count from it."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def send_signal(pid: int, start_time: int, number: signal.Signals, user: int | None = None) -> None:
    """Send a signal to a process; nothing if it is gone, or its number is another process's by now.

    Args:
        pid: of the process.
        start_time: of the process.
        number: of the signal.
        user: only if the process belongs to that user. None: to any.

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
    """Kill a process that led a group of its own, and what is left of the group, as far as that is surely meant.

    As long as a group has members its number is not given out again. So while the leader is there, dead or alive, the
    group is the one meant; and where the number is another process's by now, the group is empty. With the leader gone
    the number may have been a stranger's meanwhile, whose children are the group; what is meant shows the mark.

    Args:
        pid: of the leader.
        start_time: of the leader.
        mark: a variable, ``NAME=VALUE``, that the leader had from its start, and so what it has started.
        user: only if the processes belong to that user. None: to any.

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
    """Kill all processes of this user that show a mark, except this one; also those that no record names.

    Args:
        mark: as of `kill_group`.
    """
    for entry in _PROC.glob("[0-9]*"):
        pid = int(entry.name)
        if pid == os.getpid() or not belongs_to(pid, os.getuid()):
            continue
        if (started := start_time_of(pid)) is not None and _shows(pid, mark):
            send_signal(pid, started, signal.SIGKILL)


def values_in(pid: int, variable: str) -> list[str]:
    """Return the values that a process began with for a variable.

    Raises:
        OSError: the system does not show the variables of this process.
    """
    start = os.fsencode(f"{variable}=")
    variables = (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    return [os.fsdecode(each.removeprefix(start)) for each in variables if each.startswith(start)]


def values_in_line(pid: int, variable: str) -> list[str] | None:
    """Return the values that a variable has in a process and in all processes of its line of parents.

    Args:
        pid: the process.
        variable: its name.

    Returns:
        The values as the processes began with them. None: the system does not show the variables of this process.
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
    """Kill all processes of users of the system, whatever they do not to be found.

    Args:
        users: by number; no process of theirs is to continue.
        min_age_s: processes that began later than so many seconds ago are not touched.
        is_spared: of a process and its user: it is not touched.

    Returns:
        How many were killed, by user; users without any are left out.

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
    """Yield the processes of a group that led its own session, those younger than its leader only."""
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
    # The state of a process is that of its first thread alone.
    tasks = _PROC / str(pid) / "task"
    try:
        threads = os.listdir(tasks)
    except OSError:
        # It has ended since it was found.
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
    """Return whether a process is one of a user and of no other; None: True for any process."""
    return user is None or _user_of(pid) == user


def _user_of(pid: int) -> int | None:
    """Return the user whose process it is, and no other's; None: there is none, or it is on its way to another user."""
    try:
        status = (_PROC / str(pid) / "status").read_text(errors="replace")
    except OSError:
        return None
    # Real, effective, saved and of the file system.
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
    """Return a descriptor of the process that has this number now, None if the system has none to give.

    Taken before the start time is looked at: if that is right, the descriptor's process is the right one too.
    """
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OverflowError:
        # A job that writes its own record can name any number.
        raise ProcessLookupError from None
    except (AttributeError, OSError):
        return None


def _stat_of(pid: int) -> Stat | None:
    try:
        return parse_stat((_PROC / str(pid) / "stat").read_bytes().decode(errors="replace"))
    except OSError:
        # Gone, or hidden, and then it is not ours.
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
    """Return whether processes of this system user alone listen at a port of this machine.

    True where the system does not tell, because it has no ``/proc``.
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
