"""Instruction sets of CPUs: to which one a job may limit its workers, and which one a library then uses. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from legato.core.errors import UsageError

_OF_CAPABILITY: Final[Mapping[str, Mapping[str, str]]] = {
    "default": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "avx512": {
        "ATEN_CPU_CAPABILITY": "avx512",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
        "MKL_ENABLE_INSTRUCTIONS": "AVX512",
    },
}
CAPABILITIES: Final = tuple(_OF_CAPABILITY)

# The flags that torch's kernels of a capability need; torch uses the one in ATEN_CPU_CAPABILITY without a check.
_NEEDED: Final[Mapping[str, frozenset[str]]] = {
    "avx2": frozenset({"avx2", "fma"}),
    "avx512": frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"}),
}

_AVX512: Final = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"})
# By oneDNN's names, each with the flags of /proc/cpuinfo that it needs; the last one that the CPU has counts.
_LEVELS: Final[tuple[tuple[str, frozenset[str]], ...]] = (
    ("SSE41", frozenset({"sse4_1"})),
    ("AVX", frozenset({"avx"})),
    ("AVX2", frozenset({"avx2"})),
    ("AVX2_VNNI", frozenset({"avx2", "avx_vnni"})),
    ("AVX512_CORE", _AVX512),
    ("AVX512_CORE_VNNI", _AVX512 | {"avx512_vnni"}),
    ("AVX512_CORE_BF16", _AVX512 | {"avx512_vnni", "avx512_bf16"}),
    ("AVX512_CORE_FP16", _AVX512 | {"avx512_vnni", "avx512_bf16", "avx512_fp16"}),
    ("AVX512_CORE_AMX", _AVX512 | {"amx_tile", "amx_int8", "amx_bf16"}),
    ("AVX512_CORE_AMX_FP16", _AVX512 | {"amx_tile", "amx_int8", "amx_bf16", "amx_fp16"}),
)
# MKL's names, where they differ.
_OF_MKL: Final[Mapping[str, str]] = {
    "SSE4_2": "SSE41",
    "AVX512": "AVX512_CORE",
    "AVX512_E1": "AVX512_CORE_VNNI",
    "AVX512_E2": "AVX512_CORE_VNNI",
    "AVX512_E3": "AVX512_CORE_BF16",
    "AVX512_E4": "AVX512_CORE_AMX",
}


def check_capability(told: str, capability: str | None) -> None:
    """Raise UsageError, which begins with ``told``, unless a job can be limited to it; None limits nothing."""
    if capability is not None and capability not in _OF_CAPABILITY:
        raise UsageError(f"{told}: there is no CPU capability '{capability}'. Write {', '.join(CAPABILITIES)}.")


def variables_of_capability(capability: str | None) -> dict[str, str]:
    """Return the variables that limit torch, oneDNN and MKL to one instruction set; these read them when they load.

    >>> variables_of_capability("avx2")["ATEN_CPU_CAPABILITY"], variables_of_capability(None)
    ('avx2', {})
    """
    return {} if capability is None else dict(_OF_CAPABILITY[capability])


def check_supported(variables: Mapping[str, str], flags: Collection[str]) -> None:
    """Raise UsageError if torch is set to use instructions that a CPU does not have, which would kill the process.

    Args:
        variables: of a process that will load torch.
        flags: of the CPU, as in ``/proc/cpuinfo``; empty if they are not known.
    """
    wanted = variables.get("ATEN_CPU_CAPABILITY", "").lower()
    missing = _NEEDED.get(wanted, frozenset()) - set(flags)
    if flags and missing:
        raise UsageError(
            f"Cannot use the CPU capability '{wanted}' (ATEN_CPU_CAPABILITY): the CPU of this machine has no "
            f"{', '.join(sorted(missing))}. Choose one that all machines of the job have."
        )


def capability_of(flags: Collection[str]) -> str:
    """Return the capability that torch uses on a CPU, by torch's name.

    Args:
        flags: of the CPU, as in ``/proc/cpuinfo``.

    >>> capability_of({"avx2", "fma"}), capability_of(())
    ('AVX2', 'DEFAULT')
    """
    able = [name for name, needed in _NEEDED.items() if needed <= set(flags)]
    return (able[-1] if able else "default").upper()


def level_of(flags: Collection[str], limit: str = "") -> str:
    """Return the highest instruction set that a library uses on a CPU.

    Args:
        flags: of the CPU, as in ``/proc/cpuinfo``.
        limit: value of ``ONEDNN_MAX_CPU_ISA`` or ``MKL_ENABLE_INSTRUCTIONS``; "" for no limit.

    >>> level_of({"sse4_1", "avx", "avx2"}), level_of({"sse4_1", "avx", "avx2"}, "avx"), level_of(())
    ('AVX2', 'AVX', 'unknown')
    """
    limit = _OF_MKL.get(limit.upper(), limit.upper())
    found = "unknown"
    for name, needed in _LEVELS:
        if needed <= set(flags):
            found = name
        if name == limit:
            break
    return found
