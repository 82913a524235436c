"""Draws the pool: a bar per node with a mark per GPU in the colour of its job, and the jobs below. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from rich.console import Group, RenderableType
from rich.text import Text

from legato.cli.terminal.columns import job_columns, use_columns
from legato.cli.terminal.formatting import clean, count_slots, render_bytes, render_clock
from legato.cli.terminal.output import make_table
from legato.cli.terminal.table import Column

if TYPE_CHECKING:
    from legato.api.jobs import JobRecord
    from legato.api.pool import Pool, Slot
    from legato.core.system_metrics import MachineMetrics

_COLOURS: Final = (
    *("green", "blue", "magenta", "cyan", "yellow", "red"),
    *("bright_green", "bright_blue", "bright_magenta", "bright_cyan", "bright_yellow", "bright_red"),
)
_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_FREE: Final = "·"
_UNUSABLE: Final = "x"
_HIDDEN: Final = "?"
_NUM_NODES: Final = 16
_NUM_OTHER_LINES: Final = 5  # two at the top, an empty one, the titles, and how many are left out


def draw_top(
    pool: Pool,
    slots: Sequence[Slot],
    jobs: Sequence[JobRecord],
    now: float,
    *,
    height: int | None,
    metrics: Mapping[str, MachineMetrics] | None = None,
) -> RenderableType:
    """Draw the pool and its jobs.

    Args:
        pool: its numbers.
        slots: all slots of the pool.
        jobs: those that hold or want slots, in the order in which they are shown.
        now: seconds since 1970.
        height: number of lines of the screen. None: no limit.
        metrics: what machines use, by name, of those that are measured.
    """
    letters = choose_letters(jobs)
    bars = draw_bars(slots, letters, metrics or {})
    shown = len(jobs) if height is None else max(height - len(bars) - _NUM_OTHER_LINES, 1)
    none = ("", "")
    mark: Column[JobRecord] = Column(
        "", lambda job: letters.get(job.id, none)[0], lambda job: letters.get(job.id, none)[1]
    )
    *columns, reason = job_columns(now)
    table = make_table((mark, *columns, *use_columns(jobs), reason), jobs[:shown], is_wide=False, is_folded=False)
    head = Text.assemble(
        ("legato top", "bold"),
        f"  {render_clock(now, now)}  policy {pool.policy}  ",
        (f"{count_slots(pool.num_usable)}, {pool.num_free} free", "bold"),
        f", {pool.num_leaving} leaving" if pool.num_leaving else "",
        f"  jobs: {_count(pool.jobs)}",
        no_wrap=True,
        overflow="ellipsis",
    )
    summary = Text(clean(pool.summary or ""), style="dim", no_wrap=True, overflow="ellipsis")
    rest = [Text(f"and {len(jobs) - shown} more", style="dim")] if len(jobs) > shown else []
    return Group(head, summary, *bars, "", table, *rest)


def choose_letters(jobs: Sequence[JobRecord]) -> Mapping[str, tuple[str, str]]:
    """Return the mark and the colour of each job that holds slots, by id.

    A job keeps its mark and colour while only later jobs come and go.
    """
    holding = sorted(job.id for job in jobs if job.num_slots)
    return {
        job: (_LETTERS[place % len(_LETTERS)], _COLOURS[place % len(_COLOURS)]) for place, job in enumerate(holding)
    }


def draw_bars(
    slots: Sequence[Slot], letters: Mapping[str, tuple[str, str]], metrics: Mapping[str, MachineMetrics]
) -> list[Text]:
    """Draw a line per machine: a mark per slot, and what its programs use."""
    nodes: dict[str, list[Slot]] = {}
    for slot in slots:
        nodes.setdefault(slot.node, []).append(slot)
    shown = list(nodes.items())[:_NUM_NODES]
    width = max((len(name) for name, _ in shown), default=0)
    bars = []
    for name, own in shown:
        bar = Text(f"{clean(name):<{width}}  ", no_wrap=True, overflow="ellipsis")
        for slot in own:
            mark, style = _mark(slot, letters)
            bar.append(mark, style)
        if name in metrics:
            bar.append(f"  {_describe_use(metrics[name])}", "dim")
        bars.append(bar)
    if len(nodes) > len(shown):
        bars.append(Text(f"and {len(nodes) - len(shown)} more machines", style="dim"))
    return bars


def _describe_use(machine: MachineMetrics) -> str:
    memory = f"{render_bytes(machine.memory_bytes)} of {render_bytes(machine.total_bytes)}"
    parts = [f"CPU {machine.cpus:.1f} of {machine.num_cpus}", f"memory {memory}"]
    if busy := [gpu.busy for gpu in machine.gpus if gpu.busy is not None]:
        parts.append(f"GPUs {sum(busy) / len(busy):.0%} busy")
    if machine.gpus:
        used, total = (sum(getattr(gpu, name) for gpu in machine.gpus) for name in ("memory_bytes", "total_bytes"))
        parts.append(f"GPU memory {render_bytes(used)} of {render_bytes(total)}")
    return ", ".join(parts)


def _mark(slot: Slot, letters: Mapping[str, tuple[str, str]]) -> tuple[str, str]:
    if slot.unusable_since is not None:
        return _UNUSABLE, "dim red"
    if slot.is_free:
        return _FREE, "dim"
    letter, colour = letters.get(slot.job or "", (_HIDDEN, ""))
    # A small letter: the worker is leaving the slot.
    return (letter.lower() if slot.release_asked_at is not None else letter), colour


def _count(jobs: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {stage}" for stage, number in jobs.items() if number) or "none"
