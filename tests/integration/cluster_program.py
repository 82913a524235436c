"""A program that tests on real clusters train; it prints the SHA-256 of its weights.

Arguments: seconds to wait in each turn of the loop, the number of epochs, and perhaps a file: as soon as it exists, the
program does not wait any more.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

DIGEST: Final = re.compile(r"weights sha256 ([0-9a-f]{64})")
PROGRAM: Final = """
import hashlib, os, sys, time
import torch, legato

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 512
    def __getitem__(self, index):
        return torch.randn(64, generator=torch.Generator().manual_seed(index)), index % 4

run = legato.elastic(global_batch_size=64, micro_batch_size=8, seed=0)
model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Dropout(0.1), torch.nn.Linear(32, 4))
model, optimizer = run.prepare(model, torch.optim.Adam(model.parameters(), lr=0.01))
for epoch in run.epochs(int(sys.argv[2])):
    for inputs, targets in run.batches(Data()):
        torch.nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
        if len(sys.argv) < 4 or not os.path.exists(sys.argv[3]):
            time.sleep(float(sys.argv[1]))
weights = b"".join(value.numpy().tobytes() for value in model.state_dict().values())
print("weights sha256", hashlib.sha256(weights).hexdigest())
"""


def train_alone(folder: Path, num_epochs: int) -> str:
    """Return the SHA-256 of an undisturbed run on one worker of this machine. ``folder``: an empty one."""
    (folder / "train.py").write_text(PROGRAM)
    environment = {**os.environ, "LEGATO_HOME": str(folder), "LEGATO_DEVICE": "cpu"}
    command = [sys.executable, "-m", "legato.cli", "run", "--no-slurm", str(folder / "train.py"), "0", str(num_epochs)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    (digest,) = set(DIGEST.findall(done.stdout))
    return str(digest)
