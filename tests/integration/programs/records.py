"""Works records off that are handed out as tasks, and writes down each of them. Trains nothing.

Behind the first record of each task it waits at a gate: a file of its worker's name, or one for all.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from legato.compat.elasticdl.task_types import DatasetParams
from legato.compat.elasticdl.tasks_client_grpc import connect_tasks

HERE, NUM_RECORDS, TAKES_ALL = Path(sys.argv[1]), int(sys.argv[2]), "all" in sys.argv[3:]

tasks = connect_tasks()
worker = os.environ["WORKER_ID"]


def write(what: str, task: int, record: int) -> None:
    with (HERE / "written").open("a") as file:
        file.write(f"{what} {worker} {os.getpid()} {task} {record}\n")


def pass_gate() -> None:
    while not (HERE / f"gate-{worker}").exists() and not (HERE / "gate").exists():
        time.sleep(0.01)


tasks.report_params(
    DatasetParams(
        name="records", batch_size=4, num_epochs=2, dataset_size=NUM_RECORDS, shuffle=True, num_minibatches_per_shard=1
    )
)
while (task := tasks.get_task("records")) is not None:
    held = [task]
    while TAKES_ALL and len(held) < 2 and (task := tasks.get_task("records")) is not None:
        held.append(task)
    for task in held:
        for place, record in enumerate(task.records):
            write("read", task.number, record)
            if place == 0:
                pass_gate()
        for record in task.records:
            write(f"done-in-{task.epoch}", task.number, record)
        tasks.report_task_result(task.number, "records")
    if TAKES_ALL:
        break
tasks.close()
print("ended")
