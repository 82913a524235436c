"""The messages of webhooks: which webhook reports what, in which words, and when it is sent again. Reads no clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from legato.api.jobs import Event
from legato.control.records import Job
from legato.control.stages import ENDED, Stage
from legato.control.webhook_records import RETRY_S, News, Outcome, WatchedWebhook

_GONE: Final = 410
_MAX_REASON: Final = 2_000
_MINUTE_S: Final = 60.0
_HOUR_S: Final = 3_600.0
_HAS: Final[Mapping[Stage, str]] = {
    Stage.SUCCEEDED: "has succeeded",
    Stage.FAILED: "has failed",
    Stage.STOPPED: "was stopped",
}


def next_try(outcome: Outcome, num_tries: int, created_at: float, now: float) -> float | None:
    """Return when a message is sent again. None: it was accepted, or is given up.

    Args:
        outcome: of the last try.
        num_tries: number of tries, with the last one.
        created_at: when the message was written. While a webhook is held back, a message may have had few tries.
        now: seconds since 1970.

    >>> next_try(Outcome(500, "it failed"), 1, 90.0, 100.0), next_try(Outcome(500, "it failed"), 7, 90.0, 100.0)
    (110.0, None)
    """
    is_old = now - created_at > sum(RETRY_S) + RETRY_S[-1]
    if outcome.error is None or outcome.status == _GONE or num_tries > len(RETRY_S) or is_old:
        return None
    return now + RETRY_S[num_tries - 1]


class Watched:
    """The webhooks that are for a job, found fast for many jobs. Those of disabled users get nothing."""

    def __init__(self, these: Iterable[WatchedWebhook]) -> None:
        self._of_owner: dict[str, list[WatchedWebhook]] = {}
        self._of_project: dict[str, list[WatchedWebhook]] = {}
        for one in these:
            if one.disabled_at is not None:
                continue
            if one.project is None:
                self._of_owner.setdefault(one.owner, []).append(one)
            else:
                self._of_project.setdefault(one.project, []).append(one)

    def of(self, job: Job) -> Iterator[WatchedWebhook]:
        """Yield the webhooks for a job. The caller checks whether the owner still sees the project."""
        yield from self._of_owner.get(job.owner, ())
        if job.project is not None:
            yield from self._of_project.get(job.project, ())


def choose_news(webhook: WatchedWebhook, stage: Stage) -> News | None:
    """Return what a webhook reports when a job has come to a stage. None: nothing."""
    if stage is Stage.FAILED and News.FAILED in webhook.news:
        return News.FAILED
    return News.ENDED if stage in ENDED and News.ENDED in webhook.news else None


def crosses(before: int, after: int, below: int) -> bool:
    """Return whether a number of workers falls below a number.

    >>> crosses(4, 2, 3), crosses(2, 1, 3), crosses(2, 4, 3)
    (True, False, False)
    """
    return after < below <= before


def describe_end(job: Job, stage: Stage, event: Event) -> tuple[str, dict[str, Any]]:
    """Return the sentence and the fields of a message that a job has ended."""
    told = f"Job {job.owner}/{job.name} {_HAS.get(stage, f'is {stage}')}: {_shorten(event.reason)}."
    return told, _fields(job, event.time, event.reason, stage=stage, workers=0)


def describe_shrink(job: Job, event: Event, before: int, after: int, below: int) -> tuple[str, dict[str, Any]]:
    """Return the sentence and the fields of a message that a job has fewer workers.

    Args:
        job: the job.
        event: the decision.
        before: its workers before.
        after: its workers now.
        below: the number of which there are fewer.
    """
    workers = "1 worker" if after == 1 else f"{after or 'no'} workers"
    told = (
        f"Job {job.owner}/{job.name} has {workers} instead of {before}, fewer than {below}: {_shorten(event.reason)}."
    )
    return told, _fields(job, event.time, event.reason, workers=after, workers_before=before, below_workers=below)


def describe_wait(job: Job, waiting_s: float, now: float) -> tuple[str, dict[str, Any]]:
    """Return the sentence and the fields of a message that a job has waited for longer than ``waiting_s``."""
    reason = job.decided_reason or job.reason
    told = (
        f"Job {job.owner}/{job.name} has waited in queue {job.queue} for longer than {_render(waiting_s)}: "
        f"{_shorten(reason.removeprefix('waits: '))}."
    )
    fields = _fields(job, now, reason, workers=0, waiting_s=waiting_s, waits_since=job.staged_at)
    return told, fields


def describe_test(webhook: str, now: float) -> tuple[str, dict[str, Any]]:
    """Return the sentence and the fields of a test message."""
    return f"This is a test of webhook {webhook} of Legato.", {"time": now, "job": None}


def encode(delivery: str, event: News, text: str, fields: Mapping[str, Any], link: str | None) -> str:
    """Return the body of a message, as JSON.

    ``text`` is what Slack and Mattermost show; there, three characters have a meaning and are written otherwise.

    Args:
        delivery: id of the message.
        event: what it reports.
        text: a sentence.
        fields: what the sentence says, for programs.
        link: URL of the job's page in the console. None: not known.
    """
    shown = text if link is None else f"{text} {link}"
    for raw, safe in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        shown = shown.replace(raw, safe)
    return msgspec.json.encode({"id": delivery, "event": event, "text": shown, "url": link, **fields}).decode()


def _fields(
    job: Job, time: float, reason: str, *, workers: int, stage: Stage | None = None, **more: Any
) -> dict[str, Any]:
    told: dict[str, Any] = {
        "id": job.id,
        "name": job.name,
        "owner": job.owner,
        "queue": job.queue,
        "project": job.project,
    }
    told |= {"stage": stage or job.stage, "min_workers": job.min_workers, "max_workers": job.max_workers}
    return {"time": time, "reason": _shorten(reason), "job": {**told, "workers": workers}, **more}


def _shorten(reason: str) -> str:
    text = reason.strip().rstrip(".")
    return text if len(text) <= _MAX_REASON else f"{text[:_MAX_REASON]}…"


def _render(seconds: float) -> str:
    for unit, length in (("h", _HOUR_S), ("min", _MINUTE_S)):
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:g} {unit}"
    return f"{seconds:g} s"
