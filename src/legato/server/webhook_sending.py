"""Sends messages to webhooks, signed, and only to addresses that the server may reach. Decides no message and no retry.

Users choose the URLs, so a request must not reach what only the server can: it looks the name up once, refuses
internal addresses, and connects to the very address that it has checked.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import hmac
import ipaddress
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import httpx
import structlog

from legato import __version__
from legato.control.webhook_records import Outcome, Parcel
from legato.core.errors import BadField
from legato.system.tls import make_client_context

_log = structlog.get_logger(__name__)

MAX_URL: Final = 2_000
SIGNATURE: Final = "Legato-Signature"
LIMIT_S: Final = 10.0
"""A receiver must answer within this time, from the lookup of its name on."""
_CONNECT_LIMIT_S: Final = 4.0
_NUM_ADDRESSES: Final = 3
_NUM_LOOKUPS: Final = 2  # of the webhooks of one user at once
_MAX_WHY: Final = 300
_MAX_PORT: Final = 65_535
_DISCARD: Final = 9

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolve = Callable[[str, int], Sequence[str]]

# Of the metadata services of clouds, and IETF's protocols; whether Python counts all of them as internal depends on its
# release.
_OF_PROVIDERS: Final = tuple(map(ipaddress.IPv4Network, ("168.63.129.16/32", "192.0.0.0/24")))
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")


_REFUSED: Final[Sequence[tuple[str, Callable[[Address], bool]]]] = (
    ("a loopback address", lambda found: found.is_loopback),
    ("a link-local address", lambda found: found.is_link_local),
    ("a multicast address", lambda found: found.is_multicast),
    ("no address of a host", lambda found: found.is_unspecified),
    ("an internal or reserved address", lambda found: not found.is_global or found.is_reserved),
    ("an address of the network's provider", lambda found: any(found in network for network in _OF_PROVIDERS)),
    ("no public IPv6 address", lambda found: found.version == 6 and not _is_public_ipv6(found)),
)


class _NotAllowedError(Exception):
    """The message cannot be sent to this URL; the text says why."""


class WebhookSender:
    """Sends messages.

    Args:
        networks: internal networks that webhooks may reach. One of this machine must be named alone.
        now: returns seconds since 1970.
        resolve: returns the addresses of a host, for a port. It may block.
    """

    def __init__(self, networks: Iterable[str], now: Callable[[], float], resolve: Resolve | None = None) -> None:
        self._networks = tuple(ipaddress.ip_network(network, strict=False) for network in networks)
        self._now = now
        self._resolve = resolve or _look_up
        self._num_lookups = Counter[str]()  # running ones, by owner of the webhook

    async def send(self, parcel: Parcel) -> Outcome:
        """Send a message once, and return what became of it. The body of the answer is not read."""
        try:
            url = read_url(parcel.url)
            async with asyncio.timeout(LIMIT_S):
                status = await self._post(url, parcel)
        except TimeoutError:
            return Outcome(None, f"it did not answer within {LIMIT_S:g} s")
        except (_NotAllowedError, BadField) as error:
            return Outcome(None, str(error).rstrip("."))
        except Exception as error:  # noqa: BLE001 -- receivers choose what they answer, and no answer may be an error here
            if not isinstance(error, httpx.HTTPError | OSError):
                _log.warning(
                    "a message to a webhook has failed unexpectedly", webhook=parcel.webhook, error=repr(error)
                )
            shown = "".join(sign if sign.isprintable() else " " for sign in str(error))
            told = " ".join(shown.split()) or type(error).__name__
            return Outcome(None, f"the request has failed: {told[:_MAX_WHY].rstrip('.')}")
        return Outcome(status, explain_status(status))

    async def _post(self, url: httpx.URL, parcel: Parcel) -> int:
        """Send a message to the first address that can be connected; return the status of the answer."""
        port = url.port or (443 if url.scheme == "https" else 80)
        addresses = await self._find_addresses_for(parcel.owner, read_host(url), port)
        for address in addresses[:-1]:
            try:
                return await self._post_to(url, address, parcel)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue  # nothing was sent
        return await self._post_to(url, addresses[-1], parcel)

    async def _post_to(self, url: httpx.URL, address: str, parcel: Parcel) -> int:
        body = parcel.body.encode()
        headers = {
            "Host": url.netloc.decode("ascii"),
            "Content-Type": "application/json",
            "User-Agent": f"Legato/{__version__}",
            "Legato-Event": parcel.event,
            "Legato-Delivery": parcel.id,
            "Legato-Webhook": parcel.webhook,
            SIGNATURE: sign(parcel.secret, body, self._now()),
        }
        # A proxy would look up the name by itself, so none is used. Redirects are not followed.
        context = _client_context() if url.scheme == "https" else False
        limits = httpx.Timeout(LIMIT_S, connect=_CONNECT_LIMIT_S).as_dict()
        # A transport, not a client, which would read the header Location of an answer.
        async with httpx.AsyncHTTPTransport(verify=context, trust_env=False) as transport:
            target = url.copy_with(host=address)
            # The certificate is verified for the name in the URL, not for the address.
            extensions = {"sni_hostname": read_host(url), "timeout": limits}
            request = httpx.Request("POST", target, content=body, headers=headers, extensions=extensions)
            answer = await transport.handle_async_request(request)
            await answer.aclose()
            return answer.status_code

    async def _find_addresses_for(self, owner: str, host: str, port: int) -> list[str]:
        """As `_find_addresses`, in a thread of its own: a lookup may hang for long, and end after its request.

        The thread holds up neither lookups of other users nor the end of this process.
        """
        if self._num_lookups[owner] >= _NUM_LOOKUPS:
            raise _NotAllowedError("earlier lookups of names of this user's webhooks have not ended yet")
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[str]] = loop.create_future()

        def end(addresses: list[str], error: Exception | None) -> None:
            self._num_lookups[owner] -= 1
            if found.done():
                return  # the request has timed out
            if error is None:
                found.set_result(addresses)
            else:
                found.set_exception(error)

        def look_up() -> None:
            addresses, error = list[str](), None
            try:
                addresses = self._find_addresses(host, port)
            except Exception as failure:  # noqa: BLE001 -- the request raises it
                error = failure
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(end, addresses, error)

        self._num_lookups[owner] += 1
        threading.Thread(target=look_up, name="webhook-lookup", daemon=True).start()
        return await found

    def _find_addresses(self, host: str, port: int) -> list[str]:
        """Return the addresses of a host that may be reached. Blocks."""
        try:
            found = self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            why = (isinstance(error, OSError) and error.strerror) or error
            raise _NotAllowedError(f"the name '{host}' cannot be looked up: {why}") from error
        whys = {address: self.refuse(address) for address in found}
        allowed = [address for address, why in whys.items() if why is None]
        if not allowed:
            # Without the addresses: users must not learn those of names inside the server's network.
            told = "; ".join(dict.fromkeys(why for why in whys.values() if why))
            raise _NotAllowedError(
                f"the address of '{host}' must not be reached ({told or 'it has none'}). An administrator can allow "
                "internal networks by the setting webhook_networks"
            )
        return allowed[:_NUM_ADDRESSES]

    def refuse_literal(self, host: str) -> str | None:
        """Return why a host that is written as an address must not be reached. None: it may, or it is a name."""
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return None
        return self.refuse(host)

    def refuse(self, address: str) -> str | None:
        """Return why a webhook must not reach an address. None: it may."""
        why = refuse_address(address, self._networks)
        alone = [network for network in self._networks if network.num_addresses == 1]
        if why is None and not _is_in(address, alone) and _is_own(address):
            return "it is an address of this server, which webhook_networks must name alone"
        return why


def read_url(text: str) -> httpx.URL:
    """Return the URL of a webhook.

    Raises:
        BadField: it cannot be used.
    """

    def refuse(why: str) -> BadField:
        return BadField("url", f"Cannot use the URL of the webhook: {why}. Write it as https://example.org/hook.")

    if len(text) > MAX_URL:
        raise refuse(f"it has {len(text)} characters, and {MAX_URL} are the most")
    if not text.isascii() or any(not sign.isprintable() or sign == " " for sign in text):
        raise refuse("it contains spaces or characters that are not ASCII; percent-encode them")
    try:
        url = httpx.URL(text)
        has_host = bool(url.host)
    except (httpx.InvalidURL, ValueError) as error:
        raise refuse(str(error).rstrip(".")) from error
    if url.scheme not in ("http", "https"):
        raise refuse("it must begin with https:// or http://")
    if not has_host:
        raise refuse("it names no host")
    if url.userinfo:
        raise refuse("it contains a user name or a password")
    if not 0 < (url.port or 1) <= _MAX_PORT:
        raise refuse("its port is none")
    return url


def read_host(url: httpx.URL) -> str:
    """Return the host of a URL as it is looked up: not decoded, because decoding and encoding can change a name.

    >>> read_host(httpx.URL("http://xn--strae-oqa.de/")), read_host(httpx.URL("http://[::1]:80/"))
    ('xn--strae-oqa.de', '::1')
    """
    return url.raw_host.decode("ascii")


def sign(secret: str, body: bytes, now: float) -> str:
    """Return the value of the header ``Legato-Signature``: a time, and the HMAC-SHA256 of time, full stop and body.

    >>> sign("lgw_0", b"{}", 1_800_000_000.5)[:24]
    't=1800000000,v1=5ed8562e'
    """
    time = int(now)
    code = hmac.new(secret.encode(), f"{time}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={time},v1={code}"


def explain_status(status: int) -> str | None:
    """Return why a message with this answer counts as not accepted. None: it was accepted.

    >>> explain_status(204), explain_status(500)
    (None, 'it answered with status 500')
    """
    if 200 <= status < 300:
        return None
    more = ", and redirects are not followed: use the URL to which it redirects" if 300 <= status < 400 else ""
    return f"it answered with status {status}{more}"


def refuse_address(address: str, networks: Sequence[Network] = ()) -> str | None:
    """Return why a webhook must not reach an address. None: it is public, or in one of these networks.

    >>> refuse_address("93.184.215.14"), refuse_address("::ffff:127.0.0.1")
    (None, 'it is a loopback address')
    """
    if _is_in(address, networks):
        return None
    found = _read_address(address)
    return next((f"it is {what}" for what, matches in _REFUSED if matches(found)), None)


def _is_in(address: str, networks: Sequence[Network]) -> bool:
    found = _read_address(address)
    return any(found in network for network in networks if network.version == found.version)


def _read_address(address: str) -> Address:
    """Return an address, without its scope; an IPv4 address that is written as IPv6 is that IPv4 address."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return found.ipv4_mapped
        if found in _NAT64:
            return ipaddress.IPv4Address(int(found) & 0xFFFF_FFFF)
    return found


def _is_public_ipv6(found: ipaddress.IPv6Address) -> bool:
    """Return whether an address is global unicast, and no tunnel to an IPv4 address, which nothing has checked."""
    return found in _GLOBAL_UNICAST and found.sixtofour is None and found.teredo is None


def _is_own(address: str) -> bool:
    """Return whether an address is one of this machine, which the system then uses to reach it. Sends nothing."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, _DISCARD))
            own: str = probe.getsockname()[0]
    except OSError:
        return False  # there is no way to it
    return _read_address(own) == _read_address(address)


def _look_up(host: str, port: int) -> Sequence[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


@functools.cache
def _client_context() -> ssl.SSLContext:
    return make_client_context()
