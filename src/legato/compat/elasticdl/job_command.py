r"""Reads ``--job_command``: turns a line for a shell into a folder, variables and a program of Python. Pure.

No shell runs the line. Quotes and backslashes mean the same as in a shell. Supported are ``cd FOLDER &&``,
``export A=1;`` and ``set -e;`` before the command, variables in front of it, ``$NAME`` for a variable of the job, and
``2>&1 | tee FILE`` or another redirection after it, which is dropped because Legato keeps logs anyway. Everything else
that needs a shell is refused, and the error says what to write instead.

>>> read_job_command("cd zoo && A=1 python -u -m mnist.train --name 'two words'")
JobCommand(words=('-m', 'mnist.train', '--name', 'two words'), folder='zoo', variables={'A': '1'}, left_out=('-u',))
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from legato.compat.elasticdl.composites import check_variable
from legato.core.errors import UsageError

_PIECE: Final = re.compile(
    r"(?P<joined>\\\n)|(?P<escaped>\\.?)|(?P<blank>[ \t\r]+)|(?P<single>'[^']*')"
    r'|(?P<double>"(?:[^"\\]|\\.)*")|(?P<operator>\n|&&|\|\||[0-9]?>>?(?:&[0-9])?|&>|[;|&<()])'
    r"|(?P<variable>\$(?:[A-Za-z_][A-Za-z0-9_]*|\{[A-Za-z_][A-Za-z0-9_]*\}))|(?P<plain>[^'\"\\ \t\r\n;|&<>()$`]+)",
    re.DOTALL,
)
_IN_DOUBLE: Final = re.compile(
    r"\\(?P<escaped>[\"\\$`])|(?P<joined>\\\n)|(?P<variable>\$(?:[A-Za-z_][A-Za-z0-9_]*|\{[A-Za-z_][A-Za-z0-9_]*\}))"
    r"|(?P<odd>[`$])",
    re.DOTALL,
)
_ASSIGNMENT: Final = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)=(?P<value>.*)", re.DOTALL)
_PYTHON: Final = re.compile(r"(?:.*/)?python(?:[23](?:\.[0-9]+)?)?")
_SHELLS: Final = frozenset({"bash", "sh", "dash", "zsh", "source", "."})
_WITH_VALUE: Final = frozenset({"-W", "-X"})
_MAX_LENGTH: Final = 65_536


class JobCommand(msgspec.Struct, frozen=True):
    """A job command that was read.

    Args:
        words: ``-m`` and a module, or a script, followed by the program's arguments.
        folder: to which the command changes first; "" for none.
        variables: that the command sets.
        left_out: parts of the line that have no effect in Legato.
    """

    words: tuple[str, ...]
    folder: str = ""
    variables: dict[str, str] = {}
    left_out: tuple[str, ...] = ()


class _Word(str):
    """A word of a command."""

    __slots__ = ()


class _Operator(str):
    """An operator of the shell between words, such as ``&&``."""

    __slots__ = ()


def read_job_command(text: str, known: Mapping[str, str] | None = None) -> JobCommand:
    """Read a job command.

    Args:
        text: of the command.
        known: variables of the job, for which ``$NAME`` stands.

    Raises:
        UsageError: the command needs a shell, or runs no program of Python.
    """
    if not text.strip():
        raise UsageError(
            'The option --job_command is missing. Write what each worker runs, such as --job_command="python train.py".'
        )
    variables = dict(known or {})
    own: dict[str, str] = {}
    folder = ""
    left_out: list[str] = []
    parts, tail = _cut_tail(split_line(text, variables))
    left_out += tail
    while parts:
        part, ends = _take_part(parts)
        parts = parts[len(part) + (ends is not None) :]
        words = [str(word) for word in part]
        if ends is None:
            while words and (found := _ASSIGNMENT.fullmatch(words[0])):
                own[found["name"]] = found["value"]
                del words[0]
            for name in own:
                check_variable(name, "--job_command")
            program, dropped = _read_program(words)
            return JobCommand(program, folder, own, (*left_out, *dropped))
        if words[:1] == ["cd"] and len(words) == 2:
            folder = words[1] if words[1].startswith("/") or not folder else f"{folder}/{words[1]}"
        elif words[:1] == ["export"] and all(_ASSIGNMENT.fullmatch(word) for word in words[1:]):
            own |= {name: value for name, _, value in (word.partition("=") for word in words[1:])}
        elif words[:2] in (["set", "-o"], ["set", "-e"], ["set", "-x"], ["set", "-ex"]) or not words:
            left_out += [" ".join(words)] if words else []
        else:
            raise _refuse(f"'{' '.join(words)[:100]} {ends}'")
    raise UsageError("The --job_command is empty. Write what each worker runs, such as 'python train.py'.")


def split_line(text: str, variables: Mapping[str, str]) -> list[_Word | _Operator]:
    """Split a line into words and the shell's operators between them.

    Args:
        text: the line.
        variables: values for ``$NAME``.

    Raises:
        UsageError: the line is too long, has a quote that is not closed or an unknown variable, or needs a shell.

    >>> split_line("a 'b c'&&$D$D", {"D": "d"})
    ['a', 'b c', '&&', 'dd']
    """
    if len(text) > _MAX_LENGTH or "\0" in text:
        raise UsageError(
            f"The --job_command is longer than {_MAX_LENGTH} characters, or contains a zero byte. Correct it."
        )
    found: list[_Word | _Operator] = []
    word: str | None = None
    place = 0
    while place < len(text):
        piece = _PIECE.match(text, place)
        if piece is None:
            if text[place] in "'\"":
                raise UsageError(f"A quote {text[place]} in --job_command is not closed. Close it.")
            raise _refuse(f"'{text[place : place + 20]}'")
        kind, said = piece.lastgroup, piece[0]
        if kind == "plain" and said.startswith("#") and word is None:
            place = text.find("\n", place) if "\n" in text[place:] else len(text)
            continue
        place = piece.end()
        if kind in ("blank", "operator"):
            if word is not None:
                found.append(_Word(word))
                word = None
            if kind == "operator":
                found.append(_Operator(said))
        elif kind != "joined":
            word = (word or "") + _read_piece(kind or "", said, variables)
    return found if word is None else [*found, _Word(word)]


def _read_piece(kind: str, said: str, variables: Mapping[str, str]) -> str:
    if kind == "single":
        return said[1:-1]
    if kind == "escaped":
        return said[1:] or said
    if kind == "variable":
        return _find_variable(said, variables)
    if kind == "double":

        def read(found: re.Match[str]) -> str:
            if found["odd"]:
                raise _refuse(f"'{found['odd']}' inside of double quotes")
            return found["escaped"] or (_find_variable(found["variable"], variables) if found["variable"] else "")

        return _IN_DOUBLE.sub(read, said[1:-1])
    return said


def _find_variable(said: str, variables: Mapping[str, str]) -> str:
    name = said[1:].strip("{}")
    if name not in variables:
        raise UsageError(
            f"The --job_command has {said}, which --envs does not set. Write its value, or read it in the program: "
            f"os.environ['{name}']."
        )
    return variables[name]


def _take_part(parts: Sequence[_Word | _Operator]) -> tuple[list[_Word], _Operator | None]:
    """Return the words before the next operator, and the operator; None if there is none."""
    part: list[_Word] = []
    for one in parts:
        if isinstance(one, _Operator):
            if one not in ("&&", ";", "\n"):
                raise _refuse(f"'{one}'")
            return part, one
        part.append(one)
    return part, None


def _cut_tail(parts: list[_Word | _Operator]) -> tuple[list[_Word | _Operator], list[str]]:
    """Return a line without the redirection at its end, and the redirection."""
    while parts and isinstance(parts[-1], _Operator) and parts[-1] in (";", "\n"):
        parts = parts[:-1]
    last = max((place for place, one in enumerate(parts) if isinstance(one, _Operator) and _joins(one)), default=-1) + 1
    for place in range(last, len(parts)):
        one = parts[place]
        if isinstance(one, _Operator) and (one.lstrip("012").startswith(">") or one == "&>"):
            return parts[:place], _name_tail(parts[place:])
        if isinstance(one, _Operator) and one == "|" and parts[place + 1 : place + 2] == ["tee"]:
            return parts[:place], _name_tail(parts[place:])
    return parts, []


def _joins(operator: str) -> bool:
    return operator in ("&&", ";", "\n")


def _name_tail(parts: Sequence[str]) -> list[str]:
    known = {"|", "tee", "-a", "2>&1", ">", ">>", "&>", "2>", "1>", "1>>", "2>>", "1>&2", ">&2", ">&1"}
    files = [one for one in parts if one not in known]
    if any(isinstance(one, _Operator) and one not in known for one in parts) or len(files) > 2:
        raise _refuse(f"'{' '.join(parts)[:100]}'")
    return [" ".join(parts)]


def _read_program(words: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """Return the program that Python runs with its arguments, and the options of Python that are dropped."""
    if not words:
        raise UsageError("The --job_command is empty. Write what each worker runs, such as 'python train.py'.")
    if not _PYTHON.fullmatch(words[0]):
        if words[0] in _SHELLS:
            raise _refuse(f"'{words[0]}'")
        if words[0].endswith(".py"):
            return tuple(words), []
        raise UsageError(
            f"The --job_command runs '{words[0][:100]}', which is not Python: workers are forked from a process that "
            "has loaded torch. Write 'python SCRIPT ...' or 'python -m MODULE ...'."
        )
    left_out = []
    place = 1
    while place < len(words) and words[place].startswith("-") and words[place] not in ("-m", "-c", "-"):
        step = 2 if words[place] in _WITH_VALUE else 1
        left_out.append(" ".join(words[place : place + step]))
        place += step
    rest = tuple(words[place:])
    if rest[:1] in (("-c",), ("-",)) or not rest or rest == ("-m",):
        raise UsageError("The --job_command names no program. Write 'python SCRIPT ...' or 'python -m MODULE ...'.")
    return rest, left_out


def _refuse(said: str) -> UsageError:
    return UsageError(
        f"The --job_command has {said}, which needs a shell, and Legato runs none. Write 'python SCRIPT ...' or "
        "'python -m MODULE ...', move what comes before into the program, and install packages on the nodes beforehand."
    )
