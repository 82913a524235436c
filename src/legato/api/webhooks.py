"""Webhooks: URLs that the server calls when something happens to a job, and what became of each call."""

from __future__ import annotations

import msgspec


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook, without its secret.

    Args:
        owner: the user who added it.
        url: the server sends a POST request to it.
        project: id of the project whose jobs it is for. None: the jobs of its owner.
        on: ``ended`` (a job has ended in any way), ``failed``, or both.
        below_workers: also when a job that trains is shrunk from this number of workers or more to fewer. None: never.
        waiting_s: also when a job has waited in its queue for so many seconds. None: never.
        num_pending: deliveries that were not accepted yet, and that the server will try or try again.
        num_failed: deliveries that the server has given up, in the last days.
        num_dropped: what was never sent, because too many deliveries were pending.
        tried_at: when a message was sent last, a test included. None: none was, in the last days.
        error: why this last try has failed, a sentence without its period. None: it was accepted, or there was none.
    """

    id: str
    owner: str
    url: str
    project: str | None
    on: tuple[str, ...]
    below_workers: int | None
    waiting_s: float | None
    created_at: float
    num_pending: int
    num_failed: int
    num_dropped: int
    tried_at: float | None = None
    error: str | None = None


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """A message to a webhook, and what became of it.

    Args:
        id: the same each time it is sent, so that receivers can ignore repeats.
        event: ``ended``, ``failed``, ``shrunk``, ``waiting`` or ``test``.
        job: id of the job. None: a test.
        state: ``pending``, ``delivered`` or ``failed`` (the server has given up).
        num_tries: how often it was sent.
        tried_at: when it was sent last. None: never.
        next_at: when it is sent next. None: never again.
        status: HTTP status of the last answer. None: there was none.
        error: why the last try has failed, a sentence without its period. None: it was accepted, or never sent.
    """

    id: str
    event: str
    job: str | None
    state: str
    created_at: float
    num_tries: int
    tried_at: float | None
    next_at: float | None
    status: int | None
    error: str | None


class WebhookDetails(Webhook, frozen=True, kw_only=True):
    """A webhook with its last deliveries, the newest first."""

    deliveries: tuple[Delivery, ...]


class NewWebhook(msgspec.Struct, frozen=True):
    """A new webhook with the secret that signs its messages. Only the answer that creates it contains the secret."""

    webhook: Webhook
    secret: str

    def __repr__(self) -> str:
        return f"NewWebhook(webhook={self.webhook!r}, secret='lgw_…')"
