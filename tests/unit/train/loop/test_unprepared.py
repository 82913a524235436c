"""Programs are warned of modules, and copies of models, that they change and did not prepare."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from typing import Any, Self

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import TensorDataset

import legato
from legato.train.loop.unprepared import Prepared


class Shadow:
    """An average as many programs copy it: each update replaces the tensors."""

    def __init__(self, model: nn.Module) -> None:
        self.shadow = {name: each.detach().clone() for name, each in model.named_parameters()}

    def update_parameters(self, model: nn.Module) -> None:
        for name, each in model.named_parameters():
            self.shadow[name] = (0.9 * self.shadow[name] + 0.1 * each.detach()).clone()

    def state_dict(self) -> dict[str, Any]:
        return {"shadow": self.shadow}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.shadow = state["shadow"]


DATA = TensorDataset(torch.linspace(-1.0, 1.0, 144).reshape(24, 6), torch.arange(24) % 2)
Use = Callable[[Any, nn.Module], None]


def warnings_of(
    capfd: pytest.CaptureFixture[str],
    make: Callable[[nn.Module], Any],
    in_turn: Callable[[Any, Any, nn.Module], Any],
    *,
    prepares: bool = False,
) -> list[str]:
    """Return the warnings of a run of three epochs of three steps.

    Args:
        make: makes what the program has besides its model.
        in_turn: what it does with it in each turn, before the backward pass.
        prepares: passes it to run.prepare.
    """
    run = legato.elastic(global_batch_size=8, micro_batch_size=2)
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    thing = make(model)
    run.prepare(model, optimizer, *([thing] if prepares else []))
    for _ in run.epochs(3):
        for inputs, targets in run.batches(DATA):
            in_turn(run, thing, model)
            run.backward(cross_entropy(model(inputs), targets))
            optimizer.step()
            optimizer.zero_grad()
            if run.stepped and isinstance(thing, AveragedModel | Shadow | Metric):
                thing.update_parameters(model)
    lines = capfd.readouterr().err.splitlines()
    return [line.removeprefix("legato: warning: ") for line in lines if line.startswith("legato: warning: ")]


def nothing(run: Any, thing: Any, model: nn.Module) -> None:
    pass


class Average:
    """An average of a model as programs write it."""

    def __init__(self, model: nn.Module) -> None:
        self.copied = copy.deepcopy(model)

    def update(self, model: nn.Module) -> None:
        for mine, theirs in zip(self.copied.parameters(), model.parameters(), strict=True):
            mine.data.mul_(0.9).add_(theirs.data, alpha=0.1)


def test_an_average_that_was_not_prepared_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    (warning,) = warnings_of(capfd, AveragedModel, nothing)
    assert "of thing (AveragedModel), which was not given to run.prepare" in warning


def test_an_average_in_an_object_of_the_program_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    (warning,) = warnings_of(capfd, Average, lambda run, thing, model: thing.update(model))
    assert "of thing.copied (Sequential)" in warning


def test_each_module_is_named_once(capfd: pytest.CaptureFixture[str]) -> None:
    def update(run: Any, thing: Any, model: nn.Module) -> None:
        for average in thing:
            average.update(model)

    warnings = warnings_of(capfd, lambda model: [Average(model), Average(model)], update)
    named = [warning.split(" of ")[1].split(" (")[0] for warning in warnings]
    assert named == ["thing[0].copied", "thing[1].copied"]


def test_a_prepared_average_is_none_of_these(capfd: pytest.CaptureFixture[str]) -> None:
    def make(model: nn.Module) -> nn.Module:
        return AveragedModel(model).requires_grad_(False)

    assert warnings_of(capfd, make, nothing, prepares=True) == []


def test_what_trains_and_what_stays_as_it_is_gives_no_warning(capfd: pytest.CaptureFixture[str]) -> None:
    def make(model: nn.Module) -> dict[str, Any]:
        teacher = copy.deepcopy(model)  # in training mode: batch-norm changes its statistics
        return {"teacher": teacher, "part": model[0], "whole": nn.ModuleList([model]), "lazy": nn.LazyLinear(2)}

    def in_turn(run: Any, thing: Any, model: nn.Module) -> None:
        thing["teacher"](torch.randn(4, 6))
        thing["new"] = copy.deepcopy(model)

    assert warnings_of(capfd, make, in_turn) == []


def copies_of(model: nn.Module) -> list[torch.Tensor]:
    return [each.detach().clone() for each in model.parameters()]


def test_an_average_in_a_dict_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    (warning,) = warnings_of(capfd, Shadow, nothing)
    assert (
        "changes thing.shadow, a dict with a copy of a model's parameters, which was not given to run.prep" in warning
    )


def test_an_average_in_a_prepared_object_is_none_of_these(capfd: pytest.CaptureFixture[str]) -> None:
    assert warnings_of(capfd, Shadow, nothing, prepares=True) == []


def test_an_average_that_a_prepared_object_holds_is_none_of_these() -> None:
    model = nn.Linear(6, 2)
    average = copies_of(model)
    assert Prepared([model], model.parameters()).is_copied_in(average)
    assert not Prepared([model], model.parameters(), lambda: average).is_copied_in(average)


class Box:
    fast: dict[str, torch.Tensor] | None = None


def test_copies_that_each_turn_puts_into_an_attribute_give_no_warning(capfd: pytest.CaptureFixture[str]) -> None:
    def in_turn(run: Any, thing: Any, model: nn.Module) -> None:
        for _ in range(2):
            thing.fast = {name: each.detach() - 0.1 for name, each in model.named_parameters()}

    assert warnings_of(capfd, lambda _: Box(), in_turn) == []


def test_an_average_in_a_list_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    def update(run: Any, thing: Any, model: nn.Module) -> None:
        for mine, theirs in zip(thing, model.parameters(), strict=True):
            mine.lerp_(theirs.detach(), 0.1)

    (warning,) = warnings_of(capfd, copies_of, update)
    assert "changes thing, a list with a copy" in warning


def test_the_best_state_so_far_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    def keep(run: Any, thing: Any, model: nn.Module) -> None:
        if run.step == 3:
            thing["best"] = copy.deepcopy(model.state_dict())
        if run.step == 8:
            thing["best"] = copy.deepcopy(model.state_dict())

    (warning,) = warnings_of(capfd, lambda model: {"best": copy.deepcopy(model.state_dict())}, keep)
    assert "changes thing['best'], a OrderedDict with a copy" in warning


def test_another_list_of_which_the_program_keeps_the_tensors_is_another_one(capfd: pytest.CaptureFixture[str]) -> None:
    def in_turn(run: Any, thing: Any, model: nn.Module) -> None:
        thing["all"].append(thing["newest"])
        thing["newest"] = copies_of(model)

    assert warnings_of(capfd, lambda model: {"all": [], "newest": copies_of(model)}, in_turn) == []


def test_copies_that_each_turn_makes_and_views_of_the_model_give_no_warning(capfd: pytest.CaptureFixture[str]) -> None:
    def in_turn(run: Any, thing: Any, model: nn.Module) -> None:
        thing["before"] = copies_of(model)
        thing["fast"] = dict(zip(dict(model.named_parameters()), copies_of(model), strict=True))
        thing["state"] = model.state_dict()
        thing["gradients"] = [each.grad for each in model.parameters()]
        thing["sizes"] = [torch.ones(len(thing), run.step + 1)]

    def make(model: nn.Module) -> dict[str, Any]:
        return {"anchor": copies_of(model), "own": dict(model.named_parameters())}

    assert warnings_of(capfd, make, in_turn) == []


class Metric(nn.Module):
    """What Legato sees of a metric of torchmetrics."""

    def __init__(self) -> None:
        super().__init__()
        self.num_updates = 0

    @property
    def update_count(self) -> int:
        return self.num_updates

    @property
    def metric_state(self) -> dict[str, torch.Tensor]:
        raise AssertionError("to read the state of a collection changes it")

    def update(self) -> None:
        self.num_updates += 1

    def update_parameters(self, _: nn.Module) -> None:
        self.update()


def test_a_metric_that_the_loop_updates_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    (warning,) = warnings_of(
        capfd, lambda model: {"train": Metric()}, lambda run, thing, model: thing["train"].update()
    )
    assert "updates the metric thing['train'] (Metric) in its turns: each worker counts its own" in warning


def test_a_metric_that_is_updated_once_per_step_gives_no_warning(capfd: pytest.CaptureFixture[str]) -> None:
    assert warnings_of(capfd, lambda _: Metric(), nothing) == []


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(
    "odd",
    [
        lambda: [torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])] * 6,
        type("Odd", (nn.Module,), {"update_count": property(lambda self: 1 / 0), "metric_state": 0}),
    ],
    ids=["nested tensors", "an error"],
)
def test_what_cannot_be_looked_at_does_not_end_the_training(
    odd: Callable[[], Any], capfd: pytest.CaptureFixture[str]
) -> None:
    assert warnings_of(capfd, lambda model: odd(), nothing) == []


class Wrapper(torch.Tensor):
    """A tensor without memory of its own, as quantized and distributed tensors are."""

    @staticmethod
    def __new__(cls) -> Self:
        return torch.Tensor._make_wrapper_subclass(cls, (3,))  # type: ignore[attr-defined, no-any-return]

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError(function)


def test_tensors_without_memory_of_their_own_are_no_copies() -> None:
    wrapped = Wrapper()
    prepared = Prepared([nn.BatchNorm1d(3)], [wrapped])
    assert prepared.is_copied_in([torch.ones(3), torch.ones(3)])
    assert not prepared.is_copied_in([wrapped, wrapped])


def train(num_turns: int) -> None:
    run = legato.elastic(global_batch_size=8, micro_batch_size=2)
    model = nn.Linear(6, 2)
    run.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
    for number, (inputs, targets) in enumerate(run.batches(DATA)):
        run.backward(cross_entropy(model(inputs), targets))
        if number == num_turns:
            break


def is_kept() -> bool:
    """Use and drop a module. Not part of a test: pytest has each assertion look at the variables."""
    large = nn.Linear(2, 2)
    known = weakref.ref(large)
    train(8)
    del large
    return known() is not None


def test_what_a_function_has_dropped_is_not_kept() -> None:
    assert not is_kept()


def test_the_dict_of_locals_that_a_program_keeps_stays_as_it_is() -> None:
    option = 1
    options = locals()
    added = option + 1
    train(8)
    assert options == {"option": 1}
    assert added == 2
