"""State of every kind goes to a joining worker and through a checkpoint, or is refused with its name."""

from __future__ import annotations

import enum
import os
import sys
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.train.values import VALUES, Pair, Phase, Window, numbered, same, window

from legato.core.errors import CheckpointError
from legato.train.checkpoints.checkpoint import Store, load
from legato.train.checkpoints.writer import copy_to_cpu
from legato.train.membership import state_transfer
from legato.train.state.serialization import KIND, decode, encode, tensors_in

Way = Callable[[Any], Any]


def joined(plain: Any) -> Any:
    skeleton, tensors = state_transfer.take_apart(plain)
    again = state_transfer.decode(state_transfer.encode(skeleton))
    targets = [spec.empty() for spec in state_transfer.specs(again)]
    for target, tensor in zip(targets, tensors, strict=True):
        state_transfer._bytes_of(target).zero_()
        target.copy_(tensor)
    return state_transfer.put_together(again, targets)


@pytest.fixture(params=["join", "checkpoint"])
def way(request: pytest.FixtureRequest, tmp_path: Path) -> Way:
    """Take plain values to another process, as a join or a checkpoint does."""
    if request.param == "join":
        return joined
    store = Store(tmp_path, 1, pytest.fail)
    return lambda plain: load(store.save(copy_to_cpu(plain), step=1, meta={})).state


@pytest.mark.parametrize("name", VALUES)
def test_a_value_comes_back(way: Way, name: str) -> None:
    value = {"value": VALUES[name]}
    got = decode(way(encode(value, "x").plain), value, "x")
    assert same(value, got), got


def test_what_was_one_tensor_is_one_tensor(way: Way) -> None:
    value = VALUES["one tensor twice"]
    got = decode(way(encode(value, "x").plain), None, "x")
    assert got["a"] is got["b"][0] is got["c"]


def test_plain_values_of_an_older_checkpoint_come_back_as_they_are() -> None:
    value = {"state": {0: {"step": torch.tensor(3.0), "history": [1, (2, None)]}}, "groups": [{"lr": 0.1}]}
    assert same(decode(value, None, "x"), value)


leaves = st.sampled_from([VALUES[name] for name in VALUES if "key of ours" not in name and "twice" not in name])
keys = st.text(max_size=3) | st.integers() | st.sampled_from([Phase.WARM, "__legato__", "__legato_tensor__"])
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(keys, inner, max_size=3)
        | st.builds(Pair, inner, inner)
        | st.builds(deque, st.lists(inner, max_size=2), st.integers(2, 5))
        | st.builds(lambda inner: defaultdict(int, inner), st.dictionaries(keys, inner, max_size=2))
    ),
    max_leaves=6,
)


@given(values)
def test_values_in_one_another_come_back(value: Any) -> None:
    encoded = encode(value, "x")
    assert same(value, decode(joined(encoded.plain), value, "x"))
    assert len(list(tensors_in(encoded.plain))) == len(state_transfer.take_apart(encoded.plain)[1])


class Subclassed(list[int]):
    pass


@dataclass
class Ending:
    path: str

    def __del__(self) -> None:
        os._exit(3)


def endless() -> list[Any]:
    made: list[Any] = [1]
    made.append(made)
    return made


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        (object(), "builtins.object"),
        (Subclassed(), "Subclassed"),
        (torch.nn.Linear(1, 1), "Linear"),
        (endless(), r"\[1\] of the Foo: it contains itself"),
        (torch.eye(2).to_sparse(), "sparse"),
        (torch.zeros(2, device="meta"), "without values"),
        (torch.nn.UninitializedParameter(), "without a shape"),
        (np.array([object()]), "array of objects"),
        ({torch.zeros(1): 1}, "as a key"),
        ({print}, "as a key"),
    ],
)
def test_what_cannot_be_carried_is_refused_by_name(bad: Any, what: str) -> None:
    with pytest.raises(CheckpointError, match=what) as refused:
        encode({"a": [1, bad]}, "the Foo")
    assert "['a'][1]" in str(refused.value)
    assert "the Foo" in str(refused.value)
    assert "state_dict()" in str(refused.value)


def test_a_dataclass_with_code_for_its_end_is_refused() -> None:
    ending = object.__new__(Ending)
    try:
        with pytest.raises(CheckpointError, match="Ending"):
            encode(ending, "the Foo")
    finally:
        del Ending.__del__


def test_a_function_is_the_one_that_the_receiver_holds() -> None:
    encoded = encode({"a": [window]}, "the Foo")
    assert encoded.fixed == {("a", 0)}
    for own in (None, {"a": []}, {"a": [numbered]}, {"a": ["window"]}):
        with pytest.raises(CheckpointError, match=r"\['a'\]\[0\] of the Foo: it is the function .*values.window"):
            decode(encoded.plain, own, "the Foo")


def test_a_class_inside_of_a_function_is_the_one_that_the_receiver_holds() -> None:
    class Here(enum.Enum):
        ONE = 1

    encoded = encode([Here.ONE], "the Foo")
    assert encoded.fixed == {(0,)}
    assert decode(encoded.plain, [Here.ONE], "the Foo") == [Here.ONE]
    with pytest.raises(CheckpointError, match="Here is not there"):
        decode(encoded.plain, [], "the Foo")


@pytest.mark.parametrize(
    ("kind", "module", "name"),
    [
        ("enum", "os", "system"),
        ("enum", "subprocess", "Popen"),
        ("enum", "no.such.module", "Foo"),
        ("dataclass", "subprocess", "Popen"),
        ("dataclass", "tests.unit.train.values", "VALUES"),
        ("namedtuple", "tests.unit.train.values", "Phase"),
        ("flag", "tests.unit.train.values", "Phase"),
    ],
)
def test_no_other_class_is_made(kind: str, module: str, name: str) -> None:
    forged = {KIND: kind, "class": [module, name], "items": ["ls"], "fields": {}, "name": "ls", "value": "ls"}
    with pytest.raises(CheckpointError):
        decode(forged, None, "the Foo")


def test_nothing_is_imported_or_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Lazy(ModuleType):
        def __getattr__(self, name: str) -> Any:
            asked.append(name)
            return Window

    monkeypatch.setitem(sys.modules, "lazy_module", Lazy("lazy_module"))
    assert "this" not in sys.modules
    for module in ("this", "lazy_module"):
        with pytest.raises(CheckpointError, match="not there"):
            decode({KIND: "enum", "class": [module, "Thing"], "name": "A"}, None, "the Foo")
    assert "this" not in sys.modules and not asked
    with pytest.raises(CheckpointError, match="does not know"):
        decode({KIND: "pickle"}, None, "the Foo")
