"""Metrics of Keras, exact over all samples, on any number of workers.

A metric of Keras keeps variables to which every batch adds: sums and counts, hits by threshold, a matrix of confusion.
So a metric over all samples is: the variables of each micro-batch alone, their sums, and what the metric makes of them.
That holds for every metric that starts from zero and adds, not just for means; any other is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from legato.compat.wmla.fabric.keras_variables import view
from legato.core.errors import UsageError

_ACCURACY = ("accuracy", "acc", "Accuracy")


class Metrics:
    """Some metrics of a model with one output.

    Args:
        keras: that the model is made with.
        metrics: strings, functions of (targets, outputs), classes or metrics.
        targets: of an example.
        outputs: of the model for it.

    Raises:
        UsageError: a metric is unknown, or is none that sums what batches add.
    """

    def __init__(self, keras: Any, metrics: Sequence[Any], targets: Any, outputs: Any) -> None:
        self._metrics: dict[str, Any] = {}
        for asked in metrics:
            metric = _resolve(keras, asked, targets, outputs)
            name = asked if isinstance(asked, str) else str(metric.name)
            _check_adds(name, metric, targets, outputs)
            self._metrics[name] = metric

    @property
    def names(self) -> list[str]:
        """The names of the metrics."""
        return list(self._metrics)

    def of_batch(self, targets: Any, outputs: Any) -> dict[str, float]:
        """Return the metrics of one micro-batch alone."""
        values = {}
        for name, metric in self._metrics.items():
            _reset(metric)
            metric.update_state(targets, outputs)
            values[name] = _number(metric.result())
        return values

    def parts(self, num_samples: int) -> dict[str, torch.Tensor]:
        """Return what the batch of the last `of_batch` adds, as an evaluation of the runtime takes it: by its mean.

        Shapes:
            float64 ``[num_samples]`` each: the number stands first, the rest is zero.
        """
        parts = {}
        for name, metric in self._metrics.items():
            for place, variable in enumerate(metric.variables):
                for index, number in enumerate(view(variable).reshape(-1).to("cpu", torch.float64)):
                    part = torch.zeros(num_samples, dtype=torch.float64)
                    part[0] = number
                    parts[f"{name}/{place}/{index}"] = part
        return parts

    def put_together(self, means: Mapping[str, float], num_samples: int) -> dict[str, float]:
        """Return the metrics over all samples.

        Args:
            means: of `parts`.
            num_samples: over how many.
        """
        values = {}
        for name, metric in self._metrics.items():
            _reset(metric)
            for place, variable in enumerate(metric.variables):
                shape = tuple(variable.shape)
                sums = [means[f"{name}/{place}/{index}"] * num_samples for index in range(int(np.prod(shape)))]
                numbers = np.array(sums, dtype=np.float64).reshape(shape)
                dtype = view(variable).numpy().dtype
                variable.assign((np.rint(numbers) if dtype.kind in "iu" else numbers).astype(dtype))
            values[name] = _number(metric.result())
        return values


def default_metrics(loss: Any, outputs: Any) -> list[str]:
    """Return the metrics of a program that names none: the accuracy of a classifier, which old loggers ask for."""
    if isinstance(outputs, Mapping | list | tuple):
        return []
    name = loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
    return ["accuracy"] if "crossentropy" in str(name).lower().replace("_", "") else []


def _resolve(keras: Any, asked: Any, targets: Any, outputs: Any) -> Any:
    if isinstance(asked, str) and asked in _ACCURACY:
        return _accuracy(keras, targets, outputs)()
    if isinstance(asked, str):
        try:
            found = keras.metrics.get(asked)
        except ValueError as error:
            raise UsageError(f"There is no metric {asked!r} in Keras. {error}") from error
    else:
        found = asked
    if isinstance(found, type):
        found = found()
    if hasattr(found, "update_state"):
        return found
    if callable(found):
        return keras.metrics.MeanMetricWrapper(found, name=getattr(found, "__name__", type(found).__name__))
    raise UsageError(
        f"metrics has {asked!r}, which is no metric. Give names, functions of (targets, outputs) or tf.keras.metrics."
    )


def _accuracy(keras: Any, targets: Any, outputs: Any) -> Callable[[], Any]:
    """Return what Keras means by "accuracy", given the shapes."""
    if isinstance(outputs, Mapping | list | tuple):
        raise UsageError(
            "'accuracy' has no meaning for a model with several outputs. Give functions as metrics instead."
        )
    classes, num_target_axes, num_axes = outputs.shape[-1], len(targets.shape), len(outputs.shape)
    if num_axes < 2 or classes == 1:
        kind: Callable[[], Any] = keras.metrics.BinaryAccuracy
    elif num_target_axes < num_axes or targets.shape[-1] == 1:
        kind = keras.metrics.SparseCategoricalAccuracy
    else:
        kind = keras.metrics.CategoricalAccuracy
    return kind


def _check_adds(name: str, metric: Any, targets: Any, outputs: Any) -> None:
    """Raise UsageError unless a metric begins with zeros, and the same batch twice gives twice what it gives once."""
    states = []
    _reset(metric)
    metric.update_state(targets, outputs)
    _reset(metric)
    for _ in range(3):
        states.append([view(variable).numpy().astype(np.float64) for variable in metric.variables])
        metric.update_state(targets, outputs)
    begin, once, twice = states
    if any(map(np.any, begin)) or not all(np.allclose(2 * one, two) for one, two in zip(once, twice, strict=True)):
        raise UsageError(
            f"The metric {name} does not add what each batch gives to what it began with as zero, so its value would "
            "depend on how many workers compute it. Take a function of (targets, outputs), with a value per sample."
        )


def _reset(metric: Any) -> None:
    reset: Callable[[], None] = getattr(metric, "reset_state", None) or metric.reset_states
    reset()


def _number(result: Any) -> float:
    return float(np.mean(np.asarray(result)))
