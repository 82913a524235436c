"""Requests, lists and watches against an API server that misbehaves as real ones do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kubernetes_asyncio")

from tests.kubernetes_server import KubernetesServer, wait_until

from legato.clusters import kubernetes_api
from legato.clusters.kubernetes_api import (
    Follower,
    KubernetesApi,
    KubernetesAway,
    KubernetesRefusal,
    Listing,
    VersionExpired,
)
from legato.core.errors import UsageError

LABELS = "legato.cluster=pool"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_api, "_MIN_RETRY_S", 0.01)


def pod(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"legato.cluster": "pool", **labels}}, "spec": {}}


@asynccontextmanager
async def connect(tmp_path: Path) -> AsyncIterator[tuple[KubernetesServer, KubernetesApi]]:
    async with KubernetesServer() as server:
        api = KubernetesApi("lab", kubeconfig=server.write_kubeconfig(tmp_path / "kubeconfig"))
        try:
            yield server, api
        finally:
            await api.close()


@asynccontextmanager
async def follow(tmp_path: Path) -> AsyncIterator[tuple[KubernetesServer, Follower]]:
    async with connect(tmp_path) as (server, api):
        follower = Follower(api, "pods", LABELS)
        try:
            yield server, follower
        finally:
            await follower.close()


async def read_until(follower: Follower, names: set[str]) -> None:
    async def has_names() -> bool:
        try:
            return set(await follower.read()) == names
        except KubernetesAway:
            return False

    await wait_until(has_names)


async def is_away(follower: Follower) -> bool:
    try:
        await follower.read()
    except KubernetesAway as error:
        return "cannot be reached" in str(error)
    return False


def test_objects_are_created_found_and_deleted_as_plain_objects(tmp_path: Path) -> None:
    async def main() -> None:
        async with connect(tmp_path) as (server, api):
            made = await api.create("pods", pod("a") | {"unknown": {"field": [2]}})
            assert made["unknown"] == {"field": [2]}
            assert (await api.get("pods", "a") or {})["metadata"]["uid"] == made["metadata"]["uid"]
            assert await api.get("pods", "b") is None
            assert set((await api.list("pods", labels=LABELS)).objects) == {"a"}
            assert (await api.list("pods", labels="legato.cluster=other")).objects == {}
            await api.delete("pods", "a", uid="another")
            assert set(server.objects["pods"]) == {"a"}
            assert await api.delete("pods", "a", uid=made["metadata"]["uid"]) is None
            assert await api.delete("pods", "a", uid=made["metadata"]["uid"]) is None
            assert server.objects["pods"] == {}

    asyncio.run(main())


@pytest.mark.parametrize(
    ("code", "message", "told"),
    [
        (
            403,
            'pods is forbidden: User "system:serviceaccount:a:b" cannot create resource "pods" in API group ""',
            'a right is missing: User "system:serviceaccount:a:b" cannot create resource "pods" in API group ""',
        ),
        (403, 'pods "a" is forbidden: exceeded quota: team-a, requested: pods=1', "exceeded quota: team-a, requested"),
        (422, "Pod is invalid: spec.containers[0].image: Required value", "spec.containers[0].image: Required value"),
    ],
)
def test_a_refusal_has_the_words_of_the_api_server(tmp_path: Path, code: int, message: str, told: str) -> None:
    async def main() -> None:
        async with connect(tmp_path) as (server, api):
            server.refusals["POST", "pods"] = (code, message)
            with pytest.raises(KubernetesRefusal) as caught:
                await api.create("pods", pod("a"))
            assert told in str(caught.value)

    asyncio.run(main())


@pytest.mark.parametrize("code", [429, 500, 503])
def test_an_overloaded_api_server_gives_no_news(tmp_path: Path, code: int) -> None:
    async def main() -> None:
        async with connect(tmp_path) as (server, api):
            server.refusals["GET", "pods"] = (code, "etcd leader changed")
            with pytest.raises(KubernetesAway, match="etcd leader changed"):
                await api.list("pods")

    asyncio.run(main())


def test_what_is_no_kubernetes_gives_no_news(tmp_path: Path) -> None:
    async def main() -> None:
        async with connect(tmp_path) as (server, api):
            server.objects["pods"]["a"] = {"metadata": {}}
            with pytest.raises(KubernetesAway, match="no Kubernetes API server"):
                await api.list("pods")

    asyncio.run(main())


def test_a_kubeconfig_is_read_again_when_its_token_has_expired(tmp_path: Path) -> None:
    async def main() -> None:
        async with connect(tmp_path) as (server, api):
            await api.list("pods")
            server.token = "token-2"
            with pytest.raises(KubernetesAway, match="credentials"):
                await api.list("pods")
            server.write_kubeconfig(tmp_path / "kubeconfig", "token-2")
            await api.list("pods")

    asyncio.run(main())


def test_a_missing_kubeconfig_gives_no_news_and_is_named(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(KubernetesAway, match=str(tmp_path / "none")):
            await KubernetesApi("lab", kubeconfig=tmp_path / "none").list("pods")
        with pytest.raises(KubernetesAway, match="Outside of a pod, set kubeconfig"):
            await KubernetesApi("lab").list("pods")

    asyncio.run(main())


def test_a_missing_library_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "kubernetes_asyncio", None)
    with pytest.raises(UsageError, match=r"python -m pip install 'legato\[kubernetes\]'"):
        asyncio.run(KubernetesApi("lab").list("pods"))


def test_a_follower_lists_once_and_then_watches(tmp_path: Path) -> None:
    async def main() -> None:
        async with follow(tmp_path) as (server, follower):
            await server.put("pods", pod("a"))
            assert set(await follower.read()) == {"a"}
            await server.put("pods", pod("b"))
            await server.put("pods", {"metadata": {"name": "foreign"}})
            await read_until(follower, {"a", "b"})
            await server.remove("pods", "a")
            await read_until(follower, {"b"})
            assert server.num_lists["pods"] == 1

    asyncio.run(main())


def test_a_watch_that_breaks_goes_on_from_its_last_version(tmp_path: Path) -> None:
    async def main() -> None:
        async with follow(tmp_path) as (server, follower):
            await server.put("pods", pod("a"))
            await follower.read()
            await server.put("pods", pod("b"))
            await read_until(follower, {"a", "b"})
            server.break_watches()
            await server.put("pods", pod("c"))
            await read_until(follower, {"a", "b", "c"})
            assert server.num_lists["pods"] == 1
            assert server.watched_from[0] == "1"
            assert int(server.watched_from[-1]) >= 2

    asyncio.run(main())


def test_a_version_that_is_too_old_lists_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with follow(tmp_path) as (server, follower):
            await server.put("pods", pod("a"))
            await follower.read()
            await server.set_away(True)
            await server.remove("pods", "a")
            await server.put("pods", pod("b"))
            server.oldest = server.version
            await server.set_away(False)
            await read_until(follower, {"b"})
            assert server.num_lists["pods"] == 2

    asyncio.run(main())


def test_an_api_server_that_is_away_is_no_news_until_it_answers_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with follow(tmp_path) as (server, follower):
            await server.put("pods", pod("a"))
            await follower.read()
            await server.set_away(True)
            await wait_until(lambda: is_away(follower))
            await server.set_away(False)
            assert set(await follower.read()) == {"a"}

    asyncio.run(main())


def test_a_missing_right_is_named_and_tried_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with follow(tmp_path) as (server, follower):
            server.refusals["GET", "pods"] = (403, 'pods is forbidden: User "u" cannot list resource "pods"')
            with pytest.raises(KubernetesAway, match='a right is missing: User "u" cannot list resource "pods"'):
                await follower.read()
            server.refusals.clear()
            assert await follower.read() == {}

    asyncio.run(main())


def test_line_separators_inside_of_strings_split_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with follow(tmp_path) as (server, follower):
            await follower.read()
            text = "a\u0085b\u2028c\r d"
            await server.put("pods", pod("a") | {"note": text})
            await read_until(follower, {"a"})
            assert (await follower.read())["a"]["note"] == text

    asyncio.run(main())


def test_a_new_object_is_seen_at_once_and_a_deleted_one_is_not(tmp_path: Path) -> None:
    async def main() -> None:
        async with follow(tmp_path) as (_, follower):
            await follower.read()
            for number in range(20):
                await follower.create(pod(f"p{number}"))
                assert f"p{number}" in await follower.read()
                await follower.delete(f"p{number}")
                assert f"p{number}" not in await follower.read()

    asyncio.run(main())


class EndingWatches(KubernetesApi):
    """An API server whose watches connect and end at once: some with changes, some with 410, some without anything."""

    def __init__(self, *watches: str) -> None:
        super().__init__("lab")
        self.watches = list(watches)
        self.num_lists = 0
        self.done = asyncio.Event()

    async def list(self, kind: str, *, labels: str = "", fields: str = "") -> Listing:
        self.num_lists += 1
        return Listing({}, "1")

    async def watch(self, kind: str, version: str, *, labels: str = "") -> AsyncGenerator[tuple[str, Any], None]:
        yield "CONNECTED", {"metadata": {"resourceVersion": version}}
        if not self.watches:
            self.done.set()
            await asyncio.Event().wait()
        match self.watches.pop(0):
            case "410":
                raise VersionExpired
            case "":
                return
            case change:
                yield change, {"metadata": {"name": "a", "resourceVersion": "2"}}


async def record_pauses(api: EndingWatches, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    monkeypatch.setattr(kubernetes_api, "_MIN_RETRY_S", 1.0)
    follower, pauses = Follower(api, "pods", LABELS), list[float]()

    async def pause(wait_s: float) -> None:
        pauses.append(wait_s)

    monkeypatch.setattr(follower, "_pause", pause)
    try:
        await follower.read()
        async with asyncio.timeout(20):
            await api.done.wait()
    finally:
        await follower.close()
    return pauses


@pytest.mark.parametrize("ending", ["", "410", "BOOKMARK"])
def test_watches_that_end_at_once_are_failures_and_the_pods_are_listed(
    ending: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        api = EndingWatches(*[ending] * 6)
        assert await record_pauses(api, monkeypatch) == [1, 2, 4, 8, 10, 10]
        assert api.num_lists == 7

    asyncio.run(main())
    assert caplog.text.count("ends each watch at once: Legato lists the pods every 10 s") == 1


def test_a_change_is_progress_and_a_watch_that_lasted_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        api = EndingWatches("", "", "ADDED", "", "")
        assert await record_pauses(api, monkeypatch) == [1, 2, 1, 2, 4]
        monkeypatch.setattr(kubernetes_api, "_SHORT_WATCH_S", 0.0)
        api = EndingWatches("", "", "")
        assert await record_pauses(api, monkeypatch) == [1, 1, 1]
        assert api.num_lists == 1

    asyncio.run(main())


def test_requests_do_not_wait_for_connections_that_watches_hold(tmp_path: Path) -> None:
    async def main() -> None:
        async with connect(tmp_path) as (_, api):
            followers = [Follower(api, "pods", LABELS) for _ in range(110)]
            try:
                for follower in followers:
                    await follower.read()
                async with asyncio.timeout(5):
                    await api.list("pods")
            finally:
                for follower in followers:
                    await follower.close()

    asyncio.run(main())


def test_a_patch_changes_nothing_else(tmp_path: Path) -> None:
    async def main() -> None:
        async with connect(tmp_path) as (server, api):
            await server.put("pods", pod("a", x="1"))
            made = await api.patch("pods", "a", {"metadata": {"labels": {"status": "Running"}}})
            assert made["metadata"]["labels"] == {"legato.cluster": "pool", "x": "1", "status": "Running"}
            assert server.objects["pods"]["a"]["spec"] == {}
            with pytest.raises(KubernetesRefusal):
                await api.patch("pods", "b", {})

    asyncio.run(main())


def test_a_command_in_a_pod_gets_its_input_and_says_why_it_failed(tmp_path: Path) -> None:
    asked: list[tuple[str, list[str], bytes]] = []

    async def note(name: str, command: list[str], line: bytes) -> tuple[bytes, bool]:
        asked.append((name, command, line))
        return b"first line\nNo such file\n", command[0] == "take"

    async def main() -> None:
        async with connect(tmp_path) as (server, api):
            server.run = note
            await api.execute("a", "c", ["take", "x y"], b"secret")
            assert asked == [("a", ["take", "x y"], b"secret\n")]
            with pytest.raises(KubernetesRefusal, match="the command failed: first line No such file"):
                await api.execute("a", "c", ["fail"], b"")
            server.refusals["GET", "pods/exec"] = (403, "no")
            with pytest.raises(KubernetesRefusal, match='cannot create and get resource "pods/exec"'):
                await api.execute("a", "c", ["take"], b"")
            server.refusals["GET", "pods/exec"] = (500, "no kubelet")
            with pytest.raises(KubernetesAway, match="answers 500 to a command for pod a"):
                await api.execute("a", "c", ["take"], b"")
            await server.set_away(True)
            with pytest.raises(KubernetesAway, match="cannot be reached"):
                await api.execute("a", "c", ["take"], b"")

    asyncio.run(main())


def test_a_command_whose_connection_breaks_has_no_result(tmp_path: Path) -> None:
    async def main() -> None:
        async with connect(tmp_path) as (server, api):

            async def cut(_name: str, _command: list[str], _line: bytes) -> tuple[bytes, bool]:
                raise ConnectionResetError

            server.run = cut
            with pytest.raises(KubernetesAway, match="connection to a command in a pod broke"):
                await api.execute("a", "c", ["take"], b"")

    asyncio.run(main())
