"""Slurm on the hosts of a bed: its controller on the head, and a node on each host. ``sbatch`` works from the head.

Needs Slurm's programs (Debian: slurm-wlm), and control groups of version 1, with which Slurm knows the processes of a
step.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tests.hosts.bed import Hosts
from tests.ports import find_port

_PATH: Final = f"{os.environ['PATH']}{os.pathsep}/usr/sbin:/sbin"
_PROGRAMS: Final = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue")
_FREEZER: Final = Path("/sys/fs/cgroup/freezer")
_LIMIT_S: Final = 60.0
_CONFIGURATION: Final = """
ClusterName=test
SlurmctldHost={name}({head})
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=5
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SwitchType=switch/none
MpiDefault=none
ProctrackType=proctrack/cgroup
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
SlurmdTimeout=5
MessageTimeout=5
TCPTimeout=1
InactiveLimit=0
KillWait=20
SlurmdParameters=config_overrides
{nodes}
PartitionName=low Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=10
PartitionName=high Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""
_GROUPS: Final = """
CgroupPlugin=cgroup/v1
CgroupMountpoint=/sys/fs/cgroup
CgroupAutomount=no
"""


@functools.cache
def why_no_slurm() -> str | None:
    """Return why Slurm cannot run on the hosts of a bed, None if it can."""
    if missing := [program for program in _PROGRAMS if not shutil.which(program, path=_PATH)]:
        return f"Slurm is not installed: {', '.join(missing)} (Debian: apt-get install slurm-wlm)"
    if not os.access(_FREEZER, os.W_OK):
        return "Slurm's steps need control groups of version 1, with the freezer"
    return None


class Slurm:
    """A cluster; it ends with `stop`, and the hosts with it.

    Args:
        hosts: that are up; their names are those of the nodes.
        folder: an empty one for configuration, state and logs, with a short path: sockets are in it.
        environment: of jobs, beside that of this process.
        prefix: of the commands that run nodes.
    """

    def __init__(self, hosts: Hosts, folder: Path, environment: dict[str, str], *, prefix: Sequence[str] = ()) -> None:
        self._hosts, self._folder, self._prefix = hosts, folder, prefix
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._groups = _FREEZER / f"legato-test-{secrets.token_hex(4)}"
        self.environment = {
            **os.environ,
            "PATH": _PATH,
            "SLURM_CONF": str(folder / "slurm.conf"),
            **environment,
        }
        for name in ("state", "spool"):
            (folder / name).mkdir()
        key = folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        port = find_port()
        nodes = [f"NodeName={hosts.name(i)} NodeAddr={hosts.address(i)} CPUs=8 RealMemory=8000" for i in hosts.numbers]
        name = socket.gethostname().partition(".")[0]
        values = {"name": name, "head": hosts.head, "port": port, "folder": folder, "nodes": "\n".join(nodes)}
        (folder / "slurm.conf").write_text(_CONFIGURATION.format(**values))
        (folder / "cgroup.conf").write_text(_GROUPS)

    def start(self) -> None:
        """Start the cluster, and wait until all nodes are idle."""
        folder = self._folder
        munged = [
            "munged",
            "--foreground",
            "--force",
            f"--key-file={folder}/munge.key",
            f"--socket={folder}/munge.sock",
        ]
        munged += [f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log", f"--seed-file={folder}/seed"]
        self._start("munged", [*munged, "--num-threads=2"])
        self._wait_for((folder / "munge.sock").exists)
        self.start_controller()
        for host in self._hosts.numbers:
            self.start_node(host)
        self._wait_for(lambda: self._count_idle() == len(self._hosts.numbers))

    def start_controller(self) -> None:
        """Start the controller, also again."""
        self._start("slurmctld", ["slurmctld", "-D", "-f", str(self._folder / "slurm.conf")])

    def stop_controller(self) -> None:
        """Kill the controller; what runs on the nodes runs on."""
        self._daemons["slurmctld"].kill()
        self._daemons["slurmctld"].wait()

    def shorten(self, job: str, rest_s: float) -> None:
        """Let the time limit of a job come in so many seconds, rounded up to a minute of its run time."""
        hours, minutes, seconds = map(int, self.run("squeue", "-h", "-j", job, "-o", "0:0:%M").split(":")[-3:])
        limit = -(-(hours * 3600 + minutes * 60 + seconds + rest_s) // 60)
        self.run("scontrol", "update", f"JobId={job}", f"TimeLimit={limit:.0f}")

    def start_node(self, host: int) -> None:
        """Start the node of a host, also after the host was started again."""
        name = self._hosts.name(host)
        (self._folder / "spool" / name).mkdir(exist_ok=True)
        # Slurm names its control groups by nodes and jobs, and those of another cluster may have the same names.
        self._groups.mkdir(exist_ok=True)
        self._hosts.run_on(host, "mount", "--bind", str(self._groups), str(_FREEZER))
        command = [*self._prefix, "slurmd", "-D", "-N", name, "-f", str(self._folder / "slurm.conf")]
        self._start(name, self._hosts.command_on(host, command))

    def stop_node(self, host: int) -> None:
        """Kill the node's daemon; steps that run there run on."""
        self._hosts.run_on(host, "sh", "-c", "kill -9 $(pidof slurmd)")

    def stop(self) -> None:
        """Crash all hosts, and kill all daemons."""
        for host in self._hosts.numbers:
            if self._hosts.is_up(host):
                self._hosts.crash(host)
        for daemon in self._daemons.values():
            daemon.kill()
        for daemon in self._daemons.values():
            daemon.wait()
        for group in sorted(self._groups.glob("**/"), reverse=True):
            group.rmdir()

    def run(self, *command: str) -> str:
        """Run a command of Slurm on the head, and return what it wrote."""
        done = subprocess.run(
            command,
            env=self.environment,
            cwd=self._folder,
            check=True,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
        )
        return done.stdout

    def submit(self, *options: str, script: str) -> str:
        """Submit a script; returns the number of its job. Its output is in `output_of`."""
        file = self._folder / "script"
        file.write_text(f"#!/bin/bash\n{script}\n")
        output = [f"--output={self._folder}/out-%j", "--open-mode=append"]
        return self.run("sbatch", "--parsable", *output, *options, str(file)).strip()

    def output_of(self, job: str) -> str:
        """Return what a job has written."""
        file = self._folder / f"out-{job}"
        return file.read_text(errors="replace") if file.exists() else ""

    def state_of(self, job: str) -> str:
        """Return the state of a job, such as ``RUNNING``."""
        shown = self.run("scontrol", "--oneliner", "show", "job", job)
        return next(field.partition("=")[2] for field in shown.split() if field.startswith("JobState="))

    def logs(self) -> str:
        """Return the ends of the logs of all daemons, for a test that has failed."""
        return "\n".join(f"{name}: {(self._folder / f'{name}.log').read_text()[-2000:]}" for name in self._daemons)

    def _count_idle(self) -> int:
        with contextlib.suppress(subprocess.CalledProcessError):
            return self.run("sinfo", "-h", "-N", "-p", "low", "-o", "%t").split().count("idle")
        return 0

    def _start(self, name: str, command: Sequence[str]) -> None:
        with (self._folder / f"{name}.log").open("ab") as log:
            self._daemons[name] = subprocess.Popen(
                command, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def _wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _LIMIT_S
        while not condition():
            assert time.monotonic() < deadline, self.logs()
            time.sleep(0.1)
