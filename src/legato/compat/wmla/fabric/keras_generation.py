"""Recognizes programs that are written for Keras 2 where Keras 3 is installed.

If the package ``tf_keras`` is installed, TensorFlow gives Keras 2 to programs that run with ``TF_USE_LEGACY_KERAS=1``.
Legato sets this variable if the source of a program uses something that only Keras 2 has. If the package is not
installed, or the source does not show it, Legato explains the error with which the program ends. Reads source files;
imports nothing.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

LEGACY: Final = "TF_USE_LEGACY_KERAS"

_OPTIMIZERS: Final = {"Adadelta", "Adagrad", "Adam", "Adamax", "Ftrl", "Nadam", "RMSprop", "SGD"}
_OLD_ARGUMENTS: Final = {"lr", "decay"}
_OLD_NAMES: Final = {"np_utils", "fit_generator", "predict_classes", "predict_proba", "evaluate_generator"}

_SIGNS: Final = {
    "Argument(s) not recognized": "Rename lr= to learning_rate=, and replace decay= by a schedule such as "
    "tf.keras.optimizers.schedules.InverseTimeDecay",
    "optimizers.legacy": "Use the optimizer of the same name in tf.keras.optimizers",
    "np_utils": "Use to_categorical of tf.keras.utils",
    "predict_classes": "Use model.predict(x).argmax(axis=-1)",
    "predict_proba": "Use model.predict(x)",
    "fit_generator": "Use FabricModel.train",
    "absolute path": "Give a file name, and put the file into ~/.keras/datasets",
}


def find_keras_2(program: Path) -> str | None:
    """Return something in a program's source that only Keras 2 has, or None.

    Args:
        program: the script. Legato reads it but does not run it.
    """
    try:
        tree = ast.parse(program.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    if not any(name.partition(".")[0] in ("tensorflow", "keras") for name in _imports(tree)):
        return None
    return next(_signs(tree), None)


def choose_keras(program: Path, environment: Mapping[str, str]) -> tuple[dict[str, str], str | None]:
    """Return the environment variables with which a program should run, and a notice for its log.

    Args:
        program: the script.
        environment: the present variables. If the user has set ``TF_USE_LEGACY_KERAS`` there, nothing changes.
    """
    sign = None if LEGACY in environment else find_keras_2(program)
    if sign is None or not _is_installed("tf_keras"):
        return {}, None
    return {LEGACY: "1"}, f"{program.name} uses {sign} of Keras 2, so it runs with tf_keras ({LEGACY}=1)."


def explain(error: BaseException) -> str | None:
    """Return what to change in a program of Keras 2 that ended with an error under Keras 3; None for other errors."""
    text = str(error)
    if not _is_of_keras(error):
        return None
    for sign, advice in _SIGNS.items():
        if sign in text:
            return (
                f"This program is written for Keras 2, but Keras 3 is installed. {advice}; or install tf_keras, with "
                f"which programs of Keras 2 run unchanged ({LEGACY}=1)."
            )
    return None


def _is_of_keras(error: BaseException) -> bool:
    """Return whether the message of an error or a file of its traceback names Keras."""
    trace, files = error.__traceback__, [str(error)]
    while trace is not None:
        files.append(trace.tb_frame.f_code.co_filename)
        trace = trace.tb_next
    return any("keras" in file for file in files)


def _signs(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), keywords=keywords) if name in _OPTIMIZERS:
                yield from (f"{name}({k.arg}=…)" for k in keywords if k.arg in _OLD_ARGUMENTS)
            case ast.Attribute(value=ast.Attribute(attr="optimizers") | ast.Name(id="optimizers"), attr="legacy"):
                yield "optimizers.legacy"
            case ast.Attribute(attr=name) | ast.Name(id=name) if name in _OLD_NAMES:
                yield name
            case ast.ImportFrom(module=str(module)) if module.endswith("optimizers.legacy"):
                yield "optimizers.legacy"
            case ast.ImportFrom(names=names) if found := [alias.name for alias in names if alias.name in _OLD_NAMES]:
                yield found[0]


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None
