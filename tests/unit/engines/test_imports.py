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


def test_a_program_that_cannot_be_read_wishes_nothing(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("import torch\ndef (")
    assert imported_packages(broken) == ()
    assert imported_packages(tmp_path / "missing.py") == ()
