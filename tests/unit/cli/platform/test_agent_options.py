"""The options of `legato agent`."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from legato.cli.main import app


@pytest.mark.parametrize(
    ("label", "told"),
    [("legato.machine=server", "names that begin with 'legato.' are Legato's own"), ("site", "write it as NAME=VALUE")],
)
def test_a_label_that_cannot_be_used_is_refused_before_the_machine_joins(label: str, told: str) -> None:
    said = CliRunner().invoke(app, ["agent", "--connect", "http://127.0.0.1:9", "--label", label])
    assert said.exit_code != 0
    assert told in said.output + str(said.exception)
