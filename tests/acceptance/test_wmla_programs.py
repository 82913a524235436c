"""Programs like those of WMLA's users, of each generation, submitted by REST and by dlicmd.py.

Both jobs grow from 1 to 4 workers while they train, and shrink to 2; a third run keeps one worker. The results of all
three are the same, bit for bit, and so are the driver's logs, except for times and numbers of workers. Nothing is
timed: jobs train a step at a time, until all wanted workers have done one together.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from benchmarks.platform import Platform
from tests.acceptance.conftest import GROUP, PASSWORD, USER
from tests.acceptance.users import CONDUCTOR, DLI, LIMIT_S, Notebook, Terminal, unpack
from tests.tiers import first_now

from legato.client.jobs import Job

HERE = Path(__file__).parent / "wmla"
_STAMPS = re.compile(r"\[[^]]*\] |Timestamp: \d+")


class Sample(NamedTuple):
    """A program with at least 16 steps, and the arguments of its submission.

    Args:
        folder: its model directory.
        main: its main file.
        num_engines: number of micro-batches in a step.
        args: further arguments of the submission.
        program: arguments of the program, after two dashes if there are any.
        data: its data path.
        epochs: epochs whose models it saves, without the final one.
        files: files of its result, without the models.
    """

    folder: str
    main: str
    num_engines: int
    args: str = ""
    program: str = ""
    data: str = "mnist"
    epochs: tuple[int, ...] = ()
    files: tuple[str, ...] = ()


SAMPLES = [
    Sample(
        "release_1_2",
        "pytorch_mnist.py",
        16,
        f"--ig {GROUP} --batch-size 8 --epochs 5 --msd-env EDT_ENGINE_ARGUMENTS=1",
        epochs=(5,),
    ),
    Sample(
        "release_2_3",
        "elastic-main.py",
        16,
        program="""--epochs 10 --title "it's  'elastic' \\"here\\"" --no-cuda""",
        epochs=(5, 10),
    ),
    Sample("journey", "pytorch_mnist_EDT.py", 4, program="--epochs 5 --numWorker 4 --batchsize 10", epochs=(5,)),
    Sample("insects", "pytorch_edt.py", 4, program="--epochs 10 --numWorker 4", data="insects", epochs=(5, 10)),
    Sample("schedule", "main.py", 4, program="--numWorker 4"),
    Sample(
        "custom",
        "elastic-main.py",
        16,
        f"--ig {GROUP} --gpuPerWorker 1 --epochs 10",
        program="--numWorker 16",
        files=("model_epoch_final.onnx",),
    ),
    Sample("release_4_0", "main.py", 4, f"--consumer {GROUP}", epochs=(2,)),
    Sample(
        "console",
        "elastic-main.py",
        16,
        "--msd-env DLI_EPOCHS=5 --msd-env DLI_TRAIN_BATCH_SIZE=8",
        "--train_dir /nowhere/model",
        epochs=(1, 2, 3, 4, 5),
    ),
]


_REPEATS_S = 1.0
"""A step without progress for that long has a cross-check: each worker repeats a micro-batch and needs one more."""


class Reined:
    """A job whose program waits before each micro-batch until the test lets it continue.

    Args:
        gate: folder with a file for each micro-batch that the program may compute.
        sample: the program.
    """

    def __init__(self, gate: Path, sample: Sample) -> None:
        gate.mkdir()
        self.variable = f"--msd-env GATE={gate}"
        self.job: Job
        self._gate, self._sample = gate, sample
        self._num_passes = 0

    def resize(self, num_workers: int) -> None:
        """Change the number of workers, and wait until new workers are ready to join."""
        self.job.resize(max_workers=num_workers)
        deadline = time.monotonic() + LIMIT_S
        while sum(event.kind == "warm" for event in self.job.training_events()) < num_workers:
            assert not self.job.refresh().has_ended and time.monotonic() < deadline, (self.job.stage, self.job.reason)
            time.sleep(0.05)

    def train_with(self, num_workers: int) -> None:
        """Let the job do steps, one at a time, until this number of workers has done one together."""
        deadline = time.monotonic() + LIMIT_S
        let_at = together_at = None
        empty_since = deadline
        while True:
            progress = self.job.refresh().progress
            step = 0 if progress is None else progress.step or 0
            if progress is not None and progress.num_workers == num_workers == self.job.num_slots:
                together_at = step if together_at is None else together_at
                if step > together_at:
                    return
            assert not self.job.has_ended and time.monotonic() < deadline, (self.job.stage, self.job.reason, progress)
            if any(self._gate.iterdir()):
                empty_since = deadline
            elif let_at is None or step > let_at or time.monotonic() > empty_since + _REPEATS_S:
                let_at = step
                self._let_step()
                empty_since = deadline
            else:
                empty_since = min(empty_since, time.monotonic())
            time.sleep(0.05)

    def let_go(self) -> None:
        self._gate.rename(self._gate.with_name(f"{self._gate.name}-open"))

    def _let_step(self) -> None:
        """Allow the micro-batches of a full step. A smaller last step of an epoch leaves the rest to the next step."""
        for _ in range(self._sample.num_engines):
            self._num_passes += 1
            (self._gate / str(self._num_passes)).touch()


@pytest.fixture
def ann(wmla: Platform, tmp_path: Path) -> Iterator[tuple[Notebook, Terminal]]:
    notebook = Notebook(wmla, (USER, PASSWORD))
    yield notebook, Terminal(wmla, tmp_path, (USER, PASSWORD))
    notebook.http.close()


@pytest.mark.timeout(360)
@pytest.mark.parametrize("sample", first_now(SAMPLES), ids=[sample.folder for sample in SAMPLES])
def test_a_program_has_one_result(
    sample: Sample, wmla: Platform, ann: tuple[Notebook, Terminal], tmp_path: Path
) -> None:
    notebook, terminal = ann
    folder = tmp_path / sample.folder
    shutil.copytree(HERE / "helpers", folder)
    shutil.copytree(HERE / sample.folder, folder, dirs_exist_ok=True)
    args = (
        f"--exec-start edtPyTorch --cs-datastore-meta type=fs,data_path={sample.data} \n   {sample.args} "
        f"--model-dir {sample.folder}  --model-main {sample.main} --numWorker 1"
    )
    program = f" -- {sample.program}" if sample.program else ""
    by_rest, by_command = (Reined(tmp_path / name, sample) for name in ("rest", "command"))
    by_rest.job = wmla.client.job(notebook.submit(folder, f"{args} {by_rest.variable} {program}"))
    by_command.job = wmla.client.job(terminal.submit(folder, f"{args} {by_command.variable} {program}"))
    alone = notebook.submit(folder, f"{args} {program}")
    watch((by_rest, by_command), notebook, terminal)
    job = by_command.job.id
    all_jobs = (alone, by_rest.job.id, job)
    for one in all_jobs:
        wmla.client.job(one).wait(LIMIT_S)
        assert notebook.state(one) == "FINISHED", notebook.log(one, "errlog")
    assert terminal.types("--app-wait", job).splitlines()[-1].startswith(f"{job} FINISHED ")
    assert gpus_of(all_jobs, terminal, "--app-history-get-all") == 3 * [["FINISHED", "0"]]

    want, *others = notebook.result(alone), notebook.result(by_rest.job.id), terminal.result(job)
    # A zip file that the program itself packs has the name of its job.
    packed = {f"model/{one}.zip" for one in all_jobs}
    for got in others:
        assert {n: c for n, c in got.items() if n not in packed} == {n: c for n, c in want.items() if n not in packed}
    models = {
        f"model/train/model_epoch_{n}{s}.pth" for n in (*sample.epochs, "final") for s in ("", "_optimizer_state")
    }
    assert {name for name in want if name.endswith(".pth")} == models
    assert set(sample.files) <= {Path(name).name for name in want}
    told = [_STAMPS.sub("", notebook.log(one)) for one in all_jobs]
    assert told[1:] == [told[0], told[0]]
    for one in (by_rest.job.id, job):
        outputs = notebook.read(f"{DLI}/scheduler/applications/{one}/driver/logs/stdout")
        assert outputs.count("--------START TRAINING--------\n") == 1
        assert outputs.count("--------END TRAINING: completed epoch ") == 1
    if sample.folder in CHECKS:
        CHECKS[sample.folder](notebook, job, others[-1])


@pytest.mark.timeout(360)
@pytest.mark.soak
def test_the_stated_number_of_gpus_is_honoured(wmla: Platform, ann: tuple[Notebook, Terminal], tmp_path: Path) -> None:
    notebook, terminal = ann
    sample = Sample("journey", "pytorch_mnist_EDT.py", 2)
    folder = tmp_path / "journey"
    shutil.copytree(HERE / "helpers", folder)
    shutil.copytree(HERE / "journey", folder, dirs_exist_ok=True)
    args = (
        "--exec-start edtPyTorch --cs-datastore-meta type=fs,data_path=mnist --model-dir journey "
        "--model-main pytorch_mnist_EDT.py --epochs 1 --batchsize 10"
    )
    held = Reined(tmp_path / "held", sample)
    # engines_number, the maximum number of GPUs, has precedence over the workers of the submission.
    held.job = wmla.client.job(notebook.submit(folder, f"{args} --numWorker 4 {held.variable} -- --numWorker 2"))
    # The tutorial's program has a default of 100, but it trains with the number of the submission.
    handed = notebook.submit(folder, f"{args} --numWorker 3")
    unsaid = notebook.submit(folder, args)
    held.train_with(2)
    (told,) = [one for one in held.job.explain().sentences if one.startswith("The policy")]
    assert told == "The policy: 2 of up to 4 slots: its step has only 2 micro-batches."
    assert gpus_of([held.job.id], terminal, "--app-get-all") == [["RUNNING", "2"]]
    held.let_go()
    jobs = [held.job.id, handed, unsaid]
    for job in jobs:
        wmla.client.job(job).wait(LIMIT_S)
        assert notebook.state(job) == "FINISHED", notebook.log(job, "errlog")
    progress = [wmla.client.job(job).progress for job in jobs]
    assert [one and (one.num_micro_batches, one.step) for one in progress] == [(2, 25), (3, 17), (50, 1)]
    notices = [notebook.get(f"{DLI}/execs/{job}")["notice"] for job in jobs]
    assert ["Each step trains" in one for one in notices] == [False, False, True]
    warned = [event.reason for event in wmla.client.job(unsaid).training_events() if event.level == "warning"]
    assert [one.partition(":")[0] for one in warned] == [
        "Each step trains 500 samples (engines_number=50 times batch_size=10), not 10"
    ]


def watch(jobs: Sequence[Reined], notebook: Notebook, terminal: Terminal) -> None:
    """Resize jobs, and check what users see: the table of dlicmd.py, and `gpuslots` in the notebook."""
    ids = [one.job.id for one in jobs]
    group = f"{CONDUCTOR}/instances/{jobs[0].job.record.queue}"
    for num_workers in (1, 4, 2):
        for one in jobs:
            one.resize(num_workers)
        for one in jobs:
            one.train_with(num_workers)
        assert gpus_of(ids, terminal, "--app-get-all") == len(jobs) * [["RUNNING", str(num_workers)]]
        running = notebook.get(f"{group}/applications", state="RUNNING")
        shown = {job: one["gpuslots"] for one in running for job in ids if job in one["driver"]["id"]}
        assert shown == dict.fromkeys(ids, num_workers)
    for job in ids:
        (application,) = notebook.get(f"{DLI}/scheduler/applications", applicationid=job)
        present = [one["id"] for one in application["executors"] if one["state"] == "RUNNING"]
        assert (len(present), len(application["executors"]) >= 4) == (2, True)
        executor = f"{group}/applications/{application['driver']['id']}/{present[0]}"
        assert notebook.http.get(f"{executor}/logs/stdout/download").is_success
        lines = notebook.read(f"{DLI}/scheduler/applications/{job}/executor/1/logs/stdout")
        assert "batches :1 " in lines or "mine 1 of " in lines
    for one in jobs:
        one.let_go()


def gpus_of(jobs: Sequence[str], terminal: Terminal, command: str) -> list[list[str]]:
    """Return the states and the numbers of GPUs of jobs in a table of dlicmd.py."""
    table = terminal.types(command, "-o", "custom-columns=id,state,gpu").splitlines()
    rows = {id_: rest for id_, *rest in map(str.split, table)}
    return [rows[job] for job in jobs]


# ---------------------------------------------------------------- features of some programs


def check_arguments(notebook: Notebook, job: str, _: dict[str, bytes]) -> None:
    told = notebook.log(job, "outlog")
    assert "args: Namespace(batch_size=8, epochs=5, lr=1.0, no_cuda=False)" in told
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
    # As notebooks read it: columns, after colons are replaced by commas.
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
