"""How an allocation of Slurm is found, and which variables and options its steps get."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from legato.agent.starting import Facts
from legato.clusters import base, slurm
from legato.clusters.slurm import Allocation, SlurmStarter, find_allocation, find_own_address
from legato.core.errors import LegatoError, UsageError
from legato.system.door import Door

LINE = (
    "JobId=42 JobName=x Requeue=1 Restarts=0 BatchFlag=1 ReqNodeList=z NodeList=a[1-2],b BatchHost=a1{resources} "
    "Comment=Requeue=0 JobState=RUNNING PreemptTime={preempted}"
)
GPUS = (
    "   Nodes=a[1-2] CPU_IDs=0-3 Mem=100 GRES=gpu:a100:2(IDX:0,3),gpu:t4:1(IDX:1)"
    " Nodes=b CPU_IDs=0 Mem=1 GRES=gpu:4(IDX:0-3) "
)
NO_GPUS = "   Nodes=a[1-2],b CPU_IDs=0-3 Mem=100 GRES= "
NAMES = {"a[1-2],b": "a1\na2\nb\n", "a[1-2]": "a1\na2\n"}
INSIDE = {"SLURM_JOB_ID": "42", "SLURM_JOB_NODELIST": "a[1-2],b", "SLURM_TASKS_PER_NODE": "1(x3)"}


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What ``scontrol show job`` writes, in lines; ``scontrol`` expands lists of nodes."""
    lines = [LINE.format(resources=NO_GPUS, preempted="None")]

    def ask(*words: str) -> str:
        return NAMES[words[2]] if words[:2] == ("show", "hostnames") else "\n".join(lines)

    monkeypatch.setattr(slurm, "_ask", ask)
    return lines


def test_gpus_of_each_node_are_its_slots(shown: list[str]) -> None:
    shown[0] = LINE.format(resources=GPUS, preempted="None")
    found = find_allocation(None, INSIDE)
    assert found.slots == {"a1": 3, "a2": 3, "b": 4} and found.has_gpus
    assert found.describe() == "job 42 of Slurm: nodes a1 (3 GPUs), a2 (3 GPUs), b (4 GPUs)"
    assert found.is_batch and found.may_requeue, "a comment of the user changes nothing"


@pytest.mark.parametrize(
    ("tasks", "want"),
    [("1(x3)", [1, 1, 1]), ("4(x2),2", [4, 4, 2]), ("8(x3)", [8, 8, 8]), ("", [1, 1, 1]), ("2,3", [2, 3, 1])],
)
def test_without_gpus_the_tasks_of_each_node_are_its_slots(shown: list[str], tasks: str, want: Sequence[int]) -> None:
    found = find_allocation(None, {**INSIDE, "SLURM_TASKS_PER_NODE": tasks})
    assert list(found.slots.values()) == want and not found.has_gpus


def test_a_node_without_a_gpu_is_not_used_in_a_job_with_gpus(shown: list[str]) -> None:
    shown[0] = LINE.format(resources=GPUS.replace("GRES=gpu:4(IDX:0-3)", "GRES="), preempted="None")
    assert find_allocation(None, INSIDE).slots == {"a1": 3, "a2": 3}


def test_a_task_of_an_array_is_found_among_the_others(shown: list[str]) -> None:
    shown.insert(0, shown[0].replace("JobId=42", "JobId=421").replace("NodeList=a[1-2],b", "NodeList=(null)"))
    found = find_allocation(None, {**INSIDE, "SLURM_ARRAY_JOB_ID": "42", "SLURM_ARRAY_TASK_ID": "7"})
    assert (found.job, found.number, len(found.slots)) == ("42_7", "42", 3)


@pytest.mark.parametrize(
    ("line", "want"),
    [("JobId=43 NodeList=a", "scontrol does not show it"), ("JobId=42 NodeList=(null)", "it has no nodes")],
)
def test_an_allocation_that_slurm_does_not_know_is_refused(shown: list[str], line: str, want: str) -> None:
    shown[0] = line
    with pytest.raises(LegatoError, match=want):
        find_allocation(None, INSIDE)


def test_many_nodes_are_described_as_slurm_writes_them() -> None:
    nodes = {f"n{number}": 2 for number in range(64)}
    found = Allocation(job="7", number="7", node_list="n[0-63]", slots=nodes, has_gpus=True)
    assert found.describe() == "job 7 of Slurm: nodes n[0-63], 128 GPUs in total"
    assert Allocation(job="7", number="7", node_list="a", slots={"a": 1}).describe() == (
        "job 7 of Slurm: node a, 1 CPU slot"
    )


@pytest.mark.parametrize(
    ("state", "preempted", "want"),
    [("RUNNING", "2026-01-01T00:00:00", True), ("RUNNING", "None", False), ("CANCELLED", "2026-01-01T00:00:00", False)],
)
def test_a_job_is_preempted_while_it_runs_and_has_a_time_for_it(
    shown: list[str], state: str, preempted: str, *, want: bool
) -> None:
    allocation = find_allocation(None, INSIDE)
    shown[0] = LINE.format(resources="", preempted=preempted).replace("JobState=RUNNING", f"JobState={state}")
    assert slurm.is_preempted(allocation) is want


def test_the_network_of_the_nodes_is_found_by_their_names_or_given() -> None:
    def allocation(*nodes: str, network: str | None = None) -> Allocation:
        return Allocation(job="1", number="1", node_list="", slots=dict.fromkeys(nodes, 1), network=network)

    assert find_own_address(allocation("localhost"), {"SLURMD_NODENAME": "localhost"}) == "127.0.0.1"
    assert find_own_address(allocation("a", "b", network="127.0.0.0/8"), {}) == "127.0.0.1"
    with pytest.raises(UsageError, match=r"does not know the name no\.such\.invalid.*--network"):
        find_own_address(allocation("localhost", "no.such.invalid"), {"SLURMD_NODENAME": "localhost"})


def refusal_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> str:
    """Return what is said of a node whose srun is this script."""
    (tmp_path / "srun").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "srun").chmod(0o755)
    (tmp_path / "slurm.json").write_text("{}")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_NTASKS", "8")

    async def run() -> str:
        door = Door()
        await door.open()
        allocation = Allocation(job="42", number="42", node_list="a", slots={"a": 1})
        starter = SlurmStarter(allocation, "job", door, "127.0.0.1", None, tmp_path / "slurm.json")
        refused: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        keeping = asyncio.create_task(starter.keep("a", "secret", refused.set_result))
        async with asyncio.timeout(30.0):
            told = await refused
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await door.close()
        return told

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("script", "want"),
    [
        (
            "echo 'srun: error: Unable to create step for job 42: Node down' >&2; exit 1",
            "Slurm runs no step there: Unable to create step for job 42: Node down",
        ),
        (
            "(echo 'execve(): /p: No such file'; echo 'srun: a: task 0: Exited with 2') >&2; exit 2",
            "No such file. It has no Legato at",
        ),
        ('case "$*" in *secret*) echo leaks;; *--overlap*) echo no token;; esac >&2; exit 3', "there: no token"),
        ('echo "tasks: ${SLURM_NTASKS-none}" >&2; exit 3', "Slurm runs no step there: tasks: none"),
        ("exit 7", "srun ended with code 7"),
    ],
)
def test_a_step_that_cannot_start_is_explained_in_the_words_of_slurm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, want: str
) -> None:
    assert want in refusal_of(tmp_path, monkeypatch, script)


STEPS = """#!/bin/sh
echo >> {0}/tries
number=$(wc -l < {0}/tries)
[ $number = 2 ] && echo '{2}' && read -r order; [ $number = 2 ] && exit 0
echo '{1}'
read -r order && echo "$order" >> {0}/orders
echo '{{}}'
[ $number = 1 ] && exit 1
cat > /dev/null
"""


def test_a_node_is_tried_again_when_srun_cannot_be_started_and_while_a_node_that_was_used_before_is_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(base, "_RETRY_S", 0.05)
    monkeypatch.setenv("PATH", str(tmp_path))
    busy = "workers cannot be started with /p: it did not answer within 60 s"
    good = Facts(python="3.12", torch="2.9.0", address="10.0.0.1")
    facts = [msgspec.json.encode(each).decode() for each in (good, Facts(error=busy))]
    (tmp_path / "slurm.json").write_text("{}")
    orders, said = tmp_path / "orders", list[str]()

    def refuse(reason: str) -> None:
        said.append(reason)
        (tmp_path / "srun").write_text(STEPS.format(tmp_path, *facts))
        (tmp_path / "srun").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    async def run() -> None:
        door = Door()
        await door.open()
        allocation = Allocation(job="42", number="42", node_list="a", slots={"a": 1})
        starter = SlurmStarter(allocation, "job", door, "127.0.0.1", None, tmp_path / "slurm.json")
        keeping = asyncio.create_task(starter.keep("a", "secret", refuse))
        async with asyncio.timeout(30.0):
            while not orders.exists() or len(orders.read_text().splitlines()) < 2:
                assert not keeping.done(), "the node is given up"
                await asyncio.sleep(0.01)
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await door.close()

    asyncio.run(run())
    assert said == ["srun cannot be started: [Errno 2] No such file or directory: 'srun'"]
    assert f"Cannot connect to a again: {busy}. Legato tries again" in caplog.text
