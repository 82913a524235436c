"""``legato simulate``: a workload under one or several policies, in virtual time. Uses no platform and no GPU."""

from __future__ import annotations

import contextlib
import logging
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from legato.cli.entry import Entry
from legato.cli.options import read_whole
from legato.cli.platform.options import OutputOption
from legato.cli.terminal.formatting import clean
from legato.cli.terminal.output import Output, render_for_programs, write
from legato.core.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from legato.control.records import Queue
    from legato.sim.report import JobReport, Report, Run
    from legato.sim.schemes import Scheme
    from legato.sim.simulation import Setting
    from legato.sim.workload import PlannedJob

_MAX_SLOTS: Final = 100_000
_MAX_JOBS: Final = 100_000
_OFF: Final = "[default: off]"
_QUEUE: Final = re.compile(r"(?P<name>[^:]+):(?P<facts>[^:]+)")


def _quantity(what: str, unit: str, example: float, *, metavar: str, default: str = "") -> Any:
    """Return an option that reads a number, 0 or more; ``default`` says what happens without it."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 <= value < float("inf"):
            raise typer.BadParameter(f"Cannot read {what}, '{text}'. Write {unit}, 0 or more, such as {example:g}.")
        return value

    return typer.Option(parser=read, metavar=metavar, help=f"{what[0].upper()}{what[1:]}. {default}".strip())


def _seconds(what: str, example: float, default: str = "") -> Any:
    return _quantity(what, "seconds", example, metavar="SECONDS", default=default)


def _number(what: str, example: int, highest: int) -> Any:
    reader = read_whole(what, example, highest=highest)
    return typer.Option(parser=reader, metavar="NUMBER", help=f"{what[0].upper()}{what[1:]}.")


def simulate(
    workload: Annotated[
        Path | None,
        typer.Argument(
            metavar="[WORKLOAD.csv]",
            help="CSV file with one job per line. Without it, --random makes random jobs.",
        ),
    ] = None,
    policy: Annotated[
        str,
        typer.Option(
            metavar="NAME[,NAME...]",
            help="Policy: fair, fair-by-job, throughput, throughput-by-job, priority, fifo or gang. Several, separated "
            "by commas, are compared.",
        ),
    ] = "fair",
    slots: Annotated[int, _number("the number of slots of the pool", 8, _MAX_SLOTS)] = 8,
    slots_per_node: Annotated[int, _number("the number of slots of a node", 8, _MAX_SLOTS)] = 8,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME:weight=W,floor=F,ceiling=C", help="A queue with its weight, floor and ceiling. Repeatable."
        ),
    ] = None,
    usage_half_life: Annotated[
        float | None, _seconds("the time after which past use of slots counts half", 604800, _OFF)
    ] = None,
    stability: Annotated[float, _seconds("the time that a larger share must last before a job grows", 3)] = 3.0,
    cooldown: Annotated[
        float,
        _quantity(
            "the pause between two resizes of a job, as a multiple of the time of its last resize",
            "a number",
            20,
            metavar="NUMBER",
        ),
    ] = 20.0,
    gather: Annotated[
        float, _seconds("the time that a job waits for its whole share before it takes fewer slots", 10)
    ] = 10.0,
    reserve_after: Annotated[
        float | None, _seconds("the waiting time of a job after which no later job starts before it", 600, _OFF)
    ] = None,
    ageing: Annotated[
        float | None, _seconds("the waiting time that counts as much as 5000 points of priority", 600, _OFF)
    ] = None,
    fair_finish: Annotated[
        float | None,
        _seconds("the time below its fair share after which a job goes before others", 60, _OFF),
    ] = None,
    measured_speed: Annotated[
        float,
        _seconds("the training time with a number of workers after which its measured speed counts; 0: never", 60),
    ] = 60.0,
    worker_start: Annotated[float, _seconds("the time from the start of a worker until it takes part", 3)] = 3.0,
    resize_pause: Annotated[
        float, _seconds("the time that all workers of a job pause when their number changes", 0.1)
    ] = 0.1,
    drain: Annotated[float, _seconds("the time from the request to leave until a worker is gone", 0.3)] = 0.3,
    until: Annotated[
        float | None, _seconds("the time at which the simulation ends", 3600, "[default: when all jobs have ended]")
    ] = None,
    random: Annotated[int | None, _number("the number of random jobs", 200, _MAX_JOBS)] = None,
    seed: Annotated[int, _number("the seed of the random jobs", 1, 2**32)] = 1,
    mean_gap: Annotated[float, _seconds("the mean time between two random submissions", 60)] = 60.0,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE.csv", help="Save the random jobs as a workload file.")
    ] = None,
    draw: Annotated[
        Path | None, typer.Option(metavar="FILE.svg|FILE.png", help="Draw the slots of each job over time.")
    ] = None,
    jobs: Annotated[bool, typer.Option("--jobs", help="Also show each job.")] = False,
    output: OutputOption = Output.table,
) -> None:
    """Simulate a workload under the real policies in virtual time, and report completion, waiting and use of slots."""
    import msgspec

    from legato.drawing.files import check_path
    from legato.policy.rules import Rules
    from legato.sim.load import Costs
    from legato.sim.schemes import check_fits, parse_schemes
    from legato.sim.simulation import Setting

    schemes = parse_schemes(policy)
    if draw is not None:
        check_path(draw)
    if usage_half_life == 0:
        raise UsageError("--usage-half-life must be above 0. Leave it out, so that past use does not count.")
    if slots < 1 or slots_per_node < 1:
        raise UsageError("Cannot simulate a pool without slots. Give 1 or more with --slots and --slots-per-node.")
    setting = Setting(
        num_slots=slots,
        slots_per_node=slots_per_node,
        rules=Rules(
            usage_half_life_s=usage_half_life,
            stability_s=stability,
            cooldown_factor=cooldown,
            gather_s=gather,
            reserve_after_s=reserve_after,
            ageing_s=ageing,
            fair_finish_s=fair_finish,
            measured_speed_s=measured_speed or None,
        ),
        costs=Costs(start_s=worker_start, resize_s=resize_pause, drain_s=drain),
        queues=tuple(_read_queue(text) for text in queue or ()),
    )
    plans, title = _find_plans(workload, random, seed, mean_gap, slots, save)
    for scheme in schemes:
        check_fits(*scheme.apply(plans, setting))
    with _quiet_log():
        runs = _run_all(plans, setting, schemes, until)
    if draw is not None:
        _draw(runs, draw, f"{title} on {slots} slots")
    reports = [run.report for run in runs]
    for report in reports:
        _report_unfinished(report)
    if output is Output.csv:
        rows = [{"policy": run.report.policy, **msgspec.to_builtins(job)} for run in runs for job in run.report.jobs]
        typer.echo(render_for_programs(rows, output), nl=False)
        return
    write(reports, output, lambda: _render_all(reports, with_jobs=jobs or output is Output.wide))


ENTRIES: Final = (
    Entry(
        "simulate",
        simulate,
        "legato simulate jobs.csv --slots 8 --policy fair,gang --draw jobs.svg",
    ),
)

# ---------------------------------------------------------------- the request


def _read_queue(text: str) -> Queue:
    from legato.control.records import Queue

    said = f"Cannot read the queue '{text}'"
    example = "Write, for example, night:weight=2,floor=1,ceiling=8."
    found = _QUEUE.fullmatch(text)
    if found is None:
        raise UsageError(f"{said}. {example}")
    values: dict[str, float] = {}
    for fact in found["facts"].split(","):
        name, _, number = fact.partition("=")
        if name not in ("weight", "floor", "ceiling") or name in values:
            raise UsageError(f"{said}: '{fact}'. Give weight, floor and ceiling, each at most once. {example}")
        try:
            values[name] = float(number) if name == "weight" else int(number)
        except ValueError:
            kind = "number" if name == "weight" else "whole number"
            raise UsageError(f"{said}: '{number}' is not a {kind}. {example}") from None
    weight, floor, ceiling = values.get("weight", 1.0), int(values.get("floor", 0)), values.get("ceiling")
    if not 0 < weight < float("inf") or floor < 0 or (ceiling is not None and ceiling < max(floor, 1)):
        raise UsageError(f"{said}: a weight is above 0, a floor 0 or more, a ceiling not below the floor. {example}")
    return Queue(name=found["name"], weight=weight, floor=floor, ceiling=None if ceiling is None else int(ceiling))


def _find_plans(
    workload: Path | None, random: int | None, seed: int, mean_gap_s: float, num_slots: int, save: Path | None
) -> tuple[list[PlannedJob], str]:
    """Return the jobs, and the name of the workload."""
    from legato.sim.workload import draw_workload, read_workload, write_workload

    if (workload is None) == (random is None):
        raise UsageError("Give either a workload file, or --random 200 to draw jobs.")
    if workload is not None:
        if save is not None:
            raise UsageError("--save is for drawn jobs, but these come from a file. Leave it out, or use --random.")
        return read_workload(workload), workload.name
    assert random is not None
    if random < 1:
        raise UsageError("Cannot draw 0 jobs. Give 1 or more with --random.")
    if mean_gap_s <= 0:
        raise UsageError("--mean-gap must be above 0. Give the seconds between two submissions.")
    plans = draw_workload(seed, random, mean_gap_s=mean_gap_s, max_workers=num_slots)
    if save is not None:
        try:
            write_workload(save, plans)
        except OSError as error:
            raise UsageError(f"Cannot write '{save}': {error.strerror}. Choose another place.") from error
    return plans, f"{random} jobs of seed {seed}"


# ---------------------------------------------------------------- the simulation


@contextlib.contextmanager
def _quiet_log() -> Iterator[None]:
    """Let the control loop log only problems, so that its log does not mix with the results."""
    import structlog

    before = structlog.get_config()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    try:
        yield
    finally:
        structlog.configure(**before)


def _run_all(
    plans: Sequence[PlannedJob], setting: Setting, schemes: Sequence[Scheme], until_s: float | None
) -> list[Run]:
    from legato.sim.report import run_scheme

    limit_s = float("inf") if until_s is None else until_s
    runs = []
    for scheme in schemes:
        with _progress(scheme.name, len(plans)) as tell:
            runs.append(run_scheme(plans, setting, scheme, limit_s=limit_s, on_progress=tell))
    return runs


@contextlib.contextmanager
def _progress(name: str, num_jobs: int) -> Iterator[Callable[[int, float], None]]:
    """Show the progress of a simulation on a terminal; show nothing elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    from legato.drawing.axis import format_elapsed

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(name, total=num_jobs)

        def tell(num_ended: int, now: float) -> None:
            progress.update(task, completed=num_ended, description=f"{name}, at {format_elapsed(int(now))}")

        yield tell


def _draw(runs: Sequence[Run], path: Path, title: str) -> None:
    from legato.drawing.files import write_picture
    from legato.drawing.timeline import draw_timeline

    names = {job: name for run in runs for job, name in run.names.items()}
    write_picture(path, draw_timeline([run.panel for run in runs], title=title, names=names, begin=0.0))
    typer.echo(f"legato: drawn: {path}", err=True)


# ---------------------------------------------------------------- output


def _report_unfinished(report: Report) -> None:
    left = [job for job in report.jobs if job.completion_s is None]
    if report.num_unfinished:
        example = f": job '{clean(left[0].name)}' {clean(left[0].reason)}" if left else ""
        typer.echo(
            f"legato: {report.policy}: {report.num_unfinished} of {report.num_jobs} jobs did not end{example}", err=True
        )


def _render_all(reports: Sequence[Report], *, with_jobs: bool) -> Any:
    from rich.console import Group

    parts: list[Any] = [_render_figures(reports)]
    if any(len(report.users) > 1 for report in reports):
        parts += ["", _render_users(reports)]
    if with_jobs:
        for report in reports:
            parts += ["", _render_jobs(report)]
    return Group(*parts)


# The figures of a report: their displayed names and formats.
_FIGURES: Final = {
    "mean_completion_s": ("completion, mean", "time"),
    "p50_completion_s": ("completion, median", "time"),
    "p95_completion_s": ("completion, 95 %", "time"),
    "p99_completion_s": ("completion, 99 %", "time"),
    "mean_waiting_s": ("waiting, mean", "time"),
    "p95_waiting_s": ("waiting, 95 %", "time"),
    "p95_slowdown": ("slowdown, 95 %", "number"),
    "makespan_s": ("makespan", "time"),
    "allocation": ("allocation", "share"),
    "useful_allocation": ("useful allocation", "share"),
    "resizes_per_job": ("resizes per job", "number"),
    "pauses_per_job": ("pauses per job", "number"),
}


def _render_figures(reports: Sequence[Report]) -> Table:
    """Draw a row for each figure: the values of the first policy, and for the others their ratio to these."""
    from rich.table import Table

    from legato.sim.report import compare, list_figures

    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("")
    for report in reports:
        table.add_column(report.policy.upper(), justify="right", no_wrap=True)
    for report in reports[1:]:
        table.add_column(f"{report.policy} / {reports[0].policy}".upper(), justify="right", no_wrap=True)
    figures, ratios = [list_figures(report) for report in reports], compare(reports)
    for name, (title, kind) in _FIGURES.items():
        cells = [_render_figure(own[name], kind) for own in figures]
        cells += [_render_ratio(own[name]) for own in ratios[1:]]
        table.add_row(title, *cells)
    num_jobs = [f"{report.num_jobs - report.num_unfinished} of {report.num_jobs}" for report in reports]
    table.add_row("jobs that succeeded", *num_jobs, *[""] * (len(reports) - 1))
    return table


def _render_figure(value: float | None, kind: str) -> str:
    from legato.cli.terminal.job_view import render_duration

    if value is None:
        return "-"
    if kind == "time":
        return render_duration(value)
    return f"{value:.1%}" if kind == "share" else f"{value:.2f}"


def _render_ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _render_users(reports: Sequence[Report]) -> Table:
    """Draw a row for each user: how long its jobs waited and took on average under each policy."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("USER")
    table.add_column("JOBS", justify="right")
    for report in reports:
        for title in ("WAITED", "COMPLETE"):
            table.add_column(f"{report.policy.upper()}: {title}", justify="right", no_wrap=True)
    for users in zip(*(report.users for report in reports), strict=True):
        times = [time for user in users for time in (user.mean_waiting_s, user.mean_completion_s)]
        cells = [_render_figure(time, "time") for time in times]
        table.add_row(Text(clean(users[0].user)), str(users[0].num_jobs), *cells)
    return table


def _render_jobs(report: Report) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    titles = (report.policy.upper(), "QUEUE", "SUBMITTED", "WAITED", "COMPLETE", "SLOWDOWN", "RESIZES", "PAUSES")
    for number, title in enumerate(titles):
        table.add_column(title, justify="left" if number < 2 else "right", no_wrap=True)
    for job in report.jobs:
        table.add_row(Text(clean(f"{job.owner}/{job.name}")), Text(clean(job.queue)), *_list_cells(job))
    return table


def _list_cells(job: JobReport) -> list[str]:
    times = [_render_figure(value, "time") for value in (job.submitted_at, job.waiting_s, job.completion_s)]
    return [*times, _render_figure(job.slowdown, "number"), str(job.num_resizes), str(job.num_pauses)]
