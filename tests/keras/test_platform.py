"""A TensorFlow program by the command, which grows from 1 to 4 workers and shrinks to 2, and by REST, undisturbed."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.platform import platform
from tests.acceptance.users import Notebook, Terminal

PROGRAM = Path(__file__).parent / "programs/wmla/flow"
USER, PASSWORD = "ann", "correct horse battery"
LIMIT_S = 200.0
ARGS = "--exec-start edtTensorflow --model-dir flow --model-main main.py --numWorker 1"


def wait_until(is_so: Callable[[], bool], job: Any) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not is_so():
        assert not job.refresh().has_ended and time.monotonic() < deadline, (job.stage, job.reason, job.progress)
        time.sleep(0.05)


@pytest.mark.timeout(900)
def test_a_program_has_one_result(tmp_path: Path, keras: Any) -> None:
    shutil.copytree(PROGRAM, tmp_path / "flow")
    hold = tmp_path / "hold"
    settings = {"loop_interval_s": 0.2, "stability_s": 0.2, "cooldown_factor": 0, "wmla_data_root": tmp_path}
    with platform(tmp_path / "home", slots=5, **settings) as server:
        server.client.add_user(USER, password=PASSWORD)
        notebook, terminal = Notebook(server, (USER, PASSWORD)), Terminal(server, tmp_path, (USER, PASSWORD))
        grown = terminal.submit(tmp_path / "flow", f"{ARGS} --msd-env HOLD={hold} -- --epochs 36")
        alone = notebook.submit(tmp_path / "flow", f"{ARGS} -- --epochs 36")
        job = server.client.job(grown)

        def has_ready(num_workers: int) -> bool:
            return sum(event.kind == "warm" for event in job.training_events()) >= num_workers

        def trains_with(num_workers: int) -> bool:
            progress = job.refresh().progress
            if progress is None or not progress.step:
                return False
            return progress.num_workers == num_workers == job.num_slots

        for num_workers in (1, 4, 2):
            if num_workers > 1:
                hold.touch()  # so that it does not come to its end before they are there
                job.resize(max_workers=num_workers)
                wait_until(lambda: has_ready(4), job)
                hold.unlink()
            wait_until(partial(trains_with, num_workers), job)
        for one in (grown, alone):
            server.client.job(one).wait(LIMIT_S)
            assert notebook.state(one) == "FINISHED", notebook.log(one, "errlog")
        told = [
            re.findall(r"^sha256 (\w+) steps 144$", notebook.log(one, "outlog"), re.MULTILINE) for one in (grown, alone)
        ]
        assert told[0] == told[1] and len(told[0]) == 1
        results = terminal.result(grown), notebook.result(alone)
        notebook.http.close()
    assert set(results[0]) == set(results[1])
    weights = []
    for number, result in enumerate(results):
        path = tmp_path / f"{number}.keras"
        path.write_bytes(result["model/train/model_epoch_final.keras"])
        weights.append(keras.models.load_model(path).get_weights())
    assert all(np.array_equal(mine, theirs) for mine, theirs in zip(*weights, strict=True))
