"""Webhooks in the store: who sees them, messages that are written once, and what is due."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from tests.contract.store.making import ADMIN, ANN, BEN, EYE, NOW, make_job, make_people, make_pool, start, write

from legato.control.project_records import NewProject
from legato.control.records import Job, Verdict
from legato.control.roles import Submitter
from legato.control.stages import Stage
from legato.control.store import MAX_PENDING, MAX_WEBHOOKS, Store
from legato.control.webhook_records import NewDelivery, News, Outcome, Parcel, WebhookPatch, WebhookSpec
from legato.core.errors import BadField, Conflict, FencedOut, Forbidden, NotFound

URL = "https://example.org/hook"
ENDED = WebhookSpec(url=URL, news=(News.ENDED,))
GOOD, BAD = Outcome(200, None), Outcome(500, "it answered with status 500")


@pytest.fixture
def fence(store: Store) -> int:
    make_people(store)
    return make_pool(store, 4)[0].fence


def message(store: Store, webhook: str, cause: str = "e1", **changes: Any) -> NewDelivery:
    fields = {"id": store.webhooks.make_delivery_id(NOW), "webhook": webhook, "cause": cause, "event": News.ENDED}
    return NewDelivery(**{**fields, "job": None, "body": "{}", **changes})


def pack(store: Store, new: NewDelivery) -> Parcel:
    found = store.webhooks.pack(new.id)
    assert found is not None
    return found


def submit(store: Store, **changes: Any) -> Job:
    return store.jobs.submit(make_job(**changes), Submitter(ANN.name, ANN.role), NOW).job


def test_only_the_owner_and_admins_see_and_remove_a_webhook(store: Store, fence: int) -> None:
    made, secret = store.webhooks.create(ENDED, ANN, NOW)
    assert secret.startswith("lgw_")
    assert len(secret) == 68
    assert (made.owner, made.url, made.on, made.project) == ("ann", URL, ("ended",), None)
    assert store.webhooks.list(ANN) == store.webhooks.list(ADMIN) == (made,)
    for other in (BEN, EYE):
        assert store.webhooks.list(other) == ()
        with pytest.raises(NotFound, match="no webhook"):
            store.webhooks.get(made.id, other)
    with pytest.raises(NotFound):
        store.webhooks.remove(made.id, BEN, NOW)
    with pytest.raises(Forbidden):
        store.webhooks.create(ENDED, EYE, NOW)
    store.webhooks.remove(made.id, ADMIN, NOW)
    assert store.webhooks.list(ANN) == ()
    actions = [(entry.who, entry.action) for entry in store.audit.read_before(limit=2)]
    assert actions == [("admin", "webhook.delete"), ("ann", "webhook.create")]


def test_a_change_keeps_what_it_does_not_name_and_the_secret(store: Store, fence: int) -> None:
    made, secret = store.webhooks.create(WebhookSpec(url=URL, news=(News.ENDED,), waiting_s=60), ANN, NOW)
    lost = message(store, made.id)
    store.webhooks.add([lost], None, fence, NOW)
    store.webhooks.record(pack(store, lost), BAD, NOW + 5, fence, NOW)
    assert (store.webhooks.get(made.id, ANN).tried_at, store.webhooks.get(made.id, ANN).error) == (NOW, BAD.error)
    assert store.webhooks.list_due(NOW + 5) == (), "it is held back"
    moved = store.webhooks.change(made.id, WebhookPatch(url=f"{URL}/new", waiting_s=None), ANN, NOW)
    assert (moved.url, moved.on, moved.waiting_s) == (f"{URL}/new", ("ended",), None)
    assert [one.id for one in store.webhooks.list_due(NOW + 5)] == [lost.id], "the new receiver has not failed"
    assert (pack(store, lost).url, pack(store, lost).secret) == (f"{URL}/new", secret)
    (entry,) = store.audit.read_before(limit=1)
    assert (entry.action, entry.detail) == ("webhook.change", {"owner": "ann", "fields": ["url", "waiting_s"]})
    assert store.webhooks.change(made.id, WebhookPatch(), ADMIN, NOW) == moved
    store.webhooks.record(pack(store, lost), GOOD, None, fence, NOW + 5)
    assert (store.webhooks.get(made.id, ANN).tried_at, store.webhooks.get(made.id, ANN).error) == (NOW + 5, None)


def test_a_new_url_gets_what_is_pending_at_once_and_starts_without_errors(store: Store, fence: int) -> None:
    made, _ = store.webhooks.create(ENDED, ANN, NOW)
    lost = message(store, made.id)
    store.webhooks.add([lost], None, fence, NOW)
    store.webhooks.record(pack(store, lost), BAD, NOW + 21_600, fence, NOW)
    in_flight = pack(store, lost)
    changed = store.webhooks.change(made.id, WebhookPatch(url=f"{URL}/new"), ANN, NOW + 1)
    assert (changed.tried_at, changed.error) == (None, None)
    assert [one.id for one in store.webhooks.list_due(NOW + 1)] == [lost.id]
    # A try of the old URL that fails only now, also for good, says nothing about the new one.
    for next_at in (NOW + 21_600, None):
        store.webhooks.record(in_flight, BAD, next_at, fence, NOW + 2)
        assert [one.id for one in store.webhooks.list_due(NOW + 2)] == [lost.id]
    assert store.webhooks.get(made.id, ANN).error is None
    store.webhooks.record(in_flight, GOOD, None, fence, NOW + 3)
    assert store.webhooks.list_due(NOW + 3) == (), "the old URL has accepted it"
    test = store.webhooks.pack_test(made.id, "{}", "m-test", NOW + 4)
    store.webhooks.change(made.id, WebhookPatch(url=URL), ANN, NOW + 4)
    with pytest.raises(Conflict, match="got another URL while the test was sent"):
        store.webhooks.record_test(test, BAD, ANN, NOW + 5)


def test_another_project_gives_up_what_is_pending_of_the_last_one(store: Store, fence: int) -> None:
    own = store.projects.create(NewProject(name="own"), ANN, NOW).id
    made, _ = store.webhooks.create(WebhookSpec(url=URL, news=(News.ENDED,), project=own), ANN, NOW)
    first, late = message(store, made.id), message(store, made.id, "e2")
    store.webhooks.add([first], None, fence, NOW)
    read = {one.id: one.conditions_since for one in store.webhooks.list_watched()}
    in_flight = pack(store, first)
    submit(store)
    store.webhooks.change(made.id, WebhookPatch(project=None), ANN, NOW + 1)
    assert store.webhooks.pack(first.id) is None
    (given_up,) = store.webhooks.list_deliveries(made.id, 9)
    assert (given_up.state, given_up.error) == ("failed", "the webhook was changed to another project")
    store.webhooks.record(in_flight, BAD, NOW + 10, fence, NOW + 2)
    assert store.webhooks.list_due(NOW + 10) == ()
    (seen,) = store.webhooks.list_watched()
    assert seen.seen_seq == store.events.read_after(0)[-1].seq, "what happened before is no news of this project"
    # What a server has found for the last project is not written any more, and the events are considered again.
    assert store.webhooks.add([late], seen.seen_seq + 9, fence, NOW + 2, read) == 0
    assert store.webhooks.list_watched() == (seen,)
    read = {seen.id: seen.conditions_since}
    assert store.webhooks.add([late], seen.seen_seq + 9, fence, NOW + 2, read) == 1


def test_a_change_is_checked_as_a_whole(store: Store, fence: int) -> None:
    made, _ = store.webhooks.create(ENDED, ANN, NOW)
    with pytest.raises(BadField, match="never called"):
        store.webhooks.change(made.id, WebhookPatch(news=()), ANN, NOW)
    with pytest.raises(NotFound, match="no webhook"):
        store.webhooks.change(made.id, WebhookPatch(url=URL), BEN, NOW)
    with pytest.raises(Forbidden):
        store.webhooks.change(made.id, WebhookPatch(url=URL), EYE, NOW)
    hidden = store.projects.create(NewProject(name="hidden"), ADMIN, NOW).id
    with pytest.raises(BadField, match="its owner 'ann' does not see this project"):
        store.webhooks.change(made.id, WebhookPatch(project=hidden), ADMIN, NOW)
    assert store.webhooks.list(ANN) == (made,)
    own = store.projects.create(NewProject(name="own"), ANN, NOW).id
    assert store.webhooks.change(made.id, WebhookPatch(project=own), ADMIN, NOW).project == own
    assert store.webhooks.change(made.id, WebhookPatch(project=None), ANN, NOW).project is None


def test_a_user_has_a_maximum_of_webhooks(store: Store, fence: int) -> None:
    for _ in range(MAX_WEBHOOKS):
        store.webhooks.create(ENDED, ANN, NOW)
    with pytest.raises(Conflict, match="no user may have more"):
        store.webhooks.create(ENDED, ANN, NOW)
    store.webhooks.create(ENDED, BEN, NOW)


def test_a_webhook_goes_with_its_project(store: Store, fence: int) -> None:
    project = store.projects.create(NewProject(name="Digits"), ANN, NOW)
    made, _ = store.webhooks.create(WebhookSpec(url=URL, project=project.id, news=(News.FAILED,)), ANN, NOW)
    store.webhooks.add([message(store, made.id)], None, fence, NOW)
    store.projects.delete(project.id, ANN, NOW)
    assert store.webhooks.list(ADMIN) == ()
    assert store.webhooks.list_due(NOW) == ()


def test_a_new_webhook_has_seen_all_events_until_then(store: Store, fence: int) -> None:
    store.webhooks.create(ENDED, ANN, NOW)
    submit(store)
    store.webhooks.create(ENDED, BEN, NOW)
    first, second = (one.seen_seq for one in store.webhooks.list_watched())
    assert first < second == store.events.read_last_seq()


def test_a_cause_makes_one_message_with_the_event_that_was_considered(store: Store, fence: int) -> None:
    made, _ = store.webhooks.create(ENDED, ANN, NOW)
    upto = store.events.read_last_seq() + 7
    new = [message(store, made.id), message(store, made.id, "e2")]
    assert store.webhooks.add(new, upto, fence, NOW, {made.id: 0.0}) == 2
    assert store.webhooks.add([message(store, made.id)], upto - 1, fence, NOW, {made.id: 0.0}) == 0
    assert [one.seen_seq for one in store.webhooks.list_watched()] == [upto]
    assert store.webhooks.get(made.id, ANN).num_pending == 2


def test_events_are_not_considered_for_a_webhook_that_was_added_meanwhile(store: Store, fence: int) -> None:
    made, _ = store.webhooks.create(ENDED, ANN, NOW)
    late, _ = store.webhooks.create(ENDED, BEN, NOW)
    before = {one.id: one.seen_seq for one in store.webhooks.list_watched()}
    store.webhooks.add([], 99, fence, NOW, {made.id: 0.0})
    assert {one.id: one.seen_seq for one in store.webhooks.list_watched()} == {made.id: 99, late.id: before[late.id]}


def test_a_message_to_a_webhook_that_was_removed_is_left_out(store: Store, fence: int) -> None:
    made, _ = store.webhooks.create(ENDED, ANN, NOW)
    lost = message(store, made.id)
    store.webhooks.remove(made.id, ANN, NOW)
    assert store.webhooks.add([lost], 3, fence, NOW) == 0


def test_a_server_that_lost_the_lease_writes_nothing(store: Store, fence: int) -> None:
    made, _ = store.webhooks.create(ENDED, ANN, NOW)
    first = message(store, made.id)
    store.webhooks.add([first], None, fence, NOW)
    store.loop.end_lease(NOW)
    assert store.loop.take_lease("another", NOW + 1, 10) is not None
    seen = store.webhooks.list_watched()
    with pytest.raises(FencedOut):
        store.webhooks.add([message(store, made.id, "e2")], 99, fence, NOW)
    with pytest.raises(FencedOut):
        store.webhooks.record(pack(store, first), GOOD, None, fence, NOW)
    assert store.webhooks.list_watched() == seen
    assert [one.state for one in store.webhooks.list_deliveries(made.id, 9)] == ["pending"]


def test_messages_beyond_the_maximum_are_dropped_and_counted(store: Store, fence: int) -> None:
    made, _ = store.webhooks.create(ENDED, ANN, NOW)
    many = [message(store, made.id, f"e{number}") for number in range(MAX_PENDING + 3)]
    assert store.webhooks.add(many, None, fence, NOW) == MAX_PENDING
    # One that is known already is not counted as dropped, so that a repeated round counts nothing twice.
    assert store.webhooks.add([message(store, made.id, "e0")], None, fence, NOW) == 0
    found = store.webhooks.get(made.id, ANN)
    assert (found.num_pending, found.num_dropped) == (MAX_PENDING, 3)


def test_the_first_due_message_of_each_webhook_is_sent(store: Store, fence: int) -> None:
    one, _ = store.webhooks.create(ENDED, ANN, NOW)
    other, _ = store.webhooks.create(ENDED, BEN, NOW)
    first, second = message(store, one.id, "e1"), message(store, one.id, "e2")
    store.webhooks.add([first], None, fence, NOW)
    store.webhooks.add([second], None, fence, NOW + 1)
    third = message(store, other.id)
    store.webhooks.add([third], None, fence, NOW + 2)
    assert [due.id for due in store.webhooks.list_due(NOW)] == [first.id]
    due = store.webhooks.list_due(NOW + 5)
    assert [(one.id, one.owner) for one in due] == [(first.id, "ann"), (third.id, "ben")]
    store.webhooks.record(pack(store, first), GOOD, None, fence, NOW + 5)
    assert [one.id for one in store.webhooks.list_due(NOW + 5)] == [third.id, second.id]  # each webhook in turn
    store.accounts.change("ben", ADMIN, NOW, is_disabled=True)
    assert [one.id for one in store.webhooks.list_due(NOW + 5)] == [second.id]
    # The clock was set back by a day.
    assert [one.id for one in store.webhooks.list_due(NOW - 86_400)] == [second.id]


def test_a_webhook_is_held_back_after_a_failure_for_longer_each_time(store: Store, fence: int) -> None:
    made, _ = store.webhooks.create(ENDED, ANN, NOW)
    new = [message(store, made.id, f"e{number}") for number in range(9)]
    store.webhooks.add(new, None, fence, NOW)
    now, pauses = NOW, []
    for one in new[:7]:
        store.webhooks.record(pack(store, one), BAD, now + 21_600, fence, now)
        pause = next(s for s in range(400) if store.webhooks.list_due(now + s))
        pauses.append(pause)
        now += pause
    assert pauses == [10, 20, 40, 80, 160, 300, 300]
    store.webhooks.record(pack(store, new[7]), GOOD, None, fence, now)
    assert [one.id for one in store.webhooks.list_due(now)] == [new[8].id]


def test_deliveries_say_what_became_of_them(store: Store, fence: int) -> None:
    made, secret = store.webhooks.create(ENDED, ANN, NOW)
    new = message(store, made.id, body='{"a": 1}', job="j-37efnd0000")
    store.webhooks.add([new], None, fence, NOW)
    parcel = pack(store, new)
    assert (parcel.url, parcel.secret, parcel.body, parcel.num_tries) == (URL, secret, '{"a": 1}', 0)
    store.webhooks.record(pack(store, new), BAD, NOW + 10, fence, NOW + 1)
    (shown,) = store.webhooks.list_deliveries(made.id, 9)
    assert (shown.state, shown.num_tries, shown.tried_at, shown.next_at) == ("pending", 1, NOW + 1, NOW + 10)
    assert (shown.status, shown.error, shown.job) == (500, BAD.error, "j-37efnd0000")
    store.webhooks.record(parcel, BAD, None, fence, NOW + 10)
    assert store.webhooks.pack(new.id) is None
    # A late second record, of a try that this server has repeated, changes nothing.
    store.webhooks.record(parcel, GOOD, None, fence, NOW + 11)
    (shown,) = store.webhooks.list_deliveries(made.id, 9)
    assert (shown.state, shown.num_tries) == ("failed", 2)
    assert store.webhooks.get(made.id, ANN).num_failed == 1
    again = message(store, made.id, "e2")
    store.webhooks.add([again], None, fence, NOW + 12)
    store.webhooks.record(pack(store, again), GOOD, None, fence, NOW + 12)
    assert store.webhooks.list_deliveries(made.id, 1)[0].state == "delivered"


def test_old_deliveries_are_deleted_unless_their_job_still_waits(store: Store, fence: int) -> None:
    made, _ = store.webhooks.create(ENDED, ANN, NOW)
    waits = submit(store, name="waits")
    runs = start(store, fence, submit(store, name="runs"))
    kept = message(store, made.id, "w1", event=News.WAITING, job=waits.id)
    gone = [message(store, made.id, "w2", event=News.WAITING, job=runs.id), message(store, made.id)]
    pending = message(store, made.id, "e9")
    store.webhooks.add([kept, *gone, pending], None, fence, NOW)
    for one in (kept, *gone):
        store.webhooks.record(pack(store, one), GOOD, None, fence, NOW)
    later = NOW + 8 * 86_400
    store.retention.purge(fence, later, jobs_before=None, uploads_before=None, keys_before=later)
    assert {one.id for one in store.webhooks.list_deliveries(made.id, 9)} == {kept.id, pending.id}


def test_slots_before_a_decision_count_only_while_a_job_trains(store: Store, fence: int) -> None:
    times = itertools.count(1)

    def decide(job: Job, slots: int) -> int | None:
        """Return how many slots the job should have had before this decision."""
        write(store, fence, job, NOW + next(times), verdict=Verdict(slots, f"gets {slots}"))
        return store.webhooks.read_slots_before(job.id, store.events.read_last_seq())

    job = submit(store)
    assert decide(job, 4) is None  # it does not train yet
    job = write(store, fence, store.jobs.get(job.id), stage=Stage.STARTING, reason="its share")
    assert decide(job, 3) == 4
    job = write(store, fence, store.jobs.get(job.id), stage=Stage.RUNNING, reason="its workers train")
    assert decide(job, 2) == 3
    job = write(store, fence, store.jobs.get(job.id), stage=Stage.QUEUED, reason="a worker failed", is_retry=True)
    assert decide(job, 0) is None
    job = write(store, fence, store.jobs.get(job.id), stage=Stage.STARTING, reason="again")
    assert decide(job, 1) == 0
    write(store, fence, store.jobs.get(job.id), stage=Stage.QUEUED, reason="a worker failed", is_retry=True)
    job = write(store, fence, store.jobs.get(job.id), stage=Stage.STARTING, reason="again")
    assert decide(job, 2) is None  # it was queued since the last decision


def test_a_webhook_for_a_project_that_is_gone_or_hidden_is_refused(store: Store, fence: int) -> None:
    project = store.projects.create(NewProject(name="Digits"), ANN, NOW)
    with pytest.raises(NotFound):
        store.webhooks.create(WebhookSpec(url=URL, news=(News.ENDED,), project=project.id), BEN, NOW)
    store.projects.delete(project.id, ANN, NOW)
    with pytest.raises(NotFound):
        store.webhooks.create(WebhookSpec(url=URL, news=(News.ENDED,), project=project.id), ANN, NOW)


def test_tests_are_limited_and_the_last_ones_are_kept(store: Store, fence: int) -> None:
    made, _ = store.webhooks.create(ENDED, ANN, NOW)
    for minute in range(7):
        now = NOW + 60.0 * minute
        for number in range(10):
            parcel = store.webhooks.pack_test(made.id, "{}", f"m-{minute}-{number}", now)
            store.webhooks.record_test(parcel, GOOD, ANN, now)
        with pytest.raises(Conflict, match="10 times in the last minute"):
            store.webhooks.pack_test(made.id, "{}", "m-more", now + 59)
    assert len(store.webhooks.list_deliveries(made.id, 1_000)) == 50


def test_a_test_that_is_accepted_lets_pending_messages_go_at_once(store: Store, fence: int) -> None:
    made, _ = store.webhooks.create(ENDED, ANN, NOW)
    new = message(store, made.id)
    store.webhooks.add([new], None, fence, NOW)
    store.webhooks.record(pack(store, new), BAD, NOW + 21_600, fence, NOW)
    for outcome, due in ((BAD, []), (GOOD, [new.id])):
        parcel = store.webhooks.pack_test(made.id, "{}", f"m-{outcome.status}", NOW + 1)
        store.webhooks.record_test(parcel, outcome, ANN, NOW + 1)
        assert [one.id for one in store.webhooks.list_due(NOW + 1)] == due
