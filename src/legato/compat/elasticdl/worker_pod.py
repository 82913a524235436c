"""What a worker's pod runs: the agent of its machine, ``python -m legato.compat.elasticdl.worker_pod --pod NAME``.

It waits until the master gives it an order. The master runs ``… --take-order`` in the pod for that, and writes the
order to its standard input: so the secret of the job is in no object of the cluster. What workers print is the pod's
log. After SIGTERM the agent stays until its worker has left the job.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import logging
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from legato.agent.agent import JOB_ENDED, RESULTS_KEPT, Agent, AgentFailedError
from legato.agent.orders import ORDER_FILE, AgentOrder, write_agent_order
from legato.compat.elasticdl.manifests import AGENT_FOLDER, AGENT_PLACE, GRACE_S, NO_ORDER
from legato.core.errors import LegatoError, UsageError
from legato.engines.gpus import find_devices
from legato.system.decoding import decode
from legato.system.plain_files import delete_tree
from legato.system.processes import boot_id, start_time_of

_log = logging.getLogger(__name__)

_PLACE: Final = Path(AGENT_PLACE)
_TERMINATION_LOG: Final = Path("/dev/termination-log")
_ORDER_LIMIT_S: Final = 600.0
_LOOK_EVERY_S: Final = 0.2
_AGAIN_S: Final = 5.0
_LEAVE_LIMIT_S: Final = GRACE_S - 5.0
_MAX_WAITING: Final = 1000  # pieces of output that the pod's log has not taken
_EXIT_UNFIT: Final = 2
_FIRST: Final = 1
"""The number of the first process of a container."""
_LIFE_LENGTH: Final = 12


def find_folder(pod: str) -> Path:
    """Return the folder of the agent in this life of its container, whatever ``TMPDIR`` is.

    If ``/tmp`` is a volume, it outlives the container. The agent of the next container must not use what is left there:
    the master counts all workers of the earlier container as ended, and knows the next one only by the order that it
    gives to it. Containers of a pod that share their processes (``shareProcessNamespace``) have one life.
    """
    life = hashlib.sha256(f"{boot_id()} {start_time_of(_FIRST)}".encode()).hexdigest()[:_LIFE_LENGTH]
    return _PLACE / f"{AGENT_FOLDER}{pod}-{life}"


def remove_earlier(pod: str) -> None:
    """Remove the folders of agents in earlier containers of this pod."""
    folder = find_folder(pod)
    for path in folder.parent.glob(f"{AGENT_FOLDER}{pod}-" + "?" * _LIFE_LENGTH):
        if path != folder and (failure := delete_tree(path)) is not None:
            _log.warning("What an earlier container has left in %s cannot be removed: %s", path, failure)


def main(words: Sequence[str] | None = None) -> int:
    """Run the agent of this pod to its end, or take an order for it; returns the exit code."""
    parser = argparse.ArgumentParser(description="The agent in a worker's pod of ElasticDL.")
    parser.add_argument("--pod", required=True, help="name of the pod")
    parser.add_argument("--gpus", type=int, default=0, help="number of GPUs that the pod must have")
    parser.add_argument("--take-order", action="store_true", help="read the order of the agent from standard input")
    options = parser.parse_args(words)
    if options.take_order:
        return take_order(options.pod, sys.stdin.buffer.readline())
    logging.basicConfig(level=logging.INFO, format="legato: %(message)s")
    # This logger reports each connection, which says nothing about the job.
    logging.getLogger("websockets").setLevel(logging.WARNING)
    if options.gpus and len(found := find_devices()) < options.gpus:
        _log.error(
            "This pod must have %d GPU, and Legato finds %d: check the device plugin, the runtime class, and that the "
            "image has torch with CUDA",
            options.gpus,
            len(found),
        )
        return _EXIT_UNFIT
    remove_earlier(options.pod)
    return asyncio.run(serve(find_folder(options.pod)))


def take_order(pod: str, line: bytes) -> int:
    """Keep an order for the agent of this pod; returns the exit code."""
    try:
        order = decode(line, AgentOrder).validate()
        if order.node != pod:
            raise UsageError(f"it is for pod {order.node}, and this is {pod}.")
        write_agent_order(find_folder(pod), order)
    except (LegatoError, OSError, msgspec.DecodeError) as error:
        sys.stderr.write(f"Cannot take the order of the master: {error}\n")
        return 1
    return 0


async def serve(folder: Path) -> int:
    """Wait for an order, and run the agent until its job has ended, or until SIGTERM and its worker has left."""
    leaving = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, leaving.set)
    deadline = time.monotonic() + _ORDER_LIMIT_S
    while not (folder / ORDER_FILE).exists():
        if time.monotonic() >= deadline:
            _log.error("This pod has waited %g s for its master, and ends: others can use its node", _ORDER_LIMIT_S)
            with contextlib.suppress(OSError):
                _TERMINATION_LOG.write_text(NO_ORDER)
            return 0
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(leaving.wait(), _LOOK_EVERY_S)
            return 0
    echo = _Echo()
    while True:
        agent = Agent(folder, echo=echo.put)
        running = asyncio.create_task(agent.run())
        letting_go = asyncio.create_task(_wait_until_free(agent, leaving))
        await asyncio.wait((running, letting_go), return_when=asyncio.FIRST_COMPLETED)
        letting_go.cancel()
        if not running.done():
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            return 0
        try:
            reason = running.result()
        except AgentFailedError as error:
            _log.error("%s It starts again in %g s", error, _AGAIN_S)
            await asyncio.sleep(_AGAIN_S)
            continue
        echo.close()
        _log.info("The agent ends: %s", reason)
        return 0 if reason in (JOB_ENDED, RESULTS_KEPT) else 1


async def _wait_until_free(agent: Agent, leaving: asyncio.Event) -> None:
    """Wait for SIGTERM, and then until no worker runs here, as long as Kubernetes lets this pod live."""
    await leaving.wait()
    _log.info("Kubernetes ends this pod: its worker leaves the job")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LEAVE_LIMIT_S):
            while agent.has_workers:  # noqa: ASYNC110 -- the engine has no event for it
                await asyncio.sleep(_LOOK_EVERY_S)


class _Echo:
    """Writes to the standard output in a thread, so that the agent never waits for it. What it cannot take is lost."""

    def __init__(self) -> None:
        self._waiting: queue.Queue[bytes | None] = queue.Queue(_MAX_WAITING)
        self._thread = threading.Thread(target=self._write_forever, daemon=True)
        self._thread.start()

    def put(self, data: bytes) -> None:
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(data)

    def close(self) -> None:
        """Write what is waiting, for some seconds at most."""
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)
        self._thread.join(_AGAIN_S)

    def _write_forever(self) -> None:
        while (data := self._waiting.get()) is not None:
            with contextlib.suppress(OSError):
                while data:
                    data = data[os.write(1, data) :]


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main())
