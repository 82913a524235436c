"""Which orders a machine gets for the jobs that hold slots of it (`legato.server.agent_orders`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from legato.control.drivers.drivers import DriverOrder
from legato.control.drivers.process import DoorOrder, LocalOrder, write_order
from legato.core.spec import JobSpec
from legato.engines.agents import RECORD
from legato.engines.agents_record import AgentsRecord, write_record
from legato.server.agent_orders import list_orders

JOB = "j-0000000001"


def prepare(jobs: Path, door: DoorOrder | None, port: int = 4711) -> None:
    (jobs / JOB).mkdir(parents=True)
    spec = JobSpec(name=JOB, program=("train.py",), directory="/", min_workers=1, max_workers=2, num_workers=2)
    order = DriverOrder(job=JOB, attempt=1, spec=spec, slots=("b/0",), code="/code/" + "a" * 64, code_folder="f")
    write_order(jobs / JOB, LocalOrder(order=order, slots=("b/0",), devices=("cpu",), own_node="a", door=door))
    write_record(jobs / JOB / RECORD, AgentsRecord("secret", port=port, certificate="PEM"))


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0", "wss://{server}:4711/agent"),
        ("::", "wss://{server}:4711/agent"),
        ("10.0.0.1", "wss://10.0.0.1:4711/agent"),
        ("fd00::1", "wss://[fd00::1]:4711/agent"),
    ],
)
def test_a_machine_learns_where_the_driver_listens(tmp_path: Path, host: str, url: str) -> None:
    prepare(tmp_path, DoorOrder(host=host, address="10.0.0.1"))
    (order,) = list_orders(tmp_path, "b", {JOB})
    assert (order.job, order.node, order.urls, order.token) == (JOB, "b", (url,), "secret")
    assert (order.code, order.code_folder, order.address, order.certificate) == ("a" * 64, "f", "", "PEM")
    assert list_orders(tmp_path, "a", {JOB}) == (), "the driver itself starts the agent of its machine"


@pytest.mark.parametrize(
    ("host", "own_node", "hosts"),
    [
        ("0.0.0.0", "a", ("{server}", "10.0.0.1")),  # this server's machine has the driver: NAT may be before it
        ("0.0.0.0", "c", ("10.0.0.1", "{server}")),  # the machine of another server has it
        ("0.0.0.0", "", ("10.0.0.1", "{server}")),
        ("::", "c", ("10.0.0.1", "{server}")),
        ("10.0.0.9", "c", ("10.0.0.9",)),
    ],
)
def test_a_machine_that_asks_one_of_several_servers_learns_on_which_machine_the_driver_is(
    tmp_path: Path, host: str, own_node: str, hosts: tuple[str, ...]
) -> None:
    prepare(tmp_path, DoorOrder(host=host, address="10.0.0.1", is_shared=True))
    (order,) = list_orders(tmp_path, "b", {JOB}, own_node)
    assert order.urls == tuple(f"wss://{each}:4711/agent" for each in hosts)


def test_there_is_no_order_before_the_driver_listens_after_the_job_or_for_a_job_of_one_machine(tmp_path: Path) -> None:
    prepare(tmp_path / "one", None)
    prepare(tmp_path / "starting", DoorOrder(host="10.0.0.1", address="10.0.0.1"), port=0)
    prepare(tmp_path / "ended", DoorOrder(host="10.0.0.1", address="10.0.0.1"))
    (tmp_path / "ended" / JOB / RECORD).unlink()
    (tmp_path / "damaged" / JOB).mkdir(parents=True)
    (tmp_path / "damaged" / JOB / "order.json").write_text("{")
    for case in ("one", "starting", "ended", "damaged", "missing"):
        assert list_orders(tmp_path / case, "b", {JOB}) == (), case
