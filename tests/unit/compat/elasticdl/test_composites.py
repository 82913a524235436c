"""Values with their own grammar: those that the original read, read wrongly or refused; and random texts."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.compat.elasticdl.composites import (
    Volume,
    check_job_name,
    count_devices,
    map_priority,
    read_priority,
    read_resources,
    read_switches,
    read_variables,
    read_volumes,
    spread_priorities,
)
from legato.core.errors import UsageError


def resources(text: str) -> dict[str, str]:
    return read_resources("--worker_resource_request", text)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", {}),
        ("a=1", {"a": "1"}),
        ("a=1,2,b=3", {"a": "1,2", "b": "3"}),
        ("a=x=y", {"a": "x=y"}),
        ("a=x=y,b=z==", {"a": "x=y", "b": "z=="}),
        (" a = 1 , b=2", {"a": " 1 ", "b": "2"}),
        ("a=,b=", {"a": "", "b": ""}),
        ("URL=http://h/?a=1,2&b=3,C=4", {"URL": "http://h/?a=1,2&b=3", "C": "4"}),
        ("a=1,a=2", {"a": "2"}),
        ("LEGATO_ELASTICDL_SUM=1,LEGATO_SEED=7", {"LEGATO_ELASTICDL_SUM": "1", "LEGATO_SEED": "7"}),
        (
            "USE_TORCH=true,HOROVOD_GLOO_TIMEOUT_SECONDS=60,PYTHONUNBUFFERED=true",
            {"USE_TORCH": "true", "HOROVOD_GLOO_TIMEOUT_SECONDS": "60", "PYTHONUNBUFFERED": "true"},
        ),
    ],
)
def test_variables(text: str, want: dict[str, str]) -> None:
    assert read_variables(text) == want


@pytest.mark.parametrize(
    ("text", "told"),
    [("abc", "Write --envs="), (",a=1", "Write --envs="), ("1a=2", "letters, digits"), ("=1", "letters, digits"),
     ("a=1,b-c=2", "Cannot set 'b-c'"), ("LEGATO_X=1", "platform's own"), ("a=1,=2", "Cannot set ''")],
)  # fmt: skip
def test_variables_that_make_no_sense(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        read_variables(text)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", {}),
        ("cpu=0.3,memory=1024Mi", {"cpu": "0.3", "memory": "1024Mi"}),
        (" cpu = 250m , gpu=1", {"cpu": "250m", "nvidia.com/gpu": "1"}),
        ("amd.com/gpu=2,ephemeral-storage=5G", {"amd.com/gpu": "2", "ephemeral-storage": "5G"}),
        ("nvidia.com/mig-1g.5gb=1,disk=64Mi", {"nvidia.com/mig-1g.5gb": "1", "disk": "64Mi"}),
        ("cpu=.5", {"cpu": ".5"}),
    ],
)
def test_resources(text: str, want: dict[str, str]) -> None:
    assert resources(text) == want


@pytest.mark.parametrize(
    "text",
    ["cpu", "cpu=", "cpu=-1", "cpu=nan", "cpu=0", "cpu=0m", "cpu=1e3", "cpu=inf", "memory=1024", "memory=1.5Gi",
     "memory=5k", "memory=0Mi", "memory=5Mib", "gpu=1.0", "gpu=-1", "gpu=x", "cpu=1,cpu=2", "gpu=1,nvidia.com/gpu=1",
     f"{'a' * 64}/gpu=1", f"{'a' * 64}.com/gpu=1", f"{'a.' * 127}/gpu=1", "a..b/gpu=1", "-a/gpu=1",
     "tpu=1", "=1", "cpu=1,,memory=1Gi", "cpu=٣"],
)  # fmt: skip
def test_resources_that_make_no_sense(text: str) -> None:
    with pytest.raises(UsageError, match="Cannot read --worker_resource_request"):
        resources(text)


def test_a_vendor_of_gpus_is_a_name_of_dns() -> None:
    longest = ".".join(["a" * 63] * 3)
    assert resources(f"{longest}/gpu=1") == {f"{longest}/gpu": "1"}
    with pytest.raises(
        UsageError, match=r"is not the resource name of a GPU. Write a DNS name and /gpu, such as amd.com/gpu"
    ):
        resources(f"{'a' * 64}/gpu=1")


def test_devices_are_counted() -> None:
    assert count_devices(resources("gpu=2,amd.com/gpu=1,cpu=4")) == 3


def test_volumes() -> None:
    text = "host_path=/home/ann/d,mount_path=/data/; claim_name=c,mount_path=/c,sub_path=a;;mount_path=/lost"
    assert read_volumes(text) == (
        Volume(host_path="/home/ann/d", mount_path="/data"),
        Volume(claim_name="c", mount_path="/c", sub_path="a"),
    )
    (typed,) = read_volumes("host_path=/d,type=DirectoryOrCreate,mount_path=/e,sub_path=x/y")
    assert (typed.type, typed.folder) == ("DirectoryOrCreate", "/d/x/y")
    assert read_volumes("") == ()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("host_path=/d", "mount_path must be the path"),
        ("host_path=/d,mount_path=data", "from the root"),
        ("host_path,mount_path=/d", "has no value"),
        ("host_path=/d,mountpath=/d", "'mountpath' is unknown"),
        ("host_path=/d,claim_name=c,mount_path=/d", "both claim_name and host_path"),
        ("host_path=/d,mount_path=/d,host_path=/e,mount_path=/e", "given twice"),
        ("host_path=/d,mount_path=/d;host_path=/e,mount_path=/d/", "two volumes at /d"),
        ("host_path=/d,mount_path=/d,sub_path=../x", "leads out"),
    ],
)
def test_volumes_that_make_no_sense(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        read_volumes(text)


@pytest.mark.parametrize(
    ("num_workers", "text", "want"),
    [
        (4, "0.5", "hllh"),
        (10, "0.5", "hhhlllllhh"),
        (3, "", "---"),
        (2, "high", "hh"),
        (2, "low", "ll"),
        (3, "0", "lll"),
        (3, "1", "hhh"),
        (1, "0.1", "h"),
        (5, "0.3", "hlllh"),
    ],
)
def test_priorities_of_workers(num_workers: int, text: str, want: str) -> None:
    found = spread_priorities(num_workers, text)
    assert "".join(one[:1] or "-" for one in found) == want


@pytest.mark.parametrize("text", ["urgent", "nan", "-0.1", "1.5", "inf", "HIGH", "0,5"])
def test_priorities_that_make_no_sense(text: str) -> None:
    with pytest.raises(UsageError, match="--worker_pod_priority"):
        read_priority(text)


@settings(deadline=None)
@given(st.integers(1, 60), st.floats(0, 1))
def test_as_many_workers_have_high_priority_as_asked(num_workers: int, part: float) -> None:
    found = spread_priorities(num_workers, repr(part))
    assert len(found) == num_workers
    assert found.count("high") == math.ceil(num_workers * part)
    middle = [index for index, one in enumerate(found) if one == "low"]
    assert middle == list(range(middle[0], middle[0] + len(middle))) if middle else True
    assert 2500 <= map_priority(part) <= 7500


@pytest.mark.parametrize("name", ["a", "test-mnist-allreduce", "0", "a" * 45])
def test_names_of_jobs(name: str) -> None:
    check_job_name(name)


@pytest.mark.parametrize("name", ["", "Bad_Name", "-a", "a-", "a.b", "a" * 46, "ä", "a\n", "a b"])
def test_names_that_kubernetes_would_refuse(name: str) -> None:
    with pytest.raises(UsageError, match="Cannot name a job"):
        check_job_name(name)


def test_switches_of_aux_params() -> None:
    assert read_switches("disable_relaunch=True;exact_num_workers=true, x=a=b;;y") == {
        "disable_relaunch": "True",
        "exact_num_workers": "true",
        "x": "a=b",
    }


READERS: list[Callable[[str], Any]] = [
    read_variables, resources, read_volumes, read_priority, read_switches, check_job_name
]  # fmt: skip


@settings(deadline=None)
@given(st.sampled_from(range(len(READERS))), st.text(alphabet="aA_1,;=./ \n-cpugmhostanv", max_size=40) | st.text())
def test_any_text_is_read_or_refused(index: int, text: str) -> None:
    with contextlib.suppress(UsageError):
        READERS[index](text)


NAMES = st.from_regex(r"[A-KM-Z][A-Z0-9_]{0,5}", fullmatch=True)


@settings(deadline=None)
@given(st.dictionaries(NAMES, st.text(alphabet="ab=/ ?", max_size=8), max_size=5))
def test_variables_come_back_as_they_were_written(variables: dict[str, str]) -> None:
    text = ",".join(f"{name}={value}" for name, value in variables.items())
    assert read_variables(text) == variables
