"""Scripts like those of WMLA's users: download dlicmd.py from the server, submit, poll, search output, fetch a result.

They get only the host. They cut JSON out of the command's output from the first brace on, and lose its line breaks, as
unquoted shell variables do.
"""

from __future__ import annotations

import os
import subprocess
import textwrap
import zipfile
from pathlib import Path

import pytest
from benchmarks.platform import Platform
from tests.acceptance.conftest import PASSWORD, USER
from tests.acceptance.users import LIMIT_S

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


@pytest.mark.soak
def test_one_file_is_submitted_and_its_log_searched(wmla: Platform, tmp_path: Path) -> None:
    (tmp_path / "mnist_convnet.py").write_text("print('Test loss:', 0.25)\nprint('Test accuracy:', 0.9)\n")
    told = run(
        wmla,
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


@pytest.mark.soak
def test_a_directory_is_submitted_and_its_result_fetched(wmla: Platform, tmp_path: Path) -> None:
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
        wmla,
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


def test_several_workers_get_the_arguments_behind_two_dashes(wmla: Platform, tmp_path: Path) -> None:
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
        wmla,
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


@pytest.mark.soak
def test_a_program_that_cannot_be_read_ends_in_error_with_its_traceback(wmla: Platform, tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text("/* a comment of another language */\n")
    told = run(
        wmla,
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
