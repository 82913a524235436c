"""The last, short batch: which arguments of a call are cut to its records, and which are not touched."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, UserDict
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from legato.compat.elasticdl.batches import Arguments, cut_batch
from legato.core.errors import ProgramError

SIZE, LEFT = 4, 2


class Pair(NamedTuple):
    data: Any
    label: Any


@dataclasses.dataclass(frozen=True)
class Sample:
    data: Any
    name: str = "set"


class Encoding(UserDict[str, Any]):
    def __init__(self, data: Any, made_by: str) -> None:
        super().__init__(data)
        self.made_by = made_by


def rows(*more: int) -> torch.Tensor:
    """A batch of 2 records, filled to 4."""
    return torch.tensor([0.0, 1.0, 1.0, 1.0]).reshape(SIZE, *([1] * len(more))).expand(SIZE, *more).clone()


def plain(node: Any) -> Any:
    if hasattr(node, "tolist"):
        return node.tolist()
    if isinstance(node, list | tuple):
        return [plain(part) for part in node]
    return {name: plain(part) for name, part in node.items()} if hasattr(node, "items") else node


@pytest.mark.parametrize(
    ("node", "want"),
    [
        (["a", "b", "b", "b"], ["a", "b"]),
        (("a", "b", "b", "b"), ["a", "b"]),
        ([[1], [2, 3], [2, 3], [2, 3]], [[1], [2, 3]]),
        ([torch.zeros(3), torch.ones(2), torch.ones(2), torch.ones(2)], [[0, 0, 0], [1, 1]]),
        (rows().numpy(), [0, 1]),
        (Encoding({"text": ["a", "b", "b", "b"], "y": rows()}, "x"), {"text": ["a", "b"], "y": [0, 1]}),
        (OrderedDict(y=rows()), {"y": [0, 1]}),
        (MappingProxyType({"y": rows()}), {"y": [0, 1]}),
        (Pair(rows(), ["a", "b", "b", "b"]), [[0, 1], ["a", "b"]]),
        (rows(3).T, [[0, 1]] * 3),
        ([rows(), rows(), rows(), rows()], [[0, 1]] * 4),
        (["a", "b", "c", "d"], ["a", "b", "c", "d"]),
        ([torch.ones(3, 5), "name", 4, None], [[[1] * 5] * 3, "name", 4, None]),
        (torch.arange(12).reshape(3, 4), torch.arange(12).reshape(3, 4).tolist()),
    ],
    ids=[
        "texts",
        "tuple of texts",
        "ragged",
        "tensors of other sizes",
        "array",
        "user dict",
        "ordered",
        "read-only mapping",
        "named tuple",
        "time first",
        "as many parts as records",
        "names of classes",
        "no batch",
        "no batch of the second dimension",
    ],
)
def test_batches_are_cut_in_their_own_types(node: Any, want: Any) -> None:
    cut = cut_batch(node, SIZE, LEFT, ())
    assert type(cut) is type(node) and plain(cut) == want


def test_what_else_a_batch_knows_is_kept() -> None:
    whole = Encoding({"y": rows()}, "tokenizer")
    assert cut_batch(whole, SIZE, LEFT, ()).made_by == "tokenizer" and len(whole["y"]) == SIZE
    sample = Sample(rows(), "own")
    cut = cut_batch(sample, SIZE, LEFT, ())
    assert (cut.name, cut.data.tolist(), len(sample.data)) == ("own", [0, 1], SIZE)


def call(arguments: Arguments, *args: Any, num_records: int = LEFT) -> Any:
    arguments.enter(args, SIZE, num_records)
    return plain(arguments.cut(args, {}, SIZE, num_records)[0]) if num_records < SIZE else None


def test_one_tensor_into_which_each_batch_is_copied_is_cut() -> None:
    arguments, static, constant = Arguments(), torch.zeros(SIZE), torch.ones(SIZE)
    call(arguments, static, constant, num_records=SIZE)
    static.copy_(rows())
    assert call(arguments, static, constant) == [[0, 1], [1] * SIZE]


def test_an_array_into_which_each_batch_is_written_is_cut() -> None:
    arguments, static, constant = Arguments(), np.zeros(SIZE), np.arange(SIZE)
    call(arguments, static, constant, num_records=SIZE)
    static[:] = rows().numpy()
    assert call(arguments, static, constant) == [[0, 1], [0, 1, 2, 3]]


def test_a_constant_is_not_touched_in_the_first_call_either() -> None:
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0])
    assert call(Arguments(), rows(), weights) == [[0, 1], [1, 2, 3, 4]]


def test_nan_values_are_alike() -> None:
    filled = torch.tensor([0.0, float("nan"), float("nan"), float("nan")])
    assert len(call(Arguments(), filled, torch.arange(4.0))[0]) == LEFT


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: (3, "text"), "nothing that the function of elastic_run was given could be cut"),
        (lambda: (object(),), "nothing that the function of elastic_run was given could be cut"),
        (
            lambda: (torch.nn.utils.rnn.pack_padded_sequence(rows(3), [3] * 4, batch_first=True),),
            "a PackedSequence cannot be cut",
        ),
    ],
    ids=["plain values", "unknown", "packed"],
)
def test_what_cannot_be_cut_is_refused(make: Callable[[], Any], told: str) -> None:
    with pytest.raises(ProgramError, match=told):
        call(Arguments(), *make())


def test_what_was_cut_by_the_program_is_taken_as_it_is() -> None:
    assert call(Arguments(), torch.arange(LEFT)) == [[0, 1]]


def test_two_arguments_that_are_alike_are_no_batch_of_two() -> None:
    arguments, texts = Arguments(), ["a", "a"]
    arguments.enter((texts, texts), 2, 1)
    assert arguments.cut((texts, texts), {"more": texts}, 2, 1) == ((["a"], ["a"]), {"more": ["a"]})
