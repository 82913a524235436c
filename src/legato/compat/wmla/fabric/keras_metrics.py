"""Computes Keras metrics exactly over all samples, on any number of workers.

A Keras metric has variables to which every batch adds: sums and counts, hits per threshold, a confusion matrix. To
compute a metric over all samples, Legato computes its variables for each micro-batch alone, sums them, and lets the
metric compute its result from the sums. This is right for every metric whose variables start at zero and only add up,
not just for means. Legato refuses other metrics.
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
    """The metrics of a model.

    Args:
        keras: the Keras module that the model is made with.
        metrics: names, functions of (targets, outputs), classes or instances of Keras metrics.
        targets: of an example batch.
        outputs: of the model for the same batch.

    Raises:
        UsageError: a metric is unknown, or its variables do not add up over batches.
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
        """Return the metrics of one micro-batch."""
        values = {}
        for name, metric in self._metrics.items():
            _reset(metric)
            metric.update_state(targets, outputs)
            values[name] = _number(metric.result())
        return values

    def parts(self, num_samples: int) -> dict[str, torch.Tensor]:
        """Return the variables of all metrics after the last `of_batch`, as values per sample for ``run.evaluate``.

        ``run.evaluate`` returns means over samples, so each number of a variable becomes a tensor with this sum.

        Shapes:
            float64 ``[num_samples]`` each: the number is the first element, the others are zero.
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
            means: of the tensors of `parts`, over all samples.
            num_samples: number of all samples.
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
    """Return the metrics of a program that gives none: accuracy, which old loggers expect, if it is a classifier."""
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
        f"metrics contains {asked!r}, which is not a metric. Give names, functions of (targets, outputs) or metrics of "
        "tf.keras.metrics."
    )


def _accuracy(keras: Any, targets: Any, outputs: Any) -> Callable[[], Any]:
    """Return the metric class that Keras chooses for "accuracy", given the shapes of outputs and targets."""
    if isinstance(outputs, Mapping | list | tuple):
        raise UsageError(
            "'accuracy' is not defined for a model with several outputs. Give functions as metrics instead."
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
    """Raise UsageError unless a metric's variables start at zero and a second update with a batch doubles them."""
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
            f"The variables of the metric {name} do not start at zero and add up over batches, so its value would "
            "depend on the number of workers. Use a function of (targets, outputs) that returns a value per sample."
        )


def _reset(metric: Any) -> None:
    reset: Callable[[], None] = getattr(metric, "reset_state", None) or metric.reset_states
    reset()


def _number(result: Any) -> float:
    return float(np.mean(np.asarray(result)))
