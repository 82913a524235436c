"""Packs the objects of a notebook into the files of a program that trains them in a job, and unpacks them there.

Everything goes into one pickle (cloudpickle), so that the optimizer in the job has the parameters of the model there.
Functions and classes of the notebook, or of modules in its folder, are sent with their code; Keras models in the format
of Keras. All other modules that these objects import must be installed on the platform. Sends nothing.
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
    """The objects of a notebook that a job needs.

    Args:
        given: the arguments of ``FabricModel`` by name.
        asked: the arguments of ``train()`` by name.
    """

    given: Mapping[str, Any]
    asked: Mapping[str, Any]


def make_files(bundle: NotebookBundle, folder: Path | None = None) -> dict[str, bytes]:
    """Return the files of a program that trains a bundle, by name; `PROGRAM` is the main file.

    Args:
        bundle: the notebook's objects.
        folder: modules in this folder are sent with their code. None: the working directory.

    Raises:
        UsageError: an object cannot be pickled; the message names it.
    """
    with _by_value(Path.cwd() if folder is None else folder):
        content = _pickle(bundle)
    versions = json.dumps({"python": _python(), "packages": _loaded_versions()}, indent=1)
    return {PROGRAM: _SOURCE, _PICKLE: content, _VERSIONS: versions.encode()}


def open_bundle(directory: Path) -> NotebookBundle:
    """Return the bundle of a notebook, in a job.

    Args:
        directory: has the files of `make_files`.

    Raises:
        MismatchError: the notebook has another Python, or the bundle cannot be read with the platform's packages.
    """
    there = json.loads((directory / _VERSIONS).read_text())
    if there["python"] != _python():
        raise MismatchError(
            f"The notebook has Python {there['python']}, but the platform has Python {_python()}. Functions cannot be "
            f"sent from one to the other. Use a kernel with Python {_python()}, or submit a program."
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
            "Install it in the server's Python, or put the module into the notebook's folder, so that it is sent."
        ) from error
    except Exception as error:
        # Another release of a package may raise any error here.
        cause = f" Different packages may be the cause: {'; '.join(differences)}." if differences else ""
        raise MismatchError(f"The notebook's objects cannot be read: {_describe(error)}.{cause}") from error
    return NotebookBundle(given, asked)


def train_parcel(directory: Path) -> None:
    """Train the model of a notebook, in a job. The main files of stored jobs import this function.

    Args:
        directory: has the files of `make_files`.
    """
    from legato.compat.wmla.fabric.model import FabricModel

    bundle = open_bundle(directory)
    FabricModel(**bundle.given).train(**bundle.asked)


# ---------------------------------------------------------------- in the notebook


class _Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]  # it has no types
    """Also pickles optimizers, metrics and losses of Keras 2, by their class and configuration."""

    def reducer_override(self, thing: Any) -> Any:
        """Return the function and the arguments that create an object again."""
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
        # Two pickles: the custom objects of a Keras model must be known before the model is read.
        return _dump(_custom_objects_of_keras(bundle.given)) + _dump(tuple(bundle))
    except Exception as error:
        # An object may raise any error when it is pickled; its message explains best what is wrong.
        causes = [f"{name}: {why}" for name, why in _find_unpicklable(bundle.given)]
        raise UsageError(
            f"Cannot send {'; '.join(causes) or _describe(error)}. Open files, locks and connections inside of it, or "
            "submit a program."
        ) from error


def _find_unpicklable(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in given.items():
        try:
            _dump(value)
        except Exception as error:  # noqa: BLE001 - as above
            yield name, _describe(error)


@contextlib.contextmanager
def _by_value(folder: Path) -> Iterator[None]:
    """Pickle functions and classes of modules in a folder with their code, while the context is open."""
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


def _custom_objects_of_keras(given: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Return the package of a Keras model and its custom objects by their names; None and {} for other models."""
    keras = keras_of(given.get("model"))
    if keras is None:
        return None, {}
    return keras.__name__, {**keras.utils.get_custom_objects(), **(given.get("keras_custom_objects") or {})}


# ---------------------------------------------------------------- in the job


@contextlib.contextmanager
def _known_to_keras(package: str | None, own: Mapping[str, Any]) -> Iterator[None]:
    if package is None:
        yield
        return
    # TensorFlow first: it chooses which Keras is used, and its number of threads is set at import.
    importlib.import_module("tensorflow")
    with importlib.import_module(package).utils.custom_object_scope(dict(own)):
        yield


def _compare(there: Mapping[str, str]) -> list[str]:
    return [
        f"{name} {version} in the notebook, {version_here} here"
        for name, version in there.items()
        if _public(version) != _public(version_here := _version(name))
    ]


# ---------------------------------------------------------------- versions and errors, in both


def _python() -> str:
    return ".".join(map(str, sys.version_info[:2]))


def _loaded_versions() -> dict[str, str]:
    """Return the versions of the loaded packages that must match."""
    return {name: _version(name) for name in _PACKAGES if name in sys.modules}


def _version(name: str) -> str:
    for distribution in (name, f"{name}-cpu"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(distribution)
    return "none"


def _public(version: str) -> str:
    """Return a version without its local part, such as ``+cpu``."""
    return version.partition("+")[0]


def _describe(error: BaseException) -> str:
    return f"{error}" or type(error).__name__
