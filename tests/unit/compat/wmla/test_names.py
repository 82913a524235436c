"""Names of WMLA: every stage has a state with which users' polling loops end at the right time."""

from __future__ import annotations

import pytest

from legato.compat.wmla.frameworks import FRAMEWORKS, describe_framework, find_framework
from legato.compat.wmla.names import STAGES_OF_STATES, STATES, driver_id, executor_id, find_job, find_model_directory
from legato.control.ids import make_id
from legato.control.stages import ENDED, Stage
from legato.core.errors import UsageError


def test_every_stage_has_a_state() -> None:
    assert set(STATES) == {stage.value for stage in Stage}


@pytest.mark.parametrize("stage", list(Stage))
def test_the_loops_of_users_end_when_the_job_has_ended(stage: Stage) -> None:
    state = STATES[stage]
    # The polling loop in notebooks for 2.x and later.
    assert (state.now in {"PENDING_CRD_SCHEDULER", "SUBMITTED", "RUNNING"}) == (stage not in ENDED)
    # The polling loop of dlicmd.py.
    assert (state.now in {"FINISHED", "KILLED", "ERROR"}) == (stage in ENDED)
    assert (state.old in {"FINISHED", "KILLED", "ERROR"}) == (stage in ENDED)
    # The polling loop in WMLA's self tests.
    assert ("FINISHED" in state.now or "ERROR" in state.now) == (stage in ENDED - {Stage.STOPPED})


def test_a_query_for_a_state_finds_the_jobs_that_show_it() -> None:
    for stage, state in STATES.items():
        assert stage in STAGES_OF_STATES[state.now]
        assert stage in STAGES_OF_STATES[state.old]


def test_every_id_leads_to_its_job() -> None:
    job = make_id("j", 1_800_000_000.0, lambda bits: 0)
    for text in (job, driver_id(job), f"app-{job}", executor_id(job, 12)):
        assert find_job(text) == job
    for text in ("", "mnist", "Admin-1-2", f"{job}/..", f"executor-{job}", f"driver-driver-{job}", f"{job}\n"):
        assert find_job(text) is None


def test_model_directories() -> None:
    assert find_model_directory("_submitted_code/m/a/b.py") == "_submitted_code/m"
    assert find_model_directory("/a/b.py") == "/a"


def test_frameworks() -> None:
    assert {
        "edtPyTorch",
        "edtTensorflow",
        "edtKeras",
        "PyTorch",
        "distPyTorch",
        "tensorflow",
        "disttensorflow",
        "keras",
    } == set(FRAMEWORKS)
    for name, framework in FRAMEWORKS.items():
        assert find_framework(name) is framework
        assert framework.is_elastic == name.startswith("edt")
        told = describe_framework(framework, "1")
        assert told["execMode"] in ("single", "distributed")
        assert told["description"]
    with pytest.raises(UsageError, match="Did you mean disttensorflow"):
        find_framework("distTensorFlow")
