"""State of many kinds, all of which the result depends on; with ``--how late`` some that no joiner can be given.

Deques, default dicts, dataclasses, members of an enumeration, NumPy values, string keys, an optimizer with methods of
its own, a module with an extra state, a complex buffer, and another order in memory from the third epoch on; V = 4.
"""

from __future__ import annotations

import argparse
import dataclasses
import enum
import os
import threading
from collections import defaultdict, deque
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import Images, pace, tell
from torch import nn

import legato


class Mood(enum.Enum):
    CALM = "calm"
    EAGER = "eager"


@dataclasses.dataclass
class Memory:
    losses: deque[float]
    mood: Mood = Mood.CALM


class Model(nn.Module):
    """Has an extra state, and a complex buffer that every forward pass changes."""

    def __init__(self) -> None:
        super().__init__()
        self.mixing = nn.Conv2d(1, 6, 3, padding=1)
        self.deep = nn.Conv2d(6, 6, 3, padding=1)
        self.head = nn.Linear(6 * 64, 4)
        self.register_buffer("wave", torch.zeros(3, dtype=torch.complex64))
        self.memory = Memory(deque(maxlen=4))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.wave.mul_(0.9).add_(torch.fft.fft(images.mean((0, 1, 2)))[:3], alpha=0.1)
        hidden = torch.tanh(self.deep(torch.relu(self.mixing(images))) + self.wave.abs().mean())
        scale = 1.5 if self.memory.mood is Mood.EAGER else 1.0
        output: torch.Tensor = self.head(hidden.flatten(1)) * (scale + 0.01 * sum(self.memory.losses))
        return output

    def get_extra_state(self) -> Any:
        return self.memory

    def set_extra_state(self, state: Any) -> None:
        self.memory = state


class Odd(torch.optim.Optimizer):
    """Gradients of the last steps, a sum in higher precision, and a rate for all parameters under a string."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.02})
        self.state["all"] = {"rate": np.float64(1.0)}

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        shared: Any = self.state["all"]
        shared["rate"] *= np.float64(0.999)
        for group in self.param_groups:
            for parameter in group["params"]:
                state: Any = self.state[parameter]
                if not state:
                    state.update(past=deque(maxlen=3), sum=torch.zeros_like(parameter).double(), tally=defaultdict(int))
                state["past"].append(parameter.grad.clone())
                state["sum"] += parameter.grad
                state["tally"]["positive"] += int(parameter.grad.sum() > 0)
                # The order of the addition follows the order in memory.
                norm = 1 + state["sum"].abs().sum().float() + 0.01 * state["tally"]["positive"]
                parameter.sub_(sum(state["past"]) * (group["lr"] * float(shared["rate"])) / norm.sqrt())


class Counting(torch.optim.SGD):
    """Overrides both methods, with more state than its base has."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, 0.01, momentum=0.9)
        self.num_steps = 0

    def step(self, closure: Any = None) -> None:
        self.num_steps += 1
        for group in self.param_groups:
            group["lr"] = 0.02 / self.num_steps
        super().step()

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "num_steps": self.num_steps}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.num_steps = state_dict["num_steps"]
        super().load_state_dict({key: value for key, value in state_dict.items() if key != "num_steps"})


class Journal:
    """What the program remembers; while the test wants it, something that cannot be carried is in it."""

    def __init__(self) -> None:
        self.by_epoch: defaultdict[int, list[float]] = defaultdict(list)
        self.means = np.zeros((2, 3), dtype=">f4", order="F")
        self.other: Any = None

    def state_dict(self) -> dict[str, Any]:
        return {"by_epoch": self.by_epoch, "means": self.means, "other": self.other}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.by_epoch, self.means = state["by_epoch"], state["means"]


def is_odd() -> bool:
    return Path(os.environ.get("LEGATO_TEST_REINS", "/nowhere"), "odd").exists()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--how", default="")
    args = parser.parse_args()
    run = legato.elastic(global_batch_size=8, micro_batch_size=2, seed=4)
    model, journal = Model(), Journal()
    optimizers = [Odd([*model.mixing.parameters(), *model.deep.parameters()]), Counting(model.head.parameters())]
    run.prepare(model, *optimizers, journal)
    for epoch in run.epochs(6):
        if epoch == 2:
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        for images, targets in run.batches(Images(40, augment=True)):
            pace(run)
            run.backward(nn.functional.cross_entropy(model(images + float(journal.means.mean())), targets))
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
            if run.stepped:
                assert run.loss is not None
                journal.by_epoch[epoch].append(run.loss)
                journal.means[1, run.step % 3] = np.mean(journal.by_epoch[epoch]) * 0.01
                journal.other = threading.Lock() if args.how == "late" and run.step > 2 and is_odd() else None
                losses = model.memory.losses
                losses.append(run.loss)
                model.memory = Memory(losses, Mood.EAGER if losses[0] > losses[-1] else Mood.CALM)
    tell(run, model, *optimizers, journal)


if __name__ == "__main__":
    main()
