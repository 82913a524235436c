"""Environment variables of a job's processes: the machine's, the job's, and those that an engine adds.

Many variables are read once, when a process starts or loads a library: `PYTHONPATH`, `PYTHONHASHSEED`, names that begin
with `LD_` or `OMP_`. A worker is forked after that, so the warm parent has the job's variables too. Pure.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import PurePath
from typing import Final

_HASH_SEED: Final = "PYTHONHASHSEED"
_DEFAULTS: Final = {
    # Sets of strings have the same order in all workers, forked or not, and in the next run.
    _HASH_SEED: "0",
    # A query of the GPUs must not initialise CUDA: processes that are forked after that could not use it, and would see
    # all GPUs.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    # torch looks up the host name of each connection, and workers connect to one another in each view. A name server
    # that does not answer would delay this by 10 seconds, the usual timeout.
    "RES_OPTIONS": "timeout:1 attempts:2",
}


def variables_of_parent(
    own: Mapping[str, str], job: Mapping[str, str], own_directory: str, job_directory: str
) -> dict[str, str]:
    """Return the variables of a warm parent: those of the engine's process, overridden by the job's.

    >>> found = variables_of_parent({"A": "1", "PYTHONPATH": "lib"}, {"B": "2", "PYTHONPATH": "src"}, "/own", "/job")
    >>> found["A"], found["B"], found["PYTHONPATH"], found["PYTHONHASHSEED"]
    ('1', '2', '/job/src:/own/lib', '0')
    >>> found = variables_of_parent({}, {"PYTHONHASHSEED": "7"}, "/own", "/job")
    >>> found["PYTHONHASHSEED"], found["PYTORCH_NVML_BASED_CUDA_CHECK"], found["GLIBC_TUNABLES"]
    ('7', '1', 'glibc.malloc.hugetlb=1')
    >>> found["RES_OPTIONS"], variables_of_parent({}, {"RES_OPTIONS": "timeout:9"}, "/own", "/job")["RES_OPTIONS"]
    ('timeout:1 attempts:2', 'timeout:9')
    >>> [variables_of_parent({"PYTHONHASHSEED": said}, {}, "/own", "/job")["PYTHONHASHSEED"] for said in ("random", "")]
    ['0', '0']
    >>> variables_of_parent({"PYTHONHASHSEED": "7"}, {"PYTHONHASHSEED": "random"}, "/own", "/job")["PYTHONHASHSEED"]
    '7'
    """
    both = {**_DEFAULTS, **_settled(own), **_settled(job)}
    return {**both, **_large_pages(both), **search_path(own, job, own_directory, job_directory)}


def _settled(variables: Mapping[str, str]) -> dict[str, str]:
    # For Python these two values mean a random seed in each process, which breaks exactness.
    return {name: value for name, value in variables.items() if name != _HASH_SEED or value not in ("", "random")}


def search_path(
    own: Mapping[str, str], job: Mapping[str, str], own_directory: str, job_directory: str
) -> dict[str, str]:
    """Return Python's search path: the job's ``PYTHONPATH``, then the engine's, which contains Legato.

    All paths are absolute, because the warm parent and the workers have different working directories.

    >>> search_path({"PYTHONPATH": "lib:"}, {}, "/own", "/job"), search_path({}, {}, "/own", "/job")
    ({'PYTHONPATH': '/own/lib'}, {})
    """
    parts = ((job, job_directory), (own, own_directory))
    paths = [
        str(PurePath(directory, path))
        for variables, directory in parts
        for path in variables.get("PYTHONPATH", "").split(os.pathsep)
        if path
    ]
    return {"PYTHONPATH": os.pathsep.join(paths)} if paths else {}


def digest(variables: Mapping[str, str]) -> str:
    """Return a digest of variables that does not reveal their values."""
    told = "\0".join(f"{name}={variables[name]}" for name in sorted(variables))
    return hashlib.sha256(os.fsencode(told)).hexdigest()


def _large_pages(variables: Mapping[str, str]) -> dict[str, str]:
    # The C library reads it when a process starts. It reduces the page faults for newly used memory to a hundredth. A
    # worker touches the memory of its whole state when it joins, while all other workers wait.
    said = variables.get("GLIBC_TUNABLES", "")
    if "glibc.malloc.hugetlb" in said:
        return {}
    return {"GLIBC_TUNABLES": ":".join(filter(None, [said, "glibc.malloc.hugetlb=1"]))}
