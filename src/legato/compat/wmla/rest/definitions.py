"""The elastic frameworks of WMLA, for training definitions: a program of FabricModel runs as one that was sent to us.

It has the same launcher, the same directories and variables, and the same labels, so that it is one of theirs in all
that clients of WMLA ask. Its code need not be packed again: the platform copies it to where the launcher looks. Pure.
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
from legato.compat.wmla.rest.bundles import OF_MACS
from legato.compat.wmla.rest.records import split_label
from legato.core.errors import BadField
from legato.core.frameworks import DistributedName, Launcher, Prepared, Wanted, check_in_code, drop_python

_LAUNCHER: Final = "legato.compat.wmla.site.launch"
_TITLES: Final = {
    "edtPyTorch": "PyTorch, elastic (FabricModel)",
    "edtTensorflow": "TensorFlow, elastic (FabricModel)",
}


@dataclass(frozen=True)
class FabricPrograms:
    """Programs of FabricModel, as `legato.core.frameworks.Framework`.

    Args:
        name: of the framework of theirs.
        data_root: the directory of all data on the machines.
    """

    name: str
    data_root: str
    distributed: Sequence[DistributedName] = ("single", "static", "elastic")

    @property
    def title(self) -> str:
        """For people."""
        return _TITLES[self.name]

    @property
    def description(self) -> str:
        """What it runs."""
        return f"{FRAMEWORKS[self.name].sentences[0]} Each node is a worker with one slot."

    def prepare(self, wanted: Wanted) -> Prepared:
        """Return the program of a job.

        Raises:
            BadField: the code is not uploaded, or the program is not in it.
        """
        if wanted.files is None:
            raise BadField(
                "directory", f"Programs of {self.name} are uploaded. Give their code instead of a directory."
            )
        words = drop_python(wanted.words, "Write the main file and its arguments, such as 'main.py --lr 1'.")
        folder, main = _find_main(words[0], wanted.files, wanted.name)
        return Prepared(
            program=(main, *words[1:]),
            launcher=Launcher(
                module=_LAUNCHER,
                script=main,
                folder=folder,
                # What TensorFlow is to be like is said in variables that the launcher sets before it is loaded.
                preloads=FRAMEWORKS[self.name].backend == "pytorch",
                environment=self._find_variables(wanted),
            ),
            labels=self._find_labels(wanted, main, words),
        )

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


def _find_main(said: str, files: Collection[str], name: str) -> tuple[str, str]:
    """Return where the code goes, and the main file there.

    Args:
        said: the main file, from the model directory on.
        files: of the code.
        name: of the model directory, if none is on top of the code.

    >>> _find_main("main.py", ["mnist/main.py", "mnist/net.py"], "run")
    ('_submitted_code', '_submitted_code/mnist/main.py')
    >>> _find_main("main.py", ["main.py", "net.py"], "run")
    ('_submitted_code/run', '_submitted_code/run/main.py')
    """
    path = PurePosixPath(said)
    if path.is_absolute() or ".." in path.parts:
        raise BadField("command", f"The main file '{said[:200]}' leads out of the code. Name it by its path there.")
    own = [file for file in files if not file.startswith(OF_MACS)] or list(files)
    tops = {file.partition("/")[0] for file in own}
    if len(tops) == 1 and all("/" in file for file in own):
        # The model directory itself is on top.
        inside = str(PurePosixPath(tops.pop(), path))
        main = inside if inside in files else str(path)
        check_in_code(main, files, "main file")
        return names.SUBMITTED_CODE, f"{names.SUBMITTED_CODE}/{main}"
    check_in_code(str(path), files, "main file")
    folder = f"{names.SUBMITTED_CODE}/{name}"
    return folder, f"{folder}/{path}"
