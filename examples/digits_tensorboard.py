"""A small network learns to read handwritten digits, and writes what TensorBoard shows; nothing is downloaded.

Alone:  python examples/digits_tensorboard.py
With workers:  legato run --workers 1..4 examples/digits_tensorboard.py
Then:  tensorboard --logdir runs
It needs pip install 'legato[tensorboard]'; with --mlflow also legato[mlflow], and it writes to mlflow.db.
"""

import argparse
import hashlib

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

import legato
from legato.integrations.tensorboard import SummaryWriter

parser = argparse.ArgumentParser(description="Learn to read handwritten digits.")
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--out", default="runs/digits")
parser.add_argument("--mlflow", action="store_true")
arguments = parser.parse_args()

images, digits = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
images = images.float().reshape(-1, 1, 8, 8) / 16
train_set = TensorDataset(images[:1500], digits[:1500])
test_set = TensorDataset(images[1500:], digits[1500:])

run = legato.elastic(global_batch_size=64, micro_batch_size=16, seed=0)
model = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(16 * 6 * 6, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
model, optimizer = run.prepare(model, optimizer)
writer = SummaryWriter(run, arguments.out)
mlflow = None
if arguments.mlflow:
    from legato.integrations.mlflow import start_run

    mlflow = start_run(run, experiment_name="digits", tracking_uri="sqlite:///mlflow.db")
    mlflow.log_params({"lr": 3e-3, "epochs": arguments.epochs})

for _ in run.epochs(arguments.epochs):
    for inputs, targets in run.batches(train_set):
        run.backward(cross_entropy(model(inputs), targets))
        optimizer.step()
        optimizer.zero_grad()
        if run.stepped and run.step % 5 == 0:
            writer.add_scalar("loss", run.loss, run.step)
            if mlflow:
                mlflow.log_metric("loss", run.loss)
    accuracy = run.evaluate(model, test_set, lambda outputs, targets: outputs.argmax(1) == targets)
    writer.add_scalar("accuracy", accuracy, run.step)
    writer.add_histogram("weights of the last layer", model[4].weight, run.step)
    if mlflow:
        mlflow.log_metric("accuracy", accuracy)
writer.close()

digest = hashlib.sha256(b"".join(tensor.cpu().numpy().tobytes() for tensor in model.state_dict().values()))
print(f"weights sha256 {digest.hexdigest()}")
