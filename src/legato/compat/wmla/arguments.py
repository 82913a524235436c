r"""Reads the argument string of a submission, ``--exec-start edtPyTorch --model-main main.py …``, into a `Submission`.

No shell is involved. Whitespace separates words. ``'…'`` and ``"…"`` keep whitespace in a word. A ``\\`` escapes the
next character; inside of ``"…"`` it escapes only ``"`` and ``\\``, inside of ``'…'`` nothing. A ``\\`` before a newline
joins the lines. ``$``, ``;``, ``|``, ``*`` and all other characters have no special meaning.

Options may be written ``--name value`` or ``--name=value``. If an option is repeated, the last value is used, but the
values of ``--msd-env`` are collected. Unknown options and all words after a single ``--`` go to the program, in their
order. Pure: it does not know queues, users or files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from legato.compat.wmla.frameworks import Framework, find_framework
from legato.compat.wmla.options import (
    CONNECTION,
    ENVIRONMENTS,
    FLAGS,
    MEANINGLESS,
    OPTIONS,
    REFUSED,
    SECRET,
    find_near_misses,
    with_plain_dashes,
)
from legato.core.errors import UsageError
from legato.core.limits import read_cpus, read_size

T = TypeVar("T")

_MAX_LENGTH: Final = 65_536
_MAX_WORKERS: Final = 100_000
_BLANKS: Final = " \t\r\n\f\v"
_PIECE: Final = re.compile(
    r"""(?P<joined>\\(?:\r\n|[\r\n]))|(?P<escaped>\\.?)|(?P<blank>[ \t\r\n\f\v]+)|(?P<single>'[^']*')"""
    r"""|(?P<double>"(?:[^"\\]|\\.)*")|(?P<plain>[^'"\\ \t\r\n\f\v]+)""",
    re.DOTALL,
)
_ESCAPED: Final = re.compile(r"""\\(["\\])""")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COUNT: Final = re.compile(r"[0-9]{1,9}")
_HIDDEN: Final = "***"


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """What an argument string asks for. A field is None if the string does not give it.

    Args:
        framework: from ``--exec-start``.
        main: the main file, relative to the model directory, or an absolute path on the machines.
        model_directory: the name of the model directory.
        arguments: of the program.
        num_nodes: ``--numWorker``: the number of WMLA's workers.
        num_devices: ``--workerDeviceNum`` or ``--gpuPerWorker``: GPUs of each of these workers.
        max_workers: ``--edt-options maxWorkers=``.
        group: the instance group or consumer; None: the default one.
        group_kind: how the user named the group: "Instance group name" or "Consumer".
        priority: ``--msd-priority``; None: the default priority.
        environment: the variables of ``--msd-env``.
        data_path: from ``--cs-datastore-meta``, relative to the root of all data.
        application: ``--appName``.
        environments: names of a conda environment or an image, by their option.
        python: the one of them that the operator has given to a Python environment.
        memory_bytes, num_cpus: limits of each worker: ``--workerMemoryLimit``, ``--workerCPULimit``.
        ignored: options without effect, in their order.
        near_misses: words that go to the program, each with the option that it resembles.
    """

    framework: Framework
    main: str | None = None
    model_directory: str | None = None
    arguments: tuple[str, ...] = ()
    num_nodes: int | None = None
    num_devices: int = 1
    max_workers: int | None = None
    group: str | None = None
    group_kind: str = "Instance group name"
    priority: int | None = None
    environment: Mapping[str, str] = {}
    data_path: str | None = None
    application: str | None = None
    environments: Mapping[str, str] = {}
    python: str | None = None
    memory_bytes: int | None = None
    num_cpus: float | None = None
    ignored: tuple[str, ...] = ()
    near_misses: tuple[tuple[str, str], ...] = ()

    @property
    def names_workers(self) -> bool:
        """Whether the user gives a number of workers and the framework may have more than one."""
        return self.framework.shape != "single" and (self.num_nodes, self.max_workers) != (None, None)

    @property
    def num_workers(self) -> int:
        """Maximum number of Legato's workers, one per GPU that WMLA's workers have; a gang has exactly this number."""
        if self.framework.shape == "single":
            return 1
        num_nodes = self.max_workers if self.max_workers is not None else self.num_nodes
        return (1 if num_nodes is None else num_nodes) * self.num_devices


def read_arguments(text: str) -> Submission:
    """Read an argument string.

    Raises:
        UsageError: the string cannot be read, or asks for something that is not supported; the message says what to do.

    >>> found = read_arguments("--exec-start edtPyTorch --numWorker 2 --model-main main.py --epochs 3")
    >>> found.framework.name, found.main, found.num_workers, found.arguments
    ('edtPyTorch', 'main.py', 2, ('--epochs', '3'))
    """
    words = with_plain_dashes(split_words(text))
    parsed = _sort(words)
    if "--exec-start" not in parsed.options:
        raise UsageError(
            "There is no --exec-start FRAMEWORK in the arguments. Add one, for example --exec-start edtPyTorch."
        )
    framework = find_framework(parsed.options["--exec-start"])
    main = parsed.options.get("--model-main")
    group, kind = _read_group(parsed.options)
    parsed.ignored += _find_overruled(parsed.options)
    submission = Submission(
        framework=framework,
        main=main,
        model_directory=_read_directory(parsed.options.get("--model-dir")),
        arguments=tuple(parsed.program),
        num_nodes=_read_count("--numWorker", parsed.options),
        num_devices=_read_count("--workerDeviceNum", parsed.options)
        or _read_count("--gpuPerWorker", parsed.options)
        or 1,
        max_workers=_read_elastic_options(parsed.options.get("--edt-options"), parsed.ignored),
        group=group,
        group_kind=kind,
        priority=_read_count("--msd-priority", parsed.options),
        environment=_read_environment(parsed.environment),
        data_path=_read_data_path(parsed.options.get("--cs-datastore-meta"), parsed.ignored),
        application=parsed.options.get("--appName"),
        environments={name: parsed.options[name] for name in ENVIRONMENTS if name in parsed.options},
        memory_bytes=_read_limit("--workerMemoryLimit", parsed.options, read_size),
        num_cpus=_read_limit("--workerCPULimit", parsed.options, read_cpus),
        ignored=tuple(dict.fromkeys(parsed.ignored)),
        near_misses=tuple(find_near_misses(parsed.unknown)),
    )
    if submission.num_workers > _MAX_WORKERS:
        raise UsageError(
            f"The arguments ask for {submission.num_workers} workers, but the maximum is {_MAX_WORKERS}. Ask for fewer."
        )
    return submission


def split_words(text: str) -> list[str]:
    r"""Split a string into words by the rules in the module's docstring.

    Raises:
        UsageError: a quote is not closed, or the string is too long or contains a zero character.

    >>> split_words("a  'b c'\n--d=\"e \\\" f\" $HOME;ls")
    ['a', 'b c', '--d=e " f', '$HOME;ls']
    """
    if len(text) > _MAX_LENGTH:
        raise UsageError(f"The arguments have more than {_MAX_LENGTH} characters. Move long values into a file.")
    if "\0" in text:
        raise UsageError("The arguments contain a zero character. Remove it.")
    words: list[str] = []
    word: str | None = None
    place = 0
    while place < len(text):
        piece = _PIECE.match(text, place)
        if piece is None:
            quote = text[place]
            raise UsageError(
                f"A quote {quote} in the arguments is not closed. Close it, or write \\{quote} for the character."
            )
        place = piece.end()
        kind, found = piece.lastgroup, piece[0]
        if kind == "blank":
            words += [] if word is None else [word]
            word = None
        elif kind == "double":
            word = (word or "") + _ESCAPED.sub(r"\1", found[1:-1])
        elif kind == "single":
            word = (word or "") + found[1:-1]
        elif kind == "escaped":
            word = (word or "") + (found[1:] or found)
        elif kind == "plain":
            word = (word or "") + found
    return words if word is None else [*words, word]


def hide_secrets(text: str) -> str:
    """Return an argument string for display to all users who may see the job.

    The values of variables, passwords and other secret options become ``***``. A string that cannot be split becomes
    empty.

    >>> hide_secrets("--exec-start PyTorch --msd-env KEY=abc  --model-main a.py")
    '--exec-start PyTorch --msd-env KEY=*** --model-main a.py'
    """
    try:
        words = with_plain_dashes(split_words(text))
    except UsageError:
        return ""
    if not any(word.partition("=")[0] in SECRET for word in words):
        return text
    shown: list[str] = []
    hides = False
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if word == "--":
            shown += [_quoted(one) for one in words[index:]]
            break
        if hides:
            shown.append(_quoted(name) + (f"={_HIDDEN}" if equals else "") if shown[-1] == "--msd-env" else _HIDDEN)
            hides = False
        elif name in SECRET:
            variable = f"{value.partition('=')[0]}=" if name == "--msd-env" else ""
            shown.append(f"{name}={_quoted(variable)}{_HIDDEN}" if equals else name)
            hides = not equals
        else:
            shown.append(_quoted(word))
    return " ".join(shown)


# ---------------------------------------------------------------- options


class _Words:
    """The words of an argument string, sorted by their meaning."""

    def __init__(self) -> None:
        self.options: dict[str, str] = {}
        self.environment: list[str] = []
        self.ignored: list[str] = []
        self.program: list[str] = []
        self.unknown: list[str] = []


def _sort(words: Sequence[str]) -> _Words:
    parsed = _Words()
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        if word == "--":
            parsed.program += words[place:]
            break
        name, equals, value = word.partition("=")
        if name in REFUSED:
            raise UsageError(f"{name} is not supported. {REFUSED[name]}")
        if name in FLAGS and not equals:
            parsed.ignored.append(name)
            place += words[place : place + 1] in (["true"], ["false"])
            continue
        if name not in OPTIONS and name not in MEANINGLESS and name not in CONNECTION:
            parsed.program.append(word)
            parsed.unknown.append(name)
            continue
        if not equals:
            if place == len(words) or words[place].startswith("--"):
                raise UsageError(
                    f"{name} has no value. Write '{name} VALUE', or put the program's own options after ' -- '."
                )
            value = words[place]
            place += 1
        if name == "--msd-env":
            parsed.environment.append(value)
        elif name in OPTIONS:
            parsed.options[name] = value
        else:
            parsed.ignored.append(name)
    return parsed


def _read_limit(name: str, options: Mapping[str, str], read: Callable[[str, str], T]) -> T | None:
    return None if name not in options else read(options[name], name)


def _read_count(name: str, options: Mapping[str, str]) -> int | None:
    value = options.get(name)
    if value is None:
        return None
    if not (value.isascii() and _COUNT.fullmatch(value)) or int(value) < 1:
        raise UsageError(f"Cannot read {name} {value[:100]}. Give a whole number of at least 1.")
    return int(value)


def _read_elastic_options(text: str | None, ignored: list[str]) -> int | None:
    found: int | None = None
    for name, value in _read_pairs(text):
        if name == "maxWorkers":
            found = _read_count("maxWorkers", {"maxWorkers": value})
        else:
            ignored.append(f"--edt-options {name[:100]}")
    return found


def _read_pairs(text: str | None) -> Iterator[tuple[str, str]]:
    """Yield the names and values of ``a=1,b=2``."""
    for part in (text or "").split(","):
        name, _, value = part.partition("=")
        if name.strip():
            yield name.strip(), value.strip()


def _read_group(options: Mapping[str, str]) -> tuple[str | None, str]:
    if "--ig" in options:
        return options["--ig"], "Instance group name"
    return options.get("--consumer"), "Consumer"


def _find_overruled(options: Mapping[str, str]) -> Iterator[str]:
    """Yield each option that is ignored because another option for the same thing has a different value."""
    for first, second in (("--ig", "--consumer"), ("--workerDeviceNum", "--gpuPerWorker")):
        if first in options and options.get(second, options[first]) != options[first]:
            yield second


def _read_directory(text: str | None) -> str | None:
    """Return the last part of a path: the name of the uploaded folder."""
    if text is None:
        return None
    name = re.split(r"[/\\]", text.rstrip("/\\"))[-1]
    if name in ("", ".", ".."):
        raise UsageError(f"Cannot read --model-dir '{text[:100]}'. Give the name of the uploaded folder.")
    return name


def _read_environment(texts: Sequence[str]) -> dict[str, str]:
    found = {}
    for one in texts:
        name, equals, value = one.partition("=")
        if not equals or not _VARIABLE.fullmatch(name):
            raise UsageError(f"Cannot read --msd-env {name[:100]}. Write --msd-env NAME=VALUE.")
        if name.startswith("LEGATO_"):
            raise UsageError(f"Cannot set {name[:100]} with --msd-env: Legato reserves this name. Choose another name.")
        found[name] = value
    return found


def _read_data_path(text: str | None, ignored: list[str]) -> str | None:
    found = None
    for name, value in _read_pairs(text):
        if name == "data_path":
            parts = [one for one in value.split("/") if one not in ("", ".")]
            if ".." in parts:
                raise UsageError(
                    f"Cannot use data_path '{value[:100]}': it points outside of the data directory. Remove '..'."
                )
            found = "/".join(parts)
        elif name != "type":
            ignored.append(f"--cs-datastore-meta {name[:100]}")
        elif value != "fs":
            raise UsageError(
                f"Data of type '{value[:100]}' are not supported. Use --cs-datastore-meta type=fs,data_path=PATH."
            )
    return found


def _quoted(word: str) -> str:
    if word and not any(character in _BLANKS + "'\"\\" for character in word):
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'
