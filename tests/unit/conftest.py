"""How many cases property tests draw."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from tests.tiers import examples

# For those that name no number of their own.
# How long a machine takes to draw examples depends on what else it does.
settings.register_profile(
    "tiers", max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tiers")
