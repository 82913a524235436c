"""Measurements against peers, side by side in one run: ``python -m benchmarks``. Not part of the package."""
