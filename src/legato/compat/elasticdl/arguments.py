"""The words of an `elasticdl` command: text in, `ParsedCommand` out, by the rules of all releases at once.

A unique prefix of a flag means the flag; a prefix of one flag of an early release keeps its meaning, even if the last
release added flags. Unknown flags and their values are returned separately, because old scripts rely on this. A switch
is on for true, yes, t and y in any case, off for all other values, and without a value the opposite of its default.
Pure: reads no file; `composites` and `job_command` read the values.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterable, Sequence
from typing import Any, Final, Never

import msgspec

from legato.compat.elasticdl.flags import FLAGS, POSITIONAL, REMOVED, Flag
from legato.core.errors import UsageError

_ON: Final = frozenset({"true", "yes", "t", "y"})
_EFFECTS: Final = {"used": "", "accepted": "no effect: ", "refused": "not supported: "}
_DESCRIPTIONS: Final = {
    "train": "Submit a training job.",
    "evaluate": "Not supported: print what to use instead to evaluate a model.",
    "predict": "Not supported: print what to use instead to predict with a model.",
    "zoo": "Make a Docker image with the programs of a model zoo.",
    "zoo init": "Write a Dockerfile into the current folder.",
    "zoo build": "Build the image with Docker.",
    "zoo push": "Push the image with Docker.",
    "pods": "List masters and workers of jobs, as 'kubectl get pods' would.",
}


class InvalidArguments(UsageError):
    """The words are invalid; the message has the usage and the reason."""


class HelpAsked(Exception):
    """A request for help; the message is the help text."""


class ParsedCommand(msgspec.Struct, frozen=True, kw_only=True):
    """The parsed words of a command.

    Args:
        command: ``train``, ``zoo init`` and so on; a key of `FLAGS`.
        values: by the names of its flags; flags that were not given have their defaults.
        said: names of the flags that were given.
        unknown: unknown words, in their order.
    """

    command: str
    values: dict[str, Any]
    said: frozenset[str] = frozenset()
    unknown: tuple[str, ...] = ()

    def text(self, name: str) -> str:
        """Return the value of a flag that is a text."""
        return str(self.values[name])

    def count(self, name: str) -> int:
        """Return the value of a flag that is a whole number."""
        return int(self.values[name])

    def switch(self, name: str) -> bool:
        """Return the value of a flag that is a switch."""
        return bool(self.values[name])


def read_arguments(words: Sequence[str]) -> ParsedCommand:
    """Read the words after `elasticdl`.

    Raises:
        InvalidArguments: the words are invalid.
        HelpAsked: ``--help`` is among them.

    >>> asked = read_arguments(["train", "--job_name=a", "--num_work", "3", "--use_go_ps", "no", "--need_task_manager"])
    >>> asked.values["num_workers"], asked.values["need_task_manager"], asked.unknown
    (3, False, ('--use_go_ps', 'no'))
    """
    parser = _make_parser()
    found, unknown = parser.parse_known_args(list(words))
    said = vars(found)
    command = " ".join(said.pop(name) for name in ("command", "zoo_command") if name in said)
    # argparse returns an empty list for a value of two hyphens.
    said = {name: "--" if value == [] else value for name, value in said.items()}
    defaults = {flag.name: flag.default for flag in FLAGS[command]}
    return ParsedCommand(command=command, values=defaults | said, said=frozenset(said), unknown=tuple(unknown))


def render_help() -> str:
    """Return the text for a command without words."""
    return _make_parser().format_help()


def read_switch(text: str) -> bool:
    """Return whether a value means on.

    >>> [read_switch(text) for text in ("True", "Y", "1", "on", "")]
    [True, True, False, False, False]
    """
    return text.lower() in _ON


def explain_unknown(asked: ParsedCommand) -> list[str]:
    """Return a sentence about each unknown flag, which is ignored."""
    sentences = []
    names = [flag.name for flag in FLAGS[asked.command]]
    for word in asked.unknown:
        if word == "--":
            sentences.append("Words after -- are ignored.")
            break
        name = word.partition("=")[0].lstrip("-")
        if not word.startswith("-"):
            if not sentences:
                sentences.append(f"'{word}' belongs to no flag and is ignored.")
        elif name in REMOVED:
            sentences.append(f"--{name} is a flag of an early release of ElasticDL and is ignored.")
        else:
            near = difflib.get_close_matches(name, names, n=1)
            sentences.append(f"{word.partition('=')[0]} is unknown and is ignored." + _suggest(near))
    return sentences


def _suggest(near: Sequence[str]) -> str:
    return f" Did you mean --{near[0]}?" if near else ""


def expand(word: str, flags: Iterable[Flag]) -> str:
    """Return a word with the complete flag instead of its prefix.

    Raises:
        InvalidArguments: it is a prefix of several flags.

    >>> expand("--num_e=3", FLAGS["train"]), expand("--num_evaluator=1", FLAGS["train"]), expand("-x", ())
    ('--num_epochs=3', '--num_evaluators=1', '-x')
    """
    said, equals, value = word.partition("=")
    name = said.removeprefix("--")
    if not said.startswith("--") or not name:
        return word
    meant = [flag for flag in flags if flag.name.startswith(name)]
    if name in [flag.name for flag in meant]:
        return word
    meant = [flag for flag in meant if not flag.is_late] or meant
    if len(meant) > 1:
        names = ", ".join(f"--{flag.name}" for flag in meant)
        raise InvalidArguments(f"ambiguous option: {said} could match {names}")
    return f"--{meant[0].name}{equals}{value}" if meant else word


# ---------------------------------------------------------------- the parser


class _Parser(argparse.ArgumentParser):
    """A parser that neither ends the process nor writes.

    Args:
        flags: that it knows.
    """

    def __init__(self, *, flags: Sequence[Flag] = (), **kwargs: Any) -> None:
        super().__init__(**kwargs | {"allow_abbrev": False, "add_help": False})
        self._flags = (*flags, Flag("help", "switch", False, "used", "show this"))
        for flag in flags:
            self._take(flag)
        self.add_argument("-h", "--help", action=_Help, nargs=0, default=argparse.SUPPRESS, help="show this")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse words, with prefixes replaced by their flags."""
        words = list(args or ())
        end = words.index("--") if "--" in words else len(words)
        try:
            words = [*(expand(word, self._flags) for word in words[:end]), *words[end:]]
        except InvalidArguments as error:
            self.error(str(error))
        return super().parse_known_args(words, namespace)

    def error(self, message: str) -> Never:
        """Raise `InvalidArguments` with the usage."""
        raise InvalidArguments(f"usage: {self.prog} …; see {self.prog} --help\n{self.prog}: error: {message}")

    def _take(self, flag: Flag) -> None:
        options: dict[str, Any] = {
            "default": argparse.SUPPRESS,
            "required": flag.is_required,
            "help": (_EFFECTS[flag.effect] + flag.why).replace("%", "%%"),
        }
        if flag.choices:
            options["choices"] = flag.choices
        if flag.kind == "count":
            options["type"] = int
        elif flag.kind == "switch":
            options |= {"type": read_switch, "nargs": "?", "const": not flag.default}
        elif flag.kind == "level":
            options["type"] = str.upper
        self.add_argument(f"--{flag.name}", **options)


class _Help(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> Never:
        raise HelpAsked(parser.format_help())


def _make_parser() -> _Parser:
    parser = _Parser(prog="elasticdl", description="Commands of ElasticDL, on Legato. See docs/elasticdl.md.")
    commands = parser.add_subparsers(dest="command", required=True)
    zoo = commands.add_parser("zoo", help=_DESCRIPTIONS["zoo"]).add_subparsers(dest="zoo_command", required=True)
    for name, flags in FLAGS.items():
        group, _, last = name.rpartition(" ")
        one = (zoo if group else commands).add_parser(
            last, help=_DESCRIPTIONS[name], description=_DESCRIPTIONS[name], flags=flags
        )
        if name in POSITIONAL:
            one.add_argument(POSITIONAL[name])
    return parser
