"""Routes of webhooks: add, list, get, change, test and remove. The loop in `legato.server.webhooks` serves them."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from fastapi import APIRouter
from pydantic import BeforeValidator
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from legato.api import API
from legato.api.webhooks import Delivery, NewWebhook, Webhook, WebhookDetails
from legato.control.roles import check_may_act
from legato.control.webhook_records import News, WebhookPatch, WebhookSpec, check_conditions
from legato.core.errors import BadField
from legato.server.answers import Answer, Listed, responses
from legato.server.authentication import CurrentUser
from legato.server.bodies import Body, Count, Name, Seconds
from legato.server.services import Here, Services
from legato.server.webhook_messages import describe_test, encode
from legato.server.webhook_sending import read_host, read_url

router = APIRouter(prefix=API, tags=["webhooks"])

_NUM_SHOWN: Final = 50


def _as_tuple(value: object) -> object:
    return tuple(dict.fromkeys(value)) if isinstance(value, list) and len(value) <= len(News) else value


class NewWebhookBody(Body):
    """A webhook to add. ``docs/rest.md`` describes the fields."""

    url: str
    project: Name | None = None
    on: Annotated[tuple[Literal["ended", "failed"], ...], BeforeValidator(_as_tuple)] = ()
    below_workers: Count | None = None
    waiting_s: Seconds | None = None


class WebhookPatchBody(Body):
    """A merge patch of a webhook. Missing fields stay as they are."""

    url: str = ""
    project: Name | None = None
    on: Annotated[tuple[Literal["ended", "failed"], ...], BeforeValidator(_as_tuple)] = ()
    below_workers: Count | None = None
    waiting_s: Seconds | None = None


@router.post("/webhooks", **responses(NewWebhook, 201, errors=(404, 409, 413, 415)))
def add_webhook(body: NewWebhookBody, here: Here, asker: CurrentUser) -> Response:
    """Add a webhook. Only this answer contains its secret."""
    check_may_act("add a webhook", asker)
    _check_url(body.url, here)
    new = WebhookSpec(
        url=body.url,
        news=tuple(News(one) for one in body.on),
        below_workers=body.below_workers,
        waiting_s=body.waiting_s,
    )
    check_conditions("add a webhook", new)
    if body.project is not None:
        new = msgspec.structs.replace(new, project=here.store.projects.find(body.project, asker).id)
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


@router.patch("/webhooks/{webhook}", **responses(Webhook, errors=(404, 413, 415)))
def change_webhook(webhook: str, body: WebhookPatchBody, here: Here, asker: CurrentUser) -> Response:
    """Change a webhook, as a merge patch. Its secret stays, and what is pending goes to the new URL."""
    check_may_act("change a webhook", asker)
    given: dict[str, Any] = {name: getattr(body, name) for name in body.model_fields_set}
    if "url" in given:
        _check_url(body.url, here)
    if "on" in given:
        given["news"] = tuple(News(one) for one in given.pop("on"))
    if body.project is not None:
        given["project"] = here.store.projects.find(body.project, asker).id
    return Answer(here.store.webhooks.change(webhook, WebhookPatch(**given), asker, here.now()))


@router.delete("/webhooks/{webhook}", **responses(None, 204, errors=(404,)))
def remove_webhook(webhook: str, here: Here, asker: CurrentUser) -> Response:
    """Remove a webhook with its deliveries. What is pending is not sent any more."""
    here.store.webhooks.remove(webhook, asker, here.now())
    return Response(status_code=204)


def _check_url(given: str, here: Services) -> None:
    """Raise an error if no message may be sent to a URL."""
    host = read_host(read_url(given))
    why = here.webhook_sender.refuse_literal(host)
    if why is not None:
        raise BadField(
            "url",
            f"Cannot use the URL of the webhook: {host} must not be reached: {why}. An administrator can allow "
            "internal networks by the setting webhook_networks.",
        )
