"""The options of a submission: supported, accepted without effect, or refused. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

ENVIRONMENTS: Final = ("--conda-env-name", "--msd-image-name")
"""Options whose value the operator may map to a Python environment; else they have no effect."""

OPTIONS: Final = frozenset(
    (
        *("--exec-start", "--model-main", "--model-dir", "--ig", "--consumer", "--appName"),
        *("--cs-datastore-meta", "--numWorker", "--workerDeviceNum", "--gpuPerWorker", "--edt-options"),
        *("--msd-env", "--msd-priority", "--workerMemoryLimit", "--workerCPULimit"),
        *ENVIRONMENTS,
    )
)
"""Supported options. Each takes a value."""

MEANINGLESS: Final = frozenset(
    (
        # Container images, placement and resource requests: in Legato, a worker is a process with one slot.
        *("--workerDeviceType", "--workerMemory", "--workerGPULimit"),
        *("--workerCPU", "--driverDeviceType", "--driverDeviceNum", "--driverMemory", "--driverMemoryLimit"),
        *("--driverCPU", "--driverCPULimit", "--driverGPULimit", "--numDriver", "--numPs"),
        *("--msd-attr", "--msd-label", "--msd-image-pull-secret", "--msd-image-pull-policy"),
        *("--msd-pull-secret", "--msd-pull-policy", "--msd-task0-node-selector", "--msd-task12n-node-selector"),
        *("--msd-pending-timeout", "--msd-podaffinity-rule", "--msd-podaffinity-topology-key", "--msd-pack-id"),
        *("--msd-topology-key", "--lsf-gpu-syntax", "--sc-runasuser", "--sc-runasgroup", "--sc-fsgroup"),
        "--python-version",
        # A job belongs to the user who submits it.
        "--submit-user",
    )
)
"""Options that are accepted without effect; a notice names them. Each takes a value."""

FLAGS: Final = frozenset(("--exclusive", "--no-check-certificate"))
"""Options that are accepted without effect; a notice names them. They take no value, or ``true`` or ``false``."""

CONNECTION: Final = frozenset(
    (
        *("--rest-host", "--master-host", "--rest-port", "--dli-rest-port", "--username", "--password"),
        *("--jwt-token", "--query-args", "--debug-level"),
    )
)
"""Options for the connection of ``dlicmd.py``, which removes them before it sends the others."""

SECRET: Final = frozenset(
    (
        *("--msd-env", "--password", "--jwt-token", "--cs-url-bearer"),
        # Addresses of remote data, with keys and passwords.
        *("--data-source", "--cs-rmq-meta", "--cs-url-meta"),
    )
)
"""Options whose values are never shown."""

_FROM_FILES: Final = (
    "Programs read their data from the file system of the machines. Put the data there, and name them with "
    "--cs-datastore-meta type=fs,data_path=PATH."
)

REFUSED: Final[Mapping[str, str]] = {
    "--data-source": _FROM_FILES,
    "--cs-rmq-meta": _FROM_FILES,
    "--cs-url-meta": _FROM_FILES,
    "--cs-url-bearer": _FROM_FILES,
    "--user-cmd": "Name the main file instead: --model-main FILE, and its arguments after ' -- '.",
    "--pbmodel-name": "There are no prebuilt models. Send the program: --model-main FILE --model-dir FOLDER.",
    "--pbmodel-cmd": "There are no prebuilt models. Send the program: --model-main FILE --model-dir FOLDER.",
}
"""Refused options, each with the advice that its error gives."""

_ODD_DASHES: Final = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"


def with_plain_dashes(words: Sequence[str]) -> list[str]:
    """Return words in which options begin with ``--`` where a long dash was pasted from a printed document.

    Only known options of a submission change, and nothing after a word that is just ``--``.

    >>> with_plain_dashes(["\u2013msd-env", "A=1", "\u2014numWorker=2", "--", "\u2013numWorker"])[:3]
    ['--msd-env', 'A=1', '--numWorker=2']
    """
    end = words.index("--") if "--" in words else len(words)
    known = OPTIONS | MEANINGLESS | FLAGS | CONNECTION | REFUSED.keys()
    plain = []
    for word in words[:end]:
        found = f"--{word.lstrip(_ODD_DASHES + '-')}" if word[:1] in _ODD_DASHES else word
        plain.append(found if word and found.partition("=")[0] in known else word)
    return [*plain, *words[end:]]


_MIN_SIMILARITY: Final = 0.82
_MIN_LENGTH: Final = 5
_MAX_LENGTH: Final = 40
_MAX_WORDS: Final = 50


def find_near_misses(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each word that looks like a misspelled option once, together with that option.

    A word may be an option of the program itself, so only words that are very similar to an option count.

    >>> list(find_near_misses(["--numWoker", "--wrokerDeviceNum", "-modelMain", "--epochs", "numWorker", "--lr"]))
    [('--numWoker', '--numWorker'), ('--wrokerDeviceNum', '--workerDeviceNum'), ('-modelMain', '--model-main')]
    """
    from difflib import get_close_matches  # imported here: only submissions with unknown words pay for it

    known = {_fold(name): name for name in sorted(OPTIONS | MEANINGLESS | FLAGS | CONNECTION)}
    for word in list(dict.fromkeys(word for word in words if word.startswith(("-", *_ODD_DASHES))))[:_MAX_WORDS]:
        folded = _fold(word)
        if word[0] in _ODD_DASHES:
            yield word, f"--{word.lstrip(_ODD_DASHES + '-')}"
        elif _MIN_LENGTH <= len(folded) <= _MAX_LENGTH:
            for near in get_close_matches(folded, known, 1, _MIN_SIMILARITY):
                yield word, known[near]


def _fold(name: str) -> str:
    return name.lstrip("-").lower()
