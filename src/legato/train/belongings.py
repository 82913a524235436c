"""What a program gave into the runtime's care, as one tree of state, and back. Never communicates, never writes."""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from legato.core.errors import CheckpointError, ProgramError
from legato.train.gates import Gatekeeper, OptimizerGate, SchedulerGate, gate_scaler
from legato.train.schedulers import find_schedulers

_SCHEDULED: Final = "_wrapped_by_lr_sched"  # torch's mark on the step method of an optimizer with a scheduler
_T = TypeVar("_T")


class Belongings:
    """Models, optimizers, schedulers, scalers and other objects with state.

    Args:
        keeper: tells the gates when to act.
        device: where the models go.
    """

    def __init__(self, keeper: Gatekeeper, device: torch.device) -> None:
        self._keeper = keeper
        self._device = device
        self._models: list[torch.nn.Module] = []
        self._optimizers: list[torch.optim.Optimizer] = []
        self._gates: list[OptimizerGate] = []
        self._prepared: set[int] = set()
        self._schedulers: list[SchedulerGate] = []
        self._scalers: list[Any] = []
        self._objects: list[Any] = []
        self._parameters: list[torch.nn.Parameter] | None = None
        self._unscheduled: set[int] = set()

    def add(self, thing: Any) -> None:
        """Take something into care.

        Raises:
            ProgramError: it has no state that could travel.
        """
        self._parameters = None
        match thing:
            case torch.nn.Module():
                thing.to(self._device)
                self._models.append(thing)
            case torch.optim.Optimizer():
                self._gates.append(OptimizerGate(thing, self._keeper))
                self._prepared.add(id(thing))
                self._optimizers.append(thing)
            case torch.optim.lr_scheduler.LRScheduler() | torch.optim.lr_scheduler.ReduceLROnPlateau():
                self._schedulers.append(SchedulerGate(thing, self._keeper))
            case torch.amp.GradScaler():
                gate_scaler(thing, self._keeper)
                self._scalers.append(thing)
            case _ if hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict"):
                self._objects.append(thing)
            case _:
                raise ProgramError(
                    f"Cannot prepare a {type(thing).__name__}: it is neither a module, an optimizer, a scheduler nor a "
                    "GradScaler, and has no state_dict()/load_state_dict() by which its state could travel."
                )

    def end_turn(self, *, stepped: bool) -> None:
        """Take note that a turn of the loop ends; see `OptimizerGate.end_turn`."""
        for gate in self._gates:
            gate.end_turn(stepped=stepped)

    def watch(self, *, allow_unprepared_schedulers: bool) -> None:
        """Refuse from now on optimizers that act on what is in care here, but are not in care themselves.

        Args:
            allow_unprepared_schedulers: if not, schedulers of the prepared optimizers are refused in the same way.

        Raises:
            ProgramError: there is such a scheduler already.
        """
        if not allow_unprepared_schedulers:
            self._refuse_unprepared_schedulers()
            self._unscheduled = {id(each) for each in self._optimizers if not hasattr(each.step, _SCHEDULED)}
        register_optimizer_step_pre_hook(self._on_optimizer_step)

    def unprepared_schedulers(self) -> list[str]:
        """Return the learning-rate schedulers of prepared optimizers that are not in care, nor held by what is."""
        held = {id(gate.scheduler) for gate in self._schedulers}
        held |= {id(part) for thing in self._objects for part in (thing, *getattr(thing, "__dict__", {}).values())}
        return [
            f"{type(scheduler).__name__} of the {type(optimizer).__name__}"
            for optimizer in self._optimizers
            if not any(getattr(thing, "optimizer", None) is optimizer for thing in self._objects)
            for scheduler in find_schedulers(optimizer)
            if id(scheduler) not in held
        ]

    def _refuse_unprepared_schedulers(self) -> None:
        if self.unprepared_schedulers():
            # One that the program has replaced may still be in memory.
            gc.collect()
            for what in self.unprepared_schedulers():
                raise ProgramError(
                    f"The {what} was not given to run.prepare. A worker that joins, and a job that resumes, would "
                    "begin it again and train with another learning rate. Pass it to run.prepare(...), or call "
                    "legato.elastic(..., allow_unprepared_schedulers=True) if the result may depend on that."
                )

    def _on_optimizer_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if id(optimizer) in self._prepared:
            if id(optimizer) in self._unscheduled and hasattr(optimizer.step, _SCHEDULED):
                self._unscheduled.remove(id(optimizer))
                self._refuse_unprepared_schedulers()
            return
        ours = {id(parameter) for parameter in self._all_parameters()}
        if any(id(parameter) in ours for group in optimizer.param_groups for parameter in group["params"]):
            raise ProgramError(
                f"A {type(optimizer).__name__} that was not prepared acts on a prepared model. Pass it to "
                "run.prepare(model, optimizer), so that it acts once per step and its state reaches workers that join."
            )

    def parameters(self) -> list[torch.nn.Parameter]:
        """Return the parameters that require a gradient, each once.

        Raises:
            ProgramError: there are none.
        """
        trainable = [parameter for parameter in self._all_parameters() if parameter.requires_grad]
        if not trainable:
            raise ProgramError(
                "There is nothing to train: no parameter of the prepared models requires a gradient. "
                "Pass the model to run.prepare(...), and leave requires_grad=True on what shall be trained."
            )
        return trainable

    def buffers(self) -> list[torch.Tensor]:
        """Return all buffers, each once."""
        return list(_unique(buffer for model in self._models for buffer in model.buffers()))

    def fingerprint(self) -> str:
        """Return a digest of what must be equal in all workers: names, shapes, kinds; not values."""
        lines = []
        for model in self._models:
            lines.append(type(model).__qualname__)
            for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
                lines.append(f"{name} {tuple(tensor.shape)} {tensor.dtype}")
        for optimizer in self._optimizers:
            sizes = [len(group["params"]) for group in optimizer.param_groups]
            lines.append(f"{type(optimizer).__qualname__} {sizes}")
        lines.extend(type(gate.scheduler).__qualname__ for gate in self._schedulers)
        lines.extend(type(thing).__qualname__ for thing in [*self._scalers, *self._objects])
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]

    def state(self, value_of: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, Any]:
        """Return the whole state; its tensors are the live ones.

        Args:
            value_of: gives the value that counts for a buffer, should it be in motion.
        """
        return {
            "models": [
                {
                    "parameters": dict(model.named_parameters()),
                    "buffers": {name: value_of(buffer) for name, buffer in model.named_buffers()},
                }
                for model in self._models
            ],
            "trainable": self.trainable(),
            "training": [module.training for module in self._modules()],
            "optimizers": [optimizer.state_dict() for optimizer in self._optimizers],
            "schedulers": [{"last_round": gate.last_round, "state": gate.state_dict()} for gate in self._schedulers],
            "scalers": [scaler.state_dict() for scaler in self._scalers],
            "objects": [thing.state_dict() for thing in self._objects],
        }

    def named_tensors(self, value_of: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield every tensor of the state with a name for people, in the same order in every worker.

        Parameters come first, then buffers, then what optimizers, schedulers, scalers and other objects hold. The
        tensors are the live ones, so the caller must not change them.

        Args:
            value_of: as for `state`.

        Examples of names: ``parameter encoder.weight``, ``buffer bn.running_mean``, ``exp_avg of encoder.weight in
        AdamW``, ``EMA['shadow'][0]``. With several models, their position and class are added.
        """
        state = self.state(value_of)
        name_of: dict[int, str] = {}
        for kind in ("parameters", "buffers"):
            for index, (model, tensors) in enumerate(zip(self._models, state["models"], strict=True)):
                place = f" of model {index} ({type(model).__name__})" if len(self._models) > 1 else ""
                for name, tensor in tensors[kind].items():
                    name_of[id(tensor)] = name + place
                    yield f"{kind[:-1]} {name}{place}", tensor
        for index, (optimizer, saved) in enumerate(zip(self._optimizers, state["optimizers"], strict=True)):
            place = type(optimizer).__name__ + (f" {index}" if len(self._optimizers) > 1 else "")
            owners = [name_of.get(id(tensor)) for group in optimizer.param_groups for tensor in group["params"]]
            for path, tensor in _tensors_in(saved, ()):
                owner = _owner_of(path, owners)
                yield (f"{_at(path[2:], bare=True)} of {owner} in {place}" if owner else place + _at(path)), tensor
        others = [gate.scheduler for gate in self._schedulers]
        saved_others = [*(one["state"] for one in state["schedulers"]), *state["scalers"], *state["objects"]]
        for thing, saved in zip([*others, *self._scalers, *self._objects], saved_others, strict=True):
            for path, tensor in _tensors_in(saved, ()):
                yield type(thing).__name__ + _at(path), tensor

    @torch.no_grad()
    def load(self, state: dict[str, Any]) -> None:
        """Take over a state that `state` gave, here or elsewhere.

        Raises:
            CheckpointError: it belongs to another program.
        """
        kinds = ("models", "optimizers", "schedulers", "scalers", "objects")
        own: tuple[list[Any], ...] = (
            self._models,
            self._optimizers,
            self._schedulers,
            self._scalers,
            self._objects,
        )
        for kind, mine in zip(kinds, own, strict=True):
            if len(state[kind]) != len(mine):
                raise CheckpointError(f"The state holds {len(state[kind])} {kind}, this program has {len(mine)}.")
        for model, saved in zip(self._models, state["models"], strict=True):
            copy_model(model, saved)
        for module, training in zip(self._modules(), state["training"], strict=True):
            module.training = training
        for parameter, trainable in zip(self._all_parameters(), state["trainable"], strict=True):
            parameter.requires_grad_(trainable)
        for optimizer, saved in zip(self._optimizers, state["optimizers"], strict=True):
            _load_optimizer(optimizer, saved)
        for gate, saved in zip(self._schedulers, state["schedulers"], strict=True):
            gate.last_round = saved["last_round"]
            gate.scheduler.load_state_dict(saved["state"])
        for thing, saved in zip([*self._scalers, *self._objects], [*state["scalers"], *state["objects"]], strict=True):
            thing.load_state_dict(saved)

    def trainable(self) -> list[bool]:
        """Return which parameters require a gradient."""
        return [parameter.requires_grad for parameter in self._all_parameters()]

    def _modules(self) -> list[torch.nn.Module]:
        return [module for model in self._models for module in model.modules()]

    def _all_parameters(self) -> list[torch.nn.Parameter]:
        # Asked for in every step; walking through the modules would take longer than the rest of it.
        if self._parameters is None:
            self._parameters = list(_unique(parameter for model in self._models for parameter in model.parameters()))
        return self._parameters


def _tensors_in(node: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], torch.Tensor]]:
    """Yield the tensors of a tree with the keys that lead to them."""
    if isinstance(node, torch.Tensor):
        yield path, node.detach()
    elif isinstance(node, Mapping):
        for key, value in node.items():
            yield from _tensors_in(value, (*path, key))
    elif isinstance(node, list | tuple):
        for index, value in enumerate(node):
            yield from _tensors_in(value, (*path, index))


def _owner_of(path: Sequence[Any], owners: Sequence[str | None]) -> str | None:
    """Return the name of the parameter to which an optimizer's state at some path belongs."""
    is_of_parameter = len(path) >= 2 and path[0] == "state" and isinstance(path[1], int) and path[1] < len(owners)
    return owners[path[1]] if is_of_parameter else None


def _at(path: Sequence[Any], *, bare: bool = False) -> str:
    """Write the keys of a path as Python would: ``['shadow'][0]``, or ``exp_avg`` for a single bare key."""
    if bare:
        return f"{path[0]}{_at(path[1:])}" if path else "the state"
    return "".join(f"[{key!r}]" for key in path)


def _unique(things: Iterable[_T]) -> Iterable[_T]:
    return {id(thing): thing for thing in things}.values()


def copy_model(model: torch.nn.Module, saved: dict[str, Any]) -> None:
    """Overwrite a model's parameters and buffers with those of a state; call it without gradients.

    Raises:
        CheckpointError: names or shapes differ; it may be that the parameters are overwritten.
    """
    _copy_all(dict(model.named_parameters()), saved["parameters"])
    _copy_all(dict(model.named_buffers()), saved["buffers"])


def _copy_all(own: dict[str, Any], saved: dict[str, torch.Tensor]) -> None:
    """Overwrite tensors with saved ones of the same names; call it without gradients.

    Raises:
        CheckpointError: names or shapes differ; nothing is overwritten.
    """
    if own.keys() != saved.keys():
        differing = sorted(own.keys() ^ saved.keys())
        raise CheckpointError(f"The state belongs to another model: {', '.join(differing[:5])} stand only on one side.")
    for name, tensor in own.items():
        if tensor.shape != saved[name].shape:
            raise CheckpointError(
                f"The state belongs to another model: {name} has shape {tuple(saved[name].shape)} there and "
                f"{tuple(tensor.shape)} here."
            )
    for name, tensor in own.items():
        if tensor.data_ptr() != saved[name].data_ptr() or tensor.device != saved[name].device:
            tensor.copy_(saved[name])


def _load_optimizer(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    optimizer.load_state_dict({"state": {}, "param_groups": saved["param_groups"]})
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    # Not through load_state_dict: it would cast a state that is kept in higher precision than its parameter.
    for index, values in saved["state"].items():
        parameter = parameters[index]
        optimizer.state[parameter] = {
            name: value.to(parameter.device) if _lives_with_parameter(name, value) else value
            for name, value in values.items()
        }


def _lives_with_parameter(name: str, value: Any) -> bool:
    # torch keeps the step counters of its optimizers on the CPU unless they are asked to be capturable.
    return isinstance(value, torch.Tensor) and not (name == "step" and value.device.type == "cpu")
