"""The GPUs of this machine, and how a worker sees just its own. Works without torch; starts nothing.

NVML names the GPUs if ``nvidia-ml-py`` is installed; otherwise, and if it does not answer, their device files are
counted. A slot's *device* is ``cpu``, a GPU as ``CUDA_VISIBLE_DEVICES`` names it (``GPU-…``, or ``MIG-…`` for a part of
one), or ``cuda:N`` with CUDA's number when no GPU is hidden.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

from legato.core.errors import UsageError
from legato.engines.nvml import Nvml, NvmlAbsent, NvmlSilent

_log = logging.getLogger(__name__)

_DEVICE: Final = re.compile(r"cpu|cuda:\d+|(GPU|MIG)-[\w/-]+")
_NAMED: Final = ("GPU-", "MIG-")
_NVML: Final = Nvml()
_LIST_PATIENCE_S: Final = 30.0
"""GPUs without persistence mode take seconds to wake up."""
_TYPE_PATIENCE_S: Final = 5.0
"""The control loop waits meanwhile."""
_known_types: dict[str, str] = {}
"""Device → model, as NVML has said."""


def find_devices() -> tuple[str, ...]:
    """Return the GPUs that this process may use, in CUDA's order; none if the CPU must be used.

    Raises:
        UsageError: ``LEGATO_DEVICE`` names a device that does not exist.
    """
    found = decide_devices(_ask_nvml() or _count_files(), os.environ)
    return choose_devices(found, os.environ.get("LEGATO_DEVICE"))


def find_slots(num_slots: int | None) -> tuple[str, ...]:
    """Return the devices of a machine's slots: its first GPUs, or the CPU for each slot if it has no GPU.

    Args:
        num_slots: None: all GPUs, or one slot.

    Errors as in `find_devices`.
    """
    found = find_devices()
    return found[:num_slots] if found else ("cpu",) * (num_slots or 1)


def decide_devices(gpus: Sequence[Sequence[str]], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the devices that are visible to processes with an environment.

    ``CUDA_VISIBLE_DEVICES`` is read as CUDA reads it: names may be abbreviated while they are unique, the list ends at
    the first unknown entry, and a list with a duplicate entry shows nothing. By default CUDA numbers GPUs by speed, in
    an unknown order, so a number is replaced by a name only if the order does not matter.

    Args:
        gpus: for each GPU, in the order of the PCI bus, its device or the devices into which it is divided.
        environment: a process's variables.

    >>> decide_devices([["cuda:0"], ["cuda:1"]], {})
    ('cuda:0', 'cuda:1')
    >>> decide_devices([["GPU-6e"], ["MIG-a7", "MIG-b4"]], {"CUDA_VISIBLE_DEVICES": "MIG-b,GPU-6e"})
    ('MIG-b4', 'GPU-6e')
    >>> decide_devices([["GPU-6e"], ["GPU-91"]], {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    ('GPU-91',)
    >>> decide_devices([["GPU-6e"], ["GPU-91"]], {"CUDA_VISIBLE_DEVICES": "1,2"})
    ('cuda:1',)
    >>> decide_devices([["GPU-6e"]], {"CUDA_VISIBLE_DEVICES": ""})
    ()
    """
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return tuple(chain.from_iterable(gpus))
    in_order = len(gpus) == 1 or environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    chosen: list[str] = []
    for entry in visible.split(","):
        device = _find(entry.strip(), gpus, in_order=in_order)
        if device is None:
            break
        chosen.append(device)
    return tuple(chosen) if len(set(chosen)) == len(chosen) else ()


def choose_devices(found: tuple[str, ...], asked: str | None) -> tuple[str, ...]:
    """Return the found devices that ``LEGATO_DEVICE`` names, one for each slot; none for the CPU.

    It may name a GPU more than once: then several workers share it.

    Raises:
        UsageError: it names a missing GPU or an unknown device.

    >>> choose_devices(("GPU-6e", "GPU-91"), "cuda:1"), choose_devices(("GPU-6e",), "cpu"), choose_devices((), None)
    (('GPU-91',), (), ())
    >>> choose_devices(("GPU-6e", "GPU-91"), "cuda:0,cuda:0,cuda:1")
    ('GPU-6e', 'GPU-6e', 'GPU-91')
    """
    if not asked:
        return found
    if asked.partition(":")[0] == "cpu":
        return ()
    return tuple(chain.from_iterable(_choose(found, part.strip(), asked) for part in asked.split(",")))


def _choose(found: tuple[str, ...], part: str, asked: str) -> tuple[str, ...]:
    told = f"Cannot train on LEGATO_DEVICE={asked}"
    remedy = "Set LEGATO_DEVICE=cpu to train on the CPU, or unset it to use the GPUs of this machine, if any."
    kind, _, number = part.partition(":")
    if kind != "cuda" or not (number.isdecimal() or part == "cuda"):
        raise UsageError(
            f"{told}: workers train on cpu, cuda, one GPU such as cuda:0, or several with commas between them. {remedy}"
        )
    if not found:
        raise UsageError(f"{told}: this machine offers no GPU, or CUDA_VISIBLE_DEVICES hides them. {remedy}")
    if not number:
        return found
    if int(number) >= len(found):
        raise UsageError(f"{told}: this machine offers {len(found)} GPUs, from cuda:0 on. {remedy}")
    return (found[int(number)],)


def check_device(device: str) -> str:
    """Check the device of a slot, and return it.

    Raises:
        UsageError: the text is no device.
    """
    if not _DEVICE.fullmatch(device):
        raise UsageError(f"Cannot use device '{device}': name it cpu, cuda:0, or GPU-… as 'nvidia-smi -L' shows it.")
    return device


def torch_name(device: str) -> str:
    """Return torch's name of a slot's device in its worker, which sees no other device.

    >>> torch_name("cpu"), torch_name("cuda:3"), torch_name("GPU-6e")
    ('cpu', 'cuda:0', 'cuda:0')
    """
    return "cpu" if device == "cpu" else "cuda:0"


def show_only(devices: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that make only its own devices visible to a worker.

    Args:
        devices: of its slots, all of the same form.
        environment: of the process that found the devices; numbers refer to its ``CUDA_DEVICE_ORDER``.

    >>> show_only(["GPU-6e", "GPU-91"], {}), show_only(["cpu"], {})
    ({'CUDA_VISIBLE_DEVICES': 'GPU-6e,GPU-91'}, {'CUDA_VISIBLE_DEVICES': ''})
    >>> show_only(["cuda:3"], {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    {'CUDA_VISIBLE_DEVICES': '3', 'CUDA_DEVICE_ORDER': 'PCI_BUS_ID'}
    """
    if devices[0].startswith(_NAMED):
        return {"CUDA_VISIBLE_DEVICES": ",".join(devices)}
    numbers = [number for device in devices if (number := device.partition(":")[2])]
    if not numbers:
        return {"CUDA_VISIBLE_DEVICES": ""}
    order = environment.get("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    return {"CUDA_VISIBLE_DEVICES": ",".join(numbers), "CUDA_DEVICE_ORDER": order}


def check_several(devices: Sequence[str], what: str) -> None:
    """Check that one worker can use these devices together.

    Raises:
        UsageError: one is the CPU, or one GPU comes twice. ``what`` begins the message.
    """
    if len(devices) > 1 and "cpu" in devices:
        raise UsageError(
            f"{what}: a worker with several GPUs needs a machine with GPUs, and here workers train on the CPU. Leave "
            "--gpus-per-worker out, or run it where 'nvidia-smi -L' lists enough GPUs."
        )
    if len(set(devices)) < len(devices):
        raise UsageError(
            f"{what}: a worker with several GPUs needs different ones, and it would get {', '.join(devices)}. Name "
            "each GPU once in LEGATO_DEVICE."
        )


def _find(entry: str, gpus: Sequence[Sequence[str]], *, in_order: bool) -> str | None:
    """Return the device that an entry of ``CUDA_VISIBLE_DEVICES`` names, None if there is none."""
    if entry.isdecimal():
        if int(entry) >= len(gpus) or not gpus[int(entry)]:
            return None
        names = gpus[int(entry)]
        return names[0] if in_order and len(names) == 1 else f"cuda:{int(entry)}"
    if not entry.startswith(_NAMED):
        return None
    known = [name for name in chain.from_iterable(gpus) if name.startswith(_NAMED)]
    if not known:
        return entry if gpus else None
    matching = [name for name in known if name.startswith(entry)]
    return matching[0] if len(matching) == 1 else None


def _ask_nvml() -> list[list[str]]:
    """Return the GPUs by name; nothing if NVML is not available."""
    try:
        return _NVML.ask(_list_names, _LIST_PATIENCE_S)
    except NvmlAbsent:
        return []
    except NvmlSilent as error:
        _log.warning("NVML cannot list the GPUs (%s): Legato counts their device files", error)
        return []


def _list_names(nvml: Any) -> list[list[str]]:
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        return [list(_names(nvml, handle)) for handle in handles]
    except nvml.NVMLError as error:
        _log.warning("NVML cannot list the GPUs (%s): Legato counts their device files", error)
        return []


def find_gpu_types(devices: Sequence[str]) -> tuple[str | None, ...]:
    """Return the model of each device, such as ``NVIDIA A100-SXM4-80GB``. None: no GPU, or NVML does not know it.

    NVML is asked until it has said the model of a GPU, and never waited for longer than 5 s: a driver of NVIDIA can
    hang while jobs train.
    """
    unknown = [device for device in devices if device.startswith(_NAMED) and device not in _known_types]
    if unknown:
        try:
            models = _NVML.ask(lambda nvml: [_find_type(nvml, device) for device in unknown], _TYPE_PATIENCE_S)
            _known_types.update((device, model) for device, model in zip(unknown, models, strict=True) if model)
        except NvmlAbsent:
            pass
        except NvmlSilent as error:
            level = logging.WARNING if error.is_news else logging.DEBUG
            _log.log(level, "NVML does not say the models of the GPUs: %s", error)
    return tuple(map(_known_types.get, devices))


def _find_type(nvml: Any, device: str) -> str | None:
    try:
        return str(nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByUUID(device)))
    except nvml.NVMLError as error:
        _log.warning("NVML does not say the model of GPU %s: %s", device, error)
        return None


def _names(nvml: Any, handle: Any) -> Iterator[str]:
    try:
        is_divided = nvml.nvmlDeviceGetMigMode(handle)[0] == nvml.NVML_DEVICE_MIG_ENABLE
    except nvml.NVMLError:
        # Most GPUs cannot be divided.
        is_divided = False
    if not is_divided:
        yield nvml.nvmlDeviceGetUUID(handle)
        return
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except nvml.NVMLError:
            # Indexes without a MIG device.
            continue
        yield nvml.nvmlDeviceGetUUID(part)


def _count_files() -> list[list[str]]:
    num_found = sum(1 for path in Path("/dev").glob("nvidia*") if re.fullmatch(r"nvidia\d+", path.name))
    return [[f"cuda:{number}"] for number in range(num_found)]
