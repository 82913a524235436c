"""Options of the tests."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak-seed", type=int, default=None, help="seed of the soak's disturbances; None for a new one")
    parser.addoption("--soak-events", type=int, default=12, help="how many disturbances the soak makes")
