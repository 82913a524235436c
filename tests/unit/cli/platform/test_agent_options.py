"""The options of `legato agent`."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from legato.cli.main import app
from legato.cli.platform import agent
from legato.control.records import AGENT_SILENT_S


def test_the_command_says_after_how_many_seconds_the_server_takes_its_slots_away() -> None:
    assert agent._SILENT_S == AGENT_SILENT_S


@pytest.mark.parametrize(
    ("label", "told"),
    [("legato.machine=server", "names that begin with 'legato.' are Legato's own"), ("site", "write it as NAME=VALUE")],
)
def test_a_label_that_cannot_be_used_is_refused_before_the_machine_joins(label: str, told: str) -> None:
    said = CliRunner().invoke(app, ["agent", "--connect", "http://127.0.0.1:9", "--label", label])
    assert said.exit_code != 0
    assert told in said.output + str(said.exception)
