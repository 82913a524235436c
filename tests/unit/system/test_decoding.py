"""Types are prepared for one thread at a time, and remembered."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import msgspec
import pytest

from legato.system.decoding import convert, decode, decoder_of

# Types that are new, and take long to prepare: four threads read the first of a kind at once, again and again.
_RACE = """
from __future__ import annotations
import sys, threading, types
from legato.system.decoding import convert, decode

sys.setswitchinterval(1e-6)
fields = "".join(f"    f{number}: int | str | None = None\\n" for number in range(20))
kinds = "".join(
    f"class S{number}(msgspec.Struct):\\n{fields}" + (f"    inner: S{number - 1} | None = None\\n" if number else "")
    for number in range(20)
)
for turn in range(60):
    module = types.ModuleType(f"module{turn}")
    sys.modules[module.__name__] = module
    exec("from __future__ import annotations\\nimport msgspec\\n" + kinds, module.__dict__)
    all_there = threading.Barrier(4)

    def read() -> None:
        all_there.wait()
        assert decode(b'{"f0":1,"inner":{"f0":2}}', module.S19).inner.f0 == 2
        assert convert({"inner": {"f1": 3}}, module.S18).inner.f1 == 3

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("all were read")
"""


class Point(msgspec.Struct):
    """Something to read."""

    x: int
    y: int = 0


def test_records_are_read() -> None:
    assert decode(b'{"x":1,"y":2}', Point) == convert({"x": 1, "y": 2}, Point) == Point(1, 2)
    assert decoder_of(Point) is decoder_of(Point)
    for wrong in (b"{", b"{}", b'{"x":"1"}'):
        with pytest.raises(msgspec.MsgspecError):
            decode(wrong, Point)
    with pytest.raises(msgspec.ValidationError):
        convert({"x": "1"}, Point)


def test_threads_that_read_the_first_of_a_kind_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", _RACE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "all were read\n"), done.stderr


def test_a_child_that_is_forked_meanwhile_can_read() -> None:
    is_over = threading.Event()

    def prepare() -> None:
        while not is_over.is_set():
            decoder_of(msgspec.defstruct("New", [(f"f{number}", int) for number in range(50)]))

    preparing = threading.Thread(target=prepare)
    preparing.start()
    try:
        for _ in range(20):
            child = os.fork()
            if child == 0:
                decoder_of(msgspec.defstruct("Other", [("x", int)]))
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        is_over.set()
        preparing.join()
