"""Examines a machine for training: Python, torch, GPUs, NCCL, memory, disk, network and ports, one sentence each."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import platform
import resource
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec

from legato.core.errors import LegatoError, UsageError
from legato.core.limits import render_size
from legato.core.torchvision_pair import explain_torchvision
from legato.core.version import __version__
from legato.engines.cgroups import read_enclosing_limits
from legato.engines.gpus import find_devices
from legato.engines.interpreter import check_python, variables_of_python
from legato.engines.parent import run_to_end
from legato.system.decoding import decode
from legato.system.kernel_files import read_kib

Level = Literal["ok", "warning", "error"]

_PROBE: Final = Path(__file__).parents[1] / "train" / "process" / "torch_probe.py"
"""Not imported here: it imports torch."""
_SHARED: Final = Path("/dev/shm")  # noqa: S108 -- where torch puts the tensors that loader processes send
_PORT_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FEW_PORTS: Final = 1000
_LIMIT_S: Final = 120.0
_NCCL_LIMIT_S: Final = 60.0
_ENOUGH: Final = 2**30
"""Memory, shared memory and disk of which less is worth a warning, in bytes."""
_FEW_FILES: Final = 1024
_SLOW_NAME_S: Final = 1.0
_NAME_LIMIT_S: Final = 5.0


class Finding(NamedTuple):
    """What one check found.

    Args:
        subject: what was checked.
        level: ``error``: nothing can be trained before it is mended; ``warning``: some programs will fail or be slow.
        text: what was found and, unless all is well, what to do.
    """

    subject: str
    level: Level
    text: str


class Gpu(msgspec.Struct, frozen=True):
    """A GPU as torch sees it. ``error``: why torch cannot compute on it."""

    name: str
    memory_bytes: int
    error: str | None = None


class TorchFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What `torch_probe` reports.

    Args:
        torch: its version. None: it cannot be imported.
        error: why not.
        capability: its instruction set on this CPU.
        cuda_build: the release of CUDA for which it was built; None: for CPUs only.
        cuda_error: why its GPUs cannot be used.
        gpus: those that it sees.
        has_gloo, has_nccl: whether it can send with them.
        nccl: the release of NCCL.
        torchvision: its version, None: not installed.
        torchvision_requires: its requirements.
        torchvision_error: why torchvision cannot be imported.
    """

    torch: str | None = None
    error: str | None = None
    capability: str | None = None
    cuda_build: str | None = None
    cuda_error: str | None = None
    gpus: tuple[Gpu, ...] = ()
    has_gloo: bool = False
    has_nccl: bool = False
    nccl: str | None = None
    torchvision: str | None = None
    torchvision_requires: tuple[str, ...] = ()
    torchvision_error: str | None = None


class NcclFacts(msgspec.Struct, frozen=True):
    """Whether NCCL has summed over the GPUs. ``error``: why not."""

    num_gpus: int = 0
    error: str | None = None


def check_up(python: Path, home: Path, port: int) -> Iterator[Finding]:
    """Yield one finding after the other. Takes seconds, because it imports torch.

    Args:
        python: the interpreter of the workers.
        home: the directory of Legato's files.
        port: on which ``legato up`` would answer.
    """
    found = _check_python(python)
    yield found
    facts = _ask_torch(python)
    if isinstance(facts, TorchFacts) and (facts.torch is not None or found.level == "ok"):
        yield from judge_torch(facts, _find_gpus())
        if facts.torch is not None:
            yield judge_nccl(facts, _try_nccl(python) if facts.gpus and facts.has_nccl else NcclFacts())
    elif isinstance(facts, Finding) and found.level == "ok":
        yield facts
    limits = read_enclosing_limits()
    yield judge_cpus(os.cpu_count() or 1, len(os.sched_getaffinity(0)), limits.num_cpus)
    yield judge_memory(_read_available_bytes(), limits.memory_bytes)
    yield judge_shared_memory(_SHARED)
    yield check_home(home)
    yield judge_open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    yield check_network()
    yield check_port(port)


# ------------------------------------------------------------ Python, torch, GPUs


def _check_python(python: Path) -> Finding:
    try:
        check_python(python, variables_of_python(python, os.environ))
    except UsageError as error:
        return Finding("Python", "error", str(error))
    return Finding("Python", "ok", f"{python} runs workers, with Legato {__version__}.")


def _ask_torch(python: Path) -> TorchFacts | Finding:
    try:
        code, line = _probe(python, _LIMIT_S)
        return decode(line, TorchFacts)
    except OSError as error:
        return Finding("torch", "error", f"'{python}' cannot be asked for its torch: {error}.")
    except subprocess.TimeoutExpired:
        text = (
            f"'{python}' does not say within {_LIMIT_S:g} s what its torch can do. If this machine has GPUs, their "
            "driver may hang: see whether nvidia-smi answers."
        )
        return Finding("torch", "error", text)
    except msgspec.DecodeError:
        return Finding(
            "torch",
            "error",
            f"Importing torch or torchvision ended '{python}' with exit code {code}. Install both again, together.",
        )


def _try_nccl(python: Path) -> NcclFacts:
    try:
        code, line = _probe(python, _NCCL_LIMIT_S, "nccl")
        return decode(line, NcclFacts)
    except OSError as error:
        return NcclFacts(error=str(error))
    except subprocess.TimeoutExpired:
        return NcclFacts(error=f"it has not ended within {_NCCL_LIMIT_S:g} s")
    except msgspec.DecodeError:
        return NcclFacts(error=f"it ended its process with exit code {code}")


def _probe(python: Path, limit_s: float, *words: str) -> tuple[int, bytes]:
    """Return the exit code of the probe, and its last line. Errors as in `run_to_end`."""
    command = [str(python), str(_PROBE), *words]
    code, output = run_to_end(None, command, variables_of_python(python, os.environ), limit_s)
    return code, (output.strip().splitlines() or [""])[-1].encode()


def judge_torch(facts: TorchFacts, num_gpus: int) -> Iterator[Finding]:
    """Yield what torch, torchvision and the GPUs are good for.

    Args:
        facts: of the interpreter.
        num_gpus: of this machine, as its driver shows them.
    """
    if facts.torch is None:
        why = facts.error or "no reason was given"
        yield Finding("torch", "error", f"torch cannot be imported: {why}. Install it: pip install 'legato[train]'.")
        return
    if facts.has_gloo:
        text = f"torch {facts.torch}, with the instruction set {facts.capability} and gloo."
        yield Finding("torch", "ok", text)
    else:
        text = f"torch {facts.torch} was built without gloo, so several workers cannot train together. Install another."
        yield Finding("torch", "error", text)
    yield _judge_torchvision(facts, facts.torch)
    yield _judge_gpus(facts, facts.torch, num_gpus)


def _judge_torchvision(facts: TorchFacts, torch: str) -> Finding:
    if facts.torchvision is None:
        return Finding("torchvision", "ok", "It is not installed; only programs that import it need it.")
    if facts.torchvision_error is None:
        return Finding("torchvision", "ok", f"torchvision {facts.torchvision} works with this torch.")
    told = f"It cannot be imported: {facts.torchvision_error}."
    why = explain_torchvision(torch, facts.torchvision, facts.torchvision_requires, facts.torchvision_error)
    return Finding("torchvision", "warning", f"{told} {why or 'Install what is missing.'}")


def _judge_gpus(facts: TorchFacts, torch: str, num_gpus: int) -> Finding:
    if facts.gpus and facts.cuda_error is None:
        broken = [f"{gpu.name}: {gpu.error}" for gpu in facts.gpus if gpu.error is not None]
        if broken:
            level: Level = "error" if len(broken) == len(facts.gpus) else "warning"
            text = f"{len(broken)} of {len(facts.gpus)} GPUs cannot be used ({'; '.join(broken)})."
            return Finding("GPU", level, f"{text} See what nvidia-smi says.")
        names = ", ".join(f"{gpu.name} ({render_size(gpu.memory_bytes)})" for gpu in facts.gpus)
        return Finding("GPU", "ok", f"{names}.")
    if not num_gpus:
        return Finding("GPU", "ok", "This machine offers no GPU, or CUDA_VISIBLE_DEVICES hides them: the CPU trains.")
    have = f"This machine has {num_gpus} GPU{'s' if num_gpus > 1 else ''}, but"
    if facts.cuda_build is None:
        text = (
            f"{have} torch {torch} was built for CPUs. Install a build for CUDA: pip install --force-reinstall torch "
            "--index-url https://download.pytorch.org/whl/cu…"
        )
    else:
        why = facts.cuda_error or "torch sees none"
        build = f"torch {torch}, built for CUDA {facts.cuda_build},"
        text = f"{have} {build} cannot use them: {why}. See what nvidia-smi says."
    return Finding("GPU", "error", f"{text} To train on the CPU, set CUDA_VISIBLE_DEVICES= (empty).")


def judge_nccl(facts: TorchFacts, tried: NcclFacts) -> Finding:
    """Return whether workers can sum gradients from GPU to GPU.

    Args:
        facts: of the interpreter.
        tried: what a sum over all GPUs has found.
    """
    if not facts.gpus:
        return Finding("NCCL", "ok", "It connects GPUs, and torch sees none here; gloo connects workers on CPUs.")
    otherwise = "Workers sum gradients in the memory of the host, which is slower."
    if not facts.has_nccl:
        level: Level = "warning" if len(facts.gpus) > 1 else "ok"
        return Finding("NCCL", level, f"This torch has no NCCL. {otherwise} Builds of torch for CUDA have it.")
    if tried.error is not None:
        text = f"NCCL {facts.nccl} does not sum over the GPUs: {tried.error}. {otherwise} NCCL_DEBUG=INFO says more."
        return Finding("NCCL", "warning", text)
    if tried.num_gpus == 1:
        text = f"NCCL {facts.nccl} starts on the GPU. With one GPU it has nothing to connect."
    else:
        text = (
            f"NCCL {facts.nccl} has summed over the {tried.num_gpus} GPUs of this machine, in one process. Workers are "
            "several processes, and may be on several machines: that was not tried."
        )
    return Finding("NCCL", "ok", text)


def _find_gpus() -> int:
    try:
        return len(find_devices())
    except LegatoError:
        return 0


# ------------------------------------------------------------ the machine


def judge_cpus(num_cpus: int, num_usable: int, quota: float | None) -> Finding:
    """Return how many cores this process may use.

    Args:
        num_cpus: of the machine.
        num_usable: on which the process may run.
        quota: cores' worth of time that its control group gets; None: not limited.
    """
    usable = min(float(num_usable), quota or float(num_usable))
    text = f"Processes may use {usable:g} of {num_cpus} core{'s' if num_cpus > 1 else ''}."
    if usable >= num_cpus:
        return Finding("CPU", "ok", text)
    why = (
        f"a limit of the container or service ({quota:g})"
        if quota is not None and quota < num_usable
        else "taskset or a cpuset"
    )
    return Finding("CPU", "ok", f"{text} The reason is {why}: more workers than that train no faster.")


def judge_memory(available: int | None, limit: int | None) -> Finding:
    """Return how much memory workers may use.

    Args:
        available: of the machine, in bytes; None: unknown.
        limit: of the container or service, in bytes; None: not limited.
    """
    if available is None:
        return Finding("memory", "ok", "The system does not say how much memory is free.")
    least = min(available, limit if limit is not None else available)
    text = f"{render_size(available)} are free"
    text += "." if limit is None else f"; this container or service may use {render_size(limit)} in all."
    if least >= _ENOUGH:
        return Finding("memory", "ok", text)
    advice = "A worker needs about half a GiB besides its model. Free memory, raise the limit, or take fewer workers."
    return Finding("memory", "warning", f"{text} {advice}")


def judge_shared_memory(place: Path) -> Finding:
    """Return whether loader processes can send their batches."""
    try:
        usage = shutil.disk_usage(place)
    except OSError as error:
        text = (
            f"{place} cannot be used: {error.strerror}. Use num_workers=0, or mount it: mount -t tmpfs tmpfs {place}."
        )
        return Finding("shared memory", "warning", text)
    text = f"{render_size(usage.free)} of {render_size(usage.total)} are free in {place}."
    if usage.free >= _ENOUGH:
        return Finding("shared memory", "ok", text)
    advice = (
        "Workers of one machine and loader processes exchange tensors there. Enlarge it: mount -o remount,size=8G "
        f"{place}; for a container --shm-size=8g."
    )
    return Finding("shared memory", "warning", f"{text} {advice}")


def check_home(home: Path) -> Finding:
    """Return whether Legato can keep its files: writing, locks and room. Nothing stays there."""
    try:
        place = next(path for path in (home, *home.parents) if path.exists())
        with tempfile.TemporaryFile(dir=place) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        free = shutil.disk_usage(place).free
    except OSError as error:
        text = f"Legato's files cannot be kept in {home}: {error.strerror or error}. Set LEGATO_HOME to another folder."
        return Finding("disk", "error", text)
    text = f"{render_size(free)} are free for Legato's files in {home}."
    if free >= _ENOUGH:
        return Finding("disk", "ok", text)
    return Finding("disk", "warning", f"{text} Free some, or set LEGATO_HOME to another disk: checkpoints need room.")


def judge_open_files(limit: int) -> Finding:
    """Return whether a process may open enough files. ``limit``: how many; -1: any number."""
    if limit == resource.RLIM_INFINITY or limit >= _FEW_FILES:
        return Finding("open files", "ok", "A process may open enough files.")
    text = f"A process may open {limit} files. Loader processes and many workers need more: ulimit -n 65536."
    return Finding("open files", "warning", text)


def check_network() -> Finding:
    """Return whether processes of this machine reach one another, and whether its name is found quickly."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as door:
            door.settimeout(_NAME_LIMIT_S)
            with socket.create_connection(door.getsockname(), _NAME_LIMIT_S), door.accept()[0]:
                pass
    except OSError as error:
        text = f"Processes of this machine do not reach one another through 127.0.0.1: {error}. See its firewall."
        return Finding("network", "error", text)
    name = platform.node()
    took_s = _time_of_name(name)
    if took_s < _SLOW_NAME_S:
        return Finding("network", "ok", "Processes of this machine reach one another.")
    text = (
        f"Looking up this machine's own name '{name}' takes {took_s:.1f} s or more, so its DNS server may not answer. "
        "Workers start late. Put the name into /etc/hosts."
    )
    return Finding("network", "warning", text)


def check_port(port: int) -> Finding:
    """Return whether a server could answer on a port, 0: any, and whether the system has ports for workers."""
    try:
        with socket.create_server(("127.0.0.1", port)):
            pass
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            text = f"A platform or another program uses port {port}. To start 'legato up' beside it, add --port 0."
            return Finding("ports", "ok", text)
        text = f"'legato up' cannot use port {port}: {error.strerror}. Choose another one: legato up --port 0."
        return Finding("ports", "warning", text)
    num_ports = _count_own_ports()
    if num_ports is not None and num_ports < _FEW_PORTS:
        text = (
            f"The system gives programs only {num_ports} ports of their own, and each worker needs several: "
            "sysctl net.ipv4.ip_local_port_range='32768 60999'."
        )
        return Finding("ports", "warning", text)
    own = f"port {port}" if port else "any free port"
    return Finding("ports", "ok", f"'legato up' can use {own}, and the system has ports for workers.")


def _count_own_ports() -> int | None:
    """Return how many ports the system chooses from when a program asks for any; None: it does not say."""
    with contextlib.suppress(OSError, ValueError):
        first, last = map(int, _PORT_RANGE.read_text().split())
        return last - first + 1
    return None


def _time_of_name(name: str) -> float:
    """Return how long the look-up of a name takes, at most `_NAME_LIMIT_S`; whether it is found does not matter."""

    def look_up() -> None:
        with contextlib.suppress(OSError, UnicodeError):
            socket.getaddrinfo(name, None)

    thread = threading.Thread(target=look_up, daemon=True)
    began = time.monotonic()
    thread.start()
    thread.join(_NAME_LIMIT_S)
    return time.monotonic() - began


def _read_available_bytes() -> int | None:
    with contextlib.suppress(OSError):
        return read_kib("/proc/meminfo", "MemAvailable") * 1024
    return None
