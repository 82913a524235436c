"""The start of a server: its directory, port, slots and store. Each error says what to do, and nothing was started."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import resource
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import msgspec
import pytest
import structlog
from tests.unit.server.platform import NOW, Platform

from legato.client.servers import find_local, find_server
from legato.control.home_lock import claim_home
from legato.control.people import Token
from legato.control.records import Lease
from legato.control.roles import Asker, Role
from legato.control.settings import Settings
from legato.control.store import Store, open_store
from legato.core.errors import LegatoError, SettingsError, StoreError, Unauthenticated, UsageError
from legato.engines.machine_kind import find_kind
from legato.server import local_login, machine, serving
from legato.server.local_login import FILE, LocalLogin, keep_local_login, write_private
from legato.server.log_lines import begin_log
from legato.server.machine import Declaration, find_slots, list_names, name_node
from legato.server.serving import (
    FIRST_FILE,
    SERVER_FILE,
    ServerFile,
    _greet,
    _place_own,
    _written,
    make_admin_token,
    serve,
    upgrade_store,
)
from legato.server.startup_checks import allow_files, enter, find_url, hold_home, is_loopback, listen, open_home
from legato.server.tls import ServerTls
from legato.system import hosts


@pytest.fixture(autouse=True)
def same_log() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


def make_settings(home: Path, **changes: Any) -> Settings:
    return Settings(**{"home": home, "port": 0, "slots": 2, **changes})


def refuse(settings: Settings, error: type[Exception], told: str, **how: Any) -> None:
    """Check that no server starts with these settings, and that it says nothing but why."""
    said: list[str] = []
    with pytest.raises(error, match=told), enter(settings) as sockets:
        serve(settings, sockets, say=said.append, **how)
    assert said == []


# ---------------------------------------------------------------- the directory


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for home in (tmp_path / "file", tmp_path / "file" / "inside"):
        with pytest.raises(UsageError, match=r"Cannot write to '.*file.*': .+ Make it a directory that this"):
            open_home(home)
        refuse(make_settings(home), UsageError, "Cannot write to")
    home = tmp_path / "deep" / "home"
    open_home(home)
    assert home.stat().st_mode & 0o077 == 0
    assert list(home.iterdir()) == []


def test_a_home_that_others_could_read_is_closed_with_its_content(tmp_path: Path) -> None:
    home = tmp_path / "home"
    job = home / "jobs" / "j-1"
    job.mkdir(parents=True)
    for folder in (home, home / "jobs", job):
        folder.chmod(0o755)
    (job / "driver.log").write_text("secret")
    (job / "driver.log").chmod(0o644)
    (job / "train.sh").touch()
    (job / "train.sh").chmod(0o755)
    outside = tmp_path / "outside"
    outside.touch()
    outside.chmod(0o644)
    (job / "link").symlink_to(outside)
    open_home(home)
    found = {path.name: path.lstat().st_mode & 0o777 for path in (home, home / "jobs", job, *job.iterdir())}
    assert all(mode & 0o066 == 0 for name, mode in found.items() if name != "link")
    assert (found["home"], found["driver.log"], found["train.sh"] & 0o700) == (0o700, 0o600, 0o700)
    assert outside.stat().st_mode & 0o777 == 0o644, "what lies elsewhere stays as it is"
    home.chmod(0o700)
    (job / "driver.log").chmod(0o644)
    open_home(home)
    assert (job / "driver.log").stat().st_mode & 0o777 == 0o644, "in a closed home nothing is looked through"
    assert open_home(tmp_path / "new") is None
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


def test_a_directory_of_others_is_refused_and_not_closed(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/set").touch()
    for path in (tmp_path, tmp_path / "data", tmp_path / "data/set"):
        path.chmod(0o755)
    (tmp_path / ".profile").touch()
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UsageError, match=r"holds files that are not Legato's. Name a directory of its own"):
        open_home(tmp_path)
    assert tmp_path.stat().st_mode & 0o777 == 0o755
    (tmp_path / "thesis.tex").rename(tmp_path / "legato.toml")
    open_home(tmp_path)
    assert tmp_path.stat().st_mode & 0o777 == 0o700
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("data", "data/set")] == [0o755, 0o755]


def test_a_second_server_is_kept_out(tmp_path: Path) -> None:
    with hold_home(tmp_path, is_shared=False):
        for is_shared in (False, True):
            with (
                pytest.raises(UsageError, match="another server runs on"),
                hold_home(tmp_path, is_shared=is_shared),
            ):
                pass
        refuse(make_settings(tmp_path), UsageError, "Use that one, stop it, or name another directory")
    with hold_home(tmp_path, is_shared=True), hold_home(tmp_path, is_shared=True):
        refuse(make_settings(tmp_path), UsageError, "another server runs on")
    with hold_home(tmp_path, is_shared=False):
        pass


# ---------------------------------------------------------------- the port


def test_the_server_listens_at_the_host_of_the_settings(tmp_path: Path) -> None:
    for host, want in (
        ("127.0.0.1", "http://127.0.0.1:"),
        ("localhost", "http://localhost:"),
        ("", "http://localhost:"),
    ):
        settings = make_settings(tmp_path, host=host)
        sockets = listen(settings)
        url = find_url(settings, sockets)
        assert url.startswith(want)
        port = int(url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=10):
            pass
        again = make_settings(tmp_path, host=host, port=port)
        with pytest.raises(UsageError, match=f":{port}: something else listens there. Stop it, or choose another port"):
            listen(again)
        refuse(again, UsageError, "something else listens there")
        assert not (tmp_path / "legato.db").exists(), "nothing was begun"
        for opened in sockets:
            # By this number asyncio knows that small answers are not to be held back.
            assert opened.proto == socket.IPPROTO_TCP
            opened.close()


@pytest.mark.parametrize(
    ("host", "told"),
    [
        ("192.0.2.7", "it is not an address of this machine"),
        ("no.such.host.invalid", "is not a host name or address"),
    ],
)
def test_an_unusable_address_is_refused(tmp_path: Path, host: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        listen(make_settings(tmp_path, host=host, port=9))


@pytest.mark.skipif(not socket.has_ipv6, reason="there is no IPv6 here")
def test_the_server_listens_at_ipv6_addresses(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, host="::1")
    try:
        sockets = listen(settings)
    except UsageError:
        pytest.skip("there is no IPv6 here")
    assert find_url(settings, sockets).startswith("http://[::1]:")
    for opened in sockets:
        opened.close()


def test_a_failed_start_is_reported_before_the_server_is_loaded(tmp_path: Path) -> None:
    program = f"""
import sys
from pathlib import Path
from legato.cli.platform.server import up
from legato.core.errors import UsageError
from legato.server.startup_checks import hold_home
with hold_home(Path({str(tmp_path)!r}), is_shared=False):
    try:
        up(home={str(tmp_path)!r}, port="0")
    except UsageError as error:
        print(error)
print(*sorted({{"fastapi", "sqlalchemy", "uvicorn"}} & set(sys.modules)))
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(serving.__file__).parents[2])}
    command = [sys.executable, "-c", program]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert told.startswith(f"Cannot start: another server runs on '{tmp_path}'.")
    assert told.splitlines()[1:] == [""], "what it needs to answer requests was loaded in vain"


def test_old_objects_in_cycles_do_not_wait_long_for_the_garbage_collector() -> None:
    # In a process of its own, because the garbage collector's settings are those of the process.
    program = """
import weakref
from legato.server.serving import _NUM_NEW_OBJECTS, _collect_rarely

class Stream:
    pass

_collect_rarely()
stream = Stream()
stream.itself, found = stream, weakref.ref(stream)
kept = [[] for _ in range(3 * _NUM_NEW_OBJECTS)]
print(found() is not None)
del stream
kept += [[] for _ in range(6 * _NUM_NEW_OBJECTS)]
print(found() is not None)
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(serving.__file__).parents[2])}
    command = [sys.executable, "-c", program]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert told.split() == ["True", "False"]


# ---------------------------------------------------------------- the store


def test_a_store_that_cannot_be_used(tmp_path: Path) -> None:
    away = "postgresql://ann:geheim@127.0.0.1:1/legato"
    settings = make_settings(tmp_path, database_url=away)
    with pytest.raises(StoreError) as refusal, enter(settings) as sockets:
        serve(settings, sockets, say=print)
    assert "Check that the database runs" in str(refusal.value)
    assert "geheim" not in str(refusal.value)
    refuse(make_settings(tmp_path, database_url="mysql://a/b"), UsageError, "database_url begins with 'mysql://'")
    (tmp_path / "legato.db").write_bytes(b"no database at all" * 100)
    refuse(make_settings(tmp_path), StoreError, "file is not a database")


def test_the_store_is_made_and_its_admin_has_a_token(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    upgrade_store(settings)
    upgrade_store(settings)
    secret = make_admin_token(settings, "recovery")
    again = make_admin_token(settings, "recovery")
    assert secret != again
    with open_store(settings.store_url) as store:
        for shown in (secret, again):
            assert store.tokens.verify(shown, time.time()) == Asker("admin", Role.ADMIN)
    with pytest.raises(UsageError, match="Cannot name a token"):
        make_admin_token(settings, "-odd")


# ---------------------------------------------------------------- this machine


def test_the_slots_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "find_devices", tuple)
    assert find_slots(3) == ("cpu",) * 3
    assert find_slots(0) == ()
    assert set(find_slots(None)) == {"cpu"}
    monkeypatch.setattr(machine, "find_devices", lambda: ("cuda:0", "cuda:1"))
    assert find_slots(None) == ("cuda:0", "cuda:1")
    assert find_slots(1) == ("cuda:0",)
    with pytest.raises(SettingsError, match="Cannot offer slots=3: this machine has 2 GPUs"):
        find_slots(3)
    refuse(make_settings(tmp_path, slots=3), SettingsError, "Cannot offer slots=3")


def test_a_machine_keeps_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "Gpu_7 (lab).example.org")
    assert name_node(tmp_path) == "Gpu_7-lab"
    monkeypatch.setattr(socket, "gethostname", lambda: "renamed")
    assert name_node(tmp_path) == "Gpu_7-lab", "jobs that run remember their slots by it"
    (tmp_path / "other").mkdir()
    monkeypatch.setattr(socket, "gethostname", lambda: "((((.org")
    assert name_node(tmp_path / "other") == "here"


def test_slots_without_a_server_are_gone(platform: Platform) -> None:
    lease = platform.lead(num_slots=2)
    Declaration(platform.store, "mine", ("cpu", "cuda:0")).declare(lease, NOW)
    slots = {slot.id: (slot.device, slot.unusable_since) for slot in platform.store.pool.list_slots()}
    assert slots == {"mine/0": ("cpu", None), "mine/1": ("cuda:0", None)}
    Declaration(platform.store, "mine", ("cpu",)).declare(lease, NOW)
    assert [slot.id for slot in platform.store.pool.list_slots() if slot.unusable_since is None] == ["mine/0"]


def test_the_servers_machine_has_a_kind_before_others_join(platform: Platform) -> None:
    Declaration(platform.store, "mine", ("cpu",)).declare(platform.lead(num_slots=1), NOW)
    assert {node.name: node.kind for node in platform.store.pool.list_nodes()}["mine"] == find_kind().name


def test_a_damaged_row_of_a_slot_is_put_right_at_the_start(platform: Platform) -> None:
    lease = platform.lead(num_slots=1)
    declaration = Declaration(platform.store, "mine", ("cpu", "cpu"))
    declaration.declare(lease, NOW)
    with contextlib.closing(sqlite3.connect(platform.home / "legato.db")) as raw:
        raw.execute("UPDATE slots SET node = 'gone', device = x'ff' WHERE id = 'mine/0'")
        raw.commit()
    declaration.declare(lease, NOW)
    slots = {slot.id: (slot.node, slot.unusable_since) for slot in platform.store.pool.list_slots()}
    assert slots == {"mine/0": ("mine", None), "mine/1": ("mine", None)}


# ---------------------------------------------------------------- what it says


def test_the_server_prints_its_address_and_first_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = make_settings(tmp_path)
    monkeypatch.setenv("LEGATO_HOME", str(settings.home_path))
    first = list(_greet(settings, "http://localhost:1", ("cpu", "cpu"), ("the first start",), is_local=True))
    assert "answers at http://localhost:1, with 2 slots (cpu); all its files are in" in first[0]
    assert first[1:] == [
        "the first start",
        "You are logged in on this machine: 'legato ps' lists jobs, 'legato console' opens the web console.",
        "Other users log in with: legato login http://localhost:1",
    ]
    monkeypatch.setenv("LEGATO_HOME", str(tmp_path / "another"))
    elsewhere = list(_greet(settings, "http://localhost:1", ("cpu",), is_local=True))
    assert elsewhere[1] == f"Commands find this home by a variable: export LEGATO_HOME={settings.home_path}"
    later = list(_greet(settings, "http://localhost:1", ()))
    assert len(later) == 2 and "with no slots" in later[0]
    assert later[1] == "Log in with: legato login http://localhost:1", "this system user is not logged in"
    warned = list(_greet(settings, "http://0.0.0.0:1", ("cpu",), is_open=True))
    assert warned[1].startswith("Warning: other machines can reach this server, and jobs run here as the user that")
    assert warned[1].endswith("whom you trust with that, and use TLS (tls=own).")
    tls = ServerTls(make_settings(tmp_path, tls="own"), NOW)
    warned = list(_greet(settings, "https://0.0.0.0:1", ("cpu",), is_open=True, tls=tls))
    assert warned[1].endswith("whom you trust with that."), "it uses TLS"
    assert len(list(_greet(settings, "http://0.0.0.0:1", (), is_open=True))) == 2, "no job runs here"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_first_token_is_shown_only_at_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    settings = make_settings(tmp_path)
    told: list[str] = []
    found: list[Token] = []

    async def run(*_: object) -> None:
        # The server answers now.
        with open_store(settings.store_url) as store:
            found.extend(store.tokens.list())
        assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600

    monkeypatch.setattr(serving, "_run", run)
    with enter(settings) as sockets:
        serve(settings, sockets, say=told.append, is_terminal=is_terminal)
    first = next(token for token in found if token.name == "first-start")
    assert first.expires_at is not None and first.expires_at - first.created_at == 86_400
    file = tmp_path / FIRST_FILE
    if is_terminal:
        assert "lgt_" in str(told) and "lgc_" in str(told) and not file.exists()
    else:
        assert "lgt_" not in str(told) and "lgc_" not in str(told) and f"'{file}'" in str(told)
        text = file.read_text()
        assert "  lgt_" in text and "#/welcome?code=lgc_" in text and file.stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / FILE).exists(), "it goes with the server"
    told.clear()
    with enter(settings) as sockets:
        serve(settings, sockets, say=told.append, is_terminal=is_terminal)
    assert "First start" not in str(told)


def test_the_user_who_runs_the_server_stays_logged_in_when_a_password_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wait_for_renewal(login: LocalLogin) -> None:
        renewed, renew, loop = asyncio.Event(), login.renew, asyncio.get_running_loop()

        def renew_and_tell(now: float) -> None:
            renew(now)
            loop.call_soon_threadsafe(renewed.set)

        monkeypatch.setattr(login, "renew", renew_and_tell)
        keeping = asyncio.create_task(keep_local_login(login, NOW, look_every_s=0.001))
        await asyncio.wait_for(renewed.wait(), 60)
        keeping.cancel()

    def read() -> str:
        return str(msgspec.json.decode((tmp_path / FILE).read_bytes())["token"])

    with open_store(make_settings(tmp_path).store_url) as store:
        store.tokens.create_first(NOW)
        login = LocalLogin(store, tmp_path / FILE, "http://localhost:1")
        login.renew(NOW)
        store.accounts.set_password("admin", "correct horse", Asker("admin", Role.ADMIN), NOW)
        assert login.was_revoked()
        asyncio.run(wait_for_renewal(login))
        assert store.tokens.verify(read(), NOW + 1).name == "admin"


def test_a_private_file_that_others_could_read_is_refused_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keep_no_modes(path: Path, content: bytes) -> None:
        path.write_bytes(content)
        path.chmod(0o644)

    write_private(tmp_path / "token", "secret")
    assert (tmp_path / "token").read_text() == "secret"
    monkeypatch.setattr(local_login, "replace_file", keep_no_modes)
    with pytest.raises(
        LegatoError, match=r"Cannot keep .*token private: .* the mode 644, and other users could read it"
    ):
        write_private(tmp_path / "token", "secret")
    assert not (tmp_path / "token").exists()


def test_the_user_who_runs_the_server_is_logged_in_on_its_machine(tmp_path: Path) -> None:
    platform_home, settings = tmp_path, make_settings(tmp_path)
    with open_store(settings.store_url) as store, enter(settings) as sockets:
        store.tokens.create_first(NOW)
        url = find_url(settings, sockets)
        login = LocalLogin(store, platform_home / FILE, url)
        login.renew(NOW)
        environment = {"LEGATO_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
        server = find_server(environment=environment)
        assert (server.url, server.user) == (url, "admin") and server.token is not None
        assert store.tokens.verify(server.token, NOW) == Asker("admin", Role.ADMIN)
        assert find_server(url, environment=environment) == server
        assert find_server("http://localhost:1", environment=environment).token is None, "for no other address"
        login.renew(NOW + 1)
        with pytest.raises(Unauthenticated, match="revoked"):
            store.tokens.verify(server.token, NOW + 1)
        again = find_local(environment)
        assert again is not None and again.token != server.token
        file = tmp_path / FILE
        file.chmod(0o640)
        assert find_local(environment) is None, "others may have read it, or written it"
        file.chmod(0o600)
        assert find_local(environment) == again
        file.rename(tmp_path / "elsewhere")
        file.symlink_to(tmp_path / "elsewhere")
        assert find_local(environment) is None
        (tmp_path / "elsewhere").rename(file)
    assert find_local(environment) is None, "another server at that address does not get it"
    with open_store(settings.store_url) as store:
        login = LocalLogin(store, platform_home / FILE, url)
        login.renew(NOW + 2)
        login.end(NOW + 3)
        assert not file.exists()
        assert all(token.revoked_at for token in store.tokens.list() if token.name == "this-machine")


def test_servers_of_several_machines_that_share_a_home_log_their_users_in_each_on_its_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {"LEGATO_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    shared = make_settings(tmp_path, database_url="postgresql+psycopg://db/legato")

    def be(name: str) -> None:
        monkeypatch.setattr(hosts, "find_this_machine", lambda: hosts.Machine(name, f"id of {name}", name))

    settings = make_settings(tmp_path)
    with open_store(settings.store_url) as store, enter(settings) as sockets:
        store.tokens.create_first(NOW)
        url = find_url(settings, sockets)
        logins, tokens = {}, {}
        for name in ("one", "two"):
            be(name)
            logins[name] = LocalLogin(store, _place_own(shared, FILE), url)
            logins[name].renew(NOW)
        for name in ("one", "two"):
            be(name)
            found = find_local(environment)
            assert found is not None and found.token is not None
            assert store.tokens.verify(found.token, NOW) == Asker("admin", Role.ADMIN), "not revoked by the other"
            tokens[name] = found.token
            assert not logins[name].was_revoked()
        assert tokens["one"] != tokens["two"]
        be("three")
        assert find_local(environment) is None, "no server runs on this machine"
        logins["one"].end(NOW)
        be("two")
        assert find_local(environment) is not None, "its server runs on"
        assert list_names(tmp_path) == {}, "these files name no machine of the pool"


def test_a_second_server_of_a_machine_leaves_the_token_of_the_first_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With PostgreSQL, several servers of a machine share the file. Each renews a token that was revoked."""
    with open_store(make_settings(tmp_path).store_url) as store:
        store.tokens.create_first(NOW)
        first, second = (LocalLogin(store, tmp_path / FILE, f"http://localhost:{port}") for port in (1, 2))
        monkeypatch.setattr(os, "getpid", os.getppid)  # another process that runs
        first.renew(NOW)
        monkeypatch.undo()
        second.renew(NOW)
        assert not first.was_revoked() and not second.was_revoked()
        first.end(NOW)
        assert first.was_revoked() and (tmp_path / FILE).exists() and not second.was_revoked()


@pytest.mark.parametrize(("host", "want"), [("127.0.0.1", True), ("localhost", True), ("0.0.0.0", False), ("", False)])
def test_is_loopback_knows_addresses_that_only_this_machine_reaches(tmp_path: Path, host: str, want: bool) -> None:
    sockets = listen(make_settings(tmp_path, host=host))
    assert is_loopback(sockets) is want
    for opened in sockets:
        opened.close()


def test_the_log_is_lines_of_json_without_variables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begin_log(make_settings(tmp_path))
    log = structlog.get_logger("legato.test")
    log.debug("left out")
    log.info("told", job="j-1")
    logging.getLogger("elsewhere").warning("by %s", "another")
    for name in ("uvicorn.error", "httpx", "httpcore.connection"):
        logging.getLogger(name).info("left out")
    secret = "geheim"
    try:
        raise RuntimeError("a story of " + str(len(secret)))
    except RuntimeError:
        log.exception("failed")
    told = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["level"], line["event"]) for line in told] == [
        ("info", "told"),
        ("warning", "by another"),
        ("error", "failed"),
    ]
    assert (told[0]["job"], told[0]["logger"]) == ("j-1", "legato.test")
    assert "RuntimeError: a story of 6" in told[2]["exception"]
    assert "geheim" not in json.dumps(told), "variables may hold secrets"


def test_the_log_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begin_log(make_settings(tmp_path, log_format="text", log_level="warning"))
    log = structlog.get_logger("legato.test")
    log.info("left out")
    try:
        raise RuntimeError("a story")
    except RuntimeError:
        log.exception("failed", job="j-1")
    told = capsys.readouterr().err
    assert "left out" not in told
    assert "failed" in told and "job=j-1" in told and "RuntimeError: a story" in told


def test_the_log_escapes_control_characters_from_requests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begin_log(make_settings(tmp_path, log_format="text"))
    log = structlog.get_logger("legato.test")
    log.info("request", path="/nobody/\x1b]0;OWNED\x07\nforged", user=["\x1b[2J"])
    try:
        raise RuntimeError("a \x1b[31mstory\x9b")
    except RuntimeError:
        log.exception("failed")
    logging.getLogger("uvicorn.error").warning("foreign \x1b[2J\u202e")
    told = capsys.readouterr().err
    assert not set(told) & set("\x1b\x07\x9b\u202e")
    assert r"/nobody/\x1b]0;OWNED\x07\x0aforged" in told and r"a \x1b[31mstory\x9b" in told
    assert r"foreign \x1b[2J\u202e" in told


def test_the_server_raises_its_limit_of_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = [(1024, 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: bounds[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _kind, wanted: bounds.append(wanted))
    assert allow_files() == 4096 and bounds[-1] == (4096, 4096)
    for before, want in (
        ((1024, resource.RLIM_INFINITY), (65_536, resource.RLIM_INFINITY)),
        ((1024, 10**9), (65_536, 10**9)),
        ((100_000, 10**9), (100_000, 10**9)),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), (resource.RLIM_INFINITY, resource.RLIM_INFINITY)),
    ):
        bounds.append(before)
        allow_files()
        assert bounds[-1] == want


def test_only_the_server_that_wrote_its_file_removes_it(tmp_path: Path) -> None:
    file = tmp_path / SERVER_FILE
    mine, other = ServerFile("http://localhost:1", 1), ServerFile("http://localhost:2", 2)
    with _written(mine, file):
        assert msgspec.json.decode(file.read_bytes(), type=ServerFile) == mine
    assert not file.exists()
    with _written(mine, file):
        with _written(other, file):
            pass
        assert not file.exists()
    with _written(other, file):
        file.write_bytes(msgspec.json.encode(mine))
    assert msgspec.json.decode(file.read_bytes(), type=ServerFile) == mine, "it runs"
    with _written(other, file):
        file.write_text("odd")
    assert file.read_text() == "odd"


# ---------------------------------------------------------------- one home, one server


def test_a_store_whose_jobs_are_in_another_home(tmp_path: Path) -> None:
    settings = make_settings(tmp_path / "second", database_url=f"sqlite:///{tmp_path / 'one.db'}")
    first = tmp_path / "first"
    first.mkdir()
    with open_store(settings.store_url) as store:
        claim_home(store, first, NOW)
    for runs_jobs in (True, False):
        told = "Cannot use this store: the directories of its jobs are in another home"
        refuse(settings, UsageError, told, runs_jobs=runs_jobs)


def test_a_server_alone_in_its_directory_waits_for_no_lease(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its last server was killed a moment ago, and the clock was set back since."""
    settings = make_settings(tmp_path)
    with open_store(settings.store_url) as store:
        store.loop.take_lease("the last one", 2e9, 10.0)
    taken: list[Lease | None] = []

    async def run(_settings: Settings, store: Store, *_given: Any) -> None:
        taken.append(store.loop.take_lease("this one", NOW, 10.0))

    monkeypatch.setattr(serving, "_run", run)
    monkeypatch.setattr(serving.time, "time", lambda: NOW)
    with enter(settings) as sockets:
        serve(settings, sockets, say=lambda _line: None)
    assert taken == [Lease(owner="this one", expires_at=NOW + 10.0, fence=2)]


@pytest.mark.parametrize("runs_jobs", [True, False])
def test_only_a_server_that_may_lead_uses_clusters(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, runs_jobs: bool
) -> None:
    """Another server may lack what the clusters need, such as their credentials."""
    made: list[Any] = []
    parts: list[Any] = []

    def make_pools(*_given: Any, **_more: Any) -> dict[str, Any]:
        made.append(1)
        return {"slurm": MagicMock()}

    async def stop(_web: Any, _sockets: Any, _services: Any, given: Any) -> None:
        parts.extend(given)

    monkeypatch.setattr(serving, "make_pools", make_pools)
    monkeypatch.setattr(serving, "_serve_until_stopped", stop)
    settings = make_settings(tmp_path)
    with enter(settings) as sockets:
        serve(settings, sockets, say=lambda _line: None, runs_jobs=runs_jobs)
    assert (bool(made), "cluster slurm" in parts) == (runs_jobs, runs_jobs)
