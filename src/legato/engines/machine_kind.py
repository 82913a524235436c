"""The kind of this machine: machines of one kind compute the same bits. Found without torch, so at once."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
from typing import NamedTuple

import msgspec

from legato.core.cpu import capability_of, level_of
from legato.system.cpus import read_processor

_PACKAGES = ("torch", "numpy")


class MachineKind(NamedTuple):
    """A kind of machine.

    Args:
        name: equal for equal traits.
        traits: what makes the kind, for people: name → value, such as ``CPU capability`` → ``AVX512``.
    """

    name: str
    traits: dict[str, str]


def find_kind() -> MachineKind:
    """Return the kind of this machine, with the libraries of this process's Python.

    Workers compare more than this when they join (`legato.train.state.numeric_environment`): the kind only keeps a job
    from getting machines whose workers would be refused then.
    """
    processor = read_processor()
    traits = {
        "Python": ".".join(platform.python_version_tuple()[:2]),
        **{name: _find_version(name) for name in _PACKAGES},
        "CPU capability": capability_of(processor.flags),
        "CPU": f"{level_of(processor.flags)} {processor.vendor}".strip(),
    }
    return MachineKind(hashlib.sha256(msgspec.json.encode(traits, order="sorted")).hexdigest()[:12], traits)


def _find_version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"
