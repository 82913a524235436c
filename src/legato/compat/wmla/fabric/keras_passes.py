"""Runs forward and backward passes of a Keras model in TensorFlow, compiled once per shape of a batch.

The result of a pass depends only on the weights, the batch and the random seeds, which are set before each pass. If the
model's graph has random operations with an internal state, which cannot be seeded in a compiled function, passes run
eagerly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from legato.compat.wmla.fabric.keras_variables import tensorflow
from legato.train.data.seeds import untouched


class PassResult(NamedTuple):
    """The result of a forward and a backward pass.

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
        model: its ``compile`` was called.
        is_keras_2: whether the model has the interfaces of Keras 2.
    """

    def __init__(self, model: Any, *, is_keras_2: bool) -> None:
        self._tf = tensorflow()
        self._model = model
        self._trainable: tuple[Any, ...] = ()
        self._is_keras_2 = is_keras_2
        self._compiled = self._tf.function(self._train_eagerly)
        self._infer = self._tf.function(lambda inputs: self._model(inputs, training=False))
        self._is_stateful: dict[Any, bool] = {}

    def to_tensors(self, part: Any) -> Any:
        """Return nested arrays as nested tensors."""
        return self._tf.nest.map_structure(self._tf.convert_to_tensor, part)

    def infer(self, inputs: Any) -> Any:
        """Return the outputs of the model in evaluation mode."""
        return self._infer(inputs)

    def loss(self, inputs: Any, targets: Any, outputs: Any) -> Any:
        """Return the loss of outputs in evaluation mode, the mean over the samples."""
        return self._compute_loss(inputs, targets, outputs, training=False)

    def set_trainable(self, trainable: Sequence[Any]) -> None:
        """Set the variables that are trained. Call this after the model is built and before the first training pass."""
        self._trainable = tuple(trainable)
        if self._is_keras_2:
            _make_reseedable(self._model)

    def train(self, inputs: Any, targets: Any, draw: Callable[[], int]) -> PassResult:
        """Run a forward and a backward pass in training mode.

        Args:
            inputs: tensors.
            targets: tensors.
            draw: returns a random number below 2**31; all randomness of this pass is seeded with its numbers.
        """
        with untouched():
            # Compiling runs the model's Python code, and each worker compiles at a different time.
            is_stateful = self._has_stateful_random(inputs, targets)
        self._set_seeds(draw, with_global_seed=is_stateful)
        run = self._train_eagerly if is_stateful else self._compiled
        return PassResult(*run(inputs, targets))

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
        """Return a compiled function that applies gradients with the optimizer."""

        def apply(gradients: list[Any]) -> None:
            pairs = [pair for pair in zip(gradients, trainable, strict=True) if pair[0] is not None]
            optimizer.apply_gradients(pairs)

        compiled: Callable[[list[Any]], None] = self._tf.function(apply)
        return compiled

    # ------------------------------------------------------------ random numbers

    def _set_seeds(self, draw: Callable[[], int], *, with_global_seed: bool) -> None:
        for variable in self._seed_states():
            variable.assign(np.array([draw(), 0], dtype=variable.dtype))
        for generator in self._generators():
            generator.reset_from_seed(draw())
        if with_global_seed:
            self._tf.random.set_seed(draw())

    def _seed_states(self) -> list[Any]:
        """Return the states of the random generators of Keras 3: variables of the model that are not weights."""
        if self._is_keras_2:
            return []
        weights = {id(variable) for variable in self._model.weights}
        return [
            variable
            for variable in self._model.variables
            if id(variable) not in weights and variable.path.rpartition("/")[2] == "seed_generator_state"
        ]

    def _generators(self) -> list[Any]:
        """Return the random generators of Keras 2 that the model's layers hold."""
        if not self._is_keras_2:
            return []
        holders = (getattr(module, "_random_generator", None) for module in self._model.submodules)
        found = (getattr(holder, "_generator", None) for holder in holders)
        return [generator for generator in found if generator is not None]

    def _has_stateful_random(self, inputs: Any, targets: Any) -> bool:
        """Return whether the graph for such a batch has random operations with an internal state."""
        key = tuple((part.shape, part.dtype) for part in self._tf.nest.flatten((inputs, targets)))
        known = self._is_stateful.get(key)
        if known is None:
            definition = self._compiled.get_concrete_function(inputs, targets).graph.as_graph_def()
            nodes = [
                *definition.node,
                *(node for function in definition.library.function for node in function.node_def),
            ]
            known = self._is_stateful[key] = any(node.op in _STATEFUL_RANDOM for node in nodes)
        return known


def _make_reseedable(model: Any) -> None:
    """Make layers of Keras 2 use generators that can be seeded instead of operations with an internal state."""
    for module in model.submodules:
        holder: Any = getattr(module, "_random_generator", None)
        if getattr(holder, "_rng_type", None) == "legacy_stateful":
            holder._rng_type, holder._built = "stateful", False
            holder._maybe_init()


_STATEFUL_RANDOM: Final = frozenset(
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
"""TensorFlow's random operations with an internal state, unlike ``Stateless…``, and operations that run Python code."""
