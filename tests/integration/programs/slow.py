"""Trains slowly, and writes the SHA-256 of its weights: ``slow.py EPOCHS FILE [STEP_S WHILE [MICRO_BATCH_SIZE]]``.

Every step lasts for STEP_S seconds at least as long as the file WHILE exists; then nothing holds it back.
"""

import hashlib
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import TensorDataset

import legato


def main() -> None:
    wait_s, slow_while = (float(sys.argv[3]), Path(sys.argv[4])) if len(sys.argv) > 3 else (0.0, None)
    micro_batch_size = int(sys.argv[5]) if len(sys.argv) > 5 else 2
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(64, 4, generator=generator)
    data = TensorDataset(inputs, inputs @ torch.randn(4, 1, generator=generator))
    run = legato.elastic(global_batch_size=8, micro_batch_size=micro_batch_size, seed=0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    model, optimizer = run.prepare(model, optimizer)
    for epoch in run.epochs(int(sys.argv[1])):
        for x, y in run.batches(data):
            run.backward(torch.nn.functional.mse_loss(model(x), y))
            optimizer.step()
            optimizer.zero_grad()
            if run.stepped and slow_while is not None and slow_while.exists():
                time.sleep(wait_s)
        if run.is_main:
            print(f"epoch {epoch} is done")
    if run.is_main:
        weights = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
        Path(sys.argv[2]).write_text(hashlib.sha256(weights).hexdigest())


if __name__ == "__main__":
    main()
