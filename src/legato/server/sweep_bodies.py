"""The body of a request that starts a sweep. It checks only the form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from pydantic import BeforeValidator, Field, StrictFloat, StrictInt

from legato.api.sweeps import SweepPlan
from legato.core.errors import BadField
from legato.server.bodies import Body, Count, JobFields, Name, Texts, Value
from legato.server.javascript_numbers import take_numbers
from legato.sweeps.checking import MAX_INT, MAX_PARAMETERS, MAX_TRIALS, MAX_VALUES, count_grid
from legato.system.decoding import convert

_MAX_ARGUMENTS: Final = 1000

Bound = StrictInt | Annotated[StrictFloat, Field(allow_inf_nan=False)]


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


class MetricBody(Body):
    """The metric that the trials report, and which of its values are better."""

    name: Name
    direction: Literal["minimize", "maximize"]


class TunableBody(Body):
    """The values that a parameter may have: a list, or a range."""

    values: Annotated[tuple[Value, ...], BeforeValidator(_as_tuple), Field(max_length=MAX_VALUES)] | None = None
    low: Bound | None = None
    high: Bound | None = None
    step: Bound | None = None
    log: bool = False
    is_float: bool = False

    def as_tunable(self, name: str) -> dict[str, Any]:
        """Return the fields of the parameter in the plan.

        Raises:
            BadField: a list is said to be a range.
        """
        fields = self.model_dump(exclude={"is_float"})
        if not self.is_float:
            return fields
        if self.values is not None:
            raise BadField(
                f"parameters.{name[:100]}.is_float",
                f"'parameters.{name[:100]}' has values, and is_float is for ranges. Leave is_float out.",
            )
        bounds = {field: fields[field] for field in ("low", "high", "step") if fields[field] is not None}
        # What is too large for a float is refused later.
        return fields | {field: float(bound) for field, bound in bounds.items() if abs(bound) <= MAX_INT}


class PruningBody(Body):
    """When trials are compared, and how many of them go on."""

    method: Literal["halving", "hyperband"]
    unit: Literal["epoch", "step"] = "epoch"
    min_resource: Count = 1
    factor: Count = 3
    max_resource: Count | None = None
    parameter: Name | None = None


class TrialJobBody(JobFields):
    """The job of each trial: a submission without a name, which the sweep gives."""

    name: None = None
    program: Annotated[Texts, Field(max_length=_MAX_ARGUMENTS)]
    framework: Name | None = None


class SweepBody(Body):
    """A sweep to start. ``docs/rest.md`` describes the fields."""

    name: Name
    metric: MetricBody
    parameters: Annotated[dict[str, TunableBody], Field(max_length=MAX_PARAMETERS, default_factory=dict)]
    points: Annotated[tuple[dict[str, Value], ...], BeforeValidator(_as_tuple), Field(max_length=MAX_TRIALS)] = ()
    search: Literal["grid", "random", "tpe", "list"] = "random"
    pruning: PruningBody | None = None
    num_trials: Count | None = None
    parallel: Count = 4
    max_slots: Count | None = None
    max_failures: Count = 3
    seed: Count = 0
    max_run_s: Annotated[float, Field(allow_inf_nan=False)] | None = None
    job: TrialJobBody
    clone_of: str | None = None

    def with_numbers_of(self, plan: Mapping[str, Any], job: Mapping[str, Any]) -> SweepBody:
        """Return this sweep with the numbers of the sweep that it clones, where both are equal.

        Args:
            plan: of that sweep, as plain values.
            job: of its trials, as it was submitted.
        """
        fields = self.model_dump(exclude_unset=True)
        return SweepBody.model_validate(take_numbers(fields, {**plan, "job": job}))

    def as_plan(self) -> SweepPlan:
        """Return the plan, not checked further. A grid or list without ``num_trials`` has a trial for each point.

        Raises:
            BadField: the number of trials is missing, or the grid has endless points.
        """
        fields = self.model_dump(exclude={"name", "job", "parameters"})
        fields["parameters"] = {name: one.as_tunable(name) for name, one in self.parameters.items()}
        if self.num_trials is not None:
            return convert(fields, SweepPlan)
        if self.search == "list":
            return convert(fields | {"num_trials": len(self.points)}, SweepPlan)
        if self.search != "grid":
            raise BadField("num_trials", f"The search '{self.search}' has no end by itself. Give num_trials.")
        plan = convert(fields | {"num_trials": 0}, SweepPlan)
        return msgspec.structs.replace(plan, num_trials=count_grid(plan.parameters))
