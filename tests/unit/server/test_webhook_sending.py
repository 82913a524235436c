"""Messages to webhooks: signed, to addresses that may be reached and were checked, and no further."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.server.receivers import Receiver, receiving

from legato.control.roles import Role
from legato.control.settings import Settings
from legato.control.webhook_records import News, Outcome, Parcel
from legato.core.errors import BadField
from legato.server import webhook_sending
from legato.server.tls import ServerTls
from legato.server.webhook_sending import MAX_URL, WebhookSender, read_url, refuse_address, sign
from legato.system.tls import make_client_context

NOW = 1_800_000_000.9
LOCAL = ("127.0.0.1",)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


def send(
    url: str, networks: Sequence[str] = LOCAL, resolve: Callable[[str, int], Sequence[str]] | None = None
) -> Outcome:
    return asyncio.run(WebhookSender(networks, lambda: NOW, resolve).send(make_parcel(url)))


def make_parcel(url: str, owner: str = "ann") -> Parcel:
    return Parcel(
        id="m-1",
        webhook="h-1",
        event=News.ENDED,
        url=url,
        secret="lgw_7",
        body='{"text":"ü"}',
        num_tries=0,
        created_at=NOW,
        owner=owner,
        role=Role.USER,
    )


INTERNAL = (
    *("127.0.0.1", "127.9.9.9", "10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254", "0.0.0.0"),
    *("224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "192.0.2.1", "198.18.0.1", "0.1.2.3"),
    *("::", "::1", "fe80::1", "fe80::1%eth0", "fec0::1", "fc00::1", "fd12::1", "ff02::1", "2001:db8::1"),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "::10.0.0.1"),
    *("64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::1", "2002:a00:1::", "2001:0:4136:e378::1"),
)


@pytest.mark.parametrize("address", INTERNAL)
def test_internal_addresses_are_refused(address: str) -> None:
    assert refuse_address(address) is not None


@pytest.mark.parametrize(
    "address", ["93.184.215.14", "8.8.8.8", "2606:2800:21f:cb07::1", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_public_addresses_are_not(address: str) -> None:
    assert refuse_address(address) is None


@given(st.ip_addresses(v=4))
def test_an_address_is_judged_alike_in_all_its_forms(address: ipaddress.IPv4Address) -> None:
    # Another opinion than that of `is_global`: nothing in these networks is public.
    internal = ("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12")
    internal += ("192.168.0.0/16", "224.0.0.0/3")
    is_internal = any(address in ipaddress.IPv4Network(network) for network in internal)
    told = refuse_address(str(address))
    assert told is not None or not is_internal
    assert refuse_address(f"::ffff:{address}") == refuse_address(f"64:ff9b::{address}") == told


@given(st.ip_addresses(v=6))
def test_only_global_unicast_of_ipv6_is_reached(address: ipaddress.IPv6Address) -> None:
    if refuse_address(str(address)) is None:
        assert any(
            address in ipaddress.IPv6Network(network) for network in ("2000::/3", "::ffff:0:0/96", "64:ff9b::/96")
        )


def test_an_allowed_network_may_be_reached_and_no_other() -> None:
    allowed = [ipaddress.ip_network("10.1.0.0/16"), ipaddress.ip_network("fd00:1::/32")]
    for address in ("10.1.2.3", "::ffff:10.1.2.3", "fd00:1::5"):
        assert refuse_address(address, allowed) is None
    for address in ("10.2.0.1", "127.0.0.1", "fd00:2::5", "::ffff:10.2.0.1"):
        assert refuse_address(address, allowed) is not None


def test_a_message_is_signed(receiver: Receiver) -> None:
    assert send(f"http://127.0.0.1:{receiver.port}/hook?a=b%20c") == Outcome(200, None)
    ((path, headers, body),) = receiver.got
    assert path == "/hook?a=b%20c"
    assert body == '{"text":"ü"}'.encode()
    assert headers["host"] == f"127.0.0.1:{receiver.port}"
    assert headers["content-type"] == "application/json"
    assert (headers["legato-event"], headers["legato-delivery"]) == ("ended", "m-1")
    code = hmac.new(b"lgw_7", b"1800000000." + body, hashlib.sha256).hexdigest()
    assert headers["legato-signature"] == f"t=1800000000,v1={code}"


@given(st.binary(max_size=50), st.binary(max_size=50))
def test_another_body_or_secret_or_time_has_another_signature(one: bytes, other: bytes) -> None:
    signatures = {sign("a", one, NOW), sign("a", other, NOW), sign("b", one, NOW), sign("a", one, NOW + 1)}
    assert len(signatures) == 4 - (one == other)


def test_what_is_internal_gets_nothing(receiver: Receiver) -> None:
    outcome = send(f"http://127.0.0.1:{receiver.port}/", networks=())
    assert outcome.status is None
    assert "(it is a loopback address)" in (outcome.error or "")
    assert "webhook_networks" in (outcome.error or "")
    assert receiver.got == []


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "0177.0.0.1", "127.1", "localhost", "[::ffff:127.0.0.1]"])
def test_other_spellings_of_an_internal_address_reach_nothing(receiver: Receiver, host: str) -> None:
    outcome = send(f"http://{host}:{receiver.port}/", networks=())
    assert outcome.status is None
    assert outcome.error is not None
    assert receiver.got == []


def test_the_address_that_was_checked_is_the_one_that_is_connected(receiver: Receiver) -> None:
    """A name that leads elsewhere at a second lookup (DNS rebinding) gains nothing: there is no second lookup."""
    asked: list[str] = []

    def resolve(host: str, _port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["10.0.0.1"]

    assert send(f"http://hook.example.org:{receiver.port}/", resolve=resolve) == Outcome(200, None)
    assert asked == ["hook.example.org"]
    assert receiver.got[0][1]["host"] == f"hook.example.org:{receiver.port}"


def test_internal_ones_of_several_addresses_are_skipped(receiver: Receiver) -> None:
    def resolve(_host: str, _port: int) -> list[str]:
        return ["10.0.0.1", "127.0.0.2", "127.0.0.1"]  # at the second one, nothing listens

    assert send(f"http://hook.example.org:{receiver.port}/", resolve=resolve) == Outcome(200, None)


def test_an_own_address_is_refused_even_if_it_looks_public(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_sending, "refuse_address", lambda _address, _networks=(): None)
    sender = WebhookSender((), lambda: NOW)
    told = "it is an address of this server, which webhook_networks must name alone"
    assert sender.refuse("127.0.0.1") == told
    assert WebhookSender(LOCAL, lambda: NOW).refuse("127.0.0.1") is None
    assert WebhookSender(["127.0.0.0/8"], lambda: NOW).refuse("127.0.0.1") == told


@pytest.mark.parametrize("address", ["168.63.129.16", "192.0.0.192"])
def test_addresses_of_cloud_services_are_refused(address: str) -> None:
    assert refuse_address(address) is not None


@pytest.mark.parametrize("location", ["http://xn--/", "http://xn--a/", "x:y:z", "//[", "http://[::1"])
def test_an_answer_cannot_make_the_sender_raise(receiver: Receiver, location: str) -> None:
    receiver.status, receiver.location = 302, location
    assert send(f"http://127.0.0.1:{receiver.port}/").status == 302


@pytest.mark.parametrize("url", ["http://xn--/", "http://xn--a/", "http://[::1"])
def test_a_url_whose_name_cannot_be_read_is_refused(url: str) -> None:
    with pytest.raises(BadField, match="Cannot use the URL"):
        read_url(url)


def test_an_international_name_is_looked_up_as_it_is_written(receiver: Receiver) -> None:
    asked: list[str] = []

    def resolve(host: str, _port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    assert send(f"http://xn--strae-oqa.de:{receiver.port}/", resolve=resolve) == Outcome(200, None)
    assert asked == ["xn--strae-oqa.de"]


def test_lookups_that_hang_hold_up_only_their_own_user(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_sending, "LIMIT_S", 0.2)
    go_on = threading.Event()

    def resolve(host: str, _port: int) -> list[str]:
        if host == "hang.example.org":
            go_on.wait(60)
        return ["127.0.0.1"]

    async def play() -> list[Outcome]:
        sender = WebhookSender(LOCAL, lambda: NOW, resolve)
        hanging = make_parcel("http://hang.example.org/")
        found = list(await asyncio.gather(*(sender.send(hanging) for _ in range(2))))
        found.append(await sender.send(make_parcel(f"http://good.example.org:{receiver.port}/")))
        monkeypatch.setattr(webhook_sending, "LIMIT_S", 10.0)
        found.append(await sender.send(make_parcel(f"http://good.example.org:{receiver.port}/", owner="ben")))
        go_on.set()
        return found

    *late, third, other = asyncio.run(play())
    assert [outcome.error for outcome in late] == ["it did not answer within 0.2 s"] * 2
    assert third.error == "earlier lookups of names of this user's webhooks have not ended yet"
    assert other == Outcome(200, None)


def test_redirects_are_not_followed(receiver: Receiver) -> None:
    with receiving() as other:
        receiver.status, receiver.location = 307, f"http://127.0.0.1:{other.port}/"
        outcome = send(f"http://127.0.0.1:{receiver.port}/")
        assert outcome.status == 307
        assert "redirects are not followed" in (outcome.error or "")
        assert other.got == []


def test_what_is_wrong_is_said(receiver: Receiver) -> None:
    receiver.status = 503
    assert send(f"http://127.0.0.1:{receiver.port}/") == Outcome(503, "it answered with status 503")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    told = send(f"http://127.0.0.1:{port}/").error or ""
    assert "the request has failed" in told

    def fail(_host: str, _port: int) -> list[str]:
        raise socket.gaierror(-2, "Name or service not known")

    told = send("http://gone.example.org/", resolve=fail).error or ""
    assert "'gone.example.org' cannot be looked up" in told


def test_a_receiver_that_answers_too_slowly_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_sending, "LIMIT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener:  # accepts, and never answers
        outcome = send(f"http://127.0.0.1:{listener.getsockname()[1]}/")
    assert outcome.status is None
    assert outcome.error is not None


def test_a_lookup_that_hangs_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_sending, "LIMIT_S", 0.1)
    done = threading.Event()

    def hang(_host: str, _port: int) -> list[str]:
        done.wait(30)
        return []

    assert send("http://slow.example.org/", resolve=hang) == Outcome(None, "it did not answer within 0.1 s")
    done.set()


def test_the_body_of_an_answer_is_not_read() -> None:
    """An endless answer costs nothing: the status decides."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(65_536)
                peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n" + b"x" * 1000)
                peer.settimeout(30)
                while peer.recv(65_536):
                    pass

        thread = threading.Thread(target=answer)
        thread.start()
        assert send(f"http://127.0.0.1:{listener.getsockname()[1]}/") == Outcome(200, None)
        thread.join(30)
        assert not thread.is_alive()


def test_certificates_are_verified_for_the_name_in_the_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tls = ServerTls(Settings(home=tmp_path, tls="own", allowed_hosts=("hook.example.org",)), time.time())
    monkeypatch.setattr(webhook_sending, "_client_context", lambda: make_client_context(tls.authority))

    def resolve(_host: str, _port: int) -> list[str]:
        return ["127.0.0.1"]

    with receiving() as receiver:
        context: ssl.SSLContext = tls.context
        receiver.socket = context.wrap_socket(receiver.socket, server_side=True)
        outcome = send(f"https://hook.example.org:{receiver.port}/", resolve=resolve)
        assert outcome == Outcome(200, None)
        outcome = send(f"https://other.example.org:{receiver.port}/", resolve=resolve)
        assert "other.example.org" in (outcome.error or "")
        assert len(receiver.got) == 1


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("ftp://example.org/", "must begin with https"),
        ("file:///etc/passwd", "must begin with https"),
        ("example.org/hook", "must begin with https"),
        ("https:///hook", "names no host"),
        ("https://ann:secret@example.org/", "a user name or a password"),
        ("https://example.org:99999/", "port"),
        ("https://example.org/a b", "spaces"),
        ("https://example.org/a\r\nX-A: b", "spaces"),
        ("https://exämple.org/", "not ASCII"),
        (f"https://example.org/{'a' * MAX_URL}", "are the most"),
        ("http://[::1", "."),
    ],
)
def test_unusable_urls_are_refused(url: str, told: str) -> None:
    with pytest.raises(BadField, match=told) as caught:
        read_url(url)
    assert "secret" not in str(caught.value)
