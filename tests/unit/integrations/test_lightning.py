"""Lightning on the elastic loop: it trains as Lightning does, and refuses by name what it cannot do."""

from __future__ import annotations

import datetime
import os
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.torchvision_operators import make_torchvision_importable
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, WeightedRandomSampler

from legato.core.errors import DataError, ProgramError, UsageError
from legato.train.loop.elastic import Run

# Lightning warns of its own past. pytest-xdist would import Lightning to show its kinds of warnings, and with it a
# torchvision that may not fit the torch that is installed.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def pl() -> SimpleNamespace:
    """Lightning, and Legato's strategies."""
    make_torchvision_importable()
    import lightning
    import torchmetrics
    from lightning.pytorch import callbacks, loggers

    from legato.integrations import lightning as ours

    class Lines(loggers.CSVLogger):  # type: ignore[misc,name-defined]
        """Keeps what it is given."""

        def __init__(self, name: str) -> None:
            super().__init__(".", name)
            self.lines: list[dict[str, float]] = []

        def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
            self.lines.append({**metrics, "step": float(step or 0)})

    class Line(lightning.LightningModule):  # type: ignore[misc,name-defined]
        """Three numbers to one; logs what is common."""

        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(2)
            self.linear = torch.nn.Linear(3, 1)
            self.seen = torchmetrics.MeanMetric()
            self.notes: list[float] = []
            self.steps: list[tuple[int, int]] = []

        def loss_of(self, batch: Any) -> torch.Tensor:
            return torch.nn.functional.mse_loss(self.linear(batch[0]), batch[1])

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = self.loss_of(batch)
            self.log("loss", loss, on_step=True, on_epoch=True)
            return loss

        def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
            if self.trainer.global_step > len(self.steps):
                self.steps.append((self.trainer.global_step, batch_idx))

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.seen.update(self.loss_of(batch))
            self.log("seen", self.seen)
            self.log("val_loss", self.loss_of(batch))

        test_step = validation_step

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.Adam(self.parameters(), lr=0.1)
            plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=1.0)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.5)
            return [optimizer], [
                {"scheduler": scheduler, "interval": "step"},
                {"scheduler": plateau, "monitor": "val_loss", "strict": False},
            ]

    return SimpleNamespace(
        Trainer=lightning.Trainer,
        Fabric=lightning.Fabric,
        LegatoStrategy=ours.LegatoStrategy,
        LegatoFabricStrategy=ours.LegatoFabricStrategy,
        callbacks=callbacks,
        Lines=Lines,
        Line=Line,
    )


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    before = dict(os.environ)
    yield
    # Lightning keeps its seed in a variable, and `accelerator="cpu"` sets the device of the process.
    os.environ.clear()
    os.environ.update(before)


def points(num_samples: int = 24, start: int = 5) -> Any:
    x = torch.randn(num_samples, 3, generator=torch.Generator().manual_seed(start))
    return TensorDataset(x, x.sum(1, keepdim=True))


def loader(num_samples: int = 24, **changes: Any) -> Any:
    return DataLoader(points(num_samples), **{"batch_size": 2, **changes})


def trainer(pl: Any, strategy: Any = None, **changes: Any) -> Any:
    given = {
        "accelerator": "cpu",
        "accumulate_grad_batches": 3,
        "max_epochs": 3,
        "log_every_n_steps": 1,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": any(isinstance(c, pl.callbacks.ModelCheckpoint) for c in changes.get("callbacks", ())),
        "logger": False,
        **changes,
    }
    return pl.Trainer(strategy=strategy or pl.LegatoStrategy(), **given)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_it_trains_as_lightning_does(pl: Any, precision: str) -> None:
    found = []
    for strategy in (pl.LegatoStrategy(), "auto"):
        lines = pl.Lines(f"lines-{len(found)}")
        module = pl.Line()
        one = trainer(pl, strategy, logger=lines, gradient_clip_val=0.7, val_check_interval=6, precision=precision)
        one.fit(module, loader(), DataLoader(points(9, 4), batch_size=4))
        tested = one.test(module, DataLoader(points(9, 4), batch_size=4), verbose=False)
        rates = [group["lr"] for group in one.optimizers[0].param_groups]
        found.append((one, module, lines.lines, tested, rates))
    (ours, mine, lines, tested, rates), (theirs, other, their_lines, their_tested, their_rates) = found
    # Lightning divides each loss by the number of micro-batches, in bfloat16.
    near = 1e-4 if precision == "32-true" else 2e-2
    for name, value in other.state_dict().items():
        assert mine.state_dict()[name].numpy() == pytest.approx(value.numpy(), rel=near), name
    assert mine.steps == other.steps == [(step, 3 * ((step - 1) % 4 + 1) - 1) for step in range(1, 13)]
    assert (ours.global_step, ours.current_epoch, rates) == (12, 3, their_rates)
    assert tested[0] == pytest.approx(their_tested[0], rel=near)
    assert ours.callback_metrics.keys() == theirs.callback_metrics.keys()
    assert len(lines) == len(their_lines) > 0
    for line, want in zip(lines, their_lines, strict=True):
        assert line == pytest.approx(want, rel=near), (line, want)


def test_on_before_zero_grad_acts_once_per_step(pl: Any) -> None:
    class Averaged(pl.Line):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(1, 3))

        def on_before_zero_grad(self, optimizer: Any) -> None:
            self.mean.lerp_(self.linear.weight.detach(), 0.5)

    found = []
    for strategy in (pl.LegatoStrategy(), "auto"):
        module = Averaged()
        trainer(pl, strategy, max_epochs=2).fit(module, loader())
        found.append(module.mean.numpy())
    assert found[0] == pytest.approx(found[1], rel=1e-5)


def test_smaller_micro_batches_count_by_their_samples(pl: Any) -> None:
    module, data = pl.Line(), points(7)
    one = trainer(pl, accumulate_grad_batches=4, max_epochs=1)
    one.fit(module, DataLoader(data, batch_size=2))
    whole = pl.Line()
    loss = whole.loss_of(data[:])
    assert one.strategy.run.loss == pytest.approx(float(loss), rel=1e-5)
    assert float(one.callback_metrics["loss_epoch"]) == pytest.approx(float(loss), rel=1e-5)
    optimizer = torch.optim.Adam(whole.parameters(), lr=0.1)
    loss.backward()
    optimizer.step()
    for name, value in whole.state_dict().items():
        assert module.state_dict()[name].numpy() == pytest.approx(value.numpy(), rel=1e-4), name


def test_an_early_stop_ends_the_training(pl: Any) -> None:
    stopping = pl.callbacks.EarlyStopping("val_loss", patience=0, min_delta=100.0)
    saving = pl.callbacks.ModelCheckpoint("out", monitor="val_loss")
    one = trainer(pl, max_epochs=50, callbacks=[stopping, saving])
    module = pl.Line()
    one.fit(module, loader(), loader(8))
    assert one.global_step == 8 and one.should_stop
    assert pl.Line.load_from_checkpoint(saving.best_model_path).linear.weight.shape == (1, 3)
    assert one.validate(module, loader(8), ckpt_path="best", verbose=False)[0]["val_loss"] == pytest.approx(
        float(saving.best_model_score)
    )


def test_max_steps_and_limits_count_as_in_lightning(pl: Any) -> None:
    one = trainer(pl, max_epochs=-1, max_steps=5, limit_train_batches=6)
    one.fit(pl.Line(), loader())
    assert one.global_step == one.strategy.run.step == 5


def test_the_seed_of_the_job_replaces_that_of_the_program(pl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEGATO_SEED", "77")
    pl.LegatoStrategy(seed=3)
    assert torch.initial_seed() == 77 and os.environ["PL_GLOBAL_SEED"] == "77"


@pytest.mark.parametrize("num_later_steps", [0, 1])
def test_a_file_is_written_although_the_worker_that_writes_dies(
    pl: Any, monkeypatch: pytest.MonkeyPatch, num_later_steps: int
) -> None:
    saving = pl.callbacks.ModelCheckpoint("out", every_n_train_steps=1, save_top_k=-1)
    one = trainer(pl, callbacks=[saving], max_steps=4)
    # Rank 1 becomes rank 0 before the next step, or one step later, when the file of step 2 is known to be written.
    monkeypatch.setattr(Run, "rank", property(lambda run: int(run.step < 3 + num_later_steps)))
    one.fit(pl.Line(), loader())
    weights = {path.name: torch.load(path, weights_only=False)["state_dict"] for path in Path("out").iterdir()}
    steps = {int(name.rpartition("=")[2].removesuffix(".ckpt")) for name in weights}
    assert steps == set(range(2 + num_later_steps, 5))
    assert len({float(state["linear.bias"]) for state in weights.values()}) == len(steps)


def test_the_paths_of_files_follow_the_working_directory(
    pl: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from legato.integrations.lightning_loops import Progress

    states, saving = [], []
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        saving.append(pl.callbacks.ModelCheckpoint("out", monitor="loss", save_top_k=2))
        one = trainer(pl, callbacks=[saving[-1]])
        one.fit(pl.Line(), loader())
        states.append(Progress(one).state_dict()["callbacks"])
    assert str(states[0]) == str(states[1]) and "./out" in str(states)
    Progress(one).load_state_dict({**Progress(one).state_dict(), "callbacks": states[0]})
    assert Path(saving[1].best_model_path).is_relative_to(tmp_path / "there")
    assert all(Path(path).exists() for path in saving[1].best_k_models) and len(saving[1].best_k_models) == 2


def test_files_of_a_folder_that_is_named_by_the_time_stay_in_that_of_the_job(pl: Any) -> None:
    from legato.integrations.lightning_loops import Progress

    saving, many = [], []
    for name in ("10:15", "10:20"):
        saving.append(pl.callbacks.ModelCheckpoint(name, monitor="loss", save_top_k=2))
        many.append(trainer(pl, callbacks=[saving[-1]]))
        many[-1].fit(pl.Line(), loader())
    Progress(many[1]).load_state_dict(Progress(many[0]).state_dict())
    assert saving[1].dirpath == saving[0].dirpath and saving[1].best_k_models == saving[0].best_k_models


# ------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"devices": 2}, "devices of the Trainer. .* legato run --workers"),
        ({"num_nodes": 2}, "num_nodes of the Trainer. .* --hosts"),
        ({"sync_batchnorm": True}, "sync_batchnorm of the Trainer"),
        ({"overfit_batches": 2}, r"overfit_batches of the Trainer. .*Subset"),
        ({"reload_dataloaders_every_n_epochs": 1}, "reload_dataloaders_every_n_epochs"),
        ({"check_val_every_n_epoch": None}, "check_val_every_n_epoch"),
        ({"val_check_interval": "00:00:01:00"}, "val_check_interval of the Trainer. The clocks"),
        ({"max_epochs": -1}, "max_epochs of the Trainer. .* max_steps"),
        ({"max_time": "00:00:01:00"}, "the callback Timer. The clocks"),
        ({"fast_dev_run": True}, "fast_dev_run of the Trainer. Set max_steps=1"),
        ({"limit_train_batches": 4}, "limit_train_batches=4: .* a multiple of accumulate_grad_batches=3"),
        ({"val_check_interval": 4}, "val_check_interval=4: .* a multiple of accumulate_grad_batches=3"),
    ],
)
def test_arguments_that_are_refused(pl: Any, changes: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=f"Cannot train elastically with (this )?{text}"):
        trainer(pl, **changes).fit(pl.Line(), loader(), loader())


@pytest.mark.parametrize(
    "make",
    [
        lambda c: c.StochasticWeightAveraging(swa_lrs=0.1),
        lambda c: c.WeightAveraging(),
        lambda c: c.GradientAccumulationScheduler({0: 2}),
        lambda c: c.LearningRateFinder(),
        lambda c: c.BatchSizeFinder(),
        lambda c: c.BackboneFinetuning(),
        lambda c: c.ModelCheckpoint("out", train_time_interval=datetime.timedelta(minutes=1)),
    ],
)
def test_callbacks_that_are_refused(pl: Any, make: Callable[[Any], Any]) -> None:
    callback = make(pl.callbacks)
    with pytest.raises(UsageError, match="Cannot train elastically with "):
        trainer(pl, callbacks=[callback]).fit(pl.Line(), loader())


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(())


class Tenfold(DataLoader[Any]):
    def __iter__(self) -> Any:
        return ([10 * part for part in batch] for batch in super().__iter__())


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: [loader(), loader()], "train_dataloader of type list"),
        (lambda: DataLoader(Stream(), batch_size=2), "a data set of type Stream"),
        (lambda: loader(batch_size=None), "batch_size of the DataLoader"),
        (lambda: loader(sampler=WeightedRandomSampler([1.0] * 24, 24)), "with sampler of the DataLoader"),
        (lambda: loader(drop_last=True), "drop_last of the DataLoader. .* a smaller step"),
        (lambda: loader(shuffle=True, generator=torch.Generator()), "generator of the DataLoader. .* seed"),
        (lambda: Tenfold(points(), batch_size=2), "a Tenfold, whose own __iter__ .* collate_fn"),
        (lambda: loader(worker_init_fn=print), "worker_init_fn of the DataLoader"),
    ],
)
def test_loaders_that_are_refused(pl: Any, make: Callable[[], Any], text: str) -> None:
    with pytest.raises(DataError, match=text):
        trainer(pl).fit(pl.Line(), make())


def count(module: Any, batch: Any) -> Any:
    module.num_seen = getattr(module, "num_seen", 0) + len(batch[0])
    return module.loss_of(batch)


def add(module: Any, batch: Any) -> Any:
    module._total = getattr(module, "_total", torch.zeros(())) + module.loss_of(batch).detach()
    return module.loss_of(batch)


def gather(module: Any, batch: Any) -> Any:
    module.notes.append(1.0)
    return module.loss_of(batch)


def update(module: Any, batch: Any) -> Any:
    module.seen(module.loss_of(batch))
    return module.loss_of(batch)


def count_in(name: str) -> Callable[[Any, Any], Any]:
    def step(module: Any, batch: Any) -> Any:
        if name == "window":
            module.window.append(1.0)
        elif name == "array":
            module.array += 1
        elif name == "meter":
            module.meter.count += 1
        elif name == "told":
            module.told["count"] += 1
        elif name == "hparams":
            module.hparams.rate *= 0.5
        elif name == "part":
            module.linear.count = getattr(module.linear, "count", 0) + 1
        elif name == "teacher":
            with torch.no_grad():
                module.teacher.weight.mul_(0.9)
        return module.loss_of(batch)

    return step


class Meter:
    """Counts."""

    count = 0

    def __init__(self) -> None:
        self.count = 0


def log_metric(module: Any, batch: Any) -> Any:
    module.log("seen", module.seen)
    return module.loss_of(batch)


def log_sometimes(module: Any, batch: Any) -> Any:
    if module.trainer.strategy.run.micro_batch:
        module.log("later", 1.0)
    return module.loss_of(batch)


def log_vector(module: Any, batch: Any) -> Any:
    module._current_fx_name = "training_step"
    module.trainer._results.log("training_step", "two", torch.zeros(2))
    return module.loss_of(batch)


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (count, r"changes self\.num_seen"),
        (add, r"changes self\._total"),
        (gather, r"changes self\.notes"),
        (count_in("window"), r"changes self\.window\..*register_buffer"),
        (count_in("array"), r"changes self\.array"),
        (count_in("meter"), r"changes self\.meter\.count"),
        (count_in("told"), r"changes self\.told"),
        (count_in("hparams"), r"changes self\._hparams"),
        (count_in("part"), r"changes self\.linear\.count"),
        (count_in("teacher"), r"changes self\.teacher\.weight"),
        (update, r"updates the metric self\.seen\. .* torchmetrics\.functional"),
        (log_metric, r"logged 'seen' as a MeanMetric"),
        (log_sometimes, "other names for some micro-batches|noted"),
        (log_vector, "got 2 numbers"),
        (lambda module, batch: None, "training_step returned None"),
        (lambda module, batch: module.all_gather(module.loss_of(batch)).mean(), "all_gather was called in training_s"),
    ],
)
def test_steps_that_are_refused(pl: Any, step: Any, text: str) -> None:
    class Own(pl.Line):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.window: deque[float] = deque(maxlen=5)
            self.array, self.meter, self.told = np.zeros(1), Meter(), {"count": 0}
            self.teacher = torch.nn.Linear(3, 1).requires_grad_(False)
            self.save_hyperparameters({"rate": 1.0})

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return step(self, batch)

    with pytest.raises(ProgramError, match=text):
        trainer(pl).fit(Own(), loader())


@pytest.mark.parametrize("hook", ["on_before_backward", "on_after_backward"])
def test_nothing_is_logged_before_the_gradient_is_complete(pl: Any, hook: str) -> None:
    module = pl.Line()
    setattr(module, hook, lambda *_: module.log("norm", 1.0))
    with pytest.raises(ProgramError, match=rf"{hook} called self\.log\('norm'.* on_before_optimizer_step"):
        trainer(pl).fit(module, loader())


def test_a_batch_that_a_callback_changes_and_what_it_logs_count(pl: Any) -> None:
    class Change(pl.callbacks.Callback):  # type: ignore[misc,name-defined]
        def on_train_batch_start(self, one: Any, module: Any, batch: Any, batch_idx: int) -> None:
            batch[0].mul_(1.5)
            module.log("place", float(batch_idx), on_step=False, on_epoch=True)

    found = []
    for strategy in (None, "auto"):
        module, one = pl.Line(), trainer(pl, strategy, max_epochs=1, callbacks=[Change()])
        one.fit(module, DataLoader(points(), batch_size=2))
        assert float(one.callback_metrics["place"]) == 5.5
        found.append(module.linear.weight.detach().numpy())
    assert found[0] == pytest.approx(found[1], rel=1e-4)


def test_what_a_module_and_a_callback_count_reaches_workers_that_join(pl: Any) -> None:
    from legato.integrations.lightning_attributes import Attributes

    class Average(pl.callbacks.Callback):  # type: ignore[misc,name-defined]
        def on_train_start(self, one: Any, module: Any) -> None:
            self.average = module.linear.weight.detach().clone()

    def make() -> tuple[Any, Any, Any]:
        module, callback = pl.Line(), Average()
        module.weight, module.meter, module.window = 1.0, Meter(), deque([1.0], maxlen=2)
        module.save_hyperparameters({"rate": 1.0})
        return module, callback, Attributes(module, [callback])

    (module, callback, ours), (other, copied, theirs) = make(), make()
    other.place = str(id(other))
    before = ours.state_dict()["sum"]
    module.weight, module.meter.count, module.hparams.rate = 0.5, 3, 0.1
    module.window.append(2.0)
    module.seen.update(torch.tensor(4.0))
    callback.average = torch.ones(1, 3)
    theirs.load_state_dict(ours.state_dict())
    assert (other.weight, other.meter.count, other.hparams.rate, list(other.window)) == (0.5, 3, 0.1, [1.0, 2.0])
    assert float(other.seen.compute()) == 4.0 and copied.average.tolist() == [[1.0] * 3]
    assert other.place == str(id(other))
    # What on_train_batch_start changes must be equal on all workers, by a tensor that the agreement check compares.
    sketch = ours.take()
    module.weight = 0.25
    ours.started(sketch)
    sums = [before, ours.state_dict()["sum"]]
    module.weight = 0.125
    assert len({int(each) for each in (*sums, ours.state_dict()["sum"])}) == 3


def test_a_model_that_a_callback_averages_reaches_workers_that_join(pl: Any) -> None:
    from legato.integrations.lightning_attributes import Attributes

    class Average(pl.callbacks.Callback):  # type: ignore[misc,name-defined]
        def __init__(self, module: Any) -> None:
            self.model, self.late, self.whole = AveragedModel(module.norm), None, module

    def make() -> tuple[Any, Any, Any]:
        module = pl.Line()
        module.norm = torch.nn.BatchNorm1d(3)
        callback = Average(module)
        return module, callback, Attributes(module, [callback])

    (module, callback, ours), (_, copied, theirs) = make(), make()
    assert not ours.state_dict()["values"]
    for weight in (2.0, 4.0):
        module.norm.weight.data.fill_(weight)
        callback.model.update_parameters(module.norm)
    theirs.load_state_dict(ours.state_dict())
    parameter = copied.model.module.weight
    assert isinstance(parameter, torch.nn.Parameter) and parameter.tolist() == [3.0] * 3
    assert int(copied.model.n_averaged) == 2 and float(copied.whole.norm.weight[0]) == 1.0
    callback.late = torch.nn.Linear(1, 1)
    with pytest.raises(ProgramError, match=r"no place for the attribute callback 0 Average\.late\..*bias"):
        theirs.load_state_dict(ours.state_dict())


def test_optimizers_that_are_refused(pl: Any) -> None:
    for make, text in (
        (torch.optim.LBFGS, "the optimizer LBFGS"),
        (lambda p: [torch.optim.SGD([each], 0.1) for each in p], "several optimizers"),
    ):
        module = pl.Line()
        module.configure_optimizers = lambda make=make, module=module: make(list(module.parameters()))
        with pytest.raises(UsageError, match=f"Cannot train elastically with {text}"):
            trainer(pl).fit(module, loader())


def test_what_else_fit_refuses(pl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = pl.Line()
    one = trainer(pl, max_epochs=1)
    one.fit(module, loader())
    with pytest.raises(UsageError, match="fit was called twice"):
        one.fit(module, loader())
    one.save_checkpoint("kept.ckpt")
    with pytest.raises(UsageError, match=r"fit\(ckpt_path=\.\.\.\): .* legato run --resume"):
        trainer(pl).fit(module, loader(), ckpt_path="kept.ckpt", weights_only=False)
    module.automatic_optimization = False
    with pytest.raises(UsageError, match="Line with automatic_optimization=False"):
        trainer(pl).fit(module, loader())
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match=r"one of 2 of torch\.distributed"):
        trainer(pl).fit(pl.Line(), loader())


def test_options_that_are_not_known(pl: Any) -> None:
    with pytest.raises(UsageError, match=r"'global_batch_size': batch_size of the DataLoader is"):
        pl.LegatoStrategy(global_batch_size=8)
    with pytest.raises(UsageError, match=r"LegatoFabricStrategy knows no argument 'step'\. It knows seed, "):
        pl.LegatoFabricStrategy(global_batch_size=8, micro_batch_size=2, step=1)


# ------------------------------------------------------------ Fabric


def make_fabric(pl: Any, strategy: Any = None) -> tuple[Any, Any, Any, Any]:
    one = pl.Fabric(
        accelerator="cpu", strategy=strategy or pl.LegatoFabricStrategy(global_batch_size=6, micro_batch_size=2)
    )
    one.launch()
    torch.manual_seed(2)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model, optimizer, scheduler = one.setup(model, optimizer, scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 2))
    return one, model, optimizer, scheduler


def test_fabric_trains_as_lightning_does(pl: Any) -> None:
    found = []
    for strategy in (None, "auto"):
        one, model, optimizer, scheduler = make_fabric(pl, strategy)
        training, validation = one.setup_dataloaders(loader(batch_size=6), loader(9, batch_size=4))
        for _ in range(2):
            for inputs, targets in training:
                one.backward(torch.nn.functional.mse_loss(model(inputs), targets))
                one.clip_gradients(model, optimizer, max_norm=0.5)
                optimizer.step()
                optimizer.zero_grad()
                scheduler.step()
            with torch.no_grad():
                loss = sum(float(torch.nn.functional.mse_loss(model(x), y)) for x, y in validation)
        one.save("kept.ckpt", {"model": model, "optimizer": optimizer, "scheduler": scheduler})
        found.append((model.weight.detach().numpy(), float(one.all_reduce(torch.tensor(loss))), len(training)))
        kept = torch.load("kept.ckpt", weights_only=True)
        assert (kept["model"]["weight"].numpy() == found[-1][0]).all() and kept["scheduler"]["last_epoch"] == 8
    (weight, loss, length), (their_weight, their_loss, their_length) = found
    assert weight == pytest.approx(their_weight, rel=1e-4)
    assert loss == pytest.approx(their_loss, rel=1e-4) and length == their_length == 4


def test_what_fabric_refuses(pl: Any) -> None:
    one, model, optimizer, _ = make_fabric(pl)
    training, other = one.setup_dataloaders(loader(batch_size=6), loader(batch_size=2))
    with pytest.raises(ProgramError, match="outside of a loop over the training data"):
        one.backward(model(torch.zeros(1, 3)).sum())
    with pytest.raises(UsageError, match=r"no_backward_sync is not needed"), one.no_backward_sync(model):
        pass
    with pytest.raises(DataError, match=r"batch_size=2 of the DataLoader: .* global_batch_size=6"):
        next(iter(other))
    one.save("kept.ckpt", {"model": model, "optimizer": optimizer})
    with pytest.raises(UsageError, match=r"Fabric\.load: .* legato run --resume"):
        one.load("kept.ckpt", {"model": model, "optimizer": optimizer})
    with pytest.raises(UsageError, match=r"a StepLR as an optimizer: .* scheduler=scheduler"):
        one.setup(torch.nn.Linear(1, 1), torch.optim.lr_scheduler.StepLR(optimizer.optimizer, 2))
    for inputs, _ in training:
        with pytest.raises(ProgramError, match=r"all_reduce was called in the loop .*run\.loss"):
            one.all_reduce(inputs)
        break


def test_fabric_refuses_accumulation_by_hand(pl: Any) -> None:
    one, model, optimizer, _ = make_fabric(pl)
    training = one.setup_dataloaders(loader(batch_size=6))

    def train() -> None:
        for turn, (inputs, targets) in enumerate(training):
            one.backward(torch.nn.functional.mse_loss(model(inputs), targets))
            if turn % 2 == 0:
                optimizer.step()

    with pytest.raises(ProgramError, match=r"No optimizer acted .* Call optimizer\.step\(\) in every turn"):
        train()


def test_a_change_in_the_middle_of_what_is_large_reaches_workers_that_join(pl: Any) -> None:
    from legato.integrations.lightning_attributes import Attributes

    module = pl.Line()
    module.weights, module.names = [0.0] * 20_000, {str(number): number for number in range(20_000)}
    module.seen_samples, module.table = set(range(20_000)), torch.zeros(1_000_000)
    module.grid = np.zeros(1_000_000)
    attributes = Attributes(module, [])
    assert not attributes.state_dict()["values"]
    module.weights[7], module.names["7"], module.table[7], module.grid[7] = 1.0, -1, 1.0, 1.0
    module.seen_samples ^= {7, -7}
    changed = {"|weights", "|names", "|seen_samples", "|table", "|grid"}
    assert attributes.state_dict()["values"].keys() == changed


def test_what_is_large_is_compared_by_content_and_kind(pl: Any) -> None:
    from legato.integrations.lightning_attributes import Attributes

    module = pl.Line()
    module.numbers, module.names = [1] * 20_000, {f"name{number}": "on" for number in range(20_000)}
    module.grid, module.pairs = np.zeros(4, np.int64), [(1, 2)] * 20_000
    attributes = Attributes(module, [])
    # Equal values that are other objects.
    module.numbers = [int("1") for _ in range(20_000)]
    module.names = {"".join(("name", str(number))): "".join("on") for number in range(20_000)}
    module.pairs = [(int("1"), 2) for _ in range(20_000)]
    assert not attributes.state_dict()["values"]
    module.numbers[7], module.grid, module.pairs[7] = True, np.zeros(4, np.float64), (2, 1)
    assert attributes.state_dict()["values"].keys() == {"|numbers", "|grid", "|pairs"}
    module.numbers, module.names["name7"] = tuple([1] * 20_000), "of"
    assert attributes.state_dict()["values"].keys() == {"|numbers", "|names", "|grid", "|pairs"}


def test_what_has_its_first_value_again_is_the_same_on_all_workers(pl: Any) -> None:
    """A metric that was reset has new tensors, whose addresses may be those of the old ones, or not."""
    from legato.integrations.lightning_attributes import Attributes

    module = pl.Line()
    attributes = Attributes(module, [])
    module.seen.update(2.0)
    assert {"seen|mean_value", "seen|weight"} <= attributes.state_dict()["values"].keys()
    kept = [module.seen.weight]
    module.seen.reset()
    assert not attributes.state_dict()["values"] and len(kept) == 1
