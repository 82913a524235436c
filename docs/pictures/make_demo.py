"""Make the picture of the README: record two real trainings, draw what was recorded.

    python docs/pictures/make_demo.py record    trains twice (a minute or two) and writes demo.json
    python docs/pictures/make_demo.py           draws demo.svg from demo.json

The program that is trained is `examples/mnist_elastic.py`'s network on its digits, with the loss of every step noted.
"""

# ruff: noqa: INP001 -- a script, not a package

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from legato.core import wire
from legato.driver import client

HERE = Path(__file__).resolve().parent
RECORD, PICTURE = HERE / "demo.json", HERE / "demo.svg"
EPOCHS = 7
NUM_STEPS = EPOCHS * 63
LOOK_EVERY_S = 0.05
LIMIT_S = 300.0
Act = tuple[int, Callable[[str], object], str, int]

# ---------------------------------------------------------------- the training


def train() -> None:
    """Be the program of the job."""
    import torch
    from torch.nn.functional import cross_entropy

    import legato

    sys.path.insert(0, str(HERE.parents[1] / "examples"))
    from mnist_elastic import hash_weights, load_digits, make_model

    run = legato.elastic(global_batch_size=64, micro_batch_size=8, seed=1)
    train_set, test_set = load_digits()
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    model, optimizer = run.prepare(model, optimizer)
    for _ in run.epochs(EPOCHS):
        for images, digits in run.batches(train_set):
            run.backward(cross_entropy(model(images), digits))
            optimizer.step()
            optimizer.zero_grad()
            if run.stepped:
                run.log(loss=run.loss)
    accuracy = run.evaluate(model, test_set, lambda output, digits: output.argmax(1) == digits)
    run.log(accuracy=accuracy)
    if run.is_main:
        sys.stdout.write(f"weights sha256 {hash_weights(model)}\n")


# ---------------------------------------------------------------- the recording


def scale(num_workers: int) -> Callable[[str], object]:
    """Return an act that does what `legato scale` does."""
    return lambda name: client.request(name, wire.ScaleRequest(num_workers=num_workers))


def kill(name: str) -> None:
    """Send SIGKILL to the worker of rank 0."""
    workers = client.request(name, wire.StatusRequest()).status["workers"]
    victim = min((worker for worker in workers if worker["rank"] is not None), key=lambda worker: int(worker["rank"]))
    os.kill(victim["pid"], signal.SIGKILL)


# The step from which on, what is done, its name, and how many workers there are when it has taken effect.
STORY: tuple[Act, ...] = (
    (40, scale(4), "scale 4", 4),
    (170, scale(2), "scale 2", 2),
    (240, kill, "kill -9", 2),
    (320, scale(4), "scale 4", 4),
)


def record_one(name: str, workers: str, start: int | None, story: tuple[Act, ...]) -> dict[str, Any]:
    """Train once and return what the driver wrote down."""
    directory = Path(os.environ["LEGATO_HOME"]) / "jobs" / name
    command = [sys.executable, "-m", "legato.cli", "run", "--plain", "--name", name, "--workers", workers]
    running = subprocess.Popen([*command, str(Path(__file__).resolve()), "train"])
    deadline = time.monotonic() + LIMIT_S
    acts, waiting, want = [], list(story), start
    while running.poll() is None and time.monotonic() < deadline:
        time.sleep(LOOK_EVERY_S)
        if not (directory / "driver.json").exists():
            continue
        if start is not None:
            scale(start)(name)
            start = None
        ledger, events = read_lines(directory / "ledger.jsonl"), read_lines(directory / "events.jsonl")
        if waiting and len(ledger) >= waiting[0][0] and count_workers(ledger[-1:], events) == [want]:
            _, act, told, want = waiting.pop(0)
            act(name)
            acts.append({"step": len(ledger), "act": told})
            # Its effect is to be seen before the next one: a killed worker is counted until the others notice.
            while read_lines(directory / "ledger.jsonl")[-1]["view"] == ledger[-1]["view"] and running.poll() is None:
                time.sleep(LOOK_EVERY_S)
    if running.wait(10) != 0 or waiting:
        raise SystemExit(f"The job '{name}' did not go as planned; acts left: {waiting}")
    logs = "".join(path.read_text() for path in sorted((directory / "logs").glob("worker-*.log")))
    ledger = sorted(read_lines(directory / "ledger.jsonl"), key=lambda line: int(line["step"]))
    metrics = sorted(read_lines(directory / "metrics.jsonl"), key=lambda line: int(line["index"]))
    losses = {line["step"]: line["values"]["loss"] for line in metrics if "loss" in line["values"]}
    kinds = ("scaled", "proposed", "recovered", "died", "joined")
    told = [event for event in read_lines(directory / "events.jsonl") if event["kind"] in kinds]
    return {
        "acts": acts,
        "num_workers": count_workers(ledger, told),
        "losses": [losses[line["step"]] for line in ledger],
        "accuracy": metrics[-1]["values"]["accuracy"],
        "sha256": logs.rpartition("weights sha256 ")[2].strip(),
        "events": [{key: event.get(key) for key in ("step", "kind", "worker", "reason")} for event in told],
    }


def count_workers(ledger: list[dict[str, Any]], events: list[dict[str, Any]]) -> list[int]:
    """Return how many workers there were at each step."""
    members: dict[int, set[int]] = {}
    for event in events:
        if event["kind"] == "joined":
            number = int(event["reason"].partition(" is in view ")[2].split()[0])
            members.setdefault(number, set()).add(event["worker"])
    return [len(members.get(line["view"], ())) for line in ledger]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the whole lines of a file of JSON lines."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def record() -> None:
    """Train twice and keep what was written down."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["LEGATO_HOME"] = home
        found = {
            "disturbed": record_one("disturbed", "1..4", 1, STORY),
            "undisturbed": record_one("undisturbed", "1", None, ()),
        }
    RECORD.write_text(json.dumps(found, indent=None, separators=(",", ":")).replace('},{"step"', '},\n{"step"') + "\n")


# ---------------------------------------------------------------- the picture

WIDTH, LEFT, RIGHT = 860, 64, 24
TOP, BARS, GAP, CURVE = 70, 96, 52, 150
INK, DIM, BLUE, RED, GREEN, AMBER = "#1f2933", "#7b8794", "#2b6cb0", "#c53030", "#2f855a", "#b7791f"


def draw(found: dict[str, Any]) -> str:
    """Return the picture as SVG: workers at each step, the loss of both runs, the checksums."""
    disturbed, undisturbed = found["disturbed"], found["undisturbed"]
    num_steps = len(disturbed["losses"])
    assert num_steps == len(undisturbed["losses"]) == NUM_STEPS
    scale_x = (WIDTH - LEFT - RIGHT) / num_steps
    parts = [
        text(LEFT, 26, "One training, twice: disturbed, and left alone", INK, 17, "600"),
        text(LEFT, 47, f"digits of MNIST, {num_steps} steps; 8 micro-batches of 8 samples per step", DIM, 13),
    ]
    parts += draw_workers(disturbed, scale_x)
    top = TOP + BARS + GAP
    parts += draw_losses(disturbed["losses"], undisturbed["losses"], scale_x, top)
    bottom = top + CURVE + 34
    same = [a == b for a, b in zip(disturbed["losses"], undisturbed["losses"], strict=True)]
    equal = disturbed["sha256"] == undisturbed["sha256"] and all(same)
    for row, name in enumerate(("disturbed", "undisturbed")):
        told = f"{name:<12} accuracy {found[name]['accuracy']:.3f}  {found[name]['sha256']}"
        parts.append(text(LEFT, bottom + 18 * row, told.replace(" ", "\u00a0"), INK, 12.5, "400", "monospace"))
    verdict = f"{sum(same)} of {num_steps} losses and the SHA-256 of the weights are equal" if equal else "NOT EQUAL"
    parts.append(text(LEFT, bottom + 42, verdict, GREEN if equal else RED, 14, "600"))
    height = bottom + 62
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" font-family="sans-serif">',
            f"<title>{verdict}</title>",
            f'<rect width="{WIDTH}" height="{height:g}" rx="8" fill="#ffffff" stroke="#d9e2ec"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def draw_workers(run: dict[str, Any], scale_x: float) -> list[str]:
    """Draw a row per worker, and what was done to them."""
    sizes = run["num_workers"]
    height, base = BARS / 4, TOP + BARS
    parts = [text(LEFT - 10, TOP - 8, "workers", DIM, 12, anchor="end")]
    parts += [text(LEFT - 10, base - height * (size - 0.35), str(size), DIM, 12, anchor="end") for size in (1, 2, 3, 4)]
    begun = 0
    for step in range(1, len(sizes) + 1):
        if step == len(sizes) or sizes[step] != sizes[begun]:
            for level in range(sizes[begun]):
                x, y, width = LEFT + begun * scale_x, base - height * (level + 1), (step - begun) * scale_x
                parts.append(
                    f'<rect x="{x:.1f}" y="{y + 1.5:.1f}" width="{max(width - 1.5, 1):.1f}" height="{height - 3:.1f}"'
                    f' fill="{BLUE}" opacity="0.8"/>'
                )
            begun = step
    for act in run["acts"]:
        x = LEFT + act["step"] * scale_x
        colour = RED if act["act"].startswith("kill") else AMBER if act["act"].endswith("2") else GREEN
        parts.append(f'<path d="M{x:.1f} {TOP - 4} V{base + 10}" stroke="{colour}" stroke-width="1.5"/>')
        parts.append(text(x, base + 24, act["act"], colour, 13, "600", anchor="middle"))
    return parts


def draw_losses(disturbed: list[float], undisturbed: list[float], scale_x: float, top: float) -> list[str]:
    """Draw both curves, one on the other."""
    most = max(*disturbed, *undisturbed)

    def path(losses: list[float]) -> str:
        points = [
            f"{LEFT + (index + 0.5) * scale_x:.1f} {top + CURVE * (1 - loss / most):.1f}"
            for index, loss in enumerate(losses)
        ]
        return "M" + " L".join(points)

    base = top + CURVE
    marks = [0, len(disturbed) // 2, len(disturbed)]
    return [
        text(LEFT - 10, top + 4, "loss", DIM, 12, anchor="end"),
        text(LEFT - 10, top + 20, f"{most:.1f}", DIM, 12, anchor="end"),
        text(LEFT - 10, base, "0", DIM, 12, anchor="end"),
        f'<path d="M{LEFT} {top} V{base} H{WIDTH - RIGHT}" fill="none" stroke="{DIM}"/>',
        f'<path d="{path(undisturbed)}" fill="none" stroke="#f6ad55" stroke-width="5" stroke-linejoin="round"/>',
        f'<path d="{path(disturbed)}" fill="none" stroke="{BLUE}" stroke-width="1.4" stroke-linejoin="round"/>',
        text(WIDTH - RIGHT, top + 14, "wide: undisturbed, 1 worker   ·   thin: disturbed", DIM, 12, anchor="end"),
        *(text(LEFT + mark * scale_x, base + 15, f"step {mark}", DIM, 11, anchor="middle") for mark in marks),
    ]


def text(
    x: float, y: float, told: str, fill: str, size: float, weight: str = "400", family: str = "", anchor: str = "start"
) -> str:
    """Return a line of text."""
    font = f' font-family="{family}"' if family else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{fill}" font-size="{size}" font-weight="{weight}"{font}'
        f' text-anchor="{anchor}">{told}</text>'
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["train"]:
        train()
    elif sys.argv[1:] == ["record"]:
        record()
    else:
        PICTURE.write_text(draw(json.loads(RECORD.read_text())))
