"""Turns the prepared objects of a program into one tree of state, and back. Never communicates, never writes."""

from __future__ import annotations

import gc
import hashlib
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, TypeVar

import torch
from torch.nn.parameter import is_lazy
from torch.optim.optimizer import register_optimizer_step_pre_hook

from legato.core.errors import CheckpointError, ProgramError
from legato.train import torch_private
from legato.train.loop.schedulers import find_schedulers
from legato.train.loop.step_guards import OptimizerGuard, SchedulerGuard, Turn, guard_scaler
from legato.train.membership.state_transfer import lies_alike
from legato.train.reduction.buffers import Slot
from legato.train.state.attributes import Attributes
from legato.train.state.named_state import Item, items_of
from legato.train.state.serialization import Path, decode, encode, place_of
from legato.train.state.structure import GroupWatch, Structure, buffer_slots, slots_of

_UNPREPARED: Final = -1
_T = TypeVar("_T")


class TrainingState:
    """Models, optimizers, schedulers, scalers and other objects with state.

    Args:
        turn: of the program's loop, which the guards ask when to act.
        device: to which the models are moved.

    Attributes:
        attributes: the numbers that are attributes of the models and optimizers; they are compared, not loaded.
    """

    def __init__(self, turn: Turn, device: torch.device) -> None:
        self._turn = turn
        self._device = device
        self._models: list[torch.nn.Module] = []
        self._optimizers: list[torch.optim.Optimizer] = []
        self._optimizer_guards: list[OptimizerGuard] = []
        self._prepared: set[int] = set()
        self._schedulers: list[SchedulerGuard] = []
        self._scalers: list[Any] = []
        self._objects: list[Any] = []
        self._parameters: list[torch.nn.Parameter] | None = None
        self._slots: list[Slot] | None = None
        self._unscheduled: set[int] = set()
        self._fixed: dict[int, frozenset[Path]] = {}
        self._structure: Structure | None = None
        self._groups: GroupWatch | None = None
        self._frozen_unprepared: list[torch.Tensor] = []
        self.attributes = Attributes([], [])

    def add(self, thing: Any) -> None:
        """Prepare an object: its state becomes part of the training state.

        Raises:
            ProgramError: the object has no state that can be encoded, or state of a kind that cannot be encoded.
        """
        self._parameters = self._slots = None
        match thing:
            case torch.nn.Module():
                _refuse_lazy(thing)
                thing.to(self._device)
                self._models.append(thing)
            case torch.optim.Optimizer():
                self._optimizer_guards.append(OptimizerGuard(thing, self._turn))
                self._prepared.add(id(thing))
                self._optimizers.append(thing)
            case torch.optim.lr_scheduler.LRScheduler() | torch.optim.lr_scheduler.ReduceLROnPlateau():
                self._schedulers.append(SchedulerGuard(thing, self._turn))
            case torch.amp.GradScaler():
                guard_scaler(thing, self._turn)
                self._scalers.append(thing)
            case _ if hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict"):
                self._objects.append(thing)
            case _:
                raise ProgramError(
                    f"Cannot prepare a {type(thing).__name__}: it is neither a module, an optimizer, a scheduler nor a "
                    "GradScaler, and has no state_dict()/load_state_dict() by which Legato could transfer its state."
                )
        self._check(thing)

    def begin(self) -> None:
        """Fix the trained parameters: from now on none may be added or removed.

        Raises:
            ProgramError: an optimizer acts on a parameter that belongs to no prepared model.
        """
        self._structure = Structure(self._models)
        self._groups = GroupWatch(self._optimizers)
        self._refuse_unprepared_parameters()
        self.attributes = Attributes(
            [(self._name_of(model), model) for model in self._models],
            [(self._name_of(optimizer), optimizer) for optimizer in self._optimizers],
        )

    def check_structure(self) -> None:
        """Check that the models and optimizers still have the parameters with which training began. Fast.

        The program may have added parameters of a prepared model to an optimizer.

        Raises:
            ProgramError: parameters were added, replaced or removed; the message names them.
        """
        assert self._structure is not None and self._groups is not None, "training has not begun"
        if not self._structure.is_same():
            self._structure.refuse_changes()
            self._structure = Structure(self._models)
        if not self._groups.is_same() or any(tensor.requires_grad for tensor in self._frozen_unprepared):
            self._refuse_unprepared_parameters()
            self._groups = GroupWatch(self._optimizers)

    def check_state(self) -> None:
        """Check that all state, as it is after a step, can be encoded: better now than when a worker joins.

        Raises:
            ProgramError: some state cannot be encoded; the message says which object, where in it, and what to do.
        """
        for thing in self.things():
            self._check(thing)

    def _check(self, thing: Any) -> None:
        owner = self._name_of(thing)
        try:
            fixed = _encode_all(thing, owner)
        except CheckpointError as error:
            raise ProgramError(str(error)) from error.__cause__
        known = self._fixed.setdefault(id(thing), fixed)
        if fixed - known:
            place = min(map(place_of, fixed - known))
            raise ProgramError(
                f"Cannot transfer {place} of {owner}: it is a function, or of a class that is defined inside of a "
                "function, and it did not exist when run.prepare was called. A worker that joins would not have it. "
                "Set it before run.prepare(...), or leave it out in state_dict()."
            )

    def things(self) -> list[Any]:
        """Return all prepared objects."""
        schedulers = [guard.scheduler for guard in self._schedulers]
        return [*self._models, *self._optimizers, *schedulers, *self._scalers, *self._objects]

    def _name_of(self, thing: Any) -> str:
        name = type(thing).__name__
        alike = [other for other in self.things() if type(other) is type(thing)]
        place = next((index for index, other in enumerate(alike) if other is thing), 0)
        return f"the {name}" if len(alike) < 2 else f"the {name} that was prepared as number {place + 1} of its class"

    def _refuse_unprepared_parameters(self) -> None:
        ours = {id(parameter) for parameter in self._all_parameters()}
        self._frozen_unprepared = []
        for optimizer in self._optimizers:
            held = [tensor for group in optimizer.param_groups for tensor in group["params"]]
            unprepared = [tensor for tensor in held if id(tensor) not in ours and tensor.requires_grad]
            if unprepared:
                shapes = ", ".join(str(tuple(tensor.shape)) for tensor in unprepared[:5])
                raise ProgramError(
                    f"T{self._name_of(optimizer)[1:]} updates {len(unprepared)} of {len(held)} parameters "
                    f"that belong to no prepared model (shapes {shapes}). Their gradients would not be summed over the "
                    "workers, and workers that join would not receive them. Pass the module that holds them to "
                    "run.prepare as well; make a free parameter an attribute of a module "
                    "(self.scale = torch.nn.Parameter(...))."
                )
            # Without a gradient an optimizer does not change them.
            self._frozen_unprepared += [tensor for tensor in held if id(tensor) not in ours]

    def end_turn(self, *, stepped: bool) -> bool:
        """End a turn of the loop; see `OptimizerGuard.end_turn`.

        Returns:
            Whether it completed a step in which no optimizer acted. A scaler may leave a step out.
        """
        is_unused = stepped and bool(self._optimizers) and not self._scalers
        for guard in self._optimizer_guards:
            guard.end_turn(stepped=stepped)
            is_unused &= not guard.has_acted
            guard.has_acted = False
        return is_unused

    def learning_rates(self) -> list[float]:
        """Return the learning rates of all optimizers that are plain numbers."""
        rates = [group.get("lr") for optimizer in self._optimizers for group in optimizer.param_groups]
        return [rate for rate in rates if isinstance(rate, int | float)]

    def watch(self, *, allow_unprepared_schedulers: bool) -> None:
        """Refuse from now on unprepared optimizers that act on prepared parameters.

        Args:
            allow_unprepared_schedulers: False: unprepared schedulers of prepared optimizers are refused as well.

        Raises:
            ProgramError: there is such a scheduler already.
        """
        if not allow_unprepared_schedulers:
            self._refuse_unprepared_schedulers()
            self._unscheduled = {id(each) for each in self._optimizers if not torch_private.has_scheduler(each)}
        _watch_steps(self)

    def unprepared_schedulers(self) -> list[str]:
        """Return the unprepared learning-rate schedulers of prepared optimizers, except parts of prepared objects."""
        held = {id(guard.scheduler) for guard in self._schedulers}
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
                    "start it from the beginning and train with another learning rate. Pass it to run.prepare(...), or "
                    "call "
                    "legato.elastic(..., allow_unprepared_schedulers=True) if the result may depend on that."
                )

    def check_step(self, optimizer: torch.optim.Optimizer) -> bool:
        """Refuse a step of an unprepared optimizer that acts on prepared parameters.

        Returns:
            Whether the optimizer is prepared in this run.

        Raises:
            ProgramError: it is such an optimizer, or it has an unprepared scheduler.
        """
        if id(optimizer) in self._prepared:
            if id(optimizer) in self._unscheduled and torch_private.has_scheduler(optimizer):
                self._unscheduled.remove(id(optimizer))
                self._refuse_unprepared_schedulers()
            return True
        ours = {id(parameter) for parameter in self._all_parameters()}
        if any(id(parameter) in ours for group in optimizer.param_groups for parameter in group["params"]):
            raise ProgramError(
                f"An optimizer that was not prepared ({type(optimizer).__name__}) acts on a prepared model. Pass it to "
                "run.prepare(model, optimizer), so that it acts once per step and its state reaches workers that join."
            )
        return False

    def parameters(self) -> list[torch.nn.Parameter]:
        """Return the parameters that require a gradient, each once.

        Raises:
            ProgramError: there are none.
        """
        trainable = [parameter for parameter in self._all_parameters() if parameter.requires_grad]
        if not trainable:
            raise ProgramError(
                "There is nothing to train: no parameter of the prepared models requires a gradient. "
                "Pass the model to run.prepare(...), and leave requires_grad=True on the parameters to train."
            )
        return trainable

    def tensors(self) -> Iterator[torch.Tensor]:
        """Yield the parameters and buffers of the prepared models."""
        for model in self._models:
            yield from model.parameters()
            yield from model.buffers()

    def buffers(self) -> list[Slot]:
        """Return where the models hold their buffers, each buffer once, always in the same order."""
        if self._slots is None:
            self._slots = buffer_slots(self._models)
        return self._slots

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
        lines.extend(type(guard.scheduler).__qualname__ for guard in self._schedulers)
        lines.extend(type(thing).__qualname__ for thing in [*self._scalers, *self._objects])
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]

    def state(self, value_of: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, Any]:
        """Return the whole state as plain values and tensors (see `serialization`); its tensors are the live ones.

        Args:
            value_of: returns the value to store for a buffer, which differs from the live one while a step changes the
                buffer.

        Raises:
            CheckpointError: some state cannot be encoded; the message names it.
        """
        return {
            "models": [
                {
                    "parameters": dict(model.named_parameters()),
                    "buffers": {
                        name: value_of(buffer) for name, buffer in _held_in(model).items() if buffer is not None
                    },
                    "empty": [name for name, held in _held_in(model).items() if held is None],
                    "extra": {
                        name: encode(read(), owner).plain
                        for name, owner, read in _extra_states(model, self._name_of(model))
                    },
                }
                for model in self._models
            ],
            "trainable": self.trainable(),
            "training": [module.training for module in self._modules()],
            "groups": [self._members_of(optimizer) for optimizer in self._optimizers],
            "optimizers": [self._plain(optimizer) for optimizer in self._optimizers],
            "schedulers": [
                {"last_round": guard.last_round, "state": self._plain(guard.scheduler)} for guard in self._schedulers
            ],
            "scalers": [self._plain(scaler) for scaler in self._scalers],
            "objects": [self._plain(thing) for thing in self._objects],
            "attributes": self.attributes.changed(),
        }

    def _plain(self, thing: Any) -> Any:
        owner = self._name_of(thing)
        return encode(_read_state(thing, owner), owner).plain

    def _members_of(self, optimizer: torch.optim.Optimizer) -> list[list[int]]:
        """Return which parameters, counted over all models, each group of an optimizer has; others: `_UNPREPARED`."""
        places = {id(parameter): place for place, parameter in enumerate(self._all_parameters())}
        groups = [group["params"] for group in optimizer.param_groups]
        if any(id(tensor) not in places and tensor.requires_grad for group in groups for tensor in group):
            raise CheckpointError(
                f"Cannot transfer the state of {self._name_of(optimizer)}: it acts on a parameter of no prepared model."
            )
        return [[places.get(id(tensor), _UNPREPARED) for tensor in group] for group in groups]

    def items(self) -> Iterator[Item]:
        """Yield every piece of the state by its name; its tensors are the live ones."""
        schedulers = [
            (guard.scheduler, _read_state(guard.scheduler, self._name_of(guard.scheduler)))
            for guard in self._schedulers
        ]
        return items_of(self._models, self._optimizers, schedulers, self._scalers, self._objects)

    @torch.no_grad()
    def load(self, state: dict[str, Any]) -> None:
        """Load a state that `state` returned, in this or another process.

        Raises:
            CheckpointError: the state belongs to another program.
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
            copy_model(model, saved, follows_dtype=True)
        # Older checkpoints do not say which parameters the groups held; then they must be those of the program.
        for optimizer, groups in zip(self._optimizers, state.get("groups", ()), strict=False):
            _regroup(optimizer, groups, self._all_parameters())
        modules = self._modules()
        if len(modules) != len(state["training"]):
            raise CheckpointError(
                f"The state belongs to another model: it has {len(state['training'])} modules there and {len(modules)} "
                "here. Build all modules before run.prepare(...)."
            )
        for module, training in zip(modules, state["training"], strict=True):
            module.training = training
        for parameter, trainable in zip(self._all_parameters(), state["trainable"], strict=True):
            parameter.requires_grad_(trainable)
        for optimizer, saved in zip(self._optimizers, state["optimizers"], strict=True):
            _load_optimizer(optimizer, self._decoded(optimizer, saved))
        for guard, saved in zip(self._schedulers, state["schedulers"], strict=True):
            guard.last_round = saved["last_round"]
            guard.scheduler.load_state_dict(self._decoded(guard.scheduler, saved["state"]))
        for thing, saved in zip([*self._scalers, *self._objects], [*state["scalers"], *state["objects"]], strict=True):
            thing.load_state_dict(self._decoded(thing, saved))
        if self._groups is not None:
            self._groups = GroupWatch(self._optimizers)

    def _decoded(self, thing: Any, saved: Any) -> Any:
        owner = self._name_of(thing)
        return decode(saved, _read_state(thing, owner), owner)

    def trainable(self) -> list[bool]:
        """Return which parameters require a gradient."""
        return [parameter.requires_grad for parameter in self._all_parameters()]

    def _modules(self) -> list[torch.nn.Module]:
        return [module for model in self._models for module in model.modules()]

    def _all_parameters(self) -> list[torch.nn.Parameter]:
        # Called in every step; walking through the modules would take longer than the rest of this method.
        if self._parameters is None:
            self._parameters = list(_unique(parameter for model in self._models for parameter in model.parameters()))
        return self._parameters


def _unique(things: Iterable[_T]) -> Iterable[_T]:
    return {id(thing): thing for thing in things}.values()


def copy_model(model: torch.nn.Module, saved: dict[str, Any], *, follows_dtype: bool = False) -> None:
    """Overwrite a model's parameters, buffers and extra states with those of a state; call it without gradients.

    A program may replace buffers: if the state has a buffer of another shape, or None, the model gets that buffer.

    Args:
        model: of the same structure.
        saved: the model's part of the state.
        follows_dtype: a buffer gets the dtype that it has in the state. False: it keeps its own.

    Raises:
        CheckpointError: names differ, or shapes of parameters; the parameters may be overwritten already.
    """
    _copy_all(dict(model.named_parameters()), saved["parameters"])
    _copy_buffers(model, saved, follows_dtype=follows_dtype)
    # Older checkpoints do not have it: then modules keep the extra state that their program set.
    extra = saved.get("extra")
    if extra is None:
        return
    own = _extra_states(model, f"the {type(model).__name__}")
    _refuse_other_names({name for name, _, _ in own}, extra.keys())
    for name, owner, read in own:
        model.get_submodule(name).set_extra_state(decode(extra[name], read(), owner))


def _extra_states(model: torch.nn.Module, owner: str) -> list[tuple[str, str, Callable[[], Any]]]:
    """Return the extra states of modules: the name, the name in error messages, and a function that reads it."""
    return [
        (name, f"get_extra_state() of {name or 'the whole'} in {owner}", module.get_extra_state)
        for name, module in model.named_modules()
        if type(module).get_extra_state is not torch.nn.Module.get_extra_state
    ]


def _copy_all(own: dict[str, Any], saved: dict[str, torch.Tensor]) -> None:
    """Overwrite tensors with saved ones of the same names and with their order in memory; call it without gradients.

    Raises:
        CheckpointError: names or shapes differ; nothing is overwritten.
    """
    _refuse_other_names(own.keys(), saved.keys())
    for name, tensor in own.items():
        if tensor.shape != saved[name].shape:
            raise CheckpointError(
                f"The state belongs to another model: {name} has shape {tuple(saved[name].shape)} there and "
                f"{tuple(tensor.shape)} here."
            )
    for name, tensor in own.items():
        if tensor.data_ptr() == saved[name].data_ptr() and tensor.device == saved[name].device:
            continue
        if not lies_alike(tensor, saved[name]):
            # Kernels add up in the order of memory, so the last bits depend on it.
            tensor.data = torch.empty_like(saved[name], dtype=tensor.dtype, device=tensor.device)
        tensor.copy_(saved[name])


def _copy_buffers(model: torch.nn.Module, saved: dict[str, Any], *, follows_dtype: bool) -> None:
    given = saved["buffers"]
    if "empty" not in saved:
        # An older checkpoint does not say which buffers were None, and has a buffer in several places only once.
        _copy_all(dict(model.named_buffers()), given)
        return
    own = _held_in(model)
    _refuse_other_names(own.keys(), {*given, *saved["empty"]})
    device = next((tensor.device for tensor in model.parameters()), torch.device("cpu"))
    for name, (module, attribute) in slots_of(model).items():
        mine, new = own[name], given.get(name)
        if new is None:
            torch_private.buffers_of(module)[attribute] = None
        elif mine is None or mine.shape != new.shape or (follows_dtype and mine.dtype != new.dtype):
            new_device = device if mine is None else mine.device
            torch_private.buffers_of(module)[attribute] = torch.empty_like(new, device=new_device)
    _copy_all({name: buffer for name, buffer in _held_in(model).items() if buffer is not None}, given)


def _held_in(model: torch.nn.Module) -> dict[str, torch.Tensor | None]:
    """Return the content of the places of a model's buffers."""
    return {name: torch_private.buffers_of(module)[attribute] for name, (module, attribute) in slots_of(model).items()}


def _refuse_other_names(own: AbstractSet[str], saved: AbstractSet[str]) -> None:
    if own != saved:
        differing = sorted(own ^ saved)
        raise CheckpointError(f"The state belongs to another model: {', '.join(differing[:5])} exist only on one side.")


def _refuse_lazy(model: torch.nn.Module) -> None:
    for name, module in model.named_modules():
        if any(is_lazy(tensor) for tensor in [*module.parameters(recurse=False), *module.buffers(recurse=False)]):
            raise ProgramError(
                f"Cannot prepare the {type(model).__name__}: its module {name or type(module).__name__} "
                f"({type(module).__name__}) is lazy, so its parameters have no shape yet. Run one batch of inputs "
                "through the model before run.prepare(...)."
            )


def _read_state(thing: Any, owner: str) -> Any:
    """Return the result of an object's `state_dict`.

    Raises:
        CheckpointError: `state_dict` raised an error.
    """
    try:
        return thing.state_dict()
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        raise CheckpointError(f"Cannot read the state of {owner}: its state_dict() failed with {text}") from error


def _encode_all(thing: Any, owner: str) -> frozenset[Path]:
    """Encode the state of an object besides parameters and buffers; return its fixed parts (see `Encoded`)."""
    if isinstance(thing, torch.nn.Module):
        found = [
            [(name, *path) for path in encode(read(), owner_of_extra).fixed]
            for name, owner_of_extra, read in _extra_states(thing, owner)
        ]
        return frozenset(path for paths in found for path in paths)
    return encode(_read_state(thing, owner), owner).fixed


def _regroup(
    optimizer: torch.optim.Optimizer, groups: Sequence[Sequence[int]], parameters: Sequence[torch.nn.Parameter]
) -> None:
    """Set an optimizer's groups of parameters to those of a state: the program may change them in training."""
    own = optimizer.param_groups
    del own[len(groups) :]
    # Frozen parameters that belong to no prepared model are not in the state: each stays in its place.
    unprepared = [dict(enumerate(group["params"])) for group in own]
    for place, members in enumerate(groups):
        known = unprepared[place] if place < len(unprepared) else {}
        if any(index == _UNPREPARED and at not in known for at, index in enumerate(members)):
            raise CheckpointError(
                f"In the saved state, group {place} of the {type(optimizer).__name__} holds a frozen parameter that "
                "belongs to no prepared model; in this program it does not. Pass the module that holds it to "
                "run.prepare."
            )
        held = [known[at] if index == _UNPREPARED else parameters[index] for at, index in enumerate(members)]
        if place == len(own):
            optimizer.add_param_group({"params": held})
        elif [*map(id, own[place]["params"])] != [*map(id, held)]:
            own[place]["params"] = held


def _load_optimizer(optimizer: torch.optim.Optimizer, saved: Any) -> None:
    """Load an optimizer's state by its own methods.

    torch's `load_state_dict` casts state to the dtype of its parameter, even if the state had a higher precision, and
    replaces some containers. So hooks hide the state from it and fill it in afterwards.
    """
    given: dict[Any, Any] = {}

    def withhold(_: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
        given.update(state["state"])
        return {**state, "state": {}}

    def fill(_: torch.optim.Optimizer) -> None:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        for key, value in given.items():
            if isinstance(key, int) and key < len(parameters):
                optimizer.state[parameters[key]] = _beside(parameters[key], value)
            else:
                optimizer.state[key] = _beside(parameters[0], value)

    hooks = [
        optimizer.register_load_state_dict_pre_hook(withhold),
        optimizer.register_load_state_dict_post_hook(fill, prepend=True),
    ]
    try:
        optimizer.load_state_dict(saved)
    finally:
        for hook in hooks:
            hook.remove()


def _beside(parameter: torch.Tensor, value: Any, name: Any = None) -> Any:
    """Return the state of a parameter with its tensors on the parameter's device."""
    if isinstance(value, torch.Tensor):
        # torch keeps the step counters of its optimizers on the CPU, unless the program sets ``capturable``.
        return value if name == "step" and value.device.type == "cpu" else value.to(parameter.device)
    if type(value) in (list, tuple):
        return type(value)(_beside(parameter, part) for part in value)
    if isinstance(value, dict | deque):
        # In place, which keeps other properties of the container, such as a default or a maximum length.
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in list(pairs):
            value[key] = _beside(parameter, part, key)
    return value


_watching: tuple[weakref.ref[TrainingState], ...] = ()


def _watch_steps(state: TrainingState) -> None:
    """Check each step of every optimizer of this process while the training state is in memory."""
    global _watching  # noqa: PLW0603 -- torch has one list of such hooks for the process, too
    if not _watching:
        # Only once: another thread may be in the middle of a step and iterate over torch's list.
        register_optimizer_step_pre_hook(_check_step)
    _watching = (*(each for each in _watching if each() is not None), weakref.ref(state))


def _check_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    # The newest first: a notebook may train a model again, with another optimizer.
    for each in reversed(_watching):
        state = each()
        if state is not None and state.check_step(optimizer):
            return
