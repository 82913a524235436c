r"""The argument string of a submission, ``--exec-start edtPyTorch --model-main main.py …``: text in, `Submission` out.

It is split here, by rules of its own, and no shell ever sees it: blanks, tabs and newlines divide words; ``'…'`` and
``"…"`` keep them together, ``\\`` takes the next character as it is (inside of ``"…"`` only ``"`` and ``\\``, inside of
``'…'`` nothing), and before a newline it joins lines. ``$``, ``;``, ``|``, ``*`` and all others are plain characters.

Options may be written ``--name value`` and ``--name=value``. Of an option that comes again the last one holds; the
values of ``--msd-env`` add up. Options that are not known go to the program, in their order, and so does all after a
``--`` that stands alone. Pure: knows no queue, no user and no file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from legato.compat.wmla.frameworks import Framework, find_framework
from legato.compat.wmla.options import (
    CONNECTION,
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
    """What an argument string asks for.

    Args:
        framework: what runs it.
        main: the main file, relative to the model directory, or absolute on the machines. None: it was not said.
        model_directory: the name of the model directory. None: it was not said.
        arguments: of the program.
        num_nodes: ``--numWorker``; None: it was not said.
        num_devices: of each of them, ``--workerDeviceNum``.
        max_workers: ``--edt-options maxWorkers=``; None: it was not said.
        group: instance group or consumer. None: the default one.
        group_kind: what it was called.
        priority: None: the default one.
        environment: of ``--msd-env``.
        data_path: of ``--cs-datastore-meta``, below the root of all data. None: there is none.
        application: ``--appName``.
        memory_bytes, num_cpus: of each worker at most: ``--workerMemoryLimit``, ``--workerCPULimit``. None: not said.
        passed_over: options that mean nothing here, in their order.
        near_misses: words that go to the program, with the options that they look like.
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
    memory_bytes: int | None = None
    num_cpus: float | None = None
    passed_over: tuple[str, ...] = ()
    near_misses: tuple[tuple[str, str], ...] = ()

    @property
    def says_workers(self) -> bool:
        """Whether it names a number of workers, and its framework may have more than one."""
        return self.framework.shape != "single" and (self.num_nodes, self.max_workers) != (None, None)

    @property
    def num_workers(self) -> int:
        """How many workers it may have, or of a gang has: one for each GPU of theirs."""
        if self.framework.shape == "single":
            return 1
        num_nodes = self.max_workers if self.max_workers is not None else self.num_nodes
        return (1 if num_nodes is None else num_nodes) * self.num_devices


def read_arguments(text: str) -> Submission:
    """Read an argument string.

    Raises:
        UsageError: it cannot be read, or asks for what there is not; the message names the word and says what to do.

    >>> found = read_arguments("--exec-start edtPyTorch --numWorker 2 --model-main main.py --epochs 3")
    >>> found.framework.name, found.main, found.num_workers, found.arguments
    ('edtPyTorch', 'main.py', 2, ('--epochs', '3'))
    """
    words = with_plain_dashes(split_words(text))
    said = _sort(words)
    if "--exec-start" not in said.options:
        raise UsageError(
            "There is no --exec-start FRAMEWORK in the arguments. Name one, such as --exec-start edtPyTorch."
        )
    framework = find_framework(said.options["--exec-start"])
    main = said.options.get("--model-main")
    group, kind = _read_group(said.options)
    said.passed_over += _find_overruled(said.options)
    submission = Submission(
        framework=framework,
        main=main,
        model_directory=_read_directory(said.options.get("--model-dir")),
        arguments=tuple(said.program),
        num_nodes=_read_count("--numWorker", said.options),
        num_devices=_read_count("--workerDeviceNum", said.options) or _read_count("--gpuPerWorker", said.options) or 1,
        max_workers=_read_elastic_options(said.options.get("--edt-options"), said.passed_over),
        group=group,
        group_kind=kind,
        priority=_read_count("--msd-priority", said.options),
        environment=_read_environment(said.environment),
        data_path=_read_data_path(said.options.get("--cs-datastore-meta"), said.passed_over),
        application=said.options.get("--appName"),
        memory_bytes=_read_limit("--workerMemoryLimit", said.options, read_size),
        num_cpus=_read_limit("--workerCPULimit", said.options, read_cpus),
        passed_over=tuple(dict.fromkeys(said.passed_over)),
        near_misses=tuple(find_near_misses(said.unknown)),
    )
    if submission.num_workers > _MAX_WORKERS:
        raise UsageError(f"It asks for {submission.num_workers} workers, and may have {_MAX_WORKERS}. Ask for fewer.")
    return submission


def split_words(text: str) -> list[str]:
    r"""Split a string into words; the rules are those of the module.

    Raises:
        UsageError: a quote is not closed, or it is too long or holds a zero.

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
    """Return an argument string as it may be shown to all users who may see the job.

    Values of variables and of passwords are taken out. What cannot be split is not shown at all.

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


# ---------------------------------------------------------------- the words of it


class _Said:
    """The words of an argument string, sorted."""

    def __init__(self) -> None:
        self.options: dict[str, str] = {}
        self.environment: list[str] = []
        self.passed_over: list[str] = []
        self.program: list[str] = []
        self.unknown: list[str] = []


def _sort(words: Sequence[str]) -> _Said:
    said = _Said()
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        if word == "--":
            said.program += words[place:]
            break
        name, equals, value = word.partition("=")
        if name in REFUSED:
            raise UsageError(f"{name} is not supported. {REFUSED[name]}")
        if name in FLAGS and not equals:
            said.passed_over.append(name)
            place += words[place : place + 1] in (["true"], ["false"])
            continue
        if name not in OPTIONS and name not in MEANINGLESS and name not in CONNECTION:
            said.program.append(word)
            said.unknown.append(name)
            continue
        if not equals:
            if place == len(words) or words[place].startswith("--"):
                raise UsageError(
                    f"{name} has no value. Write '{name} VALUE', or put the program's own options behind ' -- '."
                )
            value = words[place]
            place += 1
        if name == "--msd-env":
            said.environment.append(value)
        elif name in OPTIONS:
            said.options[name] = value
        else:
            said.passed_over.append(name)
    return said


def _read_limit(name: str, options: Mapping[str, str], read: Callable[[str, str], T]) -> T | None:
    return None if name not in options else read(options[name], name)


def _read_count(name: str, options: Mapping[str, str]) -> int | None:
    value = options.get(name)
    if value is None:
        return None
    if not (value.isascii() and _COUNT.fullmatch(value)) or int(value) < 1:
        raise UsageError(f"Cannot read {name} {value[:100]}. Give a whole number of at least 1.")
    return int(value)


def _read_elastic_options(said: str | None, passed_over: list[str]) -> int | None:
    found: int | None = None
    for name, value in _read_pairs(said):
        if name == "maxWorkers":
            found = _read_count("maxWorkers", {"maxWorkers": value})
        else:
            passed_over.append(f"--edt-options {name[:100]}")
    return found


def _read_pairs(said: str | None) -> Iterator[tuple[str, str]]:
    """Yield the names and values of ``a=1,b=2``."""
    for part in (said or "").split(","):
        name, _, value = part.partition("=")
        if name.strip():
            yield name.strip(), value.strip()


def _read_group(options: Mapping[str, str]) -> tuple[str | None, str]:
    if "--ig" in options:
        return options["--ig"], "Instance group name"
    return options.get("--consumer"), "Consumer"


def _find_overruled(options: Mapping[str, str]) -> Iterator[str]:
    """Yield options that another one goes before which says otherwise."""
    for first, second in (("--ig", "--consumer"), ("--workerDeviceNum", "--gpuPerWorker")):
        if first in options and options.get(second, options[first]) != options[first]:
            yield second


def _read_directory(said: str | None) -> str | None:
    """Return the last part of a path, which is the name of the folder that was sent."""
    if said is None:
        return None
    name = re.split(r"[/\\]", said.rstrip("/\\"))[-1]
    if name in ("", ".", ".."):
        raise UsageError(f"Cannot read --model-dir '{said[:100]}'. Name the folder that was sent.")
    return name


def _read_environment(said: Sequence[str]) -> dict[str, str]:
    found = {}
    for one in said:
        name, equals, value = one.partition("=")
        if not equals or not _VARIABLE.fullmatch(name):
            raise UsageError(f"Cannot read --msd-env {name[:100]}. Write --msd-env NAME=VALUE.")
        if name.startswith("LEGATO_"):
            raise UsageError(f"Cannot set {name[:100]} with --msd-env: it is the platform's own. Choose another name.")
        found[name] = value
    return found


def _read_data_path(said: str | None, passed_over: list[str]) -> str | None:
    found = None
    for name, value in _read_pairs(said):
        if name == "data_path":
            parts = [one for one in value.split("/") if one not in ("", ".")]
            if ".." in parts:
                raise UsageError(
                    f"Cannot use data_path '{value[:100]}': it leads out of the data directory. Remove '..'."
                )
            found = "/".join(parts)
        elif name != "type":
            passed_over.append(f"--cs-datastore-meta {name[:100]}")
        elif value != "fs":
            raise UsageError(
                f"Data of type '{value[:100]}' are not supported. Use --cs-datastore-meta type=fs,data_path=PATH."
            )
    return found


def _quoted(word: str) -> str:
    if word and not any(character in _BLANKS + "'\"\\" for character in word):
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'
