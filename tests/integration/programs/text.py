"""Tied weights, frozen parts, bfloat16 autocast, GradScaler, two optimizers, a schedule per step, an object of
the user's, parameters without a gradient in some micro-batches, two kinds of parameter, a small last batch; V = 6.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from common import Words, pace, tell
from torch import nn

import legato


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(23, 12)
        self.mixer = nn.Linear(12, 12)
        self.rare = nn.Linear(12, 12)
        self.norm = nn.LayerNorm(12)
        self.frozen = nn.Linear(12, 12)
        self.frozen.requires_grad_(False)
        self.fine = nn.Linear(12, 12, dtype=torch.float64)
        self.head = nn.Linear(12, 23, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("num_rare", torch.zeros((), dtype=torch.int64))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.mixer(self.embedding(tokens)).cumsum(1))
        if int(tokens[0, 0]) % 3 == 0:
            hidden = hidden + self.rare(hidden)
            self.num_rare += 1
        hidden = nn.functional.dropout(self.frozen(hidden), 0.1, self.training)
        hidden = hidden + self.fine(hidden.double()).float()
        output: torch.Tensor = self.head(self.norm(hidden))
        return output


class Average:
    """A running mean of weights, as some programs keep one."""

    def __init__(self, parameter: torch.Tensor) -> None:
        self.mean = parameter.detach().clone()
        self.num_updates = 0

    def update(self, parameter: torch.Tensor) -> None:
        self.mean.lerp_(parameter.detach(), 0.1)
        self.num_updates += 1

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self.mean, "num_updates": self.num_updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.mean = state["mean"].clone()
        self.num_updates = state["num_updates"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--leave-after", type=int, default=0, help="epochs after which the loop is left; 0 for none")
    args = parser.parse_args()
    run = legato.elastic(global_batch_size=12, micro_batch_size=2, seed=5)
    model = Model()
    tied = list(model.embedding.parameters())
    others = [p for p in model.parameters() if p.requires_grad and p is not tied[0]]
    adam = torch.optim.AdamW(tied, 1e-2)
    sgd = torch.optim.SGD([{"params": others[:2], "lr": 0.05}, {"params": others[2:]}], 0.01, momentum=0.9)
    schedule = torch.optim.lr_scheduler.OneCycleLR(sgd, [0.1, 0.05], total_steps=4 * args.epochs + 1)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=5)
    average = Average(model.mixer.weight)
    run.prepare(model, adam, sgd, schedule, scaler, average)
    for _ in run.epochs(args.epochs):
        total = 0.0
        for tokens in run.batches(Words(43)):
            pace(run)
            with torch.autocast("cpu", torch.bfloat16):
                logits = model(tokens[:, :-1])
                loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            run.backward(loss, scaler)
            scaler.unscale_(adam)
            scaler.unscale_(sgd)
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            scaler.step(adam)
            scaler.step(sgd)
            scaler.update()
            adam.zero_grad()
            sgd.zero_grad()
            schedule.step()
            if run.stepped:
                average.update(model.mixer.weight)
                assert run.loss is not None
                total += run.loss
        assert run.loss is not None
        run.log(loss=run.loss)
        if run.epoch + 1 == args.leave_after:
            break
    tell(run, model, adam, sgd, schedule, scaler, average)


if __name__ == "__main__":
    main()
