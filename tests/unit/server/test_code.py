"""Uploaded code: stored once by its SHA-256, within limits, without dangerous entries."""

from __future__ import annotations

import contextlib
import hashlib
import io
import socket
import tarfile
import threading
import zipfile
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from tests.unit.server.platform import API, LIMIT_S, NOW, Platform, check_problem

from legato.uploads import receiving
from legato.uploads.receiving import Arrivals

DAY_S = 86400.0


def pack(*entries: tuple[str, bytes], kind: bytes = tarfile.REGTYPE, link: str = "") -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as tar:
        for name, content in entries:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname, entry.size = kind, link, len(content)
            tar.addfile(entry, io.BytesIO(content))
    return raw.getvalue()


CODE = pack(("train.py", b"print()"), ("lib/a.py", b"a"))
SHA256 = hashlib.sha256(CODE).hexdigest()


def put(platform: Platform, content: Any = CODE, sha256: str | None = None, who: str = "ann") -> httpx.Response:
    sha256 = sha256 or hashlib.sha256(content).hexdigest()
    headers = platform.headers(who) | {"Content-Type": "application/octet-stream"}
    return platform.http.put(f"{API}/code/{sha256}", content=content, headers=headers)


def leftovers(platform: Platform) -> list[str]:
    return sorted(path.name for path in (platform.home / "code").iterdir() if path.name != ".lock")


def test_code_is_kept_once(platform: Platform) -> None:
    assert platform.ask("HEAD", f"code/{SHA256}").status_code == 404
    check_problem(platform.ask("GET", f"code/{SHA256}"), 404, "not-found", "Upload it first")
    answer = put(platform)
    want = {"sha256": SHA256, "num_bytes": len(CODE), "uploaded_by": "ann", "created_at": NOW, "used_at": NOW}
    assert (answer.status_code, answer.json()) == (201, want)
    assert (platform.home / "code" / SHA256 / "lib" / "a.py").read_bytes() == b"a"
    assert platform.ask("HEAD", f"code/{SHA256}").status_code == 200
    platform.now += 5
    again = put(platform, who="ben")
    assert (again.status_code, again.json()) == (200, want | {"used_at": NOW + 5})
    assert platform.get(f"code/{SHA256}") == again.json()
    assert leftovers(platform) == [SHA256]


def test_users_download_code_that_they_may_use_as_a_zip(platform: Platform) -> None:
    check_problem(platform.ask("GET", f"code/{SHA256}/archive"), 404, "not-found", "Upload it first")
    put(platform)
    script = platform.home / "code" / SHA256 / "train.py"
    script.chmod(0o700)
    answer = platform.ask("GET", f"code/{SHA256}/archive")
    assert answer.status_code == 200
    assert f"code-{SHA256[:12]}.zip" in answer.headers["Content-Disposition"]
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == {"lib/a.py": b"a", "train.py": b"print()"}
        assert archive.getinfo("train.py").external_attr >> 16 == 0o100700
    assert platform.ask("GET", f"code/{SHA256}/archive").content == answer.content
    check_problem(platform.ask("GET", f"code/{SHA256}/archive", who="ben"), 404, "not-found")
    check_problem(platform.ask("GET", f"code/{SHA256}/archive", who="eye"), 403, "forbidden")
    uploaded = script.parent
    uploaded.rename(uploaded.with_name("gone"))
    check_problem(platform.ask("GET", f"code/{SHA256}/archive"), 404, "not-found", "Upload it first")


def test_code_is_used_by_jobs(platform: Platform) -> None:
    put(platform)
    job = platform.submit(code=SHA256, directory=None)
    assert platform.get(f"jobs/{job}")["code"] == SHA256
    cloned = platform.ask("POST", f"jobs/{job}/clone")
    assert cloned.json()["code"] == SHA256
    elsewhere = platform.ask("POST", f"jobs/{job}/clone", {"directory": "/d"}).json()
    assert elsewhere["code"] is None
    answer = platform.ask("POST", "jobs", {"name": "a", "program": ["../x.py"], "code": SHA256})
    check_problem(answer, 422, "invalid", "is outside of the uploaded code")


def test_users_who_only_see_a_job_cannot_read_its_code(platform: Platform) -> None:
    put(platform)
    job = platform.submit(code=SHA256, directory=None)
    for who in ("ben", "eye"):
        assert platform.get(f"jobs/{job}", who=who)["code"] is None
        assert [one["code"] for one in platform.get("jobs", who=who)["items"]] == [None]
    assert platform.get(f"jobs/{job}", who="admin")["code"] == platform.get("jobs")["items"][0]["code"] == SHA256
    clone = f"jobs/{job}/clone"
    check_problem(platform.ask("POST", clone, who="ben"), 403, "forbidden", "it belongs to 'ann'")
    check_problem(platform.ask("POST", clone, {"code": SHA256}, who="ben"), 403, "forbidden", "ask 'ann' or an admin")
    assert platform.ask("POST", clone, {"directory": "/d"}, who="ben").status_code == 201
    known = {"name": "steal", "program": ["train.py"], "code": SHA256}
    check_problem(platform.ask("POST", "jobs", known, who="ben"), 404, "not-found", "Upload it first")
    assert platform.ask("HEAD", f"code/{SHA256}", who="ben").status_code == 404
    assert [one["owner"] for one in platform.get("jobs?name=steal", who="admin")["items"]] == []
    assert platform.ask("POST", clone, who="admin").json()["code"] == SHA256
    # Who has the bytes has nothing left to find out.
    assert put(platform, who="ben").status_code == 200
    assert platform.ask("POST", "jobs", known, who="ben").status_code == 201
    assert platform.ask("POST", clone, who="ben").status_code == 201


def test_code_that_is_known_but_gone_is_uploaded_again(platform: Platform) -> None:
    put(platform)
    (platform.home / "code" / SHA256).rename(platform.home / "code" / ".gone")
    assert platform.ask("HEAD", f"code/{SHA256}").status_code == 404
    answer = platform.ask("POST", "jobs", {"name": "a", "program": ["train.py"], "code": SHA256})
    check_problem(answer, 404, "not-found", "Upload it first")
    assert put(platform).status_code == 201
    assert platform.submit(code=SHA256, directory=None)


def test_all_kinds_of_archives(platform: Platform) -> None:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        entry = tarfile.TarInfo("train.py")
        entry.size = 2
        tar.addfile(entry, io.BytesIO(b"ok"))
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("train.py", "ok")
    for content in (plain.getvalue(), zipped.getvalue()):
        assert put(platform, content).status_code == 201
        digest = hashlib.sha256(content).hexdigest()
        assert (platform.home / "code" / digest / "train.py").read_text() == "ok"


def test_code_that_is_refused(platform: Platform) -> None:
    check_problem(put(platform, who="eye"), 403, "forbidden", "viewer")
    check_problem(platform.ask("GET", f"code/{SHA256}", who="eye"), 403, "forbidden")
    check_problem(put(platform, sha256="0" * 64), 422, "invalid", f"have the SHA-256 {SHA256}, not 000")
    for odd in ("A" * 64, "0" * 63, "..", "%2e%2e", "0" * 64 + "%0a"):
        check_problem(platform.ask_raw("PUT", f"{API}/code/{odd}"), 422, "invalid", "SHA-256")
    check_problem(platform.ask_raw("PUT", f"{API}/code/..%2flegato.db"), 404, "not-found")
    for content, told in [
        (b"", "cannot unpack"),
        (b"no archive", "cannot unpack"),
        (CODE[:-20], "damaged"),
        (pack(("../evil.py", b"")), "leads out of the folder"),
        (pack(("/etc/evil.py", b"")), "absolute"),
        (pack(("link", b""), kind=tarfile.SYMTYPE, link="/etc/passwd"), "link"),
        (pack(("hard", b""), kind=tarfile.LNKTYPE, link="train.py"), "link"),
        (pack(("pipe", b""), kind=tarfile.FIFOTYPE), "pipe"),
        (pack(("a.py", b""), ("A.py", b"")), "case"),
        (pack(), "no file"),
    ]:
        answer = put(platform, content)
        assert answer.status_code == 422, (content, answer.text)
        assert told.lower() in answer.text.lower(), answer.text
    assert leftovers(platform) == [], "nothing is left of what is refused"
    assert not (platform.home / "evil.py").exists()


def test_code_that_is_too_much(new_platform: Callable[..., Platform]) -> None:
    platform = new_platform(
        upload_max_bytes=1000, upload_max_unpacked_bytes=3 * 2**20, upload_max_file_bytes=2 * 2**20, upload_max_files=3
    )
    large = b"x" * 1001
    check_problem(put(platform, large), 413, "too-large", "more than 1000 bytes")

    def parts() -> Any:
        yield from (large[at : at + 100] for at in range(0, 1001, 100))

    check_problem(put(platform, parts(), sha256=hashlib.sha256(large).hexdigest()), 413, "too-large")
    few = pack(*((f"{number}.py", b"") for number in range(4)))
    check_problem(put(platform, few), 422, "invalid", "more than 3 files")
    assert leftovers(platform) == []


def test_a_bomb(new_platform: Callable[..., Platform]) -> None:
    platform = new_platform(upload_max_ratio=100)
    check_problem(put(platform, pack(("zeros", b"\0" * 20 * 2**20))), 422, "invalid", "the upload unpacks to more than")
    assert leftovers(platform) == []


def test_an_upload_that_is_cut_off_leaves_nothing(platform: Platform) -> None:
    done = threading.Event()

    def cut_off() -> Any:
        yield CODE[:100]
        done.set()
        raise ConnectionError("the line is cut")

    with contextlib.suppress(ConnectionError):
        put(platform, cut_off(), sha256=SHA256)
    assert done.is_set()
    # The next one is answered after the server has seen it; then nothing of the first is left.
    deadline = threading.Event()
    for _ in range(200):
        if leftovers(platform) == []:
            break
        deadline.wait(0.05)
    assert leftovers(platform) == []
    assert put(platform).status_code == 201


def stall(platform: Platform, number: int, who: str = "ben") -> socket.socket:
    """Begin an upload, and send no more of it."""
    host, _, port = platform.url.partition("://")[2].partition(":")
    opened = socket.create_connection((host, int(port)), timeout=LIMIT_S)
    secret = platform.secrets[who]
    opened.sendall(
        f"PUT {API}/code/{number:064x} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {secret}\r\n"
        "Content-Type: application/octet-stream\r\nContent-Length: 1000\r\n\r\nabc".encode()
    )
    return opened


def wait_for_uploads(platform: Platform, number: int) -> None:
    """Wait until so many have begun: each has a folder."""
    deadline = threading.Event()
    for _ in range(600):
        if len([name for name in leftovers(platform) if name.startswith(".incoming-")]) == number:
            return
        deadline.wait(0.05)
    raise AssertionError(leftovers(platform))


def test_stalled_uploads_delay_no_other_user(platform: Platform) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(8):
            stack.enter_context(contextlib.closing(stall(platform, number)))
        wait_for_uploads(platform, 8)
        assert put(platform).status_code == 201
        answer = put(platform, who="ben")
        check_problem(answer, 429, "too-many-requests", "'ben' is already sending 8 uploads at once")
        assert int(answer.headers["retry-after"]) > 0
    wait_for_uploads(platform, 0)
    assert put(platform, who="ben").status_code == 200


def test_the_uploads_of_all_have_a_bound(platform: Platform) -> None:
    object.__setattr__(platform.services, "arrivals", Arrivals("uploads", most=1))
    with contextlib.closing(stall(platform, 1)):
        wait_for_uploads(platform, 1)
        answer = put(platform)
        check_problem(answer, 503, "unavailable", "Try again in a moment")
        assert int(answer.headers["retry-after"]) > 0
    wait_for_uploads(platform, 0)
    assert put(platform).status_code == 201


def test_an_upload_that_goes_silent_is_given_up(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "IDLE_LIMIT_S", 0.05)
    with contextlib.closing(stall(platform, 1)) as opened:
        told = b"".join(iter(lambda: opened.recv(1 << 16), b"")).decode()
    assert told.startswith("HTTP/1.1 408") and "urn:legato:problem:too-slow" in told
    assert leftovers(platform) == []


def test_the_code_that_one_user_keeps_is_limited(new_platform: Callable[..., Platform]) -> None:
    platform = new_platform(upload_quota_bytes=len(CODE) + 10)
    assert put(platform).status_code == 201
    assert put(platform).status_code == 200, "what is there is not more"
    other = pack(("other.py", b"print(2)"))
    check_problem(put(platform, other), 409, "conflict", "ask the operator to raise upload_quota_bytes")

    def parts() -> Any:
        yield other

    digest = hashlib.sha256(other).hexdigest()
    check_problem(put(platform, parts(), sha256=digest), 409, "conflict", "'ann' has")
    assert leftovers(platform) == [SHA256]
    assert put(platform, other, who="ben").status_code == 201
    assert put(platform, other, who="admin").status_code == 200


def test_the_same_code_at_once_is_kept_once(platform: Platform) -> None:
    begin, answers = threading.Barrier(6), []

    def upload() -> None:
        begin.wait()
        answers.append(put(platform))

    threads = [threading.Thread(target=upload) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {answer.status_code for answer in answers} <= {200, 201}
    assert any(answer.status_code == 201 for answer in answers)
    assert leftovers(platform) == [SHA256]
    assert (platform.home / "code" / SHA256 / "train.py").read_bytes() == b"print()"
