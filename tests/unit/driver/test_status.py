"""What a status tells of the training: how far, how fast, what was logged last."""

from __future__ import annotations

from legato.core.wire import Metrics, Progress
from legato.driver.status import Meter


def progress(view: int, step: int) -> Progress:
    return Progress(
        view=view, first_step=step, last_step=step, epoch=0, loss=None, num_samples=8, num_steps=9, num_epochs=1
    )


def test_a_laggard_does_not_set_the_job_back() -> None:
    meter = Meter()
    meter.note(progress(1, 5), 1, 0.0)
    meter.note(progress(1, 4), 0, 0.1)
    assert meter.last == progress(1, 5)


def test_steps_that_are_done_again_show_where_the_job_is() -> None:
    meter = Meter()
    meter.note(progress(1, 5), 1, 0.0)
    for step in (2, 3):
        meter.note(progress(2, step), 0, 1.0)
    assert meter.last == progress(2, 3)
    assert meter.samples_per_s is None


def test_a_run_begins_at_the_first_step_or_at_its_checkpoint() -> None:
    anew, resumed = Meter(), Meter()
    anew.note(progress(1, 1), 1, 0.0)
    # What a worker says of the steps before its checkpoint has no samples.
    before = Progress(view=1, first_step=1, last_step=30, epoch=0, loss=None, num_samples=0, num_steps=99, num_epochs=1)
    resumed.note(before, 0, 0.0)
    for meter, step in ((anew, 2), (resumed, 31)):
        meter.note(progress(1, step), 1, 1.0)
    assert (anew.from_step, resumed.from_step) == (0, 30)


def test_the_last_metrics_are_kept() -> None:
    meter = Meter()
    metrics = Metrics(index=0, step=3, epoch=0, values={"accuracy": 0.5})
    meter.note_metrics(metrics)
    assert meter.metrics == metrics
