"""Talks with a Kubernetes API server: plain objects in, plain objects out. The one module that uses kubernetes-asyncio.

`KubernetesApi` makes single requests; `Follower` keeps a copy of all objects with a label. Neither decides anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from legato.core.errors import UsageError
from legato.system.decoding import decode

if TYPE_CHECKING:
    import aiohttp
    from kubernetes_asyncio.client import ApiClient

_log = logging.getLogger(__name__)

KubeObject = dict[str, Any]
"""An object of Kubernetes, as its API writes it in JSON."""

CONFLICT: Final = 409
"""The code of a refusal because an object of this name exists."""
_INSTALL: Final = "python -m pip install 'legato[kubernetes]'"
_ANSWER_LIMIT_S: Final = 15.0
_COMMAND_LIMIT_S: Final = 60.0
_CHANNELS: Final = "v4.channel.k8s.io"
_OUTPUT: Final = (1, 2)
"""Channels of a command's standard output and standard error."""
_END: Final = 3
"""The channel with the status of a command that has ended."""
_TYPES: Final = {"PATCH": "application/merge-patch+json"}
_WATCH_S: Final = 45
"""After so long the API server ends a watch, so that a connection that broke silently is noticed."""
_WATCH_MARGIN_S: Final = 15.0
_MAX_BYTES: Final = 64 * 2**20
_MAX_LINE_BYTES: Final = 8 * 2**20
_SHORT_WATCH_S: Final = 1.0
"""A watch that ends sooner, without a change, is a failure; otherwise a broken proxy would be asked without a pause."""
_MIN_RETRY_S: Final = 0.2
_MAX_RETRY_S: Final = 10.0
_MAX_TEXT: Final = 500
_UNAUTHENTICATED: Final = 401
_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_GONE: Final = 410
_TOO_MANY: Final = 429


class KubernetesAway(Exception):
    """The API server gives no answer that can be used now; the text is a sentence without its period."""


class KubernetesRefusal(Exception):
    """The API server refuses a request; the text is a sentence without its period.

    Args:
        code: of HTTP, such as 403.
        told: the API server's own message.
    """

    def __init__(self, code: int, told: str) -> None:
        super().__init__(_explain(code, told))
        self.code = code
        self.told = told


class VersionExpired(Exception):
    """The API server does not know the version any more from which a watch goes on."""


class Listing(NamedTuple):
    """All objects of a kind at one moment.

    Args:
        objects: by name.
        version: from which a watch goes on.
    """

    objects: dict[str, KubeObject]
    version: str


class KubernetesApi:
    """Makes requests for the objects of one namespace.

    Args:
        namespace: of all objects.
        kubeconfig: file with the way to the API server; None: that of the pod in which this process runs.
        context: of that file; None: its current one.
    """

    def __init__(self, namespace: str, *, kubeconfig: Path | None = None, context: str | None = None) -> None:
        self.namespace = namespace
        self._kubeconfig = kubeconfig
        self._context = context
        self._client: ApiClient | None = None
        self._loading = asyncio.Lock()

    async def list(self, kind: str, *, labels: str = "", fields: str = "") -> Listing:
        """Return the objects of a kind, such as ``pods``, that a selector of labels and one of fields choose.

        Raises:
            KubernetesAway: there is no news.
            KubernetesRefusal: the request is not allowed.
        """
        found = await self._ask("GET", kind, query=_select(labels, fields))
        try:
            objects = {each["metadata"]["name"]: each for each in found["items"]}
            return Listing(objects, found["metadata"]["resourceVersion"])
        except (KeyError, TypeError) as error:
            raise KubernetesAway("what answers there is no Kubernetes API server") from error

    async def get(self, kind: str, name: str) -> KubeObject | None:
        """Return an object, None if there is none. Errors as in `list`."""
        try:
            return await self._ask("GET", kind, name)
        except KubernetesRefusal as error:
            if error.code == _NOT_FOUND:
                return None
            raise

    async def create(self, kind: str, created: Mapping[str, Any]) -> KubeObject:
        """Create an object and return it as the API server has it. Errors as in `list`."""
        return await self._ask("POST", kind, body=dict(created))

    async def patch(self, kind: str, name: str, changes: Mapping[str, Any]) -> KubeObject:
        """Merge changes into an object, and return it. Errors as in `list`."""
        return await self._ask("PATCH", kind, name, body=dict(changes))

    async def delete(self, kind: str, name: str, *, uid: str, grace_s: int | None = None) -> KubeObject | None:
        """Delete an object; returns what is left of it until it has ended, None if nothing is.

        Args:
            kind: of the object.
            name: of the object.
            uid: of the object: another one of the same name stays.
            grace_s: seconds in which a pod may end; None: as its specification says.

        Errors as in `list`.
        """
        body: KubeObject = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        try:
            left = await self._ask("DELETE", kind, name, body=body)
        except KubernetesRefusal as error:
            if error.code in (_NOT_FOUND, CONFLICT):  # conflict: the name has another uid now
                return None
            raise
        about = left.get("metadata", {})
        # With no time left to end, what comes back is the last state of an object that is gone.
        return left if about.get("deletionTimestamp") and about.get("deletionGracePeriodSeconds") else None

    async def watch(self, kind: str, version: str, *, labels: str = "") -> AsyncGenerator[tuple[str, KubeObject], None]:
        """Yield changes after a version: ``ADDED``, ``MODIFIED``, ``DELETED``, ``BOOKMARK``, as Kubernetes names them.

        The first one is ``CONNECTED``: the API server answers. The API server ends the watch after a while; then watch
        again, from the last version.

        Raises:
            KubernetesAway: the connection broke.
            KubernetesRefusal: the request is not allowed.
            VersionExpired: the version is too old: list again.
        """
        query = _select(labels, "") | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(_WATCH_S),
        }
        response = await self._send("GET", kind, "", query, None, _WATCH_S + _WATCH_MARGIN_S)
        try:
            if response.status == _GONE:
                raise VersionExpired
            await self._check(response)
            yield "CONNECTED", {"metadata": {"resourceVersion": version}}
            async for line in _read_lines(response):
                change = _decode(line)
                kind_of_change, changed = str(change.get("type")), change.get("object")
                if not isinstance(changed, dict):
                    raise KubernetesAway("what answers there is no Kubernetes API server")
                if kind_of_change == "ERROR":
                    if changed.get("code") == _GONE:
                        raise VersionExpired
                    raise KubernetesAway(f"the API server ended the watch: {_trim(changed.get('message', ''))}")
                yield kind_of_change, changed
        except _find_failures() as error:
            raise KubernetesAway(_describe(error)) from error
        finally:
            response.close()

    async def execute(self, pod: str, container: str, command: Sequence[str], line: bytes) -> None:
        """Run a command in a container of a pod, and wait for its end.

        Args:
            pod: its name.
            container: its name.
            command: and its arguments.
            line: for its standard input, which stays open.

        Raises:
            KubernetesRefusal: the request is not allowed, or the command failed; with its last words.
            KubernetesAway: the API server, or the node of the pod, cannot be reached.
        """
        import aiohttp

        client = await self._load(None)
        try:
            async with asyncio.timeout(_COMMAND_LIMIT_S):
                headers: dict[str, str] = {}
                await client.update_params_for_auth(headers, [], ["BearerToken"])
                rest = client.rest_client
                async with rest.pool_manager.ws_connect(
                    f"{client.configuration.host}/api/v1/namespaces/{self.namespace}/pods/{pod}/exec",
                    params=[
                        ("container", container),
                        ("stdin", "true"),
                        ("stdout", "true"),
                        ("stderr", "true"),
                        *(("command", w) for w in command),
                    ],
                    headers=headers,
                    protocols=(_CHANNELS,),
                    proxy=rest.proxy,
                    max_msg_size=_MAX_LINE_BYTES,
                ) as channels:
                    await channels.send_bytes(b"\0" + line + b"\n")
                    _check_end(*await _read_channels(channels))
        except aiohttp.WSServerHandshakeError as error:
            if error.status == _UNAUTHENTICATED:
                await self._load(client)
            if error.status in (_UNAUTHENTICATED, _TOO_MANY) or error.status >= 500:
                raise KubernetesAway(f"the API server answers {error.status} to a command for pod {pod}") from error
            told = f'pods "{pod}" is forbidden: this account cannot create and get resource "pods/exec"'
            raise KubernetesRefusal(error.status, told if error.status == _FORBIDDEN else "") from error
        except _find_failures() as error:
            raise KubernetesAway(_describe(error)) from error
        except RuntimeError as error:  # of a client that is closed
            raise KubernetesAway("another request has loaded the configuration again") from error

    async def close(self) -> None:
        """Close all connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    # ------------------------------------------------------------ requests

    async def _ask(
        self, method: str, kind: str, name: str = "", *, query: dict[str, str] | None = None, body: Any = None
    ) -> KubeObject:
        response = await self._send(method, kind, name, query or {}, body, _ANSWER_LIMIT_S)
        try:
            async with asyncio.timeout(_ANSWER_LIMIT_S):
                await self._check(response)
                return _decode(await _read_all(response))
        except _find_failures() as error:
            raise KubernetesAway(_describe(error)) from error
        finally:
            response.close()

    async def _send(
        self, method: str, kind: str, name: str, query: dict[str, str], body: Any, limit_s: float
    ) -> aiohttp.ClientResponse:
        """Send a request. If its credentials are not accepted, load the configuration again and send it once more."""
        client = await self._load(None)
        response = await self._send_once(client, method, kind, name, query, body, limit_s)
        if response.status != _UNAUTHENTICATED:
            return response
        response.close()
        # Tokens expire; the client library renews those of programs in a kubeconfig only when it is loaded.
        client = await self._load(client)
        response = await self._send_once(client, method, kind, name, query, body, limit_s)
        if response.status == _UNAUTHENTICATED:
            response.close()
            raise KubernetesAway(
                "the API server does not accept the credentials (401), also after they were loaded again. Renew the "
                "kubeconfig or the token of the service account"
            )
        return response

    async def _send_once(
        self,
        client: ApiClient,
        method: str,
        kind: str,
        name: str,
        query: dict[str, str],
        body: Any,
        limit_s: float,
    ) -> aiohttp.ClientResponse:
        import aiohttp

        path = f"/api/v1/namespaces/{{namespace}}/{kind}" + ("/{name}" if name else "")
        limits = aiohttp.ClientTimeout(total=None, sock_connect=_ANSWER_LIMIT_S, sock_read=limit_s)
        try:
            async with asyncio.timeout(limit_s):
                answer: aiohttp.ClientResponse = await client.call_api(
                    path,
                    method,
                    path_params={"namespace": self.namespace, **({"name": name} if name else {})},
                    query_params=list(query.items()),
                    header_params={
                        "Accept": "application/json",
                        "Content-Type": _TYPES.get(method, "application/json"),
                    },
                    body=body,
                    auth_settings=["BearerToken"],
                    _preload_content=False,
                    _request_timeout=limits,
                )
                return answer
        except _find_failures() as error:
            raise KubernetesAway(_describe(error)) from error
        except RuntimeError as error:  # of a client that is closed
            raise KubernetesAway("another request has loaded the configuration again") from error

    async def _check(self, response: aiohttp.ClientResponse) -> None:
        if 200 <= response.status < 300:
            return
        told = _read_message(await _read_all(response))
        if response.status == _TOO_MANY or response.status >= 500:
            raise KubernetesAway(f"the API server answers {response.status}: {told}")
        raise KubernetesRefusal(response.status, told)

    async def _load(self, used: ApiClient | None) -> ApiClient:
        """Return a client; a new one if `used` is the present one."""
        async with self._loading:
            if self._client is not None and self._client is not used:
                return self._client
            fresh = await _make_client(self._kubeconfig, self._context)
            self._client = fresh
            if used is not None:
                await used.close()  # watches that use it begin again, with the new credentials
            return fresh


class Follower:
    """Keeps a copy of all objects of one kind that have certain labels, by a list and then a watch.

    Args:
        api: of the cluster.
        kind: such as ``pods``.
        labels: the selector.
    """

    def __init__(self, api: KubernetesApi, kind: str, labels: str) -> None:
        self._api, self._kind, self._labels = api, kind, labels
        self._objects: dict[str, KubeObject] = {}
        self._problem: str | None = None
        self._changing = asyncio.Lock()
        self._new: set[str] = set()
        self._has_answered = asyncio.Event()
        self._must_retry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Stop following."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def read(self) -> dict[str, KubeObject]:
        """Return the objects, by name. If the API server was away, it is asked again at once.

        Raises:
            KubernetesAway: the copy may be old: this is no news.
        """
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        if self._problem is not None:
            self._has_answered.clear()
            self._must_retry.set()
        try:
            async with asyncio.timeout(_ANSWER_LIMIT_S):
                await self._has_answered.wait()
        except TimeoutError:
            raise KubernetesAway("the API server does not answer") from None
        if self._problem is not None:
            raise KubernetesAway(self._problem)
        return dict(self._objects)

    async def create(self, created: Mapping[str, Any]) -> KubeObject:
        """Create an object; `read` returns it from now on. Errors as in `KubernetesApi.list`."""
        name = created["metadata"]["name"]
        async with self._changing:  # a list that has begun before would not have it
            self._new.add(name)
            try:
                made = await self._api.create(self._kind, created)
                if name in self._new:  # otherwise the watch was faster
                    self._objects[name] = made
            finally:
                self._new.discard(name)
        return made

    async def delete(self, name: str, *, grace_s: int | None = None) -> None:
        """Delete an object of the copy, if it is still there. Errors as in `KubernetesApi.list`."""
        known = self._objects.get(name)
        if known is None:
            return
        uid = known["metadata"]["uid"]
        left = await self._api.delete(self._kind, name, uid=uid, grace_s=grace_s)
        if self._objects.get(name, {}).get("metadata", {}).get("uid") != uid:
            return  # the watch was faster
        if left is None:
            del self._objects[name]
        else:
            self._objects[name] = left

    async def _run(self) -> None:
        version, wait_s = "", 0.0
        while True:
            connected_at, has_changed = float("inf"), False
            try:
                if not version:
                    version = await self._list()
                async with contextlib.aclosing(self._api.watch(self._kind, version, labels=self._labels)) as changes:
                    async for change, changed in changes:
                        connected_at = min(connected_at, time.monotonic())
                        has_changed = has_changed or change in ("ADDED", "MODIFIED", "DELETED")
                        version = self._take(change, changed)
                if not has_changed and time.monotonic() - connected_at < _SHORT_WATCH_S:
                    version = ""  # there may be changes that such watches do not show
            except VersionExpired:
                version = ""
            except (KubernetesAway, KubernetesRefusal) as error:
                if isinstance(error, KubernetesRefusal):
                    version = ""
                self._note(str(error))
            except Exception:  # noqa: BLE001 -- this task must not end while the server runs
                _log.exception("The %s of Kubernetes cannot be followed", self._kind)
                version = ""
                self._note("Legato has an error, which the server's log describes")
            if has_changed or time.monotonic() - connected_at >= _SHORT_WATCH_S:
                wait_s = 0.0  # a connection alone is no progress
            last_s, wait_s = wait_s, min(max(2 * wait_s, _MIN_RETRY_S), _MAX_RETRY_S)
            if self._problem is None and last_s < wait_s == _MAX_RETRY_S:
                told = "The API server, or a proxy before it, ends each watch at once: Legato lists the %s every %.0f s"
                _log.warning(told, self._kind, wait_s)
            await self._pause(wait_s)

    async def _pause(self, wait_s: float) -> None:
        """Wait until some seconds are over, or `read` needs an answer."""
        self._must_retry.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._must_retry.wait()

    async def _list(self) -> str:
        async with self._changing:
            listing = await self._api.list(self._kind, labels=self._labels)
            self._objects = listing.objects
        return listing.version

    def _take(self, change: str, changed: KubeObject) -> str:
        about = changed["metadata"]
        if change in ("ADDED", "MODIFIED"):
            self._objects[about["name"]] = changed
        elif change == "DELETED":
            self._objects.pop(about["name"], None)
        if change not in ("BOOKMARK", "CONNECTED"):
            self._new.discard(about["name"])
        self._note(None)
        return str(about["resourceVersion"])

    def _note(self, problem: str | None) -> None:
        if problem is not None and problem != self._problem:
            _log.warning("The %s of Kubernetes cannot be read: %s. Legato tries again", self._kind, problem)
        self._problem = problem
        self._has_answered.set()


# ---------------------------------------------------------------- the client library


def check_library() -> None:
    """Raise UsageError if the client library is missing."""
    try:
        import kubernetes_asyncio  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"Cannot use Kubernetes: the package kubernetes-asyncio is missing. Install it with: {_INSTALL}"
        ) from error


async def _make_client(kubeconfig: Path | None, context: str | None) -> ApiClient:
    """Return a client of the API server.

    Raises:
        UsageError: the library is missing.
        KubernetesAway: the configuration cannot be used now.
    """
    check_library()
    from kubernetes_asyncio import client, config

    configuration = client.Configuration()
    configuration.connection_pool_maxsize = 0  # no limit: a request would wait silently while watches hold connections
    try:
        if kubeconfig is None:
            config.load_incluster_config(  # type: ignore[no-untyped-call]
                client_configuration=configuration
            )
        else:
            await config.load_kube_config(
                str(kubeconfig), context=context, client_configuration=configuration, persist_config=False
            )
        return client.ApiClient(configuration)
    except Exception as error:
        where = "the service account of this pod" if kubeconfig is None else str(kubeconfig)
        hint = ". Outside of a pod, set kubeconfig" if kubeconfig is None else ""
        told = f"the way to the API server cannot be read from {where}: {_trim(str(error))}{hint}"
        raise KubernetesAway(told) from error


def _find_failures() -> tuple[type[Exception], ...]:
    """Return the errors of a connection that breaks, hangs or cannot be made."""
    import aiohttp

    return (aiohttp.ClientError, TimeoutError, OSError)


async def _read_lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield the lines of an answer. They are split at newlines only: strings inside may have other separators."""
    rest = b""
    async for piece in response.content.iter_any():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.strip():
                yield line
        if len(rest) > _MAX_LINE_BYTES:
            raise KubernetesAway(f"the API server sends an object of more than {_MAX_LINE_BYTES >> 20} MiB")


async def _read_all(response: aiohttp.ClientResponse) -> bytes:
    content = bytearray()
    async for piece in response.content.iter_any():
        content += piece
        if len(content) > _MAX_BYTES:
            raise KubernetesAway(f"the API server sends more than {_MAX_BYTES >> 20} MiB")
    return bytes(content)


async def _read_channels(channels: aiohttp.ClientWebSocketResponse) -> tuple[bytes | None, str]:
    """Return the status of a command and the end of its output; None: the connection ended before the command."""
    import aiohttp

    output = b""
    async for message in channels:
        if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
            continue
        channel, data = message.data[0], message.data[1:]
        if channel == _END:
            return data, output.decode(errors="replace")
        if channel in _OUTPUT:
            output = (output + data)[-_MAX_TEXT:]
    return None, ""


def _check_end(status: bytes | None, output: str) -> None:
    """Raise KubernetesAway or KubernetesRefusal unless a command has succeeded."""
    if status is None:
        raise KubernetesAway("the connection to a command in a pod broke")
    found = _decode(status)
    if found.get("status") != "Success":
        told = _trim(output) or _trim(str(found.get("message", "")))
        raise KubernetesRefusal(int(found.get("code") or 0), f"the command failed: {told}")


def _decode(content: bytes) -> KubeObject:
    try:
        return decode(content, KubeObject)
    except (msgspec.DecodeError, RecursionError) as error:
        raise KubernetesAway("what answers there is no Kubernetes API server") from error


def _read_message(content: bytes) -> str:
    """Return what an answer with an error says."""
    with contextlib.suppress(msgspec.DecodeError, RecursionError):
        told = decode(content, KubeObject).get("message")
        if isinstance(told, str):
            return _trim(told)
    return _trim(content.decode(errors="replace"))


def _select(labels: str, fields: str) -> dict[str, str]:
    return {
        **({"labelSelector": labels} if labels else {}),
        **({"fieldSelector": fields} if fields else {}),
    }


def _trim(text: str) -> str:
    """Return a text of others in one line, without its period."""
    line = " ".join(text.split()).rstrip(".")
    return line if len(line) <= _MAX_TEXT else f"{line[:_MAX_TEXT]}…"


def _describe(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "the API server does not answer"
    return f"the API server cannot be reached: {_trim(str(error) or type(error).__name__)}"


def _explain(code: int, told: str) -> str:
    """Return why a request was refused, and what to do about it.

    >>> _explain(403, 'pods is forbidden: User "x" cannot list resource "pods" in API group "" in the namespace "a"')
    'a right is missing: User "x" cannot list resource "pods" in API group "" in the namespace "a". Add it to the role'
    >>> _explain(403, 'pods "a-1" is forbidden: exceeded quota: team, requested: pods=1, used: pods=2, limited: pods=2')
    'exceeded quota: team, requested: pods=1, used: pods=2, limited: pods=2'
    """
    _, is_forbidden, why = told.partition(" is forbidden: ")
    if code == _FORBIDDEN and is_forbidden:
        return f"a right is missing: {why}. Add it to the role" if " cannot " in why else why
    return told or f"the API server answers {code}"
