"""The parts of the environment on which the bits of a result depend: the processor and the numeric libraries.

torch, oneDNN and MKL choose their kernels by the CPU, and each kernel adds up in another order.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping

import numpy as np
import torch

from legato.core.cpu import level_of
from legato.system.cpus import read_processor


def describe_environment(device: torch.device) -> dict[str, str]:
    """Return what must be equal in all workers that train at the same time: name of the part → its value here.

    Args:
        device: that of the models. With a GPU, the GPU and its libraries are among the parts.
    """
    built = torch.__config__.show()
    processor = read_processor()
    parts = {
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "torch": str(torch.__version__),
        "NumPy": np.__version__,
        "CPU capability": torch.backends.cpu.get_cpu_capability(),
        "oneDNN": _one_dnn(built, processor.flags),
        "BLAS": _blas(built, processor.vendor, processor.flags),
    }
    if device.type == "cuda":
        parts["GPU"] = torch.cuda.get_device_name(device)
        # Libraries choose kernels by their number, which differs between GPUs of one name, and between parts of a GPU.
        parts["GPU multiprocessors"] = str(torch.cuda.get_device_properties(device).multi_processor_count)
        parts["CUDA"] = str(torch.version.cuda or torch.version.hip)
        parts["cuDNN"] = str(torch.backends.cudnn.version())  # type: ignore[no-untyped-call]
    return parts


def differences(there: Mapping[str, str], here: Mapping[str, str]) -> list[str]:
    """Return in words where two environments differ; parts that only one of them has are not compared.

    >>> differences({"torch": "2.12", "GPU": "H100"}, {"torch": "2.13"})
    ['torch 2.12 there, 2.13 here']
    """
    common = [name for name in here if name in there]
    return [f"{name} {there[name]} there, {here[name]} here" for name in common if there[name] != here[name]]


def _one_dnn(built: str, flags: frozenset[str]) -> str:
    version = re.search(r"MKL-DNN v([\w.]+)", built)
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA", "")
    return f"{version[1]} with {level_of(flags, limit)}" if version else "none"


def _blas(built: str, vendor: str, flags: frozenset[str]) -> str:
    version = re.search(r"Math Kernel Library Version ([\w.]+)", built)
    if version is None:
        return found[1] if (found := re.search(r"BLAS_INFO=(\w+)", built)) else "unknown"
    # MKL uses other kernels on CPUs of other manufacturers.
    level = level_of(flags, os.environ.get("MKL_ENABLE_INSTRUCTIONS", ""))
    branch = os.environ.get("MKL_CBWR")
    return f"MKL {version[1]} with {level} on {vendor or 'an unknown CPU'}" + (f" ({branch})" if branch else "")
