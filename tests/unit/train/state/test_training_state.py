"""What a program gave to Legato: its state has names, goes to other workers and into checkpoints, or is refused."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.train.earlier_checkpoints import make_earlier_file
from tests.unit.train.loop.test_step_guards import FakeTurn
from tests.unit.train.state.test_serialization import joined
from tests.unit.train.values import VALUES, Phase, same, window
from torch import nn

from legato.core.errors import CheckpointError, ProgramError
from legato.train.checkpoints.checkpoint import Store, load
from legato.train.checkpoints.writer import copy_to_cpu
from legato.train.state.checksums import checksums
from legato.train.state.training_state import TrainingState


class Shadow:
    """An object with tensors as state."""

    def __init__(self) -> None:
        self.values = [torch.zeros(2)]

    def state_dict(self) -> dict[str, Any]:
        return {"shadow": self.values, "count": 3}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.values = state["shadow"]


def kept(*things: Any) -> TrainingState:
    training_state = TrainingState(FakeTurn(), torch.device("cpu"))
    for thing in things:
        training_state.add(thing)
    return training_state


def tensors_of(training_state: TrainingState) -> dict[str, torch.Tensor]:
    return {item.name: item.value for item in training_state.items() if isinstance(item.value, torch.Tensor)}


def test_every_tensor_of_the_state_has_a_name() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    optimizer = torch.optim.AdamW(model.parameters(), amsgrad=True)
    model(torch.rand(3, 2)).sum().backward()
    optimizer.step()
    found = tensors_of(kept(model, optimizer, Shadow()))
    parameters = ["0.weight", "0.bias", "1.weight", "1.bias"]
    keys = ["step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"]
    assert list(found) == [
        *(f"parameter {name}" for name in parameters),
        *(f"buffer 1.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")),
        *(f"{key} of {name} in AdamW" for name in parameters for key in keys),
        "shadow[0] in Shadow",
    ]
    assert found["parameter 0.weight"].data_ptr() == model[0].weight.data_ptr()


def test_names_tell_models_and_optimizers_apart() -> None:
    models = [nn.Linear(2, 1, bias=False) for _ in range(2)]
    optimizers = [torch.optim.SGD(model.parameters(), 0.1, momentum=0.9) for model in models]
    for model, optimizer in zip(models, optimizers, strict=True):
        model(torch.rand(3, 2)).sum().backward()
        optimizer.step()
    assert list(tensors_of(kept(*models, *optimizers))) == [
        "parameter weight of model 0 (Linear)",
        "parameter weight of model 1 (Linear)",
        "momentum_buffer of weight of model 0 (Linear) in SGD 0",
        "momentum_buffer of weight of model 1 (Linear) in SGD 1",
    ]


# ---------------------------------------------------------------- state of every kind, both ways


class Odd(torch.optim.Optimizer):
    """SGD with state of many kinds, all of which its step depends on."""

    def __init__(self, parameters: Any, lr: float = 0.1) -> None:
        super().__init__(parameters, {"lr": lr})
        self.state["rate of all"] = {"factor": 1.0, "phase": Phase.WARM}

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        shared: Any = self.state["rate of all"]
        shared["factor"] *= 0.9
        for group in self.param_groups:
            for parameter in group["params"]:
                state: Any = self.state[parameter]
                if not state:
                    state.update(past=deque(maxlen=2), window=window(), sum=torch.zeros_like(parameter).double())
                    state["same sum"] = state["sum"]
                state["past"].append(parameter.grad.clone())
                state["window"].size += 1
                state["sum"] += parameter.grad
                mean = sum(state["past"]) / state["window"].size + state["same sum"] * 0.01
                parameter.sub_(mean * group["lr"] * shared["factor"])


class Plain(torch.optim.Optimizer):
    """Its state of a parameter is a tensor."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                total: Any = self.state.get(parameter, 0) + parameter.grad
                self.state[parameter] = total
                parameter.sub_(total * 0.1)


class Counting(torch.optim.SGD):
    """Overrides both methods, and calls those of its base."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, 0.1, momentum=0.9)
        self.num_steps = 0

    def step(self, closure: Any = None) -> None:
        self.num_steps += 1
        for group in self.param_groups:
            group["lr"] = 0.1 / self.num_steps
        super().step()
        for state in self.state.values():
            # In a higher precision than its parameter, to which torch's own method would cast it.
            state["momentum_buffer"] = state["momentum_buffer"].double() + 1e-12

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "num_steps": self.num_steps}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.num_steps = state_dict["num_steps"]
        super().load_state_dict({key: value for key, value in state_dict.items() if key != "num_steps"})


class Foreign(torch.optim.Optimizer):
    """Its state has a form of its own."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1})
        self.sums = [torch.zeros_like(parameter) for parameter in self.param_groups[0]["params"]]

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for total, parameter in zip(self.sums, self.param_groups[0]["params"], strict=True):
            parameter.sub_(total.add_(parameter.grad) * 0.1)

    def state_dict(self) -> dict[str, Any]:
        return {"sums": self.sums}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.sums = state_dict["sums"]


class Blended(torch.optim.Optimizer):
    """The last bits of its norm depend on the order of its state in memory."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for parameter in self.param_groups[0]["params"]:
            state: Any = self.state[parameter]
            if not state:
                state["sum"] = torch.zeros_like(parameter).transpose(0, -1).contiguous().transpose(0, -1)
            state["sum"] += parameter.grad
            parameter.sub_(state["sum"] / (1 + state["sum"].sum()))


class Noting(nn.Module):
    """Has an extra state."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 12).reshape(4, 3))
        self.register_buffer("wave", torch.zeros(2, dtype=torch.complex64))
        self.seen: deque[float] = deque(maxlen=2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.seen.append(float(inputs.sum()))
        return inputs @ self.weight.t() * (1 + sum(self.seen))

    def get_extra_state(self) -> Any:
        return {"seen": self.seen}

    def set_extra_state(self, state: Any) -> None:
        self.seen = state["seen"]


def wide() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def images() -> nn.Module:
    convolutions = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
    return nn.Sequential(nn.Unflatten(1, (1, 3, 1)), *convolutions, nn.Flatten())


Way = Callable[[Any], Any]
Make = Callable[[], tuple[nn.Module, torch.optim.Optimizer]]


@pytest.fixture(params=["join", "checkpoint"])
def way(request: pytest.FixtureRequest, tmp_path: Path) -> Way:
    if request.param == "join":
        return joined
    store = Store(tmp_path, 1, pytest.fail)
    return lambda plain: load(store.save(copy_to_cpu(plain), step=1, meta={})).state


def made(make_model: Callable[[], nn.Module], make_optimizer: Callable[[Any], torch.optim.Optimizer]) -> TrainingState:
    torch.manual_seed(5)
    model = make_model()
    return kept(model, make_optimizer(model.parameters()))


def train(training_state: TrainingState, num_steps: int) -> None:
    ((model,), (optimizer,)) = training_state._models, training_state._optimizers
    training_state._turn.stepped = True  # type: ignore[misc]
    for step in range(num_steps):
        optimizer.zero_grad()
        model(torch.linspace(0, 1 + step, 6).reshape(2, 3)).square().sum().backward()
        optimizer.step()


@pytest.mark.parametrize("make_model", [wide, images, Noting])
@pytest.mark.parametrize("make_optimizer", [Odd, Plain, Counting, Foreign, Blended, torch.optim.AdamW])
def test_training_goes_on_elsewhere_to_the_same_bits(
    way: Way, make_model: Callable[[], nn.Module], make_optimizer: Callable[[Any], torch.optim.Optimizer]
) -> None:
    one = made(make_model, make_optimizer)
    train(one, 3)
    if make_model is images:
        # In the middle of the training; a newcomer begins with another order in memory.
        one._models[0].to(memory_format=torch.channels_last)
        train(one, 1)
    other = made(make_model, make_optimizer)
    train(other, 1)
    given = way(one.state(lambda buffer: buffer))
    other.load(given)
    one.check_state()
    train(one, 2)
    train(other, 2)
    last = [training_state.state(lambda buffer: buffer) for training_state in (one, other)]
    assert same(last[0], last[1])


def test_the_state_of_an_older_checkpoint_is_taken_over(tmp_path: Path) -> None:
    """It says nothing of groups and extra states, and its values are as they were then."""
    one, other = made(Noting, torch.optim.AdamW), made(Noting, torch.optim.AdamW)
    train(one, 3)
    train(other, 1)
    state = one.state(lambda buffer: buffer)
    old = {key: value for key, value in state.items() if key != "groups"}
    old["models"] = [{"parameters": part["parameters"], "buffers": part["buffers"]} for part in state["models"]]
    old["optimizers"] = [optimizer.state_dict() for optimizer in one._optimizers]
    path = tmp_path / "step-00000001.legato"
    path.write_bytes(make_earlier_file(1, copy_to_cpu(old), step=1, meta={}))
    other.load(load(path).state)
    seen = one._models[0].get_extra_state()["seen"]
    assert other._models[0].get_extra_state()["seen"] != seen
    other._models[0].set_extra_state({"seen": seen.copy()})
    train(one, 1)
    train(other, 1)
    assert same(one.state(lambda buffer: buffer), other.state(lambda buffer: buffer))


def test_an_optimizer_gets_the_groups_that_it_has_elsewhere(way: Way) -> None:
    def begun() -> tuple[TrainingState, list[nn.Module], torch.optim.Optimizer]:
        torch.manual_seed(3)
        models: list[nn.Module] = [nn.Linear(2, 2), nn.Linear(2, 1)]
        optimizer = torch.optim.Adam(models[1].parameters(), 0.1)
        training_state = kept(*models, optimizer)
        training_state.begin()
        training_state._turn.stepped = True  # type: ignore[misc]
        return training_state, models, optimizer

    def step(models: list[nn.Module], optimizer: torch.optim.Optimizer) -> None:
        models[1](models[0](torch.ones(3, 2))).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    one, models, optimizer = begun()
    step(models, optimizer)
    optimizer.add_param_group({"params": list(models[0].parameters()), "lr": 0.01})
    one.check_structure()
    step(models, optimizer)
    other, other_models, other_optimizer = begun()
    other.load(way(one.state(lambda buffer: buffer)))
    other.check_structure()
    step(models, optimizer)
    step(other_models, other_optimizer)
    assert same(one.state(lambda buffer: buffer), other.state(lambda buffer: buffer))
    optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(3))]})
    with pytest.raises(ProgramError, match=r"The Adam updates 1 of 5 parameters that belong to no prepared model"):
        one.check_structure()


# ---------------------------------------------------------------- what is refused


class Keeping:
    """An object with some state."""

    def __init__(self, state: Any) -> None:
        self.kept = state

    def state_dict(self) -> Any:
        return {"kept": self.kept}

    def load_state_dict(self, state: Any) -> None:
        self.kept = state["kept"]


class Silent(Keeping):
    def state_dict(self) -> Any:
        raise KeyError("best")


class Strange(nn.Module):
    def get_extra_state(self) -> Any:
        return {"path": Path()}


@pytest.mark.parametrize(
    ("thing", "told"),
    [
        (lambda: Keeping([Path()]), r"\['kept'\]\[0\] of the Keeping: it is a pathlib"),
        (lambda: Silent(1), "state of the Silent: its state_dict.. failed with KeyError: 'best'"),
        (lambda: nn.Sequential(Strange()), r"\['path'\] of get_extra_state.. of 0 in the Sequential: it is a pathlib"),
        (lambda: nn.Sequential(nn.LazyLinear(3)), r"its module 0 \(LazyLinear\) is lazy.*Run one batch of inputs"),
    ],
)
def test_state_that_cannot_be_carried_is_refused_when_it_is_prepared(thing: Callable[[], Any], told: str) -> None:
    with pytest.raises(ProgramError, match=told):
        kept(thing())


def test_state_that_cannot_be_carried_is_found_after_a_step() -> None:
    first, second = Keeping(1), Keeping(2)
    training_state = kept(first, second)
    training_state.check_state()
    second.kept = {"log": open}
    with pytest.raises(
        ProgramError, match=r"\['kept'\]\['log'\] of the Keeping that was prepared as number 2.*it is a function"
    ):
        training_state.check_state()
    second.kept = object()
    with pytest.raises(ProgramError, match=r"number 2 of its class: it is a builtins\.object"):
        training_state.check_state()
    with pytest.raises(CheckpointError, match=r"builtins\.object"):
        training_state.state(lambda buffer: buffer)


def test_an_optimizer_of_other_parameters_is_refused() -> None:
    model, head = nn.Linear(2, 2), nn.Linear(2, 3)
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], 0.1)
    # In any order: what counts is what is there when training begins.
    kept(optimizer, model, head).begin()
    with pytest.raises(ProgramError, match=r"SGD updates 2 of 4 .* no prepared model \(shapes \(3, 2\), \(3,\)\)"):
        kept(model, optimizer).begin()


def put(name: str, make: Callable[[], Any]) -> Callable[[nn.Module], None]:
    return lambda model: setattr(model.get_submodule("inner"), name, make())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (put("scale", lambda: nn.Parameter(torch.ones(1))), "added: inner.scale"),
        (put("weight", lambda: nn.Parameter(torch.ones(2, 2))), "replaced: inner.weight"),
        (put("more", lambda: nn.Linear(1, 1)), "added: inner.more.weight, inner.more.bias"),
        (lambda model: delattr(model, "inner"), r"removed: inner.weight, inner.bias, inner.mean"),
        (lambda model: model.get_submodule("inner").register_buffer("late", torch.ones(1)), "added: inner.late"),
        (lambda model: setattr(model, "inner", nn.Linear(2, 2)), r"replaced: inner.weight, .*; removed: inner.mean"),
    ],
)
def test_a_model_that_changes_in_training_is_refused(change: Callable[[nn.Module], None], told: str) -> None:
    model = nn.Sequential()
    inner = nn.Linear(2, 2)
    inner.register_buffer("mean", torch.zeros(2))
    inner.register_buffer("none", None)
    model.add_module("inner", inner)
    training_state = kept(model)
    training_state.begin()
    inner.mean = torch.ones(2)
    inner.none = torch.ones(3)
    model.add_module("without parameters", nn.Tanh())
    training_state.check_structure()
    training_state.check_structure()
    change(model)
    with pytest.raises(ProgramError, match=told):
        training_state.check_structure()


@pytest.mark.parametrize("name", VALUES)
def test_state_of_every_kind_can_be_compared(name: str) -> None:
    for item in kept(Keeping(VALUES[name])).items():
        assert item.name.endswith("in Keeping")
        checksums([(item.name, item.value)], torch.device("cpu"))


class Caching(nn.Module):
    """Buffers that the program sets in training."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.register_buffer("first", None)
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("second", None)
        self.register_buffer("angles", torch.zeros(2), persistent=False)
        self.register_buffer("gone", torch.zeros(2))


def test_buffers_are_taken_over_as_the_program_has_made_them() -> None:
    here, there = Caching(), Caching()
    here.first = here.second = torch.arange(6.0).reshape(2, 3)
    here.mean.fill_(0.5)
    here.angles = torch.arange(5, dtype=torch.float64)
    here.gone = None
    mean = there.mean
    kept(there).load(kept(here).state(lambda buffer: buffer))
    assert torch.equal(there.first, here.first) and torch.equal(there.second, here.first)
    assert there.first is not here.first
    assert there.mean is mean and mean.tolist() == [0.5, 0.5]
    assert there.angles.dtype is torch.float64 and torch.equal(there.angles, here.angles)
    assert there.gone is None
    assert [name for name, _ in there.named_buffers()] == ["first", "mean", "second", "angles"]
    kept(here).load(kept(Caching()).state(lambda buffer: buffer))
    assert here.first is None and here.gone is not None and here.angles.tolist() == [0.0, 0.0]


def test_buffers_keep_their_order_when_one_is_set() -> None:
    model = Caching()
    training_state = kept(model)
    before = training_state.buffers()
    assert [slot.name for slot in before] == ["first", "mean", "second", "angles", "gone"]
    assert [slot.held() is None for slot in before] == [True, False, True, False, False]
    assert [slot.is_cache for slot in before] == [False, False, False, True, False]
    model.first = model.second = torch.ones(1)
    after = training_state.buffers()
    assert [slot.name for slot in after] == [slot.name for slot in before]
    assert after[0].held() is after[2].held() is model.first


def test_an_optimizer_may_hold_frozen_parameters_of_no_prepared_model() -> None:
    def begun() -> tuple[TrainingState, nn.Linear]:
        torch.manual_seed(3)
        model, backbone = nn.Linear(3, 2), nn.Linear(3, 3).requires_grad_(False)
        training_state = kept(model, torch.optim.AdamW([*backbone.parameters(), *model.parameters()], 0.1))
        training_state.begin()
        return training_state, backbone

    (one, backbone), (other, _) = begun(), begun()
    before = backbone.weight.clone()
    train(one, 2)
    other.load(copy_to_cpu(one.state(lambda buffer: buffer)))
    train(one, 1)
    train(other, 1)
    assert same(one.state(lambda buffer: buffer), other.state(lambda buffer: buffer))
    assert torch.equal(backbone.weight, before)
    one.check_structure()
    backbone.weight.requires_grad_(True)
    with pytest.raises(ProgramError, match="belong to no prepared model"):
        one.check_structure()
