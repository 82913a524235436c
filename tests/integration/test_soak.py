"""Random disturbances. ``--soak-seed`` repeats the seed that is printed, ``--soak-events`` sets how many there are."""

from __future__ import annotations

import random
import secrets

import pytest
from tests.integration.harness import (
    Act,
    Do,
    Reference,
    Stage,
    When,
    abandon,
    arm,
    both,
    do_all,
    freeze,
    has_members,
    kill,
    nothing,
    scale,
    settled,
    steps_later,
    with_members,
)

MAX_WORKERS = 4
NUM_EVENTS = 12
PHASES = ("forward", "reduce", "commit", "transfer")


def disturbance(dice: random.Random) -> tuple[Do, str]:
    """Draw one disturbance; ranks are taken modulo the number of workers that there are then."""
    rank, other = dice.randrange(MAX_WORKERS), dice.randrange(MAX_WORKERS)
    wanted = dice.randint(1, MAX_WORKERS)
    phase = dice.choice(PHASES)
    return dice.choices(
        [
            (scale(wanted), f"scale to {wanted}"),
            (kill(rank), f"SIGKILL rank {rank}"),
            (freeze(rank), f"SIGSTOP rank {rank}"),
            (arm(phase, "kill", rank), f"kill rank {rank} in {phase}"),
            (arm(phase, "stop", rank), f"stop rank {rank} in {phase}"),
            (do_all(kill(rank), scale(wanted)), f"SIGKILL rank {rank}, scale to {wanted}"),
            (kill(rank, other), f"SIGKILL ranks {rank} and {other}"),
            (abandon, "the driver dies"),
        ],
        weights=[6, 3, 1, 3, 1, 2, 1, 1],
    )[0]


@pytest.mark.timeout(900)
@pytest.mark.soak
def test_soak(stage: Stage, reference: Reference, request: pytest.FixtureRequest) -> None:
    seed = request.config.getoption("--soak-seed")
    seed = secrets.randbits(32) if seed is None else seed
    num_events = request.config.getoption("--soak-events") or NUM_EVENTS
    print(f"soak: --soak-seed {seed} --soak-events {num_events}")
    dice = random.Random(seed)
    program = ("vision.py", "--epochs", str(10 + num_events))
    want = reference.of(*program)
    plan = [Act(both(settled, steps_later(3)), nothing, "it trains")]
    for number in range(num_events):
        do, name = disturbance(dice)
        # Now and then before the last one is dealt with.
        when: When = (
            steps_later(dice.randint(0, 2)) if dice.random() < 0.3 else both(settled, steps_later(dice.randint(0, 3)))
        )
        plan.append(Act(both(has_members, when), do, f"{number}: {name}"))
    plan += [
        Act(has_members, scale(2), "2 at the end"),
        Act(with_members(2), nothing, "the end"),
    ]
    result = stage.run(
        *program,
        workers=(1, MAX_WORKERS, 2),
        plan=plan,
        heartbeat_limit_s=1.5,
        checkpoint_every="5steps",
        max_deaths=50,
        limit_s=60.0 + 8.0 * num_events,
    )
    result.check(want, finishers=2)
