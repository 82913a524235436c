"""The number of workers that a notebook's ``train()`` asks for, and its arguments without effect. Pure."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from legato.core.errors import UsageError

_MOST: Final = 100_000
_NODES: Final = ("num_nodes", "gpu")
_GPU: Final = ("num_gpu",)


class Hardware(NamedTuple):
    """What a notebook asks for.

    Args:
        by_spec: GPUs that its ``hardware_spec`` says. None: it says none.
        by_nodes: GPUs of ``worker_num`` workers with ``worker_device_num`` each. None: neither was said.
        passed_over: what was said and means nothing here, by its names.
    """

    by_spec: int | None
    by_nodes: int | None
    passed_over: tuple[str, ...]

    @property
    def notice(self) -> str:
        """One line about what means nothing here; "" if there is nothing such."""
        if not self.passed_over:
            return ""
        return (
            f"Accepted, but without effect here: {', '.join(self.passed_over)}. A worker has one GPU, and memory and "
            "cores are not divided among workers."
        )

    def choose_engines(self, engines_number: Any, effective_batch_size: Any) -> Any:
        """Return what counts as ``engines_number``, None for what ``effective_batch_size`` says.

        >>> Hardware(6, 2, ()).choose_engines(4, None), Hardware(None, 2, ()).choose_engines(4, None)
        (6, 4)
        >>> Hardware(None, 2, ()).choose_engines(None, None), Hardware(6, None, ()).choose_engines(None, 256)
        (2, None)
        """
        if effective_batch_size is not None:
            return engines_number if self.by_spec is None else None
        said = (self.by_spec, engines_number, self.by_nodes)
        return next((number for number in said if number is not None), None)

    def choose_workers(self, engines_number: Any, engines: int) -> int:
        """Return how many workers a job may have.

        Args:
            engines_number: as it was given.
            engines: micro-batches of a step, as they were made out.

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
    """Read the arguments of ``train()``.

    Args:
        hardware_spec: ``{"nodes": {"num_nodes": 2, "gpu": {"num_gpu": 1}}}``; all else in it is skipped.
        worker_num: nodes.
        worker_device_num: GPUs of each.
        worker_memory: skipped.
        driver_memory: skipped.

    Raises:
        UsageError: a number is none, or the specification is no dict.

    >>> read_hardware(hardware_spec={"nodes": {"num_nodes": 3, "gpu": {"num_gpu": 2}}}, worker_num=2).by_spec
    6
    """
    told = {"worker_memory": worker_memory, "driver_memory": driver_memory}
    passed_over = [f"{name}={value!r}" for name, value in told.items() if value is not None]
    by_spec, odd = _read_spec(hardware_spec)
    by_nodes = None
    if worker_num is not None or worker_device_num is not None:
        by_nodes = _count("worker_num", worker_num) * _count("worker_device_num", worker_device_num)
    return Hardware(by_spec, by_nodes, (*odd, *passed_over))


def _read_spec(spec: object) -> tuple[int | None, Sequence[str]]:
    """Return how many GPUs a specification asks for, None if it does not say, and what is skipped of it."""
    if spec is None:
        return None, ()
    if not isinstance(spec, Mapping):
        raise _not_a_spec("hardware_spec", spec)
    nodes = spec.get("nodes")
    # A specification that has a name lies where only IBM's platform finds it.
    passed_over = [f"hardware_spec['{key}']={value!r}" for key, value in spec.items() if key != "nodes"]
    if nodes is None:
        return None, passed_over
    if not isinstance(nodes, Mapping):
        raise _not_a_spec("nodes of hardware_spec", nodes)
    gpu = nodes.get("gpu") or {}
    if not isinstance(gpu, Mapping):
        raise _not_a_spec("gpu of hardware_spec", gpu)
    passed_over += [f"hardware_spec nodes.{key}" for key in nodes if key not in _NODES]
    passed_over += [f"hardware_spec nodes.gpu.{key}" for key in gpu if key not in _GPU]
    num_nodes, num_devices = nodes.get("num_nodes"), gpu.get("num_gpu")
    if num_nodes is None and num_devices is None:
        return None, passed_over
    # A node without a GPU: its worker has a slot nevertheless.
    num_devices = None if num_devices in (0, "0") else num_devices
    return _count("num_nodes of hardware_spec", num_nodes) * _count(
        "num_gpu of hardware_spec", num_devices
    ), passed_over


def _count(name: str, value: Any) -> int:
    if value is None:
        return 1
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        value = int(value)
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if isinstance(value, bool) or not 1 <= number <= _MOST:
        raise UsageError(f"Cannot train with {name}={value!r}. Give a whole number from 1 to {_MOST}.")
    return number


def _not_a_spec(name: str, value: object) -> UsageError:
    return UsageError(
        f"Cannot train with {name}={value!r}: it is no dict. Write it as in "
        "hardware_spec={'nodes': {'num_nodes': 2, 'gpu': {'num_gpu': 1}}}."
    )
