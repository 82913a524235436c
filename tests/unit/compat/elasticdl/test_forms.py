"""The call forms of all releases: the same arguments in different places."""

from __future__ import annotations

from typing import Any

import pytest

from legato.compat.elasticdl.forms import ServiceForm, read_controller, read_service
from legato.core.errors import UsageError

CLIENT = object()
WANT = ServiceForm(64, 2, 1000, shuffle=True)


@pytest.mark.parametrize(
    ("args", "kwargs", "want"),
    [
        # DataShardService and build_data_shard_service, oldest first.
        ((64,), {}, ServiceForm(64)),
        ((64, CLIENT), {}, ServiceForm(64)),
        ((64, CLIENT, 2), {}, ServiceForm(64, 2)),
        ((CLIENT, 64, 2, 1000), {}, WANT._replace(shuffle=False)),
        ((CLIENT, 64, 2, 1000, True), {}, WANT),
        ((CLIENT, 64, 2, 1000, True, True, 2), {}, WANT._replace(shuffle_shards=True, task_type=2)),
        ((CLIENT, 64, 2, 1000, False, True, 1, 4), {}, ServiceForm(64, 2, 1000, False, True, 1, 4)),
        ((64, 2, 1000, False, True, 1, 4, "mine"), {}, ServiceForm(64, 2, 1000, False, True, 1, 4, "mine")),
        ((64, 2, 1000, False, True, 1, 4, "mine", CLIENT), {}, ServiceForm(64, 2, 1000, False, True, 1, 4, "mine")),
        ((None, 64, 2, 1000), {}, WANT._replace(shuffle=False)),
        # RecordIndexService.
        ((CLIENT, 64, 2, 1000, 1, True), {}, WANT),
        ((CLIENT, 64, 2, 1000, 1, True, 4), {}, WANT._replace(num_minibatches_per_shard=4)),
        ((64, 2, 1000, 1, True, 4, "mine"), {}, ServiceForm(64, 2, 1000, True, False, 1, 4, "mine")),
        ((64, 2, 1000, 1, True, 0, None, CLIENT, 3), {}, WANT),
        # By name, in any release.
        ((), {"batch_size": 64, "dataset_size": 1000, "num_epochs": 2, "shuffle": True}, WANT),
        ((CLIENT,), {"batch_size": 64, "dataset_size": 1000, "num_epochs": 2, "shuffle": True}, WANT),
        ((64,), {"master_client": CLIENT, "num_epochs": 2, "dataset_size": 1000, "shuffle": True}, WANT),
        ((64, 2, 1000), {"shuffle": True, "dataset_name": None, "training_data": "x", "remainder": "drop"}, WANT),
    ],
    ids=[
        "2020-11 one",
        "2020-11 client",
        "2020-11 client and number",
        "2020-12",
        "2021-01",
        "head type",
        "head",
        "1.0",
        "1.4",
        "no client",
        "index head",
        "index v",
        "index 1.0",
        "index 1.4",
        "names",
        "client and names",
        "client by name",
        "ignored",
    ],
)
def test_a_service_is_read_in_every_form(args: tuple[Any, ...], kwargs: dict[str, Any], want: ServiceForm) -> None:
    assert read_service("Service", args, kwargs) == want


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {}), ((CLIENT,), {}), ((64,), {"batchsize": 3}), ((64, 2.5), {})],
    ids=["nothing", "client only", "unknown name", "a fraction"],
)
def test_arguments_that_no_release_accepts_are_a_type_error(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"^Service\(\)"):
        read_service("Service", args, kwargs)


@pytest.mark.parametrize(
    ("kwargs", "told"),
    [
        ({"batch_size": 0}, "batch_size=0 is below 1"),
        ({"batch_size": -4}, "batch_size=-4 is below 1"),
        ({"batch_size": 2.5}, "batch_size=2.5 is not a whole number"),
        ({"batch_size": 4, "dataset_size": 0}, "dataset_size=0: there are no records. Check the folder"),
        ({"batch_size": 4, "dataset_size": -3}, "dataset_size=-3: there are no records. Check the folder"),
        ({"batch_size": 4, "dataset_size": 3}, "batch_size=4 is larger than dataset_size=3"),
        ({"batch_size": 4, "num_minibatches_per_shard": -1}, "num_minibatches_per_shard=-1 is below 0"),
    ],
)
def test_invalid_numbers_are_refused(kwargs: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        read_service("Service", (), kwargs)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((CLIENT, "addr", "service"), {}),
        ((CLIENT, "service"), {}),
        (("service",), {}),
        ((CLIENT,), {"data_shard_service": "service"}),
        ((), {"master_client": CLIENT, "data_shard_service": "service"}),
    ],
)
def test_a_controller_has_its_service_last(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    assert read_controller("Controller", args, kwargs) == "service"


def test_a_controller_knows_its_names() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'service'"):
        read_controller("Controller", (), {"service": 1})
    assert read_controller("Controller", (), {}) is None
