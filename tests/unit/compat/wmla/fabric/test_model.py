"""FabricModel with programs of both generations, trained in one process."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

from legato.compat.wmla.fabric import model as module
from legato.compat.wmla.fabric.callbacks import Callback
from legato.compat.wmla.fabric.program_state import Memory
from legato.compat.wmla.site.fabric_model import FabricModel
from legato.compat.wmla.site.pyedt.fabric_model import FabricModel as FabricModelOfPyedt
from legato.core.errors import DataError, ProgramError, UsageError
from legato.train.data.seeds import seed_job
from legato.train.loop.elastic import Run
from legato.train.process.job import Place

NUM_SAMPLES = 22


def data_of(num_samples: int = NUM_SAMPLES, num_tests: int = 7) -> Callable[[], Any]:
    generator = torch.Generator().manual_seed(2)

    def make(number: int) -> TensorDataset:
        inputs = torch.randn(number, 3, generator=generator)
        return TensorDataset(inputs, (inputs.sum(1) > 0).long())

    sets = make(num_samples), make(num_tests)
    return lambda: sets


def net() -> torch.nn.Module:
    seed_job(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))


def make(**options: Any) -> tuple[FabricModel, torch.nn.Module]:
    model = options.pop("model", None) or net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    data = options.pop("data", None) or data_of()
    loss = options.pop("loss", torch.nn.functional.cross_entropy)
    return FabricModel(model, data, loss, optimizer, **options), model


@pytest.fixture(autouse=True)
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("LOG_DIR", "WMLA_MAX_WORKERS", "EDT_LOSS_SCALE", "EDT_PULL_WEIGHT_TIME_OUT", "LEGATO_SEED"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RESULT_DIR", str(tmp_path))
    monkeypatch.setattr(module, "_has_trained", False)
    return tmp_path


class Logger:
    """A logger of generation 2."""

    def __init__(self) -> None:
        self.train: list[tuple[dict[str, float], int, int, int]] = []
        self.test: list[tuple[dict[str, float], int, int]] = []
        self.ends: list[str] = []

    def log_train_metrics(self, metrics: dict[str, float], iteration: int, epoch: int, workers: int) -> None:
        self.train.append((metrics, iteration, epoch, workers))

    def log_test_metrics(self, metrics: dict[str, float], iteration: int, epoch: int) -> None:
        self.test.append((metrics, iteration, epoch))

    def on_train_begin(self) -> None:
        self.ends.append("begin")

    def on_train_end(self) -> None:
        self.ends.append("end")


def same(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def plain_training(num_epochs: int, batch_size: int, engines: int) -> torch.nn.Module:
    """Return the result of a plain training loop on the runtime, without FabricModel."""
    import legato

    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    run = legato.elastic(global_batch_size=batch_size * engines, micro_batch_size=batch_size)
    run.prepare(model, optimizer)
    for _ in run.epochs(num_epochs):
        for inputs, targets in run.batches(data_of()()[0]):
            run.backward(torch.nn.functional.cross_entropy(model(inputs), targets))
            optimizer.step()
            optimizer.zero_grad()
    return model


# ---------------------------------------------------------------- training


def test_a_loss_that_counts_its_calls_is_reported_and_still_trains(capsys: pytest.CaptureFixture[str]) -> None:
    class Counting:
        calls = 0

        def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return torch.nn.functional.cross_entropy(outputs, targets)

    counting = Counting()
    counting.calls = 0
    fabric, model = make(loss=counting)
    fabric.train(1, 4, 2)
    assert same(model, plain_training(1, 4, 2))
    assert capsys.readouterr().err.count("loss_function.calls changes while a micro-batch is computed") == 1
    plain, _ = make()
    plain.train(1, 4, 2)
    assert capsys.readouterr().err == ""


def test_the_state_of_callbacks_and_losses_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[Any] = []
    original = Run.prepare
    monkeypatch.setattr(Run, "prepare", lambda run, *things: (prepared.extend(things), original(run, *things))[1])
    callback = Callback()
    callback.seen = 0  # type: ignore[attr-defined]
    fabric, model = make(user_callback=callback, loss=torch.nn.CrossEntropyLoss(weight=torch.ones(2)))
    callback.other = model  # type: ignore[attr-defined]
    fabric.train(1, 4)
    callback.seen = 5  # type: ignore[attr-defined]
    loss, mine = [thing.state_dict() for thing in prepared if isinstance(thing, Memory)]
    assert mine == {"values": {"seen": 5}, "states": {}, "left": {}}
    assert loss["states"][""]["state"].keys() == {"weight"}


def test_it_trains_as_the_runtime_does() -> None:
    fabric, model = make()
    fabric.train(3, 4, 2)
    assert same(model, plain_training(3, 4, 2))
    assert module.has_trained()
    assert FabricModelOfPyedt is FabricModel


def test_the_second_generation_by_keyword(results: Path) -> None:
    driver, worker = Logger(), Logger()

    def positive(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return (outputs[:, 1] > 0).float()

    fabric, model = make(
        metrics=[positive],
        worker_logger_callback=worker,
        driver_logger_callback=driver,
        fn_batch_collate=lambda samples: tuple(map(torch.stack, zip(*samples, strict=True))),
    )
    fabric.train(epoch_number=2, batch_size=4, effective_batch_size=8, validation_freq=2, num_dataloader_threads=0)
    assert same(model, plain_training(2, 4, 2))
    # 22 samples are 6 micro-batches, of which the last has 2.
    assert [entry[1:] for entry in driver.train] == [(n, (n - 1) // 6, 1) for n in range(1, 13)]
    assert [entry[1] for entry in worker.train] == list(range(1, 13))
    assert all(list(entry[0]) == ["loss", "positive"] for entry in [*driver.train, *worker.train, *driver.test])
    sizes = [4, 4, 4, 4, 4, 2]
    for epoch in range(2):
        own = [metrics["loss"] for metrics, *_ in worker.train[6 * epoch : 6 * epoch + 6]]
        for number in range(1, 7):
            total = sum(size * loss for size, loss in zip(sizes[:number], own[:number], strict=True))
            assert driver.train[6 * epoch + number - 1][0]["loss"] == pytest.approx(total / sum(sizes[:number]))
    inputs, targets = data_of()()[1].tensors
    with torch.no_grad():
        want = torch.nn.functional.cross_entropy(model(inputs), targets).item()
    ((metrics, iteration, epoch),) = driver.test
    assert (iteration, epoch) == (0, 1) and metrics["loss"] == pytest.approx(want)
    assert [entry[1] for entry in worker.test] == [1, 2]
    assert driver.ends == worker.ends == ["begin", "end"]
    assert all(type(value) is float for metrics, *_ in driver.train for value in metrics.values())
    assert {path.name for path in (results / "model/train").glob("*.pth")} >= {"model_epoch_1.pth", "model_epoch_2.pth"}


def test_files_of_models_can_be_loaded(results: Path) -> None:
    fabric, model = make()
    fabric.train(2, 4, 2, checkpoint_freq=2)
    directory = results / "model/train"
    labels = ("2", "final")
    want = [f"model_epoch_{label}{suffix}" for label in labels for suffix in (".pth", "_optimizer_state.pth")]
    assert sorted(path.name for path in directory.iterdir()) == want
    fresh = net()
    fresh.load_state_dict(torch.load(directory / "model_epoch_final.pth"))
    assert same(fresh, model)
    optimizer = torch.optim.SGD(fresh.parameters(), lr=0.1, momentum=0.9)
    optimizer.load_state_dict(torch.load(directory / "model_epoch_final_optimizer_state.pth"))


def test_trained_models_are_packed_into_the_given_folder(
    results: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLI_EXECID", "j-1")
    edt, _ = make()
    with pytest.raises(UsageError, match="nothing to download"):
        edt.download(results)
    edt.train(1, 4, checkpoint_freq=0)
    for _ in range(2):  # a file of this name in the folder is not packed into itself
        edt.download(results / "model/packed")
    path = results / "model/packed/j-1.zip"
    assert f"Save model:  {path}\n" in capsys.readouterr().out
    with zipfile.ZipFile(path) as packed:
        names = [f"model/train/model_epoch_final{ending}" for ending in (".pth", "_optimizer_state.pth")]
        assert sorted(packed.namelist()) == sorted(names)
        assert packed.read(names[0]) == (results / names[0]).read_bytes()
    (results / "file").touch()
    with pytest.raises(UsageError, match=r"Cannot write '.*file/j-1\.zip'.*Name another out_dir\."):
        edt.download(results / "file")


def test_fewer_samples_than_a_global_batch_are_one_smaller_step(capsys: pytest.CaptureFixture[str]) -> None:
    fabric, model = make()
    fabric.train(3, 4, 16)
    assert "An epoch of 22 samples has 6 micro-batches: each epoch is one step of them" in capsys.readouterr().out
    # Three steps, each with the mean over all samples.
    want = net()
    optimizer = torch.optim.SGD(want.parameters(), lr=0.1, momentum=0.9)
    inputs, targets = data_of()()[0].tensors
    for _ in range(3):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(want(inputs), targets).backward()
        optimizer.step()
    for a, b in zip(model.parameters(), want.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_the_default_of_engines_number_is_the_workers_of_the_job(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WMLA_MAX_WORKERS", "2")
    fabric, model = make()
    fabric.train(1, 4)
    assert same(model, plain_training(1, 4, 2))
    assert "engines_number is not given: 2, the maximum number of workers of the job." in capsys.readouterr().out


def test_without_a_test_set_nothing_is_validated(results: Path) -> None:
    logger = Logger()
    fabric, _ = make(data=lambda: (data_of()()[0], None), driver_logger_callback=logger)
    fabric.train(1, 4, 2)
    assert logger.train and not logger.test


# ---------------------------------------------------------------- fn_step_train and fn_test


def own_step(model: Any, data: Any, eva: Any, train_loader: Any, fn_args: Any) -> Any:
    inputs, labels = data
    assert len(train_loader) == 6 and isinstance(fn_args, dict)
    model.get_optimizer().zero_grad()
    outputs = model(inputs)
    loss = model.get_loss_function()(outputs, labels)
    loss.backward()
    return eva(outputs, labels), loss


def test_fn_step_train_gives_the_same_result() -> None:
    own, plain = Logger(), Logger()
    fabric, model = make(fn_step_train=own_step, driver_logger=own)
    fabric.train(3, 4, 2)
    other, want = make(driver_logger=plain)
    other.train(3, 4, 2)
    assert same(model, want)
    assert own.test == plain.test and [entry[1:] for entry in own.train] == [entry[1:] for entry in plain.train]
    for mine, theirs in zip(own.train, plain.train, strict=True):
        assert mine[0] == pytest.approx(theirs[0])


def test_a_schedule_in_fn_step_train_acts_once_per_step() -> None:
    def step(model: Any, data: Any, eva: Any, train_loader: Any, fn_args: Any) -> Any:
        loss = model.get_loss_function()(model(data[0]), data[1])
        loss.backward()
        scheduler.step()
        return eva(model(data[0]), data[1]), loss

    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    fabric = FabricModel(model, data_of(), torch.nn.functional.cross_entropy, optimizer, fn_step_train=step)
    fabric.train(2, 4, 2)  # 3 steps an epoch, of 6 micro-batches
    assert optimizer.param_groups[0]["lr"] == 0.1 * 0.5**6


def test_a_step_with_two_passes_and_its_own_clipping() -> None:
    def step(model: Any, data: Any, eva: Any, *_: Any) -> Any:
        inputs, labels = data
        model.get_optimizer().zero_grad()
        outputs = model(inputs)
        loss = model.get_loss_function()(outputs, labels)
        (loss / 2).backward(retain_graph=True)
        (loss / 2).backward()
        model.get_optimizer().step()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9)
        return eva(outputs, labels), loss.item()

    fabric, model = make(fn_step_train=step)
    fabric.train(2, 4, 2)
    for a, b in zip(model.parameters(), plain_training(2, 4, 2).parameters(), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (lambda model, data, *_: (1.0, model(data[0]).sum()), "fn_step_train set no gradient"),
        (lambda model, data, *_: model(data[0]).sum().backward(), "fn_step_train returned None. Return a pair"),
        (lambda model, data, *_: (model(data[0]).sum().backward(), "x"), "fn_step_train returned 'x' where a number"),
    ],
)
def test_a_step_that_breaks_the_rules(step: Any, told: str) -> None:
    fabric, _ = make(fn_step_train=step)
    with pytest.raises(ProgramError, match=told):
        fabric.train(1, 4, 2)


def test_an_error_in_a_step_is_the_programs() -> None:
    def step(*_: Any) -> Any:
        raise ZeroDivisionError("in the step")

    fabric, _ = make(fn_step_train=step)
    with pytest.raises(ZeroDivisionError, match="in the step"):
        fabric.train(1, 4, 2)


def test_a_test_of_the_programs_own() -> None:
    seen: list[tuple[bool, bool]] = []

    def test(model: Any, test_iter: Any, _: Any) -> float:
        seen.append((model.training, torch.is_grad_enabled()))
        losses = [model.get_loss_function()(model(inputs), labels).item() for inputs, labels in test_iter]
        assert len(losses) == 2
        return sum(losses) / 2

    logger = Logger()
    fabric, model = make(fn_test=test, driver_logger=logger)
    fabric.train(2, 4, 2)
    assert seen == [(False, False)] * 2 and model.training
    assert [list(metrics) for metrics, *_ in logger.test] == [["loss", "accuracy"]] * 2
    assert same(model, plain_training(2, 4, 2))
    # The accuracy comes from the same outputs, so it is equal to that of Legato's own validation.
    own = Logger()
    make(driver_logger=own)[0].train(2, 4, 2)
    wanted = [metrics["accuracy"] for metrics, *_ in own.test]
    assert [metrics["accuracy"] for metrics, *_ in logger.test] == pytest.approx(wanted)


class OldLogger:
    """A logger of generation 1."""

    def __init__(self) -> None:
        self.tested: list[tuple[float, float]] = []

    def log_train_metrics(self, loss: float, acc: float, completed_batch: int, worker: int = 0) -> None:
        pass

    def log_test_metrics(self, loss: float, acc: float, completed_batch: int, worker: int = 0) -> None:
        self.tested.append((loss, acc))


def test_a_test_of_the_programs_own_gives_old_loggers_an_accuracy() -> None:
    def test(model: Any, test_iter: Any, _: Any) -> float:
        return sum(model.get_loss_function()(model(inputs), labels).item() for inputs, labels in test_iter)

    logger = OldLogger()
    make(fn_test=test, driver_logger=logger)[0].train(1, 4, 2)
    ((_, accuracy),) = logger.tested
    assert 0 <= accuracy <= 100


def test_one_metric_needs_no_list_and_a_logger_need_not_have_all_methods() -> None:
    class Ends:
        has_ended = False

        def on_train_end(self) -> None:
            self.has_ended = True

    def distance(outputs: Any, targets: Any) -> Any:
        return (outputs.argmax(1) - targets).abs().float()

    logger, ends = Logger(), Ends()
    make(metrics=distance, driver_logger_callback=logger)[0].train(1, 4, 2)
    assert list(logger.test[0][0]) == ["loss", "distance"]
    make(driver_logger_callback=ends)[0].train(1, 4, 2)
    assert ends.has_ended


@pytest.mark.parametrize(("said", "want"), [("no", False), ("False", False), ("yes", True), (1, True), (None, False)])
def test_texts_are_understood_as_truth_values(said: Any, want: bool) -> None:
    assert make(save_to_onnx=said)[0]._extras.exports_onnx is want


def test_a_second_training_in_a_job_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric, _ = make()
    place = Place(None, None, "cpu", 1)
    place.taken = True
    monkeypatch.setattr("legato.train.process.job._place", place)
    with pytest.raises(
        UsageError, match=r"FabricModel\.train\(\) was called a second time, but a job trains only once"
    ):
        fabric.train(1, 4, 2)


# ---------------------------------------------------------------- callbacks


def test_fn_test_leaves_the_model_unchanged() -> None:
    def test(model: Any, batches: Any, fn_args: Any) -> float:
        model.train()
        return sum(float(model(inputs).sum()) for inputs, _ in batches)

    def statistics(**options: Any) -> list[float]:
        seed_job(0)
        norm = torch.nn.BatchNorm1d(3)
        fabric, _ = make(model=torch.nn.Sequential(norm, torch.nn.Linear(3, 2)), **options)
        fabric.train(2, 4, 2)
        return [number for buffer in norm.buffers() for number in buffer.flatten().tolist()]

    assert statistics(fn_test=test) == statistics()


def test_callbacks_change_the_rate_and_may_fail(capsys: pytest.CaptureFixture[str], results: Path) -> None:
    rates: list[float] = []
    saves: list[tuple[int, bool]] = []

    class Schedule(Callback):
        def on_epoch_begin(self, epoch: int) -> None:
            assert self.params["epochs"] == 6 and self.model is model
            for group in self.params["optimizer"].param_groups:
                group["lr"] *= 0.5
                rates.append(group["lr"])

        def on_epoch_end(self, epoch: int, save_model: bool = False) -> None:
            saves.append((epoch, save_model))
            if save_model:
                raise RuntimeError("there is no GPU here")

    class Bare:
        """A callback without a base class, and without the second parameter."""

        ends = 0

        def on_epoch_end(self, epoch: int) -> None:
            self.ends += 1

    bare = Bare()
    fabric, model = make(user_callback=[Schedule(), bare])
    fabric.train(6, 4, 2)
    assert rates == [0.1 * 0.5**n for n in range(1, 7)]
    # Generation 1 saves after every fifth epoch, and at the end.
    assert saves == [(0, False), (1, False), (2, False), (3, False), (4, True), (5, True)]
    assert bare.ends == 6
    error = capsys.readouterr().err
    assert error.count("RuntimeError: there is no GPU here") == 2 and "The training continues." in error
    assert {path.name for path in (results / "model/train").glob("*h.pth")} == set()
    assert (results / "model/train/model_epoch_5.pth").exists() and (
        results / "model/train/model_epoch_final.pth"
    ).exists()


# ---------------------------------------------------------------- ONNX


def test_a_failed_onnx_export_is_reported_and_the_model_stays(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    fabric, _ = make(save_to_onnx=True)
    fabric.train(1, 4, 2)
    assert "not exported to ONNX. torch.onnx needs the package onnxscript" in capsys.readouterr().err
    assert (results / "model/train/model_epoch_final.pth").exists()


@pytest.mark.parametrize("option", ["save_to_onnx", "enable_onnx"])
def test_onnx_is_written_of_a_copy(results: Path, monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    exported = []

    def export(model: torch.nn.Module, arguments: Any, path: str, **options: Any) -> None:
        exported.append((model, arguments[0].shape, options["dynamic_shapes"]))
        Path(path).write_text("onnx")

    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    monkeypatch.setattr(torch.onnx, "export", export)
    fabric, model = make(**{option: True})
    fabric.train(1, 4, 2)
    ((traced, shape, open_sizes),) = exported
    assert traced is not model and same(traced, model) and not traced.training
    assert shape == (2, 3) and list(open_sizes[0]) == [0]
    assert (results / "model/train/model_epoch_final.onnx").read_text() == "onnx"


# ---------------------------------------------------------------- metrics in files


def test_a_program_without_a_logger_leaves_the_default_files(results: Path) -> None:
    fabric, _ = make(user_callback=[Callback()])
    fabric.train(1, 4, 2)
    log = results / "log/driver"
    lines = (log / "stdout").read_text().splitlines()
    assert len(lines) == 7 and "Loss: " in lines[0] and "Accuracy: " in lines[6]
    assert len((log / "evaluation-metrics.txt").read_text().splitlines()) == 7
    fabric, _ = make(user_callback=[Callback()])
    fabric.train(1, 4, 2)
    assert len((log / "stdout").read_text().splitlines()) == 7, "alone nothing is gone on with"
    assert json.loads((log / "history.jsonl").read_text().splitlines()[-1])["n"] == 7


def test_the_loss_of_generation_1_can_be_scaled_as_wmla_did(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def losses() -> list[float]:
        fabric, _ = make(user_callback=[Callback()])
        fabric.train(1, 4, 2)
        lines = (results / "log/driver/stdout").read_text().splitlines()
        return [float(line.partition("Loss: ")[2].partition(",")[0]) for line in lines]

    plain = losses()
    monkeypatch.setenv("EDT_LOSS_SCALE", "batch")
    assert losses() == pytest.approx([loss / 4 for loss in plain], abs=1e-5)


# ---------------------------------------------------------------- arguments that are refused

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"model": torch.nn.Linear}, "model=type is not a model"),
    ({"optimizer": "adam"}, "optimizer='adam' is not a PyTorch optimizer"),
    ({"optimizer": torch.optim.SGD(net().parameters(), lr=0.1)}, "parameters that are not the model's"),
    ({"datasets_function": ([], [])}, "datasets_function=.* cannot be called"),
    ({"loss_function": "mse"}, "loss_function='mse' cannot be called"),
    ({"loss_function": None}, "loss_function=None cannot be called"),
    ({"metrics": "accuracy"}, "metrics contains 'accuracy', which is not a function of"),
    ({"save_to_onnx": "maybe"}, "save_to_onnx='maybe' is not a boolean"),
    ({"metrics": ["accuracy"]}, "is not a function of"),
    ({"metrics": [len, len]}, "The name 'len' of a metric is taken"),
    ({"driver_logger": Logger}, "driver_logger=Logger is a class"),
    ({"driver_logger_callback": object()}, "driver_logger_callback=.* is not a logger"),
    ({"driver_logger": Logger(), "driver_logger_callback": Logger()}, "two names of one parameter"),
    ({"worker_logger": Logger(), "worker_logger_callback": Logger()}, "two names of one parameter"),
    ({"user_callback": [Callback]}, "which is not a callback"),
    ({"user_callback": print}, "which is not a callback"),
    ({"fn_step_train": 1}, "fn_step_train=1 cannot be called"),
    ({"fn_step_train": own_step, "metrics": [len]}, "metrics cannot be computed with fn_step_train"),
    ({"fn_batch_collate": 1}, "fn_batch_collate=1 cannot be called"),
    ({"keras_custom_objects": {}}, "keras_custom_objects is for Keras models"),
]


@pytest.mark.parametrize(("given", "told"), WRONG)
def test_wrong_arguments_of_the_model_are_refused(given: dict[str, Any], told: str) -> None:
    model = net()
    parts = {
        "model": model,
        "datasets_function": data_of(),
        "loss_function": torch.nn.functional.cross_entropy,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
    }
    with pytest.raises(UsageError, match=told):
        FabricModel(**{**parts, **given})


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (lambda: data_of()()[0], "datasets_function returned TensorDataset, not a pair"),
        (lambda: (iter([]), None), "for training is a list_iterator, which has no length"),
        (lambda: ([], None), "The data set for training is empty"),
        (lambda: (data_of()()[0], []), "The data set for validation is empty"),
    ],
)
def test_data_that_cannot_be_used(data: Any, told: str) -> None:
    fabric, _ = make(data=data)
    with pytest.raises(DataError, match=told):
        fabric.train(1, 4, 2)


def test_batches_and_losses_that_cannot_be_used() -> None:
    fabric, _ = make(data=lambda: ([torch.zeros(3)] * 8, None))
    with pytest.raises(ProgramError, match="not a pair"):
        fabric.train(1, 4, 2)
    fabric, _ = make(loss=lambda outputs, targets: outputs)
    with pytest.raises(ProgramError, match=r"a tensor of shape \(4, 2\). Return the mean"):
        fabric.train(1, 4, 2)


def test_arguments_are_checked_before_anything_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    fabric, _ = make(data=lambda: pytest.fail("nothing is to be read"), scaleup_function=lambda epoch, most: most)
    assert "scaleup_function is accepted but has no effect" in capsys.readouterr().out
    with pytest.raises(UsageError, match="batch_size=0"):
        fabric.train(1, 0, 2)
    with pytest.raises(UsageError, match=r"train\(\) has no argument epochs"):
        fabric.train(1, 4, 2, epochs=3)
    assert not module.has_trained()


def test_arguments_of_notebooks_do_nothing_in_a_job(capsys: pytest.CaptureFixture[str]) -> None:
    fabric, model = make()
    fabric.train(1, 4, 2, worker_memory="16G", driver_memory="1G")
    assert "worker_memory, driver_memory: the submission of a job sets this" in capsys.readouterr().out
    assert same(model, plain_training(1, 4, 2))
