"""Replaces the mount paths of a container by folders of the machine, for a program without a container. Pure.

Paths in the words of a command and in variables are replaced, wherever a mount path stands as a whole path or as the
beginning of one; a program that contains such a path does not find it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from legato.compat.elasticdl.composites import Volume


class Mounts:
    """Replaces mount paths in texts.

    Args:
        volumes: folders of the machine, and their mount paths.
    """

    def __init__(self, volumes: Sequence[Volume]) -> None:
        self._folders = {volume.mount_path: volume.folder for volume in volumes if volume.mount_path != volume.folder}
        paths = sorted((path for path in self._folders if path != "/"), key=len, reverse=True)
        said = "|".join(re.escape(path) for path in paths)
        self._found = re.compile(rf"(?<![\w./~-])(?:{said})(?=$|[/,:;\s'\"\])}}&])") if said else None
        self.used: set[str] = set()
        """The mount paths that were met."""

    def replace(self, text: str) -> str:
        """Return a text with folders of the machine in place of mount paths.

        >>> mounts = Mounts([Volume(host_path="/home/ann/data", mount_path="/data")])
        >>> mounts.replace("--train=/data/mnist:/data --other=/database --own=./data")
        '--train=/home/ann/data/mnist:/home/ann/data --other=/database --own=./data'
        """
        if self._found is None:
            return text

        def find(found: re.Match[str]) -> str:
            self.used.add(found[0])
            return self._folders[found[0]]

        return self._found.sub(find, text)

    def replace_all(self, texts: Iterable[str]) -> tuple[str, ...]:
        """Return texts with paths replaced."""
        return tuple(self.replace(text) for text in texts)

    @property
    def unused(self) -> list[str]:
        """The mount paths that no text had."""
        return [path for path in self._folders if path not in self.used]

    def describe(self) -> str:
        """Return which paths were replaced, as a text.

        >>> mounts = Mounts([Volume(host_path="/d", mount_path="/data")])
        >>> _ = mounts.replace("/data/x")
        >>> mounts.describe()
        '/data is /d'
        """
        return ", ".join(f"{path} is {self._folders[path]}" for path in self._folders if path in self.used)
