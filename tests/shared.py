"""What the tests of one folder share, for as long as the tests that run are of that folder."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, ClassVar

import pytest


class Shared:
    """Makes each thing when a test first asks for it, and ends all when the next test is of another folder.

    A fixture of the whole session would live, and cost, until the last test of all folders.

    Args:
        folder: of the tests.

    Attributes:
        folders: those of all instances.
    """

    folders: ClassVar[set[Path]] = set()

    def __init__(self, folder: Path) -> None:
        self.folders.add(folder)
        self._folder = folder
        self._made: dict[Callable[[], Any], Any] = {}
        self._stack = ExitStack()

    def get(self, make: Callable[[], AbstractContextManager[Any]]) -> Any:
        """Return what a function makes: the same one for all tests."""
        if make not in self._made:
            self._made[make] = self._stack.enter_context(make())
        return self._made[make]

    def end_before(self, following: pytest.Item | None) -> None:
        """End what was made, unless the test that follows may ask for it."""
        if following is None or self._folder not in following.path.parents:
            self._made.clear()
            self._stack.close()
