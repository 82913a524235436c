"""Control groups of both versions, in folders that look like the kernel's."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import pytest

from legato.core.errors import LegatoError, UsageError
from legato.core.limits import Limits, check_limits, read_size
from legato.engines import cgroups
from legato.engines.cgroups import JobGroup, Support, find_support, prepare_server

LIMITS = Limits(memory_bytes=2**30, num_cpus=1.5, num_processes=100)


def make_proc(root: Path, version: int, own: str = "/own") -> Path:
    """Make the files by which a process learns of its groups; returns the folder of its own ones."""
    proc, mounted = root / "proc", root / "cgroup"
    (proc / "self").mkdir(parents=True)
    if version == 2:
        (proc / "self/cgroup").write_text(f"0::{own}\n")
        (proc / "self/mountinfo").write_text(f"30 1 0:1 / {mounted} rw - cgroup2 cgroup2 rw\n")
        base = mounted / own.lstrip("/")
        base.mkdir(parents=True)
        (base / "cgroup.controllers").write_text("cpu memory pids io\n")
        (base / "cgroup.subtree_control").write_text("")
        (base / "cgroup.procs").write_text("")
        return base
    (proc / "self/cgroup").write_text(f"3:cpu,cpuacct:{own}\n2:memory:{own}\n1:pids:{own}\n")
    lines = ""
    for number, name in enumerate(("memory", "cpu,cpuacct", "pids")):
        (mounted / name / own.lstrip("/")).mkdir(parents=True)
        lines += f"3{number} 1 0:{number} / {mounted}/{name} rw - cgroup cgroup rw,{name}\n"
    (proc / "self/mountinfo").write_text(lines)
    return mounted


def test_limits_of_version_1(tmp_path: Path) -> None:
    mounted = make_proc(tmp_path, 1)
    support = find_support(tmp_path / "proc")
    assert (set(support.places), support.why_not) == ({"memory", "cpu", "pids"}, "")
    group = JobGroup(Path("/jobs/a"), LIMITS, support)
    group.open()
    group.add_parent(5)
    group.add_worker(0, 7)
    memory = next((mounted / "memory/own").glob("legato-*"))
    assert (memory / "worker-0/memory.limit_in_bytes").read_text() == str(2**30)
    assert (memory / "worker-0/cgroup.procs").read_text() == "7"
    assert (memory / "parent/cgroup.procs").read_text() == "5"
    assert (memory / "parent/memory.limit_in_bytes").read_text() == str(2**30)
    cpu = next((mounted / "cpu,cpuacct/own").glob("legato-*"))
    assert (cpu / "worker-0/cpu.cfs_quota_us").read_text() == "150000"
    pids = next((mounted / "pids/own").glob("legato-*"))
    assert (pids / "pids.max").read_text() == "100"
    (memory / "worker-0/memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    assert group.count_oom_kills(0) == 2
    assert group.count_oom_kills(1) == 0


def test_limits_of_version_2(tmp_path: Path) -> None:
    base = make_proc(tmp_path, 2)
    refused = find_support(tmp_path / "proc")
    assert not refused.places
    assert "does not hand" in refused.why_not
    assert "Delegate=yes" in refused.why_not
    prepare_server(tmp_path / "proc")
    (base / "cgroup.subtree_control").write_text("cpu memory pids")  # as the kernel answers
    support = find_support(tmp_path / "proc")
    assert support.why_not == ""
    group = JobGroup(Path("/jobs/a"), LIMITS, support)
    group.open()
    group.add_worker(3, 7)
    folder = next(base.glob("legato-*/worker-3"))
    files = {path.name: path.read_text() for path in folder.iterdir()}
    assert files == {
        "memory.max": str(2**30),
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "cpu.max": "150000 100000",
        "cgroup.procs": "7",
    }
    (folder / "memory.events").write_text("low 0\noom 1\noom_kill 1\n")
    assert group.count_oom_kills(3) == 1


def test_a_server_moves_into_a_group_of_its_own_only_if_it_is_alone(tmp_path: Path) -> None:
    base = make_proc(tmp_path, 2)
    (base / "cgroup.procs").write_text("1\n2\n")
    prepare_server(tmp_path / "proc")
    assert not (base / "legato-server").exists()
    (base / "cgroup.procs").write_text("")
    prepare_server(tmp_path / "proc")
    assert (base / "legato-server/cgroup.procs").read_text().isdecimal()
    assert (base / "cgroup.subtree_control").read_text() == "+memory +cpu +pids"


def test_a_server_in_its_own_group_makes_jobs_groups_beside_it(tmp_path: Path) -> None:
    base = make_proc(tmp_path, 2, own="/own/legato-server").parent
    (base / "cgroup.controllers").write_text("memory\n")
    (base / "cgroup.subtree_control").write_text("memory\n")
    assert find_support(tmp_path / "proc").places["memory"].base == base


def test_a_container_sees_a_part_of_the_hierarchy(tmp_path: Path) -> None:
    assert cgroups._join("/sys/fs/cgroup/memory", "/docker/1", "/docker/1/a") == Path("/sys/fs/cgroup/memory/a")
    assert cgroups._join("/sys/fs/cgroup/memory", "/", "/a") == Path("/sys/fs/cgroup/memory/a")


def test_what_cannot_be_limited_is_said(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    support = find_support(tmp_path / "proc")
    assert "no control groups are mounted" in support.why_not
    told = support.check(LIMITS)
    assert told is not None
    assert "cannot limit memory and cpu and pids of a job" in told
    assert support.check(Limits()) is None
    assert Support({}, "x").check(Limits(num_cpus=1)) == "this machine cannot limit cpu of a job: x"


@pytest.mark.parametrize("text", ["", "8X", "-1G", "G", "1 G B"])
def test_sizes_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="such as 8G or 500M"):
        read_size(text, "the memory")


def test_limits_with_which_no_worker_can_live_are_refused() -> None:
    with pytest.raises(UsageError, match="is below 67108864"):
        check_limits(1000, None, "Cannot submit job 'a'")
    with pytest.raises(UsageError, match=r"is below 0\.01"):
        check_limits(None, 0.001, "Cannot submit job 'a'")
    check_limits(2**30, 0.5, "")


def test_a_mount_without_a_source_is_read(tmp_path: Path) -> None:
    make_proc(tmp_path, 2)
    mounts = tmp_path / "proc/self/mountinfo"
    mounts.write_text("29 1 0:9 / /odd rw - tmpfs  rw\n" + mounts.read_text())
    assert "does not hand" in find_support(tmp_path / "proc").why_not


def test_a_worker_is_said_to_have_reached_its_limit_only_where_the_kernel_counted_that(tmp_path: Path) -> None:
    mounted = make_proc(tmp_path, 1)
    group = JobGroup(Path("/jobs/a"), LIMITS, find_support(tmp_path / "proc"))
    group.open()
    group.add_worker(0, 7)
    most_used = next((mounted / "memory/own").glob("legato-*")) / "worker-0/memory.max_usage_in_bytes"
    for num_bytes, has in ((2**29, False), (2**30 - 4096, True)):
        most_used.write_text(str(num_bytes))
        assert group.has_reached_limit(0) is has


def write_files(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(f"{content}\n")


def test_a_kill_by_the_limit_of_an_enclosing_container_names_that_group(tmp_path: Path) -> None:
    own = make_proc(tmp_path, 2, own="/pod/box/own")
    proc, root = tmp_path / "proc", tmp_path / "cgroup"
    for folder in (own, own.parent, own.parent.parent):
        write_files(folder, cgroup__procs="", cgroup__events="", memory__events__local="low 0\noom 3\noom_kill 9")
    write_files(root, cgroup__procs="")
    before = cgroups.count_limit_hits(proc)
    assert (list(before.counts), before.is_certain) == ([own, own.parent, own.parent.parent, root], True)
    assert "the machine was out of memory" in cgroups.explain_outer_oom(before, before)
    write_files(own.parent.parent, memory__events__local="oom 4", memory__max=2**30)
    told = cgroups.explain_outer_oom(before, cgroups.count_limit_hits(proc))
    assert f"the control group {own.parent.parent}, in which Legato runs, has reached its limit of 1 GiB" in told
    # In a container, the groups around it cannot be read.
    write_files(root, cgroup__events="", memory__events__local="oom 0")
    before = cgroups.count_limit_hits(proc)
    assert "the machine or an enclosing container was out of memory" in cgroups.explain_outer_oom(before, before)
    write_files(root, memory__events__local="oom 1")
    assert f"the control group {root}," in cgroups.explain_outer_oom(before, cgroups.count_limit_hits(proc))
    # An older kernel counts what happens inside of a group as well.
    (own / "memory.events.local").unlink()
    write_files(own, memory__events="oom 9")
    assert not cgroups.count_limit_hits(proc).is_certain


def test_a_kill_by_the_limit_of_an_enclosing_group_of_version_1(tmp_path: Path) -> None:
    mounted = make_proc(tmp_path, 1, own="/box/own")
    proc, root = tmp_path / "proc", mounted / "memory"
    box, own = root / "box", root / "box/own"
    unlimited = {"memory__failcnt": 0, "memory__limit_in_bytes": 2**63 - 4096, "memory__max_usage_in_bytes": 2**30}
    for folder in (own, box, root):
        write_files(folder, cgroup__procs="", **unlimited)
    write_files(root, release_agent="")
    before = cgroups.count_limit_hits(proc)
    assert list(before.counts) == [own, box, root]
    assert "the machine was out of memory" in cgroups.explain_outer_oom(before, before)
    write_files(box, memory__failcnt=1, memory__limit_in_bytes=2**30)
    told = cgroups.explain_outer_oom(before, cgroups.count_limit_hits(proc))
    assert f"the control group {box}, in which Legato runs, has reached its limit of 1 GiB" in told
    # A newer kernel does not count it: whose limit it was cannot be known.
    write_files(box, memory__failcnt=0)
    told = cgroups.explain_outer_oom(before, cgroups.count_limit_hits(proc))
    assert "the machine or an enclosing container was out of memory" in told
    assert not cgroups.count_limit_hits(tmp_path / "no-proc").is_certain


def write_log(path: Path, *records: str) -> Path:
    path.write_text("\n".join(records))
    return path


def test_the_log_of_the_kernel_names_whom_it_killed(tmp_path: Path) -> None:
    is_named_victim = functools.partial(cgroups.is_named_victim, pid_space=cgroups.KERNEL_PID_SPACE)
    record = "4,900,12000000,-;Out of memory: Killed process 77 (python) total-vm:8kB"
    log = write_log(tmp_path / "kmsg", record)
    assert is_named_victim(77, 11.0, log) is True
    assert is_named_victim(77, 20.0, log) is False, "that was an earlier process with this number"
    assert is_named_victim(7, 11.0, log) is False
    assert is_named_victim(77, 11.0, tmp_path / "none") is None
    assert cgroups.is_named_victim(77, 11.0, log, pid_space=4_026_532_000) is None, "numbers of a container are others"


def test_a_group_that_cannot_be_killed_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounted = make_proc(tmp_path, 1)
    group = JobGroup(Path("/jobs/a"), Limits(), find_support(tmp_path / "proc"))
    group.open()
    pids = next((mounted / "pids/own").glob("legato-*"))
    (pids / "cgroup.procs").write_text(str(os.getppid()))
    (pids / "cgroup.kill").mkdir()
    monkeypatch.setattr(cgroups, "_KILL_PAUSE_S", 0.0)
    with pytest.raises(LegatoError, match="leftover processes of a job"):
        group.kill()


def test_an_attempt_may_start_processes_where_an_earlier_one_could_not_be_killed(tmp_path: Path) -> None:
    mounted = make_proc(tmp_path, 1)
    group = JobGroup(Path("/jobs/a"), Limits(), find_support(tmp_path / "proc"))
    group.open()
    pids = next((mounted / "pids/own").glob("legato-*"))
    (pids / "pids.max").write_text("0")
    group.open()
    assert (pids / "pids.max").read_text() == "max"
