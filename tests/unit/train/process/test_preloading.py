"""A module that would make forking unsafe is left out, without a trace in this process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from legato.train.process import preloading

_SCRIPT = """
import gc, sys
from legato.train.process.preloading import preload
safe = preload(["json"], ["quiet", "threaded", "broken", "ends"])
print(safe, [name for name in ("quiet", "threaded", "broken", "ends") if name in sys.modules])
print(gc.isenabled(), gc.get_freeze_count() > 0)
"""


def test_only_harmless_wishes_are_imported(tmp_path: Path) -> None:
    (tmp_path / "quiet.py").write_text("import colorsys\n")
    (tmp_path / "threaded.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    (tmp_path / "broken.py").write_text("raise RuntimeError('at import')\n")
    (tmp_path / "ends.py").write_text("import os\nos._exit(3)\n")
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split(maxsplit=1) == ["True", "['quiet']\nTrue True\n"], done


_USUAL = """
import os, sys
from legato.train.process import preloading
print(preloading.preload([], ["sklearn"]), {"sklearn", "pyarrow"} <= sys.modules.keys())
print(preloading._NO_THREADS.keys() & os.environ.keys())
"""


def test_libraries_that_would_start_threads_for_their_memory_or_arithmetic_are_imported_without() -> None:
    pytest.importorskip("pyarrow")
    environment = {name: value for name, value in os.environ.items() if name not in preloading._NO_THREADS}
    done = subprocess.run(
        [sys.executable, "-c", _USUAL], env=environment, capture_output=True, text=True, timeout=100, check=True
    )
    assert done.stdout.splitlines() == ["True True", "set()"], done


def test_cuda_is_found_although_torch_does_not_know_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was forked after CUDA was started cannot use it, and would see all GPUs."""
    file = tmp_path / "nvidia-uvm"
    monkeypatch.setattr(preloading, "_CUDA_FILE", str(file))
    assert not preloading._uses_cuda()
    with file.open("w"):
        assert preloading._uses_cuda()
    assert not preloading._uses_cuda()


_CONNECTS = """
import datetime
from legato.train.process.preloading import preload
preload(["torch"], [])
from torch.distributed import TCPStore
try:
    TCPStore("127.0.0.1", 1, None, False, timeout=datetime.timedelta(seconds=0.2))
except RuntimeError:
    print("failed")
"""


@pytest.mark.parametrize("level", [None, "ERROR"])
def test_torch_writes_no_stacks_of_connections_that_fail_unless_it_is_asked_to(level: str | None) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TORCH_CPP_LOG_LEVEL"}
    environment |= {} if level is None else {"TORCH_CPP_LOG_LEVEL": level}
    command = [sys.executable, "-c", _CONNECTS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "failed\n"
    assert ("[c10d]" in done.stderr) is (level is not None), done.stderr
