"""The policy decides by the settings of the operator."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import msgspec

from legato.cli.platform.simulate import simulate
from legato.control.settings import Settings
from legato.policy.rules import Policy, Rules
from legato.server.services import make_rules

PAGE = Path(__file__).parents[3] / "docs" / "scheduling.md"


def test_every_rule_can_be_set() -> None:
    said = {"policy": "priority", "stability_s": 1.5, "cooldown_factor": 2.5, "gather_s": 3.5}
    said |= {"fair_by": "job", "usage_half_life_s": 7200.0}
    said |= {
        "reserve_after_s": 4.5,
        "ageing_s": 5.5,
        "fair_finish_s": 6.5,
        "measured_speed_s": 7.5,
        "long_job_slot_s": 8.5,
    }
    rules = make_rules(Settings.model_validate(said))
    assert rules.policy is Policy.PRIORITY
    for field in msgspec.structs.fields(Rules):
        assert getattr(rules, field.name) == said[field.name]


def test_defaults_are_the_same_everywhere() -> None:
    assert make_rules(Settings()) == Rules()


def test_the_page_on_scheduling_has_these_defaults() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \|", PAGE.read_text(), re.MULTILINE)
    told = {name: None if default == "none" else default for name, default in rows}
    assert msgspec.convert(told, Rules, strict=False) == Rules()
    assert set(told) == set(Rules.__struct_fields__)


def test_a_simulation_decides_as_the_platform_does() -> None:
    options = inspect.signature(simulate).parameters
    said = {
        name: options[name.removesuffix("_factor").removesuffix("_s").removesuffix("_slot")].default
        for name in Rules.__struct_fields__
        if name not in ("policy", "fair_by")
    }
    assert msgspec.convert(said | {"policy": options["policy"].default}, Rules) == Rules()
