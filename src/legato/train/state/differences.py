"""Explains to users which pieces of the state differ between which ranks, and usual causes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import torch

from legato.train.reduction.buffers import MAX_COMPARED_NUMEL
from legato.train.state.named_state import Item

_NUM_SHOWN: Final = 6
_AVERAGED: Final = "(AveragedModel)"
_UNLIKE: Final = (
    "Buffers are changed in code that not all workers run alike: by the forward pass of a model in training mode under "
    "`if run.is_main:` (call model.eval() before it, or let all workers run it), by the forward pass of an evaluation "
    "(change them under `if self.training:` only), or in the loop over batches outside of `if run.stepped:`."
)

_OTHER_INPUTS: Final = (
    "A forward pass that changes buffers gets samples of this worker alone: a second one in training mode after the "
    "backward pass of a turn (call model.eval() before it), or one of an evaluation (change buffers under `if "
    "self.training:` only)."
)

_OTHER_DATA: Final = (
    "The program changes or chooses the data set by what this worker alone has computed or loaded, such as the losses "
    "of its samples. Use values that are the same on all workers: those of run.notes, run.loss and run.evaluate."
)


class Difference(NamedTuple):
    """A piece of the state that is not equal on all ranks.

    Args:
        name: of the piece.
        held: the ranks, by their checksum of this piece; None for ranks that do not have the piece.
    """

    name: str
    held: dict[int | None, list[int]]


def differences(told: Sequence[Mapping[str, int]]) -> list[Difference]:
    """Return the pieces of which not all ranks have the same checksum, in the order in which they are first named.

    >>> differences([{"a": 1, "b": 2}, {"a": 1, "b": 3}, {"a": 1, "b": 2}])
    [Difference(name='b', held={2: [0, 2], 3: [1]})]
    """
    found = []
    for name in dict.fromkeys(name for sums in told for name in sums):
        held: dict[int | None, list[int]] = {}
        for rank, sums in enumerate(told):
            held.setdefault(sums.get(name), []).append(rank)
        if len(held) > 1:
            found.append(Difference(name, held))
    return found


def describe(
    found: Sequence[Difference],
    items: Iterable[Item],
    watched: Iterable[torch.Tensor],
    *,
    step: int,
    agreed_step: int | None,
    num_ranks: int,
) -> str:
    """Return a text for users: what differs, since when, and what usually causes it.

    Args:
        found: the differences.
        items: the whole state.
        watched: the buffers whose changes are averaged over the micro-batches.
        step: after which the states were compared.
        agreed_step: the step after which the states were last found equal; None if they were not compared before.
        num_ranks: number of compared ranks.
    """
    known = {item.name: item for item in items}
    differing = [known[piece.name] for piece in found if piece.name in known]
    causes = _causes(differing, known.values(), {id(buffer) for buffer in watched})
    # Certain causes come before possible consequences.
    is_certain = {item.name for item, cause in zip(differing, causes, strict=True) if cause.is_certain}
    ordered = sorted(found, key=lambda piece: piece.name not in is_certain)
    since = "They were not compared before."
    if agreed_step is not None:
        since = f"After step {agreed_step} they were still the same."
    lines = [f"After step {step} the workers do not hold the same state. {since}"]
    lines += [f"  {piece.name}: {_describe_holders(piece)}" for piece in ordered[:_NUM_SHOWN]]
    if len(found) > _NUM_SHOWN:
        lines.append(f"  and {len(found) - _NUM_SHOWN} more")
    if num_ranks == 2:
        lines.append("With two workers it is unknown which of them is right.")
    for title, certain in (("Cause", True), ("Usual cause", False)):
        texts = dict.fromkeys(cause.text for cause in causes if cause.is_certain is certain)
        if texts:
            return "\n".join([*lines, f"{title}{'s' if len(texts) > 1 else ''}:", *(f"  {text}" for text in texts)])
    return "\n".join(lines)


def describe_changes(told: Sequence[Mapping[str, int]], step: int) -> str:
    """Return a text for users: which buffers the program has not changed alike on all ranks.

    Args:
        told: for each rank, the checksums of the buffers that its program has changed since a step, by their names.
        step: number of this step.
    """
    found = differences(told)
    partly = [piece for piece in found if None in piece.held]
    how = "on some workers only" if partly else "to different values on different workers"
    lines = [f"After step {step} the program changed buffers {how}, and the next step began with them."]
    for piece in found[:_NUM_SHOWN]:
        others = piece.held.get(None, [])
        ranks = [rank for rank in range(len(told)) if rank not in others]
        where = f"on {_name_ranks(ranks)}, and not on {_name_ranks(others)}" if others else "to different values"
        lines.append(f"  buffer {piece.name}: changed {where}")
    if len(found) > _NUM_SHOWN:
        lines.append(f"  and {len(found) - _NUM_SHOWN} more")
    return "\n".join([*lines, "Usual cause:", f"  {_UNLIKE if partly else _OTHER_INPUTS}"])


def _name_ranks(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"


def _describe_holders(piece: Difference) -> str:
    parts = []
    for value, ranks in piece.held.items():
        who = f"{_name_ranks(ranks)} {'has' if len(ranks) == 1 else 'have'}"
        parts.append(f"{who} {'none' if value is None else f'{value:016x}'}")
    return "; ".join(parts)


# ---------------------------------------------------------------- what usually causes it


class _Cause(NamedTuple):
    text: str
    is_certain: bool = False


def _causes(differing: Sequence[Item], items: Iterable[Item], watched: set[int]) -> list[_Cause]:
    optimizers = {id(item.owner): item.owner for item in items if item.kind == "optimizer"}.values()
    trained = {id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
    attributes = _describe_attributes(optimizers)
    # The correct averages of different models differ too.
    only_averages = all(_AVERAGED in item.name for item in differing)
    causes = []
    for item in differing:
        if _AVERAGED in item.name:
            text = (
                "Parameters are averaged in every turn of the loop, which is once per micro-batch. Call "
                "update_parameters under `if run.stepped:`."
            )
            causes.append(_Cause(text, is_certain=only_averages))
        elif item.kind == "buffer":
            causes.append(_cause_of_buffer(item, watched))
        elif item.kind == "parameter":
            causes.append(_cause_of_parameter(item, trained, attributes))
        elif item.kind == "optimizer":
            causes.append(_Cause(attributes))
        elif item.kind == "scheduler":
            text = (
                f"A {type(item.owner).__name__} got a value of one worker alone, such as the loss of a micro-batch. "
                "Give it one that all workers know: run.loss, run.epoch_loss or a result of run.evaluate."
            )
            causes.append(_Cause(text))
        elif item.kind == "data":
            causes.append(_Cause(_OTHER_DATA, is_certain=True))
        else:
            text = f"A {type(item.owner).__name__} is changed once per micro-batch. Change it under `if run.stepped:`."
            causes.append(_Cause(text))
    return causes


def _cause_of_buffer(item: Item, watched: set[int]) -> _Cause:
    if id(item.value) not in watched:
        text = (
            f"{item.name} is a cache (persistent=False) that the program assigns (`self.{item.attribute} = ...`), so "
            "its changes are not averaged over the micro-batches. Register it without persistent=False, or write into "
            f"it: `self.{item.attribute}.copy_(...)`."
        )
        return _Cause(text, is_certain=True)
    if item.value.numel() > MAX_COMPARED_NUMEL:
        text = (
            f"{item.name} has more than {MAX_COMPARED_NUMEL:,} elements, and a change of so large a buffer through "
            "`.data` is not noticed. Change it in place under torch.no_grad(), without `.data`."
        )
        return _Cause(text, is_certain=True)
    return _Cause(_UNLIKE)


def _cause_of_parameter(item: Item, trained: set[int], attributes: str) -> _Cause:
    if getattr(item.owner, "max_norm", None) is not None:
        text = (
            f"{item.name} belongs to a {type(item.owner).__name__} with max_norm, whose forward pass rewrites the rows "
            "that a micro-batch looks up. Build it without max_norm, and limit the norms under `if run.stepped:`, "
            "after optimizer.step()."
        )
        return _Cause(text, is_certain=True)
    if id(item.value) not in trained:
        text = (
            "Parameters in no prepared optimizer differ, so the program itself changes them. If the loop does, as for "
            "an average of a model, change them under `if run.stepped:`. If forward writes them, as a codebook, "
            "register them as buffers and change these in place: then their changes are averaged over the "
            "micro-batches."
        )
        return _Cause(text, is_certain=True)
    text = (
        "Parameters are changed in the loop over batches or in forward, once per micro-batch. Change them under `if "
        f"run.stepped:`, after optimizer.step(). Or: {attributes}"
    )
    return _Cause(text)


def _describe_attributes(optimizers: Iterable[torch.optim.Optimizer]) -> str:
    text = (
        "an optimizer keeps numbers or tensors as attributes of its own, which do not reach workers that join. Keep "
        "them in optimizer.state or in its param_groups."
    )
    usual = {"defaults", "state", "param_groups"}
    kinds = (int, float, torch.Tensor, list, dict)
    for optimizer in optimizers:
        own: list[Any] = [
            name
            for name, value in vars(optimizer).items()
            if isinstance(value, kinds) and name not in usual and not name.startswith("_")
        ]
        if own:
            text += f" {type(optimizer).__name__} has {', '.join(own)}."
    return text
