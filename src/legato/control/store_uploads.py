"""Uploaded code, as the store keeps it: which there is, by its SHA-256. The bytes are files elsewhere."""

from __future__ import annotations

import re
from typing import Final

from sqlalchemy import select, update

from legato.control.database import Database
from legato.control.records import Upload
from legato.control.roles import Asker, check_may_submit
from legato.control.schema import code_uploads
from legato.control.transactions import read_one, writing
from legato.core.errors import NotFound, UsageError

_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class Uploads:
    """Code that jobs run, each content once."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def note(self, sha256: str, num_bytes: int, asker: Asker, now: float) -> Upload:
        """Note that the code lies in its place, whole; again is as good as once.

        Raises:
            UsageError: it is no SHA-256.
            Forbidden: the asker may not submit.
        """
        check_may_submit(asker)
        check_sha256(sha256)
        with writing(self._database, now) as transaction:
            row = {"sha256": sha256, "num_bytes": num_bytes, "uploaded_by": asker.name}
            if transaction.insert_new(code_uploads, row | {"created_at": now, "used_at": now}):
                transaction.audit(asker.name, "code.upload", sha256, {"num_bytes": num_bytes})
            else:
                this = code_uploads.c.sha256 == sha256
                transaction.connection.execute(update(code_uploads).where(this).values(used_at=now))
            found = read_one(
                transaction.connection, select(code_uploads).where(code_uploads.c.sha256 == sha256), Upload
            )
            assert found is not None, f"upload {sha256} is gone in the transaction that noted it"
            return found

    def get(self, sha256: str) -> Upload:
        """Return an upload.

        Raises:
            NotFound: there is none.
            UsageError: it is no SHA-256.
        """
        check_sha256(sha256)
        with self._database.reading() as connection:
            found = read_one(connection, select(code_uploads).where(code_uploads.c.sha256 == sha256), Upload)
        if found is None:
            raise NotFound(f"There is no uploaded code {sha256}. Upload it first.")
        return found


def check_sha256(text: str) -> None:
    """Raise UsageError unless the text is a SHA-256 as we write it: it becomes part of a path."""
    if not _SHA256.fullmatch(text):
        raise UsageError(f"Cannot use '{text[:80]}' as a SHA-256: give its 64 digits, 0 to 9 and a to f.")
