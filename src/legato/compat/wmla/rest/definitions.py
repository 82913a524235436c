"""Offers WMLA's elastic frameworks to training definitions, so that these can run programs of FabricModel.

Such a job has the same launcher, directories, variables and labels as a submission to WMLA's interface, so WMLA's
clients can see and control it. Its code is not repacked: the platform copies it to where the launcher expects it. Pure.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from legato.compat.wmla import names
from legato.compat.wmla.arguments import hide_secrets
from legato.compat.wmla.frameworks import FRAMEWORKS
from legato.compat.wmla.rest.bundles import MAC_FILES
from legato.compat.wmla.rest.records import split_label
from legato.core.errors import BadField
from legato.core.frameworks import DistributedName, Launcher, Prepared, Wanted, check_in_code, drop_python

_LAUNCHER: Final = "legato.compat.wmla.site.launch"
RUNTIMES: Final = ("pytorch-onnx 1.1-py 3.6", "pytorch-onnx 1.3-py 3.7", "tensorflow 2.1-py 3.7")
"""Names of frameworks in IBM's documents of training definitions."""
_FABRIC: Final = frozenset({"fabric_model", "pyedt"})
"""The modules that programs of FabricModel import."""
_TENSORFLOW: Final = frozenset({"tensorflow", "keras", "tf_keras"})
_TITLES: Final = {
    "edtPyTorch": "PyTorch, elastic (FabricModel)",
    "edtTensorflow": "TensorFlow, elastic (FabricModel)",
}


@dataclass(frozen=True)
class FabricPrograms:
    """Programs of FabricModel, as a `legato.core.frameworks.Framework`.

    Args:
        name: of WMLA's framework.
        data_root: the directory of all data on the machines.
        distributed: the kinds of distribution that a training definition may choose.
    """

    name: str
    data_root: str
    distributed: Sequence[DistributedName] = ("single", "static", "elastic")

    @property
    def title(self) -> str:
        """The name that the console shows."""
        return _TITLES[self.name]

    @property
    def description(self) -> str:
        """The description that the console shows."""
        return f"{FRAMEWORKS[self.name].sentences[0]} Each node is a worker with one slot."

    def prepare(self, wanted: Wanted) -> Prepared:
        """Return the program of a job.

        Raises:
            BadField: no code was uploaded, or the program is not in it.
        """
        if wanted.files is None:
            raise BadField(
                "directory", f"{self.name} needs uploaded code. Upload the program instead of naming a directory."
            )
        words = drop_python(wanted.words, "Write the main file and its arguments, such as 'main.py --lr 1'.")
        folder, main = _find_main(words[0], wanted.files, wanted.name)
        return Prepared(
            program=(main, *words[1:]),
            launcher=Launcher(
                module=_LAUNCHER,
                script=main,
                folder=folder,
                # The launcher sets variables that configure TensorFlow, so TensorFlow must not be loaded before.
                preloads=FRAMEWORKS[self.name].backend == "pytorch",
                environment=self._find_variables(wanted),
            ),
            labels=self._find_labels(wanted, main, words),
        )

    def recognises(self, imports: Collection[str]) -> bool:
        """Return whether a program imports FabricModel and is written for this framework's library."""
        backend = "tensorflow" if _TENSORFLOW.intersection(imports) and "torch" not in imports else "pytorch"
        return bool(_FABRIC.intersection(imports)) and FRAMEWORKS[self.name].backend == backend

    def _find_variables(self, wanted: Wanted) -> dict[str, str]:
        framework = FRAMEWORKS[self.name]
        data = PurePosixPath(wanted.data or self.data_root)
        is_below = data.is_relative_to(self.data_root) and wanted.data is not None
        return {
            names.DATA_ROOT: self.data_root,
            names.DATA_DIRECTORY: str(data),
            names.DATA_PATH: str(data.relative_to(self.data_root)) if is_below else "",
            names.FRAMEWORK: framework.name,
            names.BACKEND: framework.backend,
            names.IS_ELASTIC: "true",
            names.USER: wanted.user,
            names.APPLICATION: self._name_application(wanted),
            names.MAX_WORKERS: str(wanted.max_nodes),
        }

    def _find_labels(self, wanted: Wanted, main: str, words: Sequence[str]) -> dict[str, str]:
        arguments = ["--exec-start", self.name, "--numWorker", str(wanted.max_nodes), "--model-main", *words]
        return {
            names.MARK_LABEL: names.MARK,
            names.FRAMEWORK_LABEL: self.name,
            names.APPLICATION_LABEL: self._name_application(wanted)[:255],
            names.MODEL_LABEL: main[:255],
            names.DEVICES_LABEL: "1",
            **split_label(names.ARGUMENTS_LABEL, hide_secrets(shlex.join(arguments))),
        }

    def _name_application(self, wanted: Wanted) -> str:
        return f"{FRAMEWORKS[self.name].application}-{wanted.user}"


def make_frameworks(data_root: str) -> tuple[FabricPrograms, ...]:
    """Return the frameworks for training definitions.

    Args:
        data_root: the directory of all data on the machines.
    """
    return tuple(FabricPrograms(name, data_root) for name in _TITLES)


def _find_main(given: str, files: Collection[str], name: str) -> tuple[str, str]:
    """Return the folder into which the code is copied, and the path of the main file.

    Args:
        given: the main file, relative to the model directory.
        files: of the code.
        name: of the model directory, if the code does not have it as its only top folder.

    >>> _find_main("main.py", ["mnist/main.py", "mnist/net.py"], "run")
    ('_submitted_code', '_submitted_code/mnist/main.py')
    >>> _find_main("main.py", ["main.py", "net.py"], "run")
    ('_submitted_code/run', '_submitted_code/run/main.py')
    """
    path = PurePosixPath(given)
    if path.is_absolute() or ".." in path.parts:
        raise BadField(
            "command", f"The main file '{given[:200]}' points outside of the code. Give its path in the code."
        )
    own = [file for file in files if not file.startswith(MAC_FILES)] or list(files)
    tops = {file.partition("/")[0] for file in own}
    if len(tops) == 1 and all("/" in file for file in own):
        # The model directory itself is the only top folder.
        inside = str(PurePosixPath(tops.pop(), path))
        main = inside if inside in files else str(path)
        check_in_code(main, files, "main file")
        return names.SUBMITTED_CODE, f"{names.SUBMITTED_CODE}/{main}"
    check_in_code(str(path), files, "main file")
    folder = f"{names.SUBMITTED_CODE}/{name}"
    return folder, f"{folder}/{path}"
