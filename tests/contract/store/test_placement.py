"""Kinds, labels and GPU models of nodes, and workers with several GPUs, as the store keeps them."""

from __future__ import annotations

import pytest
from sqlalchemy import text
from tests.contract.store.making import ADMIN, NOW, make_job, make_node, make_people, make_pool, write

from legato.control.records import DeclaredSlot, Node
from legato.control.stages import Stage
from legato.control.store import Store
from legato.core.errors import LayoutError


def test_a_node_keeps_what_its_engine_declared(store: Store) -> None:
    lease, ids = make_pool(store, 1)
    plain = store.pool.list_nodes()[0]
    assert (plain.name, plain.kind, plain.traits, plain.labels) == ("node", None, None, None)
    told = {"kind": "k1", "traits": {"torch": "2.13.0"}, "labels": {"site": "x"}}
    store.pool.declare(
        [Node(name="gpu", engine="local", slots=(DeclaredSlot("gpu/0", "GPU-1", "T4"),), **told)], lease.fence, NOW
    )
    facts = store.loop.read_facts()
    assert [(node.name, node.kind, node.labels) for node in facts.nodes] == [
        ("gpu", "k1", {"site": "x"}),
        ("node", None, None),
    ]
    assert [(slot.id, slot.gpu_type) for slot in facts.slots] == [("gpu/0", "T4"), (ids[0], None)]
    # A declaration that does not name them changes nothing.
    store.pool.declare([make_node([], "gpu")], lease.fence, NOW)
    assert store.pool.list_nodes()[0].traits == {"torch": "2.13.0"}


def test_the_slots_of_a_node_that_cannot_be_read_are_held_back(store: Store) -> None:
    lease, _ = make_pool(store, 1)
    store.pool.declare([make_node(["other/0"], "other")], lease.fence, NOW)
    with store.pool._database.writing() as connection:
        connection.execute(text("UPDATE nodes SET traits = '[1]' WHERE name = 'other'"))
    facts = store.loop.read_facts()
    assert [slot.node for slot in facts.slots] == ["node"]
    assert "traits" in facts.unreadable["slot", "other/0"]


def test_the_slots_of_a_worker_belong_together(store: Store) -> None:
    make_people(store)
    lease, ids = make_pool(store, 2)
    job = store.jobs.submit(make_job(gpus_per_worker=2, max_workers=1), ADMIN, NOW).job
    assert (job.gpus_per_worker, job.machine_kind) == (2, None)
    worker = "node/0+1"
    job = write(
        store,
        lease.fence,
        job,
        stage=Stage.STARTING,
        granted=tuple(ids),
        workers=dict.fromkeys(ids, worker),
        machine_kind="k1/T4",
        reason="its share",
    )
    assert (job.gpus_per_worker, job.machine_kind, job.num_slots) == (2, "k1/T4", 2)
    assert [found.worker for found in store.loop.read_facts().allocations] == [worker, worker]


@pytest.mark.parametrize("number", [0, 65])
def test_a_job_with_an_odd_number_of_gpus_per_worker_is_refused(number: int) -> None:
    with pytest.raises(LayoutError, match=f"gpus_per_worker={number} is outside 1..64"):
        make_job(gpus_per_worker=number)
