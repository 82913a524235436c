"""`legato simulate`: its results for people and for programs, and what it refuses before it begins."""

from __future__ import annotations

import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import structlog
from typer.testing import CliRunner

from legato.cli import main
from legato.cli.platform import simulate as command
from legato.sim.report import list_figures, run_scheme
from legato.sim.schemes import SCHEMES
from legato.sim.simulation import Setting
from legato.sim.workload import read_workload

ROOT = Path(__file__).parents[4]
WORKLOADS = ROOT / "examples/workloads"
TWO = "name,submitted_at,min,max,steps\nfirst,0,1,4,40\nsecond,5,1,4,40\n"


@pytest.fixture
def two(tmp_path: Path) -> Path:
    (tmp_path / "two.csv").write_text(TWO)
    return tmp_path / "two.csv"


def call(*arguments: object) -> Any:
    return CliRunner().invoke(main.app, ["simulate", *map(str, arguments)])


def refused(*arguments: object) -> str:
    done = call(*arguments)
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    return str(done.stderr)


def test_a_table_for_people(two: Path) -> None:
    done = call(two, "--slots", 4, "--policy", "fair,gang")
    assert done.exit_code == 0, done.output
    rows = {line[:20].strip(): line[20:].split() for line in done.stdout.splitlines()}
    assert rows[""] == ["FAIR", "GANG", "GANG", "/", "FAIR"]
    assert rows["jobs that succeeded"] == ["2", "of", "2", "2", "of", "2"]
    assert {name for name, _ in command._FIGURES.values()} < set(rows)
    assert "second" not in done.stdout


def test_jobs_are_listed_on_request(two: Path) -> None:
    for option in (["--jobs"], ["-o", "wide"]):
        told = call(two, *option).stdout
        assert "user/first" in told and "user/second" in told


def test_the_figures_for_programs_are_those_of_the_report(two: Path) -> None:
    found = json.loads(call(two, "--slots", 4, "--policy", "fifo,fair", "-o", "json").stdout)
    assert [report["policy"] for report in found] == ["fifo", "fair"]
    for report in found:
        want = run_scheme(read_workload(two), Setting(num_slots=4), SCHEMES[report["policy"]]).report
        figures = list_figures(want)
        assert report["makespan_s"] == figures["makespan_s"]
        assert report["completion_s"]["mean"] == figures["mean_completion_s"]
        assert [job["name"] for job in report["jobs"]] == ["first", "second"]


def test_every_figure_is_shown() -> None:
    report = run_scheme([], Setting(), SCHEMES["fair"]).report
    assert set(command._FIGURES) == set(list_figures(report))


def test_a_line_for_each_job_for_spreadsheets(two: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(call(two, "--policy", "fair,gang", "-o", "csv").stdout)))
    assert [(row["policy"], row["name"]) for row in rows] == [
        ("fair", "first"),
        ("fair", "second"),
        ("gang", "first"),
        ("gang", "second"),
    ]


def test_what_is_set_counts(two: Path) -> None:
    two.write_text(TWO.replace("4,40\nsecond", "4,400\nsecond").replace("4,40\n", "4,900\n"))

    def makespan(*options: object) -> float:
        return float(json.loads(call(two, "--slots", 4, "-o", "json", *options).stdout)[0]["makespan_s"])

    usual = makespan()
    assert makespan("--worker-start", 60) > usual + 50
    assert makespan("--slots", 8) < usual
    assert makespan("--stability", 60) > usual
    assert makespan("--queue", "default:ceiling=1") > 1.5 * usual


def test_a_picture_is_drawn(two: Path, tmp_path: Path) -> None:
    done = call(two, "--slots", 4, "--policy", "fair,gang", "--draw", tmp_path / "a.svg")
    assert done.exit_code == 0 and "drawn" in done.stderr
    text = "".join(ET.parse(tmp_path / "a.svg").getroot().itertext())
    for told in ("two.csv on 4 slots", "fair", "gang", "user/first", "shrinks 4 → 2", "has the same weight"):
        assert told in text


def test_the_page_tells_and_shows_what_the_command_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs/simulation.md").read_text()
    (line,) = re.findall(r"^legato simulate (.*elasticdl.*) --draw (\S+)$", page, re.MULTILINE)
    monkeypatch.chdir(ROOT)
    done = call(*line[0].split(), "--draw", tmp_path / "again.svg", "-o", "json")
    makespans = {report["policy"]: report["makespan_s"] for report in json.loads(done.stdout)}
    base = makespans.pop("gang")
    told = [f"{base:.0f} s", *(f"{makespan:.0f} s, {makespan / base:.2f}" for makespan in makespans.values())]
    assert f"| simulated | {' | '.join(told)} |" in page
    assert (tmp_path / "again.svg").read_text() == (ROOT / line[1]).read_text(), "draw it again with the command"


def test_jobs_are_drawn_by_lot_and_written_down(tmp_path: Path) -> None:
    drawn = call("--random", 12, "--seed", 3, "--save", tmp_path / "w.csv", "-o", "json")
    again = call("--random", 12, "--seed", 3, "-o", "json")
    other = call("--random", 12, "--seed", 4, "-o", "json")
    saved = call(tmp_path / "w.csv", "-o", "json")
    assert drawn.stdout == again.stdout == saved.stdout != other.stdout


def test_several_seeds_and_files_give_intervals(two: Path, tmp_path: Path) -> None:
    options = ("--random", 6, "--random-kind", "training", "--slots", 16, "--policy", "gang,fair")
    done = call(*options, "--seed", 3, "--seeds", 3)
    rows = {line[:20].strip(): line[20:] for line in done.stdout.splitlines()}
    assert rows["completion, mean"].count(" ± ") == 3
    assert rows["jobs that succeeded"].split() == ["18", "of", "18", "18", "of", "18"]
    assert "Means over 3 workloads, ± half of the 95 % interval" in done.stdout
    found = json.loads(call(*options, "--seed", 3, "--seeds", 3, "-o", "json").stdout)
    alone = [json.loads(call(*options, "--seed", seed, "-o", "json").stdout) for seed in (3, 4, 5)]
    assert [one["reports"] for one in found["workloads"]] == alone
    means = [reports[1]["completion_s"]["mean"] for reports in alone]
    assert found["summary"][1]["figures"]["mean_completion_s"]["mean"] == pytest.approx(sum(means) / 3)
    (tmp_path / "more.csv").write_text(TWO)
    rows = list(csv.DictReader(io.StringIO(call(two, tmp_path / "more.csv", "-o", "csv").stdout)))
    assert [row["workload"] for row in rows] == ["two.csv", "two.csv", "more.csv", "more.csv"]


def test_output_of_sacct_is_simulated_and_saved(tmp_path: Path) -> None:
    real = ROOT / "tests/unit/sim/sacct.txt"
    done = call(real, "--sacct", "gpu", "--save", tmp_path / "w.csv", "--growth", 2, "--efficiency", 0.8, "-o", "json")
    assert done.exit_code == 0, done.output
    assert "sacct.txt: read 10 jobs from 27 lines" in done.stderr
    assert json.loads(done.stdout) == json.loads(call(tmp_path / "w.csv", "-o", "json").stdout)


def test_the_nodes_and_the_pause_may_have_several_sizes(two: Path) -> None:
    found = json.loads(call(two, "--nodes", "2x3,2", "-o", "json").stdout)[0]
    assert found["makespan_s"] == json.loads(call(two, "--slots", 8, "-o", "json").stdout)[0]["makespan_s"]
    slow = json.loads(call(two, "--slots", 4, "--resize-pause", "1:30 4:60", "-o", "json").stdout)[0]
    assert slow["makespan_s"] > json.loads(call(two, "--slots", 4, "-o", "json").stdout)[0]["makespan_s"] + 20


def test_no_job_grows_above_what_it_asks_for(tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_text("max,asked,steps\n8,2,100\n8,,100\n")
    jobs = json.loads(call(tmp_path / "w.csv", "--slots", 16, "--at-most-asked", "-o", "json").stdout)[0]["jobs"]
    assert jobs[0]["completion_s"] > 50 and jobs[1]["completion_s"] < 30


def test_jobs_that_do_not_end_are_reported(two: Path) -> None:
    done = call(two, "--until", 6, "--slots", 1)
    assert done.exit_code == 0
    assert "legato: fair: 2 of 2 jobs did not end: job 'first'" in done.stderr


def test_the_log_is_as_it_was_before(two: Path) -> None:
    before = structlog.get_config()
    call(two)
    assert structlog.get_config() == before


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "Give either a workload file, or --random 200"),
        (["two.csv", "--random", "5"], "Give either"),
        (["none.csv"], "Cannot read workload 'none.csv': No such file"),
        (["two.csv", "--nodes", "4x"], "Cannot read the nodes '4x': '4x'. Write, for example, 4x8,2x4"),
        (["two.csv", "--nodes", "0x4"], "Cannot read the nodes"),
        (["two.csv", "--nodes", "99999x9999"], "up to 100,000 slots"),
        (["two.csv", "--resize-pause", "4:1 2:3"], "Cannot read --resize-pause '4:1 2:3'"),
        (["two.csv", "--resize-pause", "-1"], "Cannot read --resize-pause '-1'"),
        (["--random", "3", "--seeds", "0"], "Cannot draw 0 jobs"),
        (["--random", "3", "--random-kind", "odd"], "There is no kind of random jobs 'odd'"),
        (["--random", "3", "--seeds", "2", "--draw", "a.svg"], "--draw draws one workload"),
        (["--random", "3", "--seeds", "2", "--save", "a.csv"], "--save saves one workload"),
        (["two.csv", "--sacct", "core"], "Cannot count slots by 'core'. Write one of gpu, cpu, node"),
        (["--sacct", "gpu"], "--sacct needs a file. Write one with: sacct --allusers"),
        (["two.csv", "--sacct", "gpu"], "its first line does not name the columns, with JobID"),
        (["two.csv", "--sacct", "gpu", "--efficiency", "2"], "--efficiency is a number from 0.05 to 1"),
        (["two.csv", "--sacct", "gpu", "--growth", "0.5"], "--growth is a number from 1 to 1000"),
        (
            ["two.csv", "--policy", "lottery"],
            "There is no policy 'lottery'. Write one or more of fair, fair-by-job, fair-serial, ",
        ),
        (["two.csv", "--policy", "fair,fair"], "named twice"),
        (["two.csv", "--slots", "0"], "a pool without slots"),
        (["two.csv", "--usage-half-life", "0"], "--usage-half-life must be above 0"),
        (["two.csv", "--slots", "-1"], "from 0 to"),
        (["two.csv", "--slots", "many"], "Write a whole number, such as 8"),
        (["two.csv", "--stability", "-1"], "Write seconds, 0 or more, such as 3"),
        (["two.csv", "--cooldown", "nan"], "Write a number, 0 or more, such as 20"),
        (["two.csv", "--queue", "night"], "Write, for example, night:weight=2,floor=1,ceiling=8"),
        (["two.csv", "--queue", "night:weight=heavy"], "'heavy' is not a number"),
        (["two.csv", "--queue", "night:speed=2"], "'speed=2'. Give weight, floor and ceiling"),
        (["two.csv", "--queue", "nihgt:weight=2"], "No job is in queue 'nihgt'. The queues of the jobs are: default."),
        (["two.csv", "--queue", "night:floor=4,ceiling=2"], "a ceiling not below the floor"),
        (["two.csv", "--draw", "two.jpeg"], "Give a name that ends in .svg or .png"),
        (["two.csv", "--draw", "none/two.svg"], "there is no folder"),
        (["two.csv", "--save", "copy.csv"], "--save is for drawn or imported jobs"),
        (["two.csv", "--efficiency", "0.5"], "--efficiency is for output of Slurm's sacct, which --sacct reads"),
        (["--random", "3", "--growth", "2"], "--growth is for output of Slurm's sacct"),
        (["two.csv", "--seeds", "1"], "--seeds is for random jobs, but these come from a file. Leave it out."),
        (["two.csv", "--sacct", "gpu", "--mean-gap", "60"], "--mean-gap is for random jobs"),
        (["two.csv", "--random-kind", "training"], "--random-kind is for random jobs"),
        (["--random", "0"], "Give 1 or more with --random"),
        (["--random", "3", "--mean-gap", "0"], "--mean-gap must be above 0"),
        (["--random", "3", "--save", "none/w.csv"], "Choose another place"),
        (["wide.csv", "--slots", "4"], "line 3: job 'wide' needs 9 slots at once, but the pool has 4. Lower its min"),
        (["late.csv"], "line 3: submitted_at is 1, before the 5 of line 2"),
        (["empty.csv"], "line 1: name at least the columns"),
    ],
)
def test_what_cannot_be_done_is_refused_before_it_begins(
    arguments: list[str], told: str, two: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = two.parent
    (folder / "wide.csv").write_text("name,min,max,steps\na,1,2,3\nwide,9,9,3\n")
    (folder / "late.csv").write_text("submitted_at,max,steps\n5,1,1\n1,1,1\n")
    (folder / "empty.csv").write_text("")
    before = sorted(folder.iterdir())
    monkeypatch.chdir(folder)
    monkeypatch.setattr("legato.sim.report.run_scheme", None)
    assert told in refused(*arguments)
    assert sorted(folder.iterdir()) == before


def test_users_are_compared_under_both_ways_to_share() -> None:
    """The page has these lines."""
    root = Path(__file__).parents[4]
    done = call(root / "examples/workloads/sweep.csv", "--slots", 8, "--policy", "fair,fair-by-job")
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith(("ann", "ben"))]
    assert rows == [
        ["ann", "12", "3:41", "18:13", "3:21", "13:25"],
        ["ben", "2", "1.0", "s", "10:05", "4:32", "16:00"],
    ]
    page = (root / "docs/simulation.md").read_text()
    for row in rows:
        assert "| " + " | ".join(row).replace("1.0 | s", "1.0 s") + " |" in page
