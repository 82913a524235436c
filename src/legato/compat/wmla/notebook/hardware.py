"""The number of workers that a notebook's ``train()`` asks for, and its arguments without effect. Pure."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from legato.core.errors import UsageError

_MAX_COUNT: Final = 100_000
_NODES: Final = ("num_nodes", "gpu")
_GPU: Final = ("num_gpu",)


class Hardware(NamedTuple):
    """The hardware that a notebook asks for.

    Args:
        by_spec: number of GPUs in ``hardware_spec``; None if it gives none.
        by_nodes: ``worker_num`` times ``worker_device_num``; None if neither is given.
        ignored: arguments without effect.
    """

    by_spec: int | None
    by_nodes: int | None
    ignored: tuple[str, ...]

    @property
    def notice(self) -> str:
        """One line about arguments without effect; "" if there are none."""
        if not self.ignored:
            return ""
        return (
            f"Accepted, but without effect here: {', '.join(self.ignored)}. A worker has one GPU, and memory and "
            "cores are not divided among workers."
        )

    def choose_engines(self, engines_number: Any, effective_batch_size: Any) -> Any:
        """Return the ``engines_number`` to use; None if only ``effective_batch_size`` decides.

        ``hardware_spec`` has precedence over ``engines_number``, which has precedence over ``worker_num`` and
        ``worker_device_num``.

        >>> Hardware(6, 2, ()).choose_engines(4, None), Hardware(None, 2, ()).choose_engines(4, None)
        (6, 4)
        >>> Hardware(None, 2, ()).choose_engines(None, None), Hardware(6, None, ()).choose_engines(None, 256)
        (2, None)
        """
        if effective_batch_size is not None:
            return engines_number if self.by_spec is None else None
        given = (self.by_spec, engines_number, self.by_nodes)
        return next((number for number in given if number is not None), None)

    def choose_workers(self, engines_number: Any, engines: int) -> int:
        """Return the maximum number of workers of the job.

        Args:
            engines_number: the argument of ``train()``.
            engines: number of micro-batches in a step.

        >>> Hardware(6, 2, ()).choose_workers(4, 6), Hardware(None, 2, ()).choose_workers(None, 8)
        (6, 2)
        """
        if self.by_spec is not None:
            return self.by_spec
        return self.by_nodes if engines_number is None and self.by_nodes is not None else engines


def read_hardware(
    *,
    hardware_spec: object = None,
    worker_num: object = None,
    worker_device_num: object = None,
    worker_memory: object = None,
    driver_memory: object = None,
) -> Hardware:
    """Read the arguments of ``train()`` about hardware.

    Args:
        hardware_spec: ``{"nodes": {"num_nodes": 2, "gpu": {"num_gpu": 1}}}``; other keys are ignored.
        worker_num: number of nodes.
        worker_device_num: number of GPUs of each node.
        worker_memory: ignored.
        driver_memory: ignored.

    Raises:
        UsageError: a number is not a whole number from 1, or the specification is not a dict.

    >>> read_hardware(hardware_spec={"nodes": {"num_nodes": 3, "gpu": {"num_gpu": 2}}}, worker_num=2).by_spec
    6
    """
    memory = {"worker_memory": worker_memory, "driver_memory": driver_memory}
    ignored = [f"{name}={value!r}" for name, value in memory.items() if value is not None]
    by_spec, odd = _read_spec(hardware_spec)
    by_nodes = None
    if worker_num is not None or worker_device_num is not None:
        by_nodes = _read_count("worker_num", worker_num) * _read_count("worker_device_num", worker_device_num)
    return Hardware(by_spec, by_nodes, (*odd, *ignored))


def _read_spec(spec: object) -> tuple[int | None, Sequence[str]]:
    """Return the number of GPUs in a specification, or None if it gives none, and the parts without effect."""
    if spec is None:
        return None, ()
    if not isinstance(spec, Mapping):
        raise _not_a_spec("hardware_spec", spec)
    nodes = spec.get("nodes")
    # The specification behind a name is stored on IBM's platform, so a name has no effect either.
    ignored = [f"hardware_spec['{key}']={value!r}" for key, value in spec.items() if key != "nodes"]
    if nodes is None:
        return None, ignored
    if not isinstance(nodes, Mapping):
        raise _not_a_spec("nodes of hardware_spec", nodes)
    gpu = nodes.get("gpu") or {}
    if not isinstance(gpu, Mapping):
        raise _not_a_spec("gpu of hardware_spec", gpu)
    ignored += [f"hardware_spec nodes.{key}" for key in nodes if key not in _NODES]
    ignored += [f"hardware_spec nodes.gpu.{key}" for key in gpu if key not in _GPU]
    num_nodes, num_devices = nodes.get("num_nodes"), gpu.get("num_gpu")
    if num_nodes is None and num_devices is None:
        return None, ignored
    # 0 means a node without a GPU, but its worker needs a slot, too.
    num_devices = None if num_devices in (0, "0") else num_devices
    return _read_count("num_nodes of hardware_spec", num_nodes) * _read_count(
        "num_gpu of hardware_spec", num_devices
    ), ignored


def _read_count(name: str, value: Any) -> int:
    if value is None:
        return 1
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        value = int(value)
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if isinstance(value, bool) or not 1 <= number <= _MAX_COUNT:
        raise UsageError(f"Cannot train with {name}={value!r}. Give a whole number from 1 to {_MAX_COUNT}.")
    return number


def _not_a_spec(name: str, value: object) -> UsageError:
    return UsageError(
        f"Cannot train with {name}={value!r}: it is not a dict. Write for example "
        "hardware_spec={'nodes': {'num_nodes': 2, 'gpu': {'num_gpu': 1}}}."
    )
