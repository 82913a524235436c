"""Variables of programs of a gang besides those of torchrun: those of WMLA, and that of TensorFlow. Pure."""

from __future__ import annotations

import json

from legato.compat.wmla import names
from legato.train.membership.gang import Seat, variables_of_seat


def variables_of_gang(seat: Seat, *, for_tensorflow: bool) -> dict[str, str]:
    """Return the variables by which programs find their gang.

    Each worker is a node with one device: it sees no other.

    Args:
        seat: of this worker.
        for_tensorflow: also ``TF_CONFIG``.

    >>> found = variables_of_gang(Seat(1, ("127.0.0.1:4000", "127.0.0.1:4001")), for_tensorflow=True)
    >>> found["RANK"], found["MASTER_PORT"], found["TF_CONFIG"][:56]
    ('1', '4000', '{"cluster": {"worker": ["127.0.0.1:4000", "127.0.0.1:400')
    """
    found = variables_of_seat(seat)
    found |= {names.NUM_NODES: found["WORLD_SIZE"], names.NODE_DEVICES: "1", "NODE_RANK": found["RANK"]}
    if for_tensorflow:
        task = {"type": "worker", "index": seat.rank}
        found["TF_CONFIG"] = json.dumps({"cluster": {"worker": list(seat.addresses)}, "task": task})
    return found
