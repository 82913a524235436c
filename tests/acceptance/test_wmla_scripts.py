"""Scripts as users of WMLA have them: fetch the command from the server, submit, poll, look for words, fetch a result.

Only the host is given to them. They cut JSON out of what the command prints from the first brace on, and lose its line
breaks on the way, as unquoted shell variables do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.platform import Platform, platform

from legato.client.jobs import Job
from legato.compat.wmla.tools import dlicmd

LIMIT_S = 110.0
USER, PASSWORD = "ann", "correct horse battery"

BEGIN = r"""
set -u
HOST=$1
DLICMD=dlicmd.py
FETCH="import shutil, sys, urllib.request as web; shutil.copyfileobj(web.urlopen(sys.argv[1]), sys.stdout.buffer)"
python3 -c "$FETCH" http://$HOST/ui/tools/dlicmd.py > $DLICMD
chmod +x $DLICMD
field() { python3 -c "import json, sys; print(json.load(sys.stdin)[sys.argv[1]])" $1; }
logon=`./$DLICMD --logon --rest-host $HOST --username $2 --password "$3"` || exit 1

submit() {
    result=`./$DLICMD "$@" `
    echo $result
    start=`expr index "$result" {`
    rest=`echo ${result:$start-1}`
    appId=`echo $rest | field appId`
}

await() {
    while true; do
        record=`./$DLICMD --exec-get $appId --rest-host $HOST`
        state=`echo $record | field state`
        case "$state" in
            *FINISHED*) break ;;
            *ERROR*) break ;;
        esac
        sleep 0.2
    done
    echo "state=$state"
}

expect() {
    case "$result" in
        *"$1"*) echo "OK: $1" ;;
        *) echo "FAILED: $1 in $result" ;;
    esac
}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with platform(tmp_path_factory.mktemp("platform") / "home", slots=3) as running:
        running.client.add_user(USER, password=PASSWORD)
        yield running


def run(server: Platform, folder: Path, script: str) -> list[str]:
    """Run a script in a folder and return the lines that it prints."""
    home = folder / "home"
    home.mkdir()
    host = server.url.partition("://")[2]
    done = subprocess.run(
        ["bash", "-c", BEGIN + textwrap.dedent(script), "script", host, USER, PASSWORD],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.splitlines()


def test_one_file_is_submitted_and_its_log_searched(server: Platform, tmp_path: Path) -> None:
    (tmp_path / "mnist_convnet.py").write_text("print('Test loss:', 0.25)\nprint('Test accuracy:', 0.9)\n")
    told = run(
        server,
        tmp_path,
        """
        submit --exec-start tensorflow --rest-host $HOST --appName my-tf-app --workerDeviceType cpu --numWorker 1 \\
            --model-main mnist_convnet.py
        await
        result=`./$DLICMD --exec-trainlogs $appId --rest-host $HOST`
        expect "Test loss:"
        expect "Test accuracy:"
        """,
    )
    assert told[0].startswith('Copying files and directories ... Content size: 55.0B { "execId": "j-')
    assert told[1:] == ["state=FINISHED", "OK: Test loss:", "OK: Test accuracy:"]


def test_a_directory_is_submitted_and_its_result_fetched(server: Platform, tmp_path: Path) -> None:
    (tmp_path / "mnist_convnet").mkdir()
    (tmp_path / "mnist_convnet/main.py").write_text(
        textwrap.dedent("""
        import os
        from pathlib import Path

        import part

        model = Path(os.environ["RESULT_DIR"], "model")
        model.mkdir(exist_ok=True)
        (model / "saved.txt").write_text(part.WORD)
        print("Test loss:", 0.25, "Test accuracy:", 0.9)
        """)
    )
    (tmp_path / "mnist_convnet/part.py").write_text("WORD = 'trained'\n")
    told = run(
        server,
        tmp_path,
        """
        mkdir workdir
        cd workdir
        mv ../$DLICMD .
        submit --exec-start tensorflow --rest-host $HOST --numWorker 1 --model-main main.py --model-dir ../mnist_convnet
        await
        result=`./$DLICMD --exec-trainlogs $appId --rest-host $HOST`
        expect "Test accuracy:"
        result=`./$DLICMD --exec-trainresult $appId --rest-host $HOST`
        expect "Train result is saved to dlpd-model"
        """,
    )
    assert told[1:] == ["state=FINISHED", "OK: Test accuracy:", "OK: Train result is saved to dlpd-model"]
    (result,) = (tmp_path / "workdir").glob("dlpd-model*.zip")
    with zipfile.ZipFile(result) as archive:
        assert archive.read("model/saved.txt") == b"trained"


def test_several_workers_get_the_arguments_behind_two_dashes(server: Platform, tmp_path: Path) -> None:
    (tmp_path / "tf2x_mnist").mkdir()
    (tmp_path / "tf2x_mnist/main.py").write_text(
        textwrap.dedent("""
        import argparse
        import os

        parser = argparse.ArgumentParser()
        parser.add_argument("--epochs", type=int)
        parser.add_argument("--no-cuda", type=bool)
        arguments = parser.parse_args()
        print(f"Let's use {os.environ['WMLA_NWORKER']} workers for {arguments.epochs} epochs.")
        """)
    )
    told = run(
        server,
        tmp_path,
        """
        submit --exec-start disttensorflow --rest-host $HOST --appName my-tf-app --numWorker 3 --workerDeviceType cpu \\
            --model-main main.py --model-dir tf2x_mnist -- --epochs 10 --no-cuda true
        await
        result=`./$DLICMD --exec-trainlogs $appId --rest-host $HOST`
        expect "Let's use 3 workers for 10 epochs."
        """,
    )
    assert told[1:] == ["state=FINISHED", "OK: Let's use 3 workers for 10 epochs."]


def test_a_program_that_cannot_be_read_ends_in_error_with_its_traceback(server: Platform, tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text("/* a comment of another language */\n")
    told = run(
        server,
        tmp_path,
        """
        submit --exec-start PyTorch --rest-host $HOST --model-main wrong.py
        await
        result=`./$DLICMD --exec-trainerrlogs $appId --rest-host $HOST`
        expect "SyntaxError"
        ./$DLICMD --app-wait $appId --rest-host $HOST > waited.txt
        echo "code=$?"
        """,
    )
    assert told[1:] == ["state=ERROR", "OK: SyntaxError", "code=6"]


TUTORIAL = """
import argparse
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, os.path.join(os.environ["FABRIC_HOME"], "libs", "fabric.zip"))

import torch
import torch.nn.functional as F
from edtcallback import EDTLoggerCallback
from fabric_model import FabricModel
from sklearn.datasets import load_digits

model_path = os.environ["RESULT_DIR"] + "/model/saved_model"
log_path = os.environ["LOG_DIR"] + "/tb"


def get_datasets():
    limit = int(Path(os.environ["DATA_DIR"], "limit.txt").read_text())
    images, digits = (torch.from_numpy(array)[:limit] for array in load_digits(return_X_y=True))
    samples = list(zip(images.float() / 16, digits))
    return samples[:-64], samples[-64:]


def loss(outputs, targets):
    if torch.is_grad_enabled():
        time.sleep(float(Path(os.environ["PACE"]).read_text()))
    return F.nll_loss(outputs, targets)


parser = argparse.ArgumentParser()
parser.add_argument("--batchsize", type=int, default=64)
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--title", default="")
args, unknown = parser.parse_known_args()
print(args.title)
layers = [torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(32, 10)]
model = torch.nn.Sequential(*layers, torch.nn.LogSoftmax(1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
edt = FabricModel(model, get_datasets, loss, optimizer, driver_logger=EDTLoggerCallback())
edt.train(args.epochs, args.batchsize, 4, checkpoint_freq=5)
"""


class Ann:
    """Somebody who types commands of WMLA.

    Args:
        server: whom she asks.
        folder: where she is.
    """

    def __init__(self, server: Platform, folder: Path) -> None:
        self.folder = folder
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "DLICMD_REST_HOST": server.url,
            "DLICMD_USERNAME": USER,
            "DLICMD_PASSWORD": PASSWORD,
        }

    def types(self, *words: str) -> str:
        """Run a command and return what it prints."""
        done = subprocess.run(
            [sys.executable, dlicmd.__file__, *words],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    def submits(self, *words: str) -> str:
        """Submit the tutorial and return the id."""
        told = self.types("--exec-start", "edtPyTorch", "--model-dir", "insects", "--model-main", "main.py", *words)
        return str(json.loads(told[told.index("{") :])["appId"])

    def fetches(self, job: str) -> dict[str, bytes]:
        """Fetch a result, and return its files by their names."""
        name = self.types("--exec-trainresult", job).removeprefix("Train result is saved to ").strip()
        with zipfile.ZipFile(self.folder / name) as archive:
            return {member: archive.read(member) for member in archive.namelist()}


@pytest.mark.timeout(240)
def test_the_tutorial_grows_and_shrinks_and_ends_with_the_same_weights(server: Platform, tmp_path: Path) -> None:
    ann = Ann(server, tmp_path)
    (tmp_path / "insects").mkdir()
    (tmp_path / "insects/main.py").write_text(TUTORIAL)
    data = Path(server.environment["LEGATO_HOME"], "data/digits")
    data.mkdir(parents=True)
    (data / "limit.txt").write_text("576")
    pace = tmp_path / "pace"
    pace.write_text("0")
    words = ["--cs-datastore-meta", "type=fs,data_path=digits", "--msd-env", f"PACE={pace}", "--numWorker", "1"]
    program = ["--", "--batchsize", "16", "--epochs", "6", "--title", "it's  elastic"]
    alone = ann.submits(*words, *program)
    server.client.job(alone).wait(LIMIT_S)

    pace.write_text("0.1")
    job = ann.submits(*words, *program)
    handle = server.client.job(job)
    seen = []
    for num_workers in (1, 3, 2):
        if seen:
            handle.resize(max_workers=num_workers)
        wait_until_it_trains_with(num_workers, handle)
        # The column gpu, as people watch it.
        table = ann.types("--app-get-all", "-o", "custom-columns=id,state,gpu").splitlines()
        seen += [line.split()[1:] for line in table if line.startswith(job)]
    pace.write_text("0")
    assert seen == [["RUNNING", "1"], ["RUNNING", "3"], ["RUNNING", "2"]]
    assert ann.types("--app-wait", job).splitlines()[-1].startswith(f"{job} FINISHED ")

    want, got = ann.fetches(alone), ann.fetches(job)
    assert sorted(got) == sorted(want)
    assert {"model/train/model_epoch_5.pth", "model/train/model_epoch_final.pth"} <= set(got)
    assert got == want
    assert "it's  elastic\n" in ann.types("--exec-trainlogs", job)
    assert "it's  elastic\n" in ann.types("--exec-outlogs", job)
    table = ann.types("--app-history-get-all", "-o", "custom-columns=id,state,gpu").splitlines()
    assert [line.split()[1:] for line in table if line.startswith(job)] == [["FINISHED", "0"]]


def wait_until_it_trains_with(num_workers: int, job: Job) -> None:
    """Wait until so many workers have done a step together."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        progress = job.refresh().progress
        if progress is not None and progress.num_workers == num_workers == job.num_slots:
            return
        assert not job.has_ended and time.monotonic() < deadline, (job.stage, job.reason, progress)
        time.sleep(0.05)
