"""Trains, and writes the SHA-256 of its weights: ``drivers_program.py EPOCHS FILE [FAST]``.

Every step lasts for 0.1 s at least until there is a file FAST.
"""

import hashlib
import os
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import TensorDataset

import legato


def main() -> None:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(64, 4, generator=generator)
    data = TensorDataset(inputs, inputs @ torch.randn(4, 1, generator=generator))
    torch.manual_seed(0)
    run = legato.elastic(global_batch_size=8, micro_batch_size=2, seed=0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    model, optimizer = run.prepare(model, optimizer)
    for _ in run.epochs(int(sys.argv[1])):
        for x, y in run.batches(data):
            run.backward(torch.nn.functional.mse_loss(model(x), y))
            optimizer.step()
            optimizer.zero_grad()
            if run.stepped and len(sys.argv) > 3 and not Path(sys.argv[3]).exists():
                time.sleep(0.1)
    if run.is_main:
        text = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
        Path(sys.argv[2]).write_text(f"{text} {os.environ.get('COLOUR')} {os.environ.get('LEGATO_SECRET')}")


if __name__ == "__main__":
    main()
