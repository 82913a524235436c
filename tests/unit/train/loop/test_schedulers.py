"""The schedulers of a program are found, those of its optimizer only, in one order."""

from __future__ import annotations

from typing import Any

import torch

from legato.train.loop.schedulers import find_schedulers

MAKE: Any = torch.optim.lr_scheduler


def optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)


def test_schedulers_are_found_by_their_optimizer_and_parts_of_others_are_not() -> None:
    mine, other = optimizer(), optimizer()
    parts = [MAKE.ConstantLR(mine), MAKE.ExponentialLR(mine, 0.9)]
    whole = MAKE.SequentialLR(mine, parts, [2])
    plateau, strange = MAKE.ReduceLROnPlateau(mine), MAKE.StepLR(other, 1)
    assert find_schedulers(mine) == [plateau, whole]
    assert find_schedulers(other) == [strange]
    assert find_schedulers(optimizer()) == []


def test_their_order_is_not_that_in_which_they_were_made() -> None:
    def found(*milestones: int) -> list[list[int]]:
        one = optimizer()
        # Alike but for what is no single number.
        kept = [MAKE.MultiStepLR(one, [1, milestone]) for milestone in milestones]
        assert len(find_schedulers(one)) == len(kept)
        return [sorted(scheduler.milestones) for scheduler in find_schedulers(one)]

    assert found(5, 3, 4) == found(4, 3, 5) == [[1, 3], [1, 4], [1, 5]]


def test_objects_in_a_state_do_not_settle_the_order() -> None:
    class Warm:
        """Has an address of its own in every process."""

        def __call__(self, epoch: int) -> float:
            return float(epoch)

    one = optimizer()
    kept = [MAKE.LambdaLR(one, Warm()), MAKE.StepLR(one, 1)]
    kept[0].extra = object()
    assert find_schedulers(one) == kept
