"""Machines of several servers in the store: each server reports its own, and no other machine can take its name."""

from __future__ import annotations

import msgspec
import pytest
from tests.contract.store.conftest import NewUrl
from tests.contract.store.making import ADMIN, NOW, make_people

from legato.control.records import AGENT_SILENT_S, AgentReport
from legato.control.store import Store
from legato.control.store.database import Database
from legato.core.errors import Conflict, Unauthenticated

SAID = AgentReport(devices=("cpu",), gpu_types=(None,), address="10.0.0.1", version="1", kind="k1")


def test_a_server_keeps_its_machine_in_the_pool_and_its_drain_stays(store: Store) -> None:
    make_people(store)
    store.agents.keep_server("a", "id-1", SAID, NOW)
    store.agents.drain("a", "a new disk", ADMIN, NOW + 1)
    store.agents.keep_server("a", "id-1", msgspec.structs.replace(SAID, address="10.0.0.9"), NOW + 2)
    (agent,) = store.agents.list()
    assert (agent.node, agent.address, agent.seen_at, agent.joined_at) == ("a", "10.0.0.9", NOW + 2, NOW)
    assert (agent.is_server, agent.drained_by, agent.drain_reason) == (True, "admin", "a new disk")
    told = [event.reason for event in store.events.read_after(0, limit=100) if event.kind == "node"]
    assert told.count("node a joined the pool with its server") == 1


def test_another_machine_gets_the_name_only_when_the_first_one_is_silent(store: Store) -> None:
    make_people(store)
    token = store.agents.create_token(ADMIN, NOW, expires_at=NOW + 3600).secret
    secret = store.agents.join(token, "a", "an agent", NOW)
    store.agents.report("a", SAID, NOW)
    with pytest.raises(Conflict, match=r"the agent of another machine has this name"):
        store.agents.keep_server("a", "id-1", SAID, NOW + 1)
    later = NOW + AGENT_SILENT_S + 1
    store.agents.keep_server("a", "id-1", SAID, later)
    with pytest.raises(Unauthenticated):
        store.agents.verify(secret)
    with pytest.raises(Conflict, match=r"the server of another machine has this name"):
        store.agents.keep_server("a", "id-2", SAID, later + 1)
    with pytest.raises(Conflict, match=r"another agent has this name"):
        store.agents.join(token, "a", "another agent", later + 1)


@pytest.mark.parametrize("new_url", ["postgresql"], indirect=True)
def test_a_server_that_is_cut_off_from_its_database_notices_that(new_url: NewUrl) -> None:
    url = new_url()
    for query, connect_timeout in (("", "10"), ("&connect_timeout=3", "3")):
        database = Database(url + query)
        with database.reading() as connection:
            given = connection.connection.dbapi_connection.info.get_parameters()  # type: ignore[union-attr]
        database.close()
        assert (given["connect_timeout"], given["tcp_user_timeout"]) == (connect_timeout, "10000")
        assert (given["keepalives_idle"], given["keepalives_interval"], given["keepalives_count"]) == ("5", "2", "3")
