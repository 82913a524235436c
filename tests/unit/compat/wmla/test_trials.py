"""A trial of a search in its worker: the arguments it gets, ``config.json``, and the value of its objective."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as rules
from hypothesis import strategies as st
from tests.tiers import examples

from legato.compat.wmla.fabric.records import EMetrics
from legato.compat.wmla.trials import SEARCH, Search, Trial, read_objective, split_arguments, write_config
from legato.control.arguments import write_parameters
from legato.core.errors import ProgramError, UsageError

KINDS: dict[str, Literal["int", "double", "str"]] = {"lr": "double", "width": "int", "optimizer": "str"}


def make_search(objective: Literal["minimize", "maximize"] = "minimize") -> Search:
    return Search(algorithm="Random", metric="loss", objective=objective, kinds=KINDS)


FLOATS = st.floats(allow_nan=False, allow_infinity=False)


@rules(max_examples=examples(50), deadline=None)
@given(
    own=st.lists(st.sampled_from(["--lr", "0.5", "--wmla-hp", "-x", "", "a b"]), max_size=4),
    parameters=st.fixed_dictionaries({}, optional={"lr": FLOATS, "width": st.integers(), "optimizer": st.text()}),
)
def test_a_program_gets_its_own_arguments_and_the_trial_its_parameters(own: list[str], parameters: Any) -> None:
    search = msgspec.json.encode(make_search()).decode()
    words = [*own, *write_parameters({SEARCH: search, **parameters})]
    assert split_arguments(words) == (own, Trial(make_search(), parameters))
    assert split_arguments(own) == (own, None)


@pytest.mark.parametrize("words", [[], ["{}"], ["?"], [msgspec.json.encode(make_search()).decode(), "--other", "1"]])
def test_arguments_that_are_no_trial_are_refused(words: list[str]) -> None:
    with pytest.raises(UsageError, match="Cannot read the parameters of the trial"):
        split_arguments([f"--{SEARCH}", *words])


def test_the_configuration_has_numbers_and_texts(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{of the user}")
    write_config(tmp_path, Trial(make_search(), {"lr": 0.1, "width": 8, "optimizer": "sgd"}))
    assert (tmp_path / "config.json").read_text() == '{"lr": 0.1, "width": 8, "optimizer": "sgd"}'
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


@pytest.mark.parametrize(
    ("objective", "content", "want"),
    [
        ("minimize", [{"step": 1, "loss": 0.5}, {"loss": 0.2}, {"step": 3, "loss": 0.3}], 0.2),
        ("maximize", [{"loss": 0.5}, {"loss": float("inf")}, {"loss": "0.9"}, 3, {"accuracy": 0.9}], 0.5),
        ("minimize", {"loss": -2}, -2.0),
    ],
)
def test_the_value_is_the_best_one_in_the_file(
    tmp_path: Path, objective: Literal["minimize", "maximize"], content: Any, want: float
) -> None:
    (tmp_path / "val_dict_list.json").write_text(json.dumps(content))
    assert read_objective(tmp_path, [], make_search(objective)) == want


def test_without_the_file_the_values_are_those_of_emetrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOG_DIR", str(tmp_path / "log"))
    with EMetrics.open() as metrics:
        metrics.record(EMetrics.TRAIN_GROUP, 1, {"loss": 0.1})
        metrics.record(EMetrics.TEST_GROUP, 1, {"loss": 0.5})
        metrics.record(EMetrics.TEST_GROUP, 2, {"loss": 0.25})
    with (tmp_path / "log" / "evaluation-metrics.txt").open("a") as file:
        file.write('cut off\n{"grouplabel": "test", "values": 3}\n[]\n')
    assert read_objective(tmp_path, [tmp_path / "none", tmp_path / "log"], make_search()) == 0.25
    # With an id of the trial, EMetrics writes the file itself.
    monkeypatch.setenv("RESULT_DIR", str(tmp_path))
    with EMetrics.open("j-1") as metrics:
        metrics.record(EMetrics.TEST_GROUP, 1, {"loss": 0.75})
    assert read_objective(tmp_path, [tmp_path / "log"], make_search()) == 0.75


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "has written no RESULT_DIR/val_dict_list.json"),
        ("[]", "val_dict_list.json is empty"),
        ('[{"accuracy": 1}]', "there is no 'loss' in RESULT_DIR/val_dict_list.json, only accuracy"),
        ('[{"loss": NaN}, {"loss": null}]', "no value of 'loss' in RESULT_DIR/val_dict_list.json is a finite number"),
        ('[{"loss": 1' + "0" * 400 + "}]", "no value of 'loss' in RESULT_DIR/val_dict_list.json is a finite number"),
        ("{", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        (" " * (16 * 2**20 + 1), "more than 16 MiB"),
    ],
)
def test_a_missing_value_is_explained(tmp_path: Path, content: str | None, told: str) -> None:
    if content is not None:
        (tmp_path / "val_dict_list.json").write_text(content)
    with pytest.raises(ProgramError) as refused:
        read_objective(tmp_path, [], make_search())
    assert told in str(refused.value)
