"""For operators: the audit log, the settings, the open pages and their metrics, and the deletion of old data."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import io
import os
import re
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest
import structlog
from tests.unit.server.platform import API, NOW, Platform, check_problem

from legato.control.drivers.drivers import DriverReport, DriverState
from legato.control.records import Lease
from legato.control.settings import Settings
from legato.core.errors import FencedOut, StoreError
from legato.server import retention
from legato.server.retention import delete_directory, delete_old_data
from legato.server.routes.operating import hide_password

DAY_S = 86400.0


def test_the_audit_log_comes_in_pages(platform: Platform) -> None:
    for number in range(5):
        platform.submit(name=f"job-{number}")
    seen: list[int] = []
    after: str | None = ""
    while after is not None:
        page = platform.get(f"audit?limit=3{after}", who="admin")
        seen += [line["id"] for line in page["items"]]
        after = None if page["after"] is None else f"&after={page['after']}"
    assert seen == sorted(seen, reverse=True)
    assert len(seen) == len(platform.get("audit?limit=1000", who="admin")["items"])
    for who in ("ann", "eye"):
        check_problem(platform.ask("GET", "audit", who=who), 403, "forbidden", "only admins may")
    for odd in ("limit=0", "limit=1001", "after=x", "after=-1"):
        check_problem(platform.ask("GET", f"audit?{odd}", who="admin"), 422, "invalid")


def test_the_settings_are_shown_without_passwords(platform: Platform) -> None:
    told = {one["name"]: one for one in platform.get("config", who="admin")["items"]}
    assert set(told) == set(Settings.model_fields)
    assert told["slots"]["value"] == 2
    assert told["policy"]["value"] == "fair"
    assert told["home"]["value"] == str(platform.home)
    assert told["allowed_hosts"]["value"] == ["localhost", "127.0.0.1", "[::1]"]
    assert all(one["meaning"] for one in told.values())
    for who in ("ann", "eye"):
        check_problem(platform.ask("GET", "config", who=who), 403, "forbidden")
    changed = platform.settings.model_copy(update={"database_url": "postgresql://ann:geheim@db/legato"})
    object.__setattr__(platform.services, "settings", changed)
    answer = platform.ask("GET", "config", who="admin")
    assert "geheim" not in answer.text and "ann:***@db" in answer.text


def test_passwords_in_all_places() -> None:
    for url in ("postgresql://a:geheim@h/n", "postgresql://h/n?user=a&password=geheim", "postgresql://a:ge@heim@h/n"):
        assert "heim" not in hide_password(url)
    assert hide_password("sqlite:////var/lib/legato.db") == "sqlite:////var/lib/legato.db"
    assert (
        hide_password("postgresql://legato@h:5432/n?sslmode=require") == "postgresql://legato@h:5432/n?sslmode=require"
    )


# ---------------------------------------------------------------- open pages


def test_the_server_reports_its_health_and_readiness(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    assert platform.get("/healthz", who=None) == {"status": "ok"}
    late = {"ready": False, "store": True, "disk": True, "loop": "late"}
    assert platform.get("/readyz", who=None, want=503) == late, "no server has decided yet"
    platform.lead()
    assert platform.get("/readyz", who=None) == {"ready": True, "store": True, "disk": True, "loop": "leading"}
    platform.loop.owner = "another"
    assert platform.get("/readyz", who=None)["loop"] == "following"
    platform.now += 11
    assert platform.get("/readyz", who=None, want=503) == late, "no server has decided for long"

    def fail() -> None:
        raise StoreError("away")

    monkeypatch.setattr(platform.store.loop, "read_lease", fail)
    assert platform.get("/readyz", who=None, want=503)["store"] is False
    assert platform.get("/healthz", who=None) == {"status": "ok"}


def test_a_full_disk_is_reported_at_once(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    platform.lead()
    content = make_archive()
    path = f"{API}/code/{hashlib.sha256(content).hexdigest()}"
    with monkeypatch.context() as patch:
        for name in ("TemporaryFile", "mkdtemp"):
            patch.setattr(tempfile, name, fail)
        told = {"ready": False, "store": True, "disk": False, "loop": "leading"}
        assert platform.get("/readyz", who=None, want=503) == told
        answer = platform.http.put(path, content=content, headers=platform.headers("ann"))
        check_problem(answer, 507, "no-space", "No space left on device. Nothing was stored")
        assert answer.headers["retry-after"] == "30"
    assert platform.http.put(path, content=content, headers=platform.headers("ann")).status_code == 201


def test_a_store_that_takes_no_writes_is_reported_at_once(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> NoReturn:
        raise StoreError("Cannot use the store: database or disk is full.")

    platform.lead()
    monkeypatch.setattr(platform.store.events, "try_to_write", fail)
    told = {"ready": False, "store": False, "disk": True, "loop": "leading"}
    assert platform.get("/readyz", who=None, want=503) == told


def make_archive() -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as packed:
        packed.writestr("main.py", "print()")
    return raw.getvalue()


def test_a_loop_whose_rounds_all_fail_is_late(platform: Platform) -> None:
    platform.lead()
    platform.loop.stats.lead(platform.now)
    assert platform.get("/readyz", who=None)["loop"] == "leading"
    platform.loop.stats.end_round(platform.now, 0.1)
    platform.now += 11
    platform.lead()  # it continues to renew its lease
    platform.loop.stats.num_failed += 11
    assert platform.get("/readyz", who=None, want=503) == {"ready": False, "store": True, "disk": True, "loop": "late"}
    platform.loop.stats.end_round(platform.now, 0.3)
    assert platform.get("/readyz", who=None)["loop"] == "leading"
    platform.loop.stats.num_failed_calls += 2
    report = DriverReport(attempt=1, state=DriverState.GONE)
    platform.loop.stats.look([report, report, msgspec.structs.replace(report, state=DriverState.RUNNING)])
    text = platform.ask("GET", "/metrics", who=None).text
    for line in (
        'legato_rounds_total{outcome="done"} 2.0',
        'legato_rounds_total{outcome="failed"} 11.0',
        "legato_round_seconds_count 2.0",
        "legato_round_seconds_sum 0.4",
        "legato_last_round_time_seconds 1.800000011e+09",
        "legato_failed_calls_total 2.0",
        'legato_drivers{state="gone"} 2.0',
        'legato_drivers{state="silent"} 0.0',
        "legato_store_up 1.0",
        "legato_store_errors_total 0.0",
    ):
        assert line in text.splitlines(), text


def test_there_are_figures_while_the_store_is_away(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise StoreError("away")

    monkeypatch.setattr(platform.store.jobs, "count_by_stage", fail)
    platform.store._database.num_errors = 3
    text = platform.ask("GET", "/metrics", who=None).text
    assert "legato_store_up 0.0" in text and "legato_store_errors_total 3.0" in text
    assert "legato_rounds_total" in text and "legato_jobs" not in text


def test_the_version(platform: Platform) -> None:
    import legato

    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert platform.get("/version", who=None) == {"version": legato.__version__, "api": ["v1"], "python": python}


def test_metrics_name_no_user(platform: Platform) -> None:
    platform.lead()
    job = platform.submit(name="secret-name", max_workers=2)
    platform.start(job, "node/0")
    platform.get(f"jobs/{job}")
    platform.ask("GET", f"jobs/{job}/nothing")
    text = platform.ask("GET", "/metrics", who=None).text
    assert 'legato_jobs{stage="running"} 1.0' in text
    assert 'legato_jobs{stage="queued"} 0.0' in text
    assert 'legato_slots{state="held"} 1.0' in text and 'legato_slots{state="free"} 1.0' in text
    assert "legato_leads 1.0" in text
    assert 'legato_requests_total{method="GET",route="/api/v1/jobs/{job}",status="200"} 1.0' in text
    assert 'legato_requests_total{method="GET",route="none",status="404"} 1.0' in text
    for name in (job, "secret-name", "ann", "admin", "node/0"):
        assert name not in re.sub(r"^# .*$", "", text, flags=re.MULTILINE)


# ---------------------------------------------------------------- what is old


def test_old_data_is_deleted_with_its_files(new_platform: Callable[..., Platform]) -> None:
    from tests.unit.server.test_code import SHA256, put

    platform = new_platform(keep_jobs_days=10, keep_uploads_days=5)
    platform.lead()
    old, young = platform.submit(name="old"), platform.submit(name="young")
    put(platform)
    platform.start(old, "node/0")
    platform.end(old)
    for job in (old, young):
        platform.directory(job)
    platform.now += 11 * DAY_S
    delete_old_data(platform.services)
    assert platform.ask("GET", f"jobs/{old}").status_code == 200, "another one decides, or none"
    platform.lead()
    delete_old_data(platform.services)
    assert platform.ask("GET", f"jobs/{old}").status_code == 404
    assert platform.ask("GET", f"jobs/{young}").status_code == 200
    assert not (platform.home / "jobs" / old).exists() and (platform.home / "jobs" / young).exists()
    assert not (platform.home / "code" / SHA256).exists()
    assert platform.ask("HEAD", f"code/{SHA256}").status_code == 404


def test_the_lease_of_an_earlier_life_is_not_used_for_cleaning(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that was killed and started again takes the lease while it begins to clean."""
    store = platform.store.loop
    store.take_lease("an-earlier-life", platform.now, 10.0)
    store.end_lease(platform.now)
    read_lease = store.read_lease

    def read_and_lose() -> Lease | None:
        found = read_lease()
        platform.lead()
        return found

    monkeypatch.setattr(store, "read_lease", read_and_lose)
    delete_old_data(platform.services)
    delete_old_data(platform.services)


def test_another_server_that_decides_is_no_trouble(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    endings: list[BaseException] = [asyncio.CancelledError(), FencedOut("lost")]

    def fail(_services: object) -> None:
        raise endings.pop()

    monkeypatch.setattr(retention, "delete_old_data", fail)
    with structlog.testing.capture_logs() as lines, pytest.raises(asyncio.CancelledError):
        asyncio.run(retention.run_retention(platform.services, every_s=0))
    assert [line["log_level"] for line in lines] == ["info"]


def test_data_without_an_age_limit_is_kept(new_platform: Callable[..., Platform]) -> None:
    platform = new_platform(keep_jobs_days=None, keep_uploads_days=None)
    platform.lead()
    job = platform.submit()
    platform.start(job, "node/0")
    platform.end(job)
    platform.now += 10_000 * DAY_S
    platform.lead()
    delete_old_data(platform.services)
    assert platform.store.jobs.get(job).id == job


def test_partial_uploads_of_a_crash_are_deleted(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    code = platform.home / "code"
    for name, age_s in ((".incoming-old", 2 * DAY_S), (".incoming-new", 10.0)):
        (code / name).mkdir()
        os.utime(code / name, (NOW - age_s, NOW - age_s))
    delete_old_data(platform.services)
    assert [path.name for path in code.glob(".incoming-*")] == [".incoming-new"]


def test_housekeeping_continues_after_any_error(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    troubles: list[Exception] = [StoreError("away"), FencedOut("lost"), OSError(5, "disk"), RuntimeError("odd")]

    def fail(_services: object) -> None:
        if not troubles:
            raise asyncio.CancelledError
        raise troubles.pop()

    monkeypatch.setattr(retention, "delete_old_data", fail)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(retention.run_retention(platform.services, every_s=0))
    assert troubles == []


def test_leftover_processes_are_ended_where_old_data_cannot_be_removed(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_services: object) -> None:
        raise OSError(5, "disk")

    def end(_services: object) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(retention, "delete_old_data", fail)
    monkeypatch.setattr(retention, "kill_leftover_processes", end)
    with structlog.testing.capture_logs() as lines, pytest.raises(asyncio.CancelledError):
        asyncio.run(retention.run_retention(platform.services, every_s=0))
    assert [line["event"] for line in lines] == ["old data of jobs could not be removed; the server tries again"]


def test_a_job_with_deeply_nested_folders_is_deleted(tmp_path: Path) -> None:
    job = tmp_path / "j-0000000001"
    job.mkdir()
    at = os.open(job, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=at)
        inner = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(at)
    delete_directory(job)
    assert not job.exists()
