"""Asks agents about the processes of their workers, and matches the answers with the questions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Final

from legato.core import agent_messages as messages
from legato.engines.agent_node import AgentNode
from legato.system.processes import Vital

_ANSWER_LIMIT_S: Final = 0.5


class AgentQuestions:
    """The questions that agents have not answered yet."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, int], asyncio.Future[dict[int, Vital]]] = {}
        self._num_asked = 0

    async def examine(self, workers: Collection[int], node_with: Callable[[int], AgentNode | None]) -> dict[int, Vital]:
        """Return samples of the processes of workers; ``unreachable`` if a machine does not answer at once.

        Args:
            workers: their numbers.
            node_with: returns the machine of a worker; None if it is on none.
        """
        asked: dict[str, tuple[AgentNode, list[int]]] = {}
        for worker in workers:
            if (node := node_with(worker)) is not None:
                asked.setdefault(node.spec.name, (node, []))[1].append(worker)
        found: dict[int, Vital] = {}
        for answer in await asyncio.gather(*(self.ask(node, of) for node, of in asked.values())):
            found |= answer
        return found

    async def ask(self, node: AgentNode, workers: list[int]) -> dict[int, Vital]:
        """Return samples of the processes of workers of one machine; ``unreachable`` if it does not answer at once."""
        unreachable = dict.fromkeys(workers, Vital("unreachable", 0.0))
        if not node.is_open or node.connection is None:
            return unreachable
        self._num_asked += 1
        key, answer = (node.spec.name, self._num_asked), asyncio.get_running_loop().create_future()
        self._waiting[key] = answer
        node.send(messages.Examine(question=self._num_asked, workers=tuple(workers)))
        try:
            found = await asyncio.wait_for(answer, _ANSWER_LIMIT_S)
            return {worker: found[worker] for worker in workers if worker in found}
        except TimeoutError:
            return unreachable
        finally:
            del self._waiting[key]

    def note_answer(self, node: AgentNode, vitals: messages.Vitals) -> None:
        """Pass an agent's answer to its question, if that still waits. What it says of other machines is ignored."""
        answer = self._waiting.get((node.spec.name, vitals.question))
        if answer is not None and not answer.done():
            answer.set_result({worker: Vital(*values) for worker, values in vitals.found.items()})  # type: ignore[arg-type]
