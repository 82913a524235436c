"""The objects of a notebook as files of a program that trains them elsewhere, and back. Sends nothing.

Everything goes into one pickle (cloudpickle), so that the optimizer there has the parameters of the model there.
Functions and classes that were written in the notebook, or in modules that lie in its folder, travel by value; Keras
models in the format of Keras, which is what they are pickled as. What all of them import must be there on the platform.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import pickle
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

import cloudpickle

from legato.compat.wmla.fabric.keras_variables import is_keras_2, keras_of
from legato.core.errors import MismatchError, UsageError

PROGRAM: Final = "main.py"
_PICKLE: Final = "model.pickle"
_VERSIONS: Final = "versions.json"
_PROTOCOL: Final = 5
_SOURCE: Final = b'''"""Trains the model that a notebook has sent. Written by Legato."""

from pathlib import Path

from legato.compat.wmla.notebook.notebook_bundle import train_parcel

train_parcel(Path(__file__).parent)
'''
_PACKAGES: Final = ("torch", "cloudpickle", "keras", "tf_keras", "tensorflow")
_KERAS_2_KINDS: Final = ("Optimizer", "OptimizerV2", "Metric", "Loss")


class NotebookBundle(NamedTuple):
    """What is sent.

    Args:
        given: the arguments of ``FabricModel``, by name.
        asked: those of ``train()``, by name.
    """

    given: Mapping[str, Any]
    asked: Mapping[str, Any]


def make_files(bundle: NotebookBundle, folder: Path | None = None) -> dict[str, bytes]:
    """Return the files of a program that trains what is in a bundle, by name; `PROGRAM` is the one to run.

    Args:
        bundle: what to send.
        folder: modules in it travel by value. None: the present directory.

    Raises:
        UsageError: something of it cannot be sent; says what.
    """
    with _by_value(Path.cwd() if folder is None else folder):
        content = _pickle(bundle)
    versions = json.dumps({"python": _python(), "packages": _loaded_versions()}, indent=1)
    return {PROGRAM: _SOURCE, _PICKLE: content, _VERSIONS: versions.encode()}


def open_bundle(directory: Path) -> NotebookBundle:
    """Return what was sent, on the platform.

    Args:
        directory: with the files of `make_files`.

    Raises:
        MismatchError: the notebook has another Python, or cannot be read with the packages that are here.
    """
    there = json.loads((directory / _VERSIONS).read_text())
    if there["python"] != _python():
        raise MismatchError(
            f"The notebook has Python {there['python']}, and the platform {_python()}: functions cannot be "
            f"transferred between them. Give the notebook a kernel of Python {_python()}, or submit a program."
        )
    differences = _compare(there["packages"])
    if differences:
        sys.stderr.write(f"legato: The notebook's packages differ from the platform's: {'; '.join(differences)}.\n")
    try:
        with (directory / _PICKLE).open("rb") as file:
            package, own = pickle.load(file)  # noqa: S301 - it is the program of this job
            with _known_to_keras(package, own):
                given, asked = pickle.load(file)  # noqa: S301 - likewise
    except ModuleNotFoundError as error:
        raise MismatchError(
            f"The notebook needs the module '{error.name}', which is not installed on the platform. "
            "Install it where the server runs, or put the module into the notebook's folder, from where it is sent."
        ) from error
    except Exception as error:
        # Whatever it is that another release of a package does not understand.
        told = f" Perhaps because of this: {'; '.join(differences)}." if differences else ""
        raise MismatchError(f"The data of the notebook cannot be read: {_tell(error)}.{told}") from error
    return NotebookBundle(given, asked)


def train_parcel(directory: Path) -> None:
    """Train what was sent, in a job, as a program would.

    Args:
        directory: as of `open_bundle`.
    """
    from legato.compat.wmla.fabric.model import FabricModel

    bundle = open_bundle(directory)
    FabricModel(**bundle.given).train(**bundle.asked)


# ---------------------------------------------------------------- there


class _Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]  # it has no types
    """Also takes apart what Keras 2 does not: optimizers, metrics and losses are their class and configuration."""

    def reducer_override(self, thing: Any) -> Any:
        """Return how a thing is put together again."""
        for kind in type(thing).__mro__:
            package = kind.__module__.partition(".")[0]
            if kind.__name__ in _KERAS_2_KINDS and package in ("keras", "tf_keras"):
                keras = sys.modules.get(package)
                if keras is not None and is_keras_2(keras):
                    return _rebuild, (type(thing), thing.get_config())
        return super().reducer_override(thing)


def _rebuild(kind: Any, configuration: Mapping[str, Any]) -> Any:
    return kind.from_config(dict(configuration))


def _dump(thing: Any) -> bytes:
    made = io.BytesIO()
    _Pickler(made, _PROTOCOL).dump(thing)
    return made.getvalue()


def _pickle(bundle: NotebookBundle) -> bytes:
    try:
        # Two, one after the other: names that a Keras model is made of must be known when it is read.
        return _dump(_own_objects_of_keras(bundle.given)) + _dump(tuple(bundle))
    except Exception as error:
        # Whatever an object does when it is pickled; its own words say best what is wrong.
        guilty = [f"{name}: {why}" for name, why in _find_guilty(bundle.given)]
        raise UsageError(
            f"Cannot send {'; '.join(guilty) or _tell(error)}. Open files, locks and connections inside of it, or "
            "submit a program."
        ) from error


def _find_guilty(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in given.items():
        try:
            _dump(value)
        except Exception as error:  # noqa: BLE001 - as above
            yield name, _tell(error)


@contextlib.contextmanager
def _by_value(folder: Path) -> Iterator[None]:
    """Let functions and classes of modules in a folder be pickled with their code."""
    modules = list(_modules_in(folder.resolve()))
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def _modules_in(folder: Path) -> Iterator[ModuleType]:
    keys = ("purelib", "platlib", "stdlib", "platstdlib")
    installed = [Path(place).resolve() for key in keys if (place := sysconfig.get_path(key))]
    known = cloudpickle.list_registry_pickle_by_value()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        is_own = name in ("__main__", "__mp_main__") or name.partition(".")[0] == "legato" or name in known
        if is_own or file is None or getattr(module, "__name__", None) != name:
            continue
        path = Path(file).resolve()
        if path.is_relative_to(folder) and not any(path.is_relative_to(place) for place in installed):
            yield module


def _own_objects_of_keras(given: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Return with which package a Keras model is made, and what names of the program's own stand for in it."""
    keras = keras_of(given.get("model"))
    if keras is None:
        return None, {}
    return keras.__name__, {**keras.utils.get_custom_objects(), **(given.get("keras_custom_objects") or {})}


# ---------------------------------------------------------------- here


@contextlib.contextmanager
def _known_to_keras(package: str | None, own: Mapping[str, Any]) -> Iterator[None]:
    if package is None:
        yield
        return
    # TensorFlow first: its Keras is that one, and its number of threads is set there.
    importlib.import_module("tensorflow")
    with importlib.import_module(package).utils.custom_object_scope(dict(own)):
        yield


def _compare(there: Mapping[str, str]) -> list[str]:
    return [
        f"{name} {version} in the notebook, {version_here} here"
        for name, version in there.items()
        if _public(version) != _public(version_here := _version(name))
    ]


# ---------------------------------------------------------------- both


def _python() -> str:
    return ".".join(map(str, sys.version_info[:2]))


def _loaded_versions() -> dict[str, str]:
    """Return the versions of packages that matter, as far as they are loaded."""
    return {name: _version(name) for name in _PACKAGES if name in sys.modules}


def _version(name: str) -> str:
    for distribution in (name, f"{name}-cpu"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(distribution)
    return "none"


def _public(version: str) -> str:
    """Return a version without what says how it was built."""
    return version.partition("+")[0]


def _tell(error: BaseException) -> str:
    return f"{error}" or type(error).__name__
