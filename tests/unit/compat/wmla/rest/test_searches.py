"""Routes of hyperparameter searches, which are sweeps of the platform."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from tests.unit.compat.wmla.rest.asking import MODEL, Console, check_error

from legato.compat.wmla.rest.searches import _is_search
from legato.compat.wmla.trials import SEARCH
from legato.control.stages import Stage
from legato.server.sweeps import Sweeper

ARGS = "--exec-start PyTorch --model-main main.py --model-dir mnist --epochs 3"
RATE = {"name": "lr", "type": "Range", "dataType": "DOUBLE", "minDbVal": 0.001, "maxDbVal": 0.1}
ALGORITHM = {
    "algorithm": "Random",
    "maxRunTime": 60,
    "maxJobNum": 3,
    "maxParalleJobNum": 2,
    "objectiveMetric": "loss",
    "objective": "minimize",
}


def test_parameters_that_no_search_has_hide_no_search() -> None:
    sweep = {
        "job": {"parameters": {SEARCH: '{"x":' + "[" * 5000}, "labels": {}},
        "parameters": {},
        "points": [],
        "pruning": None,
        "num_trials": 1,
    }
    assert not _is_search(sweep)


def send(
    console: Console, *, who: str = "ann", part: str = "file", model: dict[str, Any] | None = None, **fields: Any
) -> httpx.Response:
    data = {"modelSpec": model or {"args": ARGS}, "algoDef": ALGORITHM, "hyperParams": [RATE]} | fields
    files = [(part, ("mnist.modelDir.tar", MODEL))]
    return console.ask("POST", "/hypersearch", who=who, data={"data": json.dumps(data)}, files=files)


def start(console: Console, **more: Any) -> str:
    answer = send(console, **more)
    assert answer.status_code == 200, answer.text
    uid: str = answer.json()["uid"]
    return uid


def finish(console: Console, job: str, value: float | None, stage: Stage = Stage.SUCCEEDED) -> None:
    """End the job of a trial as its launcher does."""
    console.start(job)
    if value is not None:
        line = {"index": 0, "step": 0, "epoch": 0, "time": 0.0, "values": {"hpo_loss": value}}
        console.write(job, "metrics.jsonl", json.dumps(line) + "\n")
    console.platform.end(job, stage)


def test_a_search_from_its_start_to_its_best_trial(console: Console) -> None:
    console.platform.lead()
    name = start(console)
    assert name.startswith("ann-hpo-")
    sweeper = Sweeper(console.platform.services)
    found = console.get(f"/hypersearch/{name}")
    assert (found["state"], found["progress"], found["experiments"]) == ("SUBMITTED", "0/3", [])
    sweeper.round()
    found = console.get(f"/hypersearch/{name}")
    assert (found["state"], found["running"], found["complete"], found["failed"]) == ("RUNNING", 2, 0, 0)
    assert found["hyperParams"] == [
        {"name": "lr", "dataType": "double", "userDefined": False, "type": "range", "minDbVal": 0.001, "maxDbVal": 0.1}
    ]
    assert found["algoDef"] == ALGORITHM
    first = found["experiments"][0]
    (parameter,) = first["hyperParams"]
    assert set(parameter) == {"name", "dataType", "userDefined", "fixedVal"}
    assert (first["id"], first["state"], "metricVal" in first, "endTime" in first) == (0, "SUBMITTED", False, False)
    spec = console.platform.get(f"jobs/{first['appId']}/spec")
    assert spec["program"][-2:] == ["--epochs", "3"]
    assert list(spec["parameters"]) == ["wmla-hpo", "lr"]
    for value, stage in ((0.5, Stage.SUCCEEDED), (0.25, Stage.SUCCEEDED), (None, Stage.FAILED)):
        job = console.get(f"/hypersearch/{name}")["experiments"]
        waiting = next(one["appId"] for one in job if one["state"] == "SUBMITTED")
        finish(console, waiting, value, stage)
        sweeper.round()
    sweeper.round()
    found = console.get(f"/hypersearch/{name}")
    assert (found["state"], found["progress"], found["failed"]) == ("FINISHED", "3/3", 1)
    assert [(one["state"], one.get("metricVal")) for one in found["experiments"]] == [
        ("FINISHED", 0.5),
        ("FINISHED", 0.25),
        ("ERROR", None),
    ]
    assert found["best"] == found["experiments"][1]
    assert found["duration"] == "00:00:00"
    (execution,) = [one for one in console.get("/execs") if one["id"] == found["best"]["appId"]]
    assert execution["state"] == "FINISHED"


def test_the_answers_of_both_generations_and_the_part_that_a_notebook_names(console: Console) -> None:
    console.add_queue("lab")
    old = send(console, model={"args": ARGS, "sigName": "lab"}, part="main.py").json()
    assert isinstance(old, str)
    assert console.get(f"/hypersearch/{old}")["sigName"] == "lab"
    assert console.platform.get(f"sweeps/{old}")["queue"] == "lab"
    new = send(console, hpoName="mine").json()
    assert new == {"uid": "mine", "href": "/platform/rest/deeplearning/v1/hypersearch/mine"}
    check_error(send(console, hpoName="mine"), 409, "You have a search mine already")
    assert send(console, hpoName="mine", who="ben").status_code == 200
    check_error(send(console, hpoName="a b"), 400, "Use letters")
    assert [one["hpoName"] for one in console.get("/hypersearch")] == ["mine", old]
    assert len(console.get("/hypersearch", who="admin")) == 3


def test_what_cannot_start_is_refused(console: Console) -> None:
    check_error(send(console, algoDef={**ALGORITHM, "algorithm": "mine"}), 400, "There is no algorithm 'mine'")
    check_error(send(console, model={"args": ARGS, "sigName": "none"}), 400, "Instance group name none not found")
    check_error(send(console, model={"args": "--exec-start Caffe --model-main main.py"}), 400, "Caffe")
    absolute = ARGS.replace("main.py", "/programs/main.py")
    check_error(send(console, model={"args": absolute}), 400, "config.json is written beside the program")
    check_error(send(console, hyperParams=[{**RATE, "name": "a b"}]), 400, "not a valid name of a parameter")
    check_error(send(console, who="eye"), 403)
    check_error(console.ask("POST", "/hypersearch", data={"data": "?"}, files=[("file", MODEL)]), 400, "not JSON")
    check_error(console.ask("POST", "/hypersearch", files=[("file", MODEL)]), 400, "'modelSpec' is missing")
    assert console.get("/hypersearch") == []
    assert console.platform.get("sweeps")["items"] == []


def test_a_notice_names_what_has_no_effect(console: Console) -> None:
    answer = send(console, algoDef={**ALGORITHM, "algorithm": "Bayesian"}, model={"args": ARGS + " --numPs 2"})
    told = "Accepted, but without effect here: --numPs. Bayesian is searched by TPE here."
    assert answer.headers["X-WMLA-Notice"] == told
    assert console.get(f"/hypersearch/{answer.json()['uid']}")["notice"] == told


def test_missing_data_are_reported_but_the_program_may_make_them(console: Console) -> None:
    console.platform.lead()
    console.platform.loop.starts_drivers = True
    answer = send(console, model={"args": f"{ARGS} --cs-datastore-meta type=fs,data_path=pets"})
    assert answer.status_code == 200, answer.text
    assert "/data/pets does not exist yet" in answer.headers["X-WMLA-Notice"]
    (sweep,) = console.platform.get("sweeps")["items"]
    assert "data" not in sweep["job"]


def test_experiments_and_hyperband_are_shown_as_in_the_original(console: Console) -> None:
    console.platform.lead()
    points = [{"id": 7, "hyperParams": [{"name": "optimizer", "dataType": "STR", "fixedVal": "Adam"}]}]
    listed = start(
        console, algoDef={**ALGORITHM, "algorithm": "ExperimentGridSearch"}, hyperParams=[], experiments=points
    )
    settings = [{"name": "ResourceName", "value": "epochs"}, {"name": "ResourceValue", "value": "9"}]
    band = start(console, algoDef={**ALGORITHM, "algorithm": "Hyperband", "algoParams": settings, "hyperbandEta": 3.0})
    Sweeper(console.platform.services).round()
    (one,) = console.get(f"/hypersearch/{listed}")["experiments"]
    fixed = {"name": "optimizer", "type": "fix", "dataType": "str", "userDefined": False, "fixedVal": "Adam"}
    assert (one["id"], one["hyperParams"]) == (7, [fixed])
    found = console.get(f"/hypersearch/{band}")
    assert found["algoDef"]["algoParams"] == settings
    resource = {"name": "epochs", "dataType": "str", "userDefined": False, "fixedVal": "1"}
    assert [each["hyperParams"][1] for each in found["experiments"]] == [resource, resource]


def test_stop_restart_and_delete(console: Console) -> None:
    console.platform.lead()
    name = start(console, who="ann")
    sweeper = Sweeper(console.platform.services)
    sweeper.round()
    before = console.get(f"/hypersearch/{name}")["experiments"]
    path = f"/hypersearch/{name}"
    check_error(console.ask("DELETE", path), 409, "it is running")
    check_error(console.ask("PUT", f"{path}/restart"), 409, "Stop it first")
    check_error(console.ask("PUT", path, who="ben"), 403)
    assert console.ask("PUT", path).status_code == 204
    found = console.get(path)
    assert (found["state"], [one["state"] for one in found["experiments"]]) == ("STOPPED", ["KILLED", "KILLED"])
    check_error(console.ask("PUT", path), 409, "already ended")
    assert console.ask("PUT", f"{path}/force").status_code == 204
    check_error(console.ask("PUT", f"{path}/restart", who="admin"), 403, "a search of 'ann'")
    assert console.ask("PUT", f"{path}/restart").json()["uid"] == name
    assert [one["hpoName"] for one in console.get("/hypersearch")] == [name]
    sweeper.round()
    again = console.get(path)["experiments"]
    assert [one["hyperParams"] for one in again] == [one["hyperParams"] for one in before]
    assert {one["appId"] for one in again}.isdisjoint(one["appId"] for one in before)
    console.start(again[0]["appId"])
    assert console.ask("PUT", f"{path}/force").status_code == 204
    assert console.platform.store.jobs.get(again[0]["appId"]).stop_now
    assert console.ask("DELETE", path).status_code == 204
    check_error(console.ask("GET", path), 404, "GET /platform/rest/deeplearning/v1/hypersearch lists yours")


def test_all_searches_of_a_user_that_have_ended_are_deleted(console: Console) -> None:
    ended, running, other = start(console), start(console), start(console, who="ben")
    console.ask("PUT", f"/hypersearch/{ended}")
    check_error(console.ask("DELETE", "/hypersearch"), 409, f"{running} run")
    assert [one["hpoName"] for one in console.get("/hypersearch")] == [running]
    console.ask("PUT", f"/hypersearch/{running}")
    assert console.ask("DELETE", "/hypersearch").status_code == 204
    assert console.get("/hypersearch") == []
    assert [one["hpoName"] for one in console.get("/hypersearch", who="ben")] == [other]


def test_a_sweep_that_is_no_search_of_wmla_and_a_hidden_one_do_not_exist(console: Console) -> None:
    job = {"program": ["a.py"], "directory": "/d"}
    metric = {"name": "a", "direction": "minimize"}
    body = {"name": "own", "metric": metric, "parameters": {"x": {"values": [1]}}, "num_trials": 1, "job": job}
    assert console.platform.ask("POST", "sweeps", body).status_code == 201
    text = '{"algorithm":"Random","metric":"a","objective":"minimize","kinds":{}}'
    for value in ("odd", 3, text, text.replace("{}", '{"x":"int"}')):
        mark = {"wmla": "yes"} if "int" not in str(value) else {}
        odd = {**body, "name": "odd", "job": {**job, "labels": mark, "parameters": {"wmla-hpo": value}}}
        assert console.platform.ask("POST", "sweeps", odd).status_code == 201
        check_error(console.ask("GET", "/hypersearch/odd"), 404, "There is no search")
    console.add_queue("secret", is_open=False, members=("ann",))
    hidden = send(console, model={"args": ARGS, "sigName": "secret"}).json()
    for name in ("own", hidden, "none", "a b", "x" * 300):
        who = "ben" if name == hidden else "ann"
        for method, end in (("GET", ""), ("PUT", ""), ("PUT", "/force"), ("PUT", "/restart"), ("DELETE", "")):
            check_error(console.ask(method, f"/hypersearch/{name}{end}", who=who), 404, "There is no search")
    assert [one["hpoName"] for one in console.get("/hypersearch")] == [hidden]


def test_the_algorithms(shared: Console) -> None:
    names = ["Random", "TPE", "Bayesian", "Hyperband", "ExperimentGridSearch"]
    known = [{"name": name, "type": "BUILD_IN"} for name in names]
    for query in ({}, {"type": "BUILD_IN"}):
        assert shared.get("/hypersearch/algorithm", params=query) == known
    assert shared.get("/hypersearch/algorithm", params={"type": "USER_PLUGIN"}) == []
    assert shared.get("/hypersearch/algorithm/tpe") == known[1]
    check_error(shared.ask("GET", "/hypersearch/algorithm", params={"type": "x"}), 400, "BUILD_IN and USER_PLUGIN")
    check_error(shared.ask("GET", "/hypersearch/algorithm/mine"), 404, "The algorithms are Random")
    check_error(shared.ask("DELETE", "/hypersearch/algorithm/Random"), 409, "built in")
    check_error(shared.ask("POST", "/hypersearch/algorithm/install"), 501, "plug-ins) are not supported")


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", ""), ("POST", ""), ("DELETE", ""), ("GET", "/a"), ("PUT", "/a/restart"), ("GET", "/algorithm")],
)
def test_every_request_needs_a_user(shared: Console, method: str, path: str) -> None:
    check_error(shared.ask(method, f"/hypersearch{path}", who=None), 401)
