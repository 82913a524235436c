"""The arguments of a notebook's ``train()`` about hardware."""

from __future__ import annotations

from typing import Any

import pytest

from legato.compat.wmla.notebook.hardware import read_hardware
from legato.core.errors import UsageError

FULL = {
    "nodes": {
        "num_nodes": 2,
        "cpu": {"units": "1"},
        "mem": {"size": "4G"},
        "gpu": {"num_gpu": 3, "gpu_profile": "slice", "mig_profile": "1g.5gb"},
        "num_drivers": 1,
        "drivers": {"mem": {"size": "1G"}},
    }
}


def test_a_specification_sets_the_gpus_and_ignored_parts_are_reported_in_one_line() -> None:
    found = read_hardware(hardware_spec=FULL, worker_memory="16G", driver_memory="1G")
    assert found.by_spec == 6
    assert found.notice.count("\n") == 0
    for name in ("cpu", "mem", "gpu.gpu_profile", "gpu.mig_profile", "num_drivers", "drivers"):
        assert f"hardware_spec nodes.{name}" in found.notice
    assert "num_nodes" not in found.notice and "num_gpu," not in found.notice
    assert "worker_memory='16G', driver_memory='1G'" in found.notice


@pytest.mark.parametrize(
    ("said", "by_spec", "by_nodes"),
    [
        ({}, None, None),
        ({"hardware_spec": {"nodes": {"num_nodes": "4"}}}, 4, None),
        ({"hardware_spec": {"nodes": {"gpu": {"num_gpu": 2}}}}, 2, None),
        ({"hardware_spec": {"nodes": {"num_nodes": 4, "gpu": {"num_gpu": 0}}}}, 4, None),
        ({"hardware_spec": {"nodes": {"mem": {"size": "4G"}}}}, None, None),
        ({"hardware_spec": {"name": "M"}, "worker_num": 3}, None, 3),
        ({"worker_num": 3, "worker_device_num": 2}, None, 6),
        ({"worker_device_num": 2}, None, 2),
    ],
)
def test_numbers(said: dict[str, Any], by_spec: int | None, by_nodes: int | None) -> None:
    found = read_hardware(**said)
    assert (found.by_spec, found.by_nodes) == (by_spec, by_nodes)


def test_a_specification_by_name_is_reported() -> None:
    assert "hardware_spec['name']='M'" in read_hardware(hardware_spec={"name": "M"}).notice
    assert read_hardware(worker_num=2).notice == ""


@pytest.mark.parametrize(
    "said",
    [
        {"worker_num": 0},
        {"worker_num": 1.5},
        {"worker_num": True},
        {"worker_device_num": "many"},
        {"hardware_spec": "M"},
        {"hardware_spec": {"nodes": 3}},
        {"hardware_spec": {"nodes": {"gpu": 1}}},
        {"hardware_spec": {"nodes": {"num_nodes": -1}}},
        {"hardware_spec": {"nodes": {"num_nodes": 10**9}}},
    ],
)
def test_a_value_that_is_not_a_number_is_refused(said: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="Cannot train with"):
        read_hardware(**said)


@pytest.mark.parametrize(
    ("said", "engines_number", "effective", "engines", "workers"),
    [
        # hardware_spec > engines_number > worker_num times worker_device_num
        ({"hardware_spec": FULL, "worker_num": 9}, 4, None, 6, 6),
        ({"worker_num": 9}, 4, None, 4, 4),
        ({"worker_num": 9}, None, None, 9, 9),
        # effective_batch_size sets the size of a step, the others the number of workers
        ({"hardware_spec": FULL}, None, 64, None, 6),
        ({"worker_num": 2}, None, 64, None, 2),
        ({}, 2, 64, 2, 8),
    ],
)
def test_precedence(
    said: dict[str, Any], engines_number: int | None, effective: int | None, engines: int | None, workers: int
) -> None:
    found = read_hardware(**said)
    assert found.choose_engines(engines_number, effective) == engines
    assert found.choose_workers(engines_number, effective // 8 if effective else engines or 1) == workers
