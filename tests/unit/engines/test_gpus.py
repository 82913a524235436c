"""Which GPUs there are to be used: as NVML tells, as device files tell, as the environment allows."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from legato.core.errors import UsageError
from legato.engines import gpus
from legato.engines.gpus import choose_devices, decide_devices, find_devices, find_gpu_types
from legato.engines.slots import Slots

NAMED = [["GPU-6e11"], ["GPU-6e92"], ["GPU-f0"]]
COUNTED = [["cuda:0"], ["cuda:1"]]


class FakeNvmlError(Exception):
    pass


def make_nvml(machine: Sequence[str | Sequence[str]], *, fails_at: str = "") -> Any:
    """Make a ``pynvml`` of a machine with these GPUs: a text is a whole one, a list one that is divided into those."""
    calls: list[str] = []

    def called(name: str) -> None:
        calls.append(name)
        if name == fails_at:
            raise FakeNvmlError(f"{name} fails, as asked")

    def mig_mode(handle: Any) -> tuple[int, int]:
        if handle == "GPU-old":
            raise FakeNvmlError("not supported")
        return (0, 1) if isinstance(handle, str) else (1, 1)

    def part(handle: Sequence[str], index: int) -> str:
        if index >= len(handle):
            raise FakeNvmlError("not found")
        return handle[index]

    def by_index(index: int) -> Any:
        called("nvmlDeviceGetHandleByIndex")
        return machine[index]

    def by_name(name: str) -> str:
        if name not in chain.from_iterable([gpu] if isinstance(gpu, str) else gpu for gpu in machine):
            raise FakeNvmlError("not found")
        return name

    return types.SimpleNamespace(
        NVMLError=FakeNvmlError,
        NVML_DEVICE_MIG_ENABLE=1,
        calls=calls,
        nvmlInit=lambda: called("nvmlInit"),
        nvmlShutdown=lambda: called("nvmlShutdown"),
        nvmlDeviceGetCount=lambda: len(machine),
        nvmlDeviceGetHandleByIndex=by_index,
        nvmlDeviceGetMigMode=mig_mode,
        nvmlDeviceGetMaxMigDeviceCount=lambda handle: 7,
        nvmlDeviceGetMigDeviceHandleByIndex=part,
        nvmlDeviceGetUUID=str,
        nvmlDeviceGetHandleByUUID=by_name,
        nvmlDeviceGetName=lambda handle: "NVIDIA A100" if handle.startswith("GPU") else "NVIDIA A100 MIG 1g.5gb",
    )


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with two device files and without NVML."""
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "LEGATO_DEVICE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(gpus, "_known_types", {})
    files = [Path("/dev") / name for name in ("nvidia0", "nvidia3", "nvidiactl", "nvidia-uvm")]
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter(files))


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    def install(*machine: str | Sequence[str], **options: str) -> Any:
        nvml = make_nvml(machine, **options)
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        return nvml

    return install


def test_without_nvml_the_device_files_are_counted() -> None:
    assert find_devices() == ("cuda:0", "cuda:1")


def test_nvml_tells_the_models_of_gpus(install: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    assert find_gpu_types(["cpu", "GPU-6e"]) == (None, None), "without NVML"
    nvml = install("GPU-6e", ["MIG-a"])
    devices = ["GPU-6e", "MIG-a", "GPU-gone", "cuda:1"]
    assert find_gpu_types(devices) == ("NVIDIA A100", "NVIDIA A100 MIG 1g.5gb", None, None)
    assert nvml.calls[-1] == "nvmlShutdown"
    assert "does not say the model of GPU GPU-gone" in caplog.text
    install("GPU-6e", "GPU-91", fails_at="nvmlInit")
    assert find_gpu_types(["GPU-6e", "GPU-91"]) == ("NVIDIA A100", None), "what NVML has said does not change"


def test_an_nvml_that_hangs_is_left_behind(
    install: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for limit in ("_LIST_PATIENCE_S", "_TYPE_PATIENCE_S"):
        monkeypatch.setattr(gpus, limit, 0.05)
    nvml, answers = install("GPU-6e"), threading.Event()
    init = nvml.nvmlInit
    nvml.nvmlInit = lambda: answers.wait(20) or pytest.fail("the caller has waited for it")
    assert find_devices() == ("cuda:0", "cuda:1"), "the device files are counted"
    assert find_gpu_types(["GPU-6e"]) == (None,)
    assert find_gpu_types(["GPU-6e"]) == (None,)
    assert [record.getMessage() for record in caplog.records] == [
        "NVML cannot list the GPUs (no answer within 0.05 s): Legato counts their device files"
    ]
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "nvml-question"]
    assert thread.daemon, "the end of the process does not wait for it either"
    answers.set()
    thread.join(20)
    nvml.nvmlInit = init
    assert find_gpu_types(["GPU-6e"]) == ("NVIDIA A100",), "it is asked again once it answers"


def test_a_short_question_does_not_wait_behind_a_long_one(
    install: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A control loop asks for models while the same process lists its GPUs."""
    monkeypatch.setattr(gpus, "_LIST_PATIENCE_S", 20)
    monkeypatch.setattr(gpus, "_TYPE_PATIENCE_S", 0.05)
    nvml, is_asked, answers = install("GPU-6e"), threading.Event(), threading.Event()

    def start() -> None:
        is_asked.set()
        assert answers.wait(20), "the short question waits behind the long one"

    nvml.nvmlInit = start
    found: list[tuple[str, ...]] = []
    long = threading.Thread(target=lambda: found.append(find_devices()))
    long.start()
    assert is_asked.wait(20)
    assert find_gpu_types(["GPU-6e"]) == (None,)
    monkeypatch.setattr(gpus, "_TYPE_PATIENCE_S", 20)
    answers.set()
    assert find_gpu_types(["GPU-6e"]) == ("NVIDIA A100",), "it waits for the long one, as long as it may"
    long.join(20)
    assert found == [("GPU-6e",)]


def test_nvml_tells_names(install: Callable[..., Any]) -> None:
    nvml = install("GPU-6e", "GPU-old", ["MIG-a", "MIG-b"], [])
    assert find_devices() == ("GPU-6e", "GPU-old", "MIG-a", "MIG-b")
    assert nvml.calls[-1] == "nvmlShutdown"


def test_nvml_without_a_driver(install: Callable[..., Any]) -> None:
    nvml = install("GPU-6e", fails_at="nvmlInit")
    assert find_devices() == ("cuda:0", "cuda:1")
    assert nvml.calls == ["nvmlInit"]


def test_nvml_that_loses_a_gpu_says_so(install: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    nvml = install("GPU-6e", fails_at="nvmlDeviceGetHandleByIndex")
    assert find_devices() == ("cuda:0", "cuda:1")
    assert "as asked" in caplog.text
    assert nvml.calls[-1] == "nvmlShutdown"


@pytest.mark.parametrize(
    ("visible", "want"),
    [
        ("GPU-f0,GPU-6e1", ("GPU-f0", "GPU-6e11")),
        # Cut too short, unknown, no name at all: there the list ends.
        ("GPU-f0,GPU-6e,GPU-6e11", ("GPU-f0",)),
        ("GPU-aa", ()),
        ("1,-1,0", ("cuda:1",)),
        ("1,3", ("cuda:1",)),
        (" 2 , 0", ("cuda:2", "cuda:0")),
        ("", ()),
        ("none", ()),
        # A process that counts one twice sees none.
        ("0,0", ()),
        ("GPU-f0,GPU-f", ()),
    ],
)
def test_what_is_visible(visible: str, want: tuple[str, ...]) -> None:
    assert decide_devices(NAMED, {"CUDA_VISIBLE_DEVICES": visible}) == want


def test_numbers_are_names_only_in_an_order_that_is_known() -> None:
    visible = {"CUDA_VISIBLE_DEVICES": "2,0"}
    assert decide_devices(NAMED, visible) == ("cuda:2", "cuda:0")
    assert decide_devices(NAMED, {**visible, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}) == ("GPU-f0", "GPU-6e11")
    assert decide_devices(NAMED[:1], {"CUDA_VISIBLE_DEVICES": "0"}) == ("GPU-6e11",)
    divided = [["MIG-a", "MIG-b"], []]
    in_order = {"CUDA_VISIBLE_DEVICES": "0,1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert decide_devices(divided, in_order) == ("cuda:0",)


def test_names_are_accepted_where_they_cannot_be_checked() -> None:
    assert decide_devices(COUNTED, {"CUDA_VISIBLE_DEVICES": "GPU-6e,MIG-a"}) == ("GPU-6e", "MIG-a")
    assert decide_devices([], {"CUDA_VISIBLE_DEVICES": "GPU-6e,0"}) == ()


@pytest.mark.parametrize(
    ("asked", "want"),
    [
        (None, ("GPU-a", "GPU-b")),
        ("", ("GPU-a", "GPU-b")),
        ("cuda", ("GPU-a", "GPU-b")),
        ("cuda:1", ("GPU-b",)),
        ("cpu", ()),
        ("cpu:0", ()),
    ],
)
def test_what_is_asked_for(asked: str | None, want: tuple[str, ...]) -> None:
    assert choose_devices(("GPU-a", "GPU-b"), asked) == want


@pytest.mark.parametrize(
    ("found", "asked", "told"),
    [
        ((), "cuda", "offers no GPU"),
        ((), "cuda:0", "offers no GPU"),
        (("GPU-a", "GPU-b"), "cuda:2", "offers 2 GPUs, from cuda:0 on"),
        (("GPU-a",), "cuda:", "one GPU such as cuda:0"),
        (("GPU-a",), "mps", "workers train on cpu, cuda"),
    ],
)
def test_what_cannot_be_had_is_refused(found: tuple[str, ...], asked: str, told: str) -> None:
    with pytest.raises(UsageError, match=told) as error:
        choose_devices(found, asked)
    assert str(error.value).startswith(f"Cannot train on LEGATO_DEVICE={asked}: ")
    assert "LEGATO_DEVICE=cpu" in str(error.value)


def test_the_environment_of_this_process_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert find_devices() == ("cuda:1",)
    monkeypatch.setenv("LEGATO_DEVICE", "cpu")
    assert find_devices() == ()


@pytest.mark.parametrize("device", ["cuda", "gpu0", "cuda:x", "GPU-", ""])
def test_what_is_no_device_is_refused(device: str) -> None:
    with pytest.raises(UsageError, match=f"Cannot use device '{device}'"):
        Slots(["cpu", device])


def test_the_device_of_a_slot() -> None:
    slots = Slots(["cuda:1", "GPU-6e"])
    assert [slots.devices_in(slot) for slot in ("n/0", "m/1", "n/0+1")] == [
        ("cuda:1",),
        ("GPU-6e",),
        ("cuda:1", "GPU-6e"),
    ]
    with pytest.raises(UsageError, match=r"Cannot use slot n/2: this machine has 2 slots \(cuda:1, GPU-6e\)"):
        slots.devices_in("n/2")
    with pytest.raises(UsageError, match="Cannot use 'n/-1' as a slot"):
        slots.devices_in("n/-1")
    assert Slots([]).devices_in("n/17") == ("cpu",)
    with pytest.raises(
        UsageError, match="a worker with several GPUs needs a machine with GPUs, and here workers train"
    ):
        Slots(["cpu", "cpu"]).devices_in("n/0+1")
    with pytest.raises(UsageError, match="needs different ones, and it would get GPU-6e, GPU-6e"):
        Slots(["GPU-6e", "GPU-6e"]).devices_in("n/0+1")
