"""Names that several parts of the WMLA plugin use: states, ids, labels, files and environment variables. Pure.

The launcher in a worker writes files that the REST plugin reads; both take the names from here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final, NamedTuple

# ---------------------------------------------------------------- files, relative to RESULT_DIR (the job's `work`)

SUBMITTED_CODE: Final = "_submitted_code"
"""Folder with the uploaded model directories, each under its name: ``_submitted_code/NAME/…``."""

LAUNCHER: Final = "launch_wmla.py"
"""The program of the job, at the top of its code. The submission creates it; it only runs `site/launch.py`.

Its ``sys.argv`` is ``[LAUNCHER, MAIN, *ARGUMENTS]``; see `find_model_directory` for MAIN.
"""

LAUNCHER_SOURCE: Final = b'''"""Runs the program of this job as WMLA did. Made at its submission."""

import runpy
from pathlib import Path

import legato

runpy.run_path(str(Path(legato.__file__).parent / "compat/wmla/site/launch.py"), run_name="__main__")
'''

LOG: Final = "log"
"""Folder with one log directory per process; see `name_log_directory`."""

MODEL: Final = "model"
CHECKPOINT: Final = "checkpoint"
TRAINED: Final = "train"
"""Folder in `MODEL` with ``model_epoch_1.pth``, …, ``model_epoch_final.pth``."""

JOB_STATE: Final = "state"
"""The variable ``JOB_STATE_DIR`` has the path of this folder. Programs without ``LOG_DIR`` log into its ``logs``."""

ELOG_FILE: Final = "stdout"
"""File in the driver's log directory with the lines of `ELog`, and nothing else."""

METRICS_FILE: Final = "evaluation-metrics.txt"
HISTORY_FILE: Final = "history.jsonl"

OUT_FILE: Final = "program-stdout.txt"
"""File in a process's log directory with the program's standard output. The name ``stdout`` is taken by `ELog`."""

ERR_FILE: Final = "program-stderr.txt"
"""File in a process's log directory with the program's error output, including the traceback that ended it."""

# ---------------------------------------------------------------- metrics that a job records (`run.log`)

LOSS: Final = "loss"
TEST_LOSS: Final = "test_loss"
ITERATION: Final = "iteration"
"""Number of micro-batches that the job has computed, recorded together with the means over the epoch so far."""

POINT_BATCHES: Final = 50
"""Micro-batches between two records. The job also records at its first step and at the end of each epoch."""

# ---------------------------------------------------------------- environment variables of workers, set at submission

DATA_ROOT: Final = "DLI_DATA_FS"
DATA_DIRECTORY: Final = "DATA_DIR"
DATA_PATH: Final = "DATA_PATH"
FRAMEWORK: Final = "FRAME_WORK"
BACKEND: Final = "FABRIC_BACKEND"
IS_ELASTIC: Final = "DLI_IS_ELASTIC"
USER: Final = "DLI_SUBMIT_USERNAME"
TYPE: Final = "EXEC_TYPE"

SPACE: Final = "SPACE_ID"
"""The instance group or consumer of the job; in Legato, its queue."""

DEFAULT_SPACE: Final = "default"
"""The value of `SPACE` if the submission names no group."""

NUM_NODES: Final = "WMLA_NWORKER"
"""Number of processes of a gang (framework ``dist…``). Each process has one slot, so `NODE_DEVICES` is 1."""

NODE_DEVICES: Final = "WMLA_WORKER_NDEVICE"

APPLICATION: Final = "WMLA_APPLICATION"
"""Name of the application: the value of ``--appName``, or ``APPLICATION-USER`` from the framework's application."""

ENGINE_ARGUMENTS: Final = "EDT_ENGINE_ARGUMENTS"
"""If ``--msd-env`` sets it to ``1``, the launcher appends the arguments that WMLA 1.2.1 passed to programs."""

MAX_WORKERS: Final = "WMLA_MAX_WORKERS"
"""Maximum number of workers that the submission asked for."""

REQUESTED_WORKERS: Final = "WMLA_NUM_WORKER"
"""Number of workers, set only if the submission named one. The launcher passes it to programs with such an option."""

# ---------------------------------------------------------------- labels of jobs

MARK_LABEL: Final = "wmla"
"""Label of all jobs that were submitted through WMLA's interface; its value is `MARK`. WMLA's lists show only these."""

MARK: Final = "yes"
DELETED_LABEL: Final = "wmla.deleted"
"""Label of a job that was deleted through WMLA's interface. Legato keeps the job; WMLA's interface hides it."""

TYPE_LABEL: Final = "wmla.type"
"""``NOTEBOOK`` if a notebook submitted the job. Jobs without the label are ``BATCH``."""

FRAMEWORK_LABEL: Final = "wmla.framework"
ARGUMENTS_LABEL: Final = "wmla.args"
"""The argument string without secrets. If it is too long for a label, it continues in ``wmla.args.2``, ``….3`` …"""

APPLICATION_LABEL: Final = "wmla.application"
GROUP_LABEL: Final = "wmla.group"
"""The instance group, if the submission named one as in 1.2.x (``sigName``, ``--ig``)."""

MODEL_LABEL: Final = "wmla.model"
"""MAIN, the launcher's first argument."""

DEVICES_LABEL: Final = "wmla.devices"
"""GPUs per WMLA worker, as the submission asked (``--workerDeviceNum``)."""

NOTICE_LABEL: Final = "wmla.notice"
"""The notice of the submission, such as options that were accepted without effect."""

# ---------------------------------------------------------------- ids

_JOB: Final = r"j-[0-9a-z]{10}"
_ID: Final = re.compile(rf"(?:driver-|app-)?(?P<job>{_JOB})|executor-(?P<executor>{_JOB})-[0-9]{{1,6}}")


def driver_id(job: str) -> str:
    """Return the id of a job's driver, which is also the submission id.

    >>> driver_id("j-37efnd0000")
    'driver-j-37efnd0000'
    """
    return f"driver-{job}"


def executor_id(job: str, number: int) -> str:
    """Return the id of a job's executor. Executors count from 1: executor 1 is worker 0.

    >>> executor_id("j-37efnd0000", 1)
    'executor-j-37efnd0000-1'
    """
    return f"executor-{job}-{number}"


def name_log_directory(process: str, host: str) -> str:
    """Return the name of a process's log directory, which is in `LOG`.

    >>> name_log_directory(driver_id("j-37efnd0000"), "node1.example.org")
    'driver-j-37efnd0000.node1.example.org'
    """
    return f"{process}.{host}"


def find_job(text: str) -> str | None:
    """Return the job that an id (of a job, application, driver or executor) names; None if the text is no such id.

    >>> find_job("j-37efnd0000"), find_job("driver-j-37efnd0000"), find_job("executor-j-37efnd0000-2")
    ('j-37efnd0000', 'j-37efnd0000', 'j-37efnd0000')
    >>> find_job("Admin-12-3")
    """
    found = _ID.fullmatch(text)
    return None if found is None else found["job"] or found["executor"]


def find_model_directory(main: str) -> str:
    """Return the model directory of a program: relative to RESULT_DIR, or absolute if the program's path is absolute.

    The model directory is the working directory of all processes, and on their ``sys.path``.

    Args:
        main: first argument of the launcher: ``_submitted_code/NAME/…/main.py``, or an absolute path.

    >>> find_model_directory("_submitted_code/mnist/src/main.py"), find_model_directory("/programs/mnist/main.py")
    ('_submitted_code/mnist', '/programs/mnist')
    """
    path = PurePosixPath(main)
    return str(path.parent) if path.is_absolute() else str(PurePosixPath(*path.parts[:2]))


# ---------------------------------------------------------------- states


class State(NamedTuple):
    """The name of a state: ``now`` in WMLA 2.x and later, ``old`` in WMLA 1.2.x and its Conductor."""

    now: str
    old: str


PENDING: Final = State("PENDING_CRD_SCHEDULER", "SUBMITTED")
SUBMITTED: Final = State("SUBMITTED", "SUBMITTED")
RUNNING: Final = State("RUNNING", "RUNNING")

# Polling loops in users' notebooks continue only while the state is PENDING_CRD_SCHEDULER, SUBMITTED or RUNNING. Every
# other state ends them, also LAUNCHING and RECOVERING, so no job that has not ended gets one of these. Polling loops in
# users' scripts end only at a state that contains FINISHED or ERROR.
STATES: Final[Mapping[str, State]] = {
    # The job waits for slots. It may have run before: the policy took all of its slots, or it is retried.
    "queued": PENDING,
    # The job has slots but does not train yet.
    "starting": PENDING,
    "running": RUNNING,
    # The job's workers still run and write a checkpoint.
    "pausing": RUNNING,
    # The job will continue. A polling loop that ended here would fetch the result of an unfinished training.
    "paused": PENDING,
    # The job's results are not complete until its state is "stopped".
    "stopping": RUNNING,
    "succeeded": State("FINISHED", "FINISHED"),
    "failed": State("ERROR", "ERROR"),
    # WMLA's name. Scripts that do not know KILLED never stop a job themselves.
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
"""The stages of the jobs that a query for a WMLA state finds."""
