"""The variables of the platform's environment that jobs get: those that they need, and no secrets. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

PASSED_ON: Final = (
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_*", "TZ", "TMPDIR", "SSL_CERT_*", "*_proxy", "*_PROXY"),
    *("PYTHONPATH", "VIRTUAL_ENV", "CONDA_*", "LD_LIBRARY_PATH", "LD_PRELOAD"),
    *("CUDA_*", "NVIDIA_*", "NCCL_*", "GLOO_*", "OMP_*", "MKL_*", "OPENBLAS_*", "TORCH_*", "PYTORCH_*", "HF_*"),
)
"""Patterns of the variables that are passed on, unless their name says that they are secret."""

_SECRET: Final = re.compile(r"TOKEN|KEY|SECRET|PASS|CREDENTIAL|AUTH", re.IGNORECASE)
_USER: Final = re.compile(r"^(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)?[^/\s]*@")


def pass_on(environment: Mapping[str, str], patterns: Collection[str] = PASSED_ON) -> dict[str, str]:
    """Return the variables that jobs see.

    Jobs do not get the operator's ``HF_TOKEN``: a user who needs one submits it with the job. Addresses of proxies are
    passed on without user and password.

    Args:
        environment: of the platform.
        patterns: of the names that are passed on.

    >>> pass_on({"HF_HOME": "/hf", "HF_TOKEN": "hf_1", "https_proxy": "http://me:pw@proxy:3128", "AWS_KEY": "x"})
    {'HF_HOME': '/hf', 'https_proxy': 'http://proxy:3128'}
    """
    passed = {
        name: _USER.sub(r"\g<scheme>", value) if _may_hold_user(name, value) else value
        for name, value in environment.items()
        if any(fnmatchcase(name, pattern) for pattern in patterns) and not _SECRET.search(name)
    }
    if "PYTHONPATH" in passed:
        entries = [str(Path(entry).absolute()) for entry in passed["PYTHONPATH"].split(os.pathsep) if entry]
        passed["PYTHONPATH"] = os.pathsep.join(entries)
    return passed


def _may_hold_user(name: str, value: str) -> bool:
    # The address of a proxy may have no scheme. In other variables, text with "@" and without a scheme is no address.
    return name.lower().endswith("_proxy") or "://" in value.partition("@")[0]
