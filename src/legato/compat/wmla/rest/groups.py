"""Instance groups, consumers, resource plans: the queues of the platform by these names. Changes none."""

from __future__ import annotations

from typing import Final

from legato.compat.wmla.rest.platform import Platform
from legato.compat.wmla.rest.refusals import Refusal
from legato.core.spelling import ask_whether

_NUM_SHOWN: Final = 20


async def check_group(platform: Platform, name: str, kind: str, status: int) -> None:
    """Refuse a name that no queue has which the user may see; those that there are stand in the refusal.

    Args:
        platform: the REST of the platform, with the token of the client.
        name: of the queue.
        kind: what it was called, at the beginning of a sentence.
        status: of the refusal.

    Raises:
        Refusal: there is none.
    """
    known = sorted(queue["name"] for queue in (await platform.get("queues"))["items"])
    if name in known:
        return
    more = f" and {len(known) - _NUM_SHOWN} more" if len(known) > _NUM_SHOWN else ""
    there = f" You may use {', '.join(known[:_NUM_SHOWN])}{more}." if known else " There is none that you may use."
    raise Refusal(status, f"{kind} {name[:100]} not found.{ask_whether(name[:100], known)}{there}")
