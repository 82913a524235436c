"""Files of a job: who may see them, which are shown, and ranges of bytes. Tricks with paths fail."""

from __future__ import annotations

import os
from pathlib import Path

import httpx
import pytest
from tests.unit.server.platform import ADMIN, API, NOW, Platform, check_problem

from legato.control.roles import Role
from legato.core.errors import NotFound
from legato.server import job_files
from legato.server.job_files import list_files, open_file, split_path


@pytest.fixture
def job(platform: Platform) -> str:
    made = platform.submit()
    directory = platform.directory(made)
    for name, text in {
        "work/train.py": "print()",
        "work/out/a.txt": "0123456789",
        "work/out/deep/b ä.txt": "b",
        "checkpoints/step-10.legato": "ten",
        "checkpoints/step-9.legato": "nine",
        "checkpoints/step-11.legato.part": "torn",
        "logs/worker-0.log": "log",
        "events.jsonl": "{}",
        "journal.json": "the token of the job",
        "driver.json": "the token of the job",
        "order.json": "{}",
        "lock": "",
    }.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    return made


def paths(platform: Platform, job: str, query: str = "") -> list[str]:
    return [item["path"] for item in platform.get(f"jobs/{job}/files{query}")["items"]]


def test_listing(platform: Platform, job: str) -> None:
    assert paths(platform, job) == ["checkpoints", "events.jsonl", "logs", "work"]
    assert paths(platform, job, "?path=work") == ["work/out", "work/train.py"]
    assert paths(platform, job, "?path=work/") == ["work/out", "work/train.py"]
    everything = platform.get(f"jobs/{job}/files?recursive=true")
    assert everything["is_complete"] is True
    assert [item["path"] for item in everything["items"] if item["kind"] == "file"] == [
        "checkpoints/step-10.legato",
        "checkpoints/step-11.legato.part",
        "checkpoints/step-9.legato",
        "events.jsonl",
        "logs/worker-0.log",
        "work/out/a.txt",
        "work/out/deep/b ä.txt",
        "work/train.py",
    ]
    (one,) = platform.get(f"jobs/{job}/files?path=work/out/a.txt")["items"]
    assert (one["kind"], one["num_bytes"]) == ("file", 10)
    new = platform.submit(name="new")
    assert platform.get(f"jobs/{new}/files") == {"items": [], "is_complete": True}
    check_problem(platform.ask("GET", f"jobs/{new}/files?path=work"), 404, "not-found")
    check_problem(platform.ask("GET", f"jobs/{job}/files?recursive=perhaps"), 422, "invalid")


def test_checkpoints(platform: Platform, job: str) -> None:
    listed = platform.get(f"jobs/{job}/checkpoints")["items"]
    assert [(one["step"], one["path"], one["num_bytes"]) for one in listed] == [
        (10, "checkpoints/step-10.legato", 3),
        (9, "checkpoints/step-9.legato", 4),
    ]
    assert platform.ask("GET", f"jobs/{job}/files/{listed[0]['path']}").text == "ten"
    assert platform.get(f"jobs/{platform.submit(name='new')}/checkpoints")["items"] == []


def test_only_owners_and_admins_see_files_and_checkpoints(platform: Platform, job: str) -> None:
    for path in ("files", "files/work/train.py", "checkpoints"):
        assert platform.ask("GET", f"jobs/{job}/{path}", who="admin").status_code == 200
        for who in ("ben", "eye"):
            check_problem(platform.ask("GET", f"jobs/{job}/{path}", who=who), 403, "forbidden", "belongs to 'ann'")
    # A token of a lower role is not the owner.
    made = platform.store.tokens.create("ann", "looks", ADMIN, NOW, role=Role.VIEWER, expires_at=NOW + 1e7)
    platform.secrets["looks"] = made.secret
    check_problem(platform.ask("GET", f"jobs/{job}/files", who="looks"), 403, "forbidden")


# ---------------------------------------------------------------- download


def get(platform: Platform, job: str, path: str = "work/out/a.txt", **headers: str) -> httpx.Response:
    return platform.ask("GET", f"jobs/{job}/files/{path}", **headers)


def test_a_file(platform: Platform, job: str) -> None:
    answer = get(platform, job)
    assert (answer.status_code, answer.text, answer.headers["content-length"]) == (200, "0123456789", "10")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''a.txt"
    assert answer.headers["accept-ranges"] == "bytes"
    assert answer.headers["etag"] and answer.headers["last-modified"].endswith("GMT")
    odd = get(platform, job, "work/out/deep/b%20%C3%A4.txt")
    assert (odd.text, odd.headers["content-disposition"]) == ("b", "attachment; filename*=UTF-8''b%20%C3%A4.txt")
    head = platform.ask("HEAD", f"jobs/{job}/files/work/out/a.txt")
    assert (head.status_code, head.text, head.headers["content-length"]) == (200, "", "10")
    assert head.headers["etag"] == answer.headers["etag"]
    (platform.directory(job) / "work/out/a.txt").write_text("other")
    assert get(platform, job).headers["etag"] != answer.headers["etag"]
    assert platform.ask("HEAD", f"jobs/{job}/files/work/nothing").status_code == 404


def test_ranges(platform: Platform, job: str) -> None:
    for said, want in [
        ("bytes=0-3", ("0123", "bytes 0-3/10")),
        ("bytes=4-", ("456789", "bytes 4-9/10")),
        ("bytes=-2", ("89", "bytes 8-9/10")),
        ("bytes=-99", ("0123456789", "bytes 0-9/10")),
        ("bytes=9-99", ("9", "bytes 9-9/10")),
        ("bytes=0-0", ("0", "bytes 0-0/10")),
    ]:
        answer = get(platform, job, Range=said)
        assert (answer.status_code, answer.text, answer.headers["content-range"]) == (206, *want)
        assert answer.headers["content-length"] == str(len(want[0]))


def test_unusable_ranges_are_ignored_or_refused(platform: Platform, job: str) -> None:
    for said in ("bytes=0-1,3-4", "lines=1-2", "bytes=", "bytes=-", "bytes=3-1", "bytes=x-1", "0-3"):
        assert (get(platform, job, Range=said).status_code, get(platform, job, Range=said).text) == (
            200,
            "0123456789",
        ), said
    for said in ("bytes=10-", "bytes=99-100", "bytes=-0"):
        answer = get(platform, job, Range=said)
        check_problem(answer, 416, "range-not-satisfiable", "the file, which has 10 bytes")
        assert answer.headers["content-range"] == "bytes */10"
    etag = get(platform, job).headers["etag"]
    assert get(platform, job, Range="bytes=0-1", If_Range=etag).status_code == 206
    assert get(platform, job, Range="bytes=0-1", If_Range='"another"').status_code == 200, "of another version"


def test_a_large_file_comes_whole_and_on_from_any_byte(platform: Platform, job: str) -> None:
    content = os.urandom(3 * 2**20 + 17)
    (platform.directory(job) / "work/large").write_bytes(content)
    assert get(platform, job, "work/large").content == content
    assert get(platform, job, "work/large", Range="bytes=1000000-").content == content[1000000:]
    (platform.directory(job) / "work/empty").touch()
    assert get(platform, job, "work/empty").content == b""
    check_problem(get(platform, job, "work/empty", Range="bytes=0-"), 416, "range-not-satisfiable")


# ---------------------------------------------------------------- tricks


TRICKS = (
    *("journal.json", "driver.json", "order.json", "lock", "logs/../journal.json", "work/../journal.json"),
    *(
        "..%2f..%2f..%2flegato.db",
        "work/..%2f..%2fjournal.json",
        "%2e%2e/legato.db",
        "%2fetc%2fpasswd",
        "work//train.py",
    ),
    *(
        "/etc/passwd",
        "work/./train.py",
        "work/out/../train.py",
        "work",
        "work/",
        "",
        "work\\train.py",
        "WORK/train.py",
    ),
    *("work/train.py/x", "work/" + "a" * 300, "work/" + "a/" * 3000, "..", ".", "~"),
)


def test_paths_out_of_the_job_directory_are_refused(platform: Platform, job: str) -> None:
    for path in TRICKS:
        check_problem(platform.ask_raw("GET", f"{API}/jobs/{job}/files/{path}"), 404, "not-found")
        if path.rstrip("/") in ("work", ""):
            continue  # of these there is a list
        status, name = (422, "invalid") if len(path) > 4096 else (404, "not-found")
        asked = platform.http.get(f"{API}/jobs/{job}/files", params={"path": path}, headers=platform.headers("ann"))
        check_problem(asked, status, name)


def test_links_are_neither_shown_nor_followed(platform: Platform, job: str) -> None:
    directory = platform.directory(job)
    outside = platform.home / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (directory / "work/to-file").symlink_to(outside / "secret")
    (directory / "work/to-folder").symlink_to(outside)
    (directory / "work/to-nothing").symlink_to("nowhere")
    (directory / "work/to-itself").symlink_to("to-itself")
    (directory / "work/inside").symlink_to("train.py")
    os.mkfifo(directory / "work/pipe")
    assert paths(platform, job, "?path=work") == ["work/out", "work/train.py"]
    assert not any("to-" in path or "pipe" in path for path in paths(platform, job, "?recursive=true"))
    for path in ("to-file", "to-folder/secret", "to-folder", "to-nothing", "to-itself", "inside", "pipe"):
        check_problem(get(platform, job, f"work/{path}"), 404, "not-found")
        check_problem(platform.ask("GET", f"jobs/{job}/files?path=work/{path}"), 404, "not-found")


def test_a_folder_that_becomes_a_link_between_two_looks_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However a program exchanges things, each folder is opened inside of the one before it."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "a").write_text("secret")
    root = tmp_path / "job"
    (root / "work" / "out").mkdir(parents=True)
    (root / "work" / "out" / "a").write_text("mine")
    real_open = os.open

    def exchange(path: str | Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        opened = real_open(path, flags, mode, dir_fd=dir_fd)
        if path == "out":
            # After it was opened, before anything is opened inside of it.
            (root / "work" / "out").rename(root / "work" / "gone")
            (root / "work" / "out").symlink_to(tmp_path / "secret")
        return opened

    monkeypatch.setattr(os, "open", exchange)
    with open_file(root, ("work", "out", "a")) as file:
        assert file.read() == b"mine"
    with pytest.raises(NotFound):
        open_file(root, ("work", "out", "a"))


def test_too_many_files_are_said_to_be_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_files, "_MAX_ENTRIES", 5)
    monkeypatch.setattr(job_files, "_MAX_DEPTH", 4)
    root = tmp_path / "job"
    for folder in range(3):
        for file in range(3):
            (root / "work" / f"{folder}").mkdir(parents=True, exist_ok=True)
            (root / "work" / f"{folder}" / f"{file}").touch()
    some = list_files(root, ("work",), is_recursive=True)
    assert (len(some.items), some.is_complete) == (5, False)
    assert list_files(root, ("work",), is_recursive=False).is_complete
    (root / "logs" / "a" / "b" / "c" / "d" / "e").mkdir(parents=True)
    deep = list_files(root, ("logs",), is_recursive=True)
    assert ([entry.path for entry in deep.items][-1], deep.is_complete) == ("logs/a/b/c/d", False)
    (root / "work" / "0" / os.fsdecode(b"\xff")).mkdir()
    odd = list_files(root, ("work", "0"), is_recursive=False)
    assert ([entry.path for entry in odd.items], odd.is_complete) == (["work/0/0", "work/0/1", "work/0/2"], False)


def test_paths_are_split_by_one_rule() -> None:
    for path in ("/work", "work/..", "..", "work//a", "a", "workx", "work/a\0b", "/", "work/."):
        with pytest.raises(NotFound):
            split_path(path)
