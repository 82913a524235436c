"""Requests about webhooks. Calls none: the server does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from legato.api.lists import Page
from legato.api.webhooks import Delivery, NewWebhook, Webhook, WebhookDetails
from legato.client.connection import Line
from legato.client.lists import Listing
from legato.client.paths import name_path


class WebhookCalls:
    """A part of `legato.Client`."""

    _line: Line

    def add_webhook(
        self,
        url: str,
        *,
        on: Sequence[str] = (),
        below_workers: int | None = None,
        waiting_s: float | None = None,
        project: str | None = None,
    ) -> NewWebhook:
        """Add a webhook: the server sends a POST request to a URL when something happens to a job.

        At least one of the conditions must be given. Only this answer has the secret that signs the messages.

        Args:
            url: ``https://…`` or ``http://…``.
            on: ``ended`` (in any way), ``failed``, or both.
            below_workers: also when a job that trains is shrunk from this number of workers or more to fewer.
            waiting_s: also when a job has waited in its queue for so many seconds.
            project: id or name; for the jobs of this project. None: for your jobs.
        """
        body = {"url": url, "on": list(on), "below_workers": below_workers, "waiting_s": waiting_s, "project": project}
        return self._line.ask(NewWebhook, "POST", "/webhooks", body=body, is_repeatable=False)

    def webhooks(self) -> Listing[Webhook]:
        """Return your webhooks, for admins those of all users, the newest first."""
        return Listing(self._line.ask(Page[Webhook], "GET", "/webhooks").items)

    def webhook(self, webhook: str) -> WebhookDetails:
        """Return a webhook by its id, with its last deliveries and their errors."""
        return self._line.ask(WebhookDetails, "GET", name_path("webhook", webhook))

    def change_webhook(
        self,
        webhook: str,
        *,
        url: str | None = None,
        on: Sequence[str] | None = None,
        below_workers: int | Literal["none"] | None = None,
        waiting_s: float | Literal["none"] | None = None,
        project: str | None = None,
    ) -> Webhook:
        """Change a webhook; None keeps a value. Its secret stays, and what is pending goes to the new URL.

        Args:
            webhook: its id.
            url: ``https://…`` or ``http://…``.
            on: all ends that it reports; the list replaces the old one.
            below_workers: as in `add_webhook`; ``none``: not any more.
            waiting_s: likewise.
            project: id or name; for the jobs of this project. ``none``: for the jobs of the webhook's owner.
        """
        said: dict[str, Any] = {"url": url, "on": None if on is None else list(on)}
        said |= {"below_workers": below_workers, "waiting_s": waiting_s, "project": project}
        body = {name: None if value == "none" else value for name, value in said.items() if value is not None}
        return self._line.ask(Webhook, "PATCH", name_path("webhook", webhook), body=body)

    def test_webhook(self, webhook: str) -> Delivery:
        """Have the server send a test to a webhook now, once, and return what became of it."""
        return self._line.ask(Delivery, "POST", f"{name_path('webhook', webhook)}/test", is_repeatable=False)

    def remove_webhook(self, webhook: str) -> None:
        """Remove a webhook. What is pending is not sent any more."""
        self._line.send("DELETE", name_path("webhook", webhook))
