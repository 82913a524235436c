"""The speed of a job with each number of workers: what counts, and what does not."""

from __future__ import annotations

from legato.core.speed import FORGET_S
from legato.driver.speeds import SpeedMeter


def train(meter: SpeedMeter, view: int, size: tuple[int, int], rate: float, begin: float, num: int = 30) -> float:
    """Report that many stretches of 2 s. Returns the time of the last one."""
    for index in range(1, num + 1):
        meter.note(view, size, 2 * rate, 2.0, begin + 2 * index)
    return begin + 2 * num


def rates(meter: SpeedMeter, now: float) -> dict[tuple[int, int], float]:
    return {(told["num_workers"], told["num_nodes"]): told["samples_per_s"] for told in meter.list(now)}


def test_a_few_slow_stretches_change_nothing() -> None:
    meter = SpeedMeter()
    now = train(meter, 1, (2, 1), 10.0, 0.0)
    for _ in range(5):
        now += 60.0
        meter.note(1, (2, 1), 1.0, 60.0, now)
    assert rates(meter, now) == {(2, 1): 10.0}


def test_the_first_seconds_after_a_change_do_not_count() -> None:
    meter = SpeedMeter()
    now = train(meter, 1, (2, 1), 10.0, 0.0)
    for view in range(2, 40):
        # Each view lasts for the stretch with the change and the warm-up only.
        now = train(meter, view, (3, 1), 1.0, now, num=4)
    assert rates(meter, now) == {(2, 1): 10.0}
    now = train(meter, 40, (3, 1), 12.0, now)
    assert rates(meter, now) == {(2, 1): 10.0, (3, 1): 12.0}


def test_too_few_stretches_are_no_measurement() -> None:
    meter = SpeedMeter()
    now = train(meter, 1, (2, 1), 10.0, 0.0, num=11)
    assert rates(meter, now) == {}
    now = train(meter, 1, (2, 1), 10.0, now, num=1)
    assert rates(meter, now) == {(2, 1): 10.0}


def test_an_old_measurement_does_not_mix_with_a_new_one() -> None:
    meter = SpeedMeter()
    now = train(meter, 1, (2, 1), 10.0, 0.0)
    now = train(meter, 2, (3, 1), 12.0, now, num=int(FORGET_S))
    now = train(meter, 3, (2, 1), 30.0, now, num=12)
    assert rates(meter, now) == {(3, 1): 12.0, (2, 1): 30.0}


def test_only_the_latest_sizes_are_kept() -> None:
    meter, now = SpeedMeter(), 0.0
    for number in range(1, 21):
        now = train(meter, number, (number, 1), 1.0, now)
    assert [told["num_workers"] for told in meter.list(now)] == list(range(5, 21))
