"""The files of the console: headers and compression, refused paths, and the page that explains a missing build."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from tests.unit.server.platform import Platform, check_problem

from legato.server import console_files

PAGE = '<!doctype html><script type="module" src="./assets/index-a1.js"></script>' + " " * 2000
SCRIPT = "console.log('hello');\n" * 200


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "pages"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text(PAGE)
    (folder / "assets/index-a1.js").write_text(SCRIPT)
    (folder / "assets/index-b2.css").write_text("a{}")
    (folder / "assets/logo-c3.svg").write_text("<svg/>")
    (folder / "assets/notes.txt").write_text("no")
    (folder / "assets/.hidden.js").write_text("no")
    (tmp_path / "secret.js").write_text("no")
    (folder / "assets/folder.js").mkdir()
    for name in ("read_page", "read_asset"):
        monkeypatch.setattr(console_files, name, in_folder(getattr(console_files, name), folder))
    return folder


def in_folder(read, folder):  # type: ignore[no-untyped-def]
    return lambda *given: read(*given, folder=folder)


def test_the_page(platform: Platform, pages: Path) -> None:
    answer = platform.ask("GET", "/", who=None, Accept_Encoding="identity")
    assert (answer.status_code, answer.text) == (200, PAGE)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["referrer-policy"] == "no-referrer"
    policy = dict(one.split(" ", 1) for one in answer.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'self'"
    assert "unsafe" not in str(policy) and "*" not in str(policy)
    assert policy["frame-ancestors"] == policy["object-src"] == policy["base-uri"] == "'none'"
    head = platform.ask("HEAD", "/", who=None)
    assert (head.status_code, head.content) == (200, b"")
    assert platform.ask("GET", "/?x=1", who=None).status_code == 200


def test_assets_are_cached_forever(platform: Platform, pages: Path) -> None:
    for name, kind, content in (
        ("index-a1.js", "text/javascript; charset=utf-8", SCRIPT),
        ("index-b2.css", "text/css; charset=utf-8", "a{}"),
        ("logo-c3.svg", "image/svg+xml", "<svg/>"),
    ):
        answer = platform.ask("GET", f"/assets/{name}", who=None)
        assert (answer.status_code, answer.text, answer.headers["content-type"]) == (200, content, kind)
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"]


def test_long_files_are_compressed_for_clients_that_accept_it(platform: Platform, pages: Path) -> None:
    for path, content in (("/", PAGE), ("/assets/index-a1.js", SCRIPT)):
        with platform.http.stream("GET", path, headers={"Accept-Encoding": "gzip, br"}) as answer:
            packed = b"".join(answer.iter_raw())
        assert answer.headers["content-encoding"] == "gzip" and answer.headers["vary"] == "Accept-Encoding"
        assert int(answer.headers["content-length"]) == len(packed) < len(content)
        assert gzip.decompress(packed).decode() == content
        plain = platform.ask("GET", path, who=None, Accept_Encoding="gzip;q=0")
        assert "content-encoding" not in plain.headers and plain.text == content
        assert plain.headers["vary"] == "Accept-Encoding"
    short = platform.ask("GET", "/assets/index-b2.css", who=None, Accept_Encoding="gzip")
    assert "content-encoding" not in short.headers


def test_nothing_else_is_sent(platform: Platform, pages: Path) -> None:
    (pages / "assets/.link.js").symlink_to(pages.parent / "secret.js")
    for name in (
        *("nothing.js", "notes.txt", ".hidden.js", ".link.js", "folder.js", "", "index.html", "a" * 300 + ".js"),
        *("..%2f..%2fsecret.js", "%2e%2e/index.html", "../secret.js", "index-a1.js/", "index-a1.js%0a", "INDEX-A1.JS"),
    ):
        answer = platform.ask_raw("GET", f"/assets/{name}")
        assert answer.status_code == 404, name
        assert answer.headers["cache-control"] == "no-store"
    check_problem(platform.ask("GET", "/assets/nothing.js", who=None), 404, "not-found")
    for path in ("/index.html", "/assets", "/assets/", "/pages/index.html"):
        assert platform.ask("GET", path, who=None).status_code == 404
    assert platform.ask("POST", "/", {}, who=None).status_code == 405


def test_built_again_while_it_runs(platform: Platform, pages: Path) -> None:
    assert platform.ask("GET", "/", who=None).text == PAGE
    (pages / "index.html").write_text("<!doctype html>new")
    assert platform.ask("GET", "/", who=None).text == "<!doctype html>new"
    (pages / "index.html").unlink()
    assert platform.ask("GET", "/", who=None).status_code == 503


def test_the_server_says_how_to_build_a_missing_console(platform: Platform, pages: Path) -> None:
    (pages / "index.html").unlink()
    answer = platform.ask("GET", "/", who=None)
    assert answer.status_code == 503
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "make console" in answer.text and "npm" in answer.text
    assert "<style" not in answer.text and "<script" not in answer.text
    assert answer.headers["cache-control"] == "no-store"


def test_foreign_hosts_and_pages_get_no_console(platform: Platform, pages: Path) -> None:
    check_problem(platform.ask("GET", "/", who=None, Host="evil.example"), 421, "wrong-host")
    check_problem(platform.ask("GET", "/", who=None, Origin="http://evil.example"), 403, "wrong-origin")
