"""A screen that tests read."""

from __future__ import annotations

from typing import Any


class Reader:
    """A screen that keeps the output of workers."""

    def __init__(self) -> None:
        self.output = ""

    def show_output(self, text: str) -> None:
        self.output += text

    def show_status(self, status: Any) -> None:
        pass
