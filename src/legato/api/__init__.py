"""The records of the REST interface, once for the server and for the client: the fields that `docs/rest.md` promises.

Times are seconds since 1970. None stands for what is not known. A client ignores fields that a newer server adds, and
reads a word that it does not know (of a stage, a role or a kind) as text. The server narrows such fields to the words
that it writes.
"""

from __future__ import annotations

from typing import Final

API: Final = "/api/v1"
"""Where the paths of this version begin."""
