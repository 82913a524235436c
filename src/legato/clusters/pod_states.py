"""Reads the state of a pilot, and its reason in the words of Kubernetes, from the status and events of a pod. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from legato.clusters.pilots import Pilot, PilotState

KubeObject = Mapping[str, Any]

AGENT: Final = "agent"
"""Name of the container with the pool agent; others are the user's, and do not count."""
NODE: Final = "legato/node"
"""The annotation of a pod with the name of its machine in the pool."""
_LOST_MARGIN_S: Final = 30.0
_MAX_REASON: Final = 300
_TELLING_EVENTS: Final = ("Preempted", "Preempting", "TaintManagerEviction", "Evicted")
"""Events of why a pod ends, the clearest first."""
_PLAIN_WAITS: Final = ("", "ContainerCreating", "PodInitializing")
"""Reasons of a container that wait for the machine, and say nothing of a failure."""


def read_pilot(pod: KubeObject, events: Sequence[KubeObject], seen_s: float = 0.0) -> Pilot:
    """Return the pilot of a pod.

    Args:
        pod: as the API server returns it.
        events: of the pod; needed if `needs_events`, else none.
        seen_s: as in `is_lost`.
    """
    state = find_state(pod)
    about, spec, status = pod["metadata"], pod.get("spec", {}), pod.get("status", {})
    ends_at = read_time(about.get("deletionTimestamp"))
    limit_s, started_at = spec.get("activeDeadlineSeconds"), read_time(status.get("startTime"))
    if ends_at is None and limit_s is not None and started_at is not None:
        ends_at = started_at + limit_s
    return Pilot(
        id=about["name"],
        node=about.get("annotations", {}).get(NODE, about["name"]),
        state=state,
        reason=_shorten(_explain(state, pod, events, seen_s)),
        ends_at=None if state is PilotState.GONE else ends_at,
    )


def find_state(pod: KubeObject) -> PilotState:
    """Return the state of a pod's pilot, which is that of the container with the agent."""
    status = pod.get("status", {})
    container = _find_agent(pod)
    if status.get("phase") in ("Succeeded", "Failed") or "terminated" in container:
        return PilotState.GONE
    if pod["metadata"].get("deletionTimestamp"):
        return PilotState.ENDING
    return PilotState.RUNNING if "running" in container else PilotState.WAITING


def needs_events(pod: KubeObject) -> bool:
    """Return whether the status of a pod does not say why it is where it is."""
    match find_state(pod):
        case PilotState.WAITING:
            return bool(pod.get("spec", {}).get("nodeName")) and _find_wait(pod) in _PLAIN_WAITS
        case PilotState.ENDING:
            return not _find_disruption(pod)
    return False


def is_lost(pod: KubeObject, seen_s: float) -> bool:
    """Return whether a pod has not ended in its time, because its node does not answer.

    Args:
        pod: as the API server returns it.
        seen_s: seconds for which this process has seen the pod as it is. Not the time of the API server: its clock and
            that of this machine may differ.
    """
    about = pod["metadata"]
    grace_s = about.get("deletionGracePeriodSeconds") or 0
    return bool(about.get("deletionTimestamp")) and seen_s > grace_s + _LOST_MARGIN_S


def has_no_secret(pod: KubeObject, events: Sequence[KubeObject]) -> bool:
    """Return whether a pod waits for the Secret with its join token, which is created right after the pod."""
    missing = f'secret "{pod["metadata"]["name"]}" not found'
    return find_state(pod) is PilotState.WAITING and any(missing in str(event.get("message")) for event in events)


def read_time(text: Any) -> float | None:
    """Return a time of Kubernetes in seconds since 1970, None if there is none.

    >>> read_time("1970-01-01T00:01:00Z"), read_time(None)
    (60.0, None)
    """
    try:
        return datetime.fromisoformat(text).timestamp()
    except (TypeError, ValueError):
        return None


# ---------------------------------------------------------------- reasons


def _explain(state: PilotState, pod: KubeObject, events: Sequence[KubeObject], seen_s: float) -> str | None:
    match state:
        case PilotState.WAITING:
            return _explain_wait(pod, events)
        case PilotState.RUNNING:
            return None
        case PilotState.ENDING:
            return _explain_ending(pod, events, seen_s)
        case PilotState.GONE:
            return _explain_end(pod)


def _explain_wait(pod: KubeObject, events: Sequence[KubeObject]) -> str:
    status = pod.get("status", {})
    for condition in status.get("conditions", ()):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _join(condition.get("reason"), condition.get("message"))
    waiting = _find_agent(pod).get("waiting", {})
    if waiting.get("reason", "") not in _PLAIN_WAITS:
        return _join(waiting["reason"], waiting.get("message"))
    warnings = [event for event in _sort(events) if event.get("type") == "Warning" and _says_why(event)]
    if warnings:
        # Kubernetes repeats a failure without its cause when it has waited for long.
        clearest = min(warnings, key=lambda event: "timed out waiting" in str(event.get("message")))
        return _join(clearest.get("reason"), clearest.get("message"))
    node = pod.get("spec", {}).get("nodeName")
    return f"it starts on {node}" if node else "it waits for the scheduler"


def _explain_ending(pod: KubeObject, events: Sequence[KubeObject], seen_s: float) -> str:
    node = pod.get("spec", {}).get("nodeName", "")
    lost = f"; node {node} does not answer" if is_lost(pod, seen_s) else ""
    if disruption := _find_disruption(pod):
        return disruption + lost
    for reason in _TELLING_EVENTS:
        found = next((event for event in _sort(events) if event.get("reason") == reason), None)
        if found is not None:
            if reason == "TaintManagerEviction":  # its message only names the pod
                return f"evicted from node {node}, which does not answer or has a taint"
            return _join(None, found.get("message")) + lost
    return "it was deleted" + lost


def _explain_end(pod: KubeObject) -> str:
    status = pod.get("status", {})
    if status.get("reason"):
        return _join(status["reason"], status.get("message"))
    ended = _find_agent(pod).get("terminated", {})
    if not ended:
        return _find_disruption(pod) or f"it has ended ({status.get('phase')})"
    if ended.get("reason") == "OOMKilled":
        return "OOMKilled: it needed more memory than its limit"
    if ended.get("exitCode") == 0:
        return "its agent has left"
    named = "" if ended.get("reason") in (None, "", "Error") else f"{ended['reason']}, "
    lines = [line for line in str(ended.get("message") or "").splitlines() if line.strip()]
    told = _join(None, lines[-1] if lines else None)  # of its last lines, errors come last
    return f"{named}exit code {ended.get('exitCode')}" + (f": {told}" if told else "")


def _find_agent(pod: KubeObject) -> Mapping[str, Any]:
    """Return the state of the container with the agent, as ``{"running": {…}}``."""
    for container in pod.get("status", {}).get("containerStatuses", ()):
        if container.get("name") == AGENT:
            found: Mapping[str, Any] = container.get("state", {})
            return found
    return {}


def _find_wait(pod: KubeObject) -> str:
    return str(_find_agent(pod).get("waiting", {}).get("reason", ""))


def _find_disruption(pod: KubeObject) -> str:
    """Return why Kubernetes ends a pod, as releases from 1.26 on say it in its status; empty: it does not say."""
    for condition in pod.get("status", {}).get("conditions", ()):
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            return _join(condition.get("reason"), condition.get("message"))
    return ""


def _says_why(event: KubeObject) -> bool:
    return event.get("reason") != "MissingClusterDNS"  # of pods that run without DNS of the cluster


def _sort(events: Sequence[KubeObject]) -> list[KubeObject]:
    """Return events, the last one first."""
    return sorted(events, key=lambda event: read_time(event.get("lastTimestamp")) or 0.0, reverse=True)


def _join(reason: str | None, message: str | None) -> str:
    told = " ".join((message or "").split()).rstrip(".")
    return f"{reason}: {told}" if reason and told else reason or told


def _shorten(text: str | None) -> str | None:
    return text if text is None or len(text) <= _MAX_REASON else f"{text[:_MAX_REASON]}…"
