"""One table of names: our stages as their states, ids, and the files and variables on which all parts agree. Pure.

What the launcher in a worker writes, the REST plugin reads: both take the names from here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final, NamedTuple

# ---------------------------------------------------------------- places, from RESULT_DIR (the job's `work`) on

SUBMITTED_CODE: Final = "_submitted_code"
"""Holds one folder per model directory that was sent: ``_submitted_code/NAME/…``."""

LAUNCHER: Final = "launch_wmla.py"
"""The program of the job, at the top of its code: a few lines, made at submission, that run `site/launch.py`.

``sys.argv`` is then ``[LAUNCHER, MAIN, *ARGUMENTS]``; see `find_model_directory` for MAIN.
"""

LAUNCHER_SOURCE: Final = b'''"""Runs the program of this job as WMLA did. Made at its submission."""

import runpy
from pathlib import Path

import legato

runpy.run_path(str(Path(legato.__file__).parent / "compat/wmla/site/launch.py"), run_name="__main__")
'''

LOG: Final = "log"
"""Holds one folder per process; see `name_log_directory`."""

MODEL: Final = "model"
CHECKPOINT: Final = "checkpoint"
TRAINED: Final = "train"
"""In `MODEL`: ``model_epoch_1.pth``, …, ``model_epoch_final.pth``."""

JOB_STATE: Final = "state"
"""``JOB_STATE_DIR``: programs without LOG_DIR write into its ``logs``."""

ELOG_FILE: Final = "stdout"
"""In the driver's log directory: what the program's ELog (or ours) writes, and nothing else."""

METRICS_FILE: Final = "evaluation-metrics.txt"
HISTORY_FILE: Final = "history.jsonl"

OUT_FILE: Final = "program-stdout.txt"
"""In a process's log directory: what its program wrote to ``sys.stdout``. Not ``stdout``: that is ELog's."""

ERR_FILE: Final = "program-stderr.txt"
"""In a process's log directory: what its program wrote to ``sys.stderr``, the traceback that ended it included."""

# ---------------------------------------------------------------- what a job records (`run.log`)

LOSS: Final = "loss"
TEST_LOSS: Final = "test_loss"
ITERATION: Final = "iteration"
"""Micro-batches of the job so far, recorded together with the means over the epoch so far."""

POINT_BATCHES: Final = 50
"""These are recorded at the first step, about every so many micro-batches, and at the end of each epoch."""

# ---------------------------------------------------------------- variables of workers, as the submission sets them

DATA_ROOT: Final = "DLI_DATA_FS"
DATA_DIRECTORY: Final = "DATA_DIR"
DATA_PATH: Final = "DATA_PATH"
FRAMEWORK: Final = "FRAME_WORK"
BACKEND: Final = "FABRIC_BACKEND"
IS_ELASTIC: Final = "DLI_IS_ELASTIC"
USER: Final = "DLI_SUBMIT_USERNAME"
TYPE: Final = "EXEC_TYPE"

SPACE: Final = "SPACE_ID"
"""The group that a job counts for, which is a queue here."""

DEFAULT_SPACE: Final = "default"
"""The queue of who names none."""

NUM_NODES: Final = "WMLA_NWORKER"
"""Of a gang (framework ``dist…``): how many processes. Each has one slot, so `NODE_DEVICES` is 1."""

NODE_DEVICES: Final = "WMLA_WORKER_NDEVICE"

APPLICATION: Final = "WMLA_APPLICATION"
"""The name of the application: what ``--appName`` said, or one made of the framework and the user."""

ENGINE_ARGUMENTS: Final = "EDT_ENGINE_ARGUMENTS"
"""Set to ``1`` with ``--msd-env``: the launcher appends what WMLA 1.2.1 appended to a program's arguments."""

MAX_WORKERS: Final = "WMLA_MAX_WORKERS"
"""How many workers the submission asked for at most."""

WORKERS_SAID: Final = "WMLA_NUM_WORKER"
"""How many workers the submission named, if it named any: the launcher gives it to programs with such an option."""

# ---------------------------------------------------------------- labels of jobs

MARK_LABEL: Final = "wmla"
"""Every job that is one of theirs has it, with the value `MARK`; lists of theirs show no others."""

MARK: Final = "yes"
DELETED_LABEL: Final = "wmla.deleted"
"""Of a job that was deleted as theirs; it is kept, and they do not see it any more."""

TYPE_LABEL: Final = "wmla.type"
"""``NOTEBOOK`` of a job that a notebook submitted; others are ``BATCH``."""

FRAMEWORK_LABEL: Final = "wmla.framework"
ARGUMENTS_LABEL: Final = "wmla.args"
"""The argument string as it came, without secrets; longer than a label, it continues in ``wmla.args.2``, ``….3`` …"""

APPLICATION_LABEL: Final = "wmla.application"
GROUP_LABEL: Final = "wmla.group"
"""The instance group of a submission in the form of 1.2.x (``sigName``, ``--ig``); others have none."""

MODEL_LABEL: Final = "wmla.model"
"""MAIN of the program."""

DEVICES_LABEL: Final = "wmla.devices"
"""GPUs that each worker of theirs was to have."""

NOTICE_LABEL: Final = "wmla.notice"
"""Options that were accepted and mean nothing here."""

# ---------------------------------------------------------------- ids

_JOB: Final = r"j-[0-9a-z]{10}"
_ID: Final = re.compile(rf"(?:driver-|app-)?(?P<job>{_JOB})|executor-(?P<executor>{_JOB})-[0-9]{{1,6}}")


def driver_id(job: str) -> str:
    """Return the id of the driver of a job, which is also the id of its submission.

    >>> driver_id("j-37efnd0000")
    'driver-j-37efnd0000'
    """
    return f"driver-{job}"


def executor_id(job: str, number: int) -> str:
    """Return the id of an executor; number 1 is worker 0.

    >>> executor_id("j-37efnd0000", 1)
    'executor-j-37efnd0000-1'
    """
    return f"executor-{job}-{number}"


def name_log_directory(process: str, host: str) -> str:
    """Return the name, in `LOG`, of the log directory of a process.

    >>> name_log_directory(driver_id("j-37efnd0000"), "node1.example.org")
    'driver-j-37efnd0000.node1.example.org'
    """
    return f"{process}.{host}"


def find_job(text: str) -> str | None:
    """Return the job that an id of theirs names, whichever of its ids it is; None: it has the form of none.

    >>> find_job("j-37efnd0000"), find_job("driver-j-37efnd0000"), find_job("executor-j-37efnd0000-2")
    ('j-37efnd0000', 'j-37efnd0000', 'j-37efnd0000')
    >>> find_job("Admin-12-3")
    """
    found = _ID.fullmatch(text)
    return None if found is None else found["job"] or found["executor"]


def find_model_directory(main: str) -> str:
    """Return the model directory of a program, from RESULT_DIR on, or absolute as the program is.

    It is on ``sys.path`` of all processes and is their working directory.

    Args:
        main: first argument of the launcher: ``_submitted_code/NAME/…/main.py``, or an absolute path.

    >>> find_model_directory("_submitted_code/mnist/src/main.py"), find_model_directory("/programs/mnist/main.py")
    ('_submitted_code/mnist', '/programs/mnist')
    """
    path = PurePosixPath(main)
    return str(path.parent) if path.is_absolute() else str(PurePosixPath(*path.parts[:2]))


# ---------------------------------------------------------------- states


class State(NamedTuple):
    """A state of theirs. ``now``: as 2.x and later say it; ``old``: as 1.2.x and its Conductor do."""

    now: str
    old: str


PENDING: Final = State("PENDING_CRD_SCHEDULER", "SUBMITTED")
SUBMITTED: Final = State("SUBMITTED", "SUBMITTED")
RUNNING: Final = State("RUNNING", "RUNNING")

# Loops in users' notebooks continue only while they read PENDING_CRD_SCHEDULER, SUBMITTED or RUNNING; LAUNCHING,
# RECOVERING and all others end them, so nothing that is not over is called so here. Loops in users' scripts end at a
# state with FINISHED or ERROR in it, and with no other.
STATES: Final[Mapping[str, State]] = {
    # It waits for slots: also after it ran, when the policy took all of them or it is tried again.
    "queued": PENDING,
    # It has slots, and trains as yet nothing.
    "starting": PENDING,
    "running": RUNNING,
    # It writes its checkpoint, and its workers are there.
    "pausing": RUNNING,
    # It will continue: a loop that ended here would take the result of half a training.
    "paused": PENDING,
    # Stopped is what it will be; until then its result is not whole.
    "stopping": RUNNING,
    "succeeded": State("FINISHED", "FINISHED"),
    "failed": State("ERROR", "ERROR"),
    # As theirs. Scripts that know no KILLED never stop a job themselves.
    "stopped": State("KILLED", "KILLED"),
}

STAGES_OF_STATES: Final[Mapping[str, tuple[str, ...]]] = {
    "NEW": (),
    "SUBMITTED": ("queued", "starting", "paused"),
    "PENDING_JOB_SCHEDULER": (),
    "PENDING_CRD_SCHEDULER": ("queued", "starting", "paused"),
    "PENDING": ("queued", "starting", "paused"),
    "WAITING": ("queued", "starting", "paused"),
    "LAUNCHING": ("starting",),
    "RUNNING": ("running", "pausing", "stopping"),
    "RECOVERING": (),
    "UNKNOWN": (),
    "FINISHED": ("succeeded",),
    "KILLED": ("stopped",),
    "ERROR": ("failed",),
    "FAILED": ("failed",),
}
"""What a query for a state finds."""
