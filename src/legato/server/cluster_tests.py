"""Tests of a cluster: the job that trains on one new machine, and what is wrong if it does not. Decides, does no I/O.

A test is a job like any other, with a label that only one machine has, which the pilot pool starts for it. So it uses
what all jobs need: the way from the machine to the server and to the driver, the same release, Python and torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from legato.api.pool import ClusterTest
from legato.client.packing import Packed, pack_files
from legato.clusters.pilots import Pilot, PilotState, is_hopeless
from legato.control.records import Job, StoredAgent
from legato.control.stages import Stage
from legato.core.version import __version__
from legato.policy.snapshot import MAX_PRIORITY, TEST_LABEL, Snapshot

NUM_STEPS: Final = 10
RUNNING: Final = "running"
PASSED: Final = "passed"
FAILED: Final = "failed"

_FILE: Final = "cluster_test.py"
_MAX_WORKERS: Final = 8
WAIT_LIMIT_S: Final = 300.0
_JOIN_LIMIT_S: Final = 60.0
_TRAIN_LIMIT_S: Final = 180.0
_AWAY_LIMIT_S: Final = 30.0
"""A cluster that does not answer once is asked again; all are observed at least this often."""
_PROGRAM: Final = f"""
import torch
import legato


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return {NUM_STEPS * _MAX_WORKERS * 8}

    def __getitem__(self, index):
        return torch.randn(16, generator=torch.Generator().manual_seed(index)), index % 4


run = legato.elastic(global_batch_size={_MAX_WORKERS * 8}, micro_batch_size=8, seed=0)
model, optimizer = torch.nn.Linear(16, 4), None
model, optimizer = run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
for epoch in run.epochs(1):
    for inputs, targets in run.batches(Numbers()):
        torch.nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
"""

_Advice = Mapping[str, tuple[str, ...]]
"""What to do, and parts of what is said in one phase of a test. The first that fits counts."""

_NO_TORCH: Final[_Advice] = {
    "install torch in the Python of the machines": ("No module named 'torch'", "No module named torch"),
}
_OTHER_CERTIFICATE: Final[_Advice] = {
    "check that url leads to this server, and not to a proxy with another certificate": (
        *("certificate authority", "certificate cannot be verified", "handshake of TLS", "certificate verify failed"),
    ),
}
_NO_WAY: Final[_Advice] = {
    "let the machines reach the server's port and driver_ports: check url, allowed_hosts and the firewall": (
        *("cannot be reached", "not reached the server", "cannot reach", "Cannot reach"),
        *("Connection refused", "No route to host", "timed out"),
    ),
}
_NO_MEMORY: Final[_Advice] = {
    "give each machine more memory": ("OOMKilled", "OUT_OF_MEMORY", "out of memory", "oom-kill", "oom_kill"),
}
_AWAY: Final[_Advice] = {
    # Kubernetes first: its client's words are also those of other failures of a network.
    "correct the certificate authority in the kubeconfig": ("certificate verify failed", "CERTIFICATE_VERIFY_FAILED"),
    "check the state of the control plane, and try again": ("API server answers",),
    "check the kubeconfig, and that the server's machine reaches the API server": ("API server",),
    "install the commands of Slurm on the server's machine, in its PATH": ("Cannot run",),
    "check that munge runs on the server's machine, with the key of the cluster": ("munge", "authentication"),
    "check on the server's machine that slurmctld answers (scontrol ping)": (
        *("slurm", "Slurm", "squeue", "sbatch", "scancel"),
    ),
}
_CLUSTER: Final[_Advice] = {
    # Kubernetes.
    "correct image, or give the pods imagePullSecrets by pod_template": (
        *("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"),
    ),
    "raise the quota of the namespace, or lower cpu, memory and gpus": ("exceeded quota",),
    "make room, or correct gpus, cpu, memory, and node selector and tolerations of pod_template": (
        *("Unschedulable", "FailedScheduling"),
    ),
    "correct the volumes and Secrets of pod_template": ("FailedMount", "CreateContainerConfigError"),
    "apply the Role and the RoleBinding of deploy/kubernetes in this namespace": ("forbidden", "right is missing"),
    # Slurm.
    "correct account, partition and qos in [slurm]": (
        *("Invalid account", "Invalid partition", "invalid partition", "Invalid qos", "InvalidAccount", "InvalidQOS"),
    ),
    "ask for less, name another qos or account, or have the limit raised": ("QOS", "Assoc", "MaxSubmit"),
    "ask the administrator of Slurm when the nodes are back, or name another partition": (
        *("PartitionDown", "PartitionInactive", "ReqNodeNotAvail", "Nodes required"),
    ),
    "correct time, gpus, cpus and options: no node of the partition fits": (
        *("PartitionNodeLimit", "PartitionTimeLimit", "time limit", "node configuration", "BadConstraints"),
    ),
    "correct options: no node has what --constraint names (sinfo --format='%N %f')": ("feature specification",),
    "correct gpus, gres and cpus: no node has so many (sinfo --format='%N %c %G')": (
        *("generic resource", "(gres)", "processors requested", "CPU count"),
    ),
    "correct --mem in options: no node has so much (sinfo --format='%N %m')": ("Memory specification",),
    "the cluster is full: try again later, or ask for less": ("Resources", "Priority"),
}
"""Of what a cluster says when it refuses a machine, or lets it wait."""
_MACHINE: Final[_Advice] = {
    **_NO_TORCH,
    "install Legato on a disk that the machines see, or correct the setting python or image": (
        *("No module named", "No such file or directory", "command not found"),
    ),
    "install the server's release on the machines": ("this agent is of Legato",),
    "check that the machines show their GPUs (nvidia-smi), and the settings gpus and gres": ("Legato finds",),
    **_OTHER_CERTIFICATE,
    **_NO_MEMORY,
    **_NO_WAY,
    **_CLUSTER,
}
"""Of what a machine says before its agent joins, and of why its cluster ends it."""
_JOB: Final[_Advice] = {
    **_NO_TORCH,
    "install Legato and what torch needs in the Python of the machines": ("No module named",),
    "end what else uses the GPUs of the machine (nvidia-smi)": ("CUDA out of memory",),
    "install a torch that fits the GPUs and the driver of the machines": (
        *("no kernel image", "driver version is insufficient", "driver on your system is too old"),
    ),
    "make room on the disks of the machine": ("No space left",),
    "correct the setting python or image": ("No such file or directory",),
    **_OTHER_CERTIFICATE,
    **_NO_MEMORY,
    **_NO_WAY,
}
"""Of what the job of a test says on its machine."""
_SETTINGS: Final[_Advice] = {
    "make it on the server's machine and on the nodes, name another one in job_users and restart the server, or check "
    "that the directory of users answers": ("no system user",),
    "name a system user without such rights in job_users and restart the server": ("can do all that the server can",),
}
"""Of why the server cannot ask for a machine."""
_FULL: Final = re.compile(
    r"(?s)Resources|.*(Insufficient |Too many pods|exceeded quota|accounting/QOS policy|MaxSubmit)"
    r"|(QOS|Assoc)Grp(\w*RunMinutes|(?!\w*(Minutes|Wall)))|(QOS)?Max\w+Per(User|Account)|AssocMaxJobsLimit"
)
"""Words of clusters that have no room, or no right, for one more machine before another one is given back."""


def pack_program() -> Packed:
    """Return the program that a test trains."""
    return pack_files({_FILE: _PROGRAM.encode()})


def describe_submission(kind: str, num_slots: int, code: str) -> dict[str, Any]:
    """Return the fields of the job of a test.

    Args:
        kind: of the cluster.
        num_slots: of each of its machines.
        code: SHA-256 of the program.
    """
    num_workers = min(num_slots, _MAX_WORKERS)
    return {
        "name": f"test-{kind}",
        "program": (_FILE,),
        "code": code,
        "min_workers": num_workers,
        "max_workers": num_workers,
        "priority": MAX_PRIORITY,
        "node_labels": {TEST_LABEL: kind},
        "labels": {TEST_LABEL: kind},
    }


def lacks_room(told: str) -> bool:
    """Whether a cluster could give a machine if it had another one back.

    >>> [lacks_room(told) for told in ("Resources", "QOSMaxGRESPerUser", "AssocGrpCPURunMinutesLimit")]
    [True, True, True]
    >>> [lacks_room(told) for told in ("Priority", "QOSNotAllowed", "QOSMaxCpuPerNode", "QOSGrpCPUMinutesLimit")]
    [False, False, False, False]
    """
    return _FULL.match(told) is not None


def find_job(snapshot: Snapshot, kind: str) -> str | None:
    """Return the job of the oldest test of a cluster that has not ended; None: there is none."""
    found = [(job.submitted_at, job.id) for job in snapshot.jobs if job.labels.get(TEST_LABEL) == kind]
    return min(found)[1] if found else None


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a test at one moment.

    Args:
        cluster: its name for people.
        url: at which its machines reach the server.
        num_pilots, max_pilots: other machines of the cluster, and how many there may be.
        job: of the test. None: it was deleted.
        job_refusal: why the machine refuses the job. None: it does not.
        away: why the cluster does not answer. None: it does.
        away_s: for how long this is so, from the first request that failed to the last.
        hindrance: why the server cannot ask for the machine, as a part of a sentence. None: it can.
        refusal: why the cluster starts no machine for the test. None: it has not refused.
        room_of: the machine of the pool that is being given back to make room. None: there is none.
        awaits_room: an idle machine is given back soon, unless a job needs it.
        was_asked: a machine was asked for.
        pilot: as the cluster shows it. None: it does not.
        is_gone: the cluster no longer has it.
        agent: of the machine. None: it has not joined.
        pilot_since, running_since: since when the machine was asked for, and has run without its agent.
        last_words: what the machine has written last. "": not known.
    """

    cluster: str
    url: str
    num_pilots: int
    max_pilots: int
    job: Job | None
    job_refusal: str | None = None
    away: str | None = None
    away_s: float = 0.0
    hindrance: str | None = None
    refusal: str | None = None
    room_of: str | None = None
    awaits_room: bool = False
    was_asked: bool = False
    pilot: Pilot | None = None
    is_gone: bool = False
    agent: StoredAgent | None = None
    pilot_since: float | None = None
    running_since: float | None = None
    last_words: str = ""


def judge(test: ClusterTest, seen: Sight, now: float) -> ClusterTest:
    """Return a test with what happens now, or with what has come out. Pure."""
    verdict, told = _judge(test, seen, now)
    ended_at = None if verdict == RUNNING else now
    return msgspec.structs.replace(test, state=verdict, told=told, ended_at=ended_at)


def _judge(test: ClusterTest, seen: Sight, now: float) -> tuple[str, str]:  # noqa: PLR0911 -- one for each outcome
    job, name = seen.job, seen.cluster
    if job is None or job.stage is Stage.STOPPED:
        return FAILED, f"The test was stopped. The last news: {test.told}" if test.told else "The test was stopped."
    if job.stage is Stage.SUCCEEDED:
        return PASSED, _praise(test, seen, job, now)
    if job.stage is Stage.FAILED:
        return FAILED, _blame("The machine has joined, but the job fails", job.reason, _JOB)
    if seen.agent is None:
        return _judge_machine(seen, now)
    if seen.job_refusal is not None:
        return FAILED, _blame("The machine has joined, but it refuses the job", seen.job_refusal, _JOB)
    if seen.is_gone:
        return FAILED, _blame(f"{name} has taken the machine back", _reason(seen), _MACHINE)
    if now - seen.agent.joined_at > _TRAIN_LIMIT_S:
        told = f"The machine has joined, but the job has not trained {NUM_STEPS} steps within {_TRAIN_LIMIT_S:.0f} s"
        return FAILED, _blame(told, job.reason, _JOB)
    if job.progress is not None and job.progress.step:
        return RUNNING, f"The job trains: step {job.progress.step} of {NUM_STEPS}."
    return RUNNING, f"The machine has joined the pool; the job is {job.stage}: {job.reason.rstrip('.')}."


def _judge_request(seen: Sight) -> tuple[str, str] | None:  # noqa: PLR0911 -- one for each outcome
    """Judge a test whose machine was not asked for, or was refused. None: it was asked for, and not refused."""
    name = seen.cluster
    if seen.hindrance is not None:
        return FAILED, _blame(f"Legato cannot ask {name} for a machine", seen.hindrance, _SETTINGS)
    if seen.away is not None:
        if seen.away_s < _AWAY_LIMIT_S:
            return RUNNING, f"{name} does not answer, and is asked again: {seen.away.rstrip('.')}."
        return FAILED, _blame(f"{name} does not answer", seen.away, _AWAY)
    if seen.room_of is not None and (seen.pilot is None or seen.pilot.state is PilotState.WAITING):
        return RUNNING, f"There is no room for the test yet: Legato gives machine {seen.room_of} back to {name}."
    if seen.awaits_room and seen.pilot is None:
        told = f"Legato gives an idle machine back to {name} when no job has needed it for a minute"
        return RUNNING, f"There is no room for the test yet: {told}."
    if seen.refusal is not None:
        return FAILED, _blame(f"{name} refuses a machine", seen.refusal, _CLUSTER)
    if seen.was_asked:
        return None
    if seen.num_pilots < seen.max_pilots:
        return RUNNING, f"{name} is asked for a machine."
    machines = "1 machine" if seen.num_pilots == 1 else f"{seen.num_pilots} machines"
    told = f"Legato has {machines} of {name}, as many as max_agents allows, and can give none back"
    return FAILED, f"{told}: jobs or other users need them; raise max_agents, or test it later."


def _judge_machine(seen: Sight, now: float) -> tuple[str, str]:  # noqa: PLR0911 -- one for each outcome
    """Judge a test whose machine has not joined the pool."""
    name = seen.cluster
    found = _judge_request(seen)
    if found is not None:
        return found
    if seen.is_gone:
        words = seen.last_words or _reason(seen)
        return FAILED, _blame(f"{name} has ended the machine before its agent joined the pool", words, _MACHINE)
    pilot = seen.pilot
    if pilot is None:
        return RUNNING, f"{name} was asked for a machine, and does not show it yet."
    if pilot.state is not PilotState.RUNNING:
        reason = pilot.reason or "it gives no reason"
        waited_s = now - (now if seen.pilot_since is None else seen.pilot_since)
        if is_hopeless(reason):
            return FAILED, _blame(f"{name} cannot start the machine", reason, _CLUSTER)
        if waited_s > WAIT_LIMIT_S:
            return FAILED, _blame(f"{name} has given no machine within {WAIT_LIMIT_S:.0f} s", reason, _CLUSTER)
        return RUNNING, f"Machine {pilot.id} waits in the queue of {name}: {reason}."
    if seen.running_since is not None and now - seen.running_since > _JOIN_LIMIT_S:
        told = f"the agent on machine {pilot.id} has not reached the server at {seen.url} within {_JOIN_LIMIT_S:.0f} s"
        why = "; ".join(filter(None, (told, seen.last_words)))
        return FAILED, _blame(f"{name} runs the machine", why, _MACHINE)
    return RUNNING, f"Machine {pilot.id} runs; its agent has not joined the pool yet."


def _praise(test: ClusterTest, seen: Sight, job: Job, now: float) -> str:
    joined_at = now if seen.agent is None else seen.agent.joined_at
    workers = f"{job.max_workers} worker{'' if job.max_workers == 1 else 's'}"
    told = f"{seen.cluster} gave a machine, whose agent joined after {max(0.0, joined_at - test.began_at):.0f} s, and "
    told += f"{workers} trained {NUM_STEPS} steps there."
    if seen.agent is not None and seen.agent.version != __version__:
        told += f" The agent is of Legato {seen.agent.version}, and the server of {__version__}: install one release."
    return told


def _reason(seen: Sight) -> str:
    return (seen.pilot.reason if seen.pilot is not None else None) or "it gives no reason"


def _blame(what: str, why: str, known: _Advice) -> str:
    """Return one sentence: what failed, why, and what to do.

    >>> _blame("Slurm refuses a machine", "Invalid qos specification.", _CLUSTER)
    'Slurm refuses a machine: Invalid qos specification; correct account, partition and qos in [slurm].'
    """
    why = " ".join(why.split()).rstrip(".")
    advice = next((advice for advice, texts in known.items() if any(text in why for text in texts)), "")
    return f"{what}: {why}; {advice}." if advice else f"{what}: {why}."
