"""Environment variables by which the programs of a gang find each other: torchrun's, WMLA's and TensorFlow's. Pure."""

from __future__ import annotations

import json

from legato.compat.wmla import names
from legato.train.membership.gang import Seat, variables_of_seat


def variables_of_gang(seat: Seat, *, for_tensorflow: bool) -> dict[str, str]:
    """Return the environment variables by which a program finds the other workers of its gang.

    Each worker counts as a node with one device, because it sees only the device of its slot.

    Args:
        seat: rank of this worker, and the addresses of all workers.
        for_tensorflow: also set ``TF_CONFIG``.

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
