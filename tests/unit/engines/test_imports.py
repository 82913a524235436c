"""Which packages a program imports is read from its text."""

from pathlib import Path

from legato.engines.imports import imported_packages


def test_installed_packages_are_found_wherever_they_are_imported(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("")
    program = tmp_path / "train.py"
    program.write_text(
        "import os, torch\nfrom numpy import linalg\nimport beside\nfrom . import relative\n"
        "def late():\n    from torch.nn import functional\n    import torch\n    import no_such_package_anywhere\n"
    )
    assert sorted(imported_packages(program)) == ["numpy", "torch", "torch.nn"]


def test_what_lies_beside_the_program_hides_what_is_installed_under_its_name(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("")
    (tmp_path / "msgspec").mkdir()
    (tmp_path / "msgspec/__init__.py").write_text("")
    (tmp_path / "httpx.cpython-311-x86_64-linux-gnu.so").write_text("")
    (tmp_path / "torch").mkdir()  # of data: Python skips it where there is a package
    program = tmp_path / "train.py"
    program.write_text("import numpy.linalg, msgspec, httpx\nfrom torch.nn import functional\n")
    assert imported_packages(program) == ("torch.nn",)


def test_a_program_that_cannot_be_read_wishes_nothing(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("import torch\ndef (")
    assert imported_packages(broken) == ()
    assert imported_packages(tmp_path / "missing.py") == ()
