"""The environment of a program in a job, and the ways in which it ends."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.train.tape import Tape

from legato.compat.wmla import names
from legato.compat.wmla.site import launch
from legato.core import wire
from legato.core.errors import UsageError
from legato.train.membership.gang import Gang, Seat, name_attempt
from legato.train.process import worker
from legato.train.process.job import Place

JOB = "j-37efnd0000"
HOST = socket.gethostname()
MODULES = (
    *("fabric_model", "callbacks", "emetrics", "elog", "edtcallback", "pyedt", "pyedt.fabric_model"),
    *("pth_parameter_mgr", "beside"),
)
TELL = """
import json, os, random, sys
import numpy, torch
print(json.dumps({
    "argv": sys.argv, "path": sys.path, "cwd": os.getcwd(), "name": __name__, "environment": dict(os.environ),
    "drawn": [random.random(), float(numpy.random.rand()), float(torch.rand(()))],
}))
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory of a job with this process as worker 2; everything is restored afterwards."""
    work = tmp_path / JOB / "work"
    (work / "_submitted_code/mnist/src").mkdir(parents=True)
    before, path, argv, modules = dict(os.environ), list(sys.path), list(sys.argv), set(sys.modules)
    for name in [name for name in os.environ if name.startswith(("LEGATO_", "DLI_", "EDT_", "WMLA_", "FABRIC_"))]:
        monkeypatch.delenv(name)
    if "legato.compat.wmla.fabric.model" in sys.modules:
        # Another test of this process may have trained.
        monkeypatch.setattr("legato.compat.wmla.fabric.model._has_trained", False)
        monkeypatch.setattr("legato.compat.wmla.fabric.model._last_run", None)
    for name, value in (
        ("LEGATO_DRIVER_FILE", str(tmp_path / JOB / "driver.json")),
        ("LEGATO_WORKER", "2"),
        ("DATA_DIR", "/data/mnist"),
        ("RESULT_DIR", "/somewhere/else"),
    ):
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(work)
    monkeypatch.setattr(sys, "argv", ["launch_wmla.py"])
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    streams = sys.stdout, sys.stderr
    for name in MODULES:
        sys.modules.pop(name, None)
    yield work
    for stream in (sys.stdout, sys.stderr):
        if stream not in streams:
            stream.close()
    sys.stdout, sys.stderr = streams
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])
    sys.path[:], sys.argv[:] = path, argv
    os.environ.clear()
    os.environ.update(before)
    for name in set(sys.modules) - modules:
        if name in MODULES:
            del sys.modules[name]


Play = Callable[..., dict[str, Any]]


@pytest.fixture
def play(job: Path, capsys: pytest.CaptureFixture[str]) -> Play:
    def run(text: str, *arguments: str, name: str = "_submitted_code/mnist/src/main.py") -> dict[str, Any]:
        path = job / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        launch.main([name, *arguments])
        told: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
        return told

    return run


def test_the_environment_of_a_program(job: Path, play: Play) -> None:
    found = play(TELL, "--epochs", "3", "a b")
    model_dir = job / "_submitted_code/mnist"
    main = model_dir / "src/main.py"
    assert found["argv"] == [str(main), "--epochs", "3", "a b"] and found["name"] == "__main__"
    assert found["cwd"] == str(model_dir)
    assert found["path"][:3] == [str(main.parent), str(model_dir), str(Path(launch.__file__).parent)]
    assert str(job) not in found["path"]
    executor = job / f"log/executor-{JOB}-3.{HOST}"
    want = {
        "RESULT_DIR": job,
        "LOG_DIR": executor,
        "SAVED_MODEL_DIR": job / "model",
        "CHECKPOINT_DIR": job / "checkpoint",
        "DLI_WORK_DIR": model_dir,
        "MODEL_PATH": model_dir,
        "PS_PATH": model_dir,
        "DLI_EXECID": JOB,
        "APP_ID": JOB,
        "TRAINING_ID": JOB,
        "TASK_ID": 2,
        "IS_TASK0": "false",
        "FABRIC_BACKEND": "pytorch",
        "RESUME_WEIGHT_PATH": "null",
        "DATA_DIR": "/data/mnist",
        "WMLA_USER_DATA_DIR": "/data/mnist",
        "WMLA_USER_DATA_FILES": "",
        "SUBID": "",
        "SPACE_ID": "default",
        "EMETRICS_STREAMING": "false",
        "DLI_SHARED_FS": job / ".fabric",
    }
    assert {name: found["environment"].get(name) for name in want} == {name: str(value) for name, value in want.items()}
    for name in ("RESULT_DIR", "LOG_DIR", "SAVED_MODEL_DIR", "CHECKPOINT_DIR", "FABRIC_HOME"):
        assert Path(found["environment"][name]).is_dir(), name
    assert (job / f"log/driver-{JOB}.{HOST}").is_dir() and (job / "model/train").is_dir()
    assert json.loads((executor / names.OUT_FILE).read_text()) == found
    assert "without a call of FabricModel.train()" in (executor / names.ERR_FILE).read_text()


@pytest.mark.parametrize(("folder", "want"), [(".", 0), ("digits", 1)])
def test_missing_data_are_reported(
    folder: str, want: int, job: Path, play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / folder
    monkeypatch.setenv("DATA_PATH", "digits")
    monkeypatch.setenv("DATA_DIR", str(data))
    play(TELL)
    told = (job / f"log/executor-{JOB}-3.{HOST}" / names.ERR_FILE).read_text()
    assert told.count(f"The directory {data} (DATA_DIR, from data_path=digits) does not exist on this machine.") == want


def test_the_numbers_drawn_before_training_are_alike_in_all_workers(
    job: Path, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = play(TELL)
    torch.rand(100)
    monkeypatch.setenv("LEGATO_WORKER", "5")
    sys.argv[:] = ["launch_wmla.py"]
    os.chdir(job)
    assert play(TELL)["drawn"] == first["drawn"]
    monkeypatch.setenv("LEGATO_SEED", "7")
    os.chdir(job)
    assert set(play(TELL)["drawn"]).isdisjoint(first["drawn"])


def test_variables_of_the_submission_are_kept(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FABRIC_BACKEND", "keras")
    monkeypatch.setenv("DLI_SUBMIT_USERNAME", "ada")
    environment = play(TELL)["environment"]
    assert (environment["FABRIC_BACKEND"], environment["DLI_SUBMIT_USERNAME"]) == ("keras", "ada")
    assert environment["TF_DETERMINISTIC_OPS"] == "1", "said before TensorFlow does anything"


def test_a_tensorflow_program_that_trains_by_itself_may_draw_without_a_seed(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FABRIC_BACKEND", "tensorflow")
    monkeypatch.setenv(names.IS_ELASTIC, "false")
    # With this variable, TensorFlow raises "Random ops require a seed".
    assert "TF_DETERMINISTIC_OPS" not in play(TELL)["environment"]


DECLARES = (
    f"import argparse\nargparse.ArgumentParser().add_argument('-n', '--numWorker', type=int, default=100)\n{TELL}"
)


@pytest.mark.parametrize(
    ("text", "beside", "given", "want"),
    [
        (DECLARES, "", (), ["--numWorker", "2"]),
        (DECLARES, "", ("--epochs", "3"), ["--epochs", "3", "--numWorker", "2"]),
        # The user's own arguments have precedence.
        (DECLARES, "", ("--numWorker", "7"), ["--numWorker", "7"]),
        (DECLARES, "", ("--numWorker=7",), ["--numWorker=7"]),
        (TELL, "", (), []),
        (f"# parser.add_argument('--numWorker')\n{TELL}", "", (), []),
        (f"print('--numWorker')\n{TELL}", "", (), []),
        (f"import getopt\ngetopt.getopt([], '', ['numWorker='])\n{TELL}", "", (), ["--numWorker", "2"]),
        (f"from settings import *\n{TELL}", DECLARES.partition("import json")[0], (), ["--numWorker", "2"]),
    ],
)
def test_the_number_of_workers_goes_to_programs_that_ask_for_it(
    text: str,
    beside: str,
    given: tuple[str, ...],
    want: list[str],
    job: Path,
    play: Play,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(names.REQUESTED_WORKERS, "2")
    monkeypatch.delitem(sys.modules, "settings", raising=False)
    (job / "_submitted_code/mnist/src/settings.py").write_text(beside)
    assert play(text, *given)["argv"][1:] == want
    sys.modules.pop("settings", None)
    monkeypatch.delenv(names.REQUESTED_WORKERS)
    os.chdir(job)
    assert play(text, *given)["argv"][1:] == list(given), "the submission names no number"


def test_a_program_that_makes_its_model_directory_itself_can(
    play: Play, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(names.IS_ELASTIC, "false")
    play(f"import os\nos.mkdir(os.path.join(os.environ['RESULT_DIR'], 'model'))\n{TELL}")
    assert (job / "model").is_dir()


def test_a_program_that_is_not_elastic_and_makes_no_model_directory_has_an_empty_one(
    play: Play, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(names.IS_ELASTIC, "false")
    play(TELL)
    assert list((job / "model").iterdir()) == []


def test_the_arguments_of_wmla_1_2_1_are_added_on_request(
    job: Path, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(play(TELL)["argv"]) == 1
    monkeypatch.setenv(names.ENGINE_ARGUMENTS, "1")
    monkeypatch.setenv(names.MAX_WORKERS, "4")
    os.chdir(job)
    arguments = play(TELL, "--mine")["argv"][1:]
    assert arguments[:7] == ["--mine", "--dataControlSchema", "0", "--weightSyncInterval", "5", "--numWorker", "4"]
    pairs = dict(zip(arguments[1::2], arguments[2::2], strict=True))
    assert pairs["--train_dir"] == str(job / "model/train") and pairs["--isESE"] == "true"
    assert pairs["--model_path"] == str(job / "_submitted_code/mnist")
    assert list(pairs)[2:] == [
        *("--numWorker", "--usegpuNumPerWorker", "--commIPNetwork", "--isTest", "--globalStep", "--testIter"),
        *("--testInterval", "--isESE", "--mode", "--execPathParam", "--train_dir", "--model_path"),
    ]


def test_the_zip_for_older_programs_has_no_modules_of_programs(job: Path, play: Play) -> None:
    text = """
import json, os, sys
path = os.path.join(os.getenv("FABRIC_HOME"), "libs", "fabric.zip")
sys.path.insert(0, path)
import fabric_model, callbacks, edtcallback, emetrics, elog
print(json.dumps({name: sys.modules[name].__file__ for name in ("fabric_model", "callbacks", "edtcallback", "emetrics")}
      | {"elog": elog.mine, "same": fabric_model.FabricModel.__module__}))
"""
    (job / "_submitted_code/mnist/elog.py").write_text("mine = 'of the program'")
    (job / "_submitted_code/mnist/src/edtcallback.py").write_text("")
    found = play(text)
    archive = job / ".fabric/libs/fabric.zip"
    assert found["fabric_model"] == f"{archive}/fabric_model.py" and found["callbacks"] == f"{archive}/callbacks.py"
    assert found["edtcallback"] == str(job / "_submitted_code/mnist/src/edtcallback.py")
    assert found["emetrics"] == str(Path(launch.__file__).with_name("emetrics.py"))
    assert found["elog"] == "of the program" and found["same"] == "legato.compat.wmla.fabric.model"
    assert sorted(zipfile.ZipFile(archive).namelist()) == ["callbacks.py", "fabric_model.py"]


def test_modules_by_the_names_of_all_releases(play: Play) -> None:
    text = """
import json
from fabric_model import FabricModel
from pyedt.fabric_model import FabricModel as Same
from callbacks import Callback, LoggerCallback
from emetrics import EMetrics
from elog import ELog
from edtcallback import EDTLoggerCallback
print(json.dumps({"same": FabricModel is Same, "groups": [EMetrics.TEST_GROUP, EMetrics.TRAIN_GROUP],
                  "derived": isinstance(EDTLoggerCallback(), LoggerCallback)}))
"""
    assert play(text) == {"same": True, "groups": ["test", "train"], "derived": True}


CONSOLE = """
import os, sys
sys.path.append(os.path.join(sys.argv[1], "..", ""))
import pth_parameter_mgr
print(json.dumps({"epochs": pth_parameter_mgr.getEpoch(), "file": pth_parameter_mgr.__file__}))
"""


def test_settings_of_the_console_are_variables_of_the_job(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLI_EPOCHS", "3")
    (tmp_path / "console/model").mkdir(parents=True)
    found = play(f"import json{CONSOLE}", str(tmp_path / "console/model"))
    assert found["epochs"] == 3
    assert Path(found["file"]).parent == Path(launch.__file__).parent


def test_a_module_of_settings_may_be_last_on_the_path(play: Play, tmp_path: Path) -> None:
    (tmp_path / "console/model").mkdir(parents=True)
    own = tmp_path / "console/pth_parameter_mgr.py"
    own.write_text("def getEpoch():\n    return 7\n")
    found = play(f"import json{CONSOLE}", str(tmp_path / "console/model"))
    assert found["epochs"] == 7
    assert Path(found["file"]).resolve() == own


def test_a_static_program_gets_no_directory_on_its_path(play: Play, job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(names.IS_ELASTIC, "false")
    found = play(TELL)
    assert str(Path(launch.__file__).parent) not in found["path"]
    assert found["environment"]["RESULT_DIR"] == str(job) and not (job / ".fabric").exists()
    assert "FabricModel" not in (job / f"log/executor-{JOB}-3.{HOST}" / names.ERR_FILE).read_text()


@pytest.mark.parametrize("is_elastic", [False, True])
def test_a_static_program_is_not_expected_to_train(
    play: Play, monkeypatch: pytest.MonkeyPatch, is_elastic: bool
) -> None:
    place = Place(None, None, "cpu", 1)
    monkeypatch.setattr("legato.train.process.job._place", place)
    monkeypatch.setenv(names.IS_ELASTIC, str(is_elastic).lower())
    play(TELL)
    assert place.is_independent is not is_elastic


def test_the_worker_of_a_static_job_writes_the_drivers_files(
    play: Play, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(names.IS_ELASTIC, "false")
    monkeypatch.setenv(names.FRAMEWORK, "PyTorch")
    environment = play(TELL)["environment"]
    # Not worker 0: in a retried job, workers have higher numbers.
    assert (environment["TASK_ID"], environment["IS_TASK0"]) == ("0", "true")
    assert "RANK" not in environment and not (job / ".gangs").exists()
    assert json.loads((job / f"log/driver-{JOB}.{HOST}" / names.OUT_FILE).read_text())["environment"] == environment


@pytest.mark.parametrize(("framework", "has_config"), [("distPyTorch", False), ("disttensorflow", True)])
def test_a_gang_meets_before_its_program_and_parts_after_it(
    play: Play, job: Path, monkeypatch: pytest.MonkeyPatch, framework: str, has_config: bool
) -> None:
    (job.parent / "driver.json").write_text('{"token": "secret"}')
    for name, value in (
        (names.IS_ELASTIC, "false"),
        (names.FRAMEWORK, framework),
        (names.NUM_NODES, "2"),
        ("RANK", "7"),
    ):
        monkeypatch.setenv(name, value)
    attempt = name_attempt(job.parent / "driver.json")
    other = Gang(job / ".gangs" / attempt, 1, 2)

    def take_part() -> Seat:
        seat = other.meet("node:4000")
        other.part()
        return seat

    with ThreadPoolExecutor(1) as pool:
        met = pool.submit(take_part)
        environment = play(TELL + "\nraise SystemExit(0)")["environment"]
        seat = met.result(60)
    assert seat.rank == 0 and seat.addresses[0] == "node:4000"
    host, _, port = seat.addresses[1].partition(":")
    assert host == "127.0.0.1"
    with socket.socket() as free:
        free.bind(("127.0.0.1", int(port)))  # the port was reserved only until the program ended
    want = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "node", "MASTER_PORT": "4000", "TASK_ID": "1"}
    assert {name: environment[name] for name in want} == want
    assert environment["IS_TASK0"] == "false"
    assert ("TF_CONFIG" in environment) == has_config
    assert not (job / f"log/driver-{JOB}.{HOST}" / names.OUT_FILE).exists(), "rank 0 speaks for the driver"


def test_a_program_by_an_absolute_path_and_one_without_a_model_directory(job: Path, play: Play, tmp_path: Path) -> None:
    elsewhere = tmp_path / "programs/main.py"
    found = play(TELL, name=str(elsewhere))
    assert found["cwd"] == found["environment"]["MODEL_PATH"] == str(elsewhere.parent)
    os.chdir(job)
    assert play(TELL, name="single.py")["cwd"] == str(job)


def test_a_missing_program_is_reported_with_the_existing_files(job: Path) -> None:
    (job / "_submitted_code/mnist/other.py").write_text("")
    with pytest.raises(UsageError) as error:
        launch.main(["_submitted_code/mnist/main.py"])
    assert "There is no program _submitted_code/mnist/main.py in the submitted code." in str(error.value)
    assert str(error.value).endswith(" Programs there: other.py.")
    with pytest.raises(UsageError, match="There is no program to run"):
        launch.main([])


def test_another_machine_continues_the_log_of_the_driver(job: Path, play: Play) -> None:
    (job / f"log/driver-{JOB}.another").mkdir(parents=True)
    play(TELL)
    assert [path.name for path in (job / "log").glob("driver-*")] == [f"driver-{JOB}.another"]


# ---------------------------------------------------------------- the end of a program


LAUNCHER = """
import runpy
from pathlib import Path
import legato
runpy.run_path(str(Path(legato.__file__).parent / "compat/wmla/site/launch.py"), run_name="__main__")
"""


def end_of(job: Path, text: str) -> tuple[int, wire.Message, str]:
    """Run a program as a worker does; return the exit code, the last message, and the copy of its error stream."""
    (job / names.LAUNCHER).write_text(LAUNCHER)
    (job / "_submitted_code/mnist/main.py").write_text(text)
    (job / "_submitted_code/mnist/beside.py").write_text("def fail():\n    return 1 / 0\n")
    link = Tape()
    place = Place(link, None, "cpu", 1)
    code = worker._run([str(job / names.LAUNCHER), "_submitted_code/mnist/main.py"], place, link, None)
    return code, link.said[-1], (job / f"log/executor-{JOB}-3.{HOST}" / names.ERR_FILE).read_text()


def test_a_traceback_begins_at_the_program(job: Path) -> None:
    code, last, told = end_of(job, "import beside\n\n\ndef main():\n    beside.fail()\n\n\nmain()\n")
    assert code == 1
    model_dir = job / "_submitted_code/mnist"
    assert [line.strip() for line in told.splitlines() if line.startswith("  File")] == [
        f'File "{model_dir}/main.py", line 8, in <module>',
        f'File "{model_dir}/main.py", line 5, in main',
        f'File "{model_dir}/beside.py", line 2, in fail',
    ]
    assert told.startswith("Traceback (most recent call last):\n") and "ZeroDivisionError: division by zero" in told
    assert isinstance(last, wire.Failed) and last.traceback == told
    assert (job / f"log/driver-{JOB}.{HOST}" / names.ERR_FILE).read_text() == told


def test_a_worker_that_replaces_a_lost_one_of_a_gang_ends_the_job(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (job.parent / "driver.json").write_text('{"token": "secret"}')
    for name, value in ((names.IS_ELASTIC, "false"), (names.FRAMEWORK, "distPyTorch"), (names.NUM_NODES, "2")):
        monkeypatch.setenv(name, value)
    directory = job / ".gangs" / name_attempt(job.parent / "driver.json")
    directory.mkdir(parents=True)
    for number in range(2):
        (directory / f"come-{number}").write_text("127.0.0.1:4000")
    code, last, told = end_of(job, "print('it runs')")
    assert code == 1 and isinstance(last, wire.Failed)
    assert "A worker of this job is gone, and worker 2 has come in its place." in last.error
    assert told == f"{last.error}\n" == (job / f"log/driver-{JOB}.{HOST}" / names.ERR_FILE).read_text()
    assert not (job / f"log/executor-{JOB}-3.{HOST}" / names.OUT_FILE).read_text()


def test_a_syntax_error_is_reported_as_python_reports_it(job: Path) -> None:
    code, last, told = end_of(job, "import os\n/* A comment of another language. */\n")
    assert code == 1 and isinstance(last, wire.Failed)
    assert told.startswith(f'  File "{job}/_submitted_code/mnist/main.py", line 2\n') and "SyntaxError: " in told


@pytest.mark.parametrize("ending", ["", "raise SystemExit", "raise SystemExit(0)", "import sys; sys.exit()"])
def test_a_program_that_trains_nothing_ends_well_and_says_so(job: Path, ending: str) -> None:
    code, last, told = end_of(job, f"print('prepared')\n{ending}\n")
    assert code == 0 and isinstance(last, wire.Finished)
    assert told == "legato: main.py ended without a call of FabricModel.train(): it trained nothing.\n"


SEARCH = '{"algorithm":"Random","metric":"loss","objective":"minimize","kinds":{"lr":"double"}}'
TRIAL = ("--epochs", "2", "--wmla-hpo", SEARCH, "--lr", "0.1")
WRITES = """
import json, os, sys
from pathlib import Path
rate = json.loads(Path("config.json").read_text())["lr"]
values = [{"loss": rate}, {"loss": 3, "subid": os.environ["SUBID"], "argv": sys.argv[1:]}]
Path(os.environ["RESULT_DIR"], "val_dict_list.json").write_text(json.dumps(values))
"""


@pytest.mark.parametrize("is_elastic", [False, True])
def test_a_trial_reads_its_parameters_and_reports_its_objective(
    job: Path, monkeypatch: pytest.MonkeyPatch, is_elastic: bool
) -> None:
    link = Tape()
    monkeypatch.setattr("legato.train.process.job._place", Place(link, None, "cpu", 1))
    monkeypatch.setenv(names.IS_ELASTIC, str(is_elastic).lower())
    main = "_submitted_code/mnist/main.py"
    (job / main).write_text(WRITES)
    launch.main([main, *TRIAL])
    assert link.said == [wire.Metrics(index=0, step=0, epoch=0, values={"hpo_loss": 0.1})]
    written = json.loads((job / "val_dict_list.json").read_text())[1]
    assert (written["argv"], written["subid"]) == (["--epochs", "2"], JOB)


def test_a_trial_without_a_value_fails_with_what_to_write(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(names.IS_ELASTIC, "false")
    (job / "_submitted_code/mnist/main.py").write_text("print('done')\n")
    with pytest.raises(UsageError, match="has written no RESULT_DIR/val_dict_list"):
        launch.main(["_submitted_code/mnist/main.py", *TRIAL])


def test_only_rank_0_of_a_gang_reports(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = Tape()
    monkeypatch.setattr("legato.train.process.job._place", Place(link, None, "cpu", 1))
    monkeypatch.setenv(names.IS_ELASTIC, "false")
    (job / "_submitted_code/mnist/main.py").write_text("import os\nos.environ['IS_TASK0'] = 'false'\n")
    launch.main(["_submitted_code/mnist/main.py", *TRIAL])
    assert link.said == []


def test_an_exit_code_of_a_program_is_kept(job: Path) -> None:
    code, last, told = end_of(job, "raise SystemExit(3)")
    assert code == 3 and isinstance(last, wire.Failed) and "without a call" not in told
    assert (job / f"log/driver-{JOB}.{HOST}" / names.ERR_FILE).read_text() == told


def test_other_jobs_find_none_of_these_modules() -> None:
    names_of_ours = ("fabric_model", "callbacks", "pyedt", "elog")
    code = f"import importlib.util as u; print([n for n in {names_of_ours} if u.find_spec(n)])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
