"""The site of the documents: links work in the repository and on the site, and the reference has all public names."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import yaml

import legato

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    described = importlib.util.spec_from_file_location("hooks", ROOT / "docs/site/hooks.py")
    assert described is not None and described.loader is not None
    module = importlib.util.module_from_spec(described)
    described.loader.exec_module(module)
    return module


def on_site(hooks: ModuleType, place: str, text: str) -> str:
    return str(hooks.on_page_markdown(text, page=SimpleNamespace(file=SimpleNamespace(src_uri=place))))


@pytest.mark.parametrize(
    ("place", "link", "want"),
    [
        ("api.md", "cli.md#legato-run", "cli.md#legato-run"),
        ("design/0006-the-console.md", "../rest.md", "../rest.md"),
        ("quickstarts/laptop.md", "../../examples/digits_plain.py", "../repository/examples/digits_plain.py.md"),
        ("index.md", "../README.md", "repository/README.md"),
        ("repository/README.md", "docs/pictures/demo.svg", "../pictures/demo.svg"),
        ("repository/README.md", "docs/api.md#trainer", "../api.md#trainer"),
        ("repository/README.md", "LICENSE", "LICENSE.md"),
        ("repository/examples/README.md", "../docs/wmla.md", "../../wmla.md"),
        ("api.md", "https://example.org/docs", "https://example.org/docs"),
        ("api.md", "nowhere.md", "nowhere.md"),  # the strict build reports it
        ("api.md", "../../../etc/passwd", "../../../etc/passwd"),
    ],
)
def test_links_of_the_repository_lead_to_the_same_text_on_the_site(
    hooks: ModuleType, place: str, link: str, want: str
) -> None:
    assert on_site(hooks, place, f"See [it]({link}).") == f"See [it]({want})."


def test_code_stays_as_it_is_and_lists_nest(hooks: ModuleType) -> None:
    code = "```\n  - [it](../README.md)\n```\n"
    assert on_site(hooks, "api.md", f"- one\n  - two\n\n{code}") == f"- one\n    - two\n\n{code}"


def test_files_outside_of_the_docs_are_on_the_site(hooks: ModuleType) -> None:
    found = {path.relative_to(ROOT).as_posix() for path in hooks.linked_files()}
    assert {"README.md", "CHANGELOG.md", "examples/README.md", "examples/digits_plain.py", "LICENSE"} <= found
    assert [name for name in found if name.startswith("docs/")] == []
    assert hooks.show(ROOT / "examples/digits_plain.py").count("import torch") >= 1


def test_every_public_name_is_in_the_reference(hooks: ModuleType) -> None:
    shown = {name.rpartition(".")[2] for names in hooks.REFERENCE.values() for name in names}
    assert {name for name in legato.__all__ if not name.startswith("_")} <= shown


def test_every_kind_of_user_has_a_quickstart_and_the_site_is_strict() -> None:
    # Tags are functions of the theme's Python; what they make does not matter here.
    loader = type("Loader", (yaml.SafeLoader,), {})
    loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
    config = yaml.load((ROOT / "mkdocs.yml").read_text(), loader)
    assert config["strict"] is True and config["theme"] == config["theme"] | {"name": "material", "font": False}
    assert {level for levels in config["validation"].values() for level in levels.values()} == {"warn"}
    quickstarts = [page for entry in config["nav"] if "Quickstarts" in entry for page in entry["Quickstarts"]]
    assert len(quickstarts) == 5
    assert re.search(r"^make docs$", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    # With --quiet, the strict build passes in spite of warnings.
    assert re.search(r"mkdocs build --strict$", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_the_readme_fits_on_two_screens() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 100
    assert sum(len(line.split()) for line in lines) <= 900
