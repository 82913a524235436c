"""Where a job stands, and where a program stands that follows it."""

from __future__ import annotations

from itertools import product

from legato.train.cursor import Cursor


def test_a_program_is_beyond_a_place_that_it_has_passed_in_any_way() -> None:
    def at(epoch: int, pass_index: int, num_evaluations: int) -> Cursor:
        return Cursor(epoch=epoch, pass_index=pass_index, evaluations=[{"value": 0.0}] * num_evaluations)

    for place in product(range(2), repeat=3):
        for other in product(range(2), repeat=3):
            is_beyond = any(mine > theirs for mine, theirs in zip(place, other, strict=True))
            assert at(*place).is_beyond(at(*other)) == is_beyond


def test_who_follows_a_job_stands_where_it_stood() -> None:
    job = Cursor()
    places = []
    for epoch in range(3):
        job.epoch = epoch
        job.begin_epoch()
        for _ in range(2):
            job.step += 5
            job.step_in_pass = 5
            job.evaluations.append({"value": float(job.step)})
            job.log({"step": float(job.step)})
            job.end_pass()
            job.evaluations.append({"value": -float(job.step)})
            places.append((job.pass_index, job.step_in_pass, list(job.evaluations), list(job.logs)))
    job = Cursor.from_plain(job.to_plain())
    follower = Cursor()
    follower.skip_to_epoch_of(job)
    assert (follower.epoch, follower.pass_index, follower.evaluations) == (2, 4, job.evaluations[:8])
    for place in places[4:]:
        follower.skip_pass(job)
        assert not follower.is_beyond(job)
        follower.evaluations.append(job.evaluations[len(follower.evaluations)])
        assert (follower.pass_index, follower.step_in_pass, follower.evaluations, follower.logs) == place
    follower.pass_index += 1
    assert follower.is_beyond(job)
