"""Converts a job into WMLA's records of executions, applications and applications of the Conductor. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from legato.compat.wmla.names import (
    APPLICATION_LABEL,
    ARGUMENTS_LABEL,
    DEVICES_LABEL,
    FRAMEWORK_LABEL,
    GROUP_LABEL,
    MODEL_LABEL,
    NOTICE_LABEL,
    PENDING,
    STATES,
    TYPE_LABEL,
    driver_id,
    executor_id,
)
from legato.compat.wmla.rest.members import Members
from legato.compat.wmla.rest.platform import Job

_MINUTE_S: Final = 60.0
_MAX_LABEL_LENGTH: Final = 255
_MAX_PARTS: Final = 32
_ENDED: Final = frozenset({"succeeded", "failed", "stopped"})


def state_of(job: Job) -> str:
    """Return WMLA's state of a job: the name of release 1.2.x if the submission had an instance group, else of 2.x."""
    state = STATES[job["stage"]]
    return state.old if GROUP_LABEL in job["labels"] else state.now


def has_ended(job: Job) -> bool:
    """Return whether a job has ended."""
    return job["stage"] in _ENDED


def count_slots(job: Job) -> int:
    """Return the number of slots that a job holds; 0 if WMLA's state is pending.

    A pending job may hold slots: those with which its workers start, or those that it has not given back yet.
    """
    held: int = job["num_slots"]
    return 0 if STATES[job["stage"]] is PENDING else held


def split_label(name: str, text: str) -> dict[str, str]:
    """Return the labels for a text, which may be longer than one label. A text that is too long for 32 labels is cut.

    >>> split_label("a", "x" * 256)["a.2"]
    'x'
    """
    parts = [text[place : place + _MAX_LABEL_LENGTH] for place in range(0, len(text), _MAX_LABEL_LENGTH)][:_MAX_PARTS]
    return {name if number == 1 else f"{name}.{number}": part for number, part in enumerate(parts, 1)}


def join_label(labels: Mapping[str, str], name: str) -> str:
    """Return the text of labels that `split_label` returned."""
    parts = [labels.get(name, "")]
    while (part := labels.get(f"{name}.{len(parts) + 1}")) is not None:
        parts.append(part)
    return "".join(parts)


def describe_execution(job: Job) -> dict[str, Any]:
    """Return the record of an execution, without nested values.

    If the submission named an instance group, as in 1.2.x, the record also has the fields of those releases.
    """
    labels = job["labels"]
    record: dict[str, Any] = {
        "id": job["id"],
        "args": join_label(labels, ARGUMENTS_LABEL),
        "submissionId": driver_id(job["id"]),
        "creator": job["owner"],
        "state": state_of(job),
        "appId": job["id"],
        "schedulerUrl": "",
        "modelFileOwnerName": job["owner"],
        "workDir": "",
        "appName": labels.get(APPLICATION_LABEL, job["name"]),
        "createTime": _write_time(job["submitted_at"]),
        "elastic": bool(job["is_elastic"]),
        "nameSpace": job["queue"],
        "numWorker": job["max_workers"],
        "framework": labels.get(FRAMEWORK_LABEL, ""),
        "reason": job["reason"],
        "notice": " ".join(part for part in (join_label(labels, NOTICE_LABEL), _warn_of_step_size(job)) if part),
    }
    if GROUP_LABEL in labels:
        record |= {
            "userName": job["owner"],
            "sigName": labels[GROUP_LABEL],
            "sigId": labels[GROUP_LABEL],
            "masterURL": "",
            "executionUserName": job["owner"],
        }
    return record


def _warn_of_step_size(job: Job) -> str:
    """Return a warning if the steps of a job have more micro-batches than the job has workers, else ""."""
    num_micro_batches = (job["progress"] or {}).get("num_micro_batches") or 0
    if not job["is_elastic"] or num_micro_batches <= job["max_workers"]:
        return ""
    return (
        f"Each step trains {num_micro_batches} micro-batches (engines_number={num_micro_batches}), more than its "
        f"{job['max_workers']} workers: the program asks for another step than the submission."
    )


def describe_application(job: Job, members: Members, now: float) -> dict[str, Any]:
    """Return the scheduler's record of an application.

    Args:
        job: the job.
        members: its executors, or `EMPTY` if the caller does not need them.
        now: seconds since 1970.
    """
    labels = job["labels"]
    main = labels.get(MODEL_LABEL, "")
    return {
        "sparkinstancegroupid": job["queue"],
        "sigName": job["queue"],
        "sigId": job["queue"],
        "applicationid": job["id"],
        "applicationname": labels.get(APPLICATION_LABEL, job["name"]),
        "type": labels.get(TYPE_LABEL, "BATCH"),
        "state": state_of(job),
        "reason": job["reason"],
        "uiport": "",
        "driver": _describe_driver(job),
        "executors": _describe_executors(job, members),
        "slots": count_slots(job),
        "demandslots": 0 if has_ended(job) else job["max_workers"],
        "hosts": "",
        "coresused": count_slots(job),
        "memused": 0,
        "priority": job["priority"],
        "username": job["owner"],
        "submittedtime": _write_time(job["submitted_at"]),
        "starttime": _write_time(job["started_at"]),
        "endtime": _write_time(job["ended_at"]),
        "apprunduration": _count_minutes(job, now),
        "model": main,
        "dataset": "",
        "dltype": labels.get(FRAMEWORK_LABEL, ""),
        "elastic": job["is_elastic"],
        "numWorker": job["max_workers"],
        "task0": {"id": driver_id(job["id"]), "state": state_of(job)},
        "task12n": _describe_executors(job, members),
    }


def describe_engine_application(job: Job) -> dict[str, Any]:
    """Return the record of an application in the scheduler's engine; times are in seconds since 1970."""
    labels = job["labels"]
    return {
        "id": job["id"],
        "name": labels.get(APPLICATION_LABEL, job["name"]),
        "consumer": job["queue"],
        "submit_user": job["owner"],
        "tag": "",
        "type": "ELASTIC" if job["is_elastic"] else "PARALLEL",
        "priority": job["priority"],
        "state": state_of(job),
        "reason": job["reason"],
        "is_packing": False,
        "pack_id": "",
        "used_gpu": count_slots(job),
        "used_mem": 0,
        "used_cpu": count_slots(job),
        "task0_resreq": "ngpus=0,mem=0,ncpus=0",
        "task12n_resreq": f"ngpus={labels.get(DEVICES_LABEL, '1')},mem=0,ncpus=1",
        "task12n_num": job["max_workers"],
        "submit_time": int(job["submitted_at"]),
        "start_time": None if job["started_at"] is None else int(job["started_at"]),
        "end_time": None if job["ended_at"] is None else int(job["ended_at"]),
        "kernels": [],
    }


def describe_conductor_application(job: Job, members: Members, now: float) -> dict[str, Any]:
    """Return the Conductor's record of an application; ``gpuslots`` is the number of slots that it holds now."""
    return {
        "applicationid": job["id"],
        "applicationname": job["labels"].get(APPLICATION_LABEL, job["name"]),
        "driver": _describe_driver(job),
        "state": state_of(job),
        "username": job["owner"],
        "priority": job["priority"],
        "submittedtime": _write_time(job["submitted_at"]),
        "apprunduration": _count_minutes(job, now),
        "slots": count_slots(job),
        "gpuslots": count_slots(job),
        **_describe_gpus(job, now),
        "executors": _describe_executors(job, Members(members.present, members.present)),
    }


def _describe_gpus(job: Job, now: float) -> dict[str, Any]:
    """Return the memory that the GPUs of a job use, in MiB, and the part of the time in which they compute, in percent.

    Null, where nothing was measured in the last minute: 0 would be a wrong value.
    """
    progress = job["progress"] or {}
    is_new = job["stage"] == "running" and abs(now - progress.get("time", 0.0)) < _MINUTE_S
    memory, busy = (progress.get(name) if is_new else None for name in ("gpu_memory_bytes", "gpu_busy"))
    return {
        "gpumemused": {"total": None if memory is None else round(memory / 2**20)},
        "gpudevutil": {"total": None if busy is None else round(100 * busy, 1)},
    }


def _describe_driver(job: Job) -> dict[str, Any]:
    return {
        "id": driver_id(job["id"]),
        "containerid": "",
        "state": state_of(job),
        "host": "",
        "coresused": 0,
        "memused": 0,
        "timestamp": _write_time(job["staged_at"]),
        "driverstdout": f"/scheduler/applications/{job['id']}/driver/logs/stdout",
        "driverstderr": f"/scheduler/applications/{job['id']}/driver/logs/stderr",
    }


def _describe_executors(job: Job, members: Members) -> Sequence[dict[str, Any]]:
    return [
        {
            "id": executor_id(job["id"], number),
            "containerid": "",
            "state": "RUNNING" if number in members.present else "FINISHED",
            "host": "",
            "coresused": int(number in members.present),
            "memused": 0,
        }
        for number in sorted(members.known)
    ]


def _write_time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _count_minutes(job: Job, now: float) -> float:
    if job["started_at"] is None:
        return 0.0
    end: float = now if job["ended_at"] is None else job["ended_at"]
    return round(max(end - float(job["started_at"]), 0.0) / _MINUTE_S, 3)
