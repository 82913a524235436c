"""Routes of requests for access to projects of other users. The store checks permissions."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from legato.api import API
from legato.api.projects import AccessRequest, ProjectOwner
from legato.server.answers import Answer, Listed, responses
from legato.server.authentication import CurrentUser
from legato.server.project_bodies import AccessBody, GrantBody
from legato.server.services import Here

router = APIRouter(prefix=API, tags=["projects"])


@router.get("/project-owners", **responses(Listed[ProjectOwner]))
def list_project_owners(here: Here, asker: CurrentUser) -> Response:
    """List the users whom you can ask for access to their training definitions."""
    return Answer(Listed(here.store.access_requests.list_owners(asker)))


@router.get("/access-requests", **responses(Listed[AccessRequest]))
def list_access_requests(here: Here, asker: CurrentUser) -> Response:
    """List the requests for access that you have sent or received, the newest first."""
    return Answer(Listed(here.store.access_requests.list(asker)))


@router.post("/access-requests", **responses(AccessRequest, 201, also=(200,), errors=(404, 409, 413, 415)))
def ask_for_access(body: AccessBody, here: Here, asker: CurrentUser) -> Response:
    """Ask a user for access to a project. If you have an open request to that user, it is the answer."""
    made, is_new = here.store.access_requests.ask(body.owner, body.message, asker, here.now())
    return Answer(made, 201 if is_new else 200)


@router.post("/access-requests/{request}/grant", **responses(AccessRequest, errors=(404, 409, 413, 415)))
def grant_access(request: str, body: GrantBody, here: Here, asker: CurrentUser) -> Response:
    """Grant a request: its user becomes a member of the project."""
    project = here.store.projects.find(body.project, asker)
    return Answer(here.store.access_requests.grant(request, project.id, asker, here.now()))


@router.post("/access-requests/{request}/decline", **responses(AccessRequest, errors=(404, 409)))
def decline_access(request: str, here: Here, asker: CurrentUser) -> Response:
    """Decline a request."""
    return Answer(here.store.access_requests.decline(request, asker, here.now()))


@router.delete("/access-requests/{request}", **responses(None, 204, errors=(404,)))
def withdraw_access_request(request: str, here: Here, asker: CurrentUser) -> Response:
    """Withdraw a request that you have sent."""
    here.store.access_requests.withdraw(request, asker, here.now())
    return Response(status_code=204)
