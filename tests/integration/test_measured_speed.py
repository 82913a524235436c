"""A real job that is slower with three workers than with two: the platform measures it and takes one slot back.

The next run of its code begins with two.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.integration.serving import Asker, Server, servers_of

from legato.client.client import Client

SETTINGS: dict[str, Any] = {
    "slots": 3,
    "loop_interval_s": 0.2,
    "stability_s": 0.2,
    "cooldown_factor": 0,
    "measured_speed_s": 10.0,
}
PROGRAM = """
import pathlib, sys, time, torch, legato
run = legato.elastic(global_batch_size=6, micro_batch_size=1, seed=0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
model, optimizer = run.prepare(model, optimizer)
data = torch.utils.data.TensorDataset(torch.ones(600, 4), torch.ones(600, 1))
for epoch in run.epochs(1000):
    for x, y in run.batches(data):
        run.backward(torch.nn.functional.mse_loss(model(x), y))
        optimizer.step()
        optimizer.zero_grad()
        if run.stepped:
            time.sleep(1.0 if run.num_workers == 3 else 0.2)
"""


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_a_worker_that_slows_a_job_down_leaves_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "code").mkdir()
    script = tmp_path / "code/train.py"
    script.write_text(PROGRAM)
    with servers_of(tmp_path / "home", monkeypatch) as made:
        made.append(Server(tmp_path / "home", **SETTINGS))
        made[0].start()
        ask = Asker(made[0])
        with Client(made[0].url, made[0].secret) as client:
            job = client.submit(script, name="slowed", max_workers=2, code=script.parent)

            def measured(found: Any) -> set[int]:
                return {
                    one["num_workers"] for one in (found["progress"] or {}).get("speeds", ()) if one["measured_s"] > 10
                }

            ask.wait(f"jobs/{job.id}", lambda found: measured(found) >= {2}, limit_s=120)
            job.resize(max_workers=3)
            ask.wait(f"jobs/{job.id}", lambda found: found["num_slots"] == 3)
            found = ask.wait(f"jobs/{job.id}", lambda found: found["num_slots"] == 2, limit_s=120)
            assert measured(found) == {2, 3}
            want = "2 of up to 3 slots: it was slower with 3 workers than with 2"
            ask.wait(f"jobs/{job.id}", lambda found: found["decided_reason"] == want)
            job.stop(now=True)
            ask.wait(f"jobs/{job.id}", lambda found: found["stage"] == "stopped")
            again = client.submit(script, name="again", max_workers=3, code=script.parent)
            want = "starts with 2 of up to 3 slots: earlier runs of its code were slower with 3 workers than with 2"
            ask.wait(f"jobs/{again.id}/explain", lambda found: want in {one["reason"] for one in found["decisions"]})
            found = ask.wait(f"jobs/{again.id}", lambda found: found["stage"] == "running")
            assert found["num_slots"] == 2
            # While the loop decides, the last snapshot is not known.
            rates = re.compile(
                r"From earlier runs of the same code: [\d.]+ samples/s with 2 workers, "
                r"[\d.]+ samples/s with 3 workers\."
            )
            ask.wait(f"jobs/{again.id}/explain", lambda found: any(map(rates.fullmatch, found["sentences"])))
            again.stop(now=True)
    events = [json.loads(line) for line in (tmp_path / "home/jobs" / job.id / "events.jsonl").read_text().splitlines()]
    assert not [event for event in events if event["level"] == "error"]
