"""The table of WMLA's frameworks: how Legato runs the programs of each, and what it supports. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from legato.core.errors import UsageError

_MAX_WORKERS: Final = 1024


class Framework(msgspec.Struct, frozen=True, kw_only=True):
    """A framework of WMLA.

    Args:
        name: the value of ``--exec-start``.
        backend: the library that its programs use.
        shape: ``elastic``: the number of workers changes while the job runs; ``single``: one worker; ``gang``: the job
            starts only when all requested workers have slots. The launcher sets the variables by which the workers of a
            gang find each other.
        application: the beginning of the names of its applications.
        sentences: describe what is supported.
    """

    name: str
    backend: Literal["pytorch", "tensorflow", "keras"]
    shape: Literal["elastic", "single", "gang"]
    application: str
    sentences: tuple[str, ...]

    @property
    def is_elastic(self) -> bool:
        """Whether the number of workers of its jobs changes."""
        return self.shape == "elastic"


_GANG: Final = (
    "--numWorker times --workerDeviceNum workers, each with one slot. The job waits until all of these slots are free."
)

_ALL: Final = (
    Framework(
        name="edtPyTorch",
        backend="pytorch",
        shape="elastic",
        application="ElasticPyTorchTrain",
        sentences=(
            "Elastic distributed training of PyTorch models with fabric_model.FabricModel.",
            "Grows and shrinks between 1 and --numWorker times --workerDeviceNum workers, each with one slot.",
        ),
    ),
    Framework(
        name="edtTensorflow",
        backend="tensorflow",
        shape="elastic",
        application="ElasticTensorflowTrain",
        sentences=(
            "Elastic distributed training of tf.keras models with fabric_model.FabricModel.",
            "Grows and shrinks between 1 and --numWorker times --workerDeviceNum workers, each with one slot.",
        ),
    ),
    Framework(
        name="edtKeras",
        backend="keras",
        shape="elastic",
        application="ElasticKerasTrain",
        sentences=("Elastic distributed training of Keras models with fabric_model.FabricModel, as edtTensorflow.",),
    ),
    Framework(
        name="PyTorch",
        backend="pytorch",
        shape="single",
        application="SingleNodePytorchTrain",
        sentences=("A PyTorch program in one worker with one slot. It does not grow.",),
    ),
    Framework(
        name="distPyTorch",
        backend="pytorch",
        shape="gang",
        application="DistPytorchTrain",
        sentences=(
            f"A program of torch.distributed: {_GANG}",
            "MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE are set for init_process_group().",
            "It does not grow, and fails as a whole if one worker is lost.",
        ),
    ),
    Framework(
        name="tensorflow",
        backend="tensorflow",
        shape="single",
        application="SingleNodeTensorflowTrain",
        sentences=("A TensorFlow program in one worker with one slot. It does not grow.",),
    ),
    Framework(
        name="disttensorflow",
        backend="tensorflow",
        shape="gang",
        application="DistTensorflowTrain",
        sentences=(
            f"A program of tf.distribute: {_GANG}",
            "TF_CONFIG is set for MultiWorkerMirroredStrategy. Parameter servers are not supported.",
            "It does not grow, and fails as a whole if one worker is lost.",
        ),
    ),
    Framework(
        name="keras",
        backend="keras",
        shape="single",
        application="SingleNodeKerasTrain",
        sentences=("A Keras program in one worker with one slot. It does not grow.",),
    ),
)

FRAMEWORKS: Final[Mapping[str, Framework]] = {one.name: one for one in _ALL}


def find_framework(name: str) -> Framework:
    """Return the framework of a name.

    Raises:
        UsageError: no framework has this name; the message lists all names.

    >>> find_framework("edtPyTorch").shape
    'elastic'
    """
    found = FRAMEWORKS.get(name)
    if found is None:
        lower = {one.lower(): one for one in FRAMEWORKS}
        near = difflib.get_close_matches(name.lower(), lower, 1)
        hint = f" Did you mean {lower[near[0]]}?" if near else ""
        raise UsageError(f"Framework {name[:100]} not found.{hint} There are {', '.join(FRAMEWORKS)}.")
    return found


def describe_framework(framework: Framework, version: str) -> dict[str, Any]:
    """Return a framework's entry in the answer of ``/execs/frameworks``.

    Args:
        framework: the framework.
        version: of Legato, reported as the version of every framework.

    >>> describe_framework(FRAMEWORKS["PyTorch"], "0.1.0")["execMode"]
    'single'
    """
    is_gang = framework.shape == "gang"
    return {
        "name": framework.name,
        "desc": list(framework.sentences),
        "description": " ".join(framework.sentences),
        "frameworkVersion": version,
        "backend": framework.backend,
        "appName": framework.application,
        "execMode": "single" if framework.shape == "single" else "distributed",
        "deployMode": "cluster",
        "elastic": framework.is_elastic,
        "hasTask0": False,
        "distributeStrategy": "MultiWorkerMirroredStrategy" if is_gang and framework.backend == "tensorflow" else "",
        "numPs": 0,
        "numWorkers": 1,
        "maxWorkers": 1 if framework.shape == "single" else _MAX_WORKERS,
        "workerMemory": "",
        "frameworkCmdGenerator": "",
        "prebuiltModelMain": "",
        "prebuiltModelDir": "",
        "exports": [],
    }
