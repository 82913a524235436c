"""What `legato doctor` finds on a machine: each sentence says what is wrong and what to do."""

from __future__ import annotations

import json
import re
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from legato.engines import checkup
from legato.engines.cgroups import read_enclosing_limits
from legato.engines.checkup import (
    Finding,
    Gpu,
    NcclFacts,
    TorchFacts,
    check_home,
    check_network,
    check_port,
    check_up,
    judge_cpus,
    judge_memory,
    judge_nccl,
    judge_open_files,
    judge_shared_memory,
    judge_torch,
)

GIB = 2**30
GOOD: dict[str, Any] = {"torch": "2.13.0+cpu", "capability": "AVX2", "has_gloo": True}


def judge(num_gpus: int = 0, **facts: Any) -> dict[str, Finding]:
    return {found.subject: found for found in judge_torch(TorchFacts(**(GOOD | facts)), num_gpus)}


def test_a_machine_without_gpus_is_well() -> None:
    found = judge()
    assert [each.level for each in found.values()] == ["ok"] * 3
    assert "the CPU trains" in found["GPU"].text


def test_a_torch_that_cannot_be_imported_or_cannot_send_is_an_error() -> None:
    (found,) = judge(torch=None, error="OSError: libgomp.so.1: cannot open").values()
    assert found.level == "error" and "libgomp" in found.text and "pip install" in found.text
    assert judge(has_gloo=False)["torch"].level == "error"


@pytest.mark.parametrize(
    ("requires", "told"),
    [
        (("numpy", "torch==2.12.0"), "torchvision 0.28.0 is built for torch 2.12.0, and torch 2.13.0"),
        (("torch==2.13.0",), "comes from another build"),
        ((), "was not built for the installed torch"),
    ],
)
def test_a_torchvision_of_another_torch_is_named_with_its_cause(requires: tuple[str, ...], told: str) -> None:
    found = judge(torchvision="0.28.0", torchvision_requires=requires, torchvision_error="no torchvision::nms")
    assert found["torchvision"].level == "warning"
    assert told in found["torchvision"].text and "pip install --force-reinstall" in found["torchvision"].text


@pytest.mark.parametrize("error", ["No module named 'PIL'", "libjpeg.so.62: cannot open shared object file"])
def test_what_torchvision_misses_is_not_blamed_on_torch(error: str) -> None:
    told = judge(torchvision="0.28.0", torchvision_requires=("torch==2.13.0",), torchvision_error=error)["torchvision"]
    assert told.level == "warning" and error in told.text and "force-reinstall" not in told.text


@pytest.mark.parametrize(
    ("facts", "level", "told"),
    [
        ({"gpus": (Gpu("A100", 40 * GIB),), "has_nccl": True, "nccl": "2.27.3"}, "ok", r"A100 \(40 GiB\)\."),
        ({"cuda_build": None}, "error", "has 2 GPUs, but torch 2.13.0.cpu was built for CPUs.*CUDA_VISIBLE_DEVICES="),
        ({"cuda_build": "12.8", "cuda_error": "driver too old"}, "error", "built for CUDA 12.8.*driver too old"),
        ({"cuda_build": "12.8", "gpus": (Gpu("A100", GIB),), "cuda_error": "busy"}, "error", "busy"),
        ({"gpus": (Gpu("cuda:0 A100", GIB), Gpu("cuda:1 A100", GIB, "full"))}, "warning", "1 of 2 .*cuda:1 A100: full"),
        ({"gpus": (Gpu("A100", GIB, "full"),)}, "error", "1 of 1"),
    ],
)
def test_gpus_that_torch_cannot_use_are_an_error(facts: dict[str, Any], level: str, told: str) -> None:
    found = judge(2, **facts)["GPU"]
    assert found.level == level
    assert re.search(told, found.text), found.text


@pytest.mark.parametrize(
    ("num_gpus", "nccl", "tried", "level", "told"),
    [
        (
            2,
            "2.27.3",
            NcclFacts(2),
            "ok",
            r"NCCL 2\.27\.3 has summed over the 2 GPUs of this machine, in one process\.",
        ),
        (
            1,
            "2.27.3",
            NcclFacts(1),
            "ok",
            r"NCCL 2\.27\.3 starts on the GPU\. With one GPU it has nothing to connect\.$",
        ),
        (1, "2.27.3", NcclFacts(0, "it has not ended within 60 s"), "warning", "not ended.*memory of the host.*DEBUG"),
        (2, None, NcclFacts(), "warning", "no NCCL.*memory of the host"),
        (1, None, NcclFacts(), "ok", "no NCCL"),
        (0, "2.27.3", NcclFacts(), "ok", "sees none here"),
    ],
)
def test_an_nccl_that_cannot_sum_over_the_gpus_is_a_warning(
    num_gpus: int, nccl: str | None, tried: NcclFacts, level: str, told: str
) -> None:
    facts = TorchFacts(**GOOD, gpus=(Gpu("A100", GIB),) * num_gpus, has_nccl=nccl is not None, nccl=nccl)
    found = judge_nccl(facts, tried)
    assert (found.subject, found.level) == ("NCCL", level)
    assert re.search(told, found.text), found.text


def test_what_hangs_is_left_behind_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "_LIMIT_S", 0.3)
    monkeypatch.setattr(checkup, "_NCCL_LIMIT_S", 0.3)
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec sleep 60\n")
    python.chmod(0o755)
    found = checkup._ask_torch(python)
    assert isinstance(found, Finding) and found.level == "error" and "whether nvidia-smi answers" in found.text
    assert checkup._try_nccl(python) == NcclFacts(error="it has not ended within 0.3 s")


def test_nccl_is_tried_by_the_interpreter_of_the_workers(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho a banner\n[ "$2" = nccl ] && echo \'{"num_gpus": 2, "error": null}\'\n')
    python.chmod(0o755)
    assert checkup._try_nccl(python) == NcclFacts(2)
    # This machine has no GPU that torch could use, or the real NCCL sums over it.
    tried = checkup._try_nccl(Path(sys.executable))
    assert (tried.num_gpus > 0) is (tried.error is None)


def test_a_port_that_is_in_use_is_named() -> None:
    assert check_port(0).text.startswith("'legato up' can use any free port")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert f"uses port {port}" in check_port(port).text and check_port(port).level == "ok"


def test_too_few_ports_for_workers_are_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "range").write_text("60000\t60099\n")
    monkeypatch.setattr(checkup, "_PORT_RANGE", tmp_path / "range")
    assert check_port(0).level == "warning" and "only 100 ports" in check_port(0).text


def test_too_little_of_anything_is_a_warning(tmp_path: Path) -> None:
    assert judge_memory(8 * GIB, None).level == "ok"
    assert judge_memory(8 * GIB, GIB // 2).level == "warning"
    assert judge_memory(GIB // 2, None).level == "warning"
    assert judge_open_files(256).level == "warning"
    assert judge_open_files(-1).level == "ok"
    assert judge_shared_memory(tmp_path / "gone").level == "warning"
    assert "limit of the container or service (1.5)" in judge_cpus(8, 8, 1.5).text
    assert "may use 4 of 8 cores" in judge_cpus(8, 4, None).text
    assert judge_cpus(8, 8, None).text == "Processes may use 8 of 8 cores."


def test_a_full_shared_memory_says_how_to_enlarge_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(checkup.shutil, "disk_usage", lambda _: checkup.shutil._ntuple_diskusage(2**26, 0, 2**26))
    found = judge_shared_memory(tmp_path)
    assert found.level == "warning" and "64 MiB of 64 MiB" in found.text and "--shm-size=8g" in found.text
    assert check_home(tmp_path).level == "warning"


def test_a_home_that_does_not_exist_yet_is_judged_by_the_folder_above(tmp_path: Path) -> None:
    assert check_home(tmp_path / "not" / "yet").level == "ok"
    assert not list(tmp_path.iterdir())
    assert check_home(Path("/proc/nowhere")).level == "error"


def test_the_network_inside_this_machine_works() -> None:
    assert check_network().level == "ok"


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ("not json", None),
        (json.dumps(GOOD | {"torch": "2.9.1"}), "torch 2.9.1, with the instruction set AVX2 and gloo."),
    ],
)
def test_the_interpreter_of_the_workers_is_asked(tmp_path: Path, output: str, told: str | None) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho a banner\necho '{output}'\nexit 3\n")
    python.chmod(0o755)
    found = list(check_up(python, tmp_path, 0))
    assert found[0].level == "error", "this one has no Legato"
    assert told == next((each.text for each in found if each.subject == "torch"), None)
    assert found[-1].subject == "ports", "the other checks go on"


def test_this_interpreter_is_well(tmp_path: Path) -> None:
    found = {each.subject: each for each in check_up(Path(sys.executable), tmp_path, 0)}
    assert found["Python"].level == found["torch"].level == "ok", found


def test_the_narrowest_limit_of_the_enclosing_groups_counts(tmp_path: Path) -> None:
    inner = tmp_path / "group" / "service" / "inner"
    inner.mkdir(parents=True)
    for folder, memory, cpu in ((inner, "max", "max 100000"), (inner.parent, "4096", "150000 100000")):
        (folder / "cgroup.procs").touch()
        (folder / "cgroup.controllers").write_text("memory cpu")
        (folder / "memory.max").write_text(memory)
        (folder / "cpu.max").write_text(cpu)
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "self/cgroup").write_text("0::/service/inner\n")
    (proc / "self/mountinfo").write_text(f"1 0 0:1 / {tmp_path / 'group'} rw - cgroup2 cgroup2 rw\n")
    assert read_enclosing_limits(proc) == (4096, 1.5)
    assert read_enclosing_limits(tmp_path / "none") == (None, None)
