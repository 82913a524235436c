"""Checks instance groups, consumers and resource plans, which are queues of the platform. Changes no queue."""

from __future__ import annotations

from typing import Final

from legato.compat.wmla.rest.platform import Platform
from legato.compat.wmla.rest.refusals import Refusal
from legato.core.spelling import ask_whether

_NUM_SHOWN: Final = 20


async def check_group(platform: Platform, name: str, kind: str, status: int) -> None:
    """Raise Refusal unless the user may see a queue of this name.

    Args:
        platform: the platform's REST interface, with the client's token.
        name: of the queue.
        kind: the client's word for it, with a capital letter, such as "Consumer".
        status: of the refusal.

    Raises:
        Refusal: the user may see no such queue; the message lists the queues that the user may see.
    """
    known = sorted(queue["name"] for queue in (await platform.get("queues"))["items"])
    if name in known:
        return
    more = f" and {len(known) - _NUM_SHOWN} more" if len(known) > _NUM_SHOWN else ""
    allowed = f" You may use {', '.join(known[:_NUM_SHOWN])}{more}." if known else " You may not use any queue."
    raise Refusal(status, f"{kind} {name[:100]} not found.{ask_whether(name[:100], known)}{allowed}")
