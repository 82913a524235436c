"""What the bits of a result depend on besides the program: workers that differ in it do not train together."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.harness import (
    PROGRAMS,
    Act,
    Reference,
    Stage,
    after_event,
    at_step,
    nothing,
    run_alone,
    scale,
    with_members,
)
from tests.tiers import first_now

from legato.core.cpu import variables_of_capability
from legato.system.cpus import read_processor

LIMITS = {
    "torch": {"ATEN_CPU_CAPABILITY": "avx2"},
    "oneDNN": {"ONEDNN_MAX_CPU_ISA": "AVX2"},
    "MKL": {"MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "nothing": {},
}
COMPUTE = """
import hashlib, json, torch
from legato.train.state.numeric_environment import describe_environment
torch.set_num_threads(1)
torch.manual_seed(0)
inputs = torch.randn(64, 1001)
found = (inputs.softmax(1), torch.nn.functional.gelu(inputs), inputs @ inputs.T)
digest = hashlib.sha256(b"".join(part.numpy().tobytes() for part in found)).hexdigest()
print(json.dumps([digest, describe_environment(torch.device("cpu"))]))
"""

pytestmark = pytest.mark.skipif(
    not read_processor().flags >= {"avx512f", "avx512bw", "avx512dq", "avx512vl"}, reason="a CPU with AVX512 is needed"
)


@pytest.fixture
def odd_machine(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let workers from number 1 on find another CPU: what they find is read from this file when Python starts."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import json, os, pathlib\n"
        "if int(os.environ.get('LEGATO_WORKER', '0')) > 0:\n"
        "    os.environ.update(json.loads((pathlib.Path(__file__).parent / 'variables.json').read_text()))\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), *(path for path in sys.path if path)]))
    return site / "variables.json"


@pytest.mark.parametrize("libraries", first_now([("torch", "nothing"), tuple(LIMITS)]), ids=["torch", "all"])
def test_limits_that_give_other_bits_give_another_fingerprint(libraries: tuple[str, ...]) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    found = {
        library: json.loads(
            subprocess.run(
                [sys.executable, "-c", COMPUTE],
                env=environment | LIMITS[library],
                capture_output=True,
                check=True,
                text=True,
            ).stdout
        )
        for library in libraries
    }
    # Which libraries choose other kernels depends on the processor.
    assert len({digest for digest, _ in found.values()}) > 1, found
    for (one, own), (other, its) in itertools.combinations(found.values(), 2):
        assert one == other or own != its, found


@pytest.mark.parametrize(
    ("library", "part"), first_now([("torch", "CPU capability"), ("oneDNN", "oneDNN")], several=True)
)
def test_a_worker_with_other_kernels_is_refused_by_name(
    stage: Stage, reference: Reference, odd_machine: Path, library: str, part: str
) -> None:
    odd_machine.write_text(json.dumps(LIMITS[library]))
    plan = [Act(at_step(3), scale(2), "one with other kernels"), Act(after_event("refused"), nothing, "refused")]
    result = stage.run("vision.py", workers=(1, 2, 1), plan=plan, start_method="fresh")
    result.check(reference.of("vision.py"), finishers=1, errors=["worker 1"])
    (refused,) = result.of_kind("refused")
    assert f"its {part} is" in refused["reason"] and "--cpu-capability" in refused["reason"], refused


@pytest.mark.soak
def test_a_job_that_is_limited_to_one_capability_takes_both(
    stage: Stage, odd_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd_machine.write_text(json.dumps(variables_of_capability("avx2")))
    plan = [Act(at_step(3), scale(2), "one on a lesser machine"), Act(with_members(2), nothing, "both train")]
    result = stage.run("vision.py", workers=(1, 2, 1), plan=plan, start_method="fresh", cpu_capability="avx2")
    for name, value in variables_of_capability("avx2").items():
        monkeypatch.setenv(name, value)
    result.check(run_alone(str(PROGRAMS / "vision.py")), finishers=2)
