"""Stands for ``sbatch``, ``squeue`` and ``scancel``; its state is a file. Runs as a program of each of these names."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

AWAY = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"


def main() -> int:
    file = Path(__file__).parent.parent / "state.json"
    with file.open() as held:  # commands of several users may run at once
        fcntl.flock(held, fcntl.LOCK_EX)
        return _run(file)


def _run(file: Path) -> int:
    state: dict[str, Any] = json.loads(file.read_text())
    program, arguments = Path(sys.argv[0]).name, sys.argv[1:]
    call = {"program": program, "arguments": arguments, "environment": sorted(os.environ), "uid": os.getuid()}
    call |= {"groups": os.getgroups(), "home": os.environ.get("HOME")}
    if program == "sbatch":
        call["script"] = sys.stdin.read()
        if state.get("silent") and any(word.endswith(f".{state['silent']}") for word in arguments):
            signal.pause()
    state["calls"].append(call)
    code = _answer(state, program, arguments)
    file.write_text(json.dumps(state))
    return code


def _answer(state: dict[str, Any], program: str, arguments: list[str]) -> int:
    if state["away"]:
        sys.stderr.write(f"{program}: error: {AWAY}\n")
        return 1
    if program == "sbatch":
        if state["refusal"]:
            sys.stderr.write(f"sbatch: error: Batch job submission failed: {state['refusal']}\n")
            return 1
        number = str(len(state["jobs"]) + 1)
        name = next(word.partition("=")[2] for word in arguments if word.startswith("--job-name="))
        job = {"name": name, "state": "PENDING", "reason": "Priority", "left": "1:00:00", "uid": os.getuid()}
        state["jobs"][number] = job
        sys.stdout.write(f"{number};cluster\n")
    elif program == "squeue":
        # The format begins with a mark; that of Slurm's fields is fixed here.
        mark = os.environ["SQUEUE_FORMAT"].partition("|")[0]
        sys.stdout.write(f"{mark}|0|99|RUNNING|None|UNLIMITED|a job|of another kind\n")
        for number, job in state["jobs"].items():
            if job.get("hidden") and "--all" not in arguments:
                continue
            sys.stdout.write(
                f"{mark}|{job['uid']}|{number}|{job['state']}|{job['reason']}|{job['left']}|{job['name']}\n"
            )
    elif any(word.startswith("--signal") for word in arguments):
        return 0
    elif state.get("unkillable"):
        sys.stderr.write(f"scancel: error: Kill job error: {state['unkillable']}\n")
        return 1
    else:
        code = 0
        for number in (word for word in arguments if word.isdigit()):
            job = state["jobs"].get(number)
            if job is not None and os.getuid() not in (0, job["uid"]):
                sys.stderr.write(f"scancel: error: Kill job error on job id {number}: Access/permission denied\n")
                code = 1
            elif job is None or job["state"] in ("CANCELLED", "FAILED"):
                sys.stderr.write(f"scancel: error: Kill job error on job id {number}: Invalid job id specified\n")
                code = 1
            elif job["state"] == "PENDING" or "--state=PENDING" not in arguments:
                job["state"] = "CANCELLED"
        return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
