"""Where a job stands, and where a program stands that follows it."""

from __future__ import annotations

from itertools import product

from legato.train.loop.cursor import Cursor


def evaluate(cursor: Cursor, value: float) -> None:
    cursor.note_evaluation({"value": value})


def test_a_program_is_beyond_a_place_that_it_has_passed_in_any_way() -> None:
    def at(epoch: int, is_over: int, pass_index: int, num_evaluations: int) -> Cursor:
        return Cursor(
            epoch=epoch, is_over=bool(is_over), pass_index=pass_index, num_evaluations=num_evaluations, num_logs=9
        )

    for place in product(range(2), repeat=4):
        for other in product(range(2), repeat=4):
            is_beyond = any(mine > theirs for mine, theirs in zip(place, other, strict=True))
            assert at(*place).is_beyond(at(*other)) == is_beyond


def test_who_follows_a_job_stands_where_it_stood() -> None:
    job = Cursor()
    evaluate(job, -1.0)
    job.log({"before": 1.0})
    job.step = 5
    job.end_pass()
    before = (job.pass_index, job.num_evaluations, job.num_logs)
    job.begin_loop()
    places = []
    for epoch in range(3):
        if epoch:
            job.next_epoch()
            assert job.epoch == epoch
        for _ in range(2):
            job.step += 5
            job.step_in_pass = 5
            evaluate(job, float(job.step))
            job.log({"step": float(job.step)})
            job.end_pass()
            evaluate(job, -float(job.step))
            places.append((job.pass_index, job.num_evaluations, job.num_logs))
    job = Cursor.from_plain(job.to_plain())
    follower = Cursor()
    follower.num_evaluations += 1
    follower.num_logs += 1
    assert job.evaluations[0] == {"value": -1.0}
    follower.skip_pass(job)
    assert (follower.pass_index, follower.num_evaluations, follower.num_logs) == before
    follower.skip_to_epoch_of(job)
    assert (follower.epoch, follower.pass_index, follower.num_evaluations, follower.num_logs) == (2, 5, 9, 5)
    for place, value in zip(places[4:], (-30.0, -35.0), strict=True):
        follower.skip_pass(job)
        assert not follower.is_beyond(job)
        assert job.evaluations[follower.num_evaluations] == {"value": value}
        follower.num_evaluations += 1
        assert (follower.pass_index, follower.num_evaluations, follower.num_logs) == place
    follower.pass_index += 1
    assert follower.is_beyond(job)


def test_what_was_logged_before_a_job_began_is_counted() -> None:
    follower = Cursor()
    follower.log({"rate": 0.1})
    follower.skip_to_epoch_of(Cursor())
    assert (follower.num_logs, follower.first_log) == (1, 1)
    assert follower.log({"loss": 1.0}).index == 1


def test_it_does_not_grow_with_the_number_of_epochs() -> None:
    job = Cursor()
    evaluate(job, -1.0)
    job.end_pass()
    job.begin_loop()
    kept = []
    for _ in range(50):
        for number in range(3):
            job.log({"loss": float(number)})
            evaluate(job, float(number))
            job.end_pass()
        # What a driver has on record is a little behind.
        job.forget_metrics(job.num_logs - 2)
        kept.append((len(job.evaluations), len(job.ends), len(job.logs)))
        job.next_epoch()
    assert set(kept) == {(1 + 3, 1 + 3, 2)}
    assert (list(job.evaluations), list(job.ends)) == ([0], [0])
    assert (job.pass_index, job.num_evaluations, job.num_logs) == (151, 151, 150)


def test_metrics_keep_their_numbers_when_others_are_forgotten() -> None:
    job = Cursor()
    for number in range(5):
        assert job.log({"number": number}).index == number
    job.forget_metrics(2)
    assert [(told.index, told.values["number"]) for told in job.kept_metrics()] == [(2, 2), (3, 3), (4, 4)]
    job.forget_metrics(1)
    job = Cursor.from_plain(job.to_plain())
    assert [told.index for told in job.kept_metrics()] == [2, 3, 4]
    job.forget_metrics(99)
    assert job.kept_metrics() == []
    assert job.log({}).index == 5
