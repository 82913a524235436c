"""The worker pods of a job: creates those that are missing, and gives each the order for its agent.

`plan_pods` is pure and decides. Kubernetes knows all pods, so little is kept here: a master that starts again finds
them by their labels and annotations.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from legato.agent.orders import AgentOrder
from legato.clusters.kubernetes_api import CONFLICT, Follower, KubernetesApi, KubernetesAway, KubernetesRefusal
from legato.clusters.pilots import PilotState
from legato.clusters.pod_states import AGENT, read_pilot
from legato.compat.elasticdl.manifests import (
    INDEX_LABEL,
    MASTER_PORT,
    NO_ORDER,
    PLACE,
    Owner,
    PodsJob,
    name_worker,
    render_worker,
    select_workers,
)
from legato.core.slots import node_of
from legato.engines.agents import PATH
from legato.system.door import Door

_log = logging.getLogger(__name__)

TAKE_ORDER: Final = ("python", "-m", "legato.compat.elasticdl.worker_pod", "--take-order")
_LOOK_EVERY_S: Final = 0.5
_FIRST_PAUSE_S: Final = 5.0
_MAX_PAUSE_S: Final = 300.0
_YOUNG_S: Final = 30.0
"""A pod that goes within so long after its creation has failed, whatever removed it."""
_NUMBER: Final = re.compile("[0-9]{1,9}")
_ORDER_AGAIN_S: Final = 2.0
_REFUSAL_LIMIT_S: Final = 60.0
_NOW_S: Final = 1
_RUN: Final = (PilotState.RUNNING, PilotState.ENDING)
_LEAVE_LIMIT_S: Final = 20.0


class WorkerPod(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's pod, as Kubernetes shows it.

    Args:
        name: of the pod, and of its machine in the job.
        number: of the worker; never used twice.
        place: which of the places it takes.
        state: of its container.
        reason: why it is there, in the words of Kubernetes.
        container: id of the running container; "": none runs.
        address: of the pod.
        has_succeeded: it has ended with exit code 0.
        had_no_order: it has ended because it got no order in time.
        is_out_of_memory: it has ended because it needed more memory than its limit.
        ended: id of the last container of the pod that has certainly ended; "": none has.
    """

    name: str
    number: int
    place: int
    state: PilotState
    reason: str = ""
    container: str = ""
    address: str = ""
    has_succeeded: bool = False
    had_no_order: bool = False
    is_out_of_memory: bool = False
    ended: str = ""


def read_worker_pod(pod: Mapping[str, Any]) -> WorkerPod:
    """Return what is of interest of a worker's pod, as the API server returns it."""
    about, status = pod["metadata"], pod.get("status", {})
    number = _read_number(about.get("labels", {}).get(INDEX_LABEL), 0)
    # Others may have put containers beside it. Legato's has the name of the pod.
    own = [each for each in status.get("containerStatuses", ()) if each.get("name") == about["name"]]
    containers = [{**each, "name": AGENT} for each in own]
    pilot = read_pilot({**pod, "status": {**status, "containerStatuses": containers}}, ())
    container = containers[0] if containers else {}
    ended = container.get("state", {}).get("terminated") or container.get("lastState", {}).get("terminated") or {}
    last = container.get("state", {}).get("terminated") or {}
    return WorkerPod(
        name=about["name"],
        number=number,
        place=_read_number(about.get("annotations", {}).get(PLACE), number),
        state=pilot.state,
        reason=pilot.reason or "",
        container=container.get("containerID", "") if "running" in container.get("state", {}) else "",
        address=status.get("podIP", ""),
        had_no_order=last.get("message") == NO_ORDER,
        has_succeeded=status.get("phase") == "Succeeded",
        is_out_of_memory=last.get("reason") == "OOMKilled",
        ended=ended.get("containerID", ""),
    )


def _read_number(text: Any, default: int) -> int:
    """Return the number in a label, which others in the namespace may have changed."""
    return int(text) if isinstance(text, str) and _NUMBER.fullmatch(text) else default


class PodEnd(msgspec.Struct, frozen=True):
    """The certain end of a container.

    Args:
        reason: why it has ended.
        seen_at: when Legato saw it, in monotonic seconds. A container that runs later in the pod gets its order later.
    """

    reason: str
    seen_at: float


class Places(msgspec.Struct, kw_only=True):
    """What is known of each place of a job.

    Args:
        occupants: place → name of its last pod.
        closed: place → why it gets no pod any more.
        failures: place → how many of its pods have failed one after another.
        retry_at: place → when it gets the next pod, in monotonic seconds.
        judged: names of pods whose failure is counted.
        known_since: name of a pod → when Legato created or found it, in monotonic seconds.
        next_number: of the next pod.
    """

    occupants: dict[int, str] = {}
    closed: dict[int, str] = {}
    failures: dict[int, int] = {}
    retry_at: dict[int, float] = {}
    judged: set[str] = set()
    known_since: dict[str, float] = {}
    next_number: int = 0


def plan_pods(
    places: Places, pods: Mapping[str, WorkerPod], num_places: int, now: float, *, relaunches: bool = True
) -> list[int]:
    """Return the places for which pods must be created now. Changes ``places``, and nothing else.

    A pod that is deleted, evicted or lost with its node is replaced at once, by one with a new number. A pod that fails
    is replaced after a pause, which doubles; so is the second one and each further one of a place that is deleted when
    it is young. One that needed too much memory is not replaced: the next one would too.

    Args:
        places: of the job.
        pods: by name.
        num_places: number of workers.
        now: monotonic seconds.
        relaunches: replace pods; False: only create the first ones.
    """
    wanted = []
    for place in range(num_places):
        pod = pods.get(places.occupants.get(place, ""))
        if pod is not None and pod.state is PilotState.GONE:
            _judge(places, pod, now)
        elif place in places.occupants and (pod is None or pod.state is PilotState.ENDING):
            _judge_deleted(places, place, now)
        is_taken = pod is not None and pod.state in (PilotState.WAITING, PilotState.RUNNING)
        if not relaunches and place in places.occupants and not is_taken:
            places.closed.setdefault(place, "--aux_params has disable_relaunch=True")
        if not is_taken and place not in places.closed and now >= places.retry_at.get(place, now):
            wanted.append(place)
    return wanted


def _judge(places: Places, pod: WorkerPod, now: float) -> None:
    if pod.name in places.judged:
        return
    places.judged.add(pod.name)
    if pod.has_succeeded and not pod.had_no_order:
        places.closed[pod.place] = "it has left the job"
    elif pod.is_out_of_memory:
        places.closed[pod.place] = f"{pod.reason}; raise --worker_resource_limit"
    else:
        delay_next(places, pod.place, now)


def _judge_deleted(places: Places, place: int, now: float) -> None:
    name = places.occupants[place]
    if name in places.judged or not is_young(places, name, now):
        return
    places.judged.add(name)
    is_first = not places.failures.get(place)
    delay_next(places, place, now)
    if is_first:  # a user deletes one by hand
        del places.retry_at[place]


def is_young(places: Places, name: str, now: float) -> bool:
    """Return whether a pod is so young that its end is a failure, and that it has not proved itself by running."""
    return now - places.known_since.get(name, float("-inf")) < _YOUNG_S


def delay_next(places: Places, place: int, now: float) -> None:
    """Let a place get its next pod after a pause, because it cannot have one now."""
    failures = places.failures[place] = places.failures.get(place, 0) + 1
    places.retry_at[place] = now + min(_FIRST_PAUSE_S * 2.0 ** min(failures - 1, 10), _MAX_PAUSE_S)


class WorkerPods:
    """Creates and watches the worker pods of a job, as `legato.engines.agents.Starter` and `peers.Pods`.

    Args:
        api: of the cluster.
        job: whose pods.
        owner: the master's pod.
        door: of the driver, on the address of the master's pod.
        say: takes sentences for the log, without their periods.
        relaunches: replace pods that are gone.
        clock: monotonic seconds.

    Attributes:
        changed: set after each look at the pods.
    """

    def __init__(
        self,
        api: KubernetesApi,
        job: PodsJob,
        owner: Owner,
        door: Door,
        *,
        say: Callable[[str], None],
        relaunches: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._job, self._owner, self._door = api, job, owner, door
        self._say = say
        self._relaunches = relaunches
        self._clock = clock
        self._follower = Follower(api, "pods", select_workers(job))
        self._places = Places()
        self._pods: dict[str, WorkerPod] = {}
        self._ended: dict[str, PodEnd] = {}
        self._told: dict[str, str] = {}
        self._delivered: set[str] = set()
        self.address, self.port = owner.address, MASTER_PORT
        self.changed = asyncio.Event()

    # ------------------------------------------------------------ the pods

    async def find(self, known: Iterable[str]) -> list[WorkerPod]:
        """Return the pods that an earlier start of this master has created, and take their places as they are.

        Args:
            known: names of pods whose numbers are not used again; they may be gone.

        Raises:
            KubernetesAway: the API server does not answer.
            KubernetesRefusal: the master may not list pods.
        """
        await self._api.list("pods", labels=select_workers(self._job))  # whose refusal has a reason
        self._pods = await self._read()
        for pod in sorted(self._pods.values(), key=lambda each: each.number):
            self._take(pod)
        numbers = [number_of(self._job, name) for name in known]
        self._places.next_number = max([self._places.next_number, *(number + 1 for number in numbers)])
        return list(self._pods.values())

    async def remove(self, names: Iterable[str]) -> None:
        """Delete pods at once; errors as in `find`."""
        for name in names:
            await self._follower.delete(name, grace_s=_NOW_S)

    async def watch_forever(self) -> None:
        """Create pods that are missing, until cancelled."""
        while True:
            try:
                await self.look()
                self._tell("Kubernetes", "")
            except KubernetesAway as error:
                self._tell("Kubernetes", f"Kubernetes gives no news: {error}. Training goes on")
            except Exception as error:  # noqa: BLE001 -- the job trains without new pods, too
                told = f"Legato has an error and looks at the pods again: {error!r}"
                if told != self._told.get("Kubernetes"):
                    _log.exception("The pods cannot be looked at")
                self._tell("Kubernetes", told)
            await asyncio.sleep(_LOOK_EVERY_S)

    async def look(self) -> None:
        """Look at the pods once, and create those that are missing. Raises KubernetesAway."""
        self._note(await self._read())
        now = self._clock()
        closed = set(self._places.closed)
        for place in plan_pods(self._places, self._pods, self._job.num_workers, now, relaunches=self._relaunches):
            await self._create(place, now)
        for place in self._places.closed.keys() - closed:
            self._say(f"{self._places.occupants[place]} is not replaced: {self._places.closed[place]}")
        self.changed.set()
        with contextlib.suppress(KubernetesRefusal):  # then they stay
            await self.remove(name for name, pod in self._pods.items() if pod.had_no_order)

    async def _create(self, place: int, now: float) -> None:
        number, is_relaunched = self._places.next_number, place in self._places.occupants
        pod = render_worker(self._job, number, place, self._owner, is_relaunched=is_relaunched)
        try:
            created = await self._follower.create(pod)
            if not pod["metadata"]["labels"].items() <= created["metadata"].get("labels", {}).items():
                await self._discard(created, place, now)
                return
        except KubernetesRefusal as error:
            if error.code == CONFLICT and await self._is_of_another(pod["metadata"]["name"]):
                self._places.next_number += 1  # for the next look
                return
            self._tell("new pods", f"Kubernetes does not create {pod['metadata']['name']}: {error}")
            delay_next(self._places, place, now)
            return
        self._tell("new pods", "")
        made = read_worker_pod(created)
        self._take(made)
        self._pods[made.name] = made

    async def _discard(self, pod: Mapping[str, Any], place: int, now: float) -> None:
        """Delete a new pod that this master would not find again."""
        name = pod["metadata"]["name"]
        told = "something in the cluster, such as a webhook, has changed its labels. Exempt them, or the namespace"
        self._tell("new pods", f"{name} is deleted: {told}")
        self._places.next_number += 1  # its name is taken until it has ended
        delay_next(self._places, place, now)
        await self._follower.delete(name, grace_s=_NOW_S)

    async def _is_of_another(self, name: str) -> bool:
        """Return whether a pod is there that this master's pod does not own, such as one of an earlier master."""
        try:
            found = await self._api.get("pods", name)
        except KubernetesRefusal:
            return False
        return found is not None and not self._owns(found)

    def _owns(self, pod: Mapping[str, Any]) -> bool:
        return any(owner.get("uid") == self._owner.uid for owner in pod["metadata"].get("ownerReferences", ()))

    def _take(self, pod: WorkerPod) -> None:
        self._places.occupants[pod.place] = pod.name
        self._places.known_since[pod.name] = self._clock()
        self._places.next_number = max(self._places.next_number, pod.number + 1)

    async def _read(self) -> dict[str, WorkerPod]:
        """Return the pods that this master's pod owns. Those of an earlier one go with it."""
        return {name: read_worker_pod(pod) for name, pod in (await self._follower.read()).items() if self._owns(pod)}

    def _note(self, pods: dict[str, WorkerPod]) -> None:
        for name, pod in pods.items():
            before = self._pods.get(name)
            if before is None:
                self._take(pod)  # the answer to its creation was lost
            if pod.ended and (before is None or before.ended != pod.ended):
                self._ended[name] = PodEnd(pod.reason or "its container has ended", self._clock())
            is_running = pod.state is PilotState.RUNNING and pod.container
            if is_running and not is_young(self._places, name, self._clock()):
                self._places.failures.pop(pod.place, None)
            self._tell(name, f"{name}: {pod.reason}" if pod.reason else "")
        for name in self._pods.keys() - pods.keys():
            self._say(f"{name} is gone")
        self._pods = pods

    def _tell(self, what: str, told: str) -> None:
        """Say something about a subject, once until it changes."""
        if told and told != self._told.get(what):
            self._say(told)
        self._told[what] = told

    @property
    def usable(self) -> tuple[str, ...]:
        """The names of the pods in which workers can run now, in the order of their numbers."""
        pods = sorted(self._pods.values(), key=lambda each: each.number)
        return tuple(pod.name for pod in pods if pod.state is PilotState.RUNNING and pod.container)

    @property
    def are_coming(self) -> bool:
        """Whether more pods may become usable soon: a node has been found for them."""
        waiting = [pod for pod in self._pods.values() if pod.state is PilotState.WAITING]
        return any(not pod.reason.startswith("Unschedulable") for pod in waiting)

    @property
    def why_over(self) -> str | None:
        """Why the job has no pods, and gets none any more; None: it has some, or may get some."""
        if len(self._places.closed) < self._job.num_workers:
            return None
        if any(pod.state is not PilotState.GONE for pod in self._pods.values()):
            return None
        return "; ".join(f"{self._places.occupants[place]}: {why}" for place, why in self._places.closed.items())

    def take_ended(self) -> dict[str, PodEnd]:
        """Return the pods of which a container has certainly ended, each end once."""
        ended, self._ended = self._ended, {}
        return ended

    async def finish(self) -> None:
        """Delete pods that had no part in the job, and wait until the agents of the others have ended."""
        with contextlib.suppress(KubernetesAway, KubernetesRefusal):
            alive = [pod for pod in (await self._read()).values() if pod.state is not PilotState.GONE]
            await self.remove(pod.name for pod in alive if pod.container not in self._delivered)
            deadline = self._clock() + _LEAVE_LIMIT_S
            while left := [name for name, pod in (await self._read()).items() if pod.container]:
                if self._clock() >= deadline:
                    await self.remove(left)
                    return
                await asyncio.sleep(_LOOK_EVERY_S)

    async def close(self) -> None:
        """Stop watching."""
        await self._follower.close()

    # ------------------------------------------------------------ for the engine and the plugin

    async def keep(self, node: str, secret: str, refuse: Callable[[str], None]) -> None:
        """Give the agent of a pod its order, and again when its container has started again; see `Starter.keep`.

        A refusal may pass, so the order is offered again. After a minute of refusals the machine counts as unusable,
        until it takes the order.
        """
        delivered = ""  # to which of its containers
        refused_since: float | None = None
        while True:
            pod, pause_s = self._pods.get(node), _LOOK_EVERY_S
            if pod is not None and pod.container not in ("", delivered) and pod.address:
                order = AgentOrder(
                    job=self._job.name,
                    node=node,
                    urls=(self._door.url(PATH),),
                    token=secret,
                    address=pod.address,
                    num_slots=1,
                    certificate=self._door.certificate,
                )
                try:
                    command = (*TAKE_ORDER, "--pod", node)
                    await self._api.execute(node, node, command, msgspec.json.encode(order))
                    delivered, refused_since = pod.container, None
                    self._delivered.add(delivered)
                    self._tell(f"order of {node}", "")
                except KubernetesRefusal as error:
                    self._tell(f"order of {node}", f"{node} cannot be given the job: {error}")
                    now, pause_s = self._clock(), _ORDER_AGAIN_S
                    refused_since = now if refused_since is None else refused_since
                    if now - refused_since >= _REFUSAL_LIMIT_S:
                        refuse(f"the master cannot give it the job: {error}")
                        refused_since = math.inf  # which says it once
                except KubernetesAway as error:
                    self._tell(f"order of {node}", f"{node} cannot be given the job now: {error}")
            await asyncio.sleep(pause_s)

    def address_of(self, slot: str) -> str | None:
        """Return the address of the pod with a slot; None if there is none."""
        pod = self._pods.get(node_of(slot))
        return pod.address or None if pod is not None else None

    def has(self, address: str) -> bool:
        """Return whether a pod of the job has this address now. After its container has ended, others may get it."""
        pods = (pod for pod in self._pods.values() if pod.container and pod.state in _RUN)
        return address == self.address or any(pod.address == address for pod in pods)


def number_of(job: PodsJob, name: str) -> int:
    """Return the number of a worker from the name of its pod; -1 if it is no worker's.

    >>> from legato.compat.elasticdl.manifests import PodShape
    >>> job = PodsJob(name="mnist", num_workers=1, master=PodShape(), worker=PodShape())
    >>> number_of(job, "mnist-edljob-worker-12"), number_of(job, "elasticdl-mnist-master")
    (12, -1)
    """
    begin = name_worker(job, 0).removesuffix("0")
    rest = name.removeprefix(begin)
    return int(rest) if name.startswith(begin) and rest.isascii() and rest.isdecimal() else -1
