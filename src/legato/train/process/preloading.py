"""Imports that a warm parent does once for all its workers, unless they make forking unsafe. Runs first.

Forking copies one thread. A module that starts threads when it is imported, or uses CUDA, would leave its children
broken, so a module that is not known to be harmless is imported in a child first, which is then checked.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

_TRIAL_LIMIT_S: Final = 30.0
_POLL_S: Final = 0.005
_HARMLESS, _HARMFUL = 0, 1
_NO_THREADS: Final = {
    "OPENBLAS_NUM_THREADS": "1",
    # pyarrow's allocator, which would give memory back in a thread. pandas, scikit-learn and datasets import it.
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
_CUDA_FILE: Final = "/dev/nvidia-uvm"  # CUDA has it open in every process that it was started in; NVML does not


def preload(needed: Sequence[str], wished: Sequence[str]) -> bool:
    """Import modules in this process.

    Args:
        needed: modules that are always imported.
        wished: the packages that the user's program imports; those that would make forking unsafe are left out.

    Returns:
        Whether forking is safe.

    Raises:
        ImportError: torch is not installed.
    """
    # torch would write lines with C++ stacks about each connection that fails. The job's events say what has failed.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
    with _without_threads(), _without_garbage_collection():
        for name in needed:
            try:
                importlib.import_module(name)
            except ImportError:
                if name == "torch":
                    raise
                # A worker gets the same error and writes it into its log, where the user looks.
                traceback.print_exc()
        for name in wished:
            if name not in sys.modules and _is_harmless(name):
                importlib.import_module(name)
    if _uses_cuda():
        sys.stderr.write("CUDA was initialised by an import: workers are started fresh, not forked.\n")
    return not _uses_cuda()


@contextlib.contextmanager
def _without_threads() -> Iterator[None]:
    # Libraries that read a variable when they are loaded, and start no thread then, so forking is safe.
    added = {name: value for name, value in _NO_THREADS.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    # Imports make hundreds of thousands of permanent objects. Garbage collection meanwhile takes a quarter of the time.
    # After `gc.freeze`, collections in the children do not touch these objects either, so their pages stay shared.
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _is_harmless(name: str) -> bool:
    """Return whether a module can be imported here, by importing it in a child."""
    child = os.fork()
    if child == 0:
        verdict = _HARMFUL
        try:
            silent = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(silent, stream)
            importlib.import_module(name)
            verdict = _HARMLESS if _num_threads() == 1 and not _uses_cuda() else _HARMFUL
        finally:
            # Also after an error: the child must never continue in the warm parent's code.
            os._exit(verdict)
    deadline = time.monotonic() + _TRIAL_LIMIT_S
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status) == _HARMLESS
        time.sleep(_POLL_S)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def _num_threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def _uses_cuda() -> bool:
    torch = sys.modules.get("torch")
    # An import may also start CUDA without torch's knowledge, such as by a query of the GPUs that asks CUDA.
    return (torch is not None and bool(torch.cuda.is_initialized())) or _CUDA_FILE in _open_files()


def _open_files() -> set[str]:
    found = set()
    for name in os.listdir("/proc/self/fd") if Path("/proc/self/fd").is_dir() else ():
        with contextlib.suppress(OSError):
            found.add(os.readlink(f"/proc/self/fd/{name}"))
    return found
