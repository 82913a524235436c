"""Pilots in the store: their tokens, what is drained and forgotten, and what clusters say."""

from __future__ import annotations

import pytest
from tests.contract.store.making import ANN, NOW, change, make_job, make_node, make_people, start

from legato.api.pool import Cluster, Pilot
from legato.control.records import AGENT_SILENT_S, AgentReport
from legato.control.store import Store
from legato.core.errors import Conflict, Unauthenticated

SAID = AgentReport(devices=("cpu",), gpu_types=(None,), address="10.0.0.1", version="1", kind="k1")
STATE = Cluster(
    kind="slurm", name="Slurm", min_pilots=0, max_pilots=2, target=1, trouble=None,
    pilots=(Pilot(id="7", node="slurm-1", state="waiting", reason="Priority", ends_at=None),),
)  # fmt: skip


def test_a_token_is_of_one_machine_and_one_agent_until_its_pilot_has_ended(store: Store) -> None:
    token = store.pilots.add("slurm", "slurm-1", NOW)
    with pytest.raises(Conflict):
        store.pilots.add("slurm", "slurm-1", NOW)
    with pytest.raises(Unauthenticated, match="of no other machine"):
        store.agents.join(token, "slurm-2", "one", NOW)
    store.agents.join(token, "slurm-1", "one", NOW)
    store.agents.join(token, "slurm-1", "one", NOW)
    with pytest.raises(Unauthenticated, match="was used"):
        store.agents.join(token, "slurm-1", "two", NOW + 999)
    store.agents.report("slurm-1", SAID, NOW)
    assert not store.pilots.forget("slurm-1", NOW)
    with pytest.raises(Unauthenticated, match="has expired"):
        store.agents.join(token, "slurm-1", "one", NOW)
    assert [(one.cluster, one.joined_by) for one in store.agents.list()] == [("slurm", "slurm")]


def test_the_machine_of_a_pilot_has_its_owner_until_another_machine_takes_the_name(store: Store) -> None:
    store.agents.join(store.pilots.add("slurm", "slurm-1", NOW, owner="ann", uid=2**32 - 2), "slurm-1", "one", NOW)
    assert [(one.owner, one.uid) for one in store.pilots.list()] == [("ann", 2**32 - 2)]
    assert [one.owner for one in store.agents.list()] == ["ann"]
    later = NOW + AGENT_SILENT_S + 1
    store.agents.keep_server("slurm-1", "two", SAID, later)
    assert [(one.cluster, one.owner) for one in store.agents.list()] == [(None, None)]


def test_a_pilot_is_let_go_and_then_forgotten_unless_a_job_holds_its_slots(store: Store) -> None:
    make_people(store)
    store.agents.join(store.pilots.add("slurm", "slurm-1", NOW), "slurm-1", "one", NOW)
    assert store.agents.report("slurm-1", SAID, NOW) is False
    lease = store.loop.take_lease("loop", NOW, 1e9)
    assert lease is not None
    store.pool.declare([make_node(["slurm-1/0"], "slurm-1")], lease.fence, NOW)
    job = start(store, lease.fence, store.jobs.submit(make_job(), ANN, NOW).job, ("slurm-1/0",))
    store.pilots.drain("slurm-1", "Slurm", "it is idle", NOW)
    assert store.agents.report("slurm-1", SAID, NOW) is True
    later = NOW + AGENT_SILENT_S + 1
    assert not store.pilots.forget("slurm-1", later)
    store.loop.write([change(job, closed=("slurm-1/0",))], lease.fence, later)
    assert store.pilots.forget("slurm-1", later)
    assert (store.agents.list(), store.pilots.list(), store.pool.list_nodes()) == ((), (), ())
    # Its name may be used again.
    store.pilots.add("slurm", "slurm-1", later)


def test_only_pilots_are_drained_so(store: Store) -> None:
    store.pilots.drain("node", "Slurm", "it is idle", NOW)
    assert store.agents.list() == ()


def test_what_a_cluster_says_is_shown_as_long_as_it_is_new(store: Store) -> None:
    store.pilots.write_state(STATE, NOW)
    store.pilots.write_state(STATE, NOW + 1)
    assert store.pilots.read_states(NOW + 100) == (STATE,)
    assert store.loop.read_facts().clusters == (STATE,)
    assert store.pilots.read_states(NOW + 1000) == ()
    assert store.pilots.read_states(NOW + 1000, with_old=True) == (STATE,)
