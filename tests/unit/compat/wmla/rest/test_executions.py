"""Routes of executions after their submission: list, record, stop, delete, log, result, frameworks."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.unit.compat.wmla.rest.asking import MNIST, Console, check_error

from legato.compat.wmla.frameworks import FRAMEWORKS
from legato.compat.wmla.names import ELOG_FILE, ERR_FILE, OUT_FILE, driver_id, executor_id
from legato.compat.wmla.rest import results
from legato.compat.wmla.rest.platform import Platform
from legato.compat.wmla.rest.results import ResultFile, count_bytes
from legato.control.stages import Stage

ELOG = "[2026-01-01 00:00:00] Train,\tTimestamp: 1,\tGlobal steps: 1,\tIteration: 1,\tLoss: 0.5,\tAccuracy: 0.25\n"


def states(console: Console, **query: Any) -> list[tuple[str, str]]:
    return [(record["id"], record["state"]) for record in console.get("/execs", params=query)]


# ---------------------------------------------------------------- list and record


def test_the_list_with_its_query(console: Console) -> None:
    ids = [console.submit()["id"] for _ in range(4)]
    console.start(ids[0])
    console.platform.end(ids[0])
    console.start(ids[1], "node/1")
    newest = sorted(ids, reverse=True)
    assert [one for one, _ in states(console)] == newest
    assert [one for one, _ in states(console, sort_by="id:asc")] == sorted(ids)
    assert [one for one, _ in states(console, limit=2)] == newest[:2]
    assert [one for one, _ in states(console, limit=2, sort_by="id:asc")] == sorted(ids)[:2]
    assert states(console, state="FINISHED") == [(ids[0], "FINISHED")]
    assert states(console, state="RUNNING,FINISHED") == [(ids[1], "RUNNING"), (ids[0], "FINISHED")]
    assert len(states(console, state="PENDING_CRD_SCHEDULER")) == 2
    assert states(console, state="RECOVERING") == []
    assert [state for _, state in states(console, sort_by="state")] == sorted(state for _, state in states(console))
    for query in ({"state": "DONE"}, {"limit": "x"}, {"sort_by": "nothing"}, {"sort_by": "id:up"}):
        check_error(console.ask("GET", "/execs", params=query), 400)


def test_jobs_of_other_interfaces_are_not_listed(console: Console) -> None:
    other = console.platform.submit()
    mine = console.submit()["id"]
    assert [record["id"] for record in console.get("/execs")] == [mine]
    assert console.get(f"/execs/{other}")["framework"] == ""


def test_users_list_their_own_executions_and_admins_all(console: Console) -> None:
    mine, other = console.submit()["id"], console.submit(who="ben")["id"]
    assert [one for one, _ in states(console)] == [mine]
    assert [record["id"] for record in console.get("/execs", who="ben", params={"sort_by": "state"})] == [other]
    for who in ("admin", "eye"):
        assert {record["id"] for record in console.get("/execs", who=who)} == {mine, other}
    # A user also gets other jobs that the user may see, by name and among the applications.
    assert console.get(f"/execs/{other}")["creator"] == "ben"
    assert len(console.get("/scheduler/applications")) == 2


def test_an_execution_that_a_user_may_not_see_does_not_exist(console: Console) -> None:
    console.add_queue("secret", is_open=False, members=("ann",))
    record = console.submit(MNIST + " --ig secret")
    assert console.get("/execs", who="ben") == []
    for name in (record["id"], "j-0000000000", "no such", "..%2f", "a%2Fb", "\u00e4", "x" * 300):
        check_error(console.ask("GET", f"/execs/{name}", who="ben"), 404)
    check_error(console.ask("GET", "/execs/j-0000000000", who="ben"), 404, "'dlicmd.py --exec-get-all' list yours")
    assert console.get(f"/execs/{record['id']}", who="admin")["creator"] == "ann"


def test_all_ids_of_an_execution_name_it(console: Console) -> None:
    record = console.submit()
    for name in (record["id"], record["appId"], record["submissionId"], executor_id(record["id"], 2), "mnist"):
        assert console.get(f"/execs/{name}")["id"] == record["id"]
        assert console.get(f"/scheduler/applications/{name}")["applicationid"] == record["id"]


def test_states_follow_the_job(console: Console) -> None:
    job = console.submit()["id"]

    def state() -> str:
        found: str = console.get(f"/execs/{job}")["state"]
        return found

    assert state() == "PENDING_CRD_SCHEDULER"
    console.start(job)
    assert state() == "RUNNING"
    console.platform.ask("POST", f"jobs/{job}/pause")
    assert state() == "RUNNING"
    console.platform.write(job, stage=Stage.PAUSED, closed=("node/0",), reason="paused")
    assert state() == "PENDING_CRD_SCHEDULER"
    console.platform.ask("POST", f"jobs/{job}/resume")
    console.start(job)
    console.platform.end(job, Stage.FAILED)
    assert state() == "ERROR"
    assert console.get(f"/execs/{job}")["reason"] == "it ended"


# ---------------------------------------------------------------- stop and delete


def test_stop(console: Console) -> None:
    job = console.submit()["id"]
    console.start(job)
    answer = console.ask("POST", f"/execs/{job}/stop")
    assert (answer.status_code, answer.content) == (204, b"")
    assert console.platform.get(f"jobs/{job}")["stage"] == "stopping"
    assert not console.platform.get(f"jobs/{job}")["stop_now"]
    assert console.get(f"/execs/{job}")["state"] == "RUNNING"
    console.platform.end(job, Stage.STOPPED)
    assert console.get(f"/execs/{job}")["state"] == "KILLED"
    check_error(console.ask("POST", f"/execs/{job}/stop"), 409, "Cannot stop")
    waiting = console.submit()["id"]
    assert console.ask("POST", f"/execs/{waiting}/stop").status_code == 204
    assert console.get(f"/execs/{waiting}")["state"] == "KILLED"


def test_no_user_stops_or_deletes_the_jobs_of_others(console: Console) -> None:
    job = console.submit()["id"]
    for who in ("ben", "eye"):
        assert console.ask("POST", f"/execs/{job}/stop", who=who).status_code in (403, 404)
        assert console.ask("DELETE", f"/execs/{job}", who=who).status_code in (403, 404)
    assert console.ask("DELETE", "/execs", who="admin").status_code == 204
    assert console.get(f"/execs/{job}")["state"] == "PENDING_CRD_SCHEDULER"


def test_a_refusal_to_delete_speaks_of_deleting(console: Console) -> None:
    waiting, ended = (console.submit()["id"] for _ in range(2))
    console.start(ended)
    console.platform.end(ended)
    for job in (waiting, ended):
        for who in ("ben", "eye"):
            told = check_error(console.ask("DELETE", f"/execs/{job}", who=who), 403, "Cannot delete job 'mnist': ")
            assert "label" not in told and "stop" not in told
    check_error(console.ask("POST", f"/execs/{waiting}/stop", who="ben"), 403, "Cannot stop job 'mnist': it belongs to")


def test_delete(console: Console) -> None:
    running, ended, other = (console.submit()["id"] for _ in range(3))
    console.start(running)
    console.start(ended, "node/1")
    console.platform.end(ended)
    for job in (running, ended):
        assert console.ask("DELETE", f"/execs/{job}").status_code == 204
        check_error(console.ask("GET", f"/execs/{job}"), 404)
        check_error(console.ask("DELETE", f"/execs/{job}"), 404)
    assert [record["id"] for record in console.get("/execs")] == [other]
    assert [record["applicationid"] for record in console.get("/scheduler/applications")] == [other]
    found = console.platform.get(f"jobs/{running}")
    assert (found["stage"], found["stop_now"]) == ("stopping", True)
    assert console.platform.get(f"jobs/{ended}")["stage"] == "succeeded"
    console.submit(who="ben")
    assert console.ask("DELETE", "/execs").status_code == 204
    assert console.get("/execs") == []
    assert [record["creator"] for record in console.get("/execs", who="ben")] == ["ben"]


def test_deployment_is_not_supported(console: Console) -> None:
    job = console.submit()["id"]
    check_error(
        console.ask("POST", f"/execs/{job}/deploy", json={"name": "x"}), 501, "not supported. Download the result"
    )


# ---------------------------------------------------------------- logs


def write_logs(console: Console, job: str) -> None:
    for process, word in ((driver_id(job), "driver"), (executor_id(job, 1), "one"), (executor_id(job, 2), "two")):
        folder = f"work/log/{process}.node1.example.org"
        console.write(job, f"{folder}/{OUT_FILE}", f"out of {word}\nlast\n")
        console.write(job, f"{folder}/{ERR_FILE}", f"err of {word}\n")
    console.write(job, f"work/log/{driver_id(job)}.node1.example.org/{ELOG_FILE}", ELOG)
    console.write(job, "logs/worker-0.log", "\x1b[1mall of worker 0\n")
    console.write(job, "driver.log", "started\n")


def test_the_default_log_is_that_of_the_logger_and_nothing_else(console: Console) -> None:
    job = console.submit()["id"]
    assert console.get(f"/execs/{job}/log") == ""
    write_logs(console, job)
    assert console.get(f"/execs/{job}/log") == ELOG
    # Notebooks read the log as a table.
    assert console.get(f"/execs/{job}/log").replace(":", ",").split(",")[8].strip() == "1"
    for wanted in ("application/json", "*/*", "application/json, text/plain"):
        assert console.ask("GET", f"/execs/{job}/log", headers={"Accept": wanted}).json() == ELOG
    for wanted in ("text/plain", "application/octet-stream"):
        answer = console.ask("GET", f"/execs/{job}/log", headers={"Accept": wanted})
        assert answer.text == ELOG
        assert answer.headers["content-type"].startswith("text/plain")


def test_the_other_logs_of_an_execution(console: Console) -> None:
    job = console.submit()["id"]
    write_logs(console, job)
    logs = {
        kind: console.get(f"/execs/{job}/log", params={"logType": kind}) for kind in ("outlog", "errlog", "outerrlog")
    }
    assert logs == {
        "outlog": "out of driver\nlast\n",
        "errlog": "err of driver\n",
        "outerrlog": "\x1b[1mall of worker 0\n",
    }
    check_error(console.ask("GET", f"/execs/{job}/log", params={"logType": "x"}), 400, "logType x")
    check_error(console.ask("GET", f"/execs/{job}/log", who="eye"), 403)


def test_a_framework_without_a_logger_shows_its_programs_output(console: Console) -> None:
    job = console.submit("--exec-start PyTorch --model-main main.py")["id"]
    console.write(job, f"work/log/{executor_id(job, 1)}.node1/{OUT_FILE}", "printed\n")
    console.write(job, f"work/log/{executor_id(job, 12)}.node1/{OUT_FILE}", "printed by another\n")
    assert console.get(f"/execs/{job}/log") == "printed\n"
    # The log of an elastic execution is only the file of its logger.
    other = console.submit()["id"]
    console.write(other, f"work/log/{executor_id(other, 1)}.node1/{OUT_FILE}", "printed\n")
    assert console.get(f"/execs/{other}/log") == ""


def test_a_program_that_never_began_shows_why(console: Console) -> None:
    job = console.submit()["id"]
    console.start(job)
    console.platform.end(job, Stage.FAILED)
    query = {"logType": "errlog"}
    assert console.get(f"/execs/{job}/log", params=query) == "it ended\n"
    console.write(job, "driver.log", "ERROR cannot start\n")
    assert console.get(f"/execs/{job}/log", params=query) == "ERROR cannot start\n"
    console.write(job, "logs/worker-0.log", "SyntaxError: invalid syntax\n")
    assert console.get(f"/execs/{job}/log", params=query) == "SyntaxError: invalid syntax\n"
    answer = console.ask("GET", f"/scheduler/applications/{job}/driver/logs/stderr")
    assert answer.text == "SyntaxError: invalid syntax\n"


def test_links_that_a_program_made_are_not_followed(console: Console) -> None:
    job = console.submit()["id"]
    secret = console.platform.home / "legato.db"
    folder = console.write(job, f"work/log/{driver_id(job)}.node1/x", "").parent
    (folder / ELOG_FILE).symlink_to(secret)
    assert console.get(f"/execs/{job}/log") == ""


def test_a_very_long_log_is_its_end(console: Console) -> None:
    job = console.submit()["id"]
    console.write(job, f"work/log/{driver_id(job)}.node1/{ELOG_FILE}", b"a\n" * 9_000_000 + b"end\n")
    text = console.ask("GET", f"/execs/{job}/log", headers={"Accept": "text/plain"}).text
    assert len(text) == 16 * 2**20
    assert text.endswith("a\nend\n")
    assert console.ask("GET", f"/execs/{job}/log?lastlines=1", headers={"Accept": "text/plain"}).text == "end\n"


# ---------------------------------------------------------------- result


def test_the_result_is_the_model_directory_as_a_zip_file(console: Console) -> None:
    job = console.submit()["id"]
    files = {
        "model/train/model_epoch_final.pth": os.urandom(9_000_000),
        "model/a b\u00e4.txt": b"",
        "model/n.bin": b"x" * 99,
    }
    for path, content in files.items():
        console.write(job, f"work/{path}", content)
    console.write(job, "work/other.txt", b"not of the model")
    answer = console.ask("GET", f"/execs/{job}/result", headers={"Accept": "application/octet-stream"})
    said = answer.headers["content-disposition"]
    # As WMLA's clients parse it.
    (name,) = [item.strip().removeprefix("filename=") for item in said.split(";") if "filename=" in item]
    assert name.startswith("dlpd-model")
    assert name.endswith(".zip")
    assert int(said.split("size=")[1]) == len(answer.content) == int(answer.headers["content-length"])
    with zipfile.ZipFile(io.BytesIO(answer.content)) as packed:
        assert packed.testzip() is None
        assert {one: packed.read(one) for one in packed.namelist()} == files


def test_the_head_of_a_result_reads_no_file(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    job = console.submit()["id"]
    console.write(job, "work/model/train/model_epoch_final.pth", b"weights")
    want = console.ask("GET", f"/execs/{job}/result").headers
    monkeypatch.setattr(results, "_send", lambda *_: pytest.fail("it is built"))
    answer = console.ask("HEAD", f"/execs/{job}/result")
    assert (answer.status_code, answer.content) == (200, b"")
    for name in ("Content-Disposition", "Content-Length", "Content-Type"):
        assert answer.headers[name] == want[name]


def test_a_result_that_is_missing_or_belongs_to_another_user(console: Console) -> None:
    job = console.submit()["id"]
    check_error(console.ask("GET", f"/execs/{job}/result"), 404, "has no result")
    console.write(job, "work/model/a", b"a")
    check_error(console.ask("GET", f"/execs/{job}/result", who="eye"), 403)


def test_the_length_is_known_also_with_zip64_fields(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    # As if a file of 100 bytes needed a zip64 field.
    monkeypatch.setattr(results, "LARGE_BYTES", 100)
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 100)
    job = console.submit()["id"]
    for number, size in enumerate((0, 100, 101, 5000, 10)):
        console.write(job, f"work/model/{number}", b"x" * size)
    answer = console.ask("GET", f"/execs/{job}/result")
    assert int(answer.headers["content-length"]) == len(answer.content)
    with zipfile.ZipFile(io.BytesIO(answer.content)) as packed:
        assert packed.testzip() is None
        assert len(packed.namelist()) == 5


def test_the_bounds_are_those_of_the_library() -> None:
    assert (results.LARGE_BYTES, results.MANY_FILES) == (zipfile.ZIP64_LIMIT, zipfile.ZIP_FILECOUNT_LIMIT)  # type: ignore[attr-defined]
    many = [ResultFile("", "n", 0, 0.0)] * 70_000
    # With more files there is another record at the end.
    assert count_bytes(many) - 70_000 * (50 + 24 + 46 + 2) - 22 == 76


def test_a_result_that_shrinks_meanwhile_is_broken_off(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    job = console.submit()["id"]
    file = console.write(job, "work/model/a", b"x" * 1000)
    from legato.compat.wmla.rest import executions

    real = executions.list_result

    async def list_and_shrink(*given: Any) -> Any:
        found = await real(*given)
        file.write_bytes(b"x")
        return found

    monkeypatch.setattr(executions, "list_result", list_and_shrink)
    with pytest.raises(Exception, match=r"incomplete|peer closed|disconnect"):
        console.ask("GET", f"/execs/{job}/result")


def test_a_result_is_whole_or_refused(console: Console) -> None:
    job = console.submit()["id"]
    file = console.write(job, "work/model/a", b"1")
    odd = file.with_name(os.fsdecode(b"\xff"))
    odd.touch()
    check_error(console.ask("GET", f"/execs/{job}/result"), 409, f"legato download {job} PATH")
    odd.unlink()
    assert console.ask("GET", f"/execs/{job}/result").status_code == 200


def test_a_result_is_never_made_of_two_versions_of_a_file(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    job = console.submit()["id"]
    file = console.write(job, "work/model/a", b"1" * 10)
    monkeypatch.setattr(results, "_CHUNK_BYTES", 4)
    assert len(console.ask("GET", f"/execs/{job}/result").content) > 10
    real = Platform.read_file

    async def read_and_replace(*given: Any) -> AsyncIterator[bytes]:
        async for chunk in real(*given):
            yield chunk
            console.write(job, "work/model/.new", b"2" * 10).replace(file)

    monkeypatch.setattr(Platform, "read_file", read_and_replace)
    with pytest.raises(Exception, match=r"incomplete|peer closed|disconnect"):
        console.ask("GET", f"/execs/{job}/result")


# ---------------------------------------------------------------- frameworks


def test_frameworks(console: Console) -> None:
    told = console.get("/execs/frameworks")
    assert [one["name"] for one in told] == list(FRAMEWORKS)
    assert {"desc", "description", "frameworkVersion", "execMode", "appName", "maxWorkers", "backend"} <= set(told[0])


def test_unknown_paths_and_methods_are_refused(console: Console) -> None:
    check_error(console.ask("GET", "/nothing"), 404, "no such path")
    check_error(console.ask("PATCH", "/execs"), 405, "does not support this method")


def test_files_of_tensorboard_are_among_the_results(console: Console) -> None:
    job = console.submit()["id"]
    console.write(job, "work/model/a", b"1")
    console.write(job, "work/log/driver-1.node/stdout", b"not in it")
    console.write(job, "work/log/driver-1.node/tb/events.out.tfevents.1", b"events")
    with zipfile.ZipFile(io.BytesIO(console.ask("GET", f"/execs/{job}/result").content)) as packed:
        assert packed.testzip() is None
        assert set(packed.namelist()) == {"model/a", "log/driver-1.node/tb/events.out.tfevents.1"}
