"""Reports of a job that stays in its stage: its reason and an event, and no change of its version."""

from __future__ import annotations

from tests.contract.store.making import ANN, NOW, make_job, make_people, make_pool, start, write

from legato.control.records import Note
from legato.control.stages import Stage
from legato.control.store import Store


def test_a_note_changes_the_reason_and_is_an_event(store: Store) -> None:
    make_people(store)
    lease, slots = make_pool(store, 1)
    job = start(store, lease.fence, store.jobs.submit(make_job(), ANN, NOW).job, (slots[0],))
    seen = store.events.read_last_seq()
    after = write(store, lease.fence, job, NOW + 1, note=Note("it trains; but its driver died", "its driver died"))
    assert (after.stage, after.reason) == (Stage.RUNNING, "it trains; but its driver died")
    assert (after.version, after.staged_at) == (job.version, job.staged_at)
    told = store.events.read_after(seen)
    assert [(event.kind, event.reason, event.job, event.attempt) for event in told] == [
        ("driver", "its driver died", job.id, 1)
    ]
