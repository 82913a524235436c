"""docs/architecture.md names every package, and only packages that exist; its layers are those that CI checks."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "legato"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
PACKAGES = {str(file.parent.relative_to(SOURCE)) for file in SOURCE.rglob("__init__.py")} - {"."}
# What is on the path of users' programs: packages of other systems, by their names.
FOREIGN = "compat/elasticdl/site/"


def test_every_package_is_named_and_every_named_package_exists() -> None:
    table = PAGE.partition("## The packages")[2].partition("\n## ")[0]
    named = re.findall(r"^\| `([a-z_/]+)` \|", table, re.MULTILINE)
    assert len(named) == len(set(named))
    assert set(named) == {name for name in PACKAGES if not name.startswith(FOREIGN)}


def test_every_file_that_the_page_links_to_exists() -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (ROOT / "docs" / link).exists(), link


def test_the_layers_on_the_page_are_those_that_are_checked() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    checked = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    layers = [layer.replace("legato.", "").partition(" : ")[0] for layer in checked]
    told = PAGE.partition("## Who may import whom")[2].partition("```\n")[2].partition("```")[0]
    assert told.split("\n")[:-1] == layers
