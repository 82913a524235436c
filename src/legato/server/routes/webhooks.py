"""Routes of webhooks: add, list, get, test and remove. The loop in `legato.server.webhooks` serves them."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from fastapi import APIRouter
from pydantic import BeforeValidator
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from legato.api import API
from legato.api.webhooks import Delivery, NewWebhook, Webhook, WebhookDetails
from legato.control.roles import check_may_act
from legato.control.webhook_records import News, WebhookSpec
from legato.core.errors import BadField
from legato.server.answers import Answer, Listed, responses
from legato.server.authentication import CurrentUser
from legato.server.bodies import Body, Count, Name, Seconds
from legato.server.services import Here
from legato.server.webhook_messages import describe_test, encode
from legato.server.webhook_sending import read_host, read_url

router = APIRouter(prefix=API, tags=["webhooks"])

_NUM_SHOWN: Final = 50
_MIN_WAITING_S: Final = 1.0
_MAX_WAITING_S: Final = 366 * 86_400.0
_MAX_WORKERS: Final = 1_000_000


def _as_tuple(value: object) -> object:
    return tuple(dict.fromkeys(value)) if isinstance(value, list) and len(value) <= len(News) else value


class NewWebhookBody(Body):
    """A webhook to add. ``docs/rest.md`` describes the fields."""

    url: str
    project: Name | None = None
    on: Annotated[tuple[Literal["ended", "failed"], ...], BeforeValidator(_as_tuple)] = ()
    below_workers: Count | None = None
    waiting_s: Seconds | None = None


@router.post("/webhooks", **responses(NewWebhook, 201, errors=(404, 409, 413, 415)))
def add_webhook(body: NewWebhookBody, here: Here, asker: CurrentUser) -> Response:
    """Add a webhook. Only this answer contains its secret."""
    check_may_act("add a webhook", asker)
    url = read_url(body.url)
    host = read_host(url)
    why = here.webhook_sender.refuse_literal(host)
    if why is not None:
        raise BadField(
            "url",
            f"Cannot use the URL of the webhook: {host} must not be reached: {why}. An administrator can allow "
            "internal networks by the setting webhook_networks.",
        )
    _check_conditions(body)
    project = None if body.project is None else here.store.projects.find(body.project, asker).id
    new = WebhookSpec(
        url=body.url,
        project=project,
        news=tuple(News(one) for one in body.on),
        below_workers=body.below_workers,
        waiting_s=body.waiting_s,
    )
    made, secret = here.store.webhooks.create(new, asker, here.now())
    return Answer(NewWebhook(made, secret), 201, {"Location": f"{API}/webhooks/{made.id}"})


@router.get("/webhooks", **responses(Listed[Webhook]))
def list_webhooks(here: Here, asker: CurrentUser) -> Response:
    """List your webhooks, for admins those of all users, the newest first."""
    return Answer(Listed(here.store.webhooks.list(asker)))


@router.get("/webhooks/{webhook}", **responses(WebhookDetails, errors=(404,)))
def get_webhook(webhook: str, here: Here, asker: CurrentUser) -> Response:
    """Return a webhook with its last deliveries."""
    found = here.store.webhooks.get(webhook, asker)
    deliveries = here.store.webhooks.list_deliveries(webhook, _NUM_SHOWN)
    return Answer(WebhookDetails(**msgspec.structs.asdict(found), deliveries=deliveries))


@router.post("/webhooks/{webhook}/test", **responses(Delivery, errors=(404, 409)))
async def test_webhook(webhook: str, here: Here, asker: CurrentUser) -> Response:
    """Send a test to a webhook now, once, and return what became of it."""
    check_may_act("test a webhook", asker)
    store = here.store.webhooks
    async with here.webhook_turns.of(asker.name):
        found = await run_in_threadpool(store.get, webhook, asker)
        now = here.now()
        delivery = store.make_delivery_id(now)
        body = encode(delivery, News.TEST, *describe_test(found.id, now), here.url or None)
        parcel = await run_in_threadpool(store.pack_test, found.id, body, delivery, now)
        outcome = await here.webhook_sender.send(parcel)
        return Answer(await run_in_threadpool(store.record_test, parcel, outcome, asker, here.now()))


@router.delete("/webhooks/{webhook}", **responses(None, 204, errors=(404,)))
def remove_webhook(webhook: str, here: Here, asker: CurrentUser) -> Response:
    """Remove a webhook with its deliveries. What is pending is not sent any more."""
    here.store.webhooks.remove(webhook, asker, here.now())
    return Response(status_code=204)


def _check_conditions(body: NewWebhookBody) -> None:
    if not body.on and body.below_workers is None and body.waiting_s is None:
        raise BadField(
            "on",
            "Cannot add a webhook that is never called. Give on=['ended'] or on=['failed'], below_workers or "
            "waiting_s.",
        )
    if body.below_workers is not None and not 1 <= body.below_workers <= _MAX_WORKERS:
        raise BadField("below_workers", f"below_workers must be 1 to {_MAX_WORKERS}, not {body.below_workers}.")
    if body.waiting_s is not None and not _MIN_WAITING_S <= body.waiting_s <= _MAX_WAITING_S:
        raise BadField(
            "waiting_s", f"waiting_s must be {_MIN_WAITING_S:g} to {_MAX_WAITING_S:g} seconds, not {body.waiting_s:g}."
        )
