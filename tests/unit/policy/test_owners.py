"""Machines of single users in decisions: who shares which slots, and what reasons say."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.policy.world import EAGER, make_job, make_snapshot

from legato.policy.policies import decide
from legato.policy.snapshot import OWNER_LABEL, Node


@pytest.mark.parametrize("order", [("ann", "ben", "carl"), ("carl", "ben", "ann")])
def test_users_without_machines_share_those_of_all_equally(order: tuple[str, ...]) -> None:
    jobs = [make_job(f"{owner}/{owner}", 8, at=float(index)) for index, owner in enumerate(order)]
    pool = make_snapshot(8, jobs)
    pool = msgspec.structs.replace(pool, nodes=(Node(name="n0"), Node(name="n1", labels={OWNER_LABEL: "carl"})))
    decided = {one.job: one for one in decide(pool, EAGER).decisions}
    assert {name: len(one.slots) for name, one in decided.items()} == {"ann": 2, "ben": 2, "carl": 4}
    assert {slot.split("/")[0] for name in ("ann", "ben") for slot in decided[name].slots} == {"n0"}
    assert "4 slots for machines that belong to no user, with ann/ann" in decided["ben"].reason, decided["ben"].reason


def test_a_machine_of_the_only_user_changes_no_decision() -> None:
    pool = make_snapshot(8, [make_job("ann/a", 8), make_job("ann/b", 8, at=1.0)])
    owned = msgspec.structs.replace(pool, nodes=(Node(name="n0"), Node(name="n1", labels={OWNER_LABEL: "ann"})))
    assert decide(owned, EAGER) == decide(pool, EAGER)
