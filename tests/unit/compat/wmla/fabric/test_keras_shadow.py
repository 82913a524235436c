"""A shadow passes gradients on unchanged, and copies only other weights that have changed."""

from __future__ import annotations

import pytest
import torch

import legato
from legato.compat.wmla.fabric.keras_shadow import Shadow, Weight
from legato.core.errors import ProgramError


def make_shadow() -> Shadow:
    trainable = [Weight("dense/kernel:0", torch.ones(2, 3)), Weight("bias", torch.zeros(3, dtype=torch.float64))]
    others = [Weight("moving.mean", torch.zeros(3)), Weight("count", torch.zeros((), dtype=torch.int64))]
    return Shadow(trainable, others, lambda inputs: inputs)


def test_weights_have_names_and_kinds() -> None:
    shadow = make_shadow()
    assert [name for name, _ in shadow.named_parameters()] == ["0_kernel", "1_bias"]
    assert [name for name, _ in shadow.named_buffers()] == ["2_moving_mean", "3_count"]


def test_a_weight_without_gradients_is_refused() -> None:
    with pytest.raises(ProgramError, match="The trainable weight count has the type int64"):
        Shadow([Weight("count", torch.zeros(1, dtype=torch.int64))], [], lambda inputs: inputs)


def test_gradients_arrive_to_the_bit() -> None:
    shadow = make_shadow()
    odd = torch.tensor([[-0.0, 1e-45, float("inf")], [float("nan"), 3.0, -1e38]])
    loss = shadow.make_loss(2.5, [odd, None])
    loss.backward()
    first, second = shadow.trainable
    assert loss.item() == 2.5 and second.grad is None
    assert first.grad is not None
    assert torch.equal(first.grad.view(torch.uint8), odd.view(torch.uint8))


def test_a_step_of_an_elastic_run_has_the_mean_gradient() -> None:
    run = legato.elastic(global_batch_size=4, micro_batch_size=2)
    shadow = make_shadow()
    run.prepare(shadow)
    for _ in run.epochs(1):
        for (numbers,) in run.batches(torch.utils.data.TensorDataset(torch.arange(6.0)), shuffle=False):
            mean = numbers.mean()
            shadow.copy_changed([torch.full((3,), float(mean)), torch.zeros((), dtype=torch.int64)])
            run.backward(shadow.make_loss(float(mean), [torch.full((2, 3), float(mean)), None]))
            if run.stepped:
                gradient = shadow.trainable[0].grad
                # The last step has one micro-batch.
                want = 1.5 if run.step == 1 else 4.5
                assert gradient is not None and gradient.unique().tolist() == [want]
                assert shadow.trainable[1].grad is None
                assert shadow.others[0].unique().tolist() == [want] and run.loss == want


def test_unchanged_weights_are_not_copied() -> None:
    shadow = make_shadow()
    mean, count = shadow.others
    versions = [mean._version, count._version]
    shadow.copy_changed([torch.zeros(3), torch.ones((), dtype=torch.int64)])
    assert [mean._version, count._version] == [versions[0], versions[1] + 1]
    shadow.copy_changed([torch.tensor([0.0, -0.0, 0.0]), torch.ones((), dtype=torch.int64)])
    assert mean._version == versions[0] + 1 and str(mean[1].item()) == "-0.0"
