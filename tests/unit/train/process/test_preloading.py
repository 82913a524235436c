"""A module that would make forking unsafe is left out, without a trace in this process."""

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


def test_cuda_is_found_although_torch_does_not_know_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was forked after CUDA was started cannot use it, and would see all GPUs."""
    file = tmp_path / "nvidia-uvm"
    monkeypatch.setattr(preloading, "_CUDA_FILE", str(file))
    assert not preloading._uses_cuda()
    with file.open("w"):
        assert preloading._uses_cuda()
    assert not preloading._uses_cuda()
