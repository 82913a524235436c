"""Runs a program written for WMLA as the program of a job: ``launch.py MAIN [ARGUMENTS…]``, in every worker.

It makes the directories, sets the variables that are known only now, puts the model directory and this one on
``sys.path``, goes into the model directory, copies what the program prints into the process's own files, seeds the
random numbers alike in all workers, lets those of a gang find one another, and runs MAIN as ``__main__``. It does so
at every join, so it loads nothing that the worker has not loaded. Trains nothing.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import socket
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from getpass import getuser
from pathlib import Path
from typing import Final, NamedTuple

from legato.compat.wmla import names
from legato.compat.wmla.fabric.copies import copy_failure_to_driver, copy_streams, copy_to_driver
from legato.compat.wmla.fabric.job_environment import DRIVER_LOG
from legato.compat.wmla.fabric.keras_generation import choose_keras, explain
from legato.compat.wmla.fabric.worker_option import find_worker_arguments
from legato.core.errors import UsageError

_SITE: Final = Path(__file__).parent
_IN_ZIP: Final = ("fabric_model.py", "callbacks.py")
_HOME: Final = ".fabric"
_GANGS: Final = ".gangs"
_TENSORFLOW: Final = ("tensorflow", "keras")


class Places(NamedTuple):
    """Where a process of a job is.

    Args:
        job: its id.
        worker: number of the worker.
        result_dir: of the job.
        log_dir: of this process.
        driver_dir: of the driver, which one of the workers stands in for.
        model_dir: holds the program.
        fabric_home: holds ``libs/fabric.zip``.
    """

    job: str
    worker: int
    result_dir: Path
    log_dir: Path
    driver_dir: Path
    model_dir: Path
    fabric_home: Path


def main(arguments: Sequence[str]) -> None:
    """Run a program.

    Args:
        arguments: the program, from the working directory on or absolute, and its own arguments.

    Raises:
        UsageError: there is no such program.
    """
    _step_aside()
    if not arguments:
        raise UsageError("There is no program to run. Name it: launch.py MAIN [ARGUMENTS...]")
    result_dir = find_result_dir(os.environ)
    program = result_dir / arguments[0]
    if not program.is_file():
        raise UsageError(
            f"There is no program {arguments[0]} in what was submitted. Name it with --model-main, as it lies in the "
            f"model directory.{_tell_files(program.parent)}"
        )
    places = find_places(os.environ, result_dir, program, arguments[0])
    is_elastic = os.environ.get(names.IS_ELASTIC, "true").lower() != "false"
    make_directories(places, is_elastic=is_elastic)
    os.environ.update(variables_of(places, os.environ))
    copy_streams(places.log_dir)
    _tell_missing_data(os.environ)
    _set_path(program, places.model_dir, with_site=is_elastic)
    os.chdir(places.model_dir)
    sys.argv[:] = [str(program), *arguments[1:], *_more_arguments(places, program, arguments[1:])]
    with _telling_failures(places):
        if is_elastic:
            _run_elastic(places, program)
        else:
            _run_static(places, program)


def find_result_dir(environment: Mapping[str, str]) -> Path:
    """Return the directory of a job's results: where it runs; alone, what RESULT_DIR says."""
    said = None if "LEGATO_DRIVER_FILE" in environment else environment.get("RESULT_DIR")
    return Path(said or Path.cwd()).absolute()


def find_places(environment: Mapping[str, str], result_dir: Path, program: Path, main_name: str) -> Places:
    """Return where this process is.

    Args:
        environment: of this process.
        result_dir: of the job.
        program: its path.
        main_name: how the submission names it.
    """
    driver_file = environment.get("LEGATO_DRIVER_FILE")
    job = "local" if driver_file is None else Path(driver_file).absolute().parent.name
    worker = int(environment.get("LEGATO_WORKER", "0"))
    host = socket.gethostname()
    log = result_dir / names.LOG
    # Whichever machine stands in for the driver: there is one directory of it.
    known = sorted(log.glob(names.name_log_directory(names.driver_id(job), "*")))
    model_dir = result_dir / names.find_model_directory(main_name)
    return Places(
        job,
        worker,
        result_dir,
        log / names.name_log_directory(names.executor_id(job, worker + 1), host),
        known[0] if known else log / names.name_log_directory(names.driver_id(job), host),
        model_dir if model_dir.is_dir() else program.parent,
        result_dir / _HOME,
    )


def make_directories(places: Places, *, is_elastic: bool) -> None:
    """Make the directories that a program expects to find.

    Programs of frameworks that are not elastic make ``RESULT_DIR/model`` themselves, some with ``os.mkdir``, which
    fails where it is.
    """
    models = [places.result_dir / names.MODEL / names.TRAINED] if is_elastic else []
    for directory in (places.log_dir, places.driver_dir, *models, places.result_dir / names.CHECKPOINT):
        directory.mkdir(parents=True, exist_ok=True)


def variables_of(places: Places, given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a process has besides those it was given.

    Args:
        places: where it is.
        given: what the submission has set; of what only it can know there are defaults.
    """
    result_dir, model_dir = str(places.result_dir), str(places.model_dir)
    known = {
        "RESULT_DIR": result_dir,
        "LOG_DIR": str(places.log_dir),
        DRIVER_LOG: str(places.driver_dir),
        "SAVED_MODEL_DIR": str(places.result_dir / names.MODEL),
        "CHECKPOINT_DIR": str(places.result_dir / names.CHECKPOINT),
        "JOB_STATE_DIR": str(places.result_dir / names.JOB_STATE),
        "FABRIC_HOME": str(places.fabric_home),
        "DLI_EXECID": places.job,
        "APP_ID": places.job,
        "TRAINING_ID": places.job,
        "TASK_ID": str(places.worker),
        "IS_TASK0": "true" if places.worker == 0 else "false",
        "DLI_WORK_DIR": model_dir,
        "MODEL_PATH": model_dir,
        "PS_PATH": model_dir,
        "DLI_IS_DRIVER": "false",
    }
    defaults = {
        names.BACKEND: "pytorch",
        names.FRAMEWORK: "PyTorch",
        names.IS_ELASTIC: "true",
        names.TYPE: "batch",
        names.USER: _user(),
        "DLI_RESULT_FS": str(places.result_dir.parent),
        "DLI_LOGGER_LEVEL": "INFO",
        "RESUME_WEIGHT_PATH": "null",
        names.SPACE: names.DEFAULT_SPACE,
        # Empty where a job is no part of a search: programs join it to LOG_DIR.
        "SUBID": "",
        "EMETRICS_STREAMING": "false",
        "WMLA_USER_DATA_FILES": "",
        "DLI_SHARED_FS": str(places.fabric_home),
        "WMLA_TOP": str(places.fabric_home),
    }
    if "LEGATO_DATA" in given:
        defaults[names.DATA_DIRECTORY] = defaults[names.DATA_ROOT] = given["LEGATO_DATA"]
    data = given.get(names.DATA_DIRECTORY, defaults.get(names.DATA_DIRECTORY))
    if data is not None:
        defaults["WMLA_USER_DATA_DIR"] = data
    if given.get(names.BACKEND, "").lower() in _TENSORFLOW:
        from legato.compat.wmla.fabric.keras_settings import environment_for_tensorflow

        is_elastic = given.get(names.IS_ELASTIC, "true").lower() != "false"
        defaults |= environment_for_tensorflow(int(given.get("LEGATO_THREADS", "1")), is_exact=is_elastic)
    return known | {name: value for name, value in defaults.items() if name not in given}


def _more_arguments(places: Places, program: Path, given: Sequence[str]) -> list[str]:
    """Return what the program gets besides its own arguments."""
    return engine_arguments(places, os.environ) or find_worker_arguments(
        program, given, os.environ.get(names.REQUESTED_WORKERS)
    )


def engine_arguments(places: Places, environment: Mapping[str, str]) -> list[str]:
    """Return what WMLA 1.2.1 appended to a program's arguments, if the submission asks for it; else nothing."""
    if environment.get(names.ENGINE_ARGUMENTS) != "1":
        return []
    trained = str(places.result_dir / names.MODEL / names.TRAINED)
    return [
        *("--dataControlSchema", "0", "--weightSyncInterval", "5"),
        *("--numWorker", environment.get(names.MAX_WORKERS, "1"), "--usegpuNumPerWorker", "1"),
        *("--commIPNetwork", environment.get("LEGATO_HOST", "127.0.0.1"), "--isTest", "true", "--globalStep", "null"),
        *("--testIter", "10", "--testInterval", "None", "--isESE", "true", "--mode", "1"),
        *("--execPathParam", str(places.fabric_home), "--train_dir", trained, "--model_path", str(places.model_dir)),
    ]


def build_zip(fabric_home: Path) -> None:
    """Build ``libs/fabric.zip``, which older programs put before everything else, unless it stands.

    It holds nothing that a program may bring itself.
    """
    path = fabric_home / "libs" / "fabric.zip"
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    with zipfile.ZipFile(scratch, "w") as file:
        for name in _IN_ZIP:
            file.write(_SITE / name, name)
    scratch.replace(path)


def _set_path(program: Path, model_dir: Path, *, with_site: bool) -> None:
    own = {str(_SITE), str(_SITE.resolve()), str(Path(sys.argv[0]).absolute().parent)}
    rest = [entry for entry in sys.path if entry not in own]
    first = list(dict.fromkeys([str(program.parent), str(model_dir)]))
    sys.path[:] = [*first, *([str(_SITE)] if with_site else []), *rest]


def _seed() -> None:
    import numpy  # noqa: F401 - loaded first, so that it is seeded too

    from legato.train.data.seeds import seed_job
    from legato.train.process.job import choose_seed

    # The program makes its model before it calls train(), so before the runtime could seed anything.
    seed_job(choose_seed(0))


def _run_elastic(places: Places, program: Path) -> None:
    build_zip(places.fabric_home)
    variables, notice = choose_keras(program, os.environ)
    os.environ.update(variables)
    if notice is not None:
        sys.stdout.write(f"legato: {notice}\n")
    _seed()
    try:
        _run(program)
    except Exception as error:
        advice = explain(error)
        if advice is not None:
            error.add_note(f"legato: {advice}")
        raise
    _tell_if_untrained(program)


def _run_static(places: Places, program: Path) -> None:
    from legato.compat.wmla.frameworks import FRAMEWORKS

    if (worker := sys.modules.get("legato.train.process.job")) is not None:
        worker.expect_no_run()
    framework = FRAMEWORKS.get(os.environ.get(names.FRAMEWORK, ""))
    if framework is None or framework.shape != "gang" or "LEGATO_DRIVER_FILE" not in os.environ:
        _take_part(places, 0)
        _run(program)
        _end_result(places)
        return
    from legato.compat.wmla.fabric.gang import variables_of_gang
    from legato.train.membership.gang import Gang, name_attempt, reserve_port

    attempt = name_attempt(Path(os.environ["LEGATO_DRIVER_FILE"]))
    num_workers = int(os.environ.get(names.NUM_NODES, "1"))
    gang = Gang(places.result_dir / _GANGS / attempt, places.worker, num_workers)
    # Held until this process ends: no other process gets it before the program asks for it.
    with reserve_port() as held:
        seat = gang.meet(f"{os.environ.get('LEGATO_HOST', '127.0.0.1')}:{held.getsockname()[1]}")
        os.environ.update(variables_of_gang(seat, for_tensorflow=framework.backend == "tensorflow"))
        _take_part(places, seat.rank)
        _run(program)
        gang.part()
    _end_result(places)


def _end_result(places: Places) -> None:
    """Give a program that wrote no model an empty result, not none."""
    (places.result_dir / names.MODEL).mkdir(exist_ok=True)


def _take_part(places: Places, rank: int) -> None:
    """Stand in for a task of theirs: it is the rank that counts, whichever number the worker has."""
    os.environ.update({"TASK_ID": str(rank), "IS_TASK0": "true" if rank == 0 else "false"})
    if rank == 0:
        copy_to_driver(places.driver_dir)


def _run(program: Path) -> None:
    """Run a program to its end; one that says that it ends well has come to it."""
    try:
        runpy.run_path(str(program), run_name="__main__")
    except SystemExit as ending:
        if ending.code not in (None, 0) or type(ending) is not SystemExit:
            raise


@contextlib.contextmanager
def _telling_failures(places: Places) -> Iterator[None]:
    """Have the driver's error log tell of whatever ends the program, which the worker writes when it has left here."""
    try:
        yield
    except SystemExit as ending:
        if type(ending) is SystemExit:
            copy_failure_to_driver(places.driver_dir)
        raise
    except BaseException:
        copy_failure_to_driver(places.driver_dir)
        raise


def _step_aside() -> None:
    """Let tracebacks begin at the program: they begin at the first frame of ``__main__``, which is the launcher's."""
    own = (names.LAUNCHER, Path(__file__).name)
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_globals.get("__name__") == "__main__" and Path(frame.f_code.co_filename).name in own:
            frame.f_globals["__name__"] = "legato launcher"


def _tell_if_untrained(program: Path) -> None:
    model = sys.modules.get("legato.compat.wmla.fabric.model")
    if model is None or not model.has_trained():
        sys.stderr.write(f"legato: {program.name} ended without a call of FabricModel.train(): it trained nothing.\n")


def _tell_missing_data(environment: Mapping[str, str]) -> None:
    """Say so if what the submission names as data is not there; a program may still put it there itself."""
    data, said = environment.get(names.DATA_DIRECTORY, ""), environment.get(names.DATA_PATH)
    if said and not Path(data).exists():
        sys.stderr.write(
            f"legato: There is no {data} on this machine, the DATA_DIR of data_path={said}. Put the data there, "
            "or change data_path.\n"
        )


def _tell_files(directory: Path) -> str:
    found = sorted(path.name for path in directory.glob("*.py"))[:10] if directory.is_dir() else []
    return f" There are {', '.join(found)}." if found else ""


def _user() -> str:
    try:
        return getuser()
    except (OSError, KeyError):
        return "legato"


if __name__ == "__main__":
    main(sys.argv[1:])
