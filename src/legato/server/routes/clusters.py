"""Routes of clusters that give machines to the pool: list them, and test one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from legato.api import API
from legato.api.pool import Cluster
from legato.control.records import Job
from legato.control.roles import Asker, Role, Submitter, check_is_admin, check_may_submit
from legato.core.errors import Conflict, NotFound
from legato.server.answers import Answer, Listed, responses
from legato.server.authentication import CurrentUser
from legato.server.bodies import Submission
from legato.server.cluster_tests import describe_submission, pack_program
from legato.server.routes.code import keep_code
from legato.server.routes.jobs import make_checked, submit_checked
from legato.server.services import Here, Services

router = APIRouter(prefix=API, tags=["pool"])


@router.get("/clusters", **responses(Listed[Cluster]))
def list_clusters(here: Here, asker: CurrentUser) -> Response:
    """List the clusters that give machines to the pool, with those that run, and those that wait and why.

    Only admins see what the last test has shown: it may have a line that the machine has written. Others see no
    machines of other users, only how many there are, and of ``owners`` only themselves.
    """
    found = here.store.pilots.read_states(here.now())
    return Answer(Listed(found if asker.role is Role.ADMIN else tuple(_hide(cluster, asker) for cluster in found)))


@router.post("/clusters/{cluster}/test", **responses(Job, 201, errors=(404, 409)))
async def test_cluster(cluster: str, here: Here, asker: CurrentUser) -> Response:
    """Begin to test a cluster: it gives one machine, on which a job trains ten steps. Returns this job.

    The field ``test`` of the cluster says what happens, and what has come out. To end the test, stop the job.
    """
    submitter = check_may_submit(asker)
    found = await run_in_threadpool(_find_ready, here, cluster, asker)
    packed = pack_program()

    async def chunks() -> AsyncIterator[bytes]:
        yield packed.content

    if not here.code.has(packed.sha256):
        async with here.code.receive(chunks(), packed.sha256) as archive, here.upload_turn:
            await run_in_threadpool(keep_code, here, archive, packed.sha256, submitter)
    return await run_in_threadpool(_submit, here, found, packed.sha256, len(packed.content), submitter)


def _hide(cluster: Cluster, asker: Asker) -> Cluster:
    cluster = cluster.only_of(asker.name)
    if cluster.test is None:
        return cluster
    return msgspec.structs.replace(cluster, test=msgspec.structs.replace(cluster.test, told=""))


def _find_ready(here: Services, kind: str, asker: Asker) -> Cluster:
    """Return a cluster that can be tested now."""
    check_is_admin("test a cluster", asker)
    states = {state.kind: state for state in here.store.pilots.read_states(here.now())}
    if kind not in states:
        known = f"It has: {', '.join(sorted(states))}." if states else "Its settings name none, or no server leads."
        raise NotFound(f"This server takes no machines from a cluster '{kind[:100]}'. {known}")
    running = here.store.jobs.find_test(kind)
    if running is not None:
        raise Conflict(f"Cannot test {states[kind].name}: job {running} tests it already. Wait, or stop that job.")
    test = states[kind].test
    if test is not None and not test.is_clean:
        raise Conflict(
            f"Cannot test {states[kind].name}: the machine of the last test is being given back. Try again in a minute."
        )
    return states[kind]


def _submit(here: Services, cluster: Cluster, code: str, num_bytes: int, asker: Submitter) -> Response:
    here.store.uploads.note(code, num_bytes, asker, here.now())
    fields = Submission(**describe_submission(cluster.kind, cluster.num_slots, code))
    return submit_checked(make_checked(fields, here, asker, is_test=True), here, asker, None, test_of=cluster.kind)
