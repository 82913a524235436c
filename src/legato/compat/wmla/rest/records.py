"""A job of Legato as the records of WMLA: of an execution, an application, an application of the Conductor. Pure."""

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


def tell_state(job: Job) -> str:
    """Return the state of a job, in the words of the release whose form its submission had."""
    state = STATES[job["stage"]]
    return state.old if GROUP_LABEL in job["labels"] else state.now


def has_ended(job: Job) -> bool:
    """Return whether a job is over."""
    return job["stage"] in _ENDED


def count_slots(job: Job) -> int:
    """Return how many slots a job holds, as far as its state says that it holds any.

    It has its first ones while its workers start, and those that its end has not yet given back: it is pending then.
    """
    held: int = job["num_slots"]
    return 0 if STATES[job["stage"]] is PENDING else held


def split_label(name: str, text: str) -> dict[str, str]:
    """Return the labels that hold a text which may be longer than one; what is too long for all is cut.

    >>> split_label("a", "x" * 256)["a.2"]
    'x'
    """
    parts = [text[place : place + _MAX_LABEL_LENGTH] for place in range(0, len(text), _MAX_LABEL_LENGTH)][:_MAX_PARTS]
    return {name if number == 1 else f"{name}.{number}": part for number, part in enumerate(parts, 1)}


def join_label(labels: Mapping[str, str], name: str) -> str:
    """Return a text that `split_label` has split."""
    parts = [labels.get(name, "")]
    while (part := labels.get(f"{name}.{len(parts) + 1}")) is not None:
        parts.append(part)
    return "".join(parts)


def tell_execution(job: Job) -> dict[str, Any]:
    """Return the record of an execution: one level, and texts, numbers and truth values only.

    One that was submitted as to 1.2.x, with an instance group, has the fields of those releases besides.
    """
    labels = job["labels"]
    told: dict[str, Any] = {
        "id": job["id"],
        "args": join_label(labels, ARGUMENTS_LABEL),
        "submissionId": driver_id(job["id"]),
        "creator": job["owner"],
        "state": tell_state(job),
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
        "notice": " ".join(part for part in (join_label(labels, NOTICE_LABEL), _tell_step(job)) if part),
    }
    if GROUP_LABEL in labels:
        told |= {
            "userName": job["owner"],
            "sigName": labels[GROUP_LABEL],
            "sigId": labels[GROUP_LABEL],
            "masterURL": "",
            "executionUserName": job["owner"],
        }
    return told


def _tell_step(job: Job) -> str:
    """Say that the steps of a job turned out larger than its workers make them; "" where they did not."""
    num_micro_batches = (job["progress"] or {}).get("num_micro_batches") or 0
    if not job["is_elastic"] or num_micro_batches <= job["max_workers"]:
        return ""
    return (
        f"Each step trains {num_micro_batches} micro-batches (engines_number={num_micro_batches}), more than its "
        f"{job['max_workers']} workers: the program asks for another step than the submission."
    )


def tell_application(job: Job, members: Members, now: float) -> dict[str, Any]:
    """Return the record of an application, as the scheduler has it.

    Args:
        job: which one.
        members: its workers, as far as they were looked up.
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
        "state": tell_state(job),
        "reason": job["reason"],
        "uiport": "",
        "driver": _tell_driver(job),
        "executors": _tell_executors(job, members),
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
        "task0": {"id": driver_id(job["id"]), "state": tell_state(job)},
        "task12n": _tell_executors(job, members),
    }


def tell_engine_application(job: Job) -> dict[str, Any]:
    """Return the record of an application, as the engine of the scheduler has it; times in seconds since 1970."""
    labels = job["labels"]
    return {
        "id": job["id"],
        "name": labels.get(APPLICATION_LABEL, job["name"]),
        "consumer": job["queue"],
        "submit_user": job["owner"],
        "tag": "",
        "type": "ELASTIC" if job["is_elastic"] else "PARALLEL",
        "priority": job["priority"],
        "state": tell_state(job),
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


def tell_conductor_application(job: Job, members: Members, now: float) -> dict[str, Any]:
    """Return the record of an application, as the Conductor has it; ``gpuslots`` are the slots that it holds now."""
    return {
        "applicationid": job["id"],
        "applicationname": job["labels"].get(APPLICATION_LABEL, job["name"]),
        "driver": _tell_driver(job),
        "state": tell_state(job),
        "username": job["owner"],
        "priority": job["priority"],
        "submittedtime": _write_time(job["submitted_at"]),
        "apprunduration": _count_minutes(job, now),
        "slots": count_slots(job),
        "gpuslots": count_slots(job),
        # Not measured by the platform.
        "gpumemused": {"total": 0},
        "gpudevutil": {"total": 0},
        "executors": _tell_executors(job, Members(members.present, members.present)),
    }


def _tell_driver(job: Job) -> dict[str, Any]:
    return {
        "id": driver_id(job["id"]),
        "containerid": "",
        "state": tell_state(job),
        "host": "",
        "coresused": 0,
        "memused": 0,
        "timestamp": _write_time(job["staged_at"]),
        "driverstdout": f"/scheduler/applications/{job['id']}/driver/logs/stdout",
        "driverstderr": f"/scheduler/applications/{job['id']}/driver/logs/stderr",
    }


def _tell_executors(job: Job, members: Members) -> Sequence[dict[str, Any]]:
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
