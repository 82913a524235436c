"""Says to the driver of a job that this machine cannot even start an agent for it."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from typing import Final

import msgspec
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from legato.agent.orders import AgentOrder
from legato.core import agent_messages as messages
from legato.system.tls import choose_tls

_LIMIT_S: Final = 5.0


async def refuse_job(order: AgentOrder, reason: str) -> bool:
    """Say to the driver of an order, in place of the agent, why this machine cannot be used.

    Args:
        order: for the agent.
        reason: a sentence without its period, whose subject is the machine.

    Returns:
        Whether a driver knows it now.
    """
    hello = messages.AgentHello(
        node=order.node, identity=secrets.token_hex(16), devices=(), address=order.address, term=0
    )
    for url in order.urls:
        with contextlib.suppress(OSError, WebSocketException, TimeoutError, msgspec.DecodeError):
            async with (
                asyncio.timeout(_LIMIT_S),
                connect(
                    url,
                    additional_headers={"Authorization": f"Bearer {order.token}"},
                    compression=None,
                    proxy=None,
                    **choose_tls(order.certificate),
                ) as connection,
            ):
                await connection.send(messages.encode_agent_frame(hello))
                answer = await connection.recv()
                first = messages.decode_agent_request(answer.encode() if isinstance(answer, str) else answer)
                if not isinstance(first, messages.AgentWelcome):
                    return False
                await connection.send(messages.encode_agent_frame(messages.OpenRefused(reason=reason)))
                return True
    return False
