"""Notices about an accepted submission: options without effect, words that look like options, what was guessed.

One line of plain text, for a header, a field of the record and a label. Decides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from legato.compat.wmla.arguments import Submission
from legato.compat.wmla.names import SUBMITTED_CODE

_MAX_LENGTH: Final = 1000
_REQUESTS: Final = frozenset({"--workerMemory", "--workerCPU"})
_UNSEEN: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def write_notice(
    submission: Submission,
    extra: Mapping[str, Any],
    main: str,
    *,
    missing_data: str | None = None,
) -> str:
    """Return the line; "" if there is nothing to tell.

    Args:
        submission: what the argument string asks for.
        extra: what the form says besides.
        main: the main file, as the launcher gets it.
        missing_data: the directory of its data, if it is not there.
    """
    told = []
    if missing_data is not None:
        told.append(f"DATA_DIR={missing_data} is not there yet: a program that does not make it will find no data.")
    ignored = list(submission.passed_over)
    ignored += ["dataSource"] if extra.get("dataSource") else []
    if submission.framework.shape == "single" and (submission.num_nodes or 1) * submission.num_devices > 1:
        ignored.append("more than one worker")
    if ignored:
        told.append(f"Accepted, but without effect here: {', '.join(ignored)}.")
    told += [f"{said[:100]} goes to the program; did you mean {meant}?" for said, meant in submission.near_misses]
    if submission.main is None:
        shown = main.removeprefix(f"{SUBMITTED_CODE}/")
        told.append(f"Without --model-main the program is {shown}, as no other was sent.")
    if _REQUESTS.intersection(ignored):
        told.append("Memory and cores are not reserved; --workerMemoryLimit and --workerCPULimit limit a worker.")
    line = _UNSEEN.sub("?", " ".join(told))
    # Clients take a header of some length for an attack.
    return line if len(line) <= _MAX_LENGTH else f"{line[: _MAX_LENGTH - 1]}…"
