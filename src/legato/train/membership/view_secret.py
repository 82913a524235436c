"""The secret of one view: by it a worker proves to the other members that it belongs to their job. Sends nothing.

The workers of a job get a secret from their driver, over a connection that only they can open. It never leaves the
process: what a worker publishes or sends are codes (HMAC-SHA256) that only a process with the secret can make or check.
Each code counts for one attempt of one job, one view and one purpose, so it is worth nothing elsewhere.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

CODE_BYTES: Final = 32
_POLL_S: Final = 0.01


class ForeignValue(RuntimeError):
    """Another process has written a value into the store; the text says what to do."""


class ViewSecret:
    """The secret of the members of one view.

    Args:
        secret: of all workers of the job's attempt, from their driver.
        job: names the job in the store.
        view: number of the view.

    Raises:
        RuntimeError: there is no secret.
    """

    def __init__(self, secret: str, job: str, view: int) -> None:
        if not secret:
            raise RuntimeError("the driver has given this worker no secret to prove to its peers")
        self._key = _make_code(secret.encode(), "view", job, view)

    def sign(self, purpose: str, *parts: Any) -> bytes:
        """Return the code of some plain values.

        Args:
            purpose: what the code is for; codes of other purposes differ.
            parts: texts, numbers and bytes.
        """
        return _make_code(self._key, purpose, *parts)

    def has_signed(self, code: bytes, purpose: str, *parts: Any) -> bool:
        """Return whether a code is that of `sign`, in constant time."""
        return hmac.compare_digest(code, self.sign(purpose, *parts))

    def seal(self, key: str, value: bytes) -> bytes:
        """Return a value of the store with its code in front."""
        return self.sign("store", key, value) + value

    def open(self, key: str, sealed: bytes) -> bytes | None:
        """Return a value of the store without its code; None: no member of this view wrote it under this key."""
        code, value = sealed[:CODE_BYTES], sealed[CODE_BYTES:]
        return value if self.has_signed(code, "store", key, value) else None

    def read(self, key: str, get: Callable[[str], bytes], limit_s: float) -> bytes:
        """Read a value that a member has written or will write.

        A value of another process is ignored: the member may still replace it.

        Args:
            key: of the value.
            get: waits for a value of the key and returns it.
            limit_s: how long to wait for the value of a member.

        Raises:
            ForeignValue: only values of other processes came.
            RuntimeError: no value came in time.
        """
        deadline = time.monotonic() + limit_s
        while True:
            value = self.open(key, get(key))
            if value is not None:
                return value
            if time.monotonic() >= deadline:
                raise ForeignValue(
                    f"the value of {key} in the store does not come from a worker of this job: another process has "
                    "written into the store. Let only the machines of the job reach this network"
                )
            time.sleep(_POLL_S)


def _make_code(key: bytes, purpose: str, *parts: Any) -> bytes:
    # MessagePack keeps the borders between the parts.
    return hmac.digest(key, msgspec.msgpack.encode([purpose, *parts]), "sha256")
