"""How many cases property tests draw."""

from __future__ import annotations

from hypothesis import settings
from tests.tiers import examples

# For those that name no number of their own.
settings.register_profile("tiers", max_examples=examples(30))
settings.load_profile("tiers")
