"""An API server of Kubernetes in memory, for tests: objects of one kind each, lists, watches, and what can go wrong."""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, Self

from aiohttp import web

TOKEN: Final = "token-1"


class KubernetesServer:
    """An API server on a port of the loopback interface; use it with ``async with``.

    Attributes:
        url: of the server.
        objects: by kind and name.
        token: the only one that it accepts.
        num_lists: how often each kind was listed.
        refusals: method and kind → status and message of its answer.
        oldest: a watch from a version below this one is answered with 410.
        is_away: it breaks connections.
        run: runs a command in a pod, with a line as its input; returns its output, and whether it has succeeded.
    """

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        self.token = TOKEN
        self.num_lists: dict[str, int] = defaultdict(int)
        self.watched_from: list[str] = []
        self.refusals: dict[tuple[str, str], tuple[int, str]] = {}
        self.bodies: list[tuple[str, str, Any]] = []
        self.oldest = 0
        self.is_away = False
        self.run: Callable[[str, list[str], bytes], Awaitable[tuple[bytes, bool]]] | None = None
        self._versions = itertools.count(1)
        self.version = 0
        self._history: list[tuple[int, str, str, dict[str, Any]]] = []
        self._changed = asyncio.Condition()
        self._watches: set[asyncio.Task[Any]] = set()
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_route("*", "/api/v1/namespaces/{namespace}/{kind}", self._answer)
        app.router.add_route("*", "/api/v1/namespaces/{namespace}/{kind}/{name}", self._answer)
        app.router.add_get("/api/v1/namespaces/{namespace}/pods/{name}/exec", self._execute)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        self.break_watches()
        await asyncio.wait_for(self._runner.cleanup(), 10)

    def write_kubeconfig(self, file: Path, token: str = TOKEN) -> Path:
        """Write a file with which a client finds the server."""
        user = {"name": "u", "user": {"token": token}}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [user],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
        file.write_text(json.dumps(config))
        return file

    async def put(self, kind: str, changed: dict[str, Any]) -> dict[str, Any]:
        """Create or change an object, as another client does."""
        name = changed["metadata"]["name"]
        before = self.objects[kind].get(name)
        self.version = next(self._versions)
        made = copy.deepcopy(changed)
        made["metadata"] = {
            "uid": f"uid-{self.version}",
            "creationTimestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            **made["metadata"],
            "resourceVersion": str(self.version),
        }
        self.objects[kind][name] = made
        await self._tell(kind, "ADDED" if before is None else "MODIFIED", made)
        return made

    async def remove(self, kind: str, name: str) -> None:
        """Remove an object, as the API server does when it has ended."""
        gone = self.objects[kind].pop(name, None)
        if gone is not None:
            self.version = next(self._versions)
            gone["metadata"]["resourceVersion"] = str(self.version)
            await self._tell(kind, "DELETED", gone)
            for other in ("secrets", "pods"):
                for each in list(self.objects[other].values()):
                    owners = each["metadata"].get("ownerReferences", ())
                    if any(owner["uid"] == gone["metadata"]["uid"] for owner in owners):
                        await self.remove(other, each["metadata"]["name"])

    async def set_away(self, is_away: bool) -> None:
        """Break all watches and refuse all connections, or answer again."""
        self.is_away = is_away
        if is_away:
            self.break_watches()

    def break_watches(self) -> None:
        for watch in self._watches:
            watch.cancel()

    async def _tell(self, kind: str, change: str, changed: dict[str, Any]) -> None:
        self._history.append((self.version, kind, change, copy.deepcopy(changed)))
        async with self._changed:
            self._changed.notify_all()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        kind, name = request.match_info["kind"], request.match_info.get("name", "")
        if self.is_away:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return _fail(401, "Unauthorized")
        body = await request.json() if request.can_read_body else None
        self.bodies.append((request.method, kind, body))
        if refusal := self.refusals.get((request.method, kind)):
            return _fail(*refusal)
        if request.method == "POST":
            return await self._create(kind, body)
        if request.method == "DELETE":
            return await self._delete(kind, name, body)
        if request.method == "PATCH":
            if request.content_type != "application/merge-patch+json":
                return _fail(415, "the body of the request was in an unknown format")
            if name not in self.objects[kind]:
                return _fail(404, f'{kind} "{name}" not found')
            return web.json_response(await self.put(kind, _merge(self.objects[kind][name], body)))
        if name:
            found = self.objects[kind].get(name)
            return web.json_response(found) if found else _fail(404, f'{kind} "{name}" not found')
        if "watch" in request.query:
            return await self._watch(request, kind)
        self.num_lists[kind] += 1
        chosen = [each for each in self.objects[kind].values() if _fits(each, request.query)]
        return web.json_response({"metadata": {"resourceVersion": str(self.version)}, "items": chosen})

    async def _create(self, kind: str, created: dict[str, Any]) -> web.Response:
        name = created["metadata"]["name"]
        if name in self.objects[kind]:
            return _fail(409, f'{kind} "{name}" already exists')
        made = {**created, "status": {"phase": "Pending"}} if kind == "pods" else created
        return web.json_response(await self.put(kind, made), status=201)

    async def _delete(self, kind: str, name: str, body: dict[str, Any]) -> web.Response:
        found = self.objects[kind].get(name)
        if found is None:
            return _fail(404, f'{kind} "{name}" not found')
        if body["preconditions"]["uid"] != found["metadata"]["uid"]:
            return _fail(409, "the UID in the precondition does not match")
        grace_s = body.get("gracePeriodSeconds", found["spec"].get("terminationGracePeriodSeconds", 30))
        if kind != "pods" or not found["spec"].get("nodeName") or not grace_s:
            await self.remove(kind, name)
            return web.json_response(found)
        until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + grace_s))
        found["metadata"] |= {"deletionTimestamp": until, "deletionGracePeriodSeconds": grace_s}
        return web.json_response(await self.put(kind, found))

    async def _execute(self, request: web.Request) -> web.StreamResponse:
        """Run a command in a pod, over the channels of version 4."""
        if self.is_away:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return _fail(401, "Unauthorized")
        if refusal := self.refusals.get(("GET", "pods/exec")):
            return _fail(*refusal)
        name, container = request.match_info["name"], request.query["container"]
        spec = self.objects["pods"].get(name, {}).get("spec", {})
        if container not in [each["name"] for each in spec.get("containers", [{"name": container}])]:
            return _fail(400, f"container {container} is not valid for pod {name}")
        channels = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await channels.prepare(request)
        line = await channels.receive_bytes()
        assert line[:1] == b"\0" and request.query["stdin"] == "true" and self.run is not None
        output, succeeded = await self.run(name, request.query.getall("command"), line[1:])
        await channels.send_bytes(b"\2" + output)
        status = {"status": "Success"} if succeeded else {"status": "Failure", "message": "exit code 1"}
        await channels.send_bytes(b"\3" + json.dumps(status).encode())
        await channels.close()
        return channels

    async def _watch(self, request: web.Request, kind: str) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        self.watched_from.append(str(since))
        if since < self.oldest:
            return _fail(410, "too old resource version")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        task = asyncio.current_task()
        assert task is not None
        self._watches.add(task)
        try:
            while True:
                until = self.version
                for version, changed_kind, change, changed in list(self._history):
                    if since < version <= until and changed_kind == kind and _fits(changed, request.query):
                        await _write(response, change, changed)
                since = until
                await _write(response, "BOOKMARK", {"metadata": {"resourceVersion": str(since)}})
                async with self._changed:
                    await self._changed.wait_for(lambda last=since: self.version > last)
        except asyncio.CancelledError:
            assert request.transport is not None
            request.transport.abort()
            raise
        finally:
            self._watches.discard(task)


async def wait_until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until a condition is true; it is asked again at once."""
    async with asyncio.timeout(20):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def _write(response: web.StreamResponse, change: str, changed: dict[str, Any]) -> None:
    # As the API server writes it: other separators than newlines stay in the strings.
    line = json.dumps({"type": change, "object": changed}, ensure_ascii=False).encode() + b"\n"
    await response.write(line)


def _merge(before: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return an object with changes, as RFC 7396 merges them."""
    merged = dict(before)
    for name, value in changes.items():
        known = before.get(name, {})
        merged[name] = _merge(known, value) if isinstance(value, dict) and isinstance(known, dict) else value
    return merged


def _fits(each: dict[str, Any], query: Any) -> bool:
    labels, fields = each["metadata"].get("labels", {}), each.get("involvedObject", {})
    for pair in filter(None, query.get("labelSelector", "").split(",")):
        name, _, value = pair.partition("=")
        if labels.get(name) != value:
            return False
    for pair in filter(None, query.get("fieldSelector", "").split(",")):
        name, _, value = pair.partition("=")
        if fields.get(name.removeprefix("involvedObject.")) != value:
            return False
    return True


def _fail(code: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "status": "Failure", "message": message, "code": code}, status=code)
