"""A trial of WMLA's hyperparameter search, as its worker sees it: ``config.json``, and the value of its objective.

The parameters of the trial are the last arguments of the job's program, after a parameter `SEARCH` that describes the
search. The program itself gets none of them: it reads ``config.json`` in its working directory.
"""

from __future__ import annotations

import contextlib
import json
import math
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from legato.compat.wmla.names import METRICS_FILE
from legato.core.errors import ProgramError, UsageError
from legato.system.decoding import decode

SEARCH: Final = "wmla-hpo"
"""Name of the parameter of a job with a `Search` as JSON; the parameters of the trial follow it."""

CONFIG_FILE: Final = "config.json"
VALUES_FILE: Final = "val_dict_list.json"
"""File in RESULT_DIR with the metrics of a trial: a list of objects, or one object."""

_MAX_BYTES: Final = 16 * 2**20

Kind = Literal["int", "double", "str"]
Value = int | float | str


class Search(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a trial must know about its search.

    Args:
        algorithm: WMLA's name of it.
        metric: whose best value is the value of the trial.
        objective: which values are better.
        kinds: of the parameters, by name.
        resource: the parameter that is Hyperband's resource.
        ids: of the experiments; empty: they are counted from 0.
        group: the instance group, if the request named one as in 1.2.x.
    """

    algorithm: str
    metric: str
    objective: Literal["minimize", "maximize"]
    kinds: dict[str, Kind]
    resource: str | None = None
    ids: tuple[int, ...] = ()
    group: str | None = None


class Trial(msgspec.Struct, frozen=True):
    """A trial: its search, and its parameters by name."""

    search: Search
    parameters: dict[str, Value]


def name_metric(metric: str) -> str:
    """Return the name under which a job records its objective: the program may log other values under its own name.

    >>> name_metric("loss")
    'hpo_loss'
    """
    return f"hpo_{metric}"


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], Trial | None]:
    """Return the program's own arguments, and the trial; None: the job is no trial.

    >>> own, trial = split_arguments(
    ...     ["--epochs", "3", "--wmla-hpo", '{"algorithm":"Random","metric":"loss","objective":"minimize",'
    ...     '"kinds":{"lr":"double","n":"int"}}', "--lr", "0.1", "--n=-2"]
    ... )
    >>> own, trial.parameters
    (['--epochs', '3'], {'lr': 0.1, 'n': -2})
    """
    mark = f"--{SEARCH}"
    if mark not in arguments:
        return list(arguments), None
    place = len(arguments) - 1 - list(reversed(arguments)).index(mark)
    try:
        search = decode(arguments[place + 1], Search)
        parameters = {name: convert_value(search.kinds[name], text) for name, text in _pair(arguments[place + 2 :])}
    except (IndexError, KeyError, ValueError, msgspec.MsgspecError) as error:
        raise UsageError(
            f"Cannot read the parameters of the trial: {error}. Start the search again by POST /hypersearch."
        ) from error
    return list(arguments[:place]), Trial(search, parameters)


def convert_value(kind: Kind, value: Any) -> Value:
    """Return a value of a parameter with its type.

    Raises:
        ValueError: it has another type.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"'{value}' is not of type {kind}")  # noqa: TRY004 - as for other values
    if kind == "str":
        return str(value)
    if kind == "double":
        return float(value)
    if isinstance(value, float) and not value.is_integer():
        raise ValueError(f"'{value}' is not of type int")
    return int(value)


def write_config(directory: Path, trial: Trial) -> None:
    """Write ``config.json`` into the working directory of the program. All workers of the job write the same file."""
    # Workers of several machines may share the directory and have one process number.
    draft = directory / f".{CONFIG_FILE}.{secrets.token_hex(8)}"
    draft.write_text(json.dumps(trial.parameters))
    draft.replace(directory / CONFIG_FILE)


def read_objective(result_dir: Path, log_dirs: Iterable[Path], search: Search) -> float:
    """Return the best value of the objective that the program has written.

    Args:
        result_dir: of the job, with `VALUES_FILE`.
        log_dirs: directories in which `EMetrics` may have written the values of the test group; they are read if
            the program has not written `VALUES_FILE`.
        search: of the trial.

    Raises:
        ProgramError: there is no finite value, or the file cannot be read; the message says what to do.
    """
    file = result_dir / VALUES_FILE
    if file.exists():
        where, entries = f"RESULT_DIR/{VALUES_FILE}", _read_entries(file)
    else:
        where, entries = "what the program recorded by EMetrics in the test group", _read_emetrics(log_dirs)
    found = [entry[search.metric] for entry in entries if search.metric in entry]
    values = [number for number in map(_read_number, found) if number is not None]
    if values:
        return max(values) if search.objective == "maximize" else min(values)
    if found:
        why = f"no value of '{search.metric}' in {where} is a finite number"
    elif names := sorted({str(name)[:100] for entry in entries for name in entry})[:10]:
        why = f"there is no '{search.metric}' in {where}, only {', '.join(names)}"
    else:
        why = f"the program has written no RESULT_DIR/{VALUES_FILE}" if not file.exists() else f"{where} is empty"
    raise ProgramError(
        f"This trial has no value of its objective: {why}. Write at the end of the program, for example: "
        f"json.dump([{{'step': 1, '{search.metric}': 0.5}}], open(os.environ['RESULT_DIR'] + '/{VALUES_FILE}', 'w'))"
    )


def _pair(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield names and values of arguments as `write_parameters` writes them, without booleans."""
    waiting = iter(words)
    for word in waiting:
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            raise ValueError(f"'{word[:100]}' is not a parameter")
        yield name, value if equals else next(waiting, "")


def _read_entries(file: Path) -> list[Mapping[str, Any]]:
    told = f"Cannot read RESULT_DIR/{VALUES_FILE}"
    if file.stat().st_size > _MAX_BYTES:
        raise ProgramError(f"{told}: it has more than {_MAX_BYTES // 2**20} MiB. Write one entry for each epoch.")
    try:
        found = json.loads(file.read_text())
    except (ValueError, RecursionError) as error:
        raise ProgramError(f"{told}: it is not JSON: {error}. Write it by json.dump.") from error
    entries = found if isinstance(found, list) else [found]
    return [entry for entry in entries if isinstance(entry, dict)]


def _read_emetrics(log_dirs: Iterable[Path]) -> list[Mapping[str, Any]]:
    entries: list[Mapping[str, Any]] = []
    for directory in log_dirs:
        file = directory / METRICS_FILE
        if not file.is_file() or file.stat().st_size > _MAX_BYTES:
            continue
        for line in file.read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                record = json.loads(line)
                if record["grouplabel"] == "test":
                    entries.append({name: float(typed["value"]) for name, typed in record["values"].items()})
    return entries


def _read_number(value: object) -> float | None:
    """Return a finite number; None for anything else."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    with contextlib.suppress(OverflowError):  # an integer may be larger than any float
        return number if math.isfinite(number := float(value)) else None
    return None
