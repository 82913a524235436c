"""Projects, training definitions, experiments and their runs, over REST."""

from __future__ import annotations

import hashlib
import io
import zipfile
from typing import Any

import pytest
from tests.unit.server.platform import NOW, Platform, check_problem

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
