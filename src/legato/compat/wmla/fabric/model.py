"""`FabricModel`: what programs of all generations of WMLA's Elastic Distributed Training make and train.

Its parameters are those of all generations at once; every rule about them is checked before anything is trained. The
training itself is `Loop`'s.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import torch

from legato.compat.wmla.fabric.job_environment import JobEnvironment, look_around
from legato.compat.wmla.fabric.keras_training import KerasParts
from legato.compat.wmla.fabric.keras_variables import keras_of
from legato.compat.wmla.fabric.loggers import check_logger
from legato.compat.wmla.fabric.loop import Data, Extras, Loop, Parts, choose_generation
from legato.compat.wmla.fabric.model_files import pack_results
from legato.compat.wmla.fabric.program_state import Memory, TurnWatch, find_owner
from legato.compat.wmla.fabric.rules import TrainArguments, fit_engines, read_arguments, tell_step
from legato.compat.wmla.fabric.torch_metrics import Metrics
from legato.compat.wmla.fabric.torch_training import TorchParts
from legato.compat.wmla.fabric.training_log import TrainingLog
from legato.core.errors import DataError, UsageError
from legato.train.loop.elastic import Run, elastic
from legato.train.process import job

_IGNORED_SCALEUP = (
    "scaleup_function is accepted and does nothing: how many workers there are is the platform's to decide, and every "
    "step has batch_size * engines_number samples."
)
_FLAGS: Final = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0", "none", ""), False),
}
_TWICE: Final = (
    "FabricModel.train() was called a second time, and a job trains once: a worker that joins later could not find its "
    "place. Give one train() the epochs of both, and let a callback's on_epoch_begin change what is to change; or "
    "submit a second job that begins with RESULT_DIR/model/train/model_epoch_final.pth of this one."
)
_has_trained = False


def has_trained() -> bool:
    """Tell whether ``train()`` was called in this process."""
    return _has_trained


class FabricModel:
    """A model, and what is needed to train it.

    Args:
        model: a ``torch.nn.Module``, made on the CPU, or a ``tf.keras.Model``.
        datasets_function: without arguments; returns a pair of map-style data sets, for training and for validation.
            The second one may be None.
        loss_function: of (outputs, targets); returns the mean over the samples. With Keras the name of a loss, one of
            ``tf.keras.losses``, or a function of (targets, outputs).
        optimizer: a ``torch.optim`` optimizer of the model's parameters; or one of Keras, or its name.
        metrics: a function of (outputs, targets), or a list of them, reported beside the loss; None: accuracy, where
            there are classes.
            With Keras names, metrics, or functions of (targets, outputs).
        worker_logger_callback: told of each worker's own micro-batches, on the worker. None: the default lines.
        driver_logger_callback: told of all micro-batches, once. None: the default logger.
        save_to_onnx: write the final model in ONNX format too.
        keras_custom_objects: what names of the program's own stand for, in Keras.
        fn_batch_collate: makes a batch (features, labels) of a list of samples.
        driver_logger: as ``driver_logger_callback``, in generation 1.
        worker_logger: as ``worker_logger_callback``, likewise.
        user_callback: callbacks derived from ``callbacks.Callback``.
        fn_step_train: of (model, data, eva, train_loader, fn_args); returns accuracy, from 0 to 100, and loss.
        fn_test: of (model, test_iter, fn_args); returns the loss of a validation.
        enable_onnx: as ``save_to_onnx``, in generation 1.
        scaleup_function: accepted; it does nothing.

    Raises:
        UsageError: an argument is of the wrong kind, or two contradict each other.
    """

    def __init__(
        self,
        model: Any,
        datasets_function: Callable[[], Any],
        loss_function: Any,
        optimizer: Any,
        metrics: Any = None,
        worker_logger_callback: Any = None,
        driver_logger_callback: Any = None,
        save_to_onnx: bool = False,
        keras_custom_objects: Mapping[str, Any] | None = None,
        fn_batch_collate: Callable[[list[Any]], Any] | None = None,
        *,
        driver_logger: Any = None,
        worker_logger: Any = None,
        user_callback: Any = None,
        fn_step_train: Callable[..., Any] | None = None,
        fn_test: Callable[..., Any] | None = None,
        enable_onnx: bool = False,
        scaleup_function: Callable[..., Any] | None = None,
    ) -> None:
        _check_functions(
            datasets_function=datasets_function,
            fn_batch_collate=fn_batch_collate,
            fn_step_train=fn_step_train,
            fn_test=fn_test,
            scaleup_function=scaleup_function,
        )
        if metrics is not None and (callable(metrics) or isinstance(metrics, str)):
            metrics = [metrics]
        if fn_step_train is not None and metrics is not None:
            raise UsageError(
                "metrics cannot be computed with fn_step_train, because only it sees the outputs. Omit metrics or "
                "fn_step_train out."
            )
        self._datasets_function = datasets_function
        keras = keras_of(model)
        if keras is not None:
            parts = KerasParts(keras, model, loss_function, optimizer, metrics, keras_custom_objects, fn_batch_collate)
            parts.check(fn_step_train=fn_step_train, fn_test=fn_test)
            self._parts: Parts = parts
        else:
            _check_torch(model, optimizer, keras_custom_objects)
            _check_functions(loss_function=loss_function)
            self._parts = TorchParts(
                model, loss_function, optimizer, Metrics(metrics), fn_batch_collate, fn_step_train, fn_test
            )
        extras = Extras(
            generation=0,
            driver_logger=_choose("driver_logger", driver_logger, driver_logger_callback),
            worker_logger=_choose("worker_logger", worker_logger, worker_logger_callback),
            callbacks=_list_callbacks(user_callback),
            exports_onnx=_read_flag("save_to_onnx", save_to_onnx) or _read_flag("enable_onnx", enable_onnx),
        )
        old = (driver_logger, worker_logger, user_callback, fn_step_train, fn_test, scaleup_function)
        has_old_names = enable_onnx or any(thing is not None for thing in old)
        self._extras = extras._replace(generation=choose_generation(extras, has_old_names))
        self._run: Run | None = None
        if scaleup_function is not None:
            _notify(_IGNORED_SCALEUP)

    def train(
        self,
        epoch_number: int,
        batch_size: int,
        engines_number: int | None = None,
        num_dataloader_threads: int = 4,
        validation_freq: int = 1,
        checkpoint_freq: int | None = None,
        effective_batch_size: int | None = None,
        **notebook: Any,
    ) -> None:
        """Train, on however many workers there are at the time; returns when the training is over.

        Args:
            epoch_number: epochs.
            batch_size: samples that one worker computes at a time.
            engines_number: micro-batches of ``batch_size`` samples in a step, on all workers together; more workers
                cannot help. None: as ``effective_batch_size`` says; without that, the workers that the job asked for.
            num_dataloader_threads: loader processes per worker, as far as there are cores for them.
            validation_freq: epochs between validations; 0: none.
            checkpoint_freq: epochs between saved models; 0: only the final one. None: 5 in generation 1, else 1.
            effective_batch_size: samples of a step; the larger one of this and ``batch_size * engines_number`` counts.
            notebook: ``worker_memory`` and the like, which say what a notebook's job asks for; inside of a job nothing.

        Raises:
            UsageError: an argument cannot be used.
            DataError: ``datasets_function`` returned something else than two data sets.
        """
        around = look_around()
        if job.has_run():
            raise UsageError(_TWICE)
        _check_notebook_arguments(notebook)
        plan = read_arguments(
            epoch_number,
            batch_size,
            engines_number,
            num_dataloader_threads,
            validation_freq,
            checkpoint_freq,
            effective_batch_size,
            generation=self._extras.generation,
            max_workers=around.max_workers,
        )
        if engines_number is None and effective_batch_size is None:
            _notify(f"engines_number is not given: {plan.engines_number}, the maximum number of workers of the job.")
        global _has_trained  # noqa: PLW0603 - a process trains once
        _has_trained = True
        self._train(plan, around)

    def download(self, out_dir: str | Path = "/tmp") -> None:  # noqa: S108 - as WMLA has it
        """Pack what was trained into ``JOB.zip`` and say where it is; one worker does it for all.

        Args:
            out_dir: gets the file.

        Raises:
            UsageError: nothing was trained, or it cannot be written.
        """
        if self._run is None:
            raise UsageError("There is nothing to download: train() was not called. Call it first.")
        if self._run.is_main:
            path = pack_results(look_around().result_dir, Path(out_dir), os.environ.get("DLI_EXECID", "local"))
            sys.stdout.write(f"Save model:  {path}\n")

    def _train(self, plan: TrainArguments, around: JobEnvironment) -> None:
        train_set, test_set = self._parts.begin(*_read_datasets(self._datasets_function()))
        num_samples = len(train_set)
        num_engines = fit_engines(plan.engines_number, plan.batch_size, num_samples)
        if num_engines < plan.engines_number:
            _notify(
                f"An epoch of {num_samples} samples has {num_engines} micro-batches: each epoch is one step of "
                f"them, not of engines_number={plan.engines_number}."
            )
        run = elastic(
            global_batch_size=num_engines * plan.batch_size,
            micro_batch_size=plan.batch_size,
            num_backwards=self._parts.num_backwards,
        )
        self._run = run
        engine = self._parts.make_engine(run, plan.batch_size, train_set)
        log = TrainingLog(num_samples, plan.batch_size, num_engines)
        functions = [Memory(name, find_owner(one), engine.kept) for name, one in self._parts.functions.items()]
        callbacks = [Memory(type(callback).__name__, callback, engine.kept) for callback in self._extras.callbacks]
        run.prepare(log, *functions, *callbacks)
        data = Data(train_set, test_set, plan.num_loaders(os.cpu_count() or 1, around.max_workers))
        asked = around.max_workers if around.is_in_job else num_engines
        notice = tell_step(num_engines, plan.batch_size, asked)
        Loop(run, engine, plan, self._extras, around, log, data, TurnWatch(functions), notice).run()


# ---------------------------------------------------------------- checks


def _check_functions(**functions: Any) -> None:
    for name, function in functions.items():
        is_needed = name in ("datasets_function", "loss_function")
        if not callable(function) and (is_needed or function is not None):
            raise UsageError(f"{name}={function!r} cannot be called. Give a function.")


def _read_flag(name: str, value: Any) -> bool:
    """Return a truth value, which programs also give as a text of their command line."""
    found = _FLAGS.get(value.strip().lower()) if isinstance(value, str) else value
    if found is None and not isinstance(value, str):
        return False
    if not isinstance(found, bool | int) or found not in (0, 1):
        raise UsageError(f"{name}={value!r} is not a boolean. Give True or False.")
    return bool(found)


def _check_torch(model: Any, optimizer: Any, keras_custom_objects: Any) -> None:
    if not isinstance(model, torch.nn.Module):
        raise UsageError(
            f"model={type(model).__name__} is no model. Give a torch.nn.Module, made on the CPU, or a tf.keras.Model."
        )
    if keras_custom_objects is not None:
        raise UsageError("keras_custom_objects is for Keras models; this one is a torch.nn.Module. Leave it out.")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise UsageError(
            f"optimizer={optimizer!r} is no optimizer of PyTorch. Give one, such as "
            "torch.optim.SGD(model.parameters(), lr=0.1)."
        )
    own = {id(parameter) for parameter in model.parameters()}
    if any(id(parameter) not in own for group in optimizer.param_groups for parameter in group["params"]):
        raise UsageError(
            "The optimizer has parameters that are not the model's. Make it of model.parameters(), or of some of them, "
            "after the model has all its layers."
        )


def _choose(name: str, old: Any, new: Any) -> Any:
    """Return the logger that is given under one of the two names of a parameter, None if there is none."""
    if old is not None and new is not None and old is not new:
        raise UsageError(f"{name} and {name}_callback are two names of one parameter. Pass one of them.")
    logger = new if old is None else old
    if logger is not None:
        check_logger(name if old is not None else f"{name}_callback", logger)
    return logger


def _list_callbacks(given: Any) -> tuple[Any, ...]:
    callbacks = () if given is None else tuple(given) if isinstance(given, list | tuple) else (given,)
    for callback in callbacks:
        hooks = [getattr(callback, name, None) for name in ("on_epoch_begin", "on_epoch_end")]
        if isinstance(callback, type) or not any(callable(hook) for hook in hooks):
            raise UsageError(
                f"user_callback has {callback!r}, which is no callback. Give instances of classes derived from "
                "callbacks.Callback."
            )
    return callbacks


def _check_notebook_arguments(given: Mapping[str, Any]) -> None:
    known = ("worker_memory", "driver_memory", "hardware_spec", "worker_num", "worker_device_num")
    for name in given:
        if name not in known:
            raise UsageError(
                f"train() has no argument {name}. It has epoch_number, batch_size, engines_number, "
                "num_dataloader_threads, validation_freq, checkpoint_freq and effective_batch_size."
            )
    if given:
        _notify(f"{', '.join(given)}: the submission of a job sets this; inside of the job it has no effect.")


def _read_datasets(given: Any) -> tuple[Any, Any]:
    if not isinstance(given, list | tuple) or len(given) != 2:
        raise DataError(
            f"datasets_function returned {type(given).__name__}, not a pair. Return (train_dataset, test_dataset)."
        )
    for name, dataset in zip(("training", "validation"), given, strict=True):
        if name == "validation" and dataset is None:
            continue
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
            raise DataError(
                f"The data set for {name} is a {type(dataset).__name__}, which has no length or no items. Return "
                "map-style data sets, with __len__ and __getitem__, such as those of torchvision."
            )
        if not len(dataset):
            raise DataError(f"The data set for {name} is empty. Check the path and the filter it is made with.")
    return given[0], given[1]


def _notify(text: str) -> None:
    sys.stdout.write(f"legato: {text}\n")
