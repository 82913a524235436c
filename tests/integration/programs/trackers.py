"""TensorBoard and MLflow: a text before the first step, a scalar of each step, several calls after an epoch, and files
that are no event files; V = 4.
"""

from __future__ import annotations

import argparse

import torch
from common import pace, tell
from torch import nn
from torch.utils.data import TensorDataset

import legato
from legato.integrations.mlflow import start_run
from legato.integrations.tensorboard import SummaryWriter


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("log_dir")
    parser.add_argument("tracking_uri")
    args = parser.parse_args()
    run = legato.elastic(global_batch_size=8, micro_batch_size=2, seed=5)
    rows = torch.rand(44, 6)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    run.prepare(model, optimizer)
    writer = SummaryWriter(run, args.log_dir)
    mlflow = start_run(run, experiment_name="trackers", tracking_uri=args.tracking_uri)
    writer.add_text("config", "a small model")
    mlflow.log_params({"lr": 1e-2, "layers": 2})
    for epoch in run.epochs(8):
        for (batch,) in run.batches(TensorDataset(rows)):
            pace(run)
            run.backward(nn.functional.mse_loss(model(batch)[:, 0], batch.sum(1)))
            optimizer.step()
            optimizer.zero_grad()
            if run.stepped:
                writer.add_scalar("loss", run.loss, run.step)
                mlflow.log_metric("loss", run.loss or 0.0)
        writer.add_histogram("first weights", model[0].weight, epoch)
        writer.add_scalars("both", {"here": epoch, "there": 2 * epoch}, epoch)
        mlflow.log_metrics({"epoch_loss": run.epoch_loss or 0.0, "epoch": epoch}, step=epoch)
    writer.close()
    mlflow.log_text("done", "end.txt")
    mlflow.end_run()
    tell(run, model, optimizer)


if __name__ == "__main__":
    main()
