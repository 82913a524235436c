"""States and reasons of pods, as Kubernetes 1.20 wrote them; ``recorded/pods.json`` has its own answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from legato.clusters.pilots import PilotState
from legato.clusters.pod_states import (
    has_no_secret,
    is_lost,
    needs_events,
    read_pilot,
    read_time,
)

RECORDED = json.loads((Path(__file__).parent / "recorded/pods.json").read_text())


def pod(name: str) -> dict[str, Any]:
    return json.loads(json.dumps(RECORDED["pods"][name]))


def events_of(pod: dict[str, Any]) -> list[dict[str, Any]]:
    about = pod["metadata"]
    named = [event for event in RECORDED["events"] if event["involvedObject"]["name"] == about["name"]]
    return [event for event in named if event["involvedObject"].get("uid", about["uid"]) == about["uid"]]


@pytest.mark.parametrize(
    ("name", "state", "reason"),
    [
        ("running", "running", None),
        ("unschedulable", "waiting", "Unschedulable: 0/2 nodes are available: 2 Insufficient nvidia.com/gpu"),
        ("nopvc", "waiting", 'Unschedulable: 0/2 nodes are available: 2 persistentvolumeclaim "none" not found'),
        ("errimage", "waiting", 'ImagePullBackOff: Back-off pulling image "docker.io/local/absent:1"'),
        ("badimage", "waiting", "InvalidImageName: Failed to apply default image tag"),
        ("neverpull", "waiting", "ErrImageNeverPull: Container image"),
        ("nokey", "waiting", 'CreateContainerConfigError: secret "none" not found'),
        ("nosecret", "waiting", 'FailedMount: MountVolume.SetUp failed for volume "token" : secret "none" not found'),
        ("failed", "gone", "exit code 2"),
        ("norun", "gone", "StartError, exit code 128: failed to create containerd task"),
        ("oom", "gone", "OOMKilled: it needed more memory than its limit"),
        ("done", "gone", "its agent has left"),
        ("evicted", "gone", 'Evicted: Usage of EmptyDir volume "d" exceeds the limit "1Mi"'),
        ("deadline", "gone", "DeadlineExceeded: Pod was active on the node longer than the specified deadline"),
        ("terminating", "ending", "it was deleted"),
        ("preempted", "ending", "Preempted by rec/high on node lg1-1"),
        ("lost", "ending", "evicted from node lg1-2, which does not answer or has a taint"),
    ],
)
def test_a_pod_has_a_state_and_the_reason_of_kubernetes(name: str, state: str, reason: str | None) -> None:
    found = pod(name)
    events = events_of(found) if needs_events(found) else []
    pilot = read_pilot(found, events)
    assert pilot.state == state
    assert (pilot.reason or "").startswith(reason or "")
    assert (pilot.reason is None) == (reason is None)


def test_events_are_read_only_where_the_status_says_too_little() -> None:
    assert {name for name in RECORDED["pods"] if needs_events(pod(name))} == {
        "nosecret",
        "terminating",
        "preempted",
        "lost",
    }


def test_a_newer_release_says_in_the_status_why_it_ends_a_pod() -> None:
    found = pod("preempted")
    found["status"]["conditions"].append(
        {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "for a/high."}
    )
    assert not needs_events(found)
    assert read_pilot(found, ()).reason.startswith("PreemptionByScheduler: for a/high")


def test_a_pod_that_waits_without_any_reason_names_what_it_waits_for() -> None:
    found = pod("unschedulable")
    found["status"] = {"phase": "Pending"}
    assert read_pilot(found, ()).reason == "it waits for the scheduler"
    found["spec"]["nodeName"] = "gpu-1"
    assert read_pilot(found, ()).reason == "it starts on gpu-1"


def test_a_pod_on_a_node_that_does_not_answer_is_lost_after_its_time_to_end() -> None:
    found = pod("lost")
    grace_s = found["metadata"]["deletionGracePeriodSeconds"]
    assert not is_lost(found, grace_s + 29)
    assert is_lost(found, grace_s + 31)
    assert not is_lost(pod("running"), 1e9)


def test_the_end_of_a_pod_is_its_deadline_or_its_deletion() -> None:
    found = pod("running")
    assert read_pilot(found, ()).ends_at is None
    found["spec"]["activeDeadlineSeconds"] = 3600
    assert read_pilot(found, ()).ends_at == read_time(found["status"]["startTime"]) + 3600
    assert read_pilot(pod("terminating"), ()).ends_at == read_time(pod("terminating")["metadata"]["deletionTimestamp"])


def test_a_container_of_the_user_decides_no_state() -> None:
    found = pod("running")
    sidecar = {"name": "proxy", "state": {"terminated": {"exitCode": 1}}}
    found["status"]["containerStatuses"].insert(0, sidecar)
    assert read_pilot(found, ()).state is PilotState.RUNNING
    found["status"]["containerStatuses"][1]["state"] = {"terminated": {"exitCode": 0}}
    assert read_pilot(found, ()).state is PilotState.GONE


def test_an_agent_that_failed_is_explained_by_its_last_line() -> None:
    found = pod("running")
    told = "it starts\nlegato: The server at https://head:8765 cannot be reached.\n\n"
    ended = {"exitCode": 1, "reason": "Error", "message": told}
    found["status"]["containerStatuses"][0]["state"] = {"terminated": ended}
    want = "exit code 1: legato: The server at https://head:8765 cannot be reached"
    assert read_pilot(found, ()).reason == want


def test_a_pod_without_its_own_secret_is_known() -> None:
    found = pod("nosecret")
    events = events_of(found)
    assert not has_no_secret(found, events)
    found["metadata"]["name"] = "none"
    assert has_no_secret(found, events)
