"""Trains, and writes into its working directory: ``writes.py EPOCHS [WHILE [MORE]]``.

Rank 0 appends a line per epoch to ``metrics.csv``, edits ``config.json``, which is a part of the code, and saves
``out/model.pt`` at the end. Each rank writes ``same.txt`` and a file of its own name. Epochs are slow while the file
WHILE exists. MORE is code that the worker runs at the end.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import TensorDataset

import legato


def main() -> None:
    slow_while = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    inputs = torch.randn(64, 4, generator=torch.Generator().manual_seed(1))
    run = legato.elastic(global_batch_size=8, micro_batch_size=2, seed=0)
    model = torch.nn.Linear(4, 1)
    model, optimizer = run.prepare(model, torch.optim.SGD(model.parameters(), lr=1e-3))
    for epoch in run.epochs(int(sys.argv[1])):
        for (x,) in run.batches(TensorDataset(inputs)):
            run.backward(model(x).square().mean())
            optimizer.step()
            optimizer.zero_grad()
            if run.stepped and slow_while is not None and slow_while.exists():
                time.sleep(0.05)
        if run.is_main:
            with Path("metrics.csv").open("a") as file:
                file.write(f"{epoch},{os.environ['LEGATO_WORKER']}\n")
            print(f"epoch {epoch} is done", flush=True)
    Path("same.txt").write_text(f"by worker {os.environ['LEGATO_WORKER']}")
    Path(f"of-{os.environ['LEGATO_WORKER']}.txt").write_text("mine")
    if run.is_main:
        config = json.loads(Path("config.json").read_text()) if Path("config.json").exists() else {}
        Path("config.json").write_text(json.dumps({**config, "done": True}))
        Path("out").mkdir(exist_ok=True)
        torch.save(model.state_dict(), "out/model.pt")
    if len(sys.argv) > 3:
        exec(sys.argv[3])


if __name__ == "__main__":
    main()
