"""``legato simulate``: a workload under one or several policies, in virtual time. Uses no platform and no GPU."""

from __future__ import annotations

import contextlib
import logging
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
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
    from rich.console import Group
    from rich.table import Table

    from legato.control.records import Queue
    from legato.sim.load import Costs
    from legato.sim.report import JobReport, Report, Run
    from legato.sim.schemes import Scheme
    from legato.sim.simulation import Setting
    from legato.sim.summary import Estimate, Summary
    from legato.sim.workload import PlannedJob

_MAX_SLOTS: Final = 100_000
_MAX_JOBS: Final = 100_000
_MAX_QUEUES_NAMED: Final = 10
_OFF: Final = "[default: off]"
_NODES: Final = re.compile(r"(?:(?P<count>\d{1,6})x)?(?P<size>\d{1,6})")
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
    context: typer.Context,
    workload: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[WORKLOAD.csv...]",
            help="CSV file with one job per line. Several are simulated one after the other, and compared with 95 % "
            "intervals. Without it, --random makes random jobs.",
        ),
    ] = None,
    policy: Annotated[
        str,
        typer.Option(
            metavar="NAME[,NAME...]",
            help="Policy: fair, fair-by-job, fair-serial, throughput, throughput-by-job, throughput-serial, priority "
            "or fifo; or, for comparison, max-min, gang (FIFO with backfill) or las (least attained service). "
            "Several, separated by commas, are compared.",
        ),
    ] = "fair",
    slots: Annotated[int, _number("the number of slots of the pool", 8, _MAX_SLOTS)] = 8,
    slots_per_node: Annotated[int, _number("the number of slots of a node", 8, _MAX_SLOTS)] = 8,
    nodes: Annotated[
        str | None,
        typer.Option(
            metavar="SLOTS[,COUNTxSLOTS...]",
            help="The slots of each node, instead of --slots and --slots-per-node: 4x8,2x4 are four nodes with 8 slots "
            "and two with 4.",
        ),
    ] = None,
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
    long_job: Annotated[
        float | None,
        _quantity(
            "the slot seconds after which a job is long, so that long jobs are served one after the other",
            "slot seconds",
            28800,
            metavar="SLOT-SECONDS",
            default=_OFF,
        ),
    ] = None,
    worker_start: Annotated[float, _seconds("the time from the start of a worker until it takes part", 3)] = 3.0,
    resize_pause: Annotated[
        str,
        typer.Option(
            metavar="SECONDS",
            help="The time that all workers of a job pause when their number changes. By the number after the change: "
            "'1:5 8:20'; it is linear between.",
        ),
    ] = "0.1",
    drain: Annotated[float, _seconds("the time from the request to leave until a worker is gone", 0.3)] = 0.3,
    until: Annotated[
        float | None, _seconds("the time at which the simulation ends", 3600, "[default: when all jobs have ended]")
    ] = None,
    at_most_asked: Annotated[
        bool, typer.Option("--at-most-asked", help="No job gets more workers than it asks for (column asked).")
    ] = False,
    random: Annotated[int | None, _number("the number of random jobs", 200, _MAX_JOBS)] = None,
    random_kind: Annotated[
        str,
        typer.Option(
            metavar="simple|training",
            help="The kind of random jobs: simple ones that every worker helps, or training jobs that profit from "
            "workers to different degrees.",
        ),
    ] = "simple",
    seed: Annotated[int, _number("the seed of the random jobs", 1, 2**32)] = 1,
    seeds: Annotated[
        int, _number("the number of seeds, from --seed on; several are compared with 95 % intervals", 10, 1000)
    ] = 1,
    mean_gap: Annotated[float, _seconds("the mean time between two random submissions", 60)] = 60.0,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE.csv", help="Save the random or imported jobs as a workload file.")
    ] = None,
    sacct: Annotated[
        str | None,
        typer.Option(
            metavar="gpu|cpu|node",
            help="The files are output of Slurm's sacct --parsable2, and this is what counts as a slot.",
        ),
    ] = None,
    efficiency: Annotated[
        float,
        _quantity(
            "with --sacct: the speed of a job on the slots that it had, divided by their number",
            "a number",
            0.8,
            metavar="NUMBER",
        ),
    ] = 1.0,
    growth: Annotated[
        float,
        _quantity("with --sacct: how many times more slots than it had a job can use", "a number", 2, metavar="NUMBER"),
    ] = 1.0,
    draw: Annotated[
        Path | None, typer.Option(metavar="FILE.svg|FILE.png", help="Draw the slots of each job over time.")
    ] = None,
    jobs: Annotated[bool, typer.Option("--jobs", help="Also show each job.")] = False,
    output: OutputOption = Output.table,
) -> None:
    """Simulate a workload under the real policies in virtual time, and report completion, waiting and use of slots."""
    from legato.drawing.files import check_path
    from legato.policy.rules import Rules
    from legato.sim.schemes import check_fits, parse_schemes
    from legato.sim.simulation import Setting

    _check_options(context, is_imported=sacct is not None, is_drawn=sacct is None and not workload)
    schemes = parse_schemes(policy)
    if draw is not None:
        check_path(draw)
    if usage_half_life == 0:
        raise UsageError("--usage-half-life must be above 0. Leave it out, so that past use does not count.")
    if slots < 1 or slots_per_node < 1:
        raise UsageError("Cannot simulate a pool without slots. Give 1 or more with --slots and --slots-per-node.")
    sizes = () if nodes is None else _read_nodes(nodes)
    setting = Setting(
        num_slots=sum(sizes) or slots,
        slots_per_node=slots_per_node,
        nodes=sizes,
        rules=Rules(
            usage_half_life_s=usage_half_life,
            stability_s=stability,
            cooldown_factor=cooldown,
            gather_s=gather,
            reserve_after_s=reserve_after,
            ageing_s=ageing,
            fair_finish_s=fair_finish,
            measured_speed_s=measured_speed or None,
            long_job_slot_s=long_job or None,
        ),
        costs=_read_costs(worker_start, resize_pause, drain),
        queues=tuple(_read_queue(text) for text in queue or ()),
    )
    if sacct is not None:
        found = _import_all(workload or [], sacct, efficiency, growth)
    elif workload:
        found = _read_all(workload, random)
    else:
        found = _draw_all(random, random_kind, range(seed, seed + seeds), mean_gap, setting.num_slots)
    _check_queues(setting.queues, {plan.queue for _, plans in found for plan in plans})
    if at_most_asked:
        found = [(title, [plan.at_most_asked() for plan in plans]) for title, plans in found]
    if draw is not None and len(found) > 1:
        raise UsageError("--draw draws one workload. Give one file, or one seed.")
    if save is not None:
        _save(save, found, can_save=sacct is not None or not workload)
    for _, plans in found:
        for scheme in schemes:
            check_fits(*scheme.apply(plans, setting))
    with _quiet_log():
        runs = [_run_all(plans, setting, schemes, until, title if len(found) > 1 else "") for title, plans in found]
    if draw is not None:
        _draw(runs[0], draw, f"{found[0][0]} on {setting.num_slots} slots")
    _show([title for title, _ in found], [[run.report for run in own] for own in runs], output, with_jobs=jobs)


ENTRIES: Final = (
    Entry(
        "simulate",
        simulate,
        "legato simulate jobs.csv --slots 8 --policy fair,gang --draw jobs.svg",
    ),
)

# ---------------------------------------------------------------- the request


def _check_options(context: typer.Context, *, is_imported: bool, is_drawn: bool) -> None:
    """Refuse options that would change nothing."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    given = {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}
    for names, are_used, of in (
        (("efficiency", "growth"), is_imported, "output of Slurm's sacct, which --sacct reads"),
        (("random_kind", "seed", "seeds", "mean_gap"), is_drawn, "random jobs, but these come from a file"),
    ):
        wrong = [f"--{name.replace('_', '-')}" for name in names if name in given]
        if wrong and not are_used:
            raise UsageError(f"{wrong[0]} is for {of}. Leave it out.")


def _check_queues(queues: Iterable[Queue], used: Collection[str]) -> None:
    """Raise an error if no job is in one of some queues: its name may have a typing error."""
    for queue in queues:
        if queue.name not in used:
            named = ", ".join(sorted(used)[:_MAX_QUEUES_NAMED])
            raise UsageError(f"No job is in queue '{queue.name}'. The queues of the jobs are: {named}.")


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


def _read_nodes(text: str) -> tuple[int, ...]:
    """Read the slots of the nodes, such as ``4x8,2x4``."""
    sizes: list[int] = []
    for part in text.split(","):
        found = _NODES.fullmatch(part.strip())
        count, size = (int(found["count"] or 1), int(found["size"])) if found else (0, 0)
        if not count or not size or len(sizes) + count > _MAX_SLOTS or sum(sizes) + count * size > _MAX_SLOTS:
            raise UsageError(
                f"Cannot read the nodes '{text}': '{part}'. Write, for example, 4x8,2x4 for four nodes with 8 slots "
                f"and two with 4, up to {_MAX_SLOTS:,} slots."
            )
        sizes += [size] * count
    return tuple(sizes)


def _read_costs(start_s: float, resize: str, drain_s: float) -> Costs:
    from legato.sim.load import Costs
    from legato.sim.workload import read_curve

    try:
        curve = read_curve(resize)
    except ValueError:
        raise UsageError(
            f"Cannot read --resize-pause '{resize}'. Write seconds, 0 or more, such as 0.1, or seconds by the number "
            "of workers, such as '1:5 8:20'."
        ) from None
    return Costs(start_s=start_s, resize_s=curve[0][1], resize_by_size=curve if len(curve) > 1 else (), drain_s=drain_s)


def _read_all(files: Sequence[Path], random: int | None) -> list[tuple[str, list[PlannedJob]]]:
    """Return the name and the jobs of each workload."""
    from legato.sim.workload import read_workload

    if random is not None:
        raise UsageError("Give either workload files, or --random 200 to draw jobs.")
    return [(path.name, read_workload(path)) for path in files]


def _draw_all(
    num_jobs: int | None, kind: str, seeds: Sequence[int], mean_gap_s: float, num_slots: int
) -> list[tuple[str, list[PlannedJob]]]:
    from legato.sim.random_jobs import draw_training_jobs
    from legato.sim.workload import draw_workload

    if num_jobs is None:
        raise UsageError("Give either a workload file, or --random 200 to draw jobs.")
    if num_jobs < 1 or not seeds:
        raise UsageError("Cannot draw 0 jobs. Give 1 or more with --random and with --seeds.")
    if mean_gap_s <= 0:
        raise UsageError("--mean-gap must be above 0. Give the seconds between two submissions.")
    if kind not in ("simple", "training"):
        raise UsageError(f"There is no kind of random jobs '{kind}'. Write simple or training.")
    found = []
    for seed in seeds:
        if kind == "training":
            plans = draw_training_jobs(seed, num_jobs, mean_gap_s=mean_gap_s, num_slots=num_slots)
        else:
            plans = draw_workload(seed, num_jobs, mean_gap_s=mean_gap_s, max_workers=num_slots)
        found.append((f"{num_jobs} jobs of seed {seed}", plans))
    return found


def _import_all(
    files: Sequence[Path], unit: str, efficiency: float, growth: float
) -> list[tuple[str, list[PlannedJob]]]:
    from legato.sim.sacct import COMMAND, Scaling, SlotUnit, read_sacct

    units = [one.value for one in SlotUnit]
    if unit not in units:
        raise UsageError(f"Cannot count slots by '{unit}'. Write one of {', '.join(units)} with --sacct.")
    if not files:
        raise UsageError(f"--sacct needs a file. Write one with: {COMMAND} > jobs.txt")
    if not 0.05 <= efficiency <= 1:
        raise UsageError("--efficiency is a number from 0.05 to 1: 0.8 if 10 slots are 8 times as fast as one.")
    if not 1 <= growth <= 1000:
        raise UsageError("--growth is a number from 1 to 1000: 2 if a job can use twice the slots that it had.")
    found = []
    for path in files:
        size = path.stat().st_size if path.is_file() else 0
        with _progress(f"reading {path.name}", size) as tell:
            read = read_sacct(
                path,
                SlotUnit(unit),
                Scaling(efficiency=efficiency, growth=growth),
                most_jobs=_MAX_JOBS,
                on_progress=lambda done, tell=tell: tell(done, 0.0),  # type: ignore[misc]
            )
        typer.echo(f"legato: {path.name}: {read.describe()}", err=True)
        found.append((path.name, read.plans))
    return found


def _save(path: Path, found: Sequence[tuple[str, list[PlannedJob]]], *, can_save: bool) -> None:
    from legato.sim.workload import write_workload

    if not can_save:
        raise UsageError(
            "--save is for drawn or imported jobs, but these come from a workload file. Leave it out, or use --random."
        )
    if len(found) > 1:
        raise UsageError("--save saves one workload. Give one file, or one seed.")
    try:
        write_workload(path, found[0][1])
    except OSError as error:
        raise UsageError(f"Cannot write '{path}': {error.strerror}. Choose another place.") from error


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
    plans: Sequence[PlannedJob], setting: Setting, schemes: Sequence[Scheme], until_s: float | None, title: str
) -> list[Run]:
    from legato.sim.report import run_scheme

    limit_s = float("inf") if until_s is None else until_s
    runs = []
    for scheme in schemes:
        with _progress(f"{title} {scheme.name}".strip(), len(plans)) as tell:
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
            at = f", at {format_elapsed(int(now))}" if now else ""
            progress.update(task, completed=num_ended, description=f"{name}{at}")

        yield tell


def _draw(runs: Sequence[Run], path: Path, title: str) -> None:
    from legato.drawing.files import write_picture
    from legato.drawing.timeline import draw_timeline

    names = {job: name for run in runs for job, name in run.names.items()}
    write_picture(path, draw_timeline([run.panel for run in runs], title=title, names=names, begin=0.0))
    typer.echo(f"legato: drawn: {path}", err=True)


# ---------------------------------------------------------------- output


def _show(titles: Sequence[str], reports: Sequence[Sequence[Report]], output: Output, *, with_jobs: bool) -> None:
    """Print the reports of each workload."""
    import msgspec

    from legato.sim.summary import summarize

    several = len(titles) > 1
    for title, own in zip(titles, reports, strict=True):
        for report in own:
            _report_unfinished(report, f"{title}, " if several else "")
    if output is Output.csv:
        rows = [
            {**({"workload": title} if several else {}), "policy": report.policy, **msgspec.to_builtins(job)}
            for title, own in zip(titles, reports, strict=True)
            for report in own
            for job in report.jobs
        ]
        typer.echo(render_for_programs(rows, output), nl=False)
        return
    with_jobs = with_jobs or output is Output.wide
    if not several:
        write(reports[0], output, lambda: _render_all(reports[0], with_jobs=with_jobs))
        return
    summaries = summarize(reports)
    found = {
        "summary": summaries,
        "workloads": [{"name": title, "reports": own} for title, own in zip(titles, reports, strict=True)],
    }
    write(found, output, lambda: _render_several(titles, summaries, reports if with_jobs else ()))


def _report_unfinished(report: Report, place: str) -> None:
    left = [job for job in report.jobs if job.completion_s is None]
    if report.num_unfinished:
        example = f": job '{clean(left[0].name)}' {clean(left[0].reason)}" if left else ""
        typer.echo(
            f"legato: {place}{report.policy}: {report.num_unfinished} of {report.num_jobs} jobs did not end{example}",
            err=True,
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
    from legato.sim.report import compare, list_figures

    figures, ratios = [list_figures(report) for report in reports], compare(reports)

    def render(name: str, kind: str) -> list[str]:
        cells = [_render_figure(own[name], kind) for own in figures]
        return cells + [_render_ratio(own[name]) for own in ratios[1:]]

    return _tabulate(reports, render)


def _tabulate(policies: Sequence[Report] | Sequence[Summary], render: Callable[[str, str], list[str]]) -> Table:
    """Draw a row for each figure.

    Args:
        policies: what is known of each, one column each, and a second one for the ratio of all but the first.
        render: returns the cells of a figure, by its name and format.
    """
    from rich.table import Table

    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("")
    for own in policies:
        table.add_column(own.policy.upper(), justify="right", no_wrap=True)
    for own in policies[1:]:
        table.add_column(f"{own.policy} / {policies[0].policy}".upper(), justify="right", no_wrap=True)
    for name, (title, kind) in _FIGURES.items():
        table.add_row(title, *render(name, kind))
    num_jobs = [f"{own.num_jobs - own.num_unfinished} of {own.num_jobs}" for own in policies]
    table.add_row("jobs that succeeded", *num_jobs, *[""] * (len(policies) - 1))
    return table


def _render_several(titles: Sequence[str], summaries: Sequence[Summary], reports: Sequence[Sequence[Report]]) -> Group:
    """Draw a row for each figure: means over the workloads with their intervals, and ratios to the first policy."""
    from rich.console import Group

    def render(name: str, kind: str) -> list[str]:
        cells = [_render_estimate(own.figures[name], kind) for own in summaries]
        return cells + [_render_estimate(own.ratios[name], "number") for own in summaries[1:]]

    told = f"Means over {len(titles)} workloads, ± half of the 95 % interval (Student's t; one value per workload)."
    parts: list[Any] = [_tabulate(summaries, render), "", told]
    for title, own in zip(titles, reports, strict=False):
        for report in own:
            parts += ["", clean(title), _render_jobs(report)]
    return Group(*parts)


def _render_estimate(estimate: Estimate | None, kind: str) -> str:
    if estimate is None:
        return "-"
    value = _render_figure(estimate.mean, kind)
    return value if estimate.margin is None else f"{value} ± {_render_figure(estimate.margin, kind)}"


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
