"""Routes of applications in the scheduler, its engine and the Conductor; other routes, and unsupported ones."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any

import pytest
from tests.unit.compat.wmla.rest.asking import CONDUCTOR, DLI, MNIST, Console, check_error
from tests.unit.compat.wmla.rest.test_executions import write_logs

from legato.api.jobs import Progress
from legato.compat.wmla.names import driver_id, executor_id
from legato.compat.wmla.rest.plugin import UNSUPPORTED
from legato.control.stages import Stage

ENGINE = "/scheduler/engine/applications"


def tell(console: Console, job: str, *events: tuple[str, int | None]) -> None:
    """Add events of a job's driver."""
    file = console.platform.directory(job) / "events.jsonl"
    seq = len(file.read_text().splitlines()) if file.exists() else 0
    with file.open("a") as lines:
        for number, (kind, worker) in enumerate(events, seq + 1):
            event = {"seq": number, "time": 1.0, "kind": kind, "level": "info", "reason": "so"}
            lines.write(json.dumps(event | ({} if worker is None else {"worker": worker})) + "\n")


def executors(told: Any, state: str | None = None) -> list[str]:
    return [one["id"] for one in told["executors"] if state in (None, one["state"])]


def names(job: str, numbers: Iterable[int]) -> list[str]:
    return [executor_id(job, number) for number in numbers]


# ---------------------------------------------------------------- the scheduler


def test_an_application_shows_its_present_executors(console: Console) -> None:
    job = console.submit()["id"]

    def look() -> Any:
        (found,) = console.get("/scheduler/applications", params={"applicationid": job})
        return found

    assert (look()["slots"], look()["demandslots"], look()["executors"]) == (0, 4, [])
    console.start(job)
    tell(console, job, ("started", 0), ("joining", 0), ("joined", 0))
    assert (look()["slots"], executors(look())) == (1, names(job, [1]))
    console.platform.write(job, granted=("node/1", "node/2"), reason="grows")
    tell(console, job, ("joined", 1), ("joined", 2), ("saved", None))
    assert (look()["slots"], executors(look(), "RUNNING")) == (3, names(job, [1, 2, 3]))
    tell(console, job, ("left", 2), ("died", 1), ("joined", 3))
    console.platform.write(job, closed=("node/2",), reason="shrinks")
    assert look()["slots"] == 2
    assert executors(look(), "RUNNING") == names(job, [1, 4])
    assert executors(look()) == names(job, [1, 2, 3, 4])
    console.platform.end(job)
    assert executors(look(), "RUNNING") == []
    assert executors(look()) == names(job, [1, 2, 3, 4])
    assert (look()["state"], look()["slots"], look()["demandslots"]) == ("FINISHED", 0, 0)
    for name in (f"driver-{job}", job):
        assert console.get(f"/scheduler/applications/{name}")["driver"]["id"] == driver_id(job)
    check_error(console.ask("GET", "/scheduler/applications", params={"applicationid": "x"}), 404)


def test_workers_whose_end_was_not_recorded_are_not_shown_as_present(console: Console) -> None:
    job = console.submit()["id"]
    console.start(job)
    tell(console, job, ("joined", 0), ("joined", 1), ("joined", 7))
    assert executors(console.get(f"/scheduler/applications/{job}"), "RUNNING") == names(job, [8])


def test_the_list_of_applications_with_its_query(console: Console) -> None:
    console.add_queue("other")
    first = console.submit(MNIST + " --appName b-run")["id"]
    second = console.submit(MNIST + " --appName a-run --ig other --msd-priority 9000")["id"]
    third = console.submit(who="ben")["id"]
    console.start(first)

    def ids(path: str = "/scheduler/applications", field: str = "applicationid", **query: Any) -> list[str]:
        return [one[field] for one in console.get(path, params=query)]

    assert ids() == [third, second, first]
    assert ids(state="RUNNING") == [first]
    assert ids(sigId="other") == [second]
    assert ids(applicationname="a-run") == [second]
    assert ids(search="run") == [second, first]
    assert ids(search="ben") == [third]
    assert ids(sort="applicationname") == [third, second, first]
    assert ids(sort="priority", order="desc")[0] == second
    assert ids(start=1, length=1) == [second]
    check_error(console.ask("GET", "/scheduler/applications", params={"start": 3}), 416)
    check_error(console.ask("GET", "/scheduler/applications", params={"sort": "driver"}), 400)
    query = {"start": "0", "length": "10000", "sort": "-submit_time", "state": "SUBMITTED,RUNNING,UNKNOWN"}
    assert sorted(ids(ENGINE, "id", **query)) == sorted([first, second, third])
    assert ids(ENGINE, "id", state="FINISHED,KILLED,ERROR") == []
    told = console.get(f"{ENGINE}/{second}")
    assert {"is_packing", "pack_id", "used_gpu", "task0_resreq", "task12n_resreq", "task12n_num", "kernels"} <= set(
        told
    )
    assert (told["consumer"], told["priority"], told["submit_user"], told["state"]) == (
        "other",
        9000,
        "ann",
        "SUBMITTED",
    )
    assert console.get(f"{ENGINE}/{first}")["used_gpu"] == 1
    assert isinstance(told["submit_time"], int)
    assert told["end_time"] is None


def test_logs_of_the_driver_and_of_executors(console: Console) -> None:
    job = console.submit()["id"]
    assert console.ask("GET", f"/scheduler/applications/{job}/driver/logs/stdout").text == ""
    write_logs(console, job)

    def read(what: str, **query: Any) -> str:
        answer = console.ask("GET", f"/scheduler/applications/{job}/{what}", params=query)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"].startswith("text/plain")
        return answer.text

    assert read("driver/logs/stdout") == "out of driver\nlast\n"
    assert read("driver/logs/stdout", lastlines=1) == "last\n"
    assert read("driver/logs/stdout", lastlines=0) == ""
    assert read("driver/logs/stderr") == "err of driver\n"
    assert read("driver/logs/launcherlog") == "started\n"
    assert read("executor/2/logs/stdout") == "out of two\nlast\n"
    assert read("executor/1/logs/launcherlog") == "\x1b[1mall of worker 0\n"
    # The program's output is only in its own logs.
    whole = "NCCL WARN\nout of one\nlast\n\nerr of one\nlast\n\rSegmentation fault"
    console.write(job, "logs/worker-0.log", whole)
    assert read("executor/1/logs/launcherlog") == "NCCL WARN\n\nlast\n\rSegmentation fault"
    assert read("executor/1/logs/launcherlog", lastlines=1) == "\rSegmentation fault"
    console.write(job, "logs/worker-0.log", "one\n10 %\r20 %\fnew\x0b page\x85\u2028end\ntwo\n")
    assert read("executor/1/logs/launcherlog", lastlines=2) == "10 %\r20 %\fnew\x0b page\x85\u2028end\ntwo\n"
    console.write(job, "logs/worker-0.log", whole)
    assert console.get(f"/execs/{job}/log", params={"logType": "outerrlog"}) == whole
    for what in ("executor/0/logs/stdout", "executor/9/logs/stdout", "driver/logs/x", "executor/x/logs/stdout"):
        check_error(console.ask("GET", f"/scheduler/applications/{job}/{what}"), 404)
    check_error(console.ask("GET", f"/scheduler/applications/{job}/driver/logs/stdout", who="eye"), 403)


def test_stopping_an_application(console: Console) -> None:
    job = console.submit()["id"]
    assert console.ask("PUT", f"/scheduler/applications/{job}/stop").status_code == 204
    assert console.get(f"{ENGINE}/{job}")["state"] == "KILLED"


# ---------------------------------------------------------------- the Conductor


def test_a_pending_application_shows_no_slots(console: Console) -> None:
    record = console.submit(MNIST)
    job, path = record["id"], "/instances/default/applications"
    console.platform.lead(4)

    def counts() -> list[Any]:
        application = console.get(f"/scheduler/applications/{job}")
        (conductor,) = console.get(path, base=CONDUCTOR)
        engine = console.get(f"{ENGINE}/{job}")
        (plain,) = console.get("/scheduler/kubernetesobjects", params={"type": "paralleljob"})["items"]
        assert application["slots"] == engine["used_gpu"] == conductor["slots"] == plain["status"]["running"]
        return [engine["state"], conductor["gpuslots"], application["slots"]]

    assert counts() == ["PENDING_CRD_SCHEDULER", 0, 0]
    console.platform.write(job, stage=Stage.STARTING, granted=("node/0", "node/1"), reason="starts")
    assert console.platform.get(f"jobs/{job}")["num_slots"] == 2
    assert counts() == ["PENDING_CRD_SCHEDULER", 0, 0]
    console.platform.write(job, stage=Stage.RUNNING, reason="its workers train")
    assert counts() == ["RUNNING", 2, 2]
    console.platform.ask("POST", f"jobs/{job}/pause")
    assert counts() == ["RUNNING", 2, 2]


def test_gpuslots_follow_the_job(console: Console) -> None:
    console.add_queue("wml-ig-edt")
    record = console.submit(MNIST, sigName="wml-ig-edt")
    job, path = record["id"], f"/instances/{record['sigId']}/applications"

    def running() -> list[Any]:
        found: list[Any] = console.get(path, base=CONDUCTOR, params={"state": "RUNNING"})
        return found

    assert running() == []
    console.start(job)
    tell(console, job, ("joined", 0))
    (found,) = running()
    assert (found["gpuslots"], found["driver"]) == (
        1,
        found["driver"] | {"id": record["submissionId"], "state": "RUNNING"},
    )
    assert {"apprunduration", "gpumemused", "gpudevutil"} <= set(found)
    assert found["gpumemused"] == found["gpudevutil"] == {"total": None}, "unknown, not 0"
    console.platform.write(job, granted=("node/1", "node/2", "node/3"), reason="grows")
    tell(console, job, ("joined", 1), ("joined", 2), ("joined", 3))
    assert (running()[0]["gpuslots"], executors(running()[0])) == (4, names(job, [1, 2, 3, 4]))
    console.platform.write(job, closed=("node/2", "node/3"), reason="shrinks")
    tell(console, job, ("left", 2), ("left", 3))
    assert (running()[0]["gpuslots"], executors(running()[0])) == (2, names(job, [1, 2]))
    console.platform.now += 90
    assert running()[0]["apprunduration"] >= 0
    console.platform.end(job)
    assert running() == []
    assert console.get(path, base=CONDUCTOR)[0]["state"] == "FINISHED"


def test_what_the_gpus_of_a_job_do_now(console: Console) -> None:
    """As its driver has last measured it, on the GPUs that the job has now: also in a job that runs for days."""
    job = console.submit()["id"]
    console.start(job)
    tell(console, job, ("joined", 0))

    def read() -> tuple[Any, Any]:
        (found,) = console.get("/instances/default/applications", base=CONDUCTOR)
        return found["gpumemused"]["total"], found["gpudevutil"]["total"]

    def told(age_s: float, **measured: Any) -> tuple[Any, Any]:
        console.platform.write(job, progress=Progress(time=time.time() - age_s, **measured), reason="trains")
        return read()

    assert told(5, gpu_memory_bytes=3 * 2**29, gpu_busy=0.5) == (1536, 50.0)
    assert told(5, gpu_memory_bytes=0, gpu_busy=0.0) == (0, 0.0)
    assert told(55, gpu_memory_bytes=3 * 2**29) == (1536, None)
    assert told(65, gpu_memory_bytes=3 * 2**29, gpu_busy=0.5) == (None, None), "its driver has been away for a minute"
    assert told(5) == (None, None)
    told(5, gpu_memory_bytes=3 * 2**29, gpu_busy=0.5)
    console.platform.end(job)
    assert read() == (None, None)


def test_logs_to_download(console: Console) -> None:
    job = console.submit()["id"]
    write_logs(console, job)
    path = "/instances/default/applications"
    answer = console.ask("GET", f"{path}/{driver_id(job)}/logs/stdout/download", base=CONDUCTOR)
    assert answer.content == b"out of driver\nlast\n"
    assert answer.headers["content-type"] == "application/octet-stream"
    for executor in (executor_id(job, 2), "2"):
        answer = console.ask("GET", f"{path}/{driver_id(job)}/{executor}/logs/stderr/download", base=CONDUCTOR)
        assert answer.content == b"err of two\n"
    for wrong in (f"{path}/{job}/x/logs/stdout/download", f"/instances/other/applications/{job}/logs/stdout/download"):
        check_error(console.ask("GET", wrong, base=CONDUCTOR), 404)


def test_instance_groups_are_queues(console: Console) -> None:
    console.add_queue("wml-ig-edt")
    told = console.get("/instances", base=CONDUCTOR)
    assert {one["name"]: one["state"] for one in told} == {"default": "STARTED", "wml-ig-edt": "STARTED"}
    assert [one["id"] for one in console.get("/instances?id=default&fields=state", base=CONDUCTOR)] == ["default"]
    assert console.get("/instances/default", base=CONDUCTOR)["name"] == "default"
    for path in ("/instances/x", "/instances/x/applications"):
        check_error(console.ask("GET", path, base=CONDUCTOR), 404, "Instance group name x not found.")


# ---------------------------------------------------------------- other routes


def test_settings_and_status(console: Console) -> None:
    assert console.get("/conf")["DLI_DATA_FS"] == str(console.platform.home / "data")
    assert console.get("/status")["status"] == "OK"
    assert console.get("/scheduler/instances")[0]["state"] == "RUNNING"


def test_plans_are_queues(console: Console) -> None:
    tree = console.get("/resplans/resplantree")
    assert [one["name"] for one in tree["children"]] == ["default"]
    assert console.get("/resplans/resplan") == tree
    assert console.get("/resplans/resplan/default")["shareRatio"] == 1
    check_error(console.ask("GET", "/resplans/resplan/x"), 404)
    path = "/resplans/resplan/night"
    console.add_queue("night")
    check_error(console.ask("DELETE", path), 403, "only admins")
    job = console.submit(MNIST + " --ig night")["id"]
    check_error(console.ask("DELETE", path, who="admin"), 409, "1 job in it has not ended")
    assert console.get("/resplans/resplan/night")["pending"] == 1
    console.add_queue("other")
    console.platform.ask("PATCH", f"jobs/{job}", {"queue": "other"})
    answer = console.ask("DELETE", path, who="admin")
    assert (answer.status_code, answer.content) == (204, b""), answer.text
    check_error(console.ask("DELETE", path, who="admin"), 404, "no resource plan night")
    assert [one["name"] for one in console.get("/resplans/resplantree")["children"]] == ["default", "other"]


def test_jobs_and_slots_as_objects(console: Console) -> None:
    job = console.submit()["id"]
    console.submit()
    console.start(job, "node/0", "node/1")

    def names_of(**query: str) -> list[str]:
        return [one["metadata"]["name"] for one in console.get("/scheduler/kubernetesobjects", params=query)["items"]]

    assert names_of(type="pod") == [f"{job}-node-0", f"{job}-node-1"]
    assert job in names_of(type="paralleljob")
    assert len(names_of(type="paralleljob")) == 2
    assert names_of(type="paralleljob", name=job) == [job]
    check_error(console.ask("GET", "/scheduler/kubernetesobjects?type=pod&name=x"), 404)
    check_error(console.ask("GET", "/scheduler/kubernetesobjects"), 400)


@pytest.mark.parametrize("beginning", list(UNSUPPORTED))
def test_unsupported_paths_say_what_to_use(shared: Console, beginning: str) -> None:
    for method in ("GET", "POST", "PUT", "DELETE"):
        for path in (beginning, f"{beginning}/x/y"):
            told = check_error(shared.ask(method, path, base="", who=None), 501)
            assert len(told.removesuffix(".").split(". ")) == 2, "what is so, and what to do"


def test_every_user_can_get_the_command(shared: Console) -> None:
    answer = shared.ask("GET", "/ui/tools/dlicmd.py", base="", who=None)
    assert answer.status_code == 200
    compile(answer.text, "dlicmd.py", "exec")
    assert DLI in answer.text


def test_an_internal_error_is_reported_as_one(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    from legato.compat.wmla.rest import executions

    def fall(*_: Any) -> None:
        raise RuntimeError("secret detail")

    job = console.submit()["id"]
    monkeypatch.setattr(executions, "describe_execution", fall)
    told = check_error(console.ask("GET", f"/execs/{job}"), 500, "Its log has the details")
    assert "secret" not in told
