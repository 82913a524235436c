"""Makes the site of pages that are written for the repository: links that leave ``docs`` lead to copies on the site.

MkDocs calls the functions ``on_...``. What pages link to outside of ``docs`` is added below ``repository/``: Markdown
as pages, programs as pages with their text, other files as they are. ``reference.md`` is made of the docstrings.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
PROGRAMS: Final = {".py": "python", ".toml": "toml", ".yaml": "yaml", ".sbatch": "bash", "": "text"}
"""Suffixes of files that the site shows as text → their language."""
LINK: Final = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)(?=[)#])")
FENCED: Final = re.compile(r"^(```.*?^```[^\n]*)", re.MULTILINE | re.DOTALL)
REFERENCE: Final = {
    "Training": ["legato.train.loop.elastic.elastic", "legato.train.loop.elastic.Run"],
    "Trainer": [
        "legato.train.loop.trainer.Trainer",
        "legato.train.loop.trainer.Callback",
        "legato.train.checkpoints.weights.load_weights",
    ],
    "Client": ["legato.client.client.Client", "legato.client.jobs.Job"],
    "Other libraries": [
        "legato.integrations.transformers.Trainer",
        "legato.integrations.lightning.LegatoStrategy",
        "legato.integrations.lightning.LegatoFabricStrategy",
        "legato.integrations.tensorboard",
        "legato.integrations.mlflow",
    ],
}
"""Headings of the reference → names that have docstrings."""


def place_of(path: Path) -> str:
    """Return where a file of the repository is on the site."""
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    place = f"repository/{path.relative_to(ROOT).as_posix()}"
    return f"{place}.md" if path.is_dir() or path.suffix in PROGRAMS else place


def outside_of_code(text: str, change: Callable[[str], str]) -> str:
    """Change a page, but not its blocks of code."""
    return "".join(part if part.startswith("```") else change(part) for part in FENCED.split(text))


def targets(page: Path) -> list[Path]:
    """Return the files of the repository to which a page links."""
    prose = FENCED.sub("", page.read_text())
    return [(page.parent / link).resolve() for link in LINK.findall(prose)]


def linked_files() -> list[Path]:
    """Return the files and folders outside of ``docs`` to which pages link, directly or through one another."""
    waiting, found = [*DOCS.rglob("*.md")], set[Path]()
    while waiting:
        page = waiting.pop()
        for path in targets(page):
            if path in found or path.is_relative_to(DOCS) or not path.is_relative_to(ROOT) or not path.exists():
                continue
            found.add(path)
            if path.suffix == ".md":
                waiting.append(path)
            elif path.is_dir():
                found |= set(path.iterdir())
    return sorted(found)


def show(path: Path) -> str:
    """Return the page of a program or a folder."""
    title = f"# {path.relative_to(ROOT)}\n\n"
    if path.is_dir():
        names = sorted(one.name for one in path.iterdir())
        return title + "".join(f"- [{name}]({name})\n" for name in names)
    return f"{title}````{PROGRAMS[path.suffix]}\n{path.read_text()}\n````\n"


def reference() -> str:
    """Return the page that mkdocstrings fills from the docstrings."""
    told = "What the docstrings say. [The loop and the Trainer](api.md) and [the client](client.md) explain it."
    lines = ["# Reference", "", told]
    for title, names in REFERENCE.items():
        lines += ["", f"## {title}", *(f"\n::: {name}" for name in names)]
    return "\n".join(lines) + "\n"


def on_config(config: Any) -> Any:
    """Add the decisions to the navigation."""
    config.nav.append({"Decisions": [f"design/{page.name}" for page in sorted((DOCS / "design").glob("*.md"))]})
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add what pages link to, and the reference."""
    files.append(File.generated(config, "reference.md", content=reference()))
    for path in linked_files():
        if path.is_dir() or path.suffix in PROGRAMS:
            files.append(File.generated(config, place_of(path), content=show(path)))
        else:
            files.append(File.generated(config, place_of(path), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links lead to places of the site, and nest lists as Python's Markdown wants it: by four spaces."""
    place = page.file.src_uri
    if place.startswith("repository/"):
        source = ROOT / place.removeprefix("repository/")
        if not source.exists():
            source = source.with_suffix("")
    else:
        source = DOCS / place

    def lead(found: re.Match[str]) -> str:
        folder = source if source.is_dir() else source.parent
        target = (folder / found[1]).resolve()
        if not target.is_relative_to(ROOT) or not target.exists():
            return found[0]
        return os.path.relpath(place_of(target), Path(place).parent)

    def change(text: str) -> str:
        return re.sub(r"^ {2,3}(?=[-*] )", "    ", LINK.sub(lead, text), flags=re.MULTILINE)

    return outside_of_code(markdown, change)
