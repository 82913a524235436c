"""Programs in the style of those that users of WMLA have, of each generation, once by REST and once by the command.

One of the two is left alone with one worker. The other grows and shrinks, or has two workers. What comes of both is the
same to the bit, and so are the logs that are told in the driver's place, but for times and numbers of workers.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from benchmarks.platform import Platform
from tests.acceptance.conftest import GROUP, PASSWORD, USER
from tests.acceptance.users import CONDUCTOR, DLI, LIMIT_S, Notebook, Terminal, unpack

from legato.client.jobs import Job

HERE = Path(__file__).parent / "wmla"
_STAMPS = re.compile(r"\[[^]]*\] |Timestamp: \d+")


class Sample(NamedTuple):
    """A program, and how it is submitted.

    Args:
        folder: its model directory.
        main: its main file.
        args: of the submission, besides.
        program: arguments of the program, after two dashes where there are any.
        data: its data path.
        epochs: which models it saves besides the last one.
        grows: under way, from 1 to 4 workers, and shrinks to 2; it is submitted by the command then.
        files: besides the models, in its result.
    """

    folder: str
    main: str
    args: str = ""
    program: str = ""
    data: str = "mnist"
    epochs: tuple[int, ...] = ()
    grows: bool = False
    files: tuple[str, ...] = ()


SAMPLES = [
    Sample(
        "release_1_2", "pytorch_mnist.py", f"--ig {GROUP} --batch-size 8 --msd-env EDT_ENGINE_ARGUMENTS=1", grows=True
    ),
    Sample(
        "release_2_3",
        "elastic-main.py",
        program="""--epochs 5 --title "it's  'elastic' \\"here\\"" --no-cuda""",
        epochs=(5,),
    ),
    Sample("journey", "pytorch_mnist_EDT.py", program="--epochs 5 --numWorker 4 --batchsize 10", epochs=(5,)),
    Sample("insects", "pytorch_edt.py", data="insects"),
    Sample("schedule", "main.py", program="--numWorker 4"),
    Sample(
        "custom", "elastic-main.py", f"--ig {GROUP} --gpuPerWorker 1", grows=True, files=("model_epoch_final.onnx",)
    ),
    Sample("release_4_0", "main.py", f"--consumer {GROUP}", epochs=(2,), grows=True),
    Sample("console", "elastic-main.py", "--msd-env DLI_EPOCHS=2", "--train_dir /nowhere/model", epochs=(1, 2)),
]


@pytest.fixture
def ann(wmla: Platform, tmp_path: Path) -> Iterator[tuple[Notebook, Terminal]]:
    notebook = Notebook(wmla, (USER, PASSWORD))
    yield notebook, Terminal(wmla, tmp_path, (USER, PASSWORD))
    notebook.http.close()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("sample", SAMPLES, ids=[sample.folder for sample in SAMPLES])
def test_a_program_has_one_result(
    sample: Sample, wmla: Platform, ann: tuple[Notebook, Terminal], tmp_path: Path
) -> None:
    notebook, terminal = ann
    folder = tmp_path / sample.folder
    shutil.copytree(HERE / "helpers", folder)
    shutil.copytree(HERE / sample.folder, folder, dirs_exist_ok=True)
    pace = tmp_path / "pace"
    pace.write_text("0.2" if sample.grows else "0")
    args = (
        f"--exec-start edtPyTorch --cs-datastore-meta type=fs,data_path={sample.data} \n   {sample.args} "
        f"--model-dir {sample.folder}  --model-main {sample.main} "
    )
    program = f" -- {sample.program}" if sample.program else ""
    alone = notebook.submit(folder, f"{args} --numWorker 1 {program}")
    if sample.grows:
        job = terminal.submit(folder, f"{args} --numWorker 1 --msd-env PACE={pace} {program}")
        watch(wmla.client.job(job), notebook, terminal, pace)
    else:
        job = terminal.submit(folder, f"{args} --numWorker 2 {program}")
    for one in (job, alone):
        wmla.client.job(one).wait(LIMIT_S)
        assert notebook.state(one) == "FINISHED", notebook.log(one, "errlog")
    assert terminal.types("--app-wait", job).splitlines()[-1].startswith(f"{job} FINISHED ")
    table = terminal.types("--app-history-get-all", "-o", "custom-columns=id,state,gpu").splitlines()
    assert [line.split()[1:] for line in table if line.startswith(job)] == [["FINISHED", "0"]]

    want, got = notebook.result(alone), terminal.result(job)
    # What a program packs itself has the name of its job.
    packed = {f"model/{one}.zip" for one in (alone, job)}
    assert {n: c for n, c in got.items() if n not in packed} == {n: c for n, c in want.items() if n not in packed}
    models = {
        f"model/train/model_epoch_{n}{s}.pth" for n in (*sample.epochs, "final") for s in ("", "_optimizer_state")
    }
    assert {name for name in got if name.endswith(".pth")} == models
    assert set(sample.files) <= {Path(name).name for name in got}
    told = [_STAMPS.sub("", notebook.log(one)) for one in (alone, job)]
    assert told[0] == told[1]
    outputs = notebook.read(f"{DLI}/scheduler/applications/{job}/driver/logs/stdout")
    assert outputs.count("--------START TRAINING--------\n") == 1
    assert outputs.count("--------END TRAINING: completed epoch ") == 1
    if sample.folder in CHECKS:
        CHECKS[sample.folder](notebook, job, got)


def watch(job: Job, notebook: Notebook, terminal: Terminal, pace: Path) -> None:
    """Resize a job, and look at it as people do: in the table of the command, and in the notebook's `gpuslots`."""
    for num_workers in (1, 4, 2):
        if num_workers > 1:
            job.resize(max_workers=num_workers)
        wait_until_it_trains_with(num_workers, job)
        table = terminal.types("--app-get-all", "-o", "custom-columns=id,state,gpu").splitlines()
        assert [line.split()[1:] for line in table if line.startswith(job.id)] == [["RUNNING", str(num_workers)]]
        running = notebook.get(f"{CONDUCTOR}/instances/{GROUP}/applications", state="RUNNING")
        (mine,) = (one for one in running if job.id in one["driver"]["id"])
        assert mine["gpuslots"] == num_workers
    (application,) = notebook.get(f"{DLI}/scheduler/applications", applicationid=job.id)
    present = [one["id"] for one in application["executors"] if one["state"] == "RUNNING"]
    assert (len(present), len(application["executors"]) >= 4) == (2, True)
    group = f"{CONDUCTOR}/instances/{GROUP}/applications/{application['driver']['id']}"
    assert notebook.http.get(f"{group}/{present[0]}/logs/stdout/download").is_success
    lines = notebook.read(f"{DLI}/scheduler/applications/{job.id}/executor/1/logs/stdout")
    assert "batches :1 " in lines or "mine 1 of " in lines
    pace.write_text("0")


def wait_until_it_trains_with(num_workers: int, job: Job) -> None:
    """Wait until so many workers have done a step together."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        progress = job.refresh().progress
        if progress is not None and progress.num_workers == num_workers == job.num_slots:
            return
        assert not job.has_ended and time.monotonic() < deadline, (job.stage, job.reason, progress)
        time.sleep(0.05)


# ---------------------------------------------------------------- what only some programs show


def check_arguments(notebook: Notebook, job: str, _: dict[str, bytes]) -> None:
    told = notebook.log(job, "outlog")
    assert "args: Namespace(batch_size=8, epochs=2, lr=1.0, no_cuda=False)" in told
    assert "unknown: ['--dataControlSchema', '0', '--weightSyncInterval', '5', '--numWorker', '1'," in told


def check_callback(notebook: Notebook, job: str, got: dict[str, bytes]) -> None:
    assert "Title: it's  'elastic' \"here\"\n" in notebook.log(job, "outlog")
    assert "model/trained_model.onnx" not in got
    told = notebook.log(job, "outerrlog")
    assert "CUDA" in told
    assert told.count("EDTTrainCallback.on_epoch_end failed with the error above.") == 1


def check_journey(notebook: Notebook, job: str, _: dict[str, bytes]) -> None:
    told = notebook.log(job, "outlog")
    assert told.index(".fabric/libs/fabric.zip\n") < told.index("not known: []\n") < told.index("edt_m done\n")
    # As notebooks draw it: columns, once colons are commas.
    rows = [line.replace(":", ",").split(",") for line in notebook.log(job).splitlines() if "Train" in line]
    assert [int(row[8]) for row in rows] == list(range(1, 5 * 50 + 1))
    losses = [float(row[10]) for row in rows]
    assert losses[-1] < losses[0]


def check_metrics(notebook: Notebook, job: str, got: dict[str, bytes]) -> None:
    begin, *lines = json.loads(got["model/told.json"])
    assert begin == "begin"
    assert [line[1:3] for line in lines if line[0] == "test"] == [[0, epoch] for epoch in range(3)]
    assert [line[1] for line in lines if line[0] == "train"] == list(range(1, 3 * 32 + 1))
    assert lines[-1][3]["error"] < 0.6 < lines[-1][3]["top3"]
    packed = unpack(got[f"model/{job}.zip"])
    assert packed == {name: content for name, content in got.items() if not name.endswith(".zip")}
    assert f"model/{job}.zip\n" in notebook.log(job, "outlog").partition("Save model:  ")[2]


def check_onnx(_: Notebook, __: str, got: dict[str, bytes]) -> None:
    network = torch.nn.Sequential(*layers_of_custom())
    network.load_state_dict(torch.load(io.BytesIO(got["model/train/model_epoch_final.pth"])))
    images = torch.rand(3, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    onnx = pytest.importorskip("onnx")
    exported = onnx.load_model_from_string(got["model/train/model_epoch_final.onnx"])
    onnx.checker.check_model(exported)
    reference = pytest.importorskip("onnx.reference").ReferenceEvaluator(exported)
    (outputs,) = reference.run(None, {exported.graph.input[0].name: images.numpy()})
    torch.testing.assert_close(torch.from_numpy(outputs), network.eval()(images), rtol=1e-4, atol=1e-5)


def layers_of_custom() -> list[torch.nn.Module]:
    convolution, norm = torch.nn.Conv2d(1, 4, 5, 3), torch.nn.BatchNorm2d(4)
    return [convolution, norm, torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(256, 10)]


CHECKS: dict[str, Callable[[Notebook, str, dict[str, bytes]], None]] = {
    "release_1_2": check_arguments,
    "release_2_3": check_callback,
    "journey": check_journey,
    "release_4_0": check_metrics,
    "custom": check_onnx,
}
