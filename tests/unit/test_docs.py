"""The documents say all that there is, and nothing in them is broken."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
import typing
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import typer.main

import legato
from legato.cli import main
from legato.client.jobs import Job as Job_
from legato.client.submission import JobOptions
from legato.core import lifecycle
from legato.core.spec import JobSpec
from legato.core.wire import Metrics
from legato.driver.job import JobFacts, Worker
from legato.driver.journal import Outcome
from legato.driver.record import Event
from legato.driver.status import Meter, build_status
from legato.train.loop.elastic import Run

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "examples/*.md", "benchmarks/*.md", "src/**/*.md", "tests/**/*.md")
    for path in ROOT.glob(pattern)
)
CLI = (ROOT / "docs/cli.md").read_text()
CLIENT = (ROOT / "docs/client.md").read_text()
API = (ROOT / "docs/api.md").read_text()


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


def section(text: str, title: str) -> str:
    """Return a section of a page up to the next heading of the same level or a higher one."""
    level = re.match("#+", title)
    assert level is not None
    found = re.search(rf"^{re.escape(title)}$(.*?)(?=^#{{2,{len(level[0])}}} |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"there is no section '{title}'"
    return found[1]


# ---------------------------------------------------------------- the command line


def commands() -> Iterator[tuple[str, click.Command]]:
    group = typer.main.get_command(main.app)
    assert isinstance(group, typer.core.TyperGroup)
    context = typer.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield name, command
        for below, inner in getattr(command, "commands", {}).items():
            yield f"{name} {below}", inner


def section_of(command: str) -> str:
    told = section(CLI, f"{'###' if ' ' in command else '##'} legato {command}")
    return told.partition("\n### ")[0] if " " not in command else told


def test_every_command_is_documented() -> None:
    assert {len(name.split()) for name, _ in commands()} == {1, 2}
    for name, _ in commands():
        assert section_of(name).strip() or name == "config", name


def test_every_command_shows_an_example_that_names_it() -> None:
    for name, command in commands():
        if not hasattr(command, "commands"):
            assert f"legato {name}" in (command.epilog or ""), name


def test_every_option_is_documented_and_no_other() -> None:
    for name, command in commands():
        told = section_of(name)
        options = [flag for option in command.params for flag in (*option.opts, *option.secondary_opts)]
        flags = {flag for flag in options if flag.startswith("-")}
        assert {flag for flag in flags if f"`{flag}`" not in told} == set(), name
        rows = [line.split("|")[1] for line in told.splitlines() if line.startswith("| `-")]
        assert set(re.findall(r"`(-[^`]+)`", "".join(rows))) <= flags, name


def typed_commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each command of legato that a page shows, in its prose too, up to the user's own program."""
    fenced = re.findall(r"^```.*?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line for block in fenced for line in re.sub(r"\\\n", " ", block).splitlines()]
    for typed in [*lines, *re.findall(r"`([^`]+)`", prose)]:
        words = re.sub(r"^\s*(\$ |[A-Z_]+=\S+ )*", "", typed).split()
        if words[:1] == ["legato"]:
            own = [place for place, word in enumerate(words) if word == "--" or word.endswith(".py") or word in "|#&&"]
            yield words[1 : min(own, default=len(words))]


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=page_id)
def test_every_option_that_a_page_types_is_one_of_its_command(page: Path) -> None:
    known = dict(commands())
    for words in typed_commands(page.read_text()):
        named = [" ".join(words[:count]) for count in (2, 1)]
        command = next((known[name] for name in named if name in known), None)
        if command is None:
            continue
        flags = {flag for option in command.params for flag in (*option.opts, *option.secondary_opts)}
        typed = {re.sub(r"[=,.;:)].*$", "", word) for word in words if re.match(r"--[a-z]", word)}
        assert typed <= flags | {"--help"}, f"legato {' '.join(words)}"


def test_options_in_prose_are_read() -> None:
    told = "See `legato logs JOB --training`, or:\n\n```\n$ legato run --workers 2 train.py --epochs 3\n```\n"
    assert list(typed_commands(told)) == [["run", "--workers", "2"], ["logs", "JOB", "--training"]]


def test_defaults_are_documented_as_they_are() -> None:
    command = dict(commands())["run"]
    told = {
        line.split("|")[1].strip().split("`")[1]: line.split("|")[3] for line in CLI.splitlines() if "| `--" in line
    }
    for option in command.params:
        if isinstance(option.default, int | float) and not isinstance(option.default, bool):
            assert f"{option.default:g}" in told[option.opts[0]], option.opts


@pytest.mark.parametrize("field", JobSpec.__struct_fields__)
def test_every_setting_of_a_job_is_documented(field: str) -> None:
    told = section(CLI, "## Settings of a job")
    line = next(line for line in told.splitlines() if line.startswith("|") and f"`{field}`" in line.split("|")[2 - 1])
    default = dict(zip(reversed(JobSpec.__struct_fields__), reversed(JobSpec.__struct_defaults__), strict=False))
    if field.endswith(("_s", "max_deaths", "max_breaks")) and "`--" not in line:
        assert line.split("|")[2].strip() == f"{default[field]:g}"


def status_keys() -> set[str]:
    spec = JobSpec(name="a", program=("a.py",), directory="/", max_workers=1, num_workers=1)
    job = JobFacts(spec=spec, rendezvous="", checkpoint_dir="/c", now=0.0, wanted={"n/0"})
    job.workers[0] = Worker(number=0, slot="n/0", last_heard=0.0)
    meter = Meter()
    meter.note_metrics(Metrics(index=0, step=1, epoch=0, values={}))
    event = Event(seq=1, time=0.0, kind="note", level="info", reason="", worker=0, view=1, step=1, detail="d")
    status = build_status(job, meter, deque([event]), Outcome("failed", 1, "r"), 0.0)
    assert json.dumps(status)
    return set(walk_keys(status))


def walk_keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from walk_keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from walk_keys(inner)


def test_every_key_of_a_status_is_documented() -> None:
    assert {key for key in status_keys() if f"`{key}`" not in CLI} == set()


@pytest.mark.parametrize("states", [lifecycle.JobState, lifecycle.WorkerPhase])
def test_every_state_is_documented(states: Any) -> None:
    told = section(CLI, "## legato status")
    # A worker that is gone is not shown.
    assert {str(state) for state in states if f"`{state}`" not in told} - {"gone"} == set()


def test_every_kind_of_event_is_documented() -> None:
    kinds = set()
    for module in (ROOT / "src/legato/driver").glob("*.py"):
        text = module.read_text()
        kinds |= set(re.findall(r'\brecord\(\s*"([a-z]+)"', text)) | set(re.findall(r'Record\(kind="([a-z]+)"', text))
        kinds |= set(re.findall(r'give_up_slot\(\s*\w+, \w+, "([a-z]+)"', text))
    assert len(kinds) > 15
    told = section(CLI, "## Files of a job")
    assert {kind for kind in kinds if f"`{kind}`" not in told} == set()


def test_every_environment_variable_is_documented() -> None:
    named = {name for module in (ROOT / "src").rglob("*.py") for name in re.findall(r"LEGATO_\w+", module.read_text())}
    told = CLI + (ROOT / "docs/elasticdl.md").read_text()
    assert {name for name in named if f"`{name}`" not in told} == set()


# ---------------------------------------------------------------- the API


def test_every_public_member_of_run_is_documented() -> None:
    members = [name for name in vars(Run) if not name.startswith("_")]
    assert len(members) > 10
    rows = "".join(line.split("|")[1] for line in section(API, "## `Run`").splitlines() if line.startswith("|"))
    assert [name for name in members if not re.search(rf"`run\.{name}\b", rows)] == []


def test_every_argument_is_documented() -> None:
    functions: list[tuple[Any, str]] = [(legato.elastic, "## `legato.elastic(...)`"), (legato.Trainer, "## Trainer")]
    functions += [(getattr(Run, name), "## `Run`") for name in ("batches", "backward", "evaluate", "epochs")]
    for function, title in functions:
        told = section(API, title)
        names = [name for name in inspect.signature(function).parameters if name != "self"]
        assert [name for name in names if not re.search(rf"\b{name}\b", told)] == [], function


def test_every_public_name_is_documented() -> None:
    for name in legato.__all__:
        assert name.startswith("__") or f"legato.{name}" in API + CLIENT, name
    trainer = [name for name in vars(legato.Trainer) if not name.startswith("_")]
    callback = [name for name in vars(typing.cast(Any, legato).Callback) if not name.startswith("_")]
    assert [name for name in [*trainer, *callback] if not re.search(rf"\b{name}\(", API)] == []


def test_loading_and_the_fate_of_the_history_are_documented() -> None:
    assert "no loading threads" in section(API, "## Recipes")
    assert "joins late" in section(API, "## Trainer") and "after a resume" in section(API, "## Trainer")


# ---------------------------------------------------------------- all pages


def headings(page: Path) -> set[str]:
    """Return the anchors of a page, made of its headings as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), target
        if anchor:
            assert anchor in headings(found), target


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_no_page_names_a_place_on_one_machine(page: Path) -> None:
    # Places that are the same everywhere are fine.
    assert re.findall(r"(?<![\w.$~/}])/(?:home|root|work|tmp|opt|Users|mnt|var)/\S*", page.read_text()) == []


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_module_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    named = re.findall(r"`((?:\w[\w.-]*/)+\w+\.py)`", text)
    named += [
        f"{name.replace('.', '/')}.py" for name in re.findall(r"python -m (legato\.(?:control|driver)[\w.]+)", text)
    ]
    # A path may start at any folder, such as src/legato.
    folders = (ROOT / folder for folder in ("src", "tests", "benchmarks", "docs", "examples"))
    modules = [str(module) for folder in folders for module in folder.rglob("*.py")] if named else []
    assert [name for name in named if not any(module.endswith(f"/{name}") for module in modules)] == []


def code_blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if code_blocks(page)], ids=page_id)
def test_python_blocks_are_python(page: Path) -> None:
    for block in code_blocks(page):
        ast.parse(block)


def test_the_first_programs_run(tmp_path: Path) -> None:
    programs = [code_blocks(ROOT / page)[0] for page in ("docs/quickstarts/laptop.md", "docs/api.md")]
    (tmp_path / "first.py").write_text("\n".join(programs))
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "LEGATO_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "first.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr


def test_the_diff_of_the_readme_is_that_of_the_examples() -> None:
    changed = re.findall(r"^\+(?!\+)(.*)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    elastic = (ROOT / "examples/digits_elastic.py").read_text().replace("arguments.epochs", "num_epochs")
    assert len(changed) == 6
    assert [line for line in changed if line not in elastic] == []


def test_the_picture_is_drawn_from_the_record() -> None:
    pictures = ROOT / "docs/pictures"
    described = importlib.util.spec_from_file_location("make_demo", pictures / "make_demo.py")
    assert described is not None and described.loader is not None
    make_demo = importlib.util.module_from_spec(described)
    described.loader.exec_module(make_demo)
    recorded = json.loads((pictures / "demo.json").read_text())
    assert (pictures / "demo.svg").read_text() == make_demo.draw(recorded)
    assert recorded["disturbed"]["sha256"] == recorded["undisturbed"]["sha256"]
    assert recorded["disturbed"]["losses"] == recorded["undisturbed"]["losses"]


# ---------------------------------------------------------------- the client


@pytest.mark.parametrize("kind", [legato.Client, Job_])
def test_every_call_of_the_client_is_documented(kind: type) -> None:
    calls = [
        name for name in dir(kind) if not name.startswith("_") and name not in ("on", "server", "has_code", "upload")
    ]
    assert len(calls) > 20
    assert [name for name in calls if f"`{name}" not in CLIENT and f".{name}(" not in CLIENT] == []


def test_every_option_of_a_job_is_documented() -> None:
    page = (ROOT / "docs/rest.md").read_text()
    for name in JobOptions.__annotations__:
        assert f"`{name}`" in section(CLIENT, "## Jobs"), name
        assert f"| `{name}` |" in section(page, "### A submission"), name
