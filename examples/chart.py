"""Draws how many workers trained at each step, for a terminal. Pure; prints nothing."""

from collections.abc import Mapping, Sequence


def draw_chart(
    sizes: Sequence[int], num_steps: int, max_workers: int, marks: Mapping[int, str] | None = None, width: int = 64
) -> list[str]:
    r"""Return the lines of a picture: a row per worker, the axis of steps, and marks at steps.

    Args:
        sizes: number of workers at step 1, 2, ... as far as the training has come.
        num_steps: of the whole training.
        max_workers: height of the picture.
        marks: step → one character.
        width: columns for all steps.

    >>> print("\n".join(draw_chart([1, 1, 1, 2, 2, 2, 1, 1], 10, 2, {3: "▲", 6: "✖"}, width=10)))
    workers
       2 │   ███
       1 │████████··
         └──────────
            ▲  ✖
          step 8 of 10
    """
    columns = [
        sizes[column * num_steps // width] for column in range(width) if column * num_steps // width < len(sizes)
    ]
    lines = ["workers"]
    for level in range(max_workers, 0, -1):
        filled = "".join("█" if size >= level else " " for size in columns)
        lines.append(f"{level:>4} │" + (filled.ljust(width, "·") if level == 1 else filled.rstrip()))
    lines.append("     └" + "─" * width)
    under = [" "] * width
    for step, mark in (marks or {}).items():
        under[min((step - 1) * width // num_steps, width - 1)] = mark
    lines.append("      " + "".join(under).rstrip())
    lines.append(f"      step {len(sizes)} of {num_steps}")
    return [line.rstrip() for line in lines]
