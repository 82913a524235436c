"""`Trainer`: the same training as a loop by hand, what callbacks see, and what is refused."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.data import Dataset, TensorDataset

import legato
from legato.core.errors import DataError, ProgramError, UsageError
from legato.train.loop.progress_line import ProgressLine
from legato.train.loop.trainer import Callback, EpochRecord, History, Trainer

SIZES = {"global_batch_size": 16, "micro_batch_size": 4}
NUM_STEPS = 3  # of an epoch over 40 samples: the last one is smaller


def make_data(num_samples: int = 40, seed: int = 0) -> TensorDataset:
    dice = torch.Generator().manual_seed(seed)
    inputs = torch.randn(num_samples, 6, generator=dice)
    return TensorDataset(inputs, (inputs.sum(1) > 0).long())


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2))


def make_optimizer(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=1e-2)


def make_trainer(**changes: Any) -> Trainer:
    given: dict[str, Any] = {
        "model": make_model,
        "train_set": make_data(),
        "loss": cross_entropy,
        "optimizer": make_optimizer,
        "progress": False,
        **SIZES,
        **changes,
    }
    return Trainer(**given)


def accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.argmax(1) == targets


def sha256(model: nn.Module) -> str:
    return hashlib.sha256(b"".join(t.numpy().tobytes() for t in model.state_dict().values())).hexdigest()


class Diary(Callback):
    def __init__(self) -> None:
        self.lines: list[tuple[Any, ...]] = []

    def on_train_begin(self, trainer: Trainer) -> None:
        self.lines.append(("train",))

    def on_epoch_begin(self, trainer: Trainer, epoch: int) -> None:
        self.lines.append(("epoch", epoch))

    def on_step_end(self, trainer: Trainer, step: int, loss: float) -> None:
        self.lines.append(("step", step))

    def on_epoch_end(self, trainer: Trainer, record: EpochRecord) -> None:
        self.lines.append(("end", record.epoch))

    def on_train_end(self, trainer: Trainer, history: History) -> None:
        self.lines.append(("over", len(history)))


class StopAt(Callback):
    def __init__(self, *, step: int | None = None, epoch: int | None = None) -> None:
        self.step = step
        self.epoch = epoch

    def on_step_end(self, trainer: Trainer, step: int, loss: float) -> None:
        if step == self.step:
            trainer.stop(f"step {step}")

    def on_epoch_end(self, trainer: Trainer, record: EpochRecord) -> None:
        if record.epoch == self.epoch:
            trainer.stop(f"epoch {record.epoch}")


class Counter(Callback):
    """Remembers something that decides: after how many steps to stop."""

    def __init__(self) -> None:
        self.seen = 0

    def on_step_end(self, trainer: Trainer, step: int, loss: float) -> None:
        self.seen += 1

    def state_dict(self) -> dict[str, int]:
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.seen = state["seen"]


# ---------------------------------------------------------------- the same training


@pytest.mark.parametrize("scheduler_per", ["epoch", "step"])
@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_it_trains_as_a_loop_by_hand(scheduler_per: str, dtype: torch.dtype | None) -> None:
    def make_scheduler(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
        return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)

    train_set, val_set = make_data(), make_data(24, seed=1)
    run = legato.elastic(**SIZES, seed=3)
    model = make_model()
    optimizer = make_optimizer(model.parameters())
    scheduler = make_scheduler(optimizer)
    run.prepare(model, optimizer, scheduler)
    measured = []
    for _ in run.epochs(3):
        for inputs, targets in run.batches(train_set):
            with torch.autocast("cpu", dtype, enabled=dtype is not None):
                loss = cross_entropy(model(inputs), targets)
            run.backward(loss)
            if run.stepped:
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
            if run.stepped and scheduler_per == "step":
                scheduler.step()
        if scheduler_per == "epoch":
            scheduler.step()
        with torch.autocast("cpu", dtype, enabled=dtype is not None):
            measured.append(run.evaluate(model, val_set, {"loss": cross_entropy, "accuracy": accuracy}))

    trainer = make_trainer(
        seed=3,
        val_set=val_set,
        metrics={"accuracy": accuracy},
        scheduler=make_scheduler,
        scheduler_per=scheduler_per,
        clip_grad_norm=0.5,
        autocast_dtype=dtype,
    )
    history = trainer.fit(3)
    assert sha256(trainer.model) == sha256(model)
    assert [record.metrics for record in history] == measured
    assert trainer.optimizer.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]


def test_it_trains_as_a_plain_loop() -> None:
    dice = torch.Generator().manual_seed(5)
    inputs = torch.randn(12, 3, generator=dice, dtype=torch.float64)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    plain = nn.Linear(3, 1, dtype=torch.float64)
    model = nn.Linear(3, 1, dtype=torch.float64)
    model.load_state_dict(plain.state_dict())

    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(10):  # the order does not matter: a step takes all samples
        loss = mse_loss(plain(data.tensors[0]), data.tensors[1])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())

    trainer = Trainer(
        model,
        data,
        mse_loss,
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        global_batch_size=12,
        micro_batch_size=4,
        progress=False,
    )
    history = trainer.fit(10)
    assert trainer.model is model
    torch.testing.assert_close(model.weight, plain.weight, rtol=1e-12, atol=1e-12)
    assert [record.loss for record in history] == pytest.approx(losses, rel=1e-12)


def test_gradients_can_be_scaled() -> None:
    trainer = make_trainer(scaler=torch.amp.GradScaler("cpu", init_scale=2.0**8), clip_grad_norm=1.0)
    plain = make_trainer(clip_grad_norm=1.0)
    trainer.fit(1)
    plain.fit(1)
    for scaled, unscaled in zip(trainer.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(scaled, unscaled)


def test_a_plateau_scheduler_looks_at_the_validation() -> None:
    seen: list[float] = []

    class Plateau(torch.optim.lr_scheduler.ReduceLROnPlateau):
        def step(self, metrics: Any, epoch: Any = None) -> None:
            seen.append(metrics)
            super().step(metrics)

    trainer = make_trainer(val_set=make_data(20, seed=1), scheduler=Plateau)
    history = trainer.fit(3)
    assert seen == [record.metrics["loss"] for record in history]


# ---------------------------------------------------------------- callbacks and history


def test_callbacks_see_each_moment_once() -> None:
    diary = Diary()
    make_trainer(callbacks=[diary]).fit(2)
    assert diary.lines == [
        ("train",),
        ("epoch", 0),
        *[("step", step) for step in range(1, NUM_STEPS + 1)],
        ("end", 0),
        ("epoch", 1),
        *[("step", step) for step in range(NUM_STEPS + 1, 2 * NUM_STEPS + 1)],
        ("end", 1),
        ("over", 2),
    ]


def test_the_loss_of_an_epoch_is_the_mean_over_its_samples() -> None:
    losses: list[float] = []

    class Note(Callback):
        def on_step_end(self, trainer: Trainer, step: int, loss: float) -> None:
            losses.append(loss)

    history = make_trainer(callbacks=[Note()]).fit(1)
    assert history[0].loss == pytest.approx((16 * losses[0] + 16 * losses[1] + 8 * losses[2]) / 40)
    assert history[0].step == NUM_STEPS
    assert history[0].metrics == {}


def test_a_callback_ends_the_training_after_an_epoch() -> None:
    trainer = make_trainer(callbacks=[StopAt(epoch=1)])
    history = trainer.fit(10)
    assert history.stopped == "epoch 1"
    assert [record.epoch for record in history] == [0, 1]
    untroubled = make_trainer()
    untroubled.fit(2)
    assert sha256(trainer.model) == sha256(untroubled.model)


def test_a_callback_ends_the_training_after_a_step() -> None:
    diary = Diary()
    trainer = make_trainer(callbacks=[StopAt(step=NUM_STEPS + 1), diary], val_set=make_data(20, seed=1))
    history = trainer.fit(10)
    assert trainer.run.step == NUM_STEPS + 1
    assert len(history) == 2
    assert history[1].metrics.keys() == {"loss"}
    assert diary.lines[-3:] == [("step", NUM_STEPS + 1), ("end", 1), ("over", 2)]


def test_evaluate_takes_any_data_set() -> None:
    trainer = make_trainer(val_set=make_data(20, seed=1), metrics={"accuracy": accuracy})
    history = trainer.fit(1)
    assert trainer.evaluate() == history[-1].metrics
    assert trainer.evaluate(make_data(20, seed=2)) != history[-1].metrics


# ---------------------------------------------------------------- checkpoints


def test_a_resumed_training_is_the_same_training(tmp_path: Path) -> None:
    whole = make_trainer(callbacks=[Counter()])
    want = whole.fit(3)
    make_trainer(callbacks=[Counter()], checkpoint_dir=tmp_path).fit(1)
    counter = Counter()
    resumed = make_trainer(callbacks=[counter], checkpoint_dir=tmp_path, resume=True)
    assert resumed.fit(3) == want
    assert sha256(resumed.model) == sha256(whole.model)
    assert counter.seen == 3 * NUM_STEPS


def test_the_history_comes_with_the_state_of_the_job(tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []

    class Look(Callback):
        def on_train_begin(self, trainer: Trainer) -> None:
            seen.append(("train", len(trainer.history)))

        def on_epoch_begin(self, trainer: Trainer, epoch: int) -> None:
            seen.append((f"epoch {epoch}", len(trainer.history)))

        def on_step_end(self, trainer: Trainer, step: int, loss: float) -> None:
            seen.append((f"step {step}", len(trainer.history)))

    make_trainer(checkpoint_dir=tmp_path).fit(2)
    history = make_trainer(callbacks=[Look()], checkpoint_dir=tmp_path, resume=True).fit(3)
    assert seen[:3] == [("train", 0), ("epoch 2", 0), (f"step {2 * NUM_STEPS + 1}", 2)]
    assert [record.epoch for record in history] == [0, 1, 2]


def test_a_training_that_was_ended_early_has_a_last_checkpoint(tmp_path: Path) -> None:
    ended = make_trainer(callbacks=[StopAt(step=2)], checkpoint_dir=tmp_path)
    want = ended.fit(4)
    resumed = make_trainer(callbacks=[StopAt()], checkpoint_dir=tmp_path, resume=True)
    assert resumed.fit(4) == want
    assert sha256(resumed.model) == sha256(ended.model)


def test_a_history_survives_its_journey() -> None:
    history = History()
    history.add_step(2.0, 3)
    history.end_epoch(0, 1, {"accuracy": 0.5})
    history.add_step(1.0, 4)
    history.stopped = "enough"
    arrived = History()
    arrived.load_state_dict(history.state_dict())
    assert arrived == history


# ---------------------------------------------------------------- progress


def test_progress_is_drawn_on_a_terminal_only() -> None:
    now = iter([0.0, 0.01, 1.0])
    for force_terminal in (True, False):
        out = io.StringIO()
        line = ProgressLine(2, 20, Console(file=out, force_terminal=force_terminal, width=100), lambda: next(now))
        if force_terminal:
            line.show(3, 0, 0.5)
            line.show(4, 0, 0.25)  # too soon
            line.show(12, 1, 0.125)
        else:
            line._next = -1.0
            line._clock = lambda: 0.0
            line.show(3, 0, 0.5)
        line.close()
        shown = out.getvalue()
        assert ("0.125" in shown, "0.25" in shown) == (force_terminal, False)
        assert bool(shown) == force_terminal


# ---------------------------------------------------------------- refusals


class Endless(Dataset[Any]):
    def __getitem__(self, index: int) -> Any:
        return torch.zeros(6), torch.tensor(0)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"model": 7}, "model=7"),
        ({"model": lambda: "x"}, "model='x'"),
        ({"loss": "mse"}, "loss='mse'"),
        ({"optimizer": "adam"}, "optimizer='adam'"),
        ({"optimizer": lambda parameters: None}, "optimizer=None"),
        ({"optimizer": torch.optim.SGD(nn.Linear(1, 1).parameters())}, "one of the model's parameters"),
        ({"scheduler": 3}, "scheduler=3"),
        ({"scheduler_per": "batch"}, "scheduler_per='batch'"),
        ({"clip_grad_norm": 0.0}, "clip_grad_norm=0.0"),
        ({"autocast_dtype": "bf16"}, "autocast_dtype='bf16'"),
        ({"metrics": {"accuracy": 1}}, "metrics"),
        ({"metrics": {"loss": accuracy}}, "'loss' is taken"),
        ({"callbacks": [print]}, "callbacks"),
    ],
)
def test_what_is_of_the_wrong_kind_is_refused(changes: dict[str, Any], found: str) -> None:
    with pytest.raises(UsageError, match="Cannot train with") as refusal:
        make_trainer(**changes)
    assert found in str(refusal.value)


@pytest.mark.parametrize("num_epochs", [0, -1, True, 1.5, "3"])
def test_a_number_of_epochs_is_a_whole_number_above_zero(num_epochs: Any) -> None:
    with pytest.raises(UsageError, match="num_epochs="):
        make_trainer().fit(num_epochs)


def test_a_trainer_trains_once() -> None:
    trainer = make_trainer()
    trainer.fit(1)
    with pytest.raises(UsageError, match="called twice"):
        trainer.fit(2)


def test_without_a_validation_set_there_is_nothing_to_evaluate() -> None:
    with pytest.raises(UsageError, match="Cannot evaluate"):
        make_trainer().evaluate()


def test_a_loss_per_sample_is_refused() -> None:
    def per_sample(outputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(outputs, targets, reduction="none")

    with pytest.raises(ProgramError, match=r"shape \(4,\)"):
        make_trainer(loss=per_sample).fit(1)


def test_batches_that_are_no_pairs_are_refused() -> None:
    with pytest.raises(ProgramError, match="pairs"):
        make_trainer(train_set=TensorDataset(torch.zeros(20, 6))).fit(1)


@pytest.mark.parametrize("progress", [True, False])
def test_a_data_set_without_length_is_refused(progress: bool) -> None:
    with pytest.raises(DataError, match="no length"):
        make_trainer(train_set=Endless(), progress=progress).fit(1)
