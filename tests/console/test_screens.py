"""Every screen, empty and full, wide and narrow: nothing keeps anybody out, and nothing is cut off."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from benchmarks.platform import Platform
from tests.console.conftest import Person

SCREENS = ("runs", "pool", "projects", "compare", "queues", "tokens", "users", "audit", "settings", "submit")
NARROW = 390


@pytest.mark.parametrize("width", [1440, NARROW], ids=["wide", "narrow"])
def test_every_screen_is_open_to_everybody(people: Callable[..., Person], running: Platform, width: int) -> None:
    running.client.set_queue(f"research-{'long-' * 10}name", weight=2, floor=1)
    ada = people("ada", "admin", width=width)
    for screen in SCREENS:
        ada.opens(f"/{screen}")
        ada.finds_no_barrier()
        ada.shows(f"{screen}-{'narrow' if width == NARROW else 'empty'}")
        wider = ada.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wider == 0, f"{screen} has to be scrolled sideways by {wider} px"
