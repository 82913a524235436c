"""The table of frameworks: what each becomes in Legato, and what is supported. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from legato.core.errors import UsageError

_MANY: Final = 1024


class Framework(msgspec.Struct, frozen=True, kw_only=True):
    """A framework of theirs.

    Args:
        name: as ``--exec-start`` has it.
        backend: what its programs are written for.
        shape: ``elastic``: one job whose number of workers changes; ``single``: one worker; ``gang``: as many
            workers as were asked for, or none, which find one another by variables of the launcher.
        application: the beginning of the names of its applications.
        told: what is supported, in sentences.
    """

    name: str
    backend: Literal["pytorch", "tensorflow", "keras"]
    shape: Literal["elastic", "single", "gang"]
    application: str
    told: tuple[str, ...]

    @property
    def is_elastic(self) -> bool:
        """Whether its jobs grow and shrink."""
        return self.shape == "elastic"


_GANG: Final = (
    "as many workers as --numWorker times --workerDeviceNum, each with one slot, or none: the job waits until all are "
    "free."
)

_ALL: Final = (
    Framework(
        name="edtPyTorch",
        backend="pytorch",
        shape="elastic",
        application="ElasticPyTorchTrain",
        told=(
            "Elastic distributed training of PyTorch models with fabric_model.FabricModel.",
            "Grows and shrinks between 1 and --numWorker times --workerDeviceNum workers, each with one slot.",
        ),
    ),
    Framework(
        name="edtTensorflow",
        backend="tensorflow",
        shape="elastic",
        application="ElasticTensorflowTrain",
        told=(
            "Elastic distributed training of tf.keras models with fabric_model.FabricModel.",
            "Grows and shrinks between 1 and --numWorker times --workerDeviceNum workers, each with one slot.",
        ),
    ),
    Framework(
        name="edtKeras",
        backend="keras",
        shape="elastic",
        application="ElasticKerasTrain",
        told=("Elastic distributed training of Keras models with fabric_model.FabricModel, as edtTensorflow.",),
    ),
    Framework(
        name="PyTorch",
        backend="pytorch",
        shape="single",
        application="SingleNodePytorchTrain",
        told=("A PyTorch program in one worker with one slot. It does not grow.",),
    ),
    Framework(
        name="distPyTorch",
        backend="pytorch",
        shape="gang",
        application="DistPytorchTrain",
        told=(
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
        told=("A TensorFlow program in one worker with one slot. It does not grow.",),
    ),
    Framework(
        name="disttensorflow",
        backend="tensorflow",
        shape="gang",
        application="DistTensorflowTrain",
        told=(
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
        told=("A Keras program in one worker with one slot. It does not grow.",),
    ),
)

FRAMEWORKS: Final[Mapping[str, Framework]] = {one.name: one for one in _ALL}


def find_framework(name: str) -> Framework:
    """Return a framework by its name.

    Raises:
        UsageError: there is none of this name; the message lists all.

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
    """Return what ``/execs/frameworks`` says of one.

    Args:
        framework: which one.
        version: of Legato; there is one engine for all.

    >>> describe_framework(FRAMEWORKS["PyTorch"], "0.1.0")["execMode"]
    'single'
    """
    is_gang = framework.shape == "gang"
    return {
        "name": framework.name,
        "desc": list(framework.told),
        "description": " ".join(framework.told),
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
        "maxWorkers": 1 if framework.shape == "single" else _MANY,
        "workerMemory": "",
        "frameworkCmdGenerator": "",
        "prebuiltModelMain": "",
        "prebuiltModelDir": "",
        "exports": [],
    }
