"""`FabricModel`, the class with which programs of both generations of WMLA's Elastic Distributed Training train.

It has the parameters of both generations, and checks all of them before the training begins. `Loop` does the training.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import torch

from legato.compat.wmla.fabric.job_environment import JobEnvironment, read_environment
from legato.compat.wmla.fabric.keras_training import KerasParts
from legato.compat.wmla.fabric.keras_variables import keras_of
from legato.compat.wmla.fabric.loggers import check_logger
from legato.compat.wmla.fabric.loop import Data, Extras, Loop, Parts, choose_generation
from legato.compat.wmla.fabric.model_files import pack_results
from legato.compat.wmla.fabric.program_state import Memory, TurnWatch, find_owner
from legato.compat.wmla.fabric.rules import TrainArguments, fit_engines, read_arguments, warn_of_step_size
from legato.compat.wmla.fabric.torch_metrics import Metrics
from legato.compat.wmla.fabric.torch_training import TorchParts
from legato.compat.wmla.fabric.training_log import TrainingLog
from legato.core.errors import DataError, UsageError
from legato.train.loop.elastic import Run, elastic
from legato.train.process import job

_IGNORED_SCALEUP = (
    "scaleup_function is accepted but has no effect: Legato chooses the number of workers, and every step has "
    "batch_size * engines_number samples."
)
_FLAGS: Final = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0", "none", ""), False),
}
_TWICE: Final = (
    "FabricModel.train() was called a second time, but a job trains only once, so that workers can join at any time. "
    "Call train() once with the epochs of both calls, and change settings in on_epoch_begin of a callback; or submit a "
    "second job that begins with RESULT_DIR/model/train/model_epoch_final.pth of this one."
)
_has_trained = False
_last_run: Run | None = None


def has_trained() -> bool:
    """Return whether ``train()`` was called in this process."""
    return _has_trained


def last_run() -> Run | None:
    """Return the run of ``train()``. None: it was not called in this process."""
    return _last_run


class FabricModel:
    """A model, its data, and everything else that its training needs.

    Args:
        model: a ``torch.nn.Module`` on the CPU, or a ``tf.keras.Model``.
        datasets_function: called without arguments; returns a pair of map-style data sets, for training and for
            validation. The second one may be None.
        loss_function: a function of (outputs, targets) that returns the mean over the samples. With Keras: the name of
            a loss, a loss of ``tf.keras.losses``, or a function of (targets, outputs).
        optimizer: a ``torch.optim`` optimizer of the model's parameters; with Keras: an optimizer or its name.
        metrics: a function of (outputs, targets), or a list of such functions, reported beside the loss; None: accuracy
            if the model is a classifier. With Keras: names, metrics, or functions of (targets, outputs).
        worker_logger_callback: each worker calls it for its own micro-batches. None: the default lines.
        driver_logger_callback: rank 0 calls it for all micro-batches, once. None: the default logger.
        save_to_onnx: whether to write the final model in ONNX format, too.
        keras_custom_objects: the program's own Keras objects by their names.
        fn_batch_collate: makes a batch (features, labels) of a list of samples.
        driver_logger: the name of ``driver_logger_callback`` in generation 1.
        worker_logger: the name of ``worker_logger_callback`` in generation 1.
        user_callback: one or more callbacks of classes derived from ``callbacks.Callback``.
        fn_step_train: a function of (model, data, eva, train_loader, fn_args) that computes the gradients of a
            micro-batch; returns accuracy, from 0 to 100, and loss.
        fn_test: a function of (model, test_iter, fn_args) that returns the loss of a validation.
        enable_onnx: the name of ``save_to_onnx`` in generation 1.
        scaleup_function: accepted without effect.

    Raises:
        UsageError: an argument is of the wrong kind, or two arguments contradict each other.
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
                "metrics cannot be computed with fn_step_train, because only fn_step_train gets the outputs. Omit one "
                "of them."
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
        """Train, on a number of workers that may change at any time. Returns at the end of the training.

        Args:
            epoch_number: number of epochs.
            batch_size: number of samples that one worker computes at a time: a micro-batch.
            engines_number: number of micro-batches in a step, on all workers together; further workers cannot help.
                None: ``effective_batch_size / batch_size``, or without ``effective_batch_size`` the maximum number of
                workers of the job.
            num_dataloader_threads: maximum number of loader processes per worker; fewer if the machine has few cores.
            validation_freq: epochs between validations; 0: no validation.
            checkpoint_freq: epochs between saved models; 0: only the final one. None: 5 in generation 1, else 1.
            effective_batch_size: number of samples in a step; the larger one of this and ``batch_size *
                engines_number`` is used.
            notebook: ``worker_memory`` and other arguments for the job that a notebook submits; ignored inside of a
                job.

        Raises:
            UsageError: an argument cannot be used.
            DataError: ``datasets_function`` did not return a pair of data sets.
        """
        environment = read_environment()
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
            max_workers=environment.max_workers,
        )
        if engines_number is None and effective_batch_size is None:
            _notify(f"engines_number is not given: {plan.engines_number}, the maximum number of workers of the job.")
        global _has_trained  # noqa: PLW0603 - a process trains once
        _has_trained = True
        self._train(plan, environment)

    def download(self, out_dir: str | Path = "/tmp") -> None:  # noqa: S108 - as WMLA has it
        """Pack the trained models into ``JOB.zip`` and print the path of the file. Only rank 0 does it.

        Args:
            out_dir: directory for the file.

        Raises:
            UsageError: ``train()`` was not called, or the file cannot be written.
        """
        if self._run is None:
            raise UsageError("There is nothing to download: train() was not called. Call it first.")
        if self._run.is_main:
            path = pack_results(read_environment().result_dir, Path(out_dir), os.environ.get("DLI_EXECID", "local"))
            sys.stdout.write(f"Save model:  {path}\n")

    def _train(self, plan: TrainArguments, environment: JobEnvironment) -> None:
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
        global _last_run  # noqa: PLW0603 - a process trains once
        self._run = _last_run = run
        engine = self._parts.make_engine(run, plan.batch_size, train_set)
        log = TrainingLog(num_samples, plan.batch_size, num_engines)
        functions = [Memory(name, find_owner(one), engine.kept) for name, one in self._parts.functions.items()]
        callbacks = [Memory(type(callback).__name__, callback, engine.kept) for callback in self._extras.callbacks]
        run.prepare(log, *functions, *callbacks)
        data = Data(train_set, test_set, plan.num_loaders(os.cpu_count() or 1, environment.max_workers))
        asked = environment.max_workers if environment.is_in_job else num_engines
        notice = warn_of_step_size(num_engines, plan.batch_size, asked)
        Loop(run, engine, plan, self._extras, environment, log, data, TurnWatch(functions), notice).run()


# ---------------------------------------------------------------- checks


def _check_functions(**functions: Any) -> None:
    for name, function in functions.items():
        is_needed = name in ("datasets_function", "loss_function")
        if not callable(function) and (is_needed or function is not None):
            raise UsageError(f"{name}={function!r} cannot be called. Give a function.")


def _read_flag(name: str, value: Any) -> bool:
    """Return a boolean, which programs also give as a string of their command line."""
    found = _FLAGS.get(value.strip().lower()) if isinstance(value, str) else value
    if found is None and not isinstance(value, str):
        return False
    if not isinstance(found, bool | int) or found not in (0, 1):
        raise UsageError(f"{name}={value!r} is not a boolean. Give True or False.")
    return bool(found)


def _check_torch(model: Any, optimizer: Any, keras_custom_objects: Any) -> None:
    if not isinstance(model, torch.nn.Module):
        raise UsageError(
            f"model={type(model).__name__} is not a model. Give a torch.nn.Module on the CPU, or a tf.keras.Model."
        )
    if keras_custom_objects is not None:
        raise UsageError("keras_custom_objects is for Keras models; this one is a torch.nn.Module. Leave it out.")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise UsageError(
            f"optimizer={optimizer!r} is not a PyTorch optimizer. Give one, for example "
            "torch.optim.SGD(model.parameters(), lr=0.1)."
        )
    own = {id(parameter) for parameter in model.parameters()}
    if any(id(parameter) not in own for group in optimizer.param_groups for parameter in group["params"]):
        raise UsageError(
            "The optimizer has parameters that are not the model's. Create it with model.parameters(), or with some of "
            "them, after all layers of the model exist."
        )


def _choose(name: str, old: Any, new: Any) -> Any:
    """Return the logger that is given under one of the two names of a parameter, or None."""
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
                f"user_callback contains {callback!r}, which is not a callback. Give instances of classes derived from "
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
                "map-style data sets, with __len__ and __getitem__, for example those of torchvision."
            )
        if not len(dataset):
            raise DataError(f"The data set for {name} is empty. Check the path and the filter in datasets_function.")
    return given[0], given[1]


def _notify(text: str) -> None:
    sys.stdout.write(f"legato: {text}\n")
