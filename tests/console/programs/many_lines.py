"""Writes very many lines and ends: what a long training has written. Trains nothing."""

from __future__ import annotations

import sys

NUM_LINES = 100_000
EVERY = 10_000


def main() -> None:
    for number in range(1, NUM_LINES + 1):
        word = "ERROR: lost the needle" if number % EVERY == 0 else "step"
        sys.stdout.write(f"{word} {number} of {NUM_LINES}\n")


main()
