"""The choice of the server and its token, and the file that stores both."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

import legato
from legato.client.servers import (
    KnownServers,
    LocalServer,
    Server,
    check_token,
    find_file,
    find_server,
    is_in_the_clear,
    read_known,
    read_url,
    write_known,
)
from legato.core.errors import NotFound, Unauthenticated, UsageError

PROD = Server(url="https://gpu.example.org", token="lgt_prod", token_id="t-1", user="anna")
HERE = Server(url="http://localhost:8765", token="lgt_here")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "deep" / "legato" / "servers.json"
    write_known(KnownServers().with_server("here", HERE).with_server("prod", PROD), file)
    return file


def test_the_file_is_for_its_owner_alone_and_nothing_else_is_left(file: Path) -> None:
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o644)
    write_known(read_known(file).using("here"), file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(file.parent.iterdir()) == [file]
    known = read_known(file)
    assert known.current == "here"
    assert known.servers == {"here": HERE, "prod": PROD}


def test_the_authority_of_a_server_is_kept_with_it_and_used_with_any_token(file: Path) -> None:
    own = Server(url="https://own.example.org:8765", token="lgt_own", ca="PEM")
    write_known(read_known(file).with_server("own", own), file)
    assert find_server(environment={}, file=file) == own
    environment = {"LEGATO_SERVER": own.url, "LEGATO_TOKEN": "lgt_other"}
    assert find_server(environment=environment, file=file) == Server(url=own.url, token="lgt_other", ca="PEM")
    assert find_server("prod", environment=environment, file=file).ca is None


def test_the_server_of_this_machine_is_looked_for_only_if_it_can_add_something(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = LocalServer(url="http://127.0.0.1:8765", token="lgt_local", user="admin", home=tmp_path)
    looked: list[LocalServer] = []

    def find(found: LocalServer) -> None:
        monkeypatch.setattr("legato.client.servers.find_local", lambda _: looked.append(found) or found)

    find(plain)
    assert find_server("here", environment={}, file=file) == HERE
    environment = {"LEGATO_SERVER": plain.url, "LEGATO_TOKEN": "lgt_other"}
    assert find_server(environment=environment, file=file) == Server(url=plain.url, token="lgt_other")
    assert looked == []
    assert find_server(plain.url, environment={}, file=file) == plain
    tls = LocalServer(url="https://127.0.0.1:8765", token="lgt_local", user="admin", ca="PEM", home=tmp_path)
    find(tls)
    environment["LEGATO_SERVER"] = tls.url
    assert find_server(environment=environment, file=file) == Server(url=tls.url, token="lgt_other", ca="PEM")
    assert looked == [plain, tls]


def test_a_file_that_cannot_be_read_says_what_to_do(file: Path) -> None:
    file.write_text('{"current": 7}')
    with pytest.raises(UsageError, match=f"Cannot read '{file}'.*Correct it, or delete it and log in again"):
        find_server(environment={}, file=file)
    file.unlink()
    file.mkdir()
    with pytest.raises(UsageError, match=f"Cannot read '{file}': Is a directory. Make it readable"):
        find_server(environment={}, file=file)


@pytest.mark.parametrize(
    ("said", "environment", "url", "token"),
    [
        (None, {}, PROD.url, "lgt_prod"),
        ("current", {}, PROD.url, "lgt_prod"),
        ("here", {}, HERE.url, "lgt_here"),
        ("http://LOCALHOST:8765/", {}, HERE.url, "lgt_here"),
        ("other.example.org", {}, "https://other.example.org", None),
        (None, {"LEGATO_SERVER": "here"}, HERE.url, "lgt_here"),
        (None, {"LEGATO_SERVER": "https://a.b", "LEGATO_TOKEN": "lgt_x"}, "https://a.b", "lgt_x"),
        (None, {"LEGATO_TOKEN": "lgt_x"}, PROD.url, "lgt_x"),
        ("here", {"LEGATO_TOKEN": "lgt_x"}, HERE.url, "lgt_x"),
        # A token that is set together with an address is only for that address.
        ("here", {"LEGATO_SERVER": "https://a.b", "LEGATO_TOKEN": "lgt_x"}, HERE.url, "lgt_here"),
        ("other.example.org", {"LEGATO_SERVER": "https://a.b", "LEGATO_TOKEN": "x"}, "https://other.example.org", None),
        ("https://a.b", {"LEGATO_SERVER": "a.b", "LEGATO_TOKEN": "lgt_x"}, "https://a.b", "lgt_x"),
        (None, {"LEGATO_SERVER": "", "LEGATO_TOKEN": ""}, PROD.url, "lgt_prod"),
    ],
)
def test_which_server_is_meant_and_which_token_goes_there(
    file: Path, said: str | None, environment: dict[str, str], url: str, token: str | None
) -> None:
    found = find_server(said, environment=environment, file=file)
    assert (found.url, found.token) == (url, token)


def test_a_token_that_is_given_wins(file: Path) -> None:
    assert find_server("here", " lgt_mine\n", environment={"LEGATO_TOKEN": "no"}, file=file).token == "lgt_mine"


def test_where_no_server_is_known_it_is_said_how_to_get_to_one(tmp_path: Path) -> None:
    with pytest.raises(Unauthenticated, match=r"'legato login URL'.*'legato up'"):
        find_server(environment={}, file=tmp_path / "none")
    with pytest.raises(Unauthenticated, match="No server is known"):
        find_server("current", environment={}, file=tmp_path / "none")
    with pytest.raises(NotFound, match=r"There is no server 'prod' here. Log in"):
        find_server("prod", environment={}, file=tmp_path / "none")


def test_an_unknown_name_names_the_known_ones(file: Path) -> None:
    with pytest.raises(NotFound, match=r"There is no server 'prd' here. Known: here, prod."):
        find_server("prd", environment={}, file=file)


@pytest.mark.parametrize(
    ("said", "url"),
    [
        ("gpu.example.org", "https://gpu.example.org"),
        ("gpu.example.org:8765", "https://gpu.example.org:8765"),
        ("localhost:8765", "http://localhost:8765"),
        ("127.0.0.1", "http://127.0.0.1"),
        ("http://[::1]:8765/", "http://[::1]:8765"),
        ("HTTP://A.B:80/x/api/v1", "http://a.b/x"),
        ("https://a.b:443", "https://a.b"),
    ],
)
def test_an_address_is_written_in_one_way(said: str, url: str) -> None:
    assert read_url(said) == url
    assert read_url(url) == url


@pytest.mark.parametrize(
    "said",
    ["ftp://a.b", "https://", "http://a b", "https://a.b:port", "https://a.b?x=1", "https://a.b#x", "a.b\n", ":"],
)
def test_what_is_no_address_is_refused(said: str) -> None:
    with pytest.raises(UsageError, match="as the address of a server"):
        read_url(said)


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(UsageError, match="contains a user or password") as caught:
        read_url("https://anna:geheim@a.b")
    assert "geheim" not in str(caught.value)


def test_addresses_to_which_requests_could_be_read() -> None:
    assert [is_in_the_clear(url) for url in ("http://a.b", "https://a.b", "http://127.0.0.1:1", "http://[::1]")] == [
        True,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize("token", ["", " ", "lgt_a b", "lgt_ä", "lgt_\x1b[0m"])
def test_what_cannot_be_a_token_is_refused(token: str) -> None:
    with pytest.raises(UsageError, match="Cannot use this token"):
        check_token(token)


def test_names_of_servers_and_leaving_them() -> None:
    known = KnownServers().with_server("here", HERE).with_server("prod", PROD)
    assert known.without("prod") == KnownServers("here", {"here": HERE})
    assert known.using("here").without("prod").current == "here"
    assert known.without("prod").without("here") == KnownServers()
    for name in ("current", "a b", ""):
        with pytest.raises(UsageError, match="Cannot name a server"):
            known.with_server(name, HERE)
    with pytest.raises(NotFound):
        known.using("prd")


def test_the_file_lies_where_such_files_lie() -> None:
    assert find_file({"XDG_CONFIG_HOME": "/c"}) == Path("/c/legato/servers.json")
    assert find_file({}) == Path("~/.config/legato/servers.json").expanduser()


def test_a_client_without_a_token_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("LEGATO_SERVER", "LEGATO_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(Unauthenticated, match=r"Log in with 'legato login https://a.b'"):
        legato.Client("a.b")
    write_known(KnownServers().with_server("prod", PROD), find_file())
    with legato.Client() as client:
        assert repr(client) == "Client('https://gpu.example.org')"
        assert "lgt_prod" not in repr(client.server)
