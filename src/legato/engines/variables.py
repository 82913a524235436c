"""Which environment variables a job's processes get: the machine's, the job's, and the few that an engine adds.

Much is read once, when a process starts or loads a library: `PYTHONPATH`, `PYTHONHASHSEED`, what begins with `LD_` or
`OMP_`. A worker is forked from a process that has all that behind it, so the job's variables are that one's too. Pure.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import PurePath
from typing import Final

_HASH_SEED: Final = "PYTHONHASHSEED"
_DEFAULTS: Final = {
    # Sets of texts have one order in all workers, forked or not, and in the next run too.
    _HASH_SEED: "0",
    # To ask for GPUs must not begin to use them: what is forked after that could not, and would see all of them.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    # torch asks for the name of whatever it connects to, and workers connect to one another in each view. A name server
    # that leaves a question unanswered would hold that up for the usual 10 seconds.
    "RES_OPTIONS": "timeout:1 attempts:2",
}


def variables_of_parent(
    own: Mapping[str, str], job: Mapping[str, str], own_directory: str, job_directory: str
) -> dict[str, str]:
    """Return the variables of a warm parent: those of the engine's process, on top of them the job's.

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
    # Python takes these two for "another one in each process", which no job can mean.
    return {name: value for name, value in variables.items() if name != _HASH_SEED or value not in ("", "random")}


def search_path(
    own: Mapping[str, str], job: Mapping[str, str], own_directory: str, job_directory: str
) -> dict[str, str]:
    """Return where Python looks for modules: the job's ``PYTHONPATH``, then the engine's own, by which it finds us.

    The warm parent and the workers have working directories of their own, so that all of it is absolute.

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
    """Return what tells sets of variables apart, and does not tell what is in them."""
    told = "\0".join(f"{name}={variables[name]}" for name in sorted(variables))
    return hashlib.sha256(os.fsencode(told)).hexdigest()


def _large_pages(variables: Mapping[str, str]) -> dict[str, str]:
    # The C library reads it when a process starts. Memory that a worker touches for the first time costs a hundredth of
    # the page faults then; a training process does that with all of its state when it joins, while all other workers
    # wait.
    said = variables.get("GLIBC_TUNABLES", "")
    if "glibc.malloc.hugetlb" in said:
        return {}
    return {"GLIBC_TUNABLES": ":".join(filter(None, [said, "glibc.malloc.hugetlb=1"]))}
