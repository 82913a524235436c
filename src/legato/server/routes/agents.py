"""Routes of machines with agents: for admins, join tokens and drained machines; for agents, joining and reporting."""

from __future__ import annotations

import hashlib
import logging
from typing import Any, BinaryIO, Final, cast

import msgspec
from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.responses import Response

from legato.agent.code_cache import DIGEST_HEADER, digest_of
from legato.agent.orders import AgentOrder
from legato.api import API
from legato.api.pool import JoinToken, NewJoinToken
from legato.control.records import BEAT_EVERY_S, AgentReport
from legato.control.store import check_sha256
from legato.core.agent_messages import AGENT_PROTOCOL
from legato.core.errors import Forbidden, NotFound, Unauthenticated, UsageError
from legato.core.slots import check_node_labels, node_of
from legato.core.system_metrics import MachineMetrics
from legato.core.version import __version__
from legato.server.agent_orders import list_orders
from legato.server.answers import Answer, Listed, responses
from legato.server.authentication import CurrentUser, read_address
from legato.server.bodies import DrainBody, JoinBody, JoinTokenBody, ReportBody
from legato.server.code_archive import pack_code
from legato.server.ranges import answer_file
from legato.server.services import CODE, JOBS, Here, Services
from legato.server.tls import make_token_suffix
from legato.system.decoding import decode
from legato.system.tls import is_loopback

_log = logging.getLogger(__name__)

router = APIRouter(prefix=API, tags=["pool"])

_OPEN: Final[dict[str, Any]] = {"security": []}
_MAX_METRICS_BYTES: Final = 2**16
_BEARER: Final = "Bearer "
_FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")  # a proxy has sent the request


class Joined(msgspec.Struct, frozen=True):
    """The secret with which the agent of a machine authenticates from now on."""

    secret: str


class Orders(msgspec.Struct, frozen=True):
    """The jobs for which a machine must have an agent, and after how many seconds its next report is due.

    ``leave``: the server lets the machine go; its agent gives its slots back, and ends when no job holds them.
    ``takes_metrics``: reports may have samples of the machine; a server of an earlier release refuses them.
    """

    orders: tuple[AgentOrder, ...]
    beat_every_s: float
    leave: bool = False
    takes_metrics: bool = True


# ---------------------------------------------------------------- for admins


@router.post("/join-tokens", **responses(NewJoinToken, 201, errors=(413, 415)))
def create_join_token(body: JoinTokenBody, here: Here, asker: CurrentUser) -> Response:
    """Create a token with which machines join the pool."""
    now = here.now()
    made = here.store.agents.create_token(asker, now, expires_at=now + body.expires_in_s)
    suffix = make_token_suffix(here.settings, here.ca)
    return Answer(msgspec.structs.replace(made, secret=f"{made.secret}{suffix}"), 201)


@router.get("/join-tokens", **responses(Listed[JoinToken]))
def list_join_tokens(here: Here, asker: CurrentUser) -> Response:
    """List the join tokens, the newest first."""
    return Answer(Listed(here.store.agents.list_tokens(asker)))


@router.delete("/join-tokens/{token}", **responses(None, 204, errors=(404,)))
def revoke_join_token(token: str, here: Here, asker: CurrentUser) -> Response:
    """Let no further machine join with a token."""
    here.store.agents.revoke_token(token, asker, here.now())
    return Response(status_code=204)


@router.post("/nodes/{node}/drain", **responses(None, 204, errors=(404, 413, 415)))
def drain_node(node: str, body: DrainBody, here: Here, asker: CurrentUser) -> Response:
    """Stop using a machine: jobs shrink off it, and none is stopped."""
    here.store.agents.drain(node, body.reason, asker, here.now())
    return Response(status_code=204)


@router.post("/nodes/{node}/resume", **responses(None, 204, errors=(404,)))
def resume_node(node: str, here: Here, asker: CurrentUser) -> Response:
    """Use a drained machine again."""
    here.store.agents.resume(node, asker, here.now())
    return Response(status_code=204)


@router.delete("/nodes/{node}", **responses(None, 204, errors=(404, 409)))
def remove_node(node: str, here: Here, asker: CurrentUser) -> Response:
    """Remove a machine whose agent has left or does not answer. It then needs a join token again."""
    here.store.agents.remove(node, asker, here.now())
    return Response(status_code=204)


# ---------------------------------------------------------------- for agents


@router.post("/agents/join", openapi_extra=_OPEN, **responses(Joined, errors=(409, 413, 415)))
async def join_pool(body: JoinBody, request: Request, here: Here) -> Response:
    """Let a machine join the pool with a join token."""
    if abs(body.protocol - AGENT_PROTOCOL) > 1:
        raise UsageError(
            f"Cannot join: this agent is of Legato {body.version[:64]}, and the server of {__version__}. Install the "
            "server's release on this machine."
        )
    _check_encrypted(request, here)
    _check_users(here)
    _check_reachable(request, here)
    secret = await here.authenticator.join(body.token, body.node, body.identity, read_address(request.scope))
    return Answer(Joined(secret))


@router.post("/agents/report", openapi_extra=_OPEN, **responses(Orders, errors=(413, 415)))
async def report_machine(body: ReportBody, request: Request, here: Here) -> Response:
    """Keep the report of an agent; return the jobs for which its machine must have an agent."""
    _check_encrypted(request, here)
    node = await _authenticate(request, here)
    _check_users(here)
    check_node_labels(body.labels)
    said = AgentReport(**body.model_dump(exclude={"metrics"}))
    if body.metrics is not None and (metrics := _read_metrics(node, body.metrics)) is not None:
        here.node_samples.note(node, metrics, here.now())

    def work() -> tuple[tuple[AgentOrder, ...], bool]:
        is_let_go = here.store.agents.report(node, said, here.now())
        jobs = {found.job for found in here.store.pool.list_open() if node_of(found.slot) == node}
        return list_orders(here.settings.home_path / JOBS, node, jobs, here.node), is_let_go

    orders, is_let_go = await run_in_threadpool(work)
    return Answer(Orders(orders, BEAT_EVERY_S, is_let_go))


@router.get("/agents/code/{sha256}", openapi_extra=_OPEN, **responses(None, errors=(404,)))
async def download_code_of_job(sha256: str, request: Request, here: Here) -> Response:
    """Return the code of a job that holds slots of the agent's machine, as a zip file."""
    _check_encrypted(request, here)
    node = await _authenticate(request, here)
    check_sha256(sha256)

    def work() -> tuple[BinaryIO, str]:
        held = {found.job for found in here.store.pool.list_open() if node_of(found.slot) == node}
        if not any(order.code == sha256 for order in list_orders(here.settings.home_path / JOBS, node, held)):
            raise NotFound("No job with this code holds a slot of this machine.")
        packed = pack_code(here.settings.home_path / CODE / sha256)
        packed.seek(0)
        return packed, digest_of(hashlib.file_digest(cast("Any", packed), "sha256"))

    try:
        async with here.upload_turn:
            packed, digest = await run_in_threadpool(work)
    except FileNotFoundError as error:
        raise NotFound("This code was deleted.") from error
    # All of it: the digest is not that of a range.
    answer = answer_file(packed, f"code-{sha256[:12]}.zip", Headers(), is_head=False)
    answer.headers[DIGEST_HEADER] = digest
    return answer


def _read_metrics(node: str, given: dict[str, Any]) -> MachineMetrics | None:
    """Return the metrics of a report; None: they cannot be read, and the rest of the report counts without them."""
    try:
        # Encoded again, because a body can have NaN, which JSON has not.
        content = msgspec.json.encode(given)
        if len(content) <= _MAX_METRICS_BYTES:
            return decode(content, MachineMetrics)
        why = f"they have more than {_MAX_METRICS_BYTES} bytes"
    except (msgspec.MsgspecError, OverflowError, RecursionError) as error:
        why = str(error)
    _log.warning("The metrics of machine '%s' are left out: %s", node, why)
    return None


def _check_reachable(request: Request, here: Services) -> None:
    """Raise Forbidden if an agent of another machine would look for drivers, with their tokens, on its own machine."""
    host = here.settings.host
    if is_loopback(host) and (_is_forwarded(request) or not is_loopback(read_address(request.scope))):
        raise Forbidden(
            f"Cannot join: jobs of this server listen at {host} only, where other machines cannot reach them. Set host "
            "to 0.0.0.0 or to an address of the server in the network of its machines."
        )


def _is_forwarded(request: Request) -> bool:
    """Return whether a proxy has sent a request, trusted or not: the address is not that of the machine then."""
    return any(name in request.headers for name in _FORWARDED)


def _check_users(here: Services) -> None:
    """Raise Forbidden if other machines cannot run the jobs of this server."""
    if here.settings.run_jobs_as == "pool":
        raise Forbidden(
            "This server takes no machines with agents: it gives the users of its jobs numbers (run_jobs_as=pool), "
            "which other machines do not know. Set run_jobs_as=submitter on the server, and give each user an account "
            "on each machine."
        )


def _check_encrypted(request: Request, here: Services) -> None:
    """Raise Forbidden if secrets of jobs would cross a network unencrypted, unless the operator allows that."""
    is_here = is_loopback(read_address(request.scope)) and not _is_forwarded(request)
    is_safe = request.url.scheme == "https" or is_here
    if not is_safe and not here.settings.allow_plain_agents:
        raise Forbidden(
            "This machine reaches the server without TLS, so others in the network could read the secrets of jobs. Set "
            "tls=own on the server, or use a proxy with TLS that is in trusted_proxies, and join with a new token and "
            "https. On a network that you trust, set allow_plain_agents=true on the server instead."
        )


async def _authenticate(request: Request, here: Services) -> str:
    """Return the machine of the agent that sends a request."""
    shown = request.headers.get("Authorization", "")
    if not shown.startswith(_BEARER):
        raise Unauthenticated("The request has no secret of an agent in its header 'Authorization: Bearer'.")
    return await here.authenticator.recognize_agent(shown.removeprefix(_BEARER), read_address(request.scope))
