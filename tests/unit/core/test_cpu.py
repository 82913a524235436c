"""Which instruction sets a job may be limited to, and which one a library then uses."""

from __future__ import annotations

import pytest

from legato.core.cpu import CAPABILITIES, check_supported, level_of, variables_of_capability
from legato.core.errors import UsageError

HASWELL = {"sse4_1", "avx", "avx2", "fma"}
SKYLAKE = HASWELL | {"avx512f", "avx512bw", "avx512dq", "avx512vl"}
SAPPHIRE = SKYLAKE | {"avx_vnni", "avx512_vnni", "avx512_bf16", "avx512_fp16"}


def test_without_a_limit_processors_of_each_generation_differ() -> None:
    assert [level_of(flags) for flags in (HASWELL, SKYLAKE, SAPPHIRE)] == ["AVX2", "AVX512_CORE", "AVX512_CORE_FP16"]


@pytest.mark.parametrize("variable", ["ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS"])
def test_a_capability_makes_processors_that_have_it_equal(variable: str) -> None:
    for capability, machines in (("default", (HASWELL, SAPPHIRE)), ("avx2", (HASWELL, SAPPHIRE))):
        limit = variables_of_capability(capability)[variable]
        assert len({level_of(flags, limit) for flags in machines}) == 1, capability
    limit = variables_of_capability("avx512")[variable]
    assert level_of(SKYLAKE, limit) == level_of(SAPPHIRE, limit) == "AVX512_CORE"
    assert level_of(HASWELL, limit) == "AVX2", "a limit gives nothing"


def test_a_capability_that_the_processor_does_not_have_is_refused() -> None:
    with pytest.raises(UsageError, match=r"'avx512'.*has no avx512bw, avx512dq, avx512f, avx512vl"):
        check_supported(variables_of_capability("avx512"), HASWELL)
    for capability in CAPABILITIES:
        check_supported(variables_of_capability(capability), SAPPHIRE)
    check_supported(variables_of_capability("avx512"), ())
    check_supported({}, HASWELL)
