"""The clock that also runs while the machine is suspended."""

from __future__ import annotations

import time

import pytest

from legato.system import clocks


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="the system has no such clock")
def test_the_clock_counts_the_time_in_which_the_machine_was_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= clocks.read_boot_clock() <= time.clock_gettime(time.CLOCK_BOOTTIME)
    monkeypatch.setattr(time, "clock_gettime", {time.CLOCK_BOOTTIME: 4711.0}.__getitem__)
    assert clocks.read_boot_clock() == 4711.0


def test_a_system_without_such_a_clock_uses_the_one_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "_BOOT_CLOCK", None)
    before = time.monotonic()
    assert before <= clocks.read_boot_clock() <= time.monotonic()
