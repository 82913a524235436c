"""Forward and backward passes of a Keras model in TensorFlow, compiled once per shape of a batch.

What a pass computes is a function of the weights, the batch and the seeds that are set before it. Where the graph of a
model draws from generators that a compiled function would carry on, passes are run operation by operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from legato.compat.wmla.fabric.keras_variables import tensorflow
from legato.train.data.seeds import untouched


class Found(NamedTuple):
    """What a forward and a backward pass gave.

    Args:
        loss: mean over the samples of the micro-batch, with the model's regularisation.
        outputs: of the model.
        gradients: dense, one per trainable variable; None where the loss does not depend on it.
    """

    loss: Any
    outputs: Any
    gradients: list[Any]


class Passes:
    """The passes of a compiled model.

    Args:
        model: `compile` was called.
        is_keras_2: it has the interfaces of Keras 2.
    """

    def __init__(self, model: Any, *, is_keras_2: bool) -> None:
        self._tf = tensorflow()
        self._model = model
        self._trainable: tuple[Any, ...] = ()
        self._is_keras_2 = is_keras_2
        self._compiled = self._tf.function(self._train_eagerly)
        self._infer = self._tf.function(lambda inputs: self._model(inputs, training=False))
        self._draws: dict[Any, bool] = {}

    def to_tensors(self, part: Any) -> Any:
        """Return arrays, however nested, as tensors."""
        return self._tf.nest.map_structure(self._tf.convert_to_tensor, part)

    def infer(self, inputs: Any) -> Any:
        """Return the outputs of the model in evaluation mode."""
        return self._infer(inputs)

    def loss(self, inputs: Any, targets: Any, outputs: Any) -> Any:
        """Return the loss of outputs in evaluation mode: mean over the samples."""
        return self._compute_loss(inputs, targets, outputs, training=False)

    def settle(self, trainable: Sequence[Any]) -> None:
        """Say which variables are trained, before the first pass in training mode; the model is built."""
        self._trainable = tuple(trainable)
        if self._is_keras_2:
            _make_settable(self._model)

    def train(self, inputs: Any, targets: Any, draw: Callable[[], int]) -> Found:
        """Run a forward and a backward pass in training mode.

        Args:
            inputs: tensors.
            targets: likewise.
            draw: gives numbers below 2**31, from which everything random in this pass follows.
        """
        with untouched():
            # Compiling runs the model's Python, and each worker compiles at a moment of its own.
            draws_hidden = self._draws_hidden(inputs, targets)
        self._set_seeds(draw, everywhere=draws_hidden)
        run = self._train_eagerly if draws_hidden else self._compiled
        return Found(*run(inputs, targets))

    def _train_eagerly(self, inputs: Any, targets: Any) -> tuple[Any, Any, list[Any]]:
        optimizer = self._model.optimizer
        with self._tf.GradientTape() as tape:
            outputs = self._model(inputs, training=True)
            loss = self._compute_loss(inputs, targets, outputs, training=True)
            scaled = optimizer.scale_loss(loss) if hasattr(optimizer, "scale_loss") else loss
        gradients = tape.gradient(scaled, self._trainable)
        dense = [None if gradient is None else self._tf.convert_to_tensor(gradient) for gradient in gradients]
        return loss, outputs, dense

    def _compute_loss(self, inputs: Any, targets: Any, outputs: Any, *, training: bool) -> Any:
        if self._is_keras_2:
            return self._model.compute_loss(x=inputs, y=targets, y_pred=outputs)
        return self._model.compute_loss(x=inputs, y=targets, y_pred=outputs, training=training)

    def make_apply(self, optimizer: Any, trainable: Sequence[Any]) -> Callable[[list[Any]], None]:
        """Return what lets the optimizer act on gradients."""

        def apply(gradients: list[Any]) -> None:
            pairs = [pair for pair in zip(gradients, trainable, strict=True) if pair[0] is not None]
            optimizer.apply_gradients(pairs)

        compiled: Callable[[list[Any]], None] = self._tf.function(apply)
        return compiled

    # ------------------------------------------------------------ random numbers

    def _set_seeds(self, draw: Callable[[], int], *, everywhere: bool) -> None:
        for variable in self._seed_states():
            variable.assign(np.array([draw(), 0], dtype=variable.dtype))
        for generator in self._generators():
            generator.reset_from_seed(draw())
        if everywhere:
            self._tf.random.set_seed(draw())

    def _seed_states(self) -> list[Any]:
        """Return the states of the generators of Keras 3: variables of the model that are no weights."""
        if self._is_keras_2:
            return []
        weights = {id(variable) for variable in self._model.weights}
        return [
            variable
            for variable in self._model.variables
            if id(variable) not in weights and variable.path.rpartition("/")[2] == "seed_generator_state"
        ]

    def _generators(self) -> list[Any]:
        """Return the generators of Keras 2 that carry on from draw to draw."""
        if not self._is_keras_2:
            return []
        holders = (getattr(module, "_random_generator", None) for module in self._model.submodules)
        found = (getattr(holder, "_generator", None) for holder in holders)
        return [generator for generator in found if generator is not None]

    def _draws_hidden(self, inputs: Any, targets: Any) -> bool:
        """Tell whether the graph for such a batch holds operations that keep a random state of their own."""
        key = tuple((part.shape, part.dtype) for part in self._tf.nest.flatten((inputs, targets)))
        known = self._draws.get(key)
        if known is None:
            definition = self._compiled.get_concrete_function(inputs, targets).graph.as_graph_def()
            nodes = [
                *definition.node,
                *(node for function in definition.library.function for node in function.node_def),
            ]
            known = self._draws[key] = any(node.op in _HIDDEN for node in nodes)
        return known


def _make_settable(model: Any) -> None:
    """Let layers of Keras 2 draw from generators that can be set, not from operations with a state inside of them."""
    for module in model.submodules:
        holder: Any = getattr(module, "_random_generator", None)
        if getattr(holder, "_rng_type", None) == "legacy_stateful":
            holder._rng_type, holder._built = "stateful", False
            holder._maybe_init()


_HIDDEN: Final = frozenset(
    {
        "Multinomial",
        "ParameterizedTruncatedNormal",
        "RandomGamma",
        "RandomPoisson",
        "RandomPoissonV2",
        "RandomShuffle",
        "RandomStandardNormal",
        "RandomUniform",
        "RandomUniformInt",
        "TruncatedNormal",
        "AllCandidateSampler",
        "FixedUnigramCandidateSampler",
        "LearnedUnigramCandidateSampler",
        "LogUniformCandidateSampler",
        "ThreadUnsafeUnigramCandidateSampler",
        "UniformCandidateSampler",
        "RandomCrop",
        "EagerPyFunc",
        "PyFunc",
        "PyFuncStateless",
    }
)
"""Operations of TensorFlow that draw from an internal state; those that receive the state are ``Stateless…``."""
