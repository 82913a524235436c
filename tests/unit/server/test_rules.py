"""What an operator sets of the policy is what it decides by."""

from __future__ import annotations

import msgspec

from legato.control.settings import Settings
from legato.policy.rules import Policy, Rules
from legato.server.services import make_rules

OTHERWISE_NAMED = {"cooldown_factor": "resize_factor"}


def test_every_rule_can_be_set() -> None:
    said = {"policy": "priority", "stability_s": 1.5, "resize_factor": 2.5, "gather_s": 3.5}
    said |= {"reserve_after_s": 4.5, "ageing_s": 5.5, "fair_finish_s": 6.5}
    rules = make_rules(Settings.model_validate(said))
    assert rules.policy is Policy.PRIORITY
    for field in msgspec.structs.fields(Rules):
        assert getattr(rules, field.name) == said[OTHERWISE_NAMED.get(field.name, field.name)]
