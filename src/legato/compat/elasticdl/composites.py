"""Values with their own grammar: variables, resources, volumes, priorities. Pure: reads no file.

They are read as the original does, without its errors: a value in ``--envs`` may hold ``=``, numbers are numbers, and
invalid values are refused instead of passed on.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final

import msgspec

from legato.compat.elasticdl.variables import MINIBATCHES_PER_TASK, SEED, SUM
from legato.core.errors import UsageError

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OF_PROGRAMS: Final = frozenset({MINIBATCHES_PER_TASK, SEED, SUM})
_NAME_LIKE: Final = re.compile(r"[A-Za-z0-9_.-]*")
_JOB_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_MAX_NAME_LENGTH: Final = 45  # NAME-edljob-worker-123 is a label of DNS, which has at most 63 characters

_CPU: Final = re.compile(r"[1-9][0-9]*m|[0-9]+(\.[0-9]+)?|\.[0-9]+")
_BYTES: Final = re.compile(r"[1-9][0-9]*(E|P|T|G|M|K|Ei|Pi|Ti|Gi|Mi|Ki)")
_WHOLE: Final = re.compile(r"[0-9]{1,9}")
_LABEL: Final = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_OTHER_GPU: Final = re.compile(rf"(?=.{{1,257}}$){_LABEL}(\.{_LABEL})*/gpu")  # a name of DNS, of at most 253 characters
_NVIDIA: Final = "nvidia.com/"

HIGH: Final = 7500
LOW: Final = 2500
"""Priorities of Legato for ``high`` and ``low``; jobs that set no priority have the one in the middle."""


class Volume(msgspec.Struct, frozen=True, kw_only=True):
    """A volume with data, and its mount in a container.

    Args:
        claim_name: of a claim in a cluster. "": the volume is a folder of the machine.
        host_path: that folder.
        type: what Kubernetes expects at ``host_path``.
        mount_path: of the volume in the container.
        sub_path: the part of the volume to mount.
    """

    mount_path: str
    claim_name: str = ""
    host_path: str = ""
    type: str = ""
    sub_path: str = ""

    @property
    def folder(self) -> str:
        """The mounted folder of the machine."""
        return f"{self.host_path.rstrip('/')}/{self.sub_path.strip('/')}".rstrip("/") or "/"


def check_job_name(name: str) -> None:
    """Raise UsageError if Kubernetes would refuse the pods of a job of this name.

    >>> check_job_name("Bad_Name")
    Traceback (most recent call last):
    legato.core.errors.UsageError: Cannot name a job 'Bad_Name': pods are named after it, so it must have 1 to 45 \
small letters, digits and '-', and begin and end with a letter or digit. Try 'bad-name'.
    """
    if _JOB_NAME.fullmatch(name) and len(name) <= _MAX_NAME_LENGTH:
        return
    near = re.sub(r"[^a-z0-9]+", "-", name.lower())[:_MAX_NAME_LENGTH].strip("-")
    raise UsageError(
        f"Cannot name a job '{name[:100]}': pods are named after it, so it must have 1 to {_MAX_NAME_LENGTH} small "
        f"letters, digits and '-', and begin and end with a letter or digit.{f' Try {near!r}.' if near else ''}"
    )


def read_variables(text: str) -> dict[str, str]:
    """Read ``--envs``: ``A=1,B=2``. A value may hold commas and ``=``; a new variable begins after a comma.

    Raises:
        UsageError: the text is no list of variables.

    >>> read_variables("a=1,2,b=x=y, c=")
    {'a': '1,2', 'b': 'x=y', 'c': ''}
    """
    found: dict[str, str] = {}
    last = ""
    for part in text.split(",") if text.strip() else ():
        name, equals, value = part.partition("=")
        name = name.strip()
        if not equals or (last and not _NAME_LIKE.fullmatch(name)):
            if not last:
                raise UsageError(f"Cannot read --envs '{text[:200]}'. Write --envs=\"NAME=VALUE,NAME=VALUE\".")
            found[last] += f",{part}"
            continue
        check_variable(name, "--envs")
        last = name
        found[name] = value
    return found


def check_variable(name: str, flag: str) -> None:
    """Raise UsageError if a job may not have a variable of this name, which a flag sets.

    >>> check_variable("LEGATO_SEED", "--envs")
    >>> check_variable("LEGATO_TOKEN", "--envs")
    Traceback (most recent call last):
    legato.core.errors.UsageError: Cannot set LEGATO_TOKEN with --envs: it is the platform's own. Choose another name.
    """
    if not _VARIABLE.fullmatch(name):
        raise UsageError(f"Cannot set '{name[:100]}' with {flag}: names have letters, digits and '_'.")
    if name.startswith("LEGATO_") and name not in _OF_PROGRAMS:
        raise UsageError(f"Cannot set {name[:100]} with {flag}: it is the platform's own. Choose another name.")


def read_resources(flag: str, text: str) -> dict[str, str]:
    """Read resources: ``cpu=0.3,memory=1024Mi,gpu=1``; ``gpu`` is ``nvidia.com/gpu``.

    Args:
        flag: with this value, for messages.
        text: value of the flag.

    Raises:
        UsageError: the value cannot be read.

    >>> read_resources("--worker_resource_request", "cpu=250m, memory=32Mi,disk=64Mi,gpu=1")
    {'cpu': '250m', 'memory': '32Mi', 'disk': '64Mi', 'nvidia.com/gpu': '1'}
    """
    found: dict[str, str] = {}
    for part in text.split(",") if text.strip() else ():
        name, equals, value = (word.strip() for word in part.partition("="))
        failure = f"Cannot read {flag} '{text[:200]}'"
        if not equals:
            raise UsageError(f"{failure}: '{part.strip()[:100]}' has no value. Write cpu=1,memory=1024Mi.")
        hint = _find_fault(name, value)
        if hint is not None:
            raise UsageError(f"{failure}: {hint}")
        key = "nvidia.com/gpu" if name == "gpu" else name
        if key in found:
            raise UsageError(f"{failure}: {name} is given twice. Give it once.")
        found[key] = value
    return found


def _find_fault(name: str, value: str) -> str | None:
    """Return what is wrong with a resource; None if it is valid."""
    if name in ("memory", "disk", "ephemeral-storage"):
        return None if _BYTES.fullmatch(value) else f"{name} is a whole number with a unit, such as 1024Mi or 2Gi."
    if name == "cpu":
        is_number = _CPU.fullmatch(value) is not None and value.strip("0.") != ""
        return None if is_number else "cpu is a number above 0, such as 1, 0.3 or 300m."
    if name == "gpu" or name.startswith(_NVIDIA) or _OTHER_GPU.fullmatch(name):
        return None if _WHOLE.fullmatch(value) else f"{name} is a whole number, such as 1."
    if name.endswith("/gpu"):
        return (
            f"'{name[:100]}' is not the resource name of a GPU. Write a DNS name and /gpu, such as amd.com/gpu; each "
            "part of the DNS name has at most 63 lower-case letters, digits and '-'."
        )
    return f"there is no resource '{name[:100]}'. There are cpu, memory, disk, ephemeral-storage and gpu."


def read_limits(resources: dict[str, str]) -> dict[str, int | float]:
    """Return the limits of a worker as the fields of a submission.

    >>> read_limits({"cpu": "250m", "memory": "1024Mi"})
    {'memory_bytes': 1073741824, 'num_cpus': 0.25}
    >>> read_limits({"memory": "2G", "disk": "1Gi"})
    {'memory_bytes': 2000000000}
    """
    found: dict[str, int | float] = {}
    if "memory" in resources:
        text = resources["memory"]
        number = text.rstrip("EPTGMKi")
        power = "KMGTPE".index(text[len(number)]) + 1
        found["memory_bytes"] = int(number) * (1024 if text.endswith("i") else 1000) ** power
    if "cpu" in resources:
        text = resources["cpu"]
        found["num_cpus"] = int(text[:-1]) / 1000 if text.endswith("m") else float(text)
    return found


def count_devices(resources: dict[str, str]) -> int:
    """Return how many GPUs resources have.

    >>> count_devices({"cpu": "1", "nvidia.com/gpu": "2"})
    2
    """
    return sum(int(value) for name, value in resources.items() if name.endswith("/gpu"))


def read_volumes(text: str) -> tuple[Volume, ...]:
    """Read ``--volume``: ``host_path=/data,mount_path=/data;claim_name=c,mount_path=/c,sub_path=a``.

    Raises:
        UsageError: the value cannot be read, or two volumes have the same mount path.

    >>> read_volumes("host_path=/home/ann/data,mount_path=/data")[0].folder
    '/home/ann/data'
    """
    found = []
    for entry in text.split(";"):
        if not entry.strip():
            continue
        said = _read_entry(entry, f"Cannot read --volume '{entry.strip()[:300]}'")
        if said is not None:
            found.append(said)
    places = [volume.mount_path for volume in found]
    twice = next((place for place in places if places.count(place) > 1), None)
    if twice is not None:
        raise UsageError(f"Cannot mount two volumes at {twice}. Give each its own mount_path.")
    return tuple(found)


def _read_entry(entry: str, failure: str) -> Volume | None:
    said: dict[str, str] = {}
    for part in entry.split(","):
        name, equals, value = (word.strip() for word in part.partition("="))
        if not equals:
            raise UsageError(
                f"{failure}: '{part.strip()[:100]}' has no value. Write host_path=/FOLDER,mount_path=/data."
            )
        if name not in Volume.__struct_fields__:
            raise UsageError(
                f"{failure}: '{name[:100]}' is unknown. Use claim_name, host_path, type, mount_path and sub_path."
            )
        if name in said:
            raise UsageError(f"{failure}: {name} is given twice. Put a ';' between two volumes.")
        said[name] = value
    if not said.get("claim_name") and not said.get("host_path"):
        # As in the original, which ignores such an entry.
        return None
    if said.get("claim_name") and said.get("host_path"):
        raise UsageError(f"{failure}: it has both claim_name and host_path. Put a ';' between two volumes.")
    if not said.get("mount_path", "").startswith("/"):
        raise UsageError(f"{failure}: mount_path must be the path for programs, from the root, such as /data.")
    if ".." in said.get("sub_path", "").split("/"):
        raise UsageError(f"{failure}: sub_path leads out of the volume. Remove '..'.")
    return Volume(**{**said, "mount_path": said["mount_path"].rstrip("/") or "/"})


def read_priority(text: str) -> float | None:
    """Read ``--worker_pod_priority``: the part of the workers that have high priority; None if the text is empty.

    Raises:
        UsageError: the value is neither high, low, nor a number from 0 to 1.

    >>> [read_priority(text) for text in ("", "high", "low", "0.5")]
    [None, 1.0, 0.0, 0.5]
    """
    if not text:
        return None
    if text in ("high", "low"):
        return 1.0 if text == "high" else 0.0
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 <= found <= 1:
        raise UsageError(
            f"Cannot read --worker_pod_priority '{text[:100]}'. Write high, low, or the part of the workers with high "
            "priority, from 0 to 1, such as 0.5."
        )
    return found


def map_priority(part: float) -> int:
    """Return the priority in Legato of a job in which this part of the workers has high priority.

    >>> [map_priority(part) for part in (1.0, 0.0, 0.5)]
    [7500, 2500, 5000]
    """
    return round(LOW + part * (HIGH - LOW))


def spread_priorities(num_workers: int, text: str) -> tuple[str, ...]:
    """Return the priority class of each worker's pod: the high ones are chosen from both ends.

    >>> spread_priorities(4, "0.5")
    ('high', 'low', 'low', 'high')
    >>> [index for index, one in enumerate(spread_priorities(10, "0.5")) if one == "high"]
    [0, 1, 2, 8, 9]
    """
    part = read_priority(text)
    if part is None or text in ("high", "low"):
        return (text,) * num_workers
    num_high = math.ceil(num_workers * part)
    first = math.ceil(num_high / 2)
    last = num_workers - (num_high - first)
    return tuple("high" if index < first or index >= last else "low" for index in range(num_workers))


def read_switches(text: str) -> dict[str, str]:
    """Read ``--aux_params``: ``a=1;b=2``.

    >>> read_switches("disable_relaunch=True; min_workers=2")
    {'disable_relaunch': 'True', 'min_workers': '2'}
    """
    pairs: Sequence[tuple[str, str, str]] = [part.partition("=") for part in re.split("[;,]", text)]
    return {name.strip(): value.strip() for name, equals, value in pairs if equals and name.strip()}
