"""Says what an interpreter's torch and torchvision can do: ``PYTHON torch_probe.py`` prints one line of JSON.

``PYTHON torch_probe.py nccl`` sums a number over all GPUs by NCCL, and prints whether that works. It may hang.

A process of its own, because an import may end it, and because CUDA holds memory of a GPU until the process ends. It
imports nothing of Legato: the interpreter may have another one, or none.
"""

from __future__ import annotations

import json
import sys
from importlib import metadata
from typing import Any


def probe() -> dict[str, Any]:
    """Return what was found, with the names of `legato.engines.checkup.TorchFacts`."""
    told: dict[str, Any] = {}
    try:
        import torch

        told["torch"] = str(torch.__version__)
        told["capability"] = torch.backends.cpu.get_cpu_capability()
        told["cuda_build"] = torch.version.cuda
        told["has_gloo"] = torch.distributed.is_available() and torch.distributed.is_gloo_available()
        told["has_nccl"] = torch.distributed.is_available() and torch.distributed.is_nccl_available()
        if torch.version.cuda is not None:
            told |= _ask_cuda(torch)
    except BaseException as error:  # noqa: BLE001 -- an import may raise anything, and the caller shows it
        told["error"] = _last_line(error)
        return told
    try:
        told["torchvision"] = metadata.version("torchvision")
        told["torchvision_requires"] = metadata.requires("torchvision") or []
    except metadata.PackageNotFoundError:
        return told
    try:
        import torchvision  # noqa: F401 -- an import is the test
    except BaseException as error:  # noqa: BLE001 -- as above
        told["torchvision_error"] = _last_line(error)
    return told


def _ask_cuda(torch: Any) -> dict[str, Any]:
    told: dict[str, Any] = {}
    try:
        torch.cuda.init()
        told["gpus"] = []
        for index in range(torch.cuda.device_count()):
            found = torch.cuda.get_device_properties(index)
            gpu = {"name": f"cuda:{index} {found.name}", "memory_bytes": found.total_memory}
            try:
                # A GPU that torch was not built for, or that another process holds alone, fails only here.
                torch.zeros(1, device=f"cuda:{index}").add_(1).item()
            except Exception as error:  # noqa: BLE001 -- drivers raise anything
                gpu["error"] = _last_line(error)
            told["gpus"].append(gpu)
        if told["gpus"]:
            told["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    except Exception as error:  # noqa: BLE001 -- drivers raise anything
        told["cuda_error"] = _last_line(error)
    return told


def try_nccl() -> dict[str, Any]:
    """Return ``num_gpus``, and ``error`` unless NCCL has summed over all of them."""
    try:
        import torch

        ones = [torch.ones(1, device=f"cuda:{index}") for index in range(torch.cuda.device_count())]
        nccl: Any = torch.cuda.nccl
        nccl.all_reduce(ones)
        sums = [one.item() for one in ones]
    except BaseException as error:  # noqa: BLE001 -- as above
        return {"num_gpus": 0, "error": _last_line(error)}
    wrong = f"the sum of {len(ones)} ones is {sums}" if sums != [len(ones)] * len(ones) else None
    return {"num_gpus": len(ones), "error": wrong}


def _last_line(error: BaseException) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__


if __name__ == "__main__":
    # The modules beside this script must not hide others.
    del sys.path[0]
    sys.stdout.write("\n" + json.dumps(try_nccl() if sys.argv[1:] == ["nccl"] else probe()) + "\n")
