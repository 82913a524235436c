"""Checkpoint files as earlier releases wrote them."""

from __future__ import annotations

import hashlib
import io
import json
import struct
from typing import Any

import torch


def make_earlier_file(version: int, state: Any, *, step: int, meta: dict[str, Any]) -> bytes:
    """Return the bytes of a checkpoint with format 1 or 2."""
    content = io.BytesIO()
    torch.save(state, content)
    payload = content.getvalue()
    fields = {
        "step": step,
        "meta": meta,
        "payload_bytes": len(payload),
        "payload_sha256": hashlib.sha256(payload).hexdigest(),
    }
    header = json.dumps(fields).encode().ljust(300)
    return struct.pack("<8sII32s", b"legato\r\n", version, 300, hashlib.sha256(header).digest()) + header + payload
