"""Rules of the house that no linter knows."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

import legato

SOURCE = Path(legato.__file__).parent
ROOT = Path(__file__).parents[2]
MAX_LINES = 800
IMPORT_LIMIT_S = 0.2
IMPORT = re.compile(r"^[ \t]*(from legato(?:\.\w+)* import (?:\([^)]*\)|[^\n(]+))", re.MULTILINE)
WHOLE = {SOURCE / "compat/wmla/tools/dlicmd.py"}
"""Fetched and run as one file, without anything beside it."""
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}


@functools.cache
def parse_modules() -> dict[Path, ast.Module]:
    """Return the syntax tree of every module of Legato."""
    return {module: ast.parse(module.read_text()) for module in SOURCE.rglob("*.py")}


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout


def test_importing_legato_loads_no_torch() -> None:
    loaded = run("import legato, sys; print(*sys.modules)").split()
    assert "legato" in loaded
    assert not {"torch", "numpy", "httpx", "msgspec"} & set(loaded)


def test_importing_legato_is_fast() -> None:
    code = "import time; t = time.perf_counter(); import legato; print(time.perf_counter() - t)"
    assert min(float(run(code)) for _ in range(5)) < IMPORT_LIMIT_S


def test_the_command_line_loads_no_torch() -> None:
    loaded = run("import legato.cli.main, sys; print(*sys.modules)").split()
    assert "torch" not in loaded


def test_a_job_at_a_terminal_loads_no_platform() -> None:
    modules = (
        "legato.cli.main",
        "legato.cli.local.foreground",
        "legato.cli.terminal.display",
        "legato.driver.driver",
        "legato.engines.local",
    )
    code = f"import sys, {', '.join(modules)}"
    loaded = {name.partition(".")[0] for name in run(f"{code}; print(*sys.modules)").split()}
    assert not {"sqlalchemy", "alembic", "pydantic", "pydantic_settings", "argon2", "psycopg"} & loaded


def test_the_store_works_without_the_driver_for_postgresql() -> None:
    loaded = run("import legato.control.store, sys; print(*sys.modules)").split()
    assert not {"psycopg", "torch", "numpy"} & set(loaded)


def test_the_public_surface_is_exactly_this() -> None:
    assert legato.__all__ == ["Callback", "Client", "Trainer", "__version__", "elastic", "load_weights"]
    for name in legato.__all__:
        assert getattr(legato, name) is not None


def test_an_unknown_name_is_refused() -> None:
    assert not hasattr(legato, "nothing")


def test_no_module_is_a_room_and_names_say_what_they_do() -> None:
    modules = list(SOURCE.rglob("*.py"))
    assert len(modules) > 10
    lengths = {module: len(module.read_text().splitlines()) for module in modules}
    assert {module: length for module, length in lengths.items() if length > MAX_LINES and module not in WHOLE} == {}
    assert [module for module in modules if module.stem in FORBIDDEN_NAMES] == []


def test_every_module_says_what_it_is_for() -> None:
    silent = [module for module, tree in parse_modules().items() if tree.body and ast.get_docstring(tree) is None]
    assert silent == []


def test_types_are_prepared_in_one_place() -> None:
    calls = [
        (module, ast.unparse(node.func), len(node.args) + len(node.keywords))
        for module, tree in parse_modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    ]
    by_itself = {
        module.name
        for module, called, num_arguments in calls
        if called in ("msgspec.convert", "msgspec.json.Decoder")
        or (called == "msgspec.json.decode" and num_arguments > 1)
    }
    assert by_itself == {"decoding.py"}, "use legato.system.decoding, which prepares types for one thread at a time"


@functools.cache
def _names_of(module: Path) -> set[str]:
    """Return the names that a module defines or imports, and those of the modules beside it in its package."""
    found = {file.stem for file in module.parent.iterdir()} if module.name == "__init__.py" else set()
    for node in ast.walk(parse_modules()[module]):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    return found


def test_programs_beside_the_sources_import_names_that_exist() -> None:
    """Some of them run on a machine with a GPU only, or in long tests only."""
    unknown = []
    for program in (file for folder in ("tests", "benchmarks", "examples") for file in (ROOT / folder).rglob("*.py")):
        for line in IMPORT.findall(program.read_text()):
            (node,) = ast.parse(line).body
            assert isinstance(node, ast.ImportFrom) and node.module is not None
            place = SOURCE.parent.joinpath(*node.module.split("."))
            module = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
            names = _names_of(module) if module in parse_modules() else set()
            unknown += [f"{program}: {node.module}.{alias.name}" for alias in node.names if alias.name not in names]
    assert unknown == []


def _imports_of(module: Path, names: dict[str, Path]) -> set[str]:
    """Return the modules of Legato that a module imports anywhere: at its top, in functions, for types."""
    found: set[str] = set()
    for node in ast.walk(parse_modules()[module]):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inside & names.keys() or {node.module}
    return found & names.keys()


def test_no_modules_import_one_another_in_a_circle() -> None:
    names = {".".join(file.relative_to(SOURCE.parent).with_suffix("").parts): file for file in SOURCE.rglob("*.py")}
    names = {name.removesuffix(".__init__"): file for name, file in names.items()}
    imports = {name: _imports_of(file, names) - {name} for name, file in names.items()}
    # What imports nothing that is left is in no circle; take it away until that is all, or until a circle is left.
    while free := {name for name, found in imports.items() if not found & imports.keys()}:
        imports = {name: found for name, found in imports.items() if name not in free}
    assert imports == {}
