"""Webhooks and their deliveries, as records of the store. Knows no SQL and sends nothing.

Times are seconds since 1970.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from legato.control.roles import Asker, Role
from legato.core.errors import BadField

RETRY_S: Final = (10.0, 60.0, 300.0, 1_800.0, 7_200.0, 21_600.0)
"""Pauses between the tries to send a message. After the last one it is given up."""
_MIN_WAITING_S: Final = 1.0
_MAX_WAITING_S: Final = 366 * 86_400.0
_MAX_WORKERS: Final = 1_000_000


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


class WebhookPatch(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of a webhook; the fields are those of `WebhookSpec`. UNSET: no change."""

    url: str | msgspec.UnsetType = msgspec.UNSET
    project: str | msgspec.UnsetType | None = msgspec.UNSET
    news: tuple[News, ...] | msgspec.UnsetType = msgspec.UNSET
    below_workers: int | msgspec.UnsetType | None = msgspec.UNSET
    waiting_s: float | msgspec.UnsetType | None = msgspec.UNSET

    def apply(self, to: WebhookSpec) -> WebhookSpec:
        """Return a webhook with these changes."""
        given = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not msgspec.UNSET}
        return msgspec.structs.replace(to, **given)


def check_conditions(doing: str, spec: WebhookSpec) -> None:
    """Raise BadField unless a webhook has conditions, and all of them are possible.

    >>> check_conditions("add a webhook", WebhookSpec(url="https://example.org/hook"))
    Traceback (most recent call last):
      ...
    legato.core.errors.BadField: Cannot add a webhook that is never called. Give on=ended, on=failed, \
below_workers=NUMBER or waiting_s=SECONDS.
    >>> check_conditions("add a webhook", WebhookSpec(url="https://example.org/hook", below_workers=0))
    Traceback (most recent call last):
      ...
    legato.core.errors.BadField: Cannot use below_workers=0 for a webhook: it must be 1 to 1000000.
    """
    if not spec.news and spec.below_workers is None and spec.waiting_s is None:
        raise BadField(
            "on",
            f"Cannot {doing} that is never called. Give on=ended, on=failed, below_workers=NUMBER or "
            "waiting_s=SECONDS.",
        )
    if spec.below_workers is not None and not 1 <= spec.below_workers <= _MAX_WORKERS:
        told = f"Cannot use below_workers={spec.below_workers} for a webhook: it must be 1 to {_MAX_WORKERS}."
        raise BadField("below_workers", told)
    if spec.waiting_s is not None and not _MIN_WAITING_S <= spec.waiting_s <= _MAX_WAITING_S:
        told = f"it must be {_MIN_WAITING_S:g} to {_MAX_WAITING_S:.0f} seconds."
        raise BadField("waiting_s", f"Cannot use waiting_s={spec.waiting_s:g} for a webhook: {told}")


class WatchedWebhook(WebhookSpec, frozen=True, kw_only=True):
    """A webhook as the server that decides sees it.

    Args:
        role: the present role of the owner.
        disabled_at: since when the owner is disabled. None: the owner is not.
        seen_seq: the last event that was considered for it.
        conditions_since: when its project or ``waiting_s`` was changed last. 0: never.
    """

    id: str
    owner: str
    role: Role
    disabled_at: float | None
    seen_seq: int
    created_at: float
    conditions_since: float

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
