"""Every message comes out of its frame as it went in."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.tiers import examples

from legato.core import wire
from legato.core.view import Member, View, proves

numbers = st.integers(-(2**63), 2**63 - 1)
texts = st.text(max_size=20)
floats = st.floats(allow_nan=False)
plain = st.recursive(
    st.none() | st.booleans() | numbers | floats | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
st.register_type_strategy(int, numbers)
st.register_type_strategy(float, floats)
st.register_type_strategy(str, texts)


def of_type(kind: Any) -> st.SearchStrategy[Any]:
    if kind is Any:
        return plain
    if kind is View:
        members = st.lists(st.builds(Member, worker=numbers, host=texts), max_size=4).map(tuple)
        return st.builds(View, number=numbers, members=members, rendezvous=texts)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is dict:
        return st.dictionaries(of_type(arguments[0]), of_type(arguments[1]), max_size=4)
    if arguments and origin is not tuple:
        return st.one_of(*(of_type(argument) for argument in arguments))
    if origin is tuple:
        return st.lists(of_type(arguments[0]), max_size=4).map(tuple)
    return st.none() if kind is type(None) else st.from_type(kind)


def message_of(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    fields = {field.name: of_type(field.type) for field in msgspec.structs.fields(kind)}
    return st.builds(kind, **fields)


def of_union(union: Any) -> list[type[msgspec.Struct]]:
    return list(typing.get_args(union))


Decoder = Callable[[bytes], Any]
cases: list[tuple[type[msgspec.Struct], Decoder]] = [
    *((kind, wire.decode_worker_message) for kind in of_union(wire.WorkerMessage)),
    *((kind, wire.decode_driver_message) for kind in of_union(wire.DriverMessage)),
    *((kind, wire.decode_request) for kind in of_union(wire.ClientRequest)),
    (wire.Reply, wire.decode_reply),
]


@pytest.mark.parametrize(("kind", "decode"), cases, ids=lambda value: getattr(value, "__name__", None))
@given(data=st.data())
@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_round_trip(kind: type[msgspec.Struct], decode: Decoder, data: st.DataObject) -> None:
    message = data.draw(message_of(kind))
    assert decode(wire.encode(message)) == message


def test_every_message_belongs_to_a_union() -> None:
    told = {kind for kind, _ in cases}
    declared = {
        kind
        for kind in vars(wire).values()
        if isinstance(kind, type)
        and issubclass(kind, wire.Message | wire.Request)
        and kind not in {wire.Message, wire.Request}
    }
    assert declared == told - {wire.Reply}


@pytest.mark.parametrize("decode", [wire.decode_worker_message, wire.decode_driver_message, wire.decode_request])
@pytest.mark.parametrize("frame", [b"", b"\xc1", b"not a message", msgspec.msgpack.encode({"type": "Unheard"})])
def test_a_foreign_frame_is_refused(decode: Decoder, frame: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, msgspec.ValidationError)):
        decode(frame)


def test_what_a_worker_says_is_not_taken_for_an_order() -> None:
    with pytest.raises(msgspec.ValidationError):
        wire.decode_driver_message(wire.encode(wire.Leaving(num_rounds=1, reason="shrunk")))


def test_messages_of_the_release_before_terms_are_read() -> None:
    """Its workers and drivers name neither a term nor a protocol."""
    hello = wire.Hello(worker=3, pid=7, host="h", current=None, phase="joining", num_rounds=0, term=5, protocol=1)
    welcome = wire.Welcome(
        heartbeat_interval_s=0.25,
        away_limit_s=60.0,
        checkpoint_dir=None,
        checkpoint_every=None,
        keep=3,
        resume=False,
        term=5,
        protocol=1,
    )
    decoders: list[tuple[wire.Message, Decoder]] = [
        (hello, wire.decode_worker_message),
        (welcome, wire.decode_driver_message),
        (wire.Refused(reason="r", term=5), wire.decode_driver_message),
    ]
    for message, decode in decoders:
        fields = msgspec.msgpack.decode(wire.encode(message))
        assert fields.pop("term") == 5
        fields.pop("protocol", None)
        old = decode(msgspec.msgpack.encode(fields))
        assert old.term == 0
        assert getattr(old, "protocol", 0) == 0
        # And the other way: a release that does not know the fields ignores them.
        later = {**msgspec.msgpack.decode(wire.encode(message)), "field_of_a_later_release": 1}
        assert decode(msgspec.msgpack.encode(later)) == message


def test_only_neighbouring_protocols_work_together() -> None:
    assert [wire.describe_misfit("w", wire.PROTOCOL + step) is None for step in (-2, -1, 0, 1, 2)] == [
        False,
        True,
        True,
        True,
        False,
    ]
    told = wire.describe_misfit("worker 3", wire.PROTOCOL + 2)
    assert told is not None
    assert told.startswith("worker 3 runs a release of Legato whose protocol has number 3; this one has number 1")
    assert told.endswith("Install the same release of Legato on all machines of the job")


def test_workers_of_an_earlier_release_can_read_what_they_are_welcomed_with() -> None:
    welcome = wire.Welcome(
        heartbeat_interval_s=0.25,
        away_limit_s=60.0,
        checkpoint_dir=None,
        checkpoint_every=None,
        keep=3,
        resume=False,
    )
    assert msgspec.msgpack.decode(wire.encode(welcome))["collective_limit_s"] == 1800.0


def test_workers_prove_themselves_only_in_views_whose_members_all_can() -> None:
    old = msgspec.convert({"worker": 3, "host": "h", "node": "n"}, Member)
    assert not old.proves
    assert proves([Member(1, "h", "n", proves=True)])
    assert not proves([Member(1, "h", "n", proves=True), old])
    # A worker of an earlier release reads the members without the field that it does not know.
    assert msgspec.convert({**msgspec.to_builtins(old), "field_of_a_later_release": 1}, Member) == old
