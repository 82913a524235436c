"""Bodies of requests. They check only the form; the store and the policy check the rest."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    StringConstraints,
    model_validator,
)

from legato.control.records import NewJob

_MAX_INT: Final = 2**53
_MAX_ARGUMENTS: Final = 1000
_MAX_VARIABLES: Final = 1000
_MAX_PARAMETERS: Final = 1000
_MAX_LABELS: Final = 64
_MAX_UNKNOWN: Final = 20
_HALF: Final = re.compile("[\ud800-\udfff]")  # half of a surrogate pair, which JSON can contain without the other half

Name = Annotated[str, StringConstraints(max_length=255)]
Count = Annotated[int, Field(ge=-_MAX_INT, le=_MAX_INT)]
Seconds = Annotated[float, Field(allow_inf_nan=False)]


class Body(BaseModel):
    """The base of all bodies. It refuses unknown fields, and does not convert values to other types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _check_strings(cls, given: Any) -> Any:
        for text in _find_texts(given):
            if "\0" in text or _HALF.search(text) is not None:
                # Databases and files cannot store such a string.
                raise ValueError("a string contains a zero byte or half of a character; remove it")
        if isinstance(given, dict):
            unknown = [name for name in given if name not in cls.model_fields]
            if len(unknown) > _MAX_UNKNOWN:
                # One error for all of them, because thousands of errors take as long as thousands of requests.
                examples = ", ".join(f"'{name[:50]}'" for name in unknown[:3])
                raise ValueError(f"there are {len(unknown)} unknown fields, such as {examples}")
        return given


def _find_texts(value: Any) -> Iterator[str]:
    """Yield all strings in a decoded JSON value, including the names of fields."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, str):
            yield found
        elif isinstance(found, dict | list):
            yield from found if isinstance(found, dict) else ()
            waiting += found.values() if isinstance(found, dict) else found


def _as_tuple(value: Any) -> Any:
    # JSON has lists only. Everything else stays as it is, so that the strict check refuses it.
    return tuple(value) if isinstance(value, list) else value


def _as_texts(value: Any) -> Any:
    if isinstance(value, list) and sum(not isinstance(item, str) for item in value) > _MAX_UNKNOWN:
        raise ValueError("most of its items are not strings")  # one error for all of them
    return _as_tuple(value)


Texts = Annotated[tuple[str, ...], BeforeValidator(_as_texts)]


Value = StrictBool | StrictInt | Annotated[StrictFloat, Field(allow_inf_nan=False)] | StrictStr
Parameters = Annotated[dict[str, Value], Field(max_length=_MAX_PARAMETERS)]


class JobFields(Body):
    """The fields of a submission, all optional. A missing field has the value of the job that is cloned.

    ``docs/rest.md`` describes the fields.
    """

    name: Name | None = None
    program: Annotated[Texts, Field(max_length=_MAX_ARGUMENTS)] | None = None
    code: str | None = None
    directory: str | None = None
    max_workers: Count | None = None
    min_workers: Count | None = None
    is_elastic: bool | None = None
    gpus_per_worker: Count | None = None
    gpu_type: Name | None = None
    node_labels: Annotated[dict[str, str], Field(max_length=_MAX_LABELS)] | None = None
    queue: Name | None = None
    priority: Count | None = None
    labels: dict[str, str] | None = None
    max_retries: Count | None = None
    max_run_s: Seconds | None = None
    environment: Annotated[dict[str, str], Field(max_length=_MAX_VARIABLES)] | None = None
    data: str | None = None
    seed: Count | None = None
    num_threads: Count | None = None
    cpu_capability: str | None = None
    python: Annotated[str, StringConstraints(max_length=4096)] | None = None
    num_micro_batches: Count | None = None
    checkpoint_every: str | None = None
    keep: Count | None = None
    heartbeat_limit_s: Seconds | None = None
    collective_limit_s: Seconds | None = None
    memory_bytes: Count | None = None
    num_cpus: Seconds | None = None
    must_limit: bool | None = None
    parameters: Parameters | None = None


class Submission(JobFields):
    """A job to submit. ``docs/rest.md`` describes the fields."""

    name: Name
    program: Annotated[Texts, Field(max_length=_MAX_ARGUMENTS)]
    framework: Name | None = None


# The other fields are the job's spec, which the store keeps for the job's driver.
_OF_JOB: Final = (
    "name",
    "code",
    "max_workers",
    "min_workers",
    "is_elastic",
    "gpus_per_worker",
    "queue",
    "priority",
    "labels",
    "max_retries",
)


def make_job(fields: JobFields, *, default_priority: int, base: NewJob | None = None) -> NewJob:
    """Return the job that a submission describes.

    Args:
        fields: the submission. A missing field has the value of ``base``, or the default. A null field has the default.
        default_priority: the default of ``priority``.
        base: the job of which this is a clone. None: it is not a clone.
    """
    given = {name: getattr(fields, name) for name in fields.model_fields_set}
    values: dict[str, Any] = {"name": "", "priority": default_priority, "min_workers": None, "max_workers": 1}
    spec: dict[str, Any] = {}
    if base is not None:
        values |= {name: getattr(base, name) for name in _OF_JOB}
        spec |= base.spec
        if "code" in given or "directory" in given:
            # One of the two replaces the other.
            values["code"] = None
            spec.pop("directory", None)
    defaults = {"priority": default_priority, "max_workers": 1}
    for name, value in given.items():
        where = values if name in _OF_JOB else spec
        if value is not None:
            where[name] = value
        elif name in defaults:
            where[name] = defaults[name]
        elif name != "name":
            where.pop(name, None)
    max_workers = values["max_workers"]
    if values.get("min_workers") is None:
        values["min_workers"] = 1 if values.get("is_elastic", True) else max_workers
    if "program" in spec:
        spec["program"] = list(spec["program"])
    return NewJob(spec=spec, **values)


class Patch(Body):
    """A merge patch of a job. Missing fields stay as they are."""

    min_workers: Count = 0
    max_workers: Count = 0
    priority: Count = 0
    queue: Name = ""
    labels: dict[str, str | None] | None = None
    notes: str = ""


class Stop(Body):
    """How to stop a job. ``now``: at once, without a last checkpoint."""

    now: bool = False


class Resize(Body):
    """New bounds of the number of workers. A missing bound stays as it is."""

    min_workers: Count | None = None
    max_workers: Count | None = None

    @model_validator(mode="after")
    def _has_a_field(self) -> Resize:
        if self.min_workers is None and self.max_workers is None:
            raise ValueError("min_workers or max_workers is required")
        return self


class Login(Body):
    """A log-in by password.

    Args:
        user: name of the user.
        password: of the user.
        name: says what the token is for.
        hours: for how long the token is valid. Null: as long as the server's settings allow.
    """

    user: Annotated[str, StringConstraints(max_length=63)]
    password: Annotated[str, StringConstraints(max_length=1024)]
    name: Name = "login"
    hours: Annotated[float, Field(gt=0, le=100_000, allow_inf_nan=False)] | None = None


GivenRole = Literal["admin", "user", "viewer"]


class NewSession(Body):
    """A browser's log-in, by user and password, by a token, or by the code of a link."""

    user: Annotated[str, StringConstraints(max_length=63)] | None = None
    password: Annotated[str, StringConstraints(max_length=1024)] | None = None
    token: Annotated[str, StringConstraints(max_length=256)] | None = None
    code: Annotated[str, StringConstraints(max_length=256)] | None = None

    @model_validator(mode="after")
    def _has_one_way(self) -> NewSession:
        ways = [way is not None for way in (self.user, self.token, self.code)]
        if ways.count(True) != 1 or (self.user is None) != (self.password is None):
            raise ValueError("send exactly one of: user and password, token, or code")
        return self


class GivenCode(Body):
    """The code of a link."""

    code: Annotated[str, StringConstraints(max_length=256)]


class NewUser(Body):
    """A user to create."""

    name: Name
    role: GivenRole
    password: Annotated[str, StringConstraints(max_length=1024)] | None = None


class UserPatch(Body):
    """Changes of a user. Missing fields stay as they are."""

    role: GivenRole | None = None
    is_disabled: bool | None = None

    @model_validator(mode="after")
    def _has_a_field(self) -> UserPatch:
        if self.role is None and self.is_disabled is None:
            raise ValueError("role or is_disabled is required")
        return self


class NewPassword(Body):
    """A password to set."""

    password: Annotated[str, StringConstraints(max_length=1024)]


class NewTokenBody(Body):
    """A token to create.

    Args:
        name: says what the token is for.
        user: the owner. Null: you.
        role: at most yours and the owner's. Null: the lower of these two.
        days: for how many days the token is valid. Missing: the setting ``token_days``.
        password: your password; needed if you authenticate by a log-in that ends before the token.
    """

    name: Name
    user: Name | None = None
    role: GivenRole | None = None
    days: Annotated[float, Field(gt=0, le=100_000, allow_inf_nan=False)] | None = None
    password: Annotated[str, StringConstraints(max_length=1024)] | None = None


class QueueBody(Body):
    """The settings of a queue, without its name.

    Args:
        weight: queues share the pool in proportion to their weights.
        floor: slots that the queue gets back whenever it wants them.
        ceiling: maximum number of slots. Null: the whole pool.
        is_open: all users may submit to the queue.
        members: users who may submit to it and see its jobs.
    """

    weight: Seconds = 1.0
    floor: Annotated[int, Field(ge=-_MAX_INT, le=2**31 - 1)] = 0
    ceiling: Annotated[int, Field(ge=-_MAX_INT, le=2**31 - 1)] | None = None
    is_open: bool = True
    members: Annotated[Texts, Field(max_length=10_000)] = ()


class JoinTokenBody(Body):
    """A token with which machines join the pool, and for how many seconds it is valid."""

    expires_in_s: Seconds = 3600.0


class DrainBody(Body):
    """Why a machine is drained."""

    reason: Annotated[str, StringConstraints(max_length=255)] = ""


class JoinBody(Body):
    """A machine that joins the pool.

    Args:
        token: a join token.
        node: name of the machine.
        identity: of its agent; no other agent has it.
        version: of its Legato.
        protocol: number of the protocol between agents and drivers.
    """

    token: Name
    node: Name
    identity: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    version: Name
    protocol: int


class ReportBody(Body):
    """The report of an agent; see `legato.control.records.AgentReport`. ``metrics``: a sample of its machine."""

    devices: Annotated[tuple[Name, ...], BeforeValidator(_as_tuple), Field(max_length=1024)]
    gpu_types: Annotated[tuple[Name | None, ...], BeforeValidator(_as_tuple), Field(max_length=1024)]
    address: Name
    version: Name
    kind: Name
    traits: Annotated[dict[Name, Name], Field(max_length=64)] = {}
    labels: Annotated[dict[Name, Name], Field(max_length=64)] = {}
    leaving: bool = False
    metrics: dict[str, Any] | None = None


class NamedQueue(QueueBody):
    """The settings of a queue, with its name."""

    name: Name


class QueuesBody(Body):
    """Settings of queues to plan with. Other queues stay as they are."""

    queues: Annotated[tuple[NamedQueue, ...], BeforeValidator(_as_tuple), Field(max_length=1000)]
