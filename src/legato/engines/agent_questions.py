"""Asks agents about the processes of their workers, and matches the answers with the questions."""

from __future__ import annotations

import asyncio
from typing import Final

from legato.core import agent_messages as messages
from legato.engines.agent_node import AgentNode
from legato.system.processes import Vital

_ANSWER_LIMIT_S: Final = 0.5


class AgentQuestions:
    """The questions that agents have not answered yet."""

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[dict[int, Vital]]] = {}
        self._num_asked = 0

    async def ask(self, node: AgentNode, workers: list[int]) -> dict[int, Vital]:
        """Return samples of the processes of workers of one machine; ``unreachable`` if it does not answer at once."""
        unreachable = dict.fromkeys(workers, Vital("unreachable", 0.0))
        if not node.is_open or node.connection is None:
            return unreachable
        self._num_asked += 1
        number, answer = self._num_asked, asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        node.send(messages.Examine(question=number, workers=tuple(workers)))
        try:
            return await asyncio.wait_for(answer, _ANSWER_LIMIT_S)
        except TimeoutError:
            return unreachable
        finally:
            del self._waiting[number]

    def note_answer(self, vitals: messages.Vitals) -> None:
        """Pass an agent's answer to its question, if that still waits."""
        answer = self._waiting.get(vitals.question)
        if answer is not None and not answer.done():
            answer.set_result({worker: Vital(*values) for worker, values in vitals.found.items()})  # type: ignore[arg-type]
