"""Train one network twice, with and without disturbances, and compare the weights bit for bit.

The first training starts with 1 worker, grows to 4, shrinks to 2, has a worker killed, grows again and finishes. The
second runs undisturbed on 1 worker. Exits with 1 if the weights differ.

    python examples/demo.py
"""

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chart import draw_chart
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from legato.engines.gpus import find_devices

PROGRAM = Path(__file__).with_name("mnist_elastic.py")
MAX_WORKERS = 4
LOOK_EVERY_S = 0.1
MARKS = {"grow": "▲", "shrink": "▼", "kill": "✖"}
EVENT_STYLES = {
    "died": "bold red",
    "fenced": "bold red",
    "failed": "bold red",
    "recovered": "green",
    "proposed": "cyan",
}
STYLES = {"█": "cyan", "▲": "bold green", "▼": "bold yellow", "✖": "bold red"}


class Job:
    """A training under `legato run`, watched through the records that its driver writes.

    Args:
        name: of the job.
        workers: as for ``legato run --workers``.
        epochs: how long it trains.
        home: where Legato keeps the job's files.
    """

    def __init__(self, name: str, workers: str, epochs: int, home: Path) -> None:
        self.name = name
        self._directory = home / "jobs" / name
        self._output = home / f"{name}.txt"
        self._environment = {**os.environ, "LEGATO_HOME": str(home), **share_gpus()}
        self._read: dict[str, int] = {}
        self.ledger: list[dict[str, Any]] = []  # the first commit of step 1, 2, ...
        self.events: list[dict[str, Any]] = []
        self.members: dict[int, set[int]] = {}
        self.pauses: dict[int, float] = {}
        self.num_steps = 0
        self.begun_at = time.monotonic()
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                self._command(
                    "run",
                    "--name",
                    name,
                    "--workers",
                    workers,
                    "--initial-workers",
                    "1",
                    "--plain",
                    PROGRAM,
                    "--epochs",
                    epochs,
                ),
                env=self._environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    # ------------------------------------------------------------ what can be done to it

    def scale(self, num_workers: int) -> None:
        """Run `legato scale`."""
        subprocess.run(
            self._command("scale", self.name, num_workers),
            env=self._environment,
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def kill_main_worker(self) -> None:
        """Send SIGKILL to the worker of rank 0, because no worker is special."""
        worker = min((worker for worker in self.status()["workers"] if worker["rank"] is not None), key=_rank)
        os.kill(worker["pid"], signal.SIGKILL)

    def status(self) -> dict[str, Any]:
        """Run `legato status -o json`."""
        command = self._command("status", self.name, "-o", "json")
        found: dict[str, Any] = json.loads(subprocess.check_output(command, env=self._environment))
        return found

    def end(self) -> None:
        """Leave nothing running."""
        if self._process.poll() is None:
            command = self._command("stop", self.name, "--now")
            subprocess.run(command, env=self._environment, check=False, capture_output=True)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
            self._process.kill()
            self._process.wait()

    # ------------------------------------------------------------ what can be seen of it

    @property
    def is_over(self) -> bool:
        return self._process.poll() is not None

    @property
    def step(self) -> int:
        return len(self.ledger)

    @property
    def view(self) -> int:
        """The number of the present membership."""
        return max((line["view"] for line in self.ledger), default=0)

    @property
    def sizes(self) -> list[int]:
        """How many workers there were at step 1, 2, ..."""
        sizes: list[int] = []
        for line in self.ledger:
            # View 0: a worker that joined later reported the step. Take the workers of the step before.
            sizes.append(len(self.members.get(line["view"], ())) or (sizes[-1] if sizes else 1))
        return sizes

    @property
    def is_whole(self) -> bool:
        """Every step was committed, and none twice."""
        return [line["step"] for line in self.ledger] == list(range(1, self.num_steps + 1))

    @property
    def step_s(self) -> float:
        """How long a step took on average."""
        return (self.ledger[-1]["time"] - self.ledger[0]["time"]) / max(self.step - 1, 1) if self.ledger else 0.0

    def look(self) -> None:
        """Read what is new."""
        new = list(self._lines("events.jsonl"))
        for event in new:
            joined = re.search(r"is in view (\d+) after ([\d.]+) s", event["reason"])
            if event["kind"] == "joined" and joined:
                self._note_joined(int(joined[1]), event["worker"], float(joined[2]))
        self.events += new
        self.ledger += self._lines("ledger.jsonl")
        # Written as workers report, which is nearly but not always in order.
        self.ledger.sort(key=lambda line: int(line["step"]))
        if self.ledger and not self.num_steps:
            self.num_steps = self.status()["num_steps"] or 0

    def result(self) -> tuple[str, str]:
        """Return accuracy and SHA-256 as the program printed them, once it is over."""
        log = "\n".join(path.read_text() for path in sorted((self._directory / "logs").glob("worker-*.log")))
        accuracy = re.findall(r"^accuracy ([\d.]+)$", log, re.MULTILINE)
        digest = re.findall(r"^weights sha256 (\w{64})$", log, re.MULTILINE)
        if self._process.wait() != 0 or not accuracy or not digest:
            raise SystemExit(f"The job '{self.name}' did not train to its end:\n{self._output.read_text()}")
        return accuracy[-1], digest[-1]

    def _note_joined(self, view: int, worker: int, pause_s: float) -> None:
        self.members.setdefault(view, set()).add(worker)
        if worker in self.members.get(view - 1, ()):
            # A newcomer has been waiting to begin; only who trained before was held up.
            self.pauses[view] = max(pause_s, self.pauses.get(view, 0.0))

    def _lines(self, file: str) -> Iterator[dict[str, Any]]:
        with contextlib.suppress(FileNotFoundError), (self._directory / file).open("rb") as stream:
            stream.seek(self._read.get(file, 0))
            for line in stream:
                if not line.endswith(b"\n"):
                    break
                self._read[file] = self._read.get(file, 0) + len(line)
                yield json.loads(line)

    def _command(self, *words: object) -> list[str]:
        return [sys.executable, "-m", "legato.cli", *map(str, words)]


def _rank(worker: dict[str, Any]) -> int:
    return int(worker["rank"])


# ---------------------------------------------------------------- the story


@dataclass(frozen=True)
class Act:
    """Something that is done to the job once it has come far enough and the act before it has taken effect."""

    kind: str
    part: float
    told: str
    do: Callable[[Job], None]
    num_workers: int


STORY = (
    Act("grow", 0.08, "legato scale disturbed 4", lambda job: job.scale(4), 4),
    Act("shrink", 0.34, "legato scale disturbed 2", lambda job: job.scale(2), 2),
    Act("kill", 0.54, "kill -9 the worker of rank 0", Job.kill_main_worker, 2),
    Act("grow", 0.74, "legato scale disturbed 4", lambda job: job.scale(4), 4),
)


class Play:
    """Plays the story on a job, as far as the job has come."""

    def __init__(self, job: Job, story: tuple[Act, ...]) -> None:
        self._job = job
        self._waiting = list(story)
        self._last: tuple[int, int] | None = None  # view in which the last act was played, workers it leads to
        self.played: dict[int, Act] = {}

    @property
    def unplayed(self) -> list[Act]:
        return self._waiting

    def go_on(self) -> Act | None:
        """Play the next act if its time has come."""
        job = self._job
        if not self._waiting or not job.num_steps or job.is_over:
            return None
        if self._last is not None and (job.view <= self._last[0] or job.sizes[-1] != self._last[1]):
            return None
        act = self._waiting[0]
        if job.step < act.part * job.num_steps:
            return None
        self._last = (job.view, act.num_workers)
        self.played[job.step] = self._waiting.pop(0)
        act.do(job)
        return act


# ---------------------------------------------------------------- pictures


def tell_events(job: Job) -> Table:
    """Draw a row for each event that changed something, with its reason as Legato records it."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("step", justify="right")
    table.add_column("event")
    table.add_column("reason", overflow="fold")
    table.add_column("workers", justify="right")
    table.add_column("pause", justify="right")
    for event in job.events:
        kind, reason = event["kind"], event["reason"]
        told = [str(event.get("step", 0)), Text(kind, style=EVENT_STYLES.get(kind, "")), Text(reason)]
        if found := re.match(r"view (\d+): ", reason) if kind in ("proposed", "recovered") else None:
            members, pause_s = job.members.get(int(found[1]), ()), job.pauses.get(int(found[1]))
            table.add_row(*told, str(len(members)) if members else "", render_ms(pause_s))
        elif kind in ("scaled", "died", "fenced", "resumed", "failed") or event["level"] == "error":
            table.add_row(*told, style="dim" if kind == "scaled" else "")
    return table


def render_ms(seconds: float | None) -> str:
    """Write a duration.

    >>> render_ms(0.0123), render_ms(None)
    ('12 ms', '')
    """
    return "" if seconds is None else f"{1000 * seconds:.0f} ms"


def picture(job: Job, play: Play) -> Text:
    """Draw how many workers there were, and when something was done to them."""
    marks = {step: MARKS[act.kind] for step, act in play.played.items()}
    lines = draw_chart(job.sizes, max(job.num_steps, 1), MAX_WORKERS, marks)
    if marks:
        lines[-1] = f"{lines[-1]:<34}▲ grow   ▼ shrink   ✖ kill -9"
    text = Text("\n".join(lines))
    for sign, style in STYLES.items():
        text.highlight_words([sign], style)
    return text


def watch(job: Job, play: Play, console: Console, title: str) -> float:
    """Follow a job to its end, live on a terminal and in plain lines elsewhere; returns how long it took."""
    if not console.is_terminal:
        tenth = 0
        while follow(job, play, lambda act: console.print(f"  step {job.step:>5}  {act.told}")):
            if job.num_steps and 10 * job.step // job.num_steps > tenth:
                tenth = 10 * job.step // job.num_steps
                console.print(f"  step {job.step:>5}  {10 * tenth:>3} %  workers {job.sizes[-1]}", style="dim")
        return time.monotonic() - job.begun_at
    with Live(console=console, auto_refresh=False, transient=True) as screen:
        while follow(job, play, lambda act: console.print(f"  step {job.step:>5}  {act.told}", style="bold")):
            drawn = picture(job, play) if job.step else Text("workers are starting …", style="dim")
            screen.update(Panel(Group(drawn, Text(), tell_events(job)), title=title, border_style="cyan"), refresh=True)
    return time.monotonic() - job.begun_at


def follow(job: Job, play: Play, tell: Callable[[Act], object]) -> bool:
    """Wait a moment, see what is new and do what is due; returns whether the job continues."""
    over = job.is_over
    if not over:
        time.sleep(LOOK_EVERY_S)
    job.look()
    act = play.go_on()
    if act is not None:
        tell(act)
    return not over


def tell_verdict(console: Console, rows: dict[str, tuple[str, str]], digests: tuple[str, str]) -> bool:
    """Show both trainings side by side; returns whether their weights are equal."""
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="bold")
    for column in ("", "disturbed", "undisturbed"):
        table.add_column(column)
    for name, (disturbed, undisturbed) in rows.items():
        table.add_row(Text(name, style="dim"), disturbed, undisturbed)
    console.print(table)
    equal = digests[0] == digests[1]
    style = "bold green" if equal else "bold red"
    console.print("\nSHA-256 of the trained weights")
    for name, digest in zip(("disturbed", "undisturbed"), digests, strict=True):
        console.print(f"  {name:<13}", Text(digest, style=style), soft_wrap=True, sep="")
    if equal:
        told = "EQUAL", "  Not one bit of the network tells who trained it, or what happened meanwhile."
    else:
        told = "DIFFERENT", "  This must never happen. Please report it with the lines above."
    console.print(Text.assemble("\n", (told[0], style), told[1]), soft_wrap=True)
    return equal


# ---------------------------------------------------------------- main


def share_gpus() -> dict[str, str]:
    """Return the variables by which the workers share the GPUs of this machine if it has some, but too few."""
    num_gpus = len(find_devices())
    if not 0 < num_gpus < MAX_WORKERS or os.environ.get("LEGATO_DEVICE"):
        return {}
    return {"LEGATO_DEVICE": ",".join(f"cuda:{number % num_gpus}" for number in range(MAX_WORKERS))}


def main() -> int:
    """Play the whole demo; returns the exit code."""
    parser = argparse.ArgumentParser(description="Train one network twice, disturbed and undisturbed; compare.")
    parser.add_argument("--epochs", type=int, default=20)
    epochs = parser.parse_args().epochs
    console = Console(highlight=False)

    def say(text: str, style: str = "") -> None:
        console.print(text, style=style, soft_wrap=True)

    say("A small convolutional network learns to read handwritten digits, twice, from the same seed.\n", "bold")
    with tempfile.TemporaryDirectory(prefix="legato-demo-") as home, contextlib.ExitStack() as endings:
        say("1. Disturbed: workers come, go and are killed while it trains.", "bold")
        job = Job("disturbed", f"1..{MAX_WORKERS}", epochs, Path(home))
        endings.callback(job.end)
        play = Play(job, STORY)
        elapsed_s = watch(job, play, console, "legato run --workers 1..4 mnist_elastic.py")
        accuracy, digest = job.result()
        console.print("", picture(job, play), "", tell_events(job), sep="\n", soft_wrap=True)

        say("\n2. Undisturbed: the same program, with one worker from beginning to end.", "bold")
        calm = Job("undisturbed", "1", epochs, Path(home))
        endings.callback(calm.end)
        calm_elapsed_s = watch(calm, Play(calm, ()), console, "legato run --workers 1 mnist_elastic.py")
        calm_accuracy, calm_digest = calm.result()

    say("")
    rows = {
        "workers": (" → ".join(map(str, list_changes(job.sizes))), "1"),
        "steps": tuple(f"{j.step}, {'each once' if j.is_whole else 'NOT each once'}" for j in (job, calm)),
        "longest pause": (render_ms(max(job.pauses.values(), default=0.0)), "none"),
        "mean step": (render_ms(job.step_s), render_ms(calm.step_s)),
        "time": (f"{elapsed_s:.0f} s", f"{calm_elapsed_s:.0f} s"),
        "digits read correctly": (f"{100 * float(accuracy):.1f} %", f"{100 * float(calm_accuracy):.1f} %"),
    }
    equal = tell_verdict(console, rows, (digest, calm_digest))
    num_gpus = len(set(find_devices()))
    shared = f"{os.cpu_count()} cores" if not num_gpus else "one GPU" if num_gpus == 1 else f"{num_gpus} GPUs"
    if num_gpus < MAX_WORKERS:
        say(f"All workers shared {shared} here, so the times tell nothing of speed: see `make bench`.", "dim")
    if play.unplayed:
        missed = ", ".join(act.told for act in play.unplayed)
        say(f"The training was over before its time had come for: {missed}. Try --epochs {2 * epochs}.", "yellow")
    return 0 if equal and job.is_whole and calm.is_whole and not play.unplayed else 1


def list_changes(sizes: list[int]) -> list[int]:
    """Return the sizes without repetitions.

    >>> list_changes([1, 1, 4, 4, 2])
    [1, 4, 2]
    """
    return [size for index, size in enumerate(sizes) if index == 0 or sizes[index - 1] != size]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
