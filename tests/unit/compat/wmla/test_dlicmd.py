"""dlicmd.py against a fake server with answers of the test: its requests, its output and its exit codes."""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import re
import shutil
import socket
import ssl
import stat
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.compat.wmla import arguments, options
from legato.compat.wmla.tools import dlicmd

API = "/platform/rest/deeplearning/v1"
PROGRAM = Path(dlicmd.__file__)
TOKEN = "header.middle.secret"


class Answer:
    """An answer of the server to one request."""

    def __init__(self, body: Any = b"", status: int = 200, **headers: str) -> None:
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if not isinstance(body, bytes | str):
            body = json.dumps(body)
            self.headers.setdefault("Content-Type", "application/json")
        self.body = body.encode() if isinstance(body, str) else body


class Request:
    """A request that the server has received."""

    def __init__(self, handler: BaseHTTPRequestHandler) -> None:
        self.line = f"{handler.command} {handler.path}"
        self.path, _, query = handler.path.partition("?")
        self.query = dlicmd.urllib.parse.parse_qs(query, keep_blank_values=True)
        self.headers = handler.headers
        self.body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))

    @property
    def file(self) -> tuple[str, bytes]:
        """The only part of a form: its file name and its content."""
        head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
        form = BytesParser().parsebytes(head + self.body)
        (part,) = form.get_payload()
        assert part.get_param("name", header="content-disposition") == "file"
        return part.get_filename(), part.get_payload(decode=True)


class Fake:
    """The server.

    Args:
        scheme: ``http`` or ``https``.
        certificate: for ``https``.
    """

    def __init__(self, scheme: str = "http", certificate: Path | None = None) -> None:
        self.answers: dict[str, Any] = {f"GET {API}/conf": Answer({"MSD_ENABLED": True})}
        self.asked: list[Request] = []
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def answer(self) -> None:
                known = fake.answers.get(f"{self.command} {self.path.partition('?')[0]}", Answer("no such path", 404))
                if callable(known) and known.__code__.co_argcount == 1:
                    known(self)
                    return
                request = Request(self)
                if not request.path.endswith("/conf"):
                    fake.asked.append(request)
                found = known() if callable(known) else known
                self.send_response(found.status)
                for name, value in found.headers.items():
                    self.send_header(name, value)
                if found.status != 204:
                    self.send_header("Content-Length", str(len(found.body)))
                self.end_headers()
                self.wfile.write(found.body)

            do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # type: ignore[method-assign]
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_port
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()

    def answer(self, method: str, path: str, answer: Any) -> None:
        self.answers[f"{method} {API}{path}"] = answer

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    home = tmp_path / "home"
    home.mkdir()
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(home))
    for name in (*dlicmd.VARIABLES, "DLICMD_CA_FILE", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    server = Fake()
    dlicmd.write_keys({server.url: TOKEN})
    yield server
    server.stop()


@pytest.fixture
def do(fake: Fake, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command against the server; return its exit code, its stdout and its stderr."""

    def run(*words: str) -> tuple[int, str, str]:
        end = words.index("--") if "--" in words else len(words)
        host = ["--rest-host", "127.0.0.1", "--rest-port", str(fake.port)]
        code = dlicmd.main([*words[:end], *host, *words[end:]])
        out, err = capsys.readouterr()
        return code, out, err

    return run


RECORD = {
    "id": "j-1",
    "args": "--exec-start edtPyTorch",
    "submissionId": "driver-j-1",
    "creator": "ann",
    "state": "RUNNING",
    "appId": "j-1",
    "appName": "mnist",
    "createTime": "2026-01-01T00:00:00Z",
    "elastic": True,
    "numWorker": 4,
    "framework": "edtPyTorch",
}


def make_model(folder: Path) -> Path:
    model = folder / "mnist"
    (model / "sub").mkdir(parents=True)
    (model / "main.py").write_text("print('hello')\n")
    (model / "sub/part.py").write_text("import torch\n")
    return model


# ---------------------------------------------------------------- the file and its help


def test_it_needs_the_standard_library_only_and_python_3_8() -> None:
    tree = ast.parse(PROGRAM.read_text(), feature_version=(3, 8))
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    froms = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level}
    roots = {str(name).partition(".")[0] for name in imported | froms}
    assert len(roots) > 15
    assert roots <= sys.stdlib_module_names
    # Methods and modules that Python 3.8 does not have.
    later = ("removeprefix", "removesuffix", "zoneinfo", "graphlib", "tomllib", "itertools.pairwise", "datetime.UTC")
    assert [name for name in later if name in PROGRAM.read_text()] == []


def test_it_runs_as_a_single_file(tmp_path: Path, fake: Fake) -> None:
    alone = shutil.copy(PROGRAM, tmp_path / "dlicmd.py")
    fake.answer("GET", "/execs/j-1", Answer(RECORD))
    words = ["--exec-get", "j-1", "--rest-host", "127.0.0.1", "--rest-port", str(fake.port)]
    done = subprocess.run(
        [sys.executable, "-I", str(alone), *words], env=os.environ, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["state"] == "RUNNING"


def test_the_help_tells_every_command_option_variable_and_exit_code(
    do: Callable[..., tuple[int, str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert dlicmd.main(["--help"]) == 0
    told = capsys.readouterr().out.split()
    everything = [*dlicmd.COMMANDS, *dlicmd.CONNECTION, *dlicmd.OLD_NAMES, *dlicmd.OUTPUT, *dlicmd.SUBMIT]
    everything += [*dlicmd.REFUSED_OPTIONS, *dlicmd.VARIABLES, *map(str, dlicmd.EXIT_CODES)]
    assert [name for name in everything if name not in told] == []
    assert dlicmd.main([]) == dlicmd.MISUSED
    assert capsys.readouterr().out == ""


def test_its_table_of_options_is_that_of_the_server() -> None:
    carried = {name for name, (_, does, _) in dlicmd.SUBMIT.items() if does}
    ignored = {name for name, (value, does, why) in dlicmd.SUBMIT.items() if value and not does and why}
    flags = {name for name, (value, _, _) in dlicmd.SUBMIT.items() if not value}
    assert carried == options.OPTIONS - {"--exec-start"}
    assert ignored == options.MEANINGLESS
    assert flags == options.FLAGS
    assert set(dlicmd.REFUSED_OPTIONS) == set(options.REFUSED)
    assert {*dlicmd.CONNECTION, *dlicmd.OLD_NAMES} == options.CONNECTION


@given(st.lists(st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=20)))
def test_the_server_reads_exactly_the_words_of_the_command_line(words: list[str]) -> None:
    assert arguments.split_words(dlicmd.join_arguments(words)) == words


# ---------------------------------------------------------------- log on


def test_logging_on_keeps_the_token_for_this_server_in_a_file_that_no_other_user_reads(
    fake: Fake, do: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.answers["GET /auth/v1/logon"] = Answer({"username": "ann", "accessToken": "a.b.new"})
    dlicmd.write_keys({"https://other:443": "theirs"})
    created = []
    really_open = os.open
    monkeypatch.setattr(os, "open", lambda *args, **more: created.append(args) or really_open(*args, **more))
    assert do("--logon", "--username", "ann", "--password", "p:w ü") == (0, f"Logged on to {fake.url}.\n", "")
    (asked,) = fake.asked
    assert asked.headers["Authorization"] == "Basic " + base64.b64encode("ann:p:w ü".encode()).decode()
    kept = Path.home() / ".dlicmd"
    assert json.loads(kept.read_text()) == {"tokens": {"https://other:443": "theirs", fake.url: "a.b.new"}}
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    # The file is created with these permissions, not changed afterwards.
    assert [mode for path, _, mode in created if ".dlicmd" in str(path)] == [0o600]
    assert [path.name for path in Path.home().iterdir()] == [".dlicmd"]


def test_a_file_that_others_could_read_or_another_program_wrote_is_replaced(
    fake: Fake, do: Callable[..., tuple[int, str, str]]
) -> None:
    kept = Path.home() / ".dlicmd"
    kept.write_text("# Netscape HTTP Cookie File\n")
    kept.chmod(0o644)
    assert do("--exec-get-all")[0] == dlicmd.NOT_LOGGED_ON
    fake.answers["GET /auth/v1/logon"] = Answer({"accessToken": "a.b.new"})
    assert do("--logon", "--username", "ann", "--password", "pw")[0] == 0
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_a_wrong_password_is_reported_as_scripts_expect_it(fake: Fake, do: Callable[..., tuple[int, str, str]]) -> None:
    fake.answers["GET /auth/v1/logon"] = Answer("wrong password", 401)
    code, out, err = do("--logon", "--username", "ann", "--password", "no")
    assert (code, out) == (dlicmd.NOT_LOGGED_ON, "Authentication error. The request was denied.\n")
    assert err == "Error: wrong password\n"


@pytest.mark.parametrize(
    ("piped", "words", "who"),
    [
        ("p w\n", ["--username", "ann"], "ann:p w"),
        ("p w", ["--username", "ann"], "ann:p w"),
        ("p w \r\nmore\n", ["--username", "ann"], "ann:p w "),
        ("ann\npw\n", [], "ann:pw"),
        ("unread\n", ["--username", "ann", "--password", "pw"], "ann:pw"),
    ],
    ids=["line", "cut", "windows", "both", "said"],
)
def test_a_password_may_be_piped_in(
    piped: str,
    words: list[str],
    who: str,
    fake: Fake,
    do: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake.answers["GET /auth/v1/logon"] = Answer({"accessToken": "a.b.new"})
    monkeypatch.setattr(sys, "stdin", io.StringIO(piped))
    assert do("--logon", *words) == (0, f"Logged on to {fake.url}.\n", "")
    assert fake.asked[0].headers["Authorization"] == "Basic " + base64.b64encode(who.encode()).decode()


@pytest.mark.parametrize("piped", ["", "\n", None], ids=["nothing", "empty", "closed"])
def test_without_a_terminal_and_a_line_the_error_says_what_is_missing(
    piped: str | None, fake: Fake, do: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", None if piped is None else io.StringIO(piped))
    code, out, err = do("--logon", "--username", "ann")
    assert (code, out) == (dlicmd.MISUSED, "")
    assert err == "Error: Password is missing. Give DLICMD_PASSWORD, pipe it in as a line, or run this in a terminal.\n"
    code, _, err = do("--logon")
    assert code == dlicmd.MISUSED and "Username is missing. Give --username or DLICMD_USERNAME" in err
    assert fake.asked == []


def test_an_answer_without_a_token_is_not_kept(fake: Fake, do: Callable[..., tuple[int, str, str]]) -> None:
    for token in (None, 7, "a b", "a\nb", "", "\u00fc"):
        fake.answers["GET /auth/v1/logon"] = Answer({"accessToken": token})
        assert do("--logon", "--username", "ann", "--password", "pw")[0] == dlicmd.REFUSED
    assert dlicmd.read_keys() == {fake.url: TOKEN}


def test_logging_off_ends_the_token_there_and_here(fake: Fake, do: Callable[..., tuple[int, str, str]]) -> None:
    fake.answers["POST /auth/v1/logoff"] = Answer("", 401)
    assert do("--logoff") == (0, f"Logged off from {fake.url}.\n", "")
    assert fake.asked[0].headers["Authorization"] == f"Bearer {TOKEN}"
    code, out, _ = do("--exec-get-all")
    assert (code, out) == (dlicmd.NOT_LOGGED_ON, "Unable to find token from cookies. Please logon first.\n")
    assert len(fake.asked) == 1


def test_the_precedence_of_tokens_and_passwords(
    fake: Fake, do: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.answer("GET", "/status", Answer({}))
    monkeypatch.setenv("DLICMD_USERNAME", "env")
    do("--status")
    monkeypatch.setenv("DLICMD_PASSWORD", "pw")
    do("--status")
    do("--status", "--username", "ann")
    do("--status", "--username", "ann", "--jwt-token", "x.y.z")
    basic = [f"Basic {base64.b64encode(pair).decode()}" for pair in (b"env:pw", b"ann:pw")]
    shown = [request.headers["Authorization"] for request in fake.asked]
    assert shown == [f"Bearer {TOKEN}", *basic, "Bearer x.y.z"]


# ---------------------------------------------------------------- finding the server


def test_host_and_port_are_also_read_from_variables(
    fake: Fake, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.answer("GET", "/status", Answer({"status": "ok"}))
    monkeypatch.setenv("DLICMD_REST_HOST", "127.0.0.1")
    monkeypatch.setenv("DLICMD_REST_PORT", str(fake.port))
    assert dlicmd.main(["--status"]) == 0
    assert dlicmd.main(["--status", "--master-host", "127.0.0.1", "--dli-rest-port", str(fake.port)]) == 0
    assert dlicmd.main(["--status", f"--rest-host={fake.url}"]) == 0
    assert capsys.readouterr().out == 3 * '{\n    "status": "ok"\n}\n'


def test_https_is_tried_before_http_and_kept_places_before_all() -> None:
    assert [str(place) for place in dlicmd.list_places("gpu.example.org", -1)] == [
        "https://gpu.example.org:443",
        "https://gpu.example.org:9243",
        "http://gpu.example.org:80",
        "http://gpu.example.org:8765",
    ]


def test_a_self_signed_certificate_is_accepted_unless_authorities_are_named(
    fake: Fake, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = tmp_path / "both.pem"
    make_certificate(certificate)
    secure = Fake("https", certificate)
    try:
        secure.answer("GET", "/status", Answer({}))
        dlicmd.write_keys({secure.url: TOKEN})
        words = ["--status", "--rest-host", "127.0.0.1", "--rest-port", str(secure.port)]
        assert dlicmd.main(words) == 0
        monkeypatch.setenv("DLICMD_CA_FILE", str(certificate))
        assert dlicmd.main(words) == 0
        other = tmp_path / "other.pem"
        make_certificate(other)
        monkeypatch.setenv("DLICMD_CA_FILE", str(other))
        capsys.readouterr()
        assert dlicmd.main(words) == dlicmd.NOT_REACHED
        assert "certificate is not signed" in capsys.readouterr().err
        monkeypatch.setenv("DLICMD_CA_FILE", str(tmp_path / "none.pem"))
        assert dlicmd.main(words) == dlicmd.MISUSED
    finally:
        secure.stop()


def make_certificate(path: Path) -> None:
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    key = path.with_suffix(".key")
    subprocess.run([*command, "-keyout", str(key), "-out", str(path)], check=True, capture_output=True, timeout=60)
    path.write_text(path.read_text() + key.read_text())


def test_a_token_is_sent_only_to_the_server_that_gave_it(fake: Fake, do: Callable[..., tuple[int, str, str]]) -> None:
    dlicmd.write_keys({fake.url.replace("http:", "https:"): TOKEN, "http://127.0.0.1:1": TOKEN})
    seen = []
    fake.answers[f"GET {API}/conf"] = lambda: seen.append(1) or Answer({})
    code, out, _ = do("--exec-get-all")
    assert (code, out, len(seen)) == (4, "Unable to find token from cookies. Please logon first.\n", 1)
    assert fake.asked == []


def test_the_probe_carries_no_token(fake: Fake, do: Callable[..., tuple[int, str, str]]) -> None:
    headers = []

    def look(handler: Any) -> None:
        headers.append(dict(handler.headers))
        handler.send_response(401)
        handler.send_header("Content-Length", "20")
        handler.end_headers()
        handler.wfile.write(b"Error 401: who asks? ")

    fake.answers[f"GET {API}/conf"] = look
    fake.answer("GET", "/status", Answer({}))
    assert do("--status", "--jwt-token", "t")[0] == 0
    assert len(headers) == 1 and "Authorization" not in headers[0]


def test_a_redirect_is_reported_and_not_followed(fake: Fake, do: Callable[..., tuple[int, str, str]]) -> None:
    fake.answer("GET", "/status", Answer("", 302, Location="http://evil.example.org/"))
    code, out, err = do("--status")
    assert (code, out) == (1, "")
    assert "redirects to http://evil.example.org/" in err


@pytest.mark.parametrize(
    "answer",
    [
        Answer("<html>", 200),
        Answer("nothing", 404),
        Answer("", 301, Location="/x"),
        Answer("Log in", 401),
        Answer("down", 503),
    ],
)
def test_another_program_is_not_mistaken_for_the_server(
    fake: Fake, do: Callable[..., tuple[int, str, str]], answer: Answer
) -> None:
    fake.answers[f"GET {API}/conf"] = answer
    code, out, err = do("--exec-get-all", "--username", "ann", "--password", "hush")
    assert (code, out, fake.asked) == (dlicmd.NOT_REACHED, "", [])
    assert err.startswith("Error: Cannot find the server.") and err.count("\n") == 1


def test_a_port_without_a_server_is_reported(do: Callable[..., tuple[int, str, str]], fake: Fake) -> None:
    fake.stop()
    code, out, err = do("--exec-get-all")
    assert (code, out) == (dlicmd.NOT_REACHED, "")
    assert err.startswith("Error: Cannot find the server.") and err.count("no program listens on this port") == 2


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b"])
def test_an_unknown_host_is_reported_at_once(host: str, capsys: pytest.CaptureFixture[str], fake: Fake) -> None:
    assert dlicmd.main(["--status", "--rest-host", host]) == dlicmd.NOT_REACHED
    assert capsys.readouterr().err == f"Error: Cannot reach '{host}': the host name is unknown. Check --rest-host.\n"


@pytest.mark.parametrize(
    "words",
    [
        ["--exec-gt", "j-1"],
        ["--rest-host", "h", "--exec-get", "j-1"],
        ["--exec-get", "--rest-host", "h"],
        ["--exec-get", "a", "b", "--rest-host", "h"],
        ["--exec-get", "a/../b", "--rest-host", "h"],
        ["--exec-get-all"],
        ["--exec-get-all", "--rest-host"],
        ["--exec-get-all", "--rest-host", "--rest-port"],
        ["--exec-get-all", "--rest-host", "h", "--rest-port", "x"],
        ["--exec-get-all", "--rest-host", "h", "--rest-port", "70000"],
        ["--exec-get-all", "--rest-host", "a b"],
        ["--exec-get-all", "--rest-host", "ftp://h"],
        ["--exec-get-all", "--frobnicate", "--rest-host", "h"],
        ["--exec-start", "--model-main", "a.py", "--rest-host", "h"],
    ],
)
def test_a_command_line_that_makes_no_sense_is_refused_in_one_line(
    words: list[str], capsys: pytest.CaptureFixture[str], fake: Fake
) -> None:
    if "a/../b" in words:
        words[-1] = fake.url
    assert dlicmd.main(words) == dlicmd.MISUSED
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("Error: ") and err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--status", "--jwt-token", "a\nX-Other: 1"], dlicmd.REFUSED),
        (["--exec-get", "j-\udcff"], dlicmd.MISUSED),
        (["--logon", "--username", "a:b", "--password", "pw"], dlicmd.MISUSED),
    ],
)
def test_odd_words_are_refused_in_one_line(
    words: list[str], code: int, fake: Fake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DLICMD_REST_HOST", fake.url)
    assert dlicmd.main(words) == code
    out, err = capsys.readouterr()
    assert (out, fake.asked) == ("", []) and err.count("\n") == 1


def test_an_invalid_proxy_is_reported(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("http_proxy", "http://host:many")
    fake.answer("GET", "/status", Answer({}))
    assert dlicmd.main(["--status", "--rest-host", fake.url]) == 0, "this machine is reached without a proxy"
    assert dlicmd.main(["--status", "--rest-host", "http://gpu.invalid"]) == dlicmd.MISUSED
    assert "http_proxy" in capsys.readouterr().err


WORDS = st.sampled_from([*dlicmd.COMMANDS, *dlicmd.CONNECTION, *dlicmd.SUBMIT, *dlicmd.OUTPUT, "--", "-", "="])
# No operating system can pass a zero character in an argument.
TEXTS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=10)


@given(st.sampled_from(list(dlicmd.COMMANDS)), st.lists(WORDS | TEXTS, max_size=8))
def test_any_command_line_is_read_or_refused(command: str, words: list[str]) -> None:
    with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(dlicmd.Failure):
        asked = dlicmd.read_command_line([command, *words])
        if command == "--exec-start":
            sent = dlicmd.join_arguments(["--exec-start", *asked.operands, *asked.submission])
            end = words.index("--") if "--" in words else len(words)
            assert arguments.split_words(sent)[-len(words[end:]) :] == words[end:] or end == len(words)


@given(st.text(max_size=20), st.integers(-2, 70000))
def test_any_host_is_read_or_refused(host: str, port: int) -> None:
    with contextlib.suppress(dlicmd.Failure):
        for place in dlicmd.list_places(host, port):
            assert place.host and str(dlicmd.list_places(str(place), -1)[0]) == str(place)


# ---------------------------------------------------------------- submit


def test_a_submission_prints_the_json_that_scripts_cut_out(
    fake: Fake, do: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    make_model(tmp_path)
    fake.answer("POST", "/execs/", Answer(RECORD))
    words = ["--exec-start", "edtPyTorch", "--cs-datastore-meta", "type=fs,data_path=mnist", "--numWorker", "4"]
    code, out, err = do(
        *words, "--model-dir", "../mnist/", "--model-main=main.py", "--lr", "0.1", "--", "--note", "a  'b'\n"
    )
    (asked,) = fake.asked
    name, content = asked.file
    size = dlicmd.write_size(len(content))
    record = '{\n    "execId": "j-1",\n    "appId": "j-1"\n}\n'
    assert out == f"Copying files and directories ...\nContent size: {size}\n{record}"
    assert (code, err) == (0, "")
    assert asked.line.startswith(f"POST {API}/execs/?args=")
    sent = "--exec-start edtPyTorch --cs-datastore-meta type=fs,data_path=mnist --numWorker 4 --model-dir mnist"
    sent += " --model-main main.py --lr 0.1 -- --note 'a  '\"'\"'b'\"'\"'\n'"
    assert asked.query == {"args": [sent]}
    assert arguments.read_arguments(asked.query["args"][0]).arguments == ("--lr", "0.1", "--note", "a  'b'\n")
    assert asked.headers["Authorization"] == f"Bearer {TOKEN}"
    assert name == "mnist.modelDir.tar"
    assert content[:2] == b"\x1f\x8b"
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        assert tar.getnames() == ["mnist", "mnist/main.py", "mnist/sub", "mnist/sub/part.py"]
        assert {(member.uid, member.uname) for member in tar} == {(0, "")}
        file = tar.extractfile("mnist/main.py")
        assert file is not None and file.read() == b"print('hello')\n"


def test_options_of_the_connection_are_not_sent(fake: Fake, do: Callable[..., tuple[int, str, str]]) -> None:
    fake.answer("POST", "/execs/", Answer(RECORD))
    hidden = ["--jwt-token", "t", "--username", "ann", "--password=pw", "--debug-level", "0", "--query-args", "a=1"]
    do("--exec-start", "PyTorch", *hidden, "--model-main", "/programs/a.py", "--epochs", "3", "--", "--username", "x")
    (asked,) = fake.asked
    sent = "--exec-start PyTorch --model-main /programs/a.py --epochs 3 -- --username x"
    assert asked.query == {"args": [sent], "a": ["1"]}
    assert asked.body == b""


def test_one_file_is_sent_as_it_is(fake: Fake, do: Callable[..., tuple[int, str, str]]) -> None:
    Path("sub").mkdir()
    Path("sub/train.py").write_text("pass\n" * 389 + "\n")
    fake.answer("POST", "/execs/", Answer(RECORD))
    code, out, _ = do("--exec-start", "PyTorch", "--model-main", "sub/train.py")
    assert code == 0 and out.startswith("Copying files and directories ...\nContent size: 1.9K\n{\n")
    assert fake.asked[0].file == ("train.py", Path("sub/train.py").read_bytes())
    assert fake.asked[0].query["args"] == ["--exec-start PyTorch --model-main train.py"]


def test_options_without_effect_are_reported_in_one_line_each(
    fake: Fake, do: Callable[..., tuple[int, str, str]]
) -> None:
    fake.answer("POST", "/execs/", Answer(RECORD))
    names = [name for name, (_, does, _) in dlicmd.SUBMIT.items() if not does]
    words = [word for name in names for word in ([name, "7"] if dlicmd.SUBMIT[name][0] else [name])]
    code, out, err = do("--exec-start", "PyTorch", *words, "--", "--numPs", "1")
    assert code == 0 and "Notice" not in out
    lines = err.splitlines()
    assert [line.split()[1] for line in lines] == names
    assert all(line.startswith(f"Notice: {name} is ignored: ") for name, line in zip(names, lines, strict=True))
    read = arguments.read_arguments(fake.asked[0].query["args"][0])
    assert read.ignored == tuple(names) and read.arguments == ("--numPs", "1")


def test_other_notices_of_the_server_are_printed(fake: Fake, do: Callable[..., tuple[int, str, str]]) -> None:
    notice = "Accepted, but without effect here: --numPs, more than one worker."
    fake.answer("POST", "/execs/", Answer({**RECORD, "notice": notice}))
    assert f"Notice: {notice}\n" in do("--exec-start", "PyTorch", "--numPs", "1")[2]
    fake.answer("POST", "/execs/", Answer({**RECORD, "notice": "Accepted, but without effect here: --numPs."}))
    code, out, err = do("--exec-start", "PyTorch", "--numPs=1")
    assert code == 0 and err.count("Notice") == 1 and json.loads(out)["appId"] == "j-1"
    near = "--numWoker is passed to the program; did you mean --numWorker?"
    fake.answer("POST", "/execs/", Answer({**RECORD, "notice": f"Accepted, but without effect here: --numPs. {near}"}))
    err = do("--exec-start", "PyTorch", "--numPs=1", "--numWoker", "4")[2]
    assert err.splitlines()[1:] == [f"Notice: {near}"]
    fake.answer("POST", "/execs/", Answer({**RECORD, "notice": near}))
    assert do("--exec-start", "PyTorch", "--numWoker", "4")[2] == f"Notice: {near}\n"


@pytest.mark.parametrize("flag", [["--exclusive"], ["--exclusive", "true"], ["--exclusive=false"]])
def test_a_flag_takes_nothing_from_the_program(
    flag: list[str], fake: Fake, do: Callable[..., tuple[int, str, str]]
) -> None:
    fake.answer("POST", "/execs/", Answer(RECORD))
    do("--exec-start", "PyTorch", *flag, "data.csv")
    read = arguments.read_arguments(fake.asked[0].query["args"][0])
    assert (read.arguments, read.ignored) == (("data.csv",), ("--exclusive",))


def test_a_value_that_begins_like_an_option_survives(fake: Fake, do: Callable[..., tuple[int, str, str]]) -> None:
    fake.answer("POST", "/execs/", Answer(RECORD))
    _, _, err = do(
        "--exec-start",
        "PyTorch",
        "--numPs=--1",
        "--msd-env=A=--x",
        "--appName=--name with blanks",
        "--msd-env",
        "B=$HOME;ls",
    )
    read = arguments.read_arguments(fake.asked[0].query["args"][0])
    assert err.startswith("Notice: --numPs is ignored: ") and err.count("\n") == 1
    assert read.environment == {"A": "--x", "B": "$HOME;ls"} and read.application == "--name with blanks"


@pytest.mark.parametrize("option", ["--user-cmd", "--pbmodel-name", "--pbmodel-cmd"])
def test_unsupported_options_are_refused_with_advice(
    option: str, fake: Fake, do: Callable[..., tuple[int, str, str]]
) -> None:
    code, out, err = do("--exec-start", "PyTorch", option, "x")
    assert (code, out, fake.asked) == (dlicmd.NOT_SUPPORTED, "", [])
    assert f"{option} is not supported: " in err and "--model-main" in err


@pytest.mark.parametrize("command", [name for name, rule in dlicmd.COMMANDS.items() if rule.run is dlicmd.refuse])
def test_tuning_and_inference_are_refused_with_advice(
    command: str, fake: Fake, do: Callable[..., tuple[int, str, str]]
) -> None:
    code, out, err = do(command, "a", "--model-dir")
    assert (code, out, fake.asked) == (dlicmd.NOT_SUPPORTED, "", [])
    assert err.startswith(f"Error: {command} is not supported: ") and "--exec-" in err


def test_the_targets_of_links_are_sent(fake: Fake, do: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    model = make_model(tmp_path)
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/common.py").write_text("shared\n")
    (model / "away").symlink_to(tmp_path / "shared")
    (model / "gone").symlink_to("nowhere")
    (model / "sub/loop").symlink_to(model)
    (model / "twin.py").hardlink_to(model / "main.py")
    os.mkfifo(model / "pipe")
    fake.answer("POST", "/execs/", Answer(RECORD))
    code, _, err = do("--exec-start", "PyTorch", "--model-dir", str(model), "--model-main", "main.py")
    assert code == 0
    assert [line.split(" is not packed: ")[1] for line in err.splitlines()] == [
        "it is a broken link.",
        "it is neither a file nor a directory.",
        "it is a link to a directory that contains it.",
    ]
    with tarfile.open(fileobj=io.BytesIO(fake.asked[0].file[1])) as tar:
        kinds = {member.name: member.isreg() for member in tar}
    assert kinds["mnist/away/common.py"] and kinds["mnist/twin.py"] and kinds["mnist/main.py"]
    assert sorted(name for name, is_file in kinds.items() if not is_file) == ["mnist", "mnist/away", "mnist/sub"]


@pytest.mark.parametrize("main", ["main.py", "./sub/part.py", "mnist/main.py", "/programs/main.py"])
def test_a_program_may_be_named_from_the_directory_on_or_with_it(
    main: str, fake: Fake, do: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    make_model(tmp_path)
    fake.answer("POST", "/execs/", Answer(RECORD))
    assert do("--exec-start", "PyTorch", "--model-dir", "../mnist", "--model-main", main)[0] == 0
    assert fake.asked[0].query["args"] == [f"--exec-start PyTorch --model-dir mnist --model-main {main}"]


def test_the_same_files_make_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model(tmp_path)

    def pack() -> bytes:
        with contextlib.ExitStack() as stack:
            return dlicmd.pack(model, stack).content.read()

    first = pack()
    monkeypatch.setattr(time, "time", lambda: 1.0)
    assert pack() == first


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--model-dir", "none"], "there is no such directory"),
        (["--model-dir", "file.py"], "it is not a directory"),
        (["--model-dir", "/"], "it has no name"),
        (["--model-dir", "../mnist", "--model-main", "mian.py"], "There is no file 'mian.py'"),
        (["--model-main", "mian.py"], "Give the directory of the program with --model-dir"),
        (["--model-main", "folder"], "folder"),
    ],
)
def test_a_model_that_cannot_be_sent_is_reported_before_the_upload(
    words: list[str], told: str, fake: Fake, do: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    make_model(tmp_path)
    Path("file.py").write_text("")
    Path("folder").mkdir()
    code, out, err = do("--exec-start", "PyTorch", *words)
    assert (code, fake.asked) == (dlicmd.REFUSED, [])
    assert told in err and err.count("\n") == 1 and "{" not in out


def test_a_file_that_cannot_be_read_is_named(
    fake: Fake, do: Callable[..., tuple[int, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(tmp_path)
    really_open = Path.open

    def refuse(path: Path, *args: Any, **more: Any) -> Any:
        if path.name == "part.py":
            raise PermissionError(13, "Permission denied", str(path))
        return really_open(path, *args, **more)

    monkeypatch.setattr(Path, "open", refuse)
    code, _, err = do("--exec-start", "PyTorch", "--model-dir", str(model), "--model-main", "main.py")
    assert (code, fake.asked) == (dlicmd.REFUSED, [])
    assert err == f"Error: Cannot pack '{model}/sub/part.py': Permission denied. Nothing was submitted.\n"


def test_a_refusal_of_the_server_is_printed_unchanged(fake: Fake, do: Callable[..., tuple[int, str, str]]) -> None:
    fake.answer("POST", "/execs/", Answer("Error 400: Instance group name X not found.\x1b[2J", 400))
    code, out, err = do("--exec-start", "PyTorch", "--ig", "X", "--model-main", "/a.py")
    assert (code, out) == (dlicmd.REFUSED, "")
    assert err == "Error 400: Instance group name X not found.?[2J\n"


def test_an_upload_that_is_refused_before_it_was_read_is_reported(
    fake: Fake, do: Callable[..., tuple[int, str, str]]
) -> None:
    Path("mnist").mkdir()
    Path("mnist/main.py").write_bytes(os.urandom(8 * 2**20))

    def refuse(handler: Any) -> None:
        handler.wfile.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 31\r\nConnection: close\r\n\r\n")
        handler.wfile.write(b"An upload has at most 256 MiB. ")
        handler.close_connection = True

    fake.answers[f"POST {API}/execs/"] = refuse
    code, _, err = do("--exec-start", "PyTorch", "--model-dir", "mnist", "--model-main", "main.py")
    assert (code, err) == (dlicmd.REFUSED, "Error 413: An upload has at most 256 MiB.\n")


def test_a_connection_that_breaks_during_the_submission_is_reported(
    fake: Fake, do: Callable[..., tuple[int, str, str]]
) -> None:
    Path("main.py").write_text("pass\n")

    def vanish(handler: Any) -> None:
        handler.rfile.read(10)
        handler.connection.shutdown(socket.SHUT_RDWR)
        handler.close_connection = True

    fake.answers[f"POST {API}/execs/"] = vanish
    code, out, err = do("--exec-start", "PyTorch", "--model-main", "main.py")
    assert code == dlicmd.NOT_REACHED and "{" not in out
    assert "Check with --exec-get-all whether the server accepted" in err and err.count("\n") == 1


def test_ctrl_c_during_the_submission_is_reported(
    fake: Fake, do: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(dlicmd, "read_json", interrupt)
    monkeypatch.setattr(dlicmd, "check", interrupt)
    fake.answer("POST", "/execs/", Answer(RECORD))
    code, out, err = do("--exec-start", "PyTorch", "--model-main", "/a.py")
    assert (code, out) == (dlicmd.INTERRUPTED, "")
    assert "Check with --exec-get-all" in err


# ---------------------------------------------------------------- executions


def test_an_execution_is_json_with_its_state(fake: Fake, do: Callable[..., tuple[int, str, str]]) -> None:
    fake.answer("GET", "/execs/j-1", Answer(RECORD))
    assert do("--exec-get", "j-1") == (0, json.dumps(RECORD, indent=4) + "\n", "")
    assert '\n    "state": "RUNNING",\n' in do("--exec-get", "j-1")[1]
    assert fake.asked[0].line == f"GET {API}/execs/j-1"


def test_the_table_of_executions(
    fake: Fake, do: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1767225600.0 + 125)
    other = {
        **RECORD,
        "id": "j-22",
        "elastic": False,
        "framework": "PyTorch",
        "appName": "\x1b[31mred",
        "numWorker": None,
    }
    fake.answer("GET", "/execs", Answer([RECORD, other]))
    code, out, err = do("--exec-get-all", "--query-args", "limit=10&sort_by=id:desc")
    assert (code, err) == (0, "")
    assert fake.asked[0].query == {"limit": ["10"], "sort_by": ["id:desc"]}
    assert out == (
        "id    submit_user  name     framework   type      state    num  submit_time           age\n"
        "j-1   ann          mnist    edtPyTorch  ELASTIC   RUNNING  4    2026-01-01T00:00:00Z  2m5s\n"
        "j-22  ann          ?[31mred  PyTorch     PARALLEL  RUNNING  -    2026-01-01T00:00:00Z  2m5s\n"
    ).replace("name     f", "name      f").replace("mnist    e", "mnist     e")


def test_tables_as_json_and_with_other_columns(fake: Fake, do: Callable[..., tuple[int, str, str]]) -> None:
    fake.answer("GET", "/execs", Answer([RECORD]))
    assert json.loads(do("--exec-get-all", "-o", "json")[1]) == [RECORD]
    assert do("--exec-get-all", "--output", "custom-columns=id,args,num")[1] == (
        "id   args                     num\nj-1  --exec-start edtPyTorch  4\n"
    )
    code, out, err = do("--exec-get-all", "-o", "custom-columns=id,nothing")
    assert (code, out) == (dlicmd.MISUSED, "") and "no column nothing" in err
    assert do("--exec-get-all", "-o", "yaml")[0] == dlicmd.MISUSED
    fake.answer("GET", "/execs", Answer([]))
    assert do("--exec-get-all")[1].split()[:2] == ["id", "submit_user"]


def test_stopping_and_deleting_print_the_lines_that_scripts_expect(
    fake: Fake, do: Callable[..., tuple[int, str, str]]
) -> None:
    fake.answer("POST", "/execs/j-1/stop", Answer("", 204))
    fake.answer("DELETE", "/execs/j-1", Answer("", 204))
    fake.answer("DELETE", "/execs", Answer("", 204))
    assert do("--exec-stop", "j-1") == (0, "Stop exec j-1 succeed. HTTP:204 \n", "")
    assert do("--exec-delete", "j-1") == (0, "Delete exec j-1 succeed. HTTP:204 \n", "")
    assert do("--exec-delete-all") == (0, "Execs are deleted\n", "")
    want = [f"POST {API}/execs/j-1/stop", f"DELETE {API}/execs/j-1", f"DELETE {API}/execs"]
    assert [request.line for request in fake.asked] == want


# ---------------------------------------------------------------- searches

SEARCH = {
    "hpoName": "ann-hpo-1",
    "creator": "ann",
    "state": "FINISHED",
    "progress": "2/2",
    "createtime": "2026-01-01 00:00:00",
    "duration": "00:01:00",
    "algoDef": {"algorithm": "Random"},
    "best": {"id": 1, "metricVal": 0.25},
    "experiments": [],
    "notice": "Bayesian is searched by TPE here.",
}


@pytest.mark.parametrize("answer", ["ann-hpo-1", {"uid": "ann-hpo-1", "href": f"{API}/hypersearch/ann-hpo-1"}])
def test_a_search_is_sent_with_its_program(
    answer: Any, fake: Fake, do: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    model = tmp_path / "tiny"
    model.mkdir()
    (model / "main.py").write_text("pass\n")
    Path("search.json").write_text('{"modelSpec": {"args": "\u00e4"}}')
    fake.answer("POST", "/hypersearch", Answer(json.dumps(answer)))
    fake.answer("GET", "/hypersearch/ann-hpo-1", Answer(SEARCH))
    code, out, err = do("--hpo-start", "search.json", "--model-dir", str(model))
    assert (code, err) == (0, "Notice: Bayesian is searched by TPE here.\n")
    assert out.startswith("Copying files and directories ...\nContent size: ")
    assert json.loads(out[out.index("{") :]) == {"hpoName": "ann-hpo-1"}
    head = f"Content-Type: {fake.asked[0].headers['Content-Type']}\r\n\r\n".encode()
    data, file = BytesParser().parsebytes(head + fake.asked[0].body).get_payload()
    assert json.loads(data.get_payload()) == {"modelSpec": {"args": "\u00e4"}}
    assert (file.get_param("name", header="content-disposition"), file.get_filename()) == ("file", "tiny.modelDir.tar")


def test_a_search_that_cannot_be_sent_is_refused(do: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    assert do("--hpo-start", "search.json")[0] == dlicmd.MISUSED
    assert do("--hpo-start", "none.json", "--model-dir", ".")[2].startswith("Error: Cannot read 'none.json'")
    Path("search.json").write_text("{")
    code, _, err = do("--hpo-start", "search.json", "--model-dir", ".")
    assert (code, "'search.json' is not JSON" in err) == (dlicmd.REFUSED, True)
    Path("search.json").write_bytes(b" " * (2**20 + 1))
    assert "more than 1048576 bytes" in do("--hpo-start", "search.json", "--model-dir", ".")[2]


def test_searches_are_shown_changed_and_deleted(fake: Fake, do: Callable[..., tuple[int, str, str]]) -> None:
    fake.answer("GET", "/hypersearch", Answer([SEARCH]))
    fake.answer("GET", "/hypersearch/ann-hpo-1", Answer(SEARCH))
    for method, path in (("PUT", ""), ("PUT", "/restart"), ("DELETE", "")):
        fake.answer(method, f"/hypersearch/ann-hpo-1{path}", Answer("", 204))
    fake.answer("DELETE", "/hypersearch", Answer("", 204))
    header, row = do("--hpo-get-all")[1].splitlines()
    assert header.split() == ["name", "creator", "algorithm", "state", "progress", "best", "createtime", "duration"]
    assert row.split() == [
        "ann-hpo-1",
        "ann",
        "Random",
        "FINISHED",
        "2/2",
        "0.25",
        "2026-01-01",
        "00:00:00",
        "00:01:00",
    ]
    assert json.loads(do("--hpo-get", "ann-hpo-1")[1]) == SEARCH
    assert do("--hpo-get", "ann-hpo-1", "-o", "custom-columns=state")[1] == "state\nFINISHED\n"
    assert do("--hpo-stop", "ann-hpo-1")[1] == "Stop hpo ann-hpo-1 succeed. HTTP:204 \n"
    assert do("--hpo-restart", "ann-hpo-1")[1] == "Restart hpo ann-hpo-1 succeed. HTTP:204 \n"
    assert do("--hpo-delete", "ann-hpo-1")[1] == "Delete hpo ann-hpo-1 succeed. HTTP:204 \n"
    assert do("--hpo-delete-all")[1] == "Hpos are deleted\n"
    fake.answer("GET", "/hypersearch/algorithm", Answer([{"name": "TPE", "type": "BUILD_IN"}]))
    fake.answer("GET", "/hypersearch/algorithm/TPE", Answer({"name": "TPE", "type": "BUILD_IN"}))
    fake.answer("DELETE", "/hypersearch/algorithm/TPE", Answer("Error 409: TPE is built in", 409))
    assert do("--hpo-algorithm-get-all")[1] == "name  type\nTPE   BUILD_IN\n"
    assert json.loads(do("--hpo-algorithm-get", "TPE")[1])["type"] == "BUILD_IN"
    assert do("--hpo-algorithm-delete", "TPE") == (dlicmd.REFUSED, "", "Error 409: TPE is built in\n")


@pytest.mark.parametrize("status", [400, 404, 409, 500, 501])
def test_refusals_have_exit_codes(status: int, fake: Fake, do: Callable[..., tuple[int, str, str]]) -> None:
    fake.answer("POST", "/execs/j-1/stop", Answer({"detail": "There is no such job."}, status))
    code, out, err = do("--exec-stop", "j-1")
    assert (code, out) == (dlicmd.NOT_SUPPORTED if status == 501 else dlicmd.REFUSED, "")
    assert err == f"Error {status}: There is no such job.\n"


def test_a_missing_permission_differs_from_a_missing_login(fake: Fake, do: Callable[..., tuple[int, str, str]]) -> None:
    fake.answer("DELETE", "/execs/j-1", Answer("Error 403: Cannot delete job 'x': it belongs to 'ben'.", 403))
    assert do("--exec-delete", "j-1") == (
        dlicmd.REFUSED,
        "Authentication error. The request was denied.\n",
        "Error 403: Cannot delete job 'x': it belongs to 'ben'.\n",
    )
    fake.answer("DELETE", "/execs/j-1", Answer("Error 401: it has expired", 401))
    assert do("--exec-delete", "j-1")[0] == dlicmd.NOT_LOGGED_ON


def test_get_requests_to_a_busy_server_are_repeated(
    fake: Fake, do: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(dlicmd.time, "sleep", pauses.append)
    answers = [Answer("busy", 429, Retry_After="3"), Answer("busy", 503), Answer(RECORD)]
    fake.answer("GET", "/execs/j-1", lambda: answers.pop(0))
    assert do("--exec-get", "j-1")[0] == 0
    assert pauses == [3.0, 1.0]
    fake.answer("POST", "/execs/j-1/stop", Answer("busy", 503))
    assert do("--exec-stop", "j-1")[0] == dlicmd.REFUSED
    assert pauses == [3.0, 1.0]


@pytest.mark.parametrize(
    ("command", "kind"),
    [("--exec-trainlogs", "outerrlog"), ("--exec-trainoutlogs", "outlog"), ("--exec-trainerrlogs", "errlog")],
)
def test_logs_of_the_program_are_printed_unchanged(
    command: str, kind: str, fake: Fake, do: Callable[..., tuple[int, str, str]]
) -> None:
    text = "Test loss: 0.1\nTest accuracy: 0.9 ü\nno end"
    fake.answer("GET", "/execs/j-1/log", Answer(text, Content_Type="text/plain"))
    assert do(command, "j-1") == (0, text, "")
    assert fake.asked[0].query == {"logType": [kind]}
    assert fake.asked[0].headers["Accept"] == "text/plain"
    fake.answer("GET", "/execs/j-1/log", Answer("Test loss: 0.1\n"))
    fake.answer("GET", "/execs/j-1/log", Answer(json.dumps("a\nb"), Content_Type="application/json"))
    assert do(command, "j-1")[1] == "a\nb\n"


def make_zip() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("model/model_epoch_final.pth", b"weights")
    return content.getvalue()


def test_the_result_is_saved_by_the_name_of_the_server(fake: Fake, do: Callable[..., tuple[int, str, str]]) -> None:
    disposition = f"attachment; filename=dlpd-model-1-j-1-result.zip;size={len(make_zip())}"
    fake.answer("GET", "/execs/j-1/result", Answer(make_zip(), Content_Disposition=disposition))
    want = "Train result is saved to dlpd-model-1-j-1-result.zip\n"
    assert do("--exec-trainresult", "j-1") == (0, want, "")
    assert Path("dlpd-model-1-j-1-result.zip").read_bytes() == make_zip()
    code, out, err = do("--exec-trainresult", "j-1")
    assert (code, out) == (0, want) and "is replaced" in err
    assert [path.name for path in Path().iterdir()] == ["dlpd-model-1-j-1-result.zip"]


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("../../evil.zip", "evil.zip"),
        ("/etc/cron.d/evil", "evil.zip"),
        ("..\\evil.zip", "evil.zip"),
        ('"a b\u00fc.zip"', "a_b__.zip"),
        (".bashrc", "bashrc.zip"),
        ("train.py", "train.py.zip"),
        ("..", "dlpd-model-j-1-result.zip"),
        ("", "dlpd-model-j-1-result.zip"),
    ],
)
def test_a_result_is_a_zip_file_in_the_working_directory(
    name: str, want: str, fake: Fake, do: Callable[..., tuple[int, str, str]]
) -> None:
    Path("train.py").write_text("mine")
    disposition = f"attachment; filename={name}; size=1".encode().decode("latin-1")
    fake.answer("GET", "/execs/j-1/result", Answer(make_zip(), Content_Disposition=disposition))
    assert do("--exec-trainresult", "j-1")[1] == f"Train result is saved to {want}\n"
    assert {path.name for path in Path().iterdir()} == {"train.py", want}
    assert Path("train.py").read_text() == "mine"


def test_half_a_result_is_not_saved(fake: Fake, do: Callable[..., tuple[int, str, str]]) -> None:
    def half(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(make_zip())))
        handler.end_headers()
        handler.wfile.write(make_zip()[:20])
        handler.close_connection = True

    fake.answers[f"GET {API}/execs/j-1/result"] = half
    code, out, err = do("--exec-trainresult", "j-1")
    assert (code, out) == (dlicmd.NOT_REACHED, "")
    assert f"20 of {len(make_zip())} bytes" in err or "part of the answer is missing" in err
    fake.answer("GET", "/execs/j-1/result", Answer(b"no zip"))
    assert do("--exec-trainresult", "j-1")[0] == dlicmd.REFUSED
    assert list(Path().iterdir()) == []


# ---------------------------------------------------------------- applications

APPLICATION = {
    "id": "j-1",
    "name": "mnist",
    "consumer": "default",
    "submit_user": "ann",
    "type": "ELASTIC",
    "priority": 5000,
    "state": "RUNNING",
    "used_gpu": 2,
    "used_mem": 0,
    "used_cpu": 2,
    "task12n_num": 2,
    "submit_time": 1767225600,
    "start_time": 1767225610,
    "end_time": 0,
}


def test_the_tables_of_applications(
    fake: Fake, do: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1767225600.0 + 3720)
    times = ["2026-01-01T00:00:00Z", "2026-01-01T00:00:10Z"]
    fake.answer("GET", "/scheduler/engine/applications", Answer([APPLICATION]))
    assert [line.split() for line in do("--app-get-all", "--app-search-start", "5")[1].splitlines()] == [
        [
            "id",
            "consumer",
            "submit_user",
            "name",
            "pri",
            "type",
            "state",
            "num",
            "gpu",
            "mem",
            "cpu",
            "submit_time",
            "start_time",
            "age",
        ],
        [*["j-1", "default", "ann", "mnist", "5000", "ELASTIC", "RUNNING", "2", "2", "0", "2"], *times, "1h2m"],
    ]
    assert fake.asked[0].query == {
        "start": ["5"],
        "length": ["10000"],
        "sort": ["-submit_time"],
        "state": ["NEW,SUBMITTED,PENDING_JOB_SCHEDULER,PENDING_CRD_SCHEDULER,LAUNCHING,RUNNING,RECOVERING,UNKNOWN"],
    }
    ended = {**APPLICATION, "state": "FINISHED", "end_time": 1767225640}
    fake.answer("GET", "/scheduler/engine/applications", Answer([ended]))
    lines = do("--app-history-get-all", "--app-search-length", "7")[1].splitlines()
    assert [line.split()[-1] for line in lines] == ["duration", "30s"]
    assert (fake.asked[1].query["state"], fake.asked[1].query["length"]) == (["FINISHED,KILLED,ERROR"], ["7"])


@pytest.mark.parametrize(("end", "want"), [("FINISHED", 0), ("ERROR", dlicmd.NOT_FINISHED), ("KILLED", 6)])
def test_waiting_prints_a_line_every_ten_seconds(
    end: str,
    want: int,
    fake: Fake,
    do: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1767225600.0]
    pauses = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(dlicmd.time, "sleep", sleep)
    monkeypatch.setattr(dlicmd.time, "time", lambda: now[0])
    pending = {**APPLICATION, "state": "PENDING_CRD_SCHEDULER"}
    answers = [pending, APPLICATION, {**APPLICATION, "state": end, "end_time": 1767225620}]
    fake.answer("GET", "/scheduler/engine/applications/j-1", lambda: Answer(answers.pop(0)))
    code, out, err = do("--app-wait", "j-1")
    assert (code, err) == (want, "")
    assert out == f"j-1 PENDING_CRD_SCHEDULER 0s\nj-1 RUNNING 10s\nj-1 {end} 20s\n"
    assert pauses == [10.0, 10.0]


def test_waiting_survives_a_server_that_is_away_for_a_while(
    fake: Fake, do: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dlicmd.time, "sleep", lambda _: None)
    polls = []

    def away(handler: Any) -> None:
        polls.append(1)
        if len(polls) < 4:
            handler.close_connection = True
            return
        body = json.dumps({**APPLICATION, "state": "FINISHED"}).encode()
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    fake.answers[f"GET {API}/scheduler/engine/applications/j-1"] = away
    code, out, err = do("--app-wait", "j-1")
    assert code == 0 and out.startswith("j-1 FINISHED ") and err.count("The command tries again.") == 3
    fake.answer("GET", "/scheduler/engine/applications/j-1", Answer("no such application", 404))
    assert do("--app-wait", "j-1") == (dlicmd.REFUSED, "", "Error 404: no such application\n")
    assert len(polls) == 4


@pytest.mark.parametrize("away", ["nothing listens", "a proxy without a server"])
def test_waiting_begins_although_the_server_is_away(
    away: str, fake: Fake, do: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.answer("GET", "/scheduler/engine/applications/j-1", Answer({**APPLICATION, "state": "FINISHED"}))
    conf = fake.answers[f"GET {API}/conf"]
    fake.answers[f"GET {API}/conf"] = Answer("<html>bad gateway", 502)
    real, port, pauses = dlicmd.list_places, fake.port, []

    def list_places(host: str, _: int) -> list[dlicmd.Place]:
        return real(host, port if len(pauses) > 2 or away != "nothing listens" else closed_port())

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) > 2:
            fake.answers[f"GET {API}/conf"] = conf

    monkeypatch.setattr(dlicmd, "list_places", list_places)
    monkeypatch.setattr(dlicmd.time, "sleep", sleep)
    code, out, err = do("--app-wait", "j-1")
    assert code == 0 and out.startswith("j-1 FINISHED ")
    lines = err.splitlines()
    assert len(lines) == 3 and pauses == [10.0] * 3
    assert all(re.fullmatch("Notice: Cannot find the server.*The command tries again.", line) for line in lines)


def test_waiting_for_a_missing_server_ends_and_another_kind_of_server_is_reported_at_once(
    fake: Fake, do: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dlicmd.time, "sleep", lambda _: None)
    monkeypatch.setattr(dlicmd, "_MAX_SILENT_POLLS", 5)
    fake.answer("GET", "/scheduler/engine/applications/j-1", Answer("bad gateway", 502))
    code, out, err = do("--app-wait", "j-1")
    assert (code, out) == (dlicmd.REFUSED, "")
    assert err.count("The command tries again.") == 5 and err.endswith("Error 502: bad gateway\n")
    assert dlicmd.main(["--app-wait", "j-1", "--rest-host", "no-such-host.invalid"]) == dlicmd.NOT_REACHED
    dlicmd.write_keys({})
    assert do("--app-wait", "j-1")[0] == dlicmd.NOT_LOGGED_ON


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def test_applications_are_stopped_one_by_one_and_a_refusal_stops_no_other(
    fake: Fake, do: Callable[..., tuple[int, str, str]]
) -> None:
    fake.answer("PUT", "/scheduler/applications/j-1/stop", Answer("it has ended", 409))
    fake.answer("PUT", "/scheduler/applications/j-2/stop", Answer("", 204))
    code, out, err = do("--app-stop", "j-1", "j-2")
    assert (code, out) == (dlicmd.REFUSED, "Stop app j-2 succeed. HTTP:204 \n")
    assert err == "j-1: Error 409: it has ended\n"
    theirs = {**APPLICATION, "id": "j-3", "submit_user": "bob"}
    fake.answers["GET /v1/preauth/validateAuth"] = Answer({"username": "ann"})
    fake.answer("GET", "/scheduler/engine/applications", Answer([{**APPLICATION, "id": "j-2"}, theirs]))
    assert do("--app-stop-all")[:2] == (0, "Stop app j-2 succeed. HTTP:204 \n")


def test_the_analysis_counts_recent_submissions(
    fake: Fake, do: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dlicmd.time, "time", lambda: 1767225600.0 + 7100)
    quick = {**APPLICATION, "state": "FINISHED", "start_time": 1767225604, "end_time": 1767225624}
    slow = {**quick, "start_time": 1767225608, "end_time": 1767225668}
    old = {**quick, "submit_time": 1767225600 - 9000}
    waiting = {**APPLICATION, "state": "PENDING_CRD_SCHEDULER", "start_time": 0, "submit_time": 1767225600 + 7000}
    fake.answer("GET", "/scheduler/engine/applications", Answer([quick, slow, old, waiting]))
    assert do("--app-analyze")[1].splitlines() == [
        "Applications submitted in the last 2 hours: 3",
        "state                  num  waited_mean  waited_max  ran_mean  ran_max",
        "PENDING_CRD_SCHEDULER  1    1m40s        1m40s       -         -",
        "FINISHED               2    6s           8s          40s       1m0s",
    ]
    assert do("--app-analyze", "5")[1].startswith("Applications submitted in the last 5 hours: 4\n")
    assert do("--app-analyze", "soon")[0] == dlicmd.MISUSED


@pytest.mark.parametrize("group", ["exec", "app"])
@pytest.mark.parametrize(
    ("log", "kind"), [("launcherlogs", "launcherlog"), ("outlogs", "stdout"), ("errlogs", "stderr")]
)
def test_logs_of_processes_come_from_the_driver_and_each_executor(
    group: str, log: str, kind: str, fake: Fake, do: Callable[..., tuple[int, str, str]]
) -> None:
    executors = [{"id": "executor-j-1-3"}, {"id": "executor-j-1-1"}]
    fake.answer("GET", "/scheduler/applications", Answer([{"applicationid": "j-1", "executors": executors}]))
    base = "/scheduler/applications/j-1"
    fake.answer("GET", f"{base}/driver/logs/{kind}", Answer("of the driver\n"))
    fake.answer("GET", f"{base}/executor/1/logs/{kind}", Answer("of the first"))
    code, out, err = do(f"--{group}-{log}", "j-1", "--query-args", "lastlines=7")
    assert (code, err) == (0, "")
    assert out == (
        f"======== driver {kind} ========\nof the driver\n"
        f"======== executor 1 {kind} ========\nof the first\n"
        f"======== executor 3 {kind} ========\n(there is no such log)\n"
    )
    assert [request.query for request in fake.asked[1:]] == 3 * [{"lastlines": ["7"]}]


# ---------------------------------------------------------------- other commands


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (["--status"], "/status"),
        (["--dl-frameworks"], "/execs/frameworks"),
        (["--rp-get-all"], "/resplans/resplantree"),
        (["--rp-get", "a b"], "/resplans/resplan/a%20b"),
        (["--pj-get-all"], "/scheduler/kubernetesobjects?type=paralleljob"),
        (["--k8s-obj-get-all", "pod"], "/scheduler/kubernetesobjects?type=pod"),
        (["--k8s-obj-get", "pod", "p-1"], "/scheduler/kubernetesobjects?type=pod&name=p-1"),
    ],
)
def test_the_answer_of_a_path_is_printed(
    words: list[str], path: str, fake: Fake, do: Callable[..., tuple[int, str, str]]
) -> None:
    fake.answer("GET", path.partition("?")[0], Answer({"a": 1}))
    assert do(*words) == (0, '{\n    "a": 1\n}\n', "")
    assert fake.asked[0].line == f"GET {API}{path}"
    fake.answer("GET", path.partition("?")[0], Answer("plain"))
    assert do(*words)[1] == "plain\n"


def test_a_plan_is_deleted(fake: Fake, do: Callable[..., tuple[int, str, str]]) -> None:
    fake.answer("DELETE", "/resplans/resplan/gold", Answer("", 204))
    assert do("--rp-delete", "gold")[:2] == (0, "Delete resource plan gold succeed. HTTP:204 \n")


def test_options_of_a_submission_at_another_command_are_reported(
    fake: Fake, do: Callable[..., tuple[int, str, str]]
) -> None:
    fake.answer("GET", "/execs/j-1", Answer(RECORD))
    code, out, err = do("--exec-get", "j-1", "--ig", "g")
    assert code == 0 and json.loads(out) == RECORD and err == "Notice: --ig is ignored: --exec-get does not use it.\n"


@pytest.mark.parametrize(
    ("words", "ignored"),
    [
        (["--exec-get", "j-1", "-o", "json"], None),
        (["--exec-get", "j-1", "--app-search-start", "3"], "--app-search-start"),
        (["--status", "-o", "json"], None),
        (["--status", "-o", "custom-columns=a"], "--output"),
        (["--exec-stop", "j-1", "--output=json"], "--output"),
        (["--app-get-all", "--app-search-length", "3", "-o", "json"], None),
        (["--app-analyze", "--app-search-length", "3"], None),
    ],
)
def test_options_of_the_output_are_used_or_reported(
    words: list[str], ignored: str | None, fake: Fake, do: Callable[..., tuple[int, str, str]]
) -> None:
    fake.answer("GET", "/execs/j-1", Answer(RECORD))
    fake.answer("POST", "/execs/j-1/stop", Answer("", 204))
    fake.answer("GET", "/status", Answer({}))
    fake.answer("GET", "/scheduler/engine/applications", Answer([]))
    code, _, err = do(*words)
    assert code == 0
    assert err == ("" if ignored is None else f"Notice: {ignored} is ignored: {words[0]} does not use it.\n")


def test_misspelled_words_get_a_suggestion(fake: Fake, do: Callable[..., tuple[int, str, str]]) -> None:
    assert do("--exec-gt", "j-1")[2].startswith(
        "Error: '--exec-gt' is not a command. Did you mean --exec-get? The first"
    )
    assert "has no option --rest-hots. Did you mean --rest-host?" in do("--exec-get", "j-1", "--rest-hots", "h")[2]
    assert "Did you mean" not in do("--frobnicate")[2]


def test_debugging_shows_requests_and_no_secrets(fake: Fake, do: Callable[..., tuple[int, str, str]]) -> None:
    fake.answer("POST", "/execs/", Answer(RECORD))
    _, out, err = do("--exec-start", "PyTorch", "--debug-level", "debug", "--msd-env", "KEY=hush")
    assert f"Debug: POST {fake.url}{API}/execs/: 200\n" in err and "hush" not in err and TOKEN not in err
    assert json.loads(out)["execId"] == "j-1"


def test_a_closed_pipe_is_not_an_error(fake: Fake) -> None:
    fake.answer("GET", "/execs", Answer([{**RECORD, "id": f"j-{number}"} for number in range(20000)]))
    command = f"{sys.executable} {PROGRAM} --exec-get-all --rest-host {fake.url} | head -n 1"
    done = subprocess.run(["bash", "-c", command], env=os.environ, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("id ") and done.stderr == ""


def test_ctrl_c_is_reported_in_one_line(
    fake: Fake, do: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(dlicmd.time, "sleep", interrupt)
    fake.answer("GET", "/scheduler/engine/applications/j-1", Answer(APPLICATION))
    code, _, err = do("--app-wait", "j-1")
    assert (code, err) == (dlicmd.INTERRUPTED, "Interrupted.\n")


def test_a_plain_http_proxy_is_used_where_the_variables_say_so(
    fake: Fake, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = []

    def relay(handler: Any) -> None:
        lines.append((handler.path, handler.headers["Proxy-Authorization"]))
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")

    base = "http://gpu.invalid:8765"
    fake.answers[f"GET {base}{API}/conf"] = fake.answers[f"GET {base}{API}/status"] = relay
    monkeypatch.setenv("http_proxy", fake.url.replace("//", "//me:pw@"))
    dlicmd.write_keys({base: TOKEN})
    assert dlicmd.main(["--status", "--rest-host", base]) == 0
    assert [path for path, _ in lines] == [f"{base}{API}/conf", f"{base}{API}/status"]
    assert {word for _, word in lines} == {f"Basic {base64.b64encode(b'me:pw').decode()}"}
    monkeypatch.setenv("no_proxy", "gpu.invalid")
    assert dlicmd.main(["--status", "--rest-host", base]) == dlicmd.NOT_REACHED
    capsys.readouterr()
