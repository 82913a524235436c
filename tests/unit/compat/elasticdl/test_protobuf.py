"""Messages of Protocol Buffers: compared with the library protobuf if it is installed; and damaged messages."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.compat.elasticdl import messages as m
from legato.compat.elasticdl.protobuf import decode, encode

_INT64 = st.integers(-(2**63), 2**63 - 1)


@dataclasses.dataclass(frozen=True)
class Inner:
    numbers: Annotated[tuple[int, ...], 4] = ()
    name: Annotated[str, 1] = ""


@dataclasses.dataclass(frozen=True)
class Outer:
    number: Annotated[int, 1] = 0
    inner: Annotated[Inner, 2] = dataclasses.field(default_factory=Inner)
    is_so: Annotated[bool, 3] = False
    texts: Annotated[tuple[str, ...], 2000] = ()


_outers = st.builds(
    Outer,
    number=_INT64,
    inner=st.builds(Inner, numbers=st.lists(_INT64).map(tuple), name=st.text()),
    is_so=st.booleans(),
    texts=st.lists(st.text()).map(tuple),
)


@settings(deadline=None)
@given(_outers)
def test_what_is_written_is_read(outer: Outer) -> None:
    assert decode(Outer, encode(outer)) == outer


@settings(deadline=None)
@given(_outers)
def test_the_library_reads_and_writes_the_same(outer: Outer) -> None:
    theirs = find_theirs()()
    theirs.ParseFromString(encode(outer))
    assert (theirs.number, theirs.is_so, tuple(theirs.texts)) == (outer.number, outer.is_so, outer.texts)
    assert (tuple(theirs.inner.numbers), theirs.inner.name) == (outer.inner.numbers, outer.inner.name)
    assert decode(Outer, theirs.SerializeToString()) == outer


@settings(deadline=None)
@given(_outers)
def test_another_version_ignores_fields_that_it_does_not_have(outer: Outer) -> None:
    content = encode(outer) + b"\x2d1234" + b"\x3112345678"
    assert decode(m.DatasetRequest, content) == m.DatasetRequest()
    assert decode(Outer, content) == outer


def test_numbers_may_come_one_by_one() -> None:
    assert decode(Inner, b"\x20\x01\x22\x02\x02\x03\x20\x04") == Inner(numbers=(1, 2, 3, 4))


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_any_bytes_are_a_message_or_a_value_error(content: bytes) -> None:
    with contextlib.suppress(ValueError):
        decode(Outer, content)


@pytest.mark.parametrize("content", ["0a05", "08", "0b", "00", "08" + "ff" * 10 + "01"], ids=str)
def test_an_incomplete_message_is_refused(content: str) -> None:
    with pytest.raises(ValueError, match="the message"):
        decode(Outer, bytes.fromhex(content))


@functools.cache
def find_theirs() -> Any:
    protobuf = pytest.importorskip("google.protobuf")
    assert protobuf is not None
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="outer.proto", package="t", syntax="proto3")
    inner, outer = file.message_type.add(name="Inner"), file.message_type.add(name="Outer")
    inner.field.add(name="numbers", number=4, type=3, label=3)
    inner.field.add(name="name", number=1, type=9, label=1)
    outer.field.add(name="number", number=1, type=3, label=1)
    outer.field.add(name="inner", number=2, type=11, label=1, type_name=".t.Inner")
    outer.field.add(name="is_so", number=3, type=8, label=1)
    outer.field.add(name="texts", number=2000, type=9, label=3)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Outer"))
