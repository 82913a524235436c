"""Renders results as tables and puts them into ``docs/benchmarks.md``. Pure but for `update`; measures nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.agreement import share_of
from benchmarks.checkpoints import TARGET_LONGEST, TARGET_LOST

Result = dict[str, Any]

_CHANGES_TARGET_STEPS: Final = 1.0
_WORST_CHANGE_STEPS: Final = 2.0
_KINDS: Final = ("grow", "shrink")


def render(result: Result) -> str:
    """Render one result as a Markdown table with its provenance.

    Args:
        result: what `python -m benchmarks` wrote.
    """
    lines = [*_RENDERERS[result["name"]](result["rows"]), "", render_provenance(result["provenance"])]
    lines += [f"\nNot measured: {failure}" for failure in result["failures"]]
    return "\n".join(lines)


def render_provenance(known: dict[str, Any]) -> str:
    """Render in one line how a table came about."""
    commit = known["commit"] + (" with changes" if known["changed"] else "")
    load = known["load_before"][0]
    return (
        f"*{known['date'][:10]}, commit {commit}, {known['settings']} settings, {known['cores']} cores "
        f"({known['processor']}), {known['memory_gb']:g} GB, Python {known['python']}, torch {known['torch']}, "
        f"{known['device']} + {known['backend']}, load before the run {load:g}.*"
    )


def put_between_markers(page: str, name: str, table: str) -> str:
    r"""Return a page with the table of that name in its place.

    >>> put_between_markers("a <!-- begin: x -->old<!-- end: x --> b", "x", "new")
    'a <!-- begin: x -->\nnew\n<!-- end: x --> b'
    """
    begin, end = f"<!-- begin: {name} -->", f"<!-- end: {name} -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    assert pattern.search(page), f"the page has no place for {name}"
    return pattern.sub(lambda _: f"{begin}\n{table}\n{end}", page)


def update(page: Path, results: Sequence[Path]) -> None:
    """Put the tables of some results into a page."""
    text = page.read_text()
    for path in results:
        result = json.loads(path.read_text())
        text = put_between_markers(text, result["name"], render(result))
    page.write_text(text)


# ---------------------------------------------------------------- one renderer per result


def _step_time(rows: Sequence[dict[str, Any]]) -> list[str]:
    table = [
        (
            _case(row),
            _with_quartiles(row["ratio"]),
            "-" if row["target"] is None else _verdict(row["ratio"]["median"], row["target"], f"≤ {row['target']:.2f}"),
            f"{row['ours_ms']['median']:.2f} : {row['theirs_ms']['median']:.2f}",
        )
        for row in rows
        if row["reduction"] == "exact"  # on one machine, "fast" takes the same way
    ]
    return _table(("model", "time of a step, ours / DDP (quartiles)", "reach", "ms, ours : DDP"), table)


def _nodes(rows: Sequence[dict[str, Any]]) -> list[str]:
    def name(row: dict[str, Any]) -> str:
        rate = "no limit" if row["mbit"] is None else f"{row['mbit']:g} Mbit/s"
        return f"{row['nodes']} nodes, {rate}, {row['micro_batches']} micro-batches of {row['micro_batch_ms']:g} ms"

    def compare(row: dict[str, Any]) -> str:
        better = max(("even", "aligned"), key=lambda mode: row["to"][mode]["median"])
        is_same = all(round(row[key]["chosen"], 1) == round(row[key][better], 1) for key in ("longest", "to_ring"))
        ratio = row["to"]["better"]["median"]
        verdict = _verdict(ratio, row["target"], f"≤ {row['target']}")
        return f"**{ratio:.2f}**, {'the same spans' if is_same else verdict}"

    def describe(row: dict[str, Any], mode: str) -> str:
        return f"**{row['to'][mode]['median']:.2f}**, {row['longest'][mode]}, {row['to_ring'][mode]:.2f}"

    table = [
        (
            name(row),
            f"{row['ms']:.0f} ms, {row['longest']['chosen']}, {row['to_ring']['chosen']:.2f}",
            describe(row, "even"),
            describe(row, "aligned"),
            compare(row),
            f"**{row['to']['before']['median']:.2f}**, {row['to_ring']['before']:.2f}",
            f"**{row['to']['fast']['median']:.2f}**",
            f"**{row['to']['ddp']['median']:.2f}**, {row['to_ring']['ddp']:.2f}",
            f"{row['cpu_ms']['chosen'] / row['cpu_ms']['ddp']:.2f}" if "cpu_ms" in row else "-",
        )
        for row in rows
    ]
    return _table(
        (
            "case",
            "Legato: step, span, bytes",
            "to even spans, span, bytes",
            "to aligned spans, span, bytes",
            "to the better one",
            "to blocks to every rank, bytes",
            "to `fast`",
            "to DDP, bytes",
            "processor, to DDP",
        ),
        table,
    )


def _loading(rows: Sequence[dict[str, Any]]) -> list[str]:
    table = [
        (
            f"{row['data']}, {row['batch']} per batch",
            row["beside"],
            _with_quartiles(row["ratio"]),
            _verdict(row["ratio"]["median"], row["target"], f"≤ {row['target']:.2f}"),
            f"{row['ours_us']['median']:.0f} : {row['theirs_us']['median']:.0f}",
        )
        for row in rows
    ]
    return _table(
        ("data set", "beside", "time of a batch, ours / other (quartiles)", "reach", "µs, ours : other"), table
    )


def _micro_batches(rows: Sequence[dict[str, Any]]) -> list[str]:
    alone = {(row["model"], row["micro_batches"]): row["ours_ms"]["median"] for row in rows if row["workers"] == 1}

    def speed_up(row: dict[str, Any]) -> str:
        of_one = alone.get((row["model"], row["micro_batches"]))
        return "-" if row["workers"] == 1 or of_one is None else f"**{of_one / row['ours_ms']['median']:.2f}**"

    table = [
        (
            f"{row['model']}, {row['workers']} worker{'s' * (row['workers'] > 1)}",
            f"{row['micro_batches']}",
            _with_quartiles(row["ratio"]),
            "-" if row["target"] is None else _verdict(row["ratio"]["median"], row["target"], f"≤ {row['target']:.2f}"),
            f"{row['ours_ms']['median']:.2f} : {row['theirs_ms']['median']:.2f}",
            f"{row['extra_us']['median']:.0f}",
            speed_up(row),
        )
        for row in rows
    ]
    head = ("model", "V", "time of a step, ours / plain loop (quartiles)", "reach", "ms, ours : plain")
    return _table((*head, "extra µs per micro-batch of a worker", "speed-up over one worker"), table)


def _memory(rows: Sequence[dict[str, Any]]) -> list[str]:
    names = {"plain": "a plain loop", "ddp": "DDP"}
    table = [
        (
            f"{row['model']}, {row['workers']} worker{'s' * (row['workers'] > 1)}",
            f"{row['micro_batches']}",
            "yes" if row["saves"] else "no",
            names[row["beside"]],
            f"**{row['ours_mb'] / row['theirs_mb']:.2f}**",
            f"{row['ours_mb']:.0f} : {row['theirs_mb']:.0f}",
        )
        for row in rows
    ]
    head = ("model", "V", "with a checkpoint", "beside", "most memory of a worker, ours / other", "MB, ours : other")
    return _table(head, table)


def _changes(rows: Sequence[dict[str, Any]]) -> list[str]:
    changes = [
        (
            _sized(kind, row),
            row["state"],
            _with_quartiles(change["extra_steps"]),
            _verdict(change["extra_steps"]["median"], _CHANGES_TARGET_STEPS, "≤ 1 step"),
            f"{change['extra_steps']['worst']:.2f} of {change['extra_steps']['number']:.0f}",
            _verdict(change["extra_steps"]["worst"], _WORST_CHANGE_STEPS, "≤ 2 steps"),
            f"{change['extra_ms']['median']:.0f} of {change['step_ms']['median']:.0f}",
            f"{change['whole_steps']['median']:.1f}",
        )
        for row in rows
        for kind in _KINDS
        for change in [row["changes"][kind]]
    ]
    joins = [
        (
            _sized("grow", row),
            row["state"],
            f"**{row['contribution']['total_s']['median']:.2f} s**",
            _verdict_of_contribution(row["contribution"]),
            *(f"{part['median']:.3f}" for part in row["contribution"]["parts_s"].values()),
        )
        for row in rows
    ]
    parts = tuple(rows[0]["contribution"]["parts_s"]) if rows else ()
    extra = "extra time of the switching interval, in steps (quartiles)"
    return [
        *_table(
            (
                "planned change",
                "state",
                extra,
                "reach",
                "the worst of all events",
                "reach",
                "ms extra, of a step of",
                "whole change, steps",
            ),
            changes,
        ),
        "",
        *_table(
            ("planned change", "state", "request to first contribution", "reach", *(f"{part}, s" for part in parts)),
            joins,
        ),
    ]


def _deaths(rows: Sequence[dict[str, Any]]) -> list[str]:
    told = {"SIGKILL": "0.1 s + a step", "SIGSTOP": "limit + 0.1 s"}
    table = [
        (
            f"{row['signal']}, {row['model']}",
            f"**{row['gap_s']['median']:.3f} s** (worst {row['gap_s']['worst']:.3f})",
            _verdict(row["gap_s"]["median"], row["target_s"], f"≤ {row['target_s']:.3f} s ({told[row['signal']]})"),
            f"{1e3 * row['step_s']['median']:.0f}",
            f"{row['gap_s']['number']:.0f}",
        )
        for row in rows
    ]
    return _table(
        ("event, model", "to the next committed step", "reach", "ms, a step of the survivors", "events"), table
    )


def _peers(rows: Sequence[dict[str, Any]]) -> list[str]:
    table = [
        (row["peer"], "-", f"skipped: {row['skipped']}", "-")
        if "skipped" in row
        else (row["peer"], f"{row['event']}, {row['model']}", _with_worst(row["gap_s"]), _number(row))
        for row in rows
    ]
    return _table(("peer", "event, model", "gap", "events"), table)


def _lost_nodes(rows: Sequence[dict[str, Any]]) -> list[str]:
    ways = {"crash": "a host crashes", "cut": "a host is cut off"}

    def verdict(row: dict[str, Any]) -> str:
        if "target_s" not in row:
            return "-"
        return _verdict(row["gap_s"]["median"], row["target_s"], f"≤ {row['target_s']:.2f} s (limit + 1 s + a step)")

    def count(row: dict[str, Any]) -> str:
        number = 0 if row["gap_s"] is None else row["gap_s"]["number"]
        failed = row.get("num_failed", 0)
        return f"{number:.0f}" + (f", {failed} more failed" if failed else "")

    table = [
        (
            f"{ways[row['way']]}, limit {row['limit_s']:g} s",
            row["who"],
            "-" if row["gap_s"] is None else _with_worst(row["gap_s"]),
            verdict(row),
            count(row),
        )
        for row in rows
    ]
    return _table(("event", "", "to the next step of the others", "reach", "events"), table)


_MACHINES: Final = {"mixed": ", mixed", "owned": ", half of single users"}


def _scheduling(rows: Sequence[dict[str, Any]]) -> list[str]:
    table = [
        (
            f"{row['policy']}, {row['moment']}",
            f"{row['slots']:,} slots, {row['jobs']:,} jobs" + _MACHINES.get(row.get("machines", "equal"), ""),
            f"**{took['median']:.0f} ms** ({took['low']:.0f} to {took['high']:.0f})",
            f"{took['median'] / row['target_ms']:.2f}",
            _verdict(took["median"], row["target_ms"], f"≤ {row['target_ms']:.0f} ms"),
        )
        for row in rows
        for took in [row["decision_ms"]]
    ]
    return _table(("policy, moment", "pool", "one decision (quartiles)", "of the bound", "reach"), table)


def _sharing(rows: Sequence[dict[str, Any]]) -> list[str]:
    table = [
        (
            f"**{row['ratio']:.2f}**",
            f"{row['elastic_s']:.1f} : {row['gang_s']:.1f}",
            "yes" if row["same_weights"] else "**no**",
        )
        for row in rows
    ]
    return _table(("elastic / gang, total time", "s, elastic : gang", "all four weights the same"), table)


def _load(rows: Sequence[dict[str, Any]]) -> list[str]:
    table = [
        (row["what"], f"**{row['value']:{row['format']}} {row['unit']}**", _reach(row), row["told"]) for row in rows
    ]
    return _table(("load", "measured", "reach", "how"), table)


def _history(rows: Sequence[dict[str, Any]]) -> list[str]:
    table = [
        (
            row["what"],
            _with_quartiles(row["ratio"]),
            _verdict(row["ratio"]["median"], row["target"], f"≤ {row['target']:.2f}"),
            f"{row['cpu_ms'][0]:.1f} : {row['cpu_ms'][1]:.1f}",
            f"{row['ms'][0]:.1f} : {row['ms'][1]:.1f}",
        )
        for row in rows
    ]
    many, few = (f"{rows[0][name]:,}" if rows else name for name in ("jobs", "few"))
    head = f"CPU time of the server, {many} / {few} ended jobs (quartiles)"
    return _table(("request", head, "reach", "ms of CPU", "ms until the answer"), table)


def _reach(row: dict[str, Any]) -> str:
    if row["target"] is None:
        return "-"
    sign, better = (
        ("≥", row["value"] >= row["target"]) if row["more_is_better"] else ("≤", row["value"] <= row["target"])
    )
    return f"{sign} {row['target']:g} {row['unit']}: {'reached' if better else '**not reached**'}"


def _start(rows: Sequence[dict[str, Any]]) -> list[str]:
    table = []
    for row in rows:
        found = row.get("extra_s", row.get("whole_s"))
        reach = _verdict(found["median"], row["target_s"], f"≤ {row['target_s']} s")
        measured = f"**{found['median']:.2f} s** ({found['low']:.2f} to {found['high']:.2f})"
        beside = f"above {row['plain_s']['median']:.2f} s" if "plain_s" in row else "whole command"
        table.append((row["way"], measured, reach, beside))
    return _table(("command", "measured (quartiles)", "reach", "how"), table)


def _elasticdl(rows: Sequence[dict[str, Any]]) -> list[str]:
    told = {
        "end": "end of the job: from its last step until all processes have ended",
        "join": "2 → 3 workers: from the request to the newcomer's first step",
        "pause": "2 → 3 workers: extra time of the longest step of the others",
        "kill": "SIGKILL of one of 3: until the others' next step",
        "collapse": "SIGKILL of one of 3: jobs that failed",
        "forming": "SIGKILL while a new world forms: jobs that failed, or restarted from scratch",
    }
    table = [
        (
            told[row["case"]],
            *_beside_steps(row),
            row["original"],
            "-" if row["ratio"] is None else f"**{row['ratio']:g}**",
        )
        for row in rows
    ]
    return _table(("what", "Legato", "in steps of 0.1 s", "original", "original / Legato"), table)


def _beside_steps(row: dict[str, Any]) -> tuple[str, str]:
    if "gap_s" not in row:
        return f"**{row['lost']} of {row['number']}**", "-"
    return f"{_with_worst(row['gap_s'])}, {_number(row)} times", f"{row['gap_s']['median'] / row['step_s']:.1f}"


def _agreement(rows: Sequence[dict[str, Any]]) -> list[str]:
    table = [
        (
            row["model"],
            f"{row['state_mb']:g} MB",
            f"{row['check_ms']['median']:.2f} : {row['step_ms']['median']:.2f}",
            _with_quartiles(row["ratio"]),
            _verdict(row["ratio"]["median"], 1.0, "≤ 1 step"),
            f"{100 * share_of(row['ratio']['median']):.2f} %",
            _verdict(share_of(row["ratio"]["median"]), 0.01, "≤ 1 %"),
        )
        for row in rows
    ]
    head = (
        "model",
        "state",
        "ms, check : step",
        "a check, in steps (quartiles)",
        "reach",
        "share of training",
        "reach",
    )
    return _table(head, table)


def _checkpoints(rows: Sequence[dict[str, Any]]) -> list[str]:
    table = []
    for row in rows:
        has_spare = row["cores"] > 1
        longest, ratio = row["longest"]["median"], row["lost_ratio"]["median"]
        table.append(
            (
                f"{row['state_mb']} MB, {'a spare core' if has_spare else 'no spare core'}",
                _with_quartiles(row["longest"]),
                _verdict(longest, TARGET_LONGEST, "≤ 1.10") if has_spare else "-",
                _with_quartiles(row["lost_ratio"]),
                _verdict(ratio, TARGET_LOST, "≤ 1.00"),
                f"{row['lost_s']['median']:.2f} : {row['save_s']['median']:.2f}",
                f"{row['step_ms']['median']:.0f}",
            )
        )
    head = (
        "state",
        "the longest step, over the longest of as many others (quartiles)",
        "reach",
        "lost time, ours / torch.save (quartiles)",
        "reach",
    )
    return _table((*head, "s, ours : torch.save", "ms of a step"), table)


_RENDERERS: Final[dict[str, Callable[[Sequence[dict[str, Any]]], list[str]]]] = {
    "step_time": _step_time,
    "micro_batches": _micro_batches,
    "loading": _loading,
    "memory": _memory,
    "changes": _changes,
    "agreement": _agreement,
    "checkpoints": _checkpoints,
    "deaths": _deaths,
    "peers": _peers,
    "nodes": _nodes,
    "lost_nodes": _lost_nodes,
    "scheduling": _scheduling,
    "sharing": _sharing,
    "load": _load,
    "consoles": _load,
    "history": _history,
    "start": _start,
    "elasticdl": _elasticdl,
}


def _case(row: dict[str, Any]) -> str:
    number = row["micro_batches_per_worker"]
    return f"{row['model']}, {row['workers']} workers, {number} micro-batch{'es' if number > 1 else ''} each"


def _sized(kind: str, row: dict[str, Any]) -> str:
    before, after = (row["few"], row["many"]) if kind == "grow" else (row["many"], row["few"])
    return f"{kind} {before} → {after}"


def _with_quartiles(summary: dict[str, float]) -> str:
    return f"**{summary['median']:.2f}** ({summary['low']:.2f} to {summary['high']:.2f})"


def _with_worst(gap_s: dict[str, float]) -> str:
    # From some milliseconds to half a minute in one table.
    digits = 3 if gap_s["median"] < 1 else 1
    return f"**{gap_s['median']:.{digits}f} s** (worst {gap_s['worst']:.{digits}f})"


def _number(row: dict[str, Any]) -> str:
    return f"{row['gap_s']['number']:.0f}"


def _verdict_of_contribution(found: dict[str, Any]) -> str:
    target_s = found["target_s"]
    return _verdict(found["total_s"]["median"], target_s, f"≤ {target_s:.2f} s (0.3 s + 2 steps + a copy)")


def _verdict(value: float, target: float, told: str) -> str:
    return f"{told}: {'reached' if value <= target else '**not reached**'}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [_line(head), _line(["---"] * len(head)), *map(_line, rows)]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
