"""TLS of the server: its own authority, its certificates, and clients that do not speak TLS or say nothing."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import structlog
from tests.unit.server.platform import LIMIT_S, Platform, check_problem
from tests.unit.server.test_agents import REPORT

from legato.client.connection import Line
from legato.client.retries import NotTrusted
from legato.client.servers import Server
from legato.control.settings import Settings, read_settings
from legato.core.agent_messages import AGENT_PROTOCOL
from legato.core.errors import SettingsError, Unavailable, UsageError
from legato.server import tls as server_tls
from legato.server.startup_checks import find_url, listen
from legato.server.tls import AUTHORITY_FILE, FOLDER, ServerTls, choose_public_url, list_names, open_authority
from legato.system import tls as tls_module
from legato.system.certificates import Certificate, issue, make_authority
from legato.system.tls import fetch_authority, fingerprint, make_client_context

NewPlatform = Callable[..., Platform]
ONE_DAY_S = 86_400.0


def make_settings(home: Path, **changes: Any) -> Settings:
    return Settings(home=home, port=0, **changes)


def write_files(folder: Path, made: Certificate) -> dict[str, Path]:
    """Write a certificate as an operator gets it from an authority."""
    (folder / "server.pem").write_text(made.certificate)
    (folder / "server.key").write_text(made.key)
    return {"tls_certificate": folder / "server.pem", "tls_key": folder / "server.key"}


@contextlib.contextmanager
def connected(platform: Platform, context: ssl.SSLContext, name: str = "localhost") -> Iterator[ssl.SSLSocket]:
    where = urlsplit(platform.url)
    with (
        socket.create_connection((where.hostname, where.port), timeout=LIMIT_S) as plain,
        context.wrap_socket(plain, server_hostname=name) as opened,
    ):
        yield opened


def serial_of(platform: Platform, context: ssl.SSLContext, name: str = "localhost") -> str:
    """The number of the certificate that the server shows a new client."""
    with connected(platform, context, name) as opened:
        shown: Any = opened.getpeercert()
        return str(shown["serialNumber"])


# ---------------------------------------------------------------- the authority


def test_the_first_server_makes_the_authority_and_all_others_of_the_home_use_it(tmp_path: Path) -> None:
    made: list[Certificate] = []
    threads = [threading.Thread(target=lambda: made.append(open_authority(tmp_path, time.time()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [open_authority(tmp_path, time.time())] * 4, "also if they start at the same time"
    file = tmp_path / FOLDER / AUTHORITY_FILE
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file, file.parent)] == [0o600, 0o700]
    assert [path.name for path in file.parent.iterdir()] == [AUTHORITY_FILE]


def test_an_authority_that_cannot_be_used_is_named_with_the_remedy(tmp_path: Path) -> None:
    made = open_authority(tmp_path, time.time() - 3651 * ONE_DAY_S)
    with pytest.raises(SettingsError, match=r"ends within 0 days\. Remove the file and restart"):
        open_authority(tmp_path, time.time())
    file = tmp_path / FOLDER / AUTHORITY_FILE
    for content in ("", made.certificate, made.key, made.key + made.certificate.replace("MII", "XXX")):
        file.write_text(content)
        with pytest.raises(SettingsError, match=r"Cannot use the server's own certificate authority .*backup"):
            open_authority(tmp_path, time.time())


def test_the_certificate_has_the_names_by_which_clients_may_call_the_server(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, allowed_hosts=("gpu.example.org", "*", "[::1]"), host="10.0.0.5")
    names = list_names(settings)
    wanted = {"localhost", "127.0.0.1", "::1", "gpu.example.org", "10.0.0.5", socket.gethostname().lower()}
    assert wanted <= set(names) and "*" not in names and len(names) == len(set(names))
    assert choose_public_url(settings, "https://localhost:8765") == "https://gpu.example.org:8765"
    alone = make_settings(tmp_path)
    assert choose_public_url(alone, "https://localhost:8765") == "https://localhost:8765"
    with pytest.raises(SettingsError, match=r"the name 'a\.\.b'.*allowed_hosts"):
        ServerTls(make_settings(tmp_path, tls="own", allowed_hosts=("a..b",)), time.time())


def test_settings_of_tls_that_do_not_fit_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEGATO_HOME", str(tmp_path))
    for flags, told in (
        ({"tls_key": "k"}, "belong together"),
        ({"tls_certificate": "c", "tls_key": "k", "tls": "own"}, "exclude each other"),
        ({"tls": "yes"}, "'off' or 'own'"),
    ):
        with pytest.raises(SettingsError, match=told):
            read_settings(flags=flags)


# ---------------------------------------------------------------- clients


def test_clients_that_trust_the_authority_use_the_server_by_https(new_platform: NewPlatform) -> None:
    platform = new_platform(tls="own")
    assert platform.url.startswith("https://127.0.0.1:")
    assert platform.get("me")["name"] == "ann"
    shown = fetch_authority(platform.url)
    assert shown is not None and platform.tls is not None
    assert fingerprint(shown) == platform.tls.pin
    with contextlib.closing(Line(Server(url=platform.url, ca=shown))) as line:
        assert line.send("GET", "/version", is_open=True).status_code == 200
    stranger = make_authority("Legato CA", time.time()).certificate
    for ca in (stranger, None):
        with (
            contextlib.closing(Line(Server(url=platform.url, token="secret", ca=ca), patience_s=0)) as line,
            pytest.raises(Exception, match=r"safely: .*legato login https://127\.0\.0\.1:\d+ --ca FINGERPRINT"),
        ):
            line.send("GET", "/me")


def test_a_server_that_is_called_by_another_name_is_not_taken_for_a_stranger(new_platform: NewPlatform) -> None:
    platform = new_platform(tls="own")
    assert platform.tls is not None
    server = Server(url=platform.url.replace("127.0.0.1", "127.0.0.9"), ca=platform.tls.authority)
    other = socket.create_server(("127.0.0.9", urlsplit(platform.url).port or 0))
    context = platform.tls.context

    def serve() -> None:
        with contextlib.suppress(OSError):
            context.wrap_socket(other.accept()[0], server_side=True)

    thread = threading.Thread(target=serve)
    thread.start()
    with contextlib.closing(Line(server)) as line, pytest.raises(Unavailable, match="setting allowed_hosts"):
        line.send("GET", "/version", is_open=True)
    thread.join()
    other.close()


def test_the_authority_is_not_fetched_from_a_server_that_refuses_or_hangs(
    new_platform: NewPlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = new_platform(tls="own", allowed_hosts=("gpu.example.org",), host="127.0.0.1")
    resolve = socket.getaddrinfo
    with monkeypatch.context() as patched:
        patched.setattr(socket, "getaddrinfo", lambda _host, *more, **named: resolve("127.0.0.1", *more, **named))
        with pytest.raises(UsageError, match=r"answers 4\d\d: The server is not known by the name 'other\.test'"):
            fetch_authority(platform.url.replace("127.0.0.1", "other.test"))
        assert fetch_authority(platform.url.replace("127.0.0.1", "localhost")), "a name that it always has"

    monkeypatch.setattr(tls_module, "_FETCH_LIMIT_S", 0.2)
    assert platform.tls is not None
    context, silent, done = platform.tls.context, socket.create_server(("127.0.0.1", 0)), threading.Event()

    def drip() -> None:
        """Send a part of an answer again and again, each in time."""
        with contextlib.suppress(OSError), context.wrap_socket(silent.accept()[0], server_side=True) as opened:
            opened.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n")
            while not done.wait(0.02):
                opened.sendall(b"x")

    thread = threading.Thread(target=drip)
    thread.start()
    with contextlib.suppress(OSError):  # what came until then is no certificate
        assert fetch_authority(f"https://127.0.0.1:{silent.getsockname()[1]}") is None
    assert not done.is_set()
    done.set()
    thread.join()
    silent.close()


def test_a_server_in_the_middle_cannot_add_its_own_authority_to_the_one_of_the_fingerprint() -> None:
    real, other = make_authority("Legato CA", time.time()), make_authority("in the middle", time.time())
    made = issue(other, ["localhost", "127.0.0.1"], time.time())
    context = tls_module.make_server_context()
    tls_module.load_certificate(context, made.certificate, made.key)
    middle = socket.create_server(("127.0.0.1", 0))
    middle.settimeout(LIMIT_S)
    shown = (real.certificate + other.certificate).encode()

    def serve() -> None:
        with context.wrap_socket(middle.accept()[0], server_side=True) as opened:
            opened.recv(10_000)
            opened.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(shown), shown))
        with contextlib.suppress(OSError):
            context.wrap_socket(middle.accept()[0], server_side=True).close()

    thread = threading.Thread(target=serve)
    thread.start()
    url = f"https://127.0.0.1:{middle.getsockname()[1]}"
    trusted = fetch_authority(url)
    assert trusted is not None and fingerprint(trusted) == fingerprint(real.certificate)
    line = Line(Server(url=url, token="secret", ca=trusted), patience_s=0)
    with contextlib.closing(line), pytest.raises(NotTrusted):
        line.send("GET", "/me")
    thread.join()
    middle.close()


def test_a_session_of_a_browser_is_for_tls_only(new_platform: NewPlatform) -> None:
    platform = new_platform(tls="own")
    answer = platform.ask("POST", "session", {"token": platform.secrets["ann"]}, who=None)
    assert "__Host-legato_session=" in answer.headers["set-cookie"] and "Secure" in answer.headers["set-cookie"]


def test_a_client_without_tls_gets_an_answer_that_says_https(new_platform: NewPlatform) -> None:
    platform = new_platform(tls="own")
    problem = httpx.get(platform.url.replace("https", "http") + "/version")
    assert problem.status_code == 400
    assert problem.json()["detail"] == (
        "This server speaks TLS only. Write https:// instead of http:// in its address."
    )


def connect_silently(platform: Platform, stack: contextlib.ExitStack) -> socket.socket:
    where = urlsplit(platform.url)
    return stack.enter_context(socket.create_connection((where.hostname, where.port), timeout=LIMIT_S))


def test_clients_in_the_handshake_count_as_connections(new_platform: NewPlatform) -> None:
    platform = new_platform(tls="own", max_connections_of_address=10, head_limit_s=2 * LIMIT_S)
    with contextlib.ExitStack() as stack:
        silent = [connect_silently(platform, stack) for _ in range(40)]
        assert platform.get("me")["name"] == "ann", "the oldest make room"
        for each in silent[:30]:
            with contextlib.suppress(ConnectionResetError):
                assert each.recv(1) == b""


def test_a_client_that_says_nothing_or_nonsense_is_dropped(new_platform: NewPlatform) -> None:
    platform = new_platform(tls="own", head_limit_s=0.2)
    with contextlib.ExitStack() as stack:
        silent, broken = connect_silently(platform, stack), connect_silently(platform, stack)
        assert silent.recv(1) == b""
        broken.sendall(b"\x16\x03\x01nonsense" * 100)
        with contextlib.suppress(ConnectionError):
            while broken.recv(1000):
                pass
    assert platform.get("me")["name"] == "ann"


def test_a_server_that_stops_does_not_wait_for_idle_clients(tmp_path: Path, template: Path) -> None:
    with contextlib.ExitStack() as stack:
        with Platform(tmp_path / "home", template, tls="own").running() as platform:
            assert platform.tls is not None
            idle = stack.enter_context(connected(platform, make_client_context(platform.tls.authority)))
            idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"200 OK" in idle.recv(1000)
        # The server has stopped although this client never answered the end of TLS.
        with contextlib.suppress(ConnectionError):
            while idle.recv(1000):
                pass


# ---------------------------------------------------------------- renewal


def greet(tls: ServerTls, client: ssl.SSLContext, during: Callable[[], None] = lambda: None) -> str:
    """Return the number of the certificate that a new client sees; it talks to the server after the call ``during``."""
    there, here = socket.socketpair()

    def serve() -> None:
        with tls.context.wrap_socket(there, server_side=True) as opened:
            opened.sendall(opened.recv(10))

    thread = threading.Thread(target=serve)
    thread.start()
    with client.wrap_socket(here, server_hostname="localhost") as opened:
        shown: Any = opened.getpeercert()
        during()
        opened.sendall(b"hello")
        assert opened.recv(10) == b"hello"
    thread.join()
    return str(shown["serialNumber"])


def test_a_certificate_is_replaced_after_two_thirds_of_its_life_and_present_connections_stay(tmp_path: Path) -> None:
    now = time.time()
    tls = ServerTls(make_settings(tmp_path, tls="own"), now - 59 * ONE_DAY_S)
    client = make_client_context(tls.authority)
    first = greet(tls, client)
    assert greet(tls, client, lambda: tls.refresh(now)) == first == greet(tls, client)
    assert greet(tls, client, lambda: tls.refresh(now + ONE_DAY_S)) == first != greet(tls, client)


def test_a_certificate_that_was_made_while_the_clock_was_ahead_is_replaced_when_it_is_right(tmp_path: Path) -> None:
    now = time.time()
    open_authority(tmp_path, now)
    tls = ServerTls(make_settings(tmp_path, tls="own"), now + 10 * ONE_DAY_S)
    tls.refresh(now)
    assert greet(tls, make_client_context(tls.authority))


def test_an_authority_that_was_made_while_the_clock_was_ahead_is_reported_with_the_remedy(tmp_path: Path) -> None:
    now = time.time()
    open_authority(tmp_path, now + 10 * ONE_DAY_S)
    with structlog.testing.capture_logs() as lines:
        open_authority(tmp_path, now)
    assert [line["log_level"] for line in lines] == ["warning"]
    assert "is valid only in 9.0 days: the clock was ahead" in lines[0]["event"]


def test_a_certificate_that_cannot_be_replaced_now_is_replaced_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors of the system, such as too many open files, must not end the server."""
    now, num_tries = time.time(), 0
    tls = ServerTls(make_settings(tmp_path, tls="own"), now - 61 * ONE_DAY_S)
    client = make_client_context(tls.authority)
    first = greet(tls, client)
    load = server_tls.load_certificate

    async def play() -> None:
        done = asyncio.Event()

        def fail_twice(*given: Any) -> None:
            nonlocal num_tries
            num_tries += 1
            if num_tries <= 2:
                raise OSError(errno.EMFILE, "Too many open files")
            load(*given)
            done.set()

        monkeypatch.setattr(server_tls, "load_certificate", fail_twice)
        monkeypatch.setattr(server_tls, "_LOOK_EVERY_S", 0.0)
        keeping = asyncio.create_task(tls.keep_fresh())
        await asyncio.wait([keeping, asyncio.create_task(done.wait())], return_when=asyncio.FIRST_COMPLETED)
        assert not keeping.done()
        keeping.cancel()

    asyncio.run(play())
    assert greet(tls, client) != first


def test_a_certificate_of_another_authority_is_read_again_when_its_files_change(
    new_platform: NewPlatform, tmp_path: Path
) -> None:
    company = make_authority("Company CA", time.time())
    files = write_files(tmp_path, issue(company, ["gpu.example.org"], time.time()))
    platform = new_platform(**files, allowed_hosts=("gpu.example.org", "localhost"))
    assert platform.tls is not None
    assert (platform.tls.pin, platform.tls.is_own) == ("", False)
    assert platform.ask("GET", "/ca.pem").status_code == 404, "the own authority is for this machine"
    context = make_client_context(company.certificate)
    first = serial_of(platform, context, "gpu.example.org")

    write_files(tmp_path, issue(company, ["gpu.example.org"], time.time()))
    platform.tls.refresh(time.time())
    second = serial_of(platform, context, "gpu.example.org")
    assert second != first

    (tmp_path / "server.key").write_text(make_authority("x", time.time()).key)
    with pytest.raises(SettingsError, match=r"Cannot use tls_certificate=.*server\.pem"):
        platform.tls.refresh(time.time())
    assert serial_of(platform, context, "gpu.example.org") == second, "the server keeps what works"
    # Programs on this machine know the server by the own authority, because no other has a certificate of this name.
    assert platform.url.startswith("https://localhost:")
    assert platform.get("me")["name"] == "ann"


@pytest.mark.parametrize("missing", ["server.pem", "server.key"])
def test_files_that_cannot_be_used_are_refused_at_the_start(tmp_path: Path, missing: str) -> None:
    files = write_files(tmp_path, make_authority("Company CA", time.time()))
    settings = make_settings(tmp_path, **files)
    (tmp_path / missing).write_text("nothing")
    with pytest.raises(SettingsError, match="Cannot use tls_certificate"):
        ServerTls(settings, time.time())
    (tmp_path / missing).unlink()
    with pytest.raises(SettingsError, match=r"Cannot use tls_certificate.*No such file"):
        ServerTls(settings, time.time())


def test_the_url_for_programs_of_this_machine_has_a_name_that_they_can_verify(tmp_path: Path) -> None:
    files = write_files(tmp_path, make_authority("Company CA", time.time()))
    for settings, wanted in (
        (make_settings(tmp_path, tls="own"), "https://127.0.0.1:"),
        (make_settings(tmp_path, **files), "https://localhost:"),
        (make_settings(tmp_path), "http://127.0.0.1:"),
    ):
        (opened,) = listen(settings)
        with opened:
            assert find_url(settings, [opened]).startswith(wanted)


# ---------------------------------------------------------------- machines


def join(platform: Platform, token: str, **headers: str) -> httpx.Response:
    said = {"token": token, "node": "b", "identity": "one", "version": "0.1.0", "protocol": AGENT_PROTOCOL}
    return platform.ask("POST", "agents/join", said, who=None, **headers)


@pytest.mark.parametrize(("tls", "allows"), [("own", False), ("own", True), ("off", False), ("off", True)])
def test_a_join_token_says_how_machines_verify_the_server(new_platform: NewPlatform, tls: str, allows: bool) -> None:
    platform = new_platform(tls=tls, allow_plain_agents=allows)
    secret, _, suffix = platform.ask("POST", "join-tokens", {}, who="admin").json()["secret"].partition(".")
    wanted = platform.tls.pin if platform.tls is not None else "plain" if allows else ""
    assert suffix == wanted
    assert join(platform, secret).status_code == 200


def test_machines_of_other_hosts_are_refused_without_tls_unless_the_operator_allows_them(
    new_platform: NewPlatform,
) -> None:
    platform = new_platform(host="0.0.0.0", trusted_proxies=("127.0.0.1",))
    token = platform.ask("POST", "join-tokens", {}, who="admin").json()["secret"]
    refused = check_problem(join(platform, token, X_Forwarded_For="10.0.0.7"), 403, "forbidden")
    assert "without TLS" in str(refused) and "allow_plain_agents=true" in str(refused)
    secret = join(platform, token, X_Forwarded_For="10.0.0.7", X_Forwarded_Proto="https").json()["secret"]
    for headers, status in (
        ({"X_Forwarded_For": "10.0.0.7"}, 403),
        ({"X_Forwarded_For": "10.0.0.7", "X_Forwarded_Proto": "https"}, 200),
        ({}, 200),
    ):
        shown = {"Authorization": f"Bearer {secret}", **headers}
        assert platform.ask("POST", "agents/report", REPORT, who=None, **shown).status_code == status, headers
    code = platform.ask(
        "GET", f"agents/code/{'a' * 64}", who=None, Authorization=f"Bearer {secret}", X_Forwarded_For="10.0.0.7"
    )
    assert code.status_code == 403


def test_plain_http_through_an_unknown_proxy_on_the_servers_host_is_not_taken_for_this_machine(
    new_platform: NewPlatform,
) -> None:
    platform = new_platform(host="0.0.0.0")
    token = platform.ask("POST", "join-tokens", {}, who="admin").json()["secret"]
    check_problem(join(platform, token, X_Forwarded_For="10.0.0.7"), 403, "forbidden", "without TLS")
    check_problem(join(platform, token, Forwarded="for=10.0.0.7"), 403, "forbidden", "without TLS")
    assert join(platform, token).status_code == 200


def test_machines_of_other_hosts_may_do_without_tls_if_the_operator_allows_it(new_platform: NewPlatform) -> None:
    platform = new_platform(host="0.0.0.0", trusted_proxies=("127.0.0.1",), allow_plain_agents=True)
    token = platform.ask("POST", "join-tokens", {}, who="admin").json()["secret"].partition(".")[0]
    assert join(platform, token, X_Forwarded_For="10.0.0.7").status_code == 200
