"""Webhooks and their deliveries, as records of the store. Knows no SQL and sends nothing.

Times are seconds since 1970.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from legato.control.roles import Asker, Role

RETRY_S: Final = (10.0, 60.0, 300.0, 1_800.0, 7_200.0, 21_600.0)
"""Pauses between the tries to send a message. After the last one it is given up."""


class News(enum.StrEnum):
    """What a message to a webhook reports."""

    ENDED = "ended"  # in any way
    FAILED = "failed"
    SHRUNK = "shrunk"  # below the number of workers that the webhook names
    WAITING = "waiting"  # for longer than the webhook says
    TEST = "test"


class WebhookSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook to add; the fields are those of `legato.api.webhooks.Webhook`, and ``news`` is its ``on``."""

    url: str
    project: str | None = None
    news: tuple[News, ...] = ()
    below_workers: int | None = None
    waiting_s: float | None = None


class WatchedWebhook(WebhookSpec, frozen=True, kw_only=True):
    """A webhook as the server that decides sees it.

    Args:
        role: the present role of the owner.
        disabled_at: since when the owner is disabled. None: the owner is not.
        seen_seq: the last event that was considered for it.
    """

    id: str
    owner: str
    role: Role
    disabled_at: float | None
    seen_seq: int
    created_at: float

    @property
    def asker(self) -> Asker:
        """The owner, who gets only what the owner may see."""
        return Asker(self.owner, self.role)


class NewDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """A message to send.

    Args:
        cause: what it reports. A webhook gets one message for each cause, however often it is found.
        body: JSON.
    """

    id: str
    webhook: str
    cause: str
    event: News
    job: str | None
    body: str


class DueDelivery(msgspec.Struct, frozen=True):
    """A message whose time to be sent has come. ``owner``: of the webhook."""

    id: str
    webhook: str
    owner: str


class Parcel(msgspec.Struct, frozen=True, kw_only=True):
    """All that is needed to send a message.

    Args:
        num_tries: how often it was sent already.
        owner: of the webhook.
        role: the present role of the owner.
        project: of the webhook.
    """

    id: str
    webhook: str
    event: News
    url: str
    secret: str
    body: str
    num_tries: int
    created_at: float
    owner: str
    role: Role
    project: str | None = None


class Outcome(msgspec.Struct, frozen=True):
    """What became of a try to send a message.

    Args:
        status: HTTP status of the answer. None: there was none.
        error: why the message was not accepted, a sentence without its period. None: it was.
    """

    status: int | None
    error: str | None
