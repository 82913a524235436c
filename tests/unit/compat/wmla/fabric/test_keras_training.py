"""The arguments of a Keras program are checked before the training begins; this needs no TensorFlow."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from legato.compat.wmla.fabric.keras_metrics import default_metrics
from legato.compat.wmla.fabric.keras_training import KerasParts
from legato.core.errors import UsageError


class Model:
    def train_step(self, data: Any) -> Any:
        raise AssertionError


class OwnStep(Model):
    def train_step(self, data: Any) -> Any:
        return super().train_step(data)


KERAS = SimpleNamespace(Model=Model)
OPTIMIZER = SimpleNamespace(apply_gradients=None)


def make_parts(**changes: Any) -> KerasParts:
    return KerasParts(KERAS, Model(), "mse", OPTIMIZER)._replace(**changes)


@pytest.mark.parametrize(
    "changes", [{}, {"optimizer": "adam"}, {"loss": lambda y, x: 0}, {"custom_objects": {"mine": 1}}]
)
def test_arguments_that_keras_accepts_are_accepted(changes: dict[str, Any]) -> None:
    make_parts(**changes).check(fn_step_train=None, fn_test=None)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"loss": None}, "loss_function=None is not a loss"),
        ({"optimizer": object}, "is not a Keras optimizer"),
        ({"custom_objects": ["mine"]}, r"keras_custom_objects=\['mine'\] is not a dict"),
        ({"model": OwnStep()}, r"OwnStep defines train_step\(\), but FabricModel does not call it"),
    ],
)
def test_other_arguments_are_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        make_parts(**changes).check()


def test_steps_of_torch_programs_are_refused() -> None:
    with pytest.raises(UsageError, match="fn_test is for PyTorch models"):
        make_parts().check(fn_step_train=None, fn_test=print)


def test_names_of_the_programs_own() -> None:
    parts = make_parts(custom_objects={"distance": print})
    assert parts.own("distance") is print and parts.own("mse") == "mse" and parts.own(len) is len


def test_a_classifier_has_an_accuracy() -> None:
    assert default_metrics("sparse_categorical_crossentropy", 0) == ["accuracy"]
    assert default_metrics(type("BinaryCrossentropy", (), {})(), 0) == ["accuracy"]
    assert default_metrics("mse", 0) == default_metrics("categorical_crossentropy", {"a": 0}) == []
