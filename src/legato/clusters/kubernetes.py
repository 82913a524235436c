"""Starts agents as pods of a Kubernetes cluster. Decides nothing about how many there are.

The API server has the whole truth: a new process of the server finds its pods by their label, and their machines by an
annotation.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from legato.clusters.kubernetes_api import CONFLICT, Follower, KubernetesApi, KubernetesAway, KubernetesRefusal
from legato.clusters.pilots import Cluster, ClusterAwayError, Pilot, PilotOrder, PilotState, Submitted
from legato.clusters.pod_states import find_state, has_no_secret, is_lost, needs_events, read_pilot
from legato.clusters.pods import (
    POOL_LABEL,
    SPECIFICATION,
    Owner,
    PodShape,
    build_anchor,
    build_pod,
    build_secret,
    check_shape,
    find_time_limit,
    hash_specification,
    name_anchor,
)
from legato.core.errors import UsageError

_log = logging.getLogger(__name__)

KubeObject = Mapping[str, Any]

_Stage = tuple[str, PilotState, str | None]
"""Uid, state and time to end of a pod."""

_KEEP_ENDED_S: Final = 600.0
"""How long pods that have ended stay, so that people can read their logs."""
_SECRET_LIMIT_S: Final = 60.0
_EVENTS_EVERY_S: Final = 10.0
_MAX_EVENT_PODS: Final = 20
_NOW_S: Final = 1
"""As short as a pod can be given, and its node still confirms its end."""


class KubernetesCluster(Cluster):
    """The pods of one pool.

    Args:
        api: of the cluster.
        shape: of all pods.
        url: at which the pods reach the server, that of all orders. Waiting pods of another shape or URL are replaced.
        clock: returns seconds since any moment. Times of the API server are compared with no clock of this machine.

    Attributes:
        time_s: after which Kubernetes ends each pod; None: it does not.
    """

    kind: ClassVar = "kubernetes"
    observe_every_s: ClassVar = 1.0

    def __init__(
        self, api: KubernetesApi, shape: PodShape, url: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__("Kubernetes", shape.pool)
        check_shape(shape, url)
        self._api = api
        self._shape = shape
        self.time_s = find_time_limit(shape)
        self._clock = clock
        self._pods = Follower(api, "pods", f"{POOL_LABEL}={shape.pool}")
        self._events: dict[tuple[str, PilotState], tuple[float, Sequence[KubeObject]]] = {}
        self._specification = hash_specification(shape, url)
        self._last_pods: dict[str, str] = {}
        self._seen_since: dict[_Stage, float] = {}
        self._warned: dict[str, str] = {}

    async def observe(self) -> Sequence[Pilot]:
        """Return the pilots of all pods, and delete pods that can become nothing any more. Errors as in `Cluster`."""
        try:
            pods = await self._pods.read()
            now = self._clock()
            events = await self._read_events(pods, now)
            seen_s = self._measure_stages(pods, now)
            for name, pod in pods.items():
                if (grace_s := self._find_removal(pod, events.get(name, ()), seen_s[name])) is not None:
                    await self._remove(name, grace_s)
            ordered = sorted(pods.items(), key=_creation)
            pilots = [read_pilot(pod, events.get(name, ()), seen_s[name]) for name, pod in ordered]
            # A machine's name is used again when its last pod is gone. Times of Kubernetes are whole seconds.
            by_age = sorted(pilots, key=lambda pilot: pilot.state is not PilotState.GONE)
            self._last_pods = {pilot.node: pilot.id for pilot in by_age}
            return [one for one in pilots if one.state is not PilotState.GONE or self._last_pods[one.node] == one.id]
        except KubernetesAway as error:
            raise self._describe_absence(error) from error

    async def start(self, orders: Sequence[PilotOrder]) -> Sequence[Submitted]:
        """Create a pod for each order. Errors as in `Cluster`."""
        try:
            await self._pods.read()
            anchor = await self._find_anchor()
        except KubernetesAway as error:
            raise self._describe_absence(error) from error
        except KubernetesRefusal as error:
            return [Submitted(node=order.node, refusal=str(error)) for order in orders]
        done: list[Submitted] = []
        for order in orders:
            try:
                done.append(await self._start_one(order, anchor))
            except (KubernetesRefusal, UsageError) as error:
                done.append(Submitted(node=order.node, refusal=str(error).rstrip(".")))
            except KubernetesAway as error:
                if not done:
                    raise self._describe_absence(error) from error
                done.append(Submitted(node=order.node))  # whether it was created is seen by the next observation
        return done

    async def end(self, pilots: Sequence[Pilot], *, force: bool) -> None:
        """Delete pods. Without force their agents get SIGTERM, and the time to leave. Errors as in `Cluster`."""
        try:
            await self._pods.read()
            for pilot in pilots:
                await self._remove(pilot.id, _NOW_S if force else None)
        except KubernetesAway as error:
            raise self._describe_absence(error) from error

    def explain_failure(self, node: str, uid: int | None) -> str:  # noqa: ARG002 -- pods have no users
        """Return the command that shows the log of a machine's last pod."""
        name = self._last_pods.get(node)
        return "" if name is None else f"See its log: kubectl logs --namespace {self._shape.namespace} {name}"

    async def close(self) -> None:
        """Close all connections. Pods run on."""
        await self._pods.close()
        await self._api.close()

    # ------------------------------------------------------------ inside

    async def _start_one(self, order: PilotOrder, anchor: Owner) -> Submitted:
        name = f"legato-{order.node}-{secrets.token_hex(3)}"
        pod = await self._pods.create(build_pod(order, self._shape, anchor, name))
        about = pod["metadata"]
        owner = Owner("Pod", about["name"], about["uid"])
        try:
            await self._api.create("secrets", build_secret(order, self._shape, owner))
        except KubernetesAway:
            pass  # the pod exists, and its Secret may; if it does not, the pod is deleted after a while
        except KubernetesRefusal:
            with contextlib.suppress(KubernetesAway):
                await self._remove(about["name"], 0)
            raise
        return Submitted(node=order.node, pilot=read_pilot(pod, ()))

    async def _find_anchor(self) -> Owner:
        name = name_anchor(self.pool)
        found = await self._api.get("configmaps", name)
        if found is None:
            try:
                found = await self._api.create("configmaps", build_anchor(self.pool))
            except KubernetesRefusal as error:
                # A conflict: another process of the server has created it meanwhile.
                found = await self._api.get("configmaps", name) if error.code == CONFLICT else None
                if found is None:
                    raise
        return Owner("ConfigMap", name, found["metadata"]["uid"])

    def _measure_stages(self, pods: Mapping[str, KubeObject], now: float) -> dict[str, float]:
        """Return for how many seconds each pod has been seen in its state, with its present time to end."""
        stages = {name: _find_stage(pod) for name, pod in pods.items()}
        self._seen_since = {stage: self._seen_since.get(stage, now) for stage in stages.values()}
        return {name: now - self._seen_since[stage] for name, stage in stages.items()}

    def _find_removal(self, pod: KubeObject, events: Sequence[KubeObject], seen_s: float) -> int | None:
        """Return with how much time a pod must be deleted that can become nothing any more; None: it stays."""
        if is_lost(pod, seen_s):
            # Its agent's lease has ended: Legato has freed its slots, and nothing here can confirm its end.
            return 0
        if pod["metadata"].get("deletionTimestamp"):
            return None
        state = find_state(pod)
        if state is PilotState.GONE:
            return 0 if seen_s > _KEEP_ENDED_S else None
        if state is PilotState.WAITING:
            is_outdated = pod["metadata"].get("annotations", {}).get(SPECIFICATION) != self._specification
            if is_outdated or (seen_s > _SECRET_LIMIT_S and has_no_secret(pod, events)):
                return _NOW_S
        return None

    async def _remove(self, name: str, grace_s: int | None) -> None:
        try:
            await self._pods.delete(name, grace_s=grace_s)
            self._warn("delete pods", None)
        except KubernetesRefusal as error:
            self._warn("delete pods", error)

    async def _read_events(self, pods: Mapping[str, KubeObject], now: float) -> dict[str, Sequence[KubeObject]]:
        """Return the events of pods whose status does not say enough, each read at most every few seconds."""
        kept: dict[tuple[str, PilotState], tuple[float, Sequence[KubeObject]]] = {}
        num_read = 0
        for pod in pods.values():
            if not needs_events(pod):
                continue
            key = (pod["metadata"]["uid"], find_state(pod))
            read_at, events = self._events.get(key, (float("-inf"), ()))
            if now - read_at >= _EVENTS_EVERY_S and num_read < _MAX_EVENT_PODS:
                num_read += 1
                read_at, events = now, await self._list_events(pod["metadata"]["name"])
            kept[key] = (read_at, events)
        self._events = kept
        return {
            name: kept[key][1]
            for name, pod in pods.items()
            if (key := (pod["metadata"]["uid"], find_state(pod))) in kept
        }

    async def _list_events(self, name: str) -> Sequence[KubeObject]:
        try:
            # By name: some events have no uid. No two pods of Legato have one name.
            listing = await self._api.list("events", fields=f"involvedObject.kind=Pod,involvedObject.name={name}")
            self._warn("read the events of pods", None)
        except KubernetesRefusal as error:
            self._warn("read the events of pods", error)
            return ()
        return tuple(listing.objects.values())

    def _warn(self, what: str, error: KubernetesRefusal | None) -> None:
        """Log what is refused, once until the reason changes. None: it is not refused."""
        told = "" if error is None else str(error)
        if told and told != self._warned.get(what):
            _log.warning("Cannot %s on Kubernetes: %s. Legato tries again", what, told)
        self._warned[what] = told

    def _describe_absence(self, error: KubernetesAway) -> ClusterAwayError:
        return ClusterAwayError(f"Kubernetes gives no news: {error}.")


def _find_stage(pod: KubeObject) -> _Stage:
    about = pod["metadata"]
    return about["uid"], find_state(pod), about.get("deletionTimestamp")


def _creation(item: tuple[str, KubeObject]) -> tuple[str, str]:
    return str(item[1]["metadata"].get("creationTimestamp", "")), item[0]
