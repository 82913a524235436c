"""Reads the arguments with which programs call ElasticDL's classes, in the forms of all releases. Pure.

Releases added arguments in front, in the middle and at the end. A keyword argument is read by its name. A positional
argument is read by its type and its order among arguments of that type: numbers, flags, texts, and a master's client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from legato.core.errors import UsageError

_NUMBERS: Final = ("batch_size", "num_epochs", "dataset_size", "task_type", "num_minibatches_per_shard")
_FLAGS: Final = ("shuffle", "shuffle_shards")
_IGNORED: Final = ("training_data", "num_workers", "remainder", "master_client")


class ServiceForm(NamedTuple):
    """The arguments of a data shard service.

    Args:
        batch_size: number of records of a mini-batch.
        num_epochs: how often each record is handed out; None if not given.
        dataset_size: number of records; None if not given.
        shuffle: another order of all records in each epoch.
        shuffle_shards: another order of the tasks in each epoch.
        task_type: a number of the historic protocol.
        num_minibatches_per_shard: mini-batches of a task; 0 for the number with which the job was submitted.
        dataset_name: name of the data set; empty for the default one.
    """

    batch_size: int
    num_epochs: int | None = None
    dataset_size: int | None = None
    shuffle: bool = False
    shuffle_shards: bool = False
    task_type: int = 1
    num_minibatches_per_shard: int = 0
    dataset_name: str = ""


def read_service(what: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> ServiceForm:
    """Read the arguments of a service, in the form of any release.

    Args:
        what: name of the class, for errors.
        args: the positional arguments.
        kwargs: the keyword arguments.

    Raises:
        TypeError: an argument is unknown, there are too many, or ``batch_size`` is missing.
        UsageError: a number is invalid.

    >>> read_service("service", [object(), 64, 2, 1000, True], {})[:5]
    (64, 2, 1000, True, False)
    >>> read_service("service", [64, 2, 1000, 1, True], {"dataset_name": "mine"})[:5]
    (64, 2, 1000, True, False)
    """
    known = (*_NUMBERS, *_FLAGS, "dataset_name", *_IGNORED)
    unknown = sorted(set(kwargs) - set(known))
    if unknown:
        raise TypeError(f"{what}() got an unexpected keyword argument '{unknown[0]}'")
    said = {name: value for name, value in kwargs.items() if value is not None}
    numbers = [name for name in (*_NUMBERS, "num_workers") if name not in kwargs]
    flags = [name for name in _FLAGS if name not in kwargs]
    for place, value in enumerate(args):
        if isinstance(value, bool) and flags:
            said[flags.pop(0)] = value
        elif isinstance(value, str):
            said["dataset_name"] = value
        elif value is None:
            # None leaves the next number out, if that may be missing. In the first place it is a missing client.
            del numbers[: int(bool(place) and numbers[:1] in (["num_epochs"], ["dataset_size"]))]
        elif isinstance(value, int) and not isinstance(value, bool) and numbers:
            said[numbers.pop(0)] = value
        elif not isinstance(value, int | float):
            said["master_client"] = value
        else:
            raise TypeError(f"{what}() takes no argument {value!r} at place {place + 1}")
    if "batch_size" not in said:
        raise TypeError(f"{what}() missing 1 required argument: 'batch_size'")
    # The process finds the source of its tasks itself: it does not need the program's client.
    for name in _IGNORED:
        said.pop(name, None)
    form = ServiceForm(**said)
    _check(what, form)
    return form


def read_controller(what: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return the data shard service of a controller: the argument ``data_shard_service``, or the last positional one.

    Raises:
        TypeError: a keyword argument is unknown.
    """
    unknown = sorted(set(kwargs) - {"master_client", "master_addr", "data_shard_service"})
    if unknown:
        raise TypeError(f"{what}() got an unexpected keyword argument '{unknown[0]}'")
    if "data_shard_service" in kwargs:
        return kwargs["data_shard_service"]
    return args[-1] if args else None


def _check(what: str, form: ServiceForm) -> None:
    for name in ("batch_size", "num_epochs", "dataset_size", "num_minibatches_per_shard"):
        value = getattr(form, name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise UsageError(f"{what}: {name}={value!r} is not a whole number.")
    if form.batch_size < 1:
        raise UsageError(f"{what}: batch_size={form.batch_size} is below 1. Give 1 or more.")
    if form.dataset_size is not None and form.dataset_size < 1:
        raise UsageError(
            f"{what}: dataset_size={form.dataset_size}: there are no records. Check the folder with the data."
        )
    if form.num_minibatches_per_shard < 0:
        raise UsageError(
            f"{what}: num_minibatches_per_shard={form.num_minibatches_per_shard} is below 0. Give 0 or more."
        )
    if form.dataset_size is not None and form.batch_size > form.dataset_size:
        raise UsageError(
            f"{what}: batch_size={form.batch_size} is larger than dataset_size={form.dataset_size}. Take a batch_size "
            f"of {form.dataset_size} or less."
        )
