"""docs/wmla.md lists all commands, options, variables and routes with their true status."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from starlette.routing import Route

from legato.compat.wmla import names
from legato.compat.wmla.fabric.model import FabricModel
from legato.compat.wmla.frameworks import FRAMEWORKS
from legato.compat.wmla.notebook.model import FabricModel as NotebookModel
from legato.compat.wmla.rest.plugin import CONDUCTOR, DEEP_LEARNING, UNSUPPORTED, PluginSettings, make_plugin
from legato.compat.wmla.tools import dlicmd

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs/wmla.md").read_text()
SOURCES = ROOT / "src/legato/compat/wmla"


def section(title: str) -> str:
    level = len(title) - len(title.lstrip("#"))
    found = re.search(rf"^{re.escape(title)}$(.*?)(?=^#{{2,{level}}} |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[1]


def rows(title: str) -> list[list[str]]:
    lines = [line for line in section(title).splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def statuses(title: str) -> dict[str, str]:
    """Return the status of every name in the first column of the tables of a section."""
    return {name: cells[1] for cells in rows(title) for name in re.findall(r"`([^`]+)`", cells[0])}


def test_every_command_and_option_has_its_status() -> None:
    told = statuses("## The command")
    refused = {name for name, rule in dlicmd.COMMANDS.items() if rule.run is dlicmd.refuse}
    want = {name: "not supported" if name in refused else "supported" for name in dlicmd.COMMANDS}
    want |= dict.fromkeys([*dlicmd.CONNECTION, *dlicmd.OLD_NAMES, *dlicmd.OUTPUT], "supported")
    want |= {name: "supported" if does else "accepted" for name, (_, does, _) in dlicmd.SUBMIT.items()}
    want |= dict.fromkeys(dlicmd.REFUSED_OPTIONS, "not supported")
    assert {name: status for name, status in told.items() if name.startswith("-")} == want


def test_every_variable_and_exit_code_of_the_command_is_documented() -> None:
    told = section("## The command")
    assert [name for name in (*dlicmd.VARIABLES, "DLICMD_CA_FILE") if f"`{name}`" not in told] == []
    codes = {cells[0]: cells[1].replace("`", "") for cells in rows("## The command") if cells[0].isdigit()}
    assert codes == {str(code): about for code, about in dlicmd.EXIT_CODES.items()}


def routes() -> list[tuple[str, str]]:
    limits = dict.fromkeys(("upload_max_bytes", "upload_max_unpacked_bytes", "upload_max_files"), 1)
    plugin = make_plugin(
        lambda _: pytest.fail("no client asks"), PluginSettings(data_root="/d", upload_max_ratio=1.0, **limits)
    )
    known = [route for route in plugin._app.routes if isinstance(route, Route)]  # type: ignore[attr-defined]
    found = {
        (method, route.path.replace(":int", ""))
        for route in known
        if not route.path.removesuffix("/{rest:path}").startswith(tuple(UNSUPPORTED))
        for method in (route.methods or set()) - {"HEAD"}
    }
    return sorted(found)


def test_every_request_is_documented_and_no_other() -> None:
    told = {name.partition(" with")[0] for name in statuses("## REST")}
    found = routes()
    assert len(found) > 30
    known = {f"{method} {path.removeprefix(DEEP_LEARNING).removeprefix(CONDUCTOR)}" for method, path in found}
    assert "GET /ui/tools/dlicmd.py" in known and "https://HOST/ui/tools/dlicmd.py" in PAGE
    # Logging on and off below the other bases is documented in one line.
    others = {name for name in known if name.endswith((" /auth/logon", " /auth/logoff"))}
    assert known - others - {"GET /ui/tools/dlicmd.py"} - told == set()
    requests = {name for name in told if re.match("(GET|POST|PUT|DELETE) /", name)}
    assert requests <= known | {f"{method} {path}" for method, path in found}


def test_unsupported_paths_are_documented() -> None:
    told = statuses("### Not supported")
    assert set(told) >= {path.removeprefix(DEEP_LEARNING) for path in UNSUPPORTED}


def test_every_state_is_documented() -> None:
    told = {name: cells[1:] for cells in rows("## States") for name in re.findall(r"`([^`]+)`", cells[0])}
    assert told == {stage: [f"`{state.now}`", f"`{state.old}`"] for stage, state in names.STATES.items()}


def test_every_framework_is_documented() -> None:
    told = {name: cells[2] for cells in rows("## Frameworks") for name in re.findall(r"`([^`]+)`", cells[0])}
    assert set(told) - {"--exec-start"} == set(FRAMEWORKS)


@pytest.mark.parametrize(
    ("title", "function"), [("### `FabricModel(...)`", FabricModel), ("### `train(...)`", FabricModel.train)]
)
def test_every_parameter_is_documented(title: str, function: object) -> None:
    assert callable(function)
    told = statuses(title)
    parameters = [name for name in inspect.signature(function).parameters if name not in ("self", "notebook")]
    assert [name for name in parameters if name not in told] == []
    if function is FabricModel:
        assert set(told) == set(parameters)
        assert [name for name, status in told.items() if status == "accepted"] == ["scaleup_function"]
    else:
        named = inspect.signature(NotebookModel.train).parameters
        assert set(told) == set(named) - {"self"}


def test_documented_variables_are_set() -> None:
    told = statuses("### Variables of a job")
    sources = [*SOURCES.rglob("*.py"), ROOT / "src/legato/train/membership/gang.py"]
    text = "".join(path.read_text() for path in sources if path.name != "frameworks.py")
    for name, status in told.items():
        assert (f'"{name}"' in text) == status.startswith("supported"), name
