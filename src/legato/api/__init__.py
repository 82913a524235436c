"""The records of the REST interface, shared by the server and the client. `docs/rest.md` describes their fields.

Times are seconds since 1970. None means that a value is not known. A client ignores fields that a newer server adds.
Stages, roles and kinds are strings here, so that a client also accepts values that a newer server adds; the server's
own records restrict such fields to the values that it sends.
"""

from __future__ import annotations

from typing import Final

API: Final = "/api/v1"
"""The beginning of all paths of this version."""
WARNING: Final = "X-Legato-Warning"
"""The header field in which the server warns the user, in an answer to a request that it has done."""
