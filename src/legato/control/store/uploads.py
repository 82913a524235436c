"""Uploaded code in the store: its SHA-256, and its users. The bytes are files elsewhere.

A user's jobs may use an upload if the user has sent its bytes, has a job with it already, or sees a project with a
training definition that uses it; admins may use all. For other users it does not exist, because knowing a SHA-256 must
not give access to the content.
"""

from __future__ import annotations

import re
from typing import Final

from sqlalchemy import ColumnElement, func, or_, select, true, update

from legato.api.outputs import Upload
from legato.control.roles import Asker, Role, Submitter
from legato.control.store.database import Database
from legato.control.store.rows import read_one
from legato.control.store.schema import code_holders, code_uploads, definitions, jobs, projects
from legato.control.store.transactions import writing
from legato.control.store.visibility import sees_project
from legato.core.errors import Conflict, NotFound, UsageError

_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class Uploads:
    """Uploaded code of jobs, stored once for each content."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def note(self, sha256: str, num_bytes: int, asker: Submitter, now: float) -> Upload:
        """Record that the complete code is stored, and that the asker has sent it. Repeated calls change nothing.

        Raises:
            UsageError: it is no SHA-256.
        """
        check_sha256(sha256)
        with writing(self._database, now) as transaction:
            row = {"sha256": sha256, "num_bytes": num_bytes, "uploaded_by": asker.name}
            if transaction.insert_new(code_uploads, row | {"created_at": now, "used_at": now}):
                transaction.audit(asker.name, "code.upload", sha256, {"num_bytes": num_bytes})
            else:
                this = code_uploads.c.sha256 == sha256
                transaction.connection.execute(update(code_uploads).where(this).values(used_at=now))
            transaction.insert_new(code_holders, {"sha256": sha256, "user": asker.name})
            found = read_one(
                transaction.connection, select(code_uploads).where(code_uploads.c.sha256 == sha256), Upload
            )
            assert found is not None, f"upload {sha256} is gone in the transaction that noted it"
            return found

    def get(self, sha256: str, asker: Asker) -> Upload:
        """Return an upload.

        Raises:
            NotFound: there is none that the asker may use.
            UsageError: it is no SHA-256.
        """
        check_sha256(sha256)
        statement = select(code_uploads).where(code_uploads.c.sha256 == sha256, may_use(asker))
        with self._database.reading() as connection:
            found = read_one(connection, statement, Upload)
        if found is None:
            raise missing_code(sha256)
        return found

    def check_room(self, sha256: str, num_bytes: int, asker: Asker, max_bytes: int | None) -> None:
        """Check that a user may store one more upload. Does not limit admins.

        Args:
            sha256: of the upload. If the asker has it already, it counts once.
            num_bytes: of the upload.
            asker: the user who uploads.
            max_bytes: of all uploads of one user. None: no limit.

        Raises:
            Conflict: the uploads would be larger than allowed.
        """
        if max_bytes is None or asker.role is Role.ADMIN:
            return
        held = select(func.coalesce(func.sum(code_uploads.c.num_bytes), 0)).join(code_holders)
        held = held.where(code_holders.c.user == asker.name, code_uploads.c.sha256 != sha256)
        with self._database.reading() as connection:
            num_held: int = connection.execute(held).scalar_one()
        if num_held + num_bytes > max_bytes:
            raise Conflict(
                f"Cannot take the upload of {num_bytes} bytes: '{asker.name}' has {num_held} bytes of uploaded code "
                f"already, and may have {max_bytes}. Leave out what the program does not need (.legatoignore), or ask "
                "the operator to raise upload_quota_bytes; code that no job uses is deleted after some days."
            )


def may_use(asker: Asker) -> ColumnElement[bool]:
    """Return the condition for uploads that jobs of the asker may use."""
    if asker.role is Role.ADMIN:
        return true()
    sent = select(code_holders.c.sha256).where(code_holders.c.user == asker.name)
    used = select(jobs.c.code).where(jobs.c.code == code_uploads.c.sha256, jobs.c.owner == asker.name)
    shared = select(definitions.c.code).join(projects, projects.c.id == definitions.c.project)
    shared = shared.where(definitions.c.code == code_uploads.c.sha256, sees_project(asker.name))
    return or_(
        code_uploads.c.sha256.in_(sent),
        used.correlate(code_uploads).exists(),
        shared.correlate(code_uploads).exists(),
    )


def missing_code(sha256: str) -> NotFound:
    """Return the error for code that does not exist or that the user may not use. The message is the same for both."""
    return NotFound(f"You have not uploaded the code {sha256}. Upload it first.")


def check_sha256(text: str) -> None:
    """Raise UsageError unless the text is a SHA-256 in lower case, because it becomes part of a path."""
    if not _SHA256.fullmatch(text):
        raise UsageError(f"Cannot use '{text[:80]}' as a SHA-256: give its 64 digits, 0 to 9 and a to f.")
