"""Reads a request for WMLA's hyperparameter search, and turns it into the fields of a sweep. Pure.

Algorithms: Random, Tpe, Bayesian (searched by TPE), Hyperband, and ExperimentGridSearch, whose experiments are the
points of a list. Whatever cannot be done is refused by its name.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Literal, cast

import msgspec

from legato.api.sweeps import Pruning, PruningMethod
from legato.compat.wmla.trials import Kind, Search, Value, convert_value, name_metric
from legato.core.errors import UsageError
from legato.sweeps.checking import MAX_PARAMETERS, MAX_RESOURCE, MAX_TRIALS, MAX_VALUES
from legato.sweeps.rungs import count_trials

ALGORITHMS: Final = ("Random", "TPE", "Bayesian", "Hyperband", "ExperimentGridSearch")

_KINDS: Final[Mapping[str, Kind]] = {"int": "int", "double": "double", "str": "str"}
_RANGES: Final[Mapping[str, tuple[str, str]]] = {"int": ("minIntVal", "maxIntVal"), "double": ("minDbVal", "maxDbVal")}
_LISTS: Final[Mapping[Kind, tuple[str, ...]]] = {
    "int": ("discreteIntVal",),
    "double": ("discreteDbVal",),
    "str": ("discreateStrVal", "discreteStrVal"),
}
_IGNORED: Final = ("WarmUp", "EICandidate", "GoodRatio", "GoodMax", "InitPoints", "CubeSize", "Noiseless")
_MAX_FACTOR: Final = 100
_FIELDS: Final = (
    *("algorithm", "objectiveMetric", "objective", "maxRunTime", "maxJobNum", "maxParalleJobNum", "maxParalleJob"),
    *("algoParams", "hyperbandEta", "additionalMetrics"),
)
"""Those of ``algoDef``."""
_MAX_UNKNOWN: Final = 5
_MAX_SEED: Final = 2**53
_MAX_EXPONENT: Final = 300
_MAX_STEPS: Final = 10**15


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a search.

    Args:
        name: of the search; None: the server makes one.
        args: the arguments of the trials' submission, ``--exec-start …``.
        search: what the trials must know.
        fields: of the sweep, without its name and its job.
        notices: sentences about what was accepted without effect.
    """

    name: str | None
    args: str
    search: Search
    fields: dict[str, Any]
    notices: tuple[str, ...]


def read_request(data: Mapping[str, Any]) -> Wanted:
    """Read the JSON object in the field ``data`` of a request.

    Raises:
        UsageError: a field is missing, or asks for something that cannot be done; the message says what to do.
    """
    model, algorithm = _get_object(data, "modelSpec"), _get_object(data, "algoDef")
    name = _read_algorithm(_get_text(algorithm, "algorithm", "algoDef."))
    metric = _get_text(algorithm, "objectiveMetric", "algoDef.")
    objective = _get_text(algorithm, "objective", "algoDef.").lower()
    if objective not in ("minimize", "maximize"):
        raise UsageError(f"algoDef.objective is '{objective[:100]}'. Write minimize or maximize.")
    settings = _read_settings(algorithm)
    group = model.get("sigName")
    if group is not None and not isinstance(group, str):
        raise UsageError("modelSpec.sigName is not a text. Give the name of an instance group.")
    fields: dict[str, Any] = {
        "metric": {"name": name_metric(metric), "direction": objective},
        "parallel": _read_count(
            algorithm.get("maxParalleJobNum", algorithm.get("maxParalleJob", 1)), "maxParalleJobNum"
        ),
        "seed": _read_seed(settings),
    }
    minutes = _read_count(algorithm.get("maxRunTime", -1), "maxRunTime", unlimited=True)
    if minutes is not None:
        fields["max_run_s"] = 60.0 * minutes
    most = _read_count(algorithm.get("maxJobNum", -1), "maxJobNum", unlimited=True)
    ids: tuple[int, ...] = ()
    resource: str | None = None
    if name == "ExperimentGridSearch":
        points, ids, kinds = _read_experiments(data)
        points = points[: most or len(points)]
        fields |= {"search": "list", "points": points, "num_trials": len(points)}
        ids = ids[: len(points)]
    else:
        parameters, kinds = _read_parameters(data)
        fields |= {"parameters": parameters, "search": "tpe" if name in ("TPE", "Bayesian") else "random"}
        fields["num_trials"] = most or MAX_TRIALS
    if name == "Hyperband":
        pruning = _read_hyperband(algorithm, settings)
        resource, size = pruning.parameter, count_trials(pruning)
        if min(most or size, size) > MAX_TRIALS:
            raise UsageError(
                f"Hyperband with ResourceValue {pruning.max_resource} has {size} trials, and a search may have "
                f"{MAX_TRIALS}. Give a lower ResourceValue or a larger eta, or maxJobNum."
            )
        fields["num_trials"] = min(most or size, size)
        fields["pruning"] = {key: getattr(pruning, key) for key in ("method", "factor", "max_resource", "parameter")}
        kinds = {**kinds, str(resource): "int"}
    search = Search(
        algorithm=name,
        metric=metric,
        objective=cast("Literal['minimize', 'maximize']", objective),
        kinds=kinds,
        resource=resource,
        ids=ids,
        group=group or None,
    )
    hpo_name = data.get("hpoName")
    if hpo_name is not None and (not isinstance(hpo_name, str) or not hpo_name):
        raise UsageError("hpoName is not a text. Give a name, or leave it out.")
    return Wanted(
        name=hpo_name,
        args=_get_text(model, "args", "modelSpec."),
        search=search,
        fields=fields,
        notices=_list_notices(name, algorithm, settings, most),
    )


def _list_notices(
    name: str, algorithm: Mapping[str, Any], settings: Mapping[str, str], most: int | None
) -> tuple[str, ...]:
    found = []
    if name == "Bayesian":
        found.append("Bayesian is searched by TPE here.")
    if most is None and name not in ("Hyperband", "ExperimentGridSearch"):
        found.append(f"Without maxJobNum, the search ends after {MAX_TRIALS} trials.")
    used = {"RandomSeed", *(("ResourceName", "ResourceValue", "eta") if name == "Hyperband" else ())}
    ignored = [setting for setting in settings if setting not in used]
    ignored += ["additionalMetrics"] if algorithm.get("additionalMetrics") else []
    ignored += ["hyperbandEta"] if "hyperbandEta" in algorithm and name != "Hyperband" else []
    if ignored:
        found.append(f"Accepted, but without effect here: {', '.join(ignored)}.")
    for given in [field[:100] for field in algorithm if field not in _FIELDS][:_MAX_UNKNOWN]:
        meant = difflib.get_close_matches(given, _FIELDS, 1)
        found.append(f"algoDef has no field '{given}'{f'; did you mean {meant[0]}?' if meant else '.'}")
    return tuple(found)


def find_algorithm(given: str) -> str | None:
    """Return an algorithm by its name in any case; None: there is none."""
    return next((name for name in ALGORITHMS if name.lower() == given.lower()), None)


def _read_algorithm(given: str) -> str:
    found = find_algorithm(given)
    if found is None:
        raise UsageError(
            f"There is no algorithm '{given[:100]}'. Use one of {', '.join(ALGORITHMS)}; algorithms of your own "
            "(plug-ins) are not supported."
        )
    return found


def _read_settings(algorithm: Mapping[str, Any]) -> dict[str, str]:
    """Return ``algoParams`` by name."""
    found: dict[str, str] = {}
    known = {name.lower(): name for name in ("RandomSeed", "eta", "ResourceName", "ResourceValue", *_IGNORED)}
    for setting in _get_list(algorithm, "algoParams"):
        given = str(setting.get("name", "")) if isinstance(setting, dict) else ""
        name = known.get(given.lower())
        if name is None:
            raise UsageError(f"algoParams has no parameter '{given[:100]}'. It may have {', '.join(known.values())}.")
        found[name] = str(setting.get("value", ""))
    return found


def _read_seed(settings: Mapping[str, str]) -> int:
    seed = settings.get("RandomSeed") or "0"
    if not (seed.isascii() and seed.isdecimal() and len(seed) <= len(str(_MAX_SEED)) and int(seed) <= _MAX_SEED):
        raise UsageError(f"RandomSeed is '{seed[:100]}'. Give a whole number from 0 to 2^53.")
    return int(seed)


def _read_hyperband(algorithm: Mapping[str, Any], settings: Mapping[str, str]) -> Pruning:
    parameter, value = settings.get("ResourceName"), settings.get("ResourceValue", "")
    if not parameter:
        raise UsageError(
            "Hyperband needs the algoParams ResourceName, the parameter that tells the program how long to train, such "
            "as 'epochs', and ResourceValue, its largest value."
        )
    if not (value.isascii() and value.isdecimal() and len(value) <= 20 and 1 <= int(value) <= MAX_RESOURCE):
        raise UsageError(f"ResourceValue is '{value[:100]}'. Give a whole number from 1 to {MAX_RESOURCE}.")
    eta = _read_number(settings.get("eta", algorithm.get("hyperbandEta", 3)), "eta")
    if eta != int(eta) or not 2 <= eta <= _MAX_FACTOR:
        raise UsageError(f"eta is {eta}. Give a whole number from 2 to {_MAX_FACTOR}.")
    return Pruning(method=PruningMethod.HYPERBAND, factor=int(eta), max_resource=int(value), parameter=parameter)


# ---------------------------------------------------------------- the parameters


def _read_experiments(data: Mapping[str, Any]) -> tuple[list[dict[str, Value]], tuple[int, ...], dict[str, Kind]]:
    """Return the points of ``experiments``, their ids, and the types of their parameters."""
    experiments = _get_list(data, "experiments")
    if not experiments or _get_list(data, "hyperParams"):
        raise UsageError("ExperimentGridSearch searches 'experiments' and nothing else: give them, not hyperParams.")
    if len(experiments) > MAX_TRIALS:
        raise UsageError(f"There are {len(experiments)} experiments. Give at most {MAX_TRIALS}.")
    points: list[dict[str, Value]] = []
    ids: list[int] = []
    kinds: dict[str, Kind] = {}
    for place, experiment in enumerate(experiments):
        where = f"experiments[{place}]"
        if not isinstance(experiment, dict):
            raise UsageError(f"{where} is not an object. Write {{'id': 1, 'hyperParams': […]}}.")
        number = experiment.get("id", place)
        if not isinstance(number, int) or isinstance(number, bool) or abs(number) > _MAX_SEED or number in ids:
            raise UsageError(f"{where}.id is {str(number)[:100]!r}. Give each experiment a whole number of its own.")
        ids.append(number)
        point: dict[str, Value] = {}
        for given in _get_list(experiment, "hyperParams", "fixedHyperParams"):
            name, kind = _read_name(given, where)
            if kinds.setdefault(name, kind) != kind:
                raise UsageError(f"'{name}' has two types in the experiments: {kinds[name]} and {kind}. Give it one.")
            if name in point:
                raise UsageError(f"'{name}' is twice in {where}. Remove one.")
            point[name] = _convert(kind, given.get("fixedVal"), f"{where}, '{name}', fixedVal")
        points.append(point)
    return points, tuple(ids) if ids != list(range(len(ids))) else (), kinds


def _read_parameters(data: Mapping[str, Any]) -> tuple[dict[str, dict[str, Any]], dict[str, Kind]]:
    """Return the values that ``hyperParams`` may have, as the fields of a sweep's parameters, and their types."""
    if _get_list(data, "experiments"):
        raise UsageError("Only ExperimentGridSearch has 'experiments'. Give hyperParams, or use that algorithm.")
    given = _get_list(data, "hyperParams")
    if not 1 <= len(given) <= MAX_PARAMETERS:
        raise UsageError(f"There are {len(given)} hyperParams. Give 1 to {MAX_PARAMETERS}.")
    found: dict[str, dict[str, Any]] = {}
    kinds: dict[str, Kind] = {}
    for place, one in enumerate(given):
        name, kind = _read_name(one, f"hyperParams[{place}]")
        if name in found:
            raise UsageError(f"'{name}' is twice among the hyperParams. Remove one.")
        found[name], kinds[name] = _read_tunable(one, name, kind), kind
    return found, kinds


def _read_name(given: Any, where: str) -> tuple[str, Kind]:
    if not isinstance(given, dict):
        raise UsageError(f"{where} is not an object with name and dataType. Write one.")
    name = _get_text(given, "name", f"{where}.")
    kind = _KINDS.get(_get_text(given, "dataType", f"{where}.").lower())
    if kind is None:
        raise UsageError(f"The dataType of '{name[:100]}' is '{str(given['dataType'])[:100]}'. Use int, double or str.")
    return name[:255], kind


def _read_tunable(given: Mapping[str, Any], name: str, kind: Kind) -> dict[str, Any]:
    shape = _get_text(given, "type", f"'{name}', ").lower()
    if shape in ("fix", "fixed"):
        return {"values": [_convert(kind, given.get("fixedVal"), f"'{name}', fixedVal")]}
    if shape == "discrete":
        values = next((given[field] for field in _LISTS[kind] if given.get(field)), None)
        if not isinstance(values, list):
            raise UsageError(f"'{name}' is discrete, and has no list {_LISTS[kind][0]}. Give its values there.")
        return {"values": [_convert(kind, value, f"'{name}', {_LISTS[kind][0]}") for value in values]}
    if shape != "range":
        raise UsageError(f"The type of '{name}' is '{shape[:100]}'. Use Range, Discrete or Fix.")
    if kind == "str":
        raise UsageError(f"'{name}' is a range of texts, which does not exist. Use the type Discrete.")
    fields = _RANGES[kind]
    low, high = (_convert(kind, given.get(field), f"'{name}', {field}") for field in fields)
    if low > high:  # type: ignore[operator]
        raise UsageError(f"'{name}' has {fields[0]}={low} above {fields[1]}={high}. Exchange them.")
    return _read_range(given, name, kind, Decimal(str(low)), Decimal(str(high)))


def _read_range(given: Mapping[str, Any], name: str, kind: Kind, low: Decimal, high: Decimal) -> dict[str, Any]:
    """Return the values of a range. With ``power``, low and high are exponents of it."""
    as_kind = int if kind == "int" else float
    step = _read_number(given["step"], f"'{name}', step") if given.get("step") not in (None, "") else None
    if step is not None and step <= 0:
        raise UsageError(f"'{name}' has step={step}. Give a step above 0.")
    if step is not None and (high - low) / step > _MAX_STEPS:
        raise UsageError(f"'{name}' has step={step}, which is too small for {low} to {high}. Give a larger step.")
    if given.get("power") in (None, ""):
        if step is not None:
            # The last value is the last step that is not above the end.
            high = low + (high - low) // step * step
        if low == high:
            return {"values": [as_kind(low)]}
        if kind == "int" and step is not None and step != int(step):
            raise UsageError(f"'{name}' is a range of integers with step={step}. Give a whole step.")
        return {"low": as_kind(low), "high": as_kind(high)} | ({} if step is None else {"step": as_kind(step)})
    power = _read_number(given["power"], f"'{name}', power")
    if power <= 1 or max(abs(low), abs(high)) * power.log10() > _MAX_EXPONENT:
        raise UsageError(
            f"'{name}' has power={power}, whose values are {power}^{low} to {power}^{high}. Give a power above 1 and "
            "exponents whose values are numbers."
        )
    if kind == "double" and step is None and low < high:
        return {"low": float(power**low), "high": float(power**high), "log": True}
    count = int((high - low) // (step or 1)) + 1
    if count > MAX_VALUES:
        raise UsageError(f"'{name}' has {count} powers. Give at most {MAX_VALUES}: a larger step, or a smaller range.")
    powers = [power ** (low + place * (step or 1)) for place in range(count)]
    if kind == "int" and any(value != int(value) for value in powers):
        raise UsageError(f"'{name}' is of type int, and {power}^{low} to {power}^{high} are not. Use double.")
    return {"values": [as_kind(value) for value in powers]}


# ---------------------------------------------------------------- fields of a JSON object


def _get_object(data: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    found = data.get(field)
    if not isinstance(found, dict):
        raise UsageError(f"The field '{field}' is missing. A search needs modelSpec, algoDef and hyperParams.")
    return found


def _get_text(data: Mapping[str, Any], field: str, where: str) -> str:
    found = data.get(field)
    if not isinstance(found, str) or not found.strip():
        raise UsageError(f"{where}{field} is missing, or is not a text. Give it.")
    return found.strip()


def _get_list(data: Mapping[str, Any], *fields: str) -> Sequence[Any]:
    found: Any = next((data[field] for field in fields if data.get(field)), [])
    if not isinstance(found, list):
        raise UsageError(f"{fields[0]} is not a list. Write [{{…}}, …].")
    return found


def _read_count(value: Any, name: str, *, unlimited: bool = False) -> Any:
    """Return a whole number of at least 1; None if it is unlimited."""
    found = int(value) if isinstance(value, str) and value.lstrip("-").isdecimal() and len(value) < 10 else value
    if unlimited and (found is None or found == -1):
        return None
    if not isinstance(found, int) or isinstance(found, bool) or not 1 <= found <= 10**9:
        more = ", or -1 for no limit" if unlimited else ""
        raise UsageError(f"{name} is {str(value)[:100]}. Give a whole number of at least 1{more}.")
    return found


def _read_number(value: Any, where: str) -> Decimal:
    try:
        found = Decimal(str(value)[:100])
    except InvalidOperation:
        found = Decimal("nan")
    if isinstance(value, bool) or not found.is_finite() or abs(found) > 10**15:
        raise UsageError(f"{where} is {str(value)[:100]}. Give a number.")
    return found


def _convert(kind: Kind, value: Any, where: str) -> Value:
    try:
        found = convert_value(kind, value)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{where} is missing, or is not of type {kind}. Give such a value.") from error
    if kind != "str" and not abs(found) <= 2**53:  # type: ignore[arg-type]  # also if it is not a number
        raise UsageError(f"{where} is {found}. Give a number between -2^53 and 2^53.")
    return found
