"""Projects, training definitions, experiments and their runs, over REST."""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.unit.server.conftest import NewPlatform
from tests.unit.server.platform import ADMIN, NOW, Platform, check_problem, wait_for_memory

from legato.control.records import Queue
from legato.control.roles import Role

PROJECT = {"name": "Digits", "members": ["ben"]}
DEFINITION = {"name": "CNN", "command": "python3 train.py --epochs 3"}


def make_zip(**files: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as packed:
        for name, text in (files or {"train.py": "print('trained')\n"}).items():
            packed.writestr(zipfile.ZipInfo(name.replace("__", "/")), text)
    return content.getvalue()


def upload(platform: Platform, who: str = "ann", **files: str) -> str:
    content = make_zip(**{name.replace("_py", ".py").replace("_sh", ".sh"): text for name, text in files.items()})
    sha256 = hashlib.sha256(content).hexdigest()
    headers = platform.headers(who, **{"Content-Type": "application/octet-stream"})
    answer = platform.http.put(f"/api/v1/code/{sha256}", content=content, headers=headers)
    assert answer.status_code in (200, 201), answer.text
    return sha256


def make(platform: Platform, path: str, who: str = "ann", **fields: Any) -> Any:
    answer = platform.ask("POST", path, fields, who=who)
    assert answer.status_code == 201, answer.text
    assert answer.headers["etag"] == '"1"'
    made = answer.json()
    assert answer.headers["location"] == f"/api/v1/{path.rpartition('/')[2]}/{made['id']}"
    return made


@pytest.fixture
def digits(platform: Platform) -> Any:
    """A project of ann's, with ben in it."""
    return make(platform, "projects", **PROJECT)


@pytest.fixture(scope="module")
def empty(shared: Platform) -> str:
    """The path of a project of the shared platform whose definitions are all refused."""
    return f"projects/{make(shared, 'projects', **PROJECT)['id']}"


def define(platform: Platform, project: Any, who: str = "ann", **fields: Any) -> Any:
    if "code" not in fields and "directory" not in fields:
        fields["code"] = upload(platform, who)
    return make(platform, f"projects/{project['id']}/definitions", who, **(DEFINITION | fields))


def test_a_project_from_its_beginning_to_its_end(platform: Platform, digits: Any) -> None:
    assert digits == {
        "id": digits["id"],
        "name": "Digits",
        "owner": "ann",
        "description": "",
        "queue": "default",
        "members": ["ben"],
        "version": 1,
        "created_at": NOW,
    }
    assert digits["id"].startswith("p-")
    for ref in (digits["id"], "Digits"):
        assert platform.get(f"projects/{ref}", who="ben") == digits
    changed = platform.ask("PATCH", "projects/Digits", {"description": "of all", "members": []}, If_Match='"1"')
    assert (changed.status_code, changed.headers["etag"]) == (200, '"2"')
    assert changed.json() == digits | {"description": "of all", "members": [], "version": 2}
    check_problem(platform.ask("PATCH", "projects/Digits", {"name": "x"}, If_Match='"1"'), 412, "stale-version")
    assert platform.get("projects")["items"] == [changed.json()]
    assert platform.get("projects", who="ben")["items"] == []
    check_problem(platform.ask("GET", "projects/Digits", who="ben"), 404, "not-found")
    assert platform.ask("DELETE", "projects/Digits").status_code == 204
    check_problem(platform.ask("GET", f"projects/{digits['id']}"), 404, "not-found")
    told = [entry["action"] for entry in platform.get("audit", who="admin")["items"]]
    assert told[:3] == ["project.delete", "project.change", "project.create"]


def test_runs_of_an_experiment(platform: Platform, digits: Any) -> None:
    one = define(platform, digits, parameters={"rate": 0.1, "wide": True}, max_nodes=4, distributed="elastic")
    two = define(platform, digits, "ben", name="Linear", environment={"A": "1"})
    experiment = make(
        platform,
        f"projects/{digits['id']}/experiments",
        name="Both",
        definitions=[one["id"], two["id"]],
        arguments="--data 'two words'",
        data="/data",
    )
    answer = platform.ask("POST", f"experiments/{experiment['id']}/runs", {"parameters": {"rate": 0.2}}, who="ben")
    assert answer.status_code == 201, answer.text
    first, second = answer.json()["items"]
    assert (first["name"], first["owner"], first["min_workers"], first["max_workers"]) == ("Both-CNN", "ben", 1, 4)
    assert (second["name"], second["is_elastic"], second["max_workers"]) == ("Both-Linear", False, 1)
    for job, definition in ((first, one), (second, two)):
        origin = (job["project"], job["experiment"], job["definition"], job["parent"])
        assert origin == (digits["id"], experiment["id"], definition["id"], None)
    spec = platform.get(f"jobs/{first['id']}/spec", who="ben")
    assert spec["program"] == ["train.py", "--epochs", "3", "--data", "two words"]
    assert spec["parameters"] == {"rate": 0.2, "wide": True}
    assert (spec["framework"], spec["data"]) == ("legato", "/data")
    for query in (f"project={digits['id']}", "experiment=Both", f"definition={one['id']}"):
        found = [job["id"] for job in platform.get(f"jobs?{query}")["items"]]
        assert found == [second["id"], first["id"]][-1 if "definition" in query else 0 :], query
    assert platform.get("experiments/Both")["runs"] == [second["id"], first["id"]]


# ---------------------------------------------------------------- who may what


def ask_all(platform: Platform, who: str, digits: Any, one: Any, experiment: Any) -> dict[str, int]:
    """Return what each request answers to a user."""
    project = f"projects/{digits['id']}"
    body = {"name": f"by {who}", "command": "train.py", "code": one["code"]}
    asked = {
        "see": ("GET", project, None),
        "definition": ("GET", f"definitions/{one['id']}", None),
        "define": ("POST", f"{project}/definitions", body),
        "experiment": ("POST", f"{project}/experiments", {"name": f"by {who}", "definitions": [one["id"]]}),
        "plan": ("POST", f"definitions/{one['id']}/plan", None),
        "run": ("POST", f"experiments/{experiment['id']}/runs", {}),
        "rename": ("PATCH", f"definitions/{one['id']}", {"description": who}),
        "rewrite": ("PATCH", f"experiments/{experiment['id']}", {"description": who}),
        "change": ("PATCH", project, {"description": who}),
        "delete": ("DELETE", f"definitions/{one['id']}", None),
    }
    return {what: platform.ask(*request, who=who).status_code for what, request in asked.items()}


def test_roles_and_membership_limit_what_users_may_do_in_a_project(platform: Platform, digits: Any) -> None:
    platform.store.accounts.create("eve", Role.USER, ADMIN, NOW)
    platform.secrets["eve"] = platform.store.tokens.create("eve", "test", ADMIN, NOW, expires_at=NOW + 1e7).secret
    one = define(platform, digits)
    experiment = make(platform, f"projects/{digits['id']}/experiments", name="One", definitions=[one["id"]])
    things = (digits, one, experiment)
    all_of_it = dict.fromkeys(ask_all(platform, "ann", *things), 200) | {"define": 201, "experiment": 201, "run": 201}
    owner = all_of_it | {"delete": 409}
    assert ask_all(platform, "admin", *things) == owner
    assert ask_all(platform, "ben", *things) == owner | dict.fromkeys(("rename", "rewrite", "change", "delete"), 403)
    nothing = dict.fromkeys(owner, 403)
    assert ask_all(platform, "eye", *things) == nothing | {"see": 200, "definition": 200}
    assert ask_all(platform, "eve", *things) == dict.fromkeys(owner, 404)
    # Who made something may change it, and whose project it is.
    of_ben = platform.get("definitions/by ben", who="ben")
    for who in ("ben", "ann"):
        assert platform.ask("PATCH", f"definitions/{of_ben['id']}", {"name": who}, who=who).status_code == 200
    # Runs are seen by who sees the project, also in a queue that is closed to them; and changed by their owners.
    run = platform.get("jobs?owner=ben")["items"][0]
    for who, want in (("ann", 403), ("eye", 403), ("ben", 200)):
        assert platform.ask("PATCH", f"jobs/{run['id']}", {"priority": 1}, who=who).status_code == want


def test_users_see_runs_only_through_the_project(platform: Platform) -> None:
    for name in ("hall", "cell"):
        platform.store.queues.put(Queue(name=name, is_open=False, members=("ann",)), ADMIN, NOW)
    project = make(platform, "projects", name="Closed", queue="cell", members=["ben"])
    one = define(platform, project)
    make(platform, f"projects/{project['id']}/experiments", name="One", definitions=[one["id"]])
    (run,) = platform.ask("POST", "experiments/One/runs").json()["items"]
    assert run["queue"] == "cell"
    assert platform.get(f"jobs/{run['id']}", who="ben")["id"] == run["id"]
    kinds = [event["kind"] for event in platform.get(f"jobs/{run['id']}/events", who="ben")["items"]]
    assert kinds == ["stage"]
    # To run it one must be let into the queue.
    told = "queue 'cell' is closed to 'ben'"
    check_problem(platform.ask("POST", "experiments/One/runs", who="ben"), 403, "forbidden", told)
    platform.ask("PATCH", "projects/Closed", {"members": []})
    check_problem(platform.ask("GET", f"jobs/{run['id']}", who="ben"), 404, "not-found")
    # Its queue cannot go as long as it is named.
    platform.ask("PATCH", "projects/Closed", {"queue": "hall"})
    check_problem(
        platform.ask("DELETE", "queues/hall", who="admin"), 409, "conflict", "Change the queue of the project"
    )


def test_users_who_see_a_project_hear_of_its_changes(platform: Platform, digits: Any) -> None:
    wait_for_memory(platform)
    after = platform.get("events")["after"]
    make(platform, "projects", name="Own")
    define(platform, digits)
    wait_for_memory(platform)

    def told(query: str, who: str) -> list[str]:
        events = platform.get(f"events{query}", who=who)["items"]
        return [event["detail"]["action"] for event in events if event["kind"] == "project"]

    from_store, from_memory = "", f"?after={after}"
    for who in ("ann", "eye"):
        assert told(from_store, who) == ["project.create", "project.create", "definition.create"]
        assert told(from_memory, who) == ["project.create", "definition.create"]
    assert told(from_store, "ben") == ["project.create", "definition.create"]
    assert told(from_memory, "ben") == ["definition.create"]


def test_a_removed_member_gets_one_event(platform: Platform, digits: Any) -> None:
    wait_for_memory(platform)
    after = platform.get("events")["after"]
    platform.ask("PATCH", "projects/Digits", {"members": []})
    platform.ask("PATCH", "projects/Digits", {"description": "of ann alone"})
    wait_for_memory(platform)

    def told(query: str, who: str) -> list[str]:
        events = platform.get(f"events{query}", who=who)["items"]
        return [event["detail"]["action"] for event in events if event["kind"] == "project"]

    from_store, from_memory = "", f"?after={after}"
    for query in (from_store, from_memory):
        assert told(query, "ben") == ["project.leave"]
        assert told(query, "ann")[-3:] == ["project.leave", "project.change", "project.change"]
    assert platform.ask("DELETE", "projects/Digits").status_code == 204
    wait_for_memory(platform)
    for query in (from_store, from_memory):
        assert told(query, "ben") == ["project.leave"]
        assert told(query, "ann") == ["project.leave"], "her own, at the end"
        assert told(query, "eye")[-2:] == ["project.leave", "project.delete"]


def test_viewers_see_no_values_and_no_code(platform: Platform, digits: Any) -> None:
    one = define(platform, digits, environment={"KEY": "geheim"})
    assert platform.get(f"definitions/{one['id']}", who="ben")["environment"] == {"KEY": "geheim"}
    seen = platform.get(f"definitions/{one['id']}", who="eye")
    assert (seen["environment"], seen["code"]) == ({"KEY": None}, None)
    listed = platform.get(f"projects/{digits['id']}/definitions", who="eye")["items"]
    assert listed == [seen]


def test_code_of_a_definition_is_for_the_project(platform: Platform, digits: Any) -> None:
    sha256 = upload(platform, "ann", only_py="print(1)")
    body = {"name": "x", "program": ["only.py"], "code": sha256}
    check_problem(platform.ask("POST", "jobs", body, who="ben"), 404, "not-found", "not uploaded the code")
    job = platform.ask("POST", "jobs", body).json()["id"]

    def see(who: str) -> tuple[str | None, int]:
        return platform.get(f"jobs/{job}", who=who)["code"], platform.ask(
            "GET", f"code/{sha256}/archive", who=who
        ).status_code

    assert (see("ann"), see("ben"), see("eye")) == ((sha256, 200), (None, 404), (None, 403))
    define(platform, digits, code=sha256, command="only.py")
    assert (see("ben"), see("eye")) == ((sha256, 200), (None, 403))
    assert platform.get("jobs", who="ben")["items"][0]["code"] is None, "lists have the code of own jobs only"
    assert platform.ask("POST", "jobs", body, who="ben").status_code == 201


def test_a_definition_that_a_browser_copies_has_the_same_numbers(platform: Platform, digits: Any) -> None:
    parameters = {"scale": 1.0, "layers": 2, "seed": 2**60 + 1, "nesterov": True, "lr": 0.1}
    one = define(platform, digits, parameters=parameters)
    # As JavaScript writes what it has read.
    sent = parameters | {"scale": 1, "seed": 1152921504606847000}
    copy = define(platform, digits, name="copy", parameters=sent, clone_of=one["id"])
    assert json.dumps(copy["parameters"]) == json.dumps(one["parameters"])
    changed = sent | {"scale": 2, "layers": True}
    other = define(platform, digits, name="other", parameters=changed, clone_of=one["name"])
    assert json.dumps(other["parameters"]) == json.dumps(changed | {"seed": 2**60 + 1})
    plain = define(platform, digits, name="plain", parameters=sent)
    assert json.dumps(plain["parameters"]) == json.dumps(sent)
    body = {"name": "x", "command": "train.py", "directory": "/d", "clone_of": "d-0"}
    check_problem(platform.ask("POST", f"projects/{digits['id']}/definitions", body), 404, "not-found", "d-0")
    # A definition in a project of others is not read: its numbers would tell what they are.
    hidden = define(platform, make(platform, "projects", name="Hidden"), name="secret", parameters={"scale": 1.0})
    for ref in (hidden["id"], "secret"):
        body |= {"clone_of": ref, "parameters": {"scale": 1}}
        answer = platform.ask("POST", f"projects/{digits['id']}/definitions", body, who="ben")
        check_problem(answer, 404, "not-found", ref)


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("changes", "field", "told"),
    [
        ({"command": ""}, "command", "The command is empty"),
        ({"command": "train.py 'open"}, "command", "No closing quotation"),
        ({"command": "a\nb"}, "command", "more than one line"),
        ({"command": "python -m train"}, "command", "The command names no script"),
        ({"command": "python"}, "command", "The command names no script"),
        ({"command": "python tarin.py"}, "command", "'tarin.py' is not in the code. Did you mean 'train.py'?"),
        ({"command": "other.sh"}, "command", "'other.sh' is not in the code, which has: train.py."),
        ({"command": "../train.py"}, "command", "'../train.py' is not in the code"),
        ({"framework": "command", "command": "./run"}, "command", "The file 'run' is not in the code"),
        ({"framework": "command", "command": "bash run.sh"}, "command", "The file 'run.sh' is not in the code"),
        ({"framework": "cafe"}, "framework", "There is no framework 'cafe' here. There are legato, command"),
        ({"framework": "command", "distributed": "elastic"}, "distributed", "runs single or static, not elastic"),
        ({"max_nodes": 4}, "max_nodes", "A single definition has 1 node"),
        ({"distributed": "static", "max_nodes": 4, "min_nodes": 2}, "min_nodes", "exactly max_nodes"),
        ({"distributed": "elastic", "max_nodes": 2, "min_nodes": 3}, None, "min_workers=3 is above max_workers=2"),
        ({"distributed": "both"}, "distributed", "must be "),
        ({"parameters": {"two words": 1}}, "parameters", "is not a valid name of a parameter"),
        ({"parameters": {"x": None}}, "parameters", ""),
        ({"parameters": {"x": [1]}}, "parameters", ""),
        ({"environment": {"LEGATO_WORKER": "1"}}, None, "is reserved for the driver"),
        ({"name": " CNN"}, "name", "one line of 1 to 100 characters"),
        ({"name": "a\u2028b"}, "name", "one line of 1 to 100 characters"),
        ({"name": "x" * 101}, "name", "one line of 1 to 100 characters"),
        ({"code": None}, "code", "Give either uploaded code or a directory"),
        ({"directory": "/d"}, "code", "Give either uploaded code or a directory"),
        ({"code": "abc"}, None, "as a SHA-256"),
        ({"checkpoint_every": "often"}, None, "is not understood"),
        ({"max_run_s": 0.0}, None, "max_run_s=0 is not above 0"),
        ({"seed": -1}, None, "seed=-1 is below 0"),
        ({"owner": "ann"}, "owner", "is not known"),
    ],
    ids=lambda given: "-".join(given)[:40] if isinstance(given, dict) else None,
)
def test_a_definition_that_cannot_be_used(
    shared: Platform, empty: str, changes: dict[str, Any], field: str | None, told: str
) -> None:
    body = DEFINITION | {"code": upload(shared)} | changes
    answer = shared.ask("POST", f"{empty}/definitions", body)
    problem = check_problem(answer, 422, "invalid", told)
    fields = [error["field"].split(".")[1] for error in problem.get("errors", [])]
    assert set(fields) == (set() if field is None else {field}), problem
    assert shared.get(f"{empty}/definitions")["items"] == []


def test_a_bad_zip_is_no_code(platform: Platform, digits: Any) -> None:
    content = make_zip()[:-30]
    sha256 = hashlib.sha256(content).hexdigest()
    headers = platform.headers("ann", **{"Content-Type": "application/octet-stream"})
    answer = platform.http.put(f"/api/v1/code/{sha256}", content=content, headers=headers)
    check_problem(answer, 422, "invalid", "Cannot unpack the upload")
    body = DEFINITION | {"code": sha256}
    answer = platform.ask("POST", f"projects/{digits['id']}/definitions", body)
    check_problem(answer, 404, "not-found", "You have not uploaded the code")


def test_names_are_taken_once(platform: Platform, digits: Any) -> None:
    check_problem(platform.ask("POST", "projects", PROJECT), 409, "conflict", "already has a project of this name")
    assert make(platform, "projects", "ben", **PROJECT)["owner"] == "ben"
    other = make(platform, "projects", name="Other")
    check_problem(platform.ask("PATCH", f"projects/{other['id']}", {"name": "Digits"}), 409, "conflict")
    # A name is that of the asker's own, else of the newest.
    assert platform.get("projects/Digits")["owner"] == "ann"
    assert platform.get("projects/Digits", who="eye")["owner"] == "ben"
    one, two = define(platform, digits), define(platform, digits, name="Two")
    path = f"projects/{digits['id']}"
    again = DEFINITION | {"code": one["code"]}
    check_problem(platform.ask("POST", f"{path}/definitions", again), 409, "conflict")
    check_problem(platform.ask("PATCH", f"definitions/{two['id']}", {"name": "CNN"}), 409, "conflict")
    for name in ("x", "y"):
        make(platform, f"{path}/experiments", name=name, definitions=[one["id"]])
    check_problem(
        platform.ask("POST", f"{path}/experiments", {"name": "x", "definitions": [one["id"]]}), 409, "conflict"
    )
    check_problem(platform.ask("PATCH", "experiments/y", {"name": "x"}), 409, "conflict")
    assert define(platform, other)["name"] == "CNN"


def test_the_number_of_projects_and_of_their_parts_is_limited(new_platform: NewPlatform) -> None:
    platform = new_platform(max_projects=2, max_in_project=1)
    digits = make(platform, "projects", **PROJECT)
    make(platform, "projects", name="Two")
    check_problem(platform.ask("POST", "projects", {"name": "Three"}), 409, "conflict", "raise max_projects")
    make(platform, "projects", "ben", name="Three")
    for name in "abc":
        make(platform, "projects", "admin", name=name)
    assert platform.ask("DELETE", "projects/Two").status_code == 204
    make(platform, "projects", name="Three")
    one = define(platform, digits, directory="/d")
    for who in ("ben", "admin"):
        again = DEFINITION | {"name": "Two", "directory": "/d"}
        answer = platform.ask("POST", f"projects/{digits['id']}/definitions", again, who=who)
        check_problem(answer, 409, "conflict", "raise max_in_project")
    new = {"name": "First", "definitions": [one["id"]]}
    make(platform, f"projects/{digits['id']}/experiments", **new)
    answer = platform.ask("POST", f"projects/{digits['id']}/experiments", new | {"name": "Second"})
    check_problem(answer, 409, "conflict", "raise max_in_project")


def test_objects_in_use_are_not_deleted(platform: Platform, digits: Any) -> None:
    one = define(platform, digits)
    experiment = make(platform, f"projects/{digits['id']}/experiments", name="One", definitions=[one["id"]])
    (run,) = platform.ask("POST", "experiments/One/runs", {}).json()["items"]
    check_problem(platform.ask("DELETE", f"projects/{digits['id']}"), 409, "conflict", "it has 1 experiments")
    told = "experiment 'One' uses it"
    check_problem(platform.ask("DELETE", f"definitions/{one['id']}"), 409, "conflict", told)
    for path in (f"experiments/{experiment['id']}", f"definitions/{one['id']}", f"projects/{digits['id']}"):
        assert platform.ask("DELETE", path, If_Match='"1"').status_code == 204, path
        assert platform.ask("DELETE", path).status_code == 404
    left = platform.get(f"jobs/{run['id']}")
    assert [left[origin] for origin in ("project", "experiment", "definition")] == [None, None, None]
    assert left["code"] == one["code"]


# ---------------------------------------------------------------- experiments and runs


def test_an_experiment_is_changed(platform: Platform, digits: Any) -> None:
    one, two = define(platform, digits), define(platform, digits, name="Two")
    path = f"projects/{digits['id']}/experiments"
    made = make(platform, path, name="One", definitions=[one["id"], one["id"]], data="/data")
    assert (made["definitions"], made["data"], made["arguments"], made["runs"]) == ([one["id"]], "/data", "", [])
    patch = {"definitions": [two["id"], one["id"]], "data": None, "arguments": "--x 1", "name": "Two"}
    changed = platform.ask("PATCH", f"experiments/{made['id']}", patch).json()
    assert changed == made | patch | {"version": 2}
    assert platform.ask("PATCH", f"experiments/{made['id']}", patch).json() == changed, "nothing changes"
    for wrong, field in (
        ({"definitions": []}, "definitions"),
        ({"definitions": ["d-0000000000"]}, "definitions"),
        ({"data": "../data"}, "data"),
        ({"arguments": "'"}, "arguments"),
    ):
        for method, where, body in (
            ("PATCH", f"experiments/{made['id']}", wrong),
            ("POST", path, {"name": "New", "definitions": [one["id"]]} | wrong),
        ):
            problem = check_problem(platform.ask(method, where, body), 422, "invalid")
            assert [error["field"] for error in problem["errors"]] == [f"body.{field}"]
    elsewhere = define(platform, make(platform, "projects", name="Other"))
    told = f"its project has no training definition '{elsewhere['id']}'"
    answer = platform.ask("PATCH", f"experiments/{made['id']}", {"definitions": [elsewhere["id"]]})
    check_problem(answer, 422, "invalid", told)


def test_a_run_may_differ_from_its_definition(platform: Platform, digits: Any) -> None:
    one = define(platform, digits, distributed="elastic", min_nodes=2, max_nodes=4, seed=1, max_retries=2)
    static = define(platform, digits, name="Static", distributed="static", max_nodes=3)
    single = define(platform, digits, name="Single")
    all_three = [one["id"], static["id"], single["id"]]
    make(platform, f"projects/{digits['id']}/experiments", name="All", definitions=all_three)

    def run(definition: Any, **fields: Any) -> Any:
        answer = platform.ask("POST", "experiments/All/runs", {"definitions": [definition["id"]], **fields})
        return answer.json()["items"][0] if answer.status_code == 201 else answer

    def bounds(job: Any) -> tuple[int, int]:
        return job["min_workers"], job["max_workers"]

    assert bounds(run(one)) == (2, 4)
    assert bounds(run(one, max_nodes=8)) == (2, 8)
    assert bounds(run(one, max_nodes=1)) == (1, 1)
    assert bounds(run(one, min_nodes=1)) == (1, 4)
    assert bounds(run(static)) == (3, 3)
    assert bounds(run(static, max_nodes=2)) == (2, 2)
    assert bounds(run(single, max_nodes=1)) == (1, 1)
    made = run(one, priority=9000, labels={"team": "a"}, seed=7)
    assert (made["priority"], made["labels"], made["max_retries"]) == (9000, {"team": "a"}, 2)
    assert platform.get(f"jobs/{made['id']}/spec")["seed"] == 7
    check_problem(run(static, min_nodes=1), 422, "invalid", "is static: it has exactly max_nodes")
    check_problem(run(single, max_nodes=2), 422, "invalid", "is single: it has 1 node")
    check_problem(run(one, min_nodes=9), 422, "invalid", "min_workers=9 is above max_workers=4")
    check_problem(run({"id": "d-0000000000"}), 422, "invalid", "it has no training definition 'd-0000000000'")
    check_problem(platform.ask("POST", "experiments/All/runs", {"definitions": []}), 422, "invalid")


def test_runs_come_once_and_all_or_none(new_platform: NewPlatform) -> None:
    platform = new_platform(max_queued_jobs=3)
    project = make(platform, "projects", name="P")
    two = [define(platform, project, name=name)["id"] for name in ("a", "b")]
    make(platform, f"projects/{project['id']}/experiments", name="Two", definitions=two)
    first = platform.ask("POST", "experiments/Two/runs", {}, Idempotency_Key="k")
    again = platform.ask("POST", "experiments/Two/runs", {}, Idempotency_Key="k")
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    other = platform.ask("POST", "experiments/Two/runs", {"seed": 1}, Idempotency_Key="k")
    check_problem(other, 422, "key-reused")
    # One more would fit, two do not.
    check_problem(
        platform.ask("POST", "experiments/Two/runs", {}), 409, "conflict", "2 jobs of 'ann' are already queued"
    )
    assert len(platform.get("jobs")["items"]) == 2


def test_a_clone_keeps_where_it_came_from_as_far_as_that_is_the_askers(platform: Platform, digits: Any) -> None:
    one = define(platform, digits, environment={"KEY": "k"}, parameters={"x": 1})
    make(platform, f"projects/{digits['id']}/experiments", name="One", definitions=[one["id"]])
    (run,) = platform.ask("POST", "experiments/One/runs", {}).json()["items"]

    def clone(who: str, **fields: Any) -> Any:
        answer = platform.ask("POST", f"jobs/{run['id']}/clone", fields, who=who)
        assert answer.status_code == 201, answer.text
        return answer.json()

    origin = {name: run[name] for name in ("project", "experiment", "definition")} | {"parent": run["id"]}
    for who in ("ann", "ben"):
        made = clone(who, parameters={"x": 2})
        assert {name: made[name] for name in origin} == origin
        spec = platform.get(f"jobs/{made['id']}/spec", who=who)
        assert (spec["parameters"], spec["environment"]) == ({"x": 2}, {"KEY": "k"})
    # What ann adds of her own is hers: ben gets what the definition says.
    own = clone("ann", environment={"KEY": "mine", "PASSWORD": "p"})
    assert own["definition"] == one["id"]
    answer = platform.ask("POST", f"jobs/{own['id']}/clone", {}, who="ben")
    assert platform.get(f"jobs/{answer.json()['id']}/spec", who="ben")["environment"] == {"KEY": "k"}
    made = clone("ann", program=["train.py", "--other"])
    assert {name: made[name] for name in origin} == origin | {"definition": None}
    platform.store.accounts.create("eve", Role.USER, ADMIN, NOW)
    platform.secrets["eve"] = platform.store.tokens.create("eve", "test", ADMIN, NOW, expires_at=NOW + 1e7).secret
    # Who sees it through the open queue alone has neither its variables nor its code.
    made = clone("eve", directory="/mine")
    assert {name: made[name] for name in origin} == dict.fromkeys(origin) | {"parent": run["id"]}
    assert platform.get(f"jobs/{made['id']}/spec", who="eve")["environment"] == {}
    check_problem(platform.ask("POST", f"jobs/{run['id']}/clone", {}, who="eve"), 403, "forbidden")


def test_a_plan_changes_nothing(platform: Platform, digits: Any) -> None:
    platform.lead(2)
    one = define(platform, digits, distributed="elastic", max_nodes=4)
    plan = platform.ask("POST", f"definitions/{one['id']}/plan", who="ben").json()
    assert (plan["starts"], plan["slots_now"], plan["effects"]) == ("now", 2, [])
    assert platform.get("jobs")["items"] == []


def test_a_relative_data_path_is_below_the_directory_of_all_data(platform: Platform, digits: Any) -> None:
    one = define(platform, digits)
    path = f"projects/{digits['id']}/experiments"
    body = {"name": "First", "definitions": [one["id"]], "data": "pytorch-mnist"}
    platform.loop.starts_drivers = True
    lease = platform.store.loop.take_lease("the-loop", platform.now, 10.0)
    assert lease is not None
    data = platform.settings.wmla_data_path / "pytorch-mnist"
    refused = check_problem(platform.ask("POST", path, body), 422, "invalid", f"no data directory '{data}'")
    assert [error["field"] for error in refused["errors"]] == ["body.data"]
    assert platform.get(path)["items"] == [], "no experiment is left behind"
    submission = {"name": "mnist", "program": ["train.py"], "directory": "/", "data": "pytorch-mnist"}
    check_problem(platform.ask("POST", "plan", submission), 422, "invalid", f"no data directory '{data}'")

    data.mkdir(parents=True)
    made = make(platform, path, **body)
    assert made["data"] == "pytorch-mnist"
    (job,) = platform.ask("POST", f"experiments/{made['id']}/runs").json()["items"]
    assert platform.get(f"jobs/{job['id']}/spec")["data"] == str(data)


def test_a_definition_names_its_python_and_each_run_has_the_present_path(
    new_platform: NewPlatform, tmp_path: Path
) -> None:
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch(mode=0o755)
    platform = new_platform(interpreters=(f"torch28={tmp_path / 'env'}",))
    assert platform.get("interpreters")["items"] == [{"name": "torch28", "path": str(tmp_path / "env")}]
    project = make(platform, "projects", **PROJECT)
    one = define(platform, project, python="torch28")
    assert one["python"] == "torch28"
    experiment = make(platform, f"projects/{project['id']}/experiments", name="First", definitions=[one["id"]])
    platform.loop.starts_drivers = True
    platform.lead()
    (job,) = platform.ask("POST", f"experiments/{experiment['id']}/runs").json()["items"]
    assert platform.get(f"jobs/{job['id']}/spec")["python"] == str(tmp_path / "env")

    submission = {"name": "mnist", "program": ["train.py"], "directory": str(tmp_path)}
    (tmp_path / "train.py").touch()
    for given, told in (
        ("torch29", "There is no Python environment 'torch29'. .* Those are torch28"),
        (str(tmp_path / "nowhere"), "there is no such file or folder on this machine"),
        (str(tmp_path), "the folder has no bin/python"),
    ):
        problem = check_problem(platform.ask("POST", "jobs", submission | {"python": given}), 422, "invalid")
        assert re.search(told, problem["detail"]), problem["detail"]
        assert [error["field"] for error in problem["errors"]] == ["body.python"]
    python.chmod(0o644)
    problem = platform.ask("POST", "jobs", submission | {"python": "torch28"})
    check_problem(problem, 422, "invalid", "it is not an executable file")


def test_frameworks_are_listed(platform: Platform) -> None:
    found = {one["name"]: one["distributed"] for one in platform.get("frameworks", who="eye")["items"]}
    assert found == {"legato": ["single", "static", "elastic"], "command": ["single", "static"]}
