"""The weights of a checkpoint in a program of one's own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import legato
from legato.core.errors import CheckpointError, UsageError
from legato.train.checkpoints.checkpoint import Store


class Model(torch.nn.Module):
    """A weight that has two names, a buffer that ``state_dict()`` has and one that it has not."""

    def __init__(self, value: float, size: int = 3) -> None:
        super().__init__()
        self.body = torch.nn.Linear(size, size, bias=False)
        self.head = torch.nn.Linear(size, size, bias=False)
        self.head.weight = self.body.weight
        self.norm = torch.nn.BatchNorm1d(size)
        self.register_buffer("scale", torch.full((size,), value), persistent=False)
        for tensor in (*self.parameters(), self.norm.running_mean):
            torch.nn.init.constant_(tensor, value)


def train(directory: Path, *models: Model) -> Path:
    """Train for a step that changes buffers only, and return the checkpoint."""
    run = legato.elastic(global_batch_size=4, micro_batch_size=4, seed=0, checkpoint_dir=str(directory))
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.0) for model in models]
    run.prepare(*models, *optimizers)
    for _ in run.epochs(1):
        for (inputs,) in run.batches(torch.utils.data.TensorDataset(torch.rand(4, 3))):
            outputs = [model.norm(model.head(model.body(inputs))).sum() for model in models]
            run.backward(torch.stack(outputs).sum())
            for optimizer in optimizers:
                optimizer.step()
    (path,) = Store(directory, 1, print).paths()
    return path


def tensors_of(model: Model) -> dict[str, torch.Tensor]:
    return dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers())


def same(one: Model, other: Model) -> bool:
    other_tensors = tensors_of(other)
    return all(torch.equal(tensor, other_tensors[name]) for name, tensor in tensors_of(one).items())


def test_models_get_all_that_the_job_s_models_had(tmp_path: Path) -> None:
    trained, found = [Model(2.0), Model(3.0)], [Model(0.0), Model(0.0)]
    path = train(tmp_path, *trained)
    assert "norm.running_mean" in tensors_of(trained[0])
    assert not torch.equal(trained[0].norm.running_mean, torch.full((3,), 2.0)), "the step changed it"
    assert legato.load_weights(str(path), *found) == 1
    assert [same(*pair) for pair in zip(trained, found, strict=True)] == [True, True]
    assert found[0].head.weight is found[0].body.weight
    assert all(parameter.requires_grad for parameter in found[0].parameters())


def test_other_models_are_refused_and_stay_as_they_are(tmp_path: Path) -> None:
    path = train(tmp_path, Model(2.0))
    own = Model(1.0)
    with pytest.raises(UsageError, match="There is no model to read the weights into"):
        legato.load_weights(path)
    with pytest.raises(CheckpointError, match="a job of 1 models, and 2 are given"):
        legato.load_weights(path, own, own)
    with pytest.raises(CheckpointError, match=r"body.weight has shape \(3, 3\) there and \(2, 2\) here"):
        legato.load_weights(path, Model(1.0, size=2))
    with pytest.raises(CheckpointError, match=r"exist only on one side"):
        legato.load_weights(path, torch.nn.Linear(3, 3))
    with pytest.raises(CheckpointError, match="Cannot read checkpoint"):
        legato.load_weights(tmp_path / "step-00000009.legato", own)
    assert same(own, Model(1.0))
