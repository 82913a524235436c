"""Kinds of machines (`legato.engines.machine_kind`)."""

from __future__ import annotations

import pytest
import torch

from legato.engines import machine_kind
from legato.engines.machine_kind import find_kind
from legato.system.cpus import Processor


def test_the_kind_is_found_without_torch_and_agrees_with_it() -> None:
    kind = find_kind()
    assert kind == find_kind()
    assert kind.traits["torch"] == torch.__version__.partition("+")[0] or kind.traits["torch"] == torch.__version__
    assert kind.traits["CPU capability"] == torch.backends.cpu.get_cpu_capability()


def test_another_processor_is_another_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = set()
    for flags in ({"sse4_1"}, {"sse4_1", "avx", "avx2", "fma"}):
        monkeypatch.setattr(machine_kind, "read_processor", lambda flags=flags: Processor("V", frozenset(flags)))
        kinds.add(find_kind().name)
    assert len(kinds) == 2
