"""Runs a program written for WMLA in every worker of a job: ``launch.py MAIN [ARGUMENTS…]``.

It creates the directories, sets the environment variables that are known only in the worker, puts the model directory
and this one on ``sys.path``, makes the model directory the working directory, copies the program's output into the
process's own files, seeds the random generators alike in all workers, lets the workers of a gang find each other, and
runs MAIN as ``__main__``. It runs whenever a worker joins, so it imports only modules that the worker has already
imported. Trains nothing.
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
from legato.compat.wmla.trials import Trial, name_metric, read_objective, split_arguments, write_config
from legato.core.errors import UsageError

_SITE: Final = Path(__file__).parent
_IN_ZIP: Final = ("fabric_model.py", "callbacks.py")
_HOME: Final = ".fabric"
_GANGS: Final = ".gangs"
_TENSORFLOW: Final = ("tensorflow", "keras")


class Paths(NamedTuple):
    """The directories of a worker.

    Args:
        job: id of the job.
        worker: number of the worker.
        result_dir: of the job.
        log_dir: log directory of this process.
        driver_dir: log directory of the driver; one of the workers writes there.
        model_dir: has the program.
        fabric_home: has ``libs/fabric.zip``.
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
        arguments: path of the program, absolute or relative to the working directory, and its own arguments.

    Raises:
        UsageError: the program does not exist.
    """
    _hide_launcher()
    if not arguments:
        raise UsageError("There is no program to run. Name it: launch.py MAIN [ARGUMENTS...]")
    result_dir = find_result_dir(os.environ)
    program = result_dir / arguments[0]
    if not program.is_file():
        raise UsageError(
            f"There is no program {arguments[0]} in the submitted code. Give its path in the model directory with "
            f"--model-main.{_list_programs(program.parent)}"
        )
    paths = find_paths(os.environ, result_dir, program, arguments[0])
    is_elastic = os.environ.get(names.IS_ELASTIC, "true").lower() != "false"
    make_directories(paths, is_elastic=is_elastic)
    own, trial = split_arguments(arguments[1:])
    if trial is not None:
        write_config(paths.model_dir, trial)
        os.environ.setdefault("SUBID", paths.job)  # with an id, EMetrics also writes val_dict_list.json
    os.environ.update(variables_of(paths, os.environ))
    copy_streams(paths.log_dir)
    _warn_of_missing_data(os.environ)
    _set_path(program, paths.model_dir, with_site=is_elastic)
    os.chdir(paths.model_dir)
    sys.argv[:] = [str(program), *own, *_more_arguments(paths, program, own)]
    with _reporting_failures(paths):
        if is_elastic:
            _run_elastic(paths, program)
        else:
            _run_static(paths, program)
        if trial is not None:
            _report_objective(paths, trial)


def find_result_dir(environment: Mapping[str, str]) -> Path:
    """Return the directory of results: a job's working directory; outside of a job, ``RESULT_DIR`` if it is set."""
    chosen = None if "LEGATO_DRIVER_FILE" in environment else environment.get("RESULT_DIR")
    return Path(chosen or Path.cwd()).absolute()


def find_paths(environment: Mapping[str, str], result_dir: Path, program: Path, main_name: str) -> Paths:
    """Return the directories of this worker.

    Args:
        environment: variables of this process.
        result_dir: of the job.
        program: path of the program.
        main_name: path of the program in the submission.
    """
    driver_file = environment.get("LEGATO_DRIVER_FILE")
    job = "local" if driver_file is None else Path(driver_file).absolute().parent.name
    worker = int(environment.get("LEGATO_WORKER", "0"))
    host = socket.gethostname()
    log = result_dir / names.LOG
    # The driver has one directory, even if workers on several machines write there over time.
    known = sorted(log.glob(names.name_log_directory(names.driver_id(job), "*")))
    model_dir = result_dir / names.find_model_directory(main_name)
    return Paths(
        job,
        worker,
        result_dir,
        log / names.name_log_directory(names.executor_id(job, worker + 1), host),
        known[0] if known else log / names.name_log_directory(names.driver_id(job), host),
        model_dir if model_dir.is_dir() else program.parent,
        result_dir / _HOME,
    )


def make_directories(paths: Paths, *, is_elastic: bool) -> None:
    """Create the directories that a program expects.

    Programs of frameworks that are not elastic create ``RESULT_DIR/model`` themselves, some with ``os.mkdir``, which
    fails if the directory exists.
    """
    models = [paths.result_dir / names.MODEL / names.TRAINED] if is_elastic else []
    for directory in (paths.log_dir, paths.driver_dir, *models, paths.result_dir / names.CHECKPOINT):
        directory.mkdir(parents=True, exist_ok=True)


def variables_of(paths: Paths, given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that the launcher sets.

    Args:
        paths: of this worker.
        given: the variables that the process already has. Defaults do not replace them; all others do.
    """
    result_dir, model_dir = str(paths.result_dir), str(paths.model_dir)
    known = {
        "RESULT_DIR": result_dir,
        "LOG_DIR": str(paths.log_dir),
        DRIVER_LOG: str(paths.driver_dir),
        "SAVED_MODEL_DIR": str(paths.result_dir / names.MODEL),
        "CHECKPOINT_DIR": str(paths.result_dir / names.CHECKPOINT),
        "JOB_STATE_DIR": str(paths.result_dir / names.JOB_STATE),
        "FABRIC_HOME": str(paths.fabric_home),
        "DLI_EXECID": paths.job,
        "APP_ID": paths.job,
        "TRAINING_ID": paths.job,
        "TASK_ID": str(paths.worker),
        "IS_TASK0": "true" if paths.worker == 0 else "false",
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
        "DLI_RESULT_FS": str(paths.result_dir.parent),
        "DLI_LOGGER_LEVEL": "INFO",
        "RESUME_WEIGHT_PATH": "null",
        names.SPACE: names.DEFAULT_SPACE,
        # Empty, unless the job is a trial of a hyperparameter search; programs append it to LOG_DIR.
        "SUBID": "",
        "EMETRICS_STREAMING": "false",
        "WMLA_USER_DATA_FILES": "",
        "DLI_SHARED_FS": str(paths.fabric_home),
        "WMLA_TOP": str(paths.fabric_home),
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


def _more_arguments(paths: Paths, program: Path, given: Sequence[str]) -> list[str]:
    """Return the arguments that the program gets in addition to its own."""
    return engine_arguments(paths, os.environ) or find_worker_arguments(
        program, given, os.environ.get(names.REQUESTED_WORKERS)
    )


def engine_arguments(paths: Paths, environment: Mapping[str, str]) -> list[str]:
    """Return the arguments that WMLA 1.2.1 appended to a program's, if the submission asks for them; else none."""
    if environment.get(names.ENGINE_ARGUMENTS) != "1":
        return []
    trained = str(paths.result_dir / names.MODEL / names.TRAINED)
    return [
        *("--dataControlSchema", "0", "--weightSyncInterval", "5"),
        *("--numWorker", environment.get(names.MAX_WORKERS, "1"), "--usegpuNumPerWorker", "1"),
        *("--commIPNetwork", environment.get("LEGATO_HOST", "127.0.0.1"), "--isTest", "true", "--globalStep", "null"),
        *("--testIter", "10", "--testInterval", "None", "--isESE", "true", "--mode", "1"),
        *("--execPathParam", str(paths.fabric_home), "--train_dir", trained, "--model_path", str(paths.model_dir)),
    ]


def build_zip(fabric_home: Path) -> None:
    """Build ``libs/fabric.zip``, which older programs put first on ``sys.path``, unless it exists.

    It has only modules that programs do not provide themselves.
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
    import numpy  # noqa: F401 - imported first, so that seed_job seeds it, too

    from legato.train.data.seeds import seed_job
    from legato.train.process.job import choose_seed

    # The program creates its model before it calls train(), and so before the runtime can seed.
    seed_job(choose_seed(0))


def _run_elastic(paths: Paths, program: Path) -> None:
    build_zip(paths.fabric_home)
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
    _warn_if_untrained(program)


def _run_static(paths: Paths, program: Path) -> None:
    from legato.compat.wmla.frameworks import FRAMEWORKS

    if (worker := sys.modules.get("legato.train.process.job")) is not None:
        worker.expect_no_run()
    framework = FRAMEWORKS.get(os.environ.get(names.FRAMEWORK, ""))
    if framework is None or framework.shape != "gang" or "LEGATO_DRIVER_FILE" not in os.environ:
        _set_rank(paths, 0)
        _run(program)
        _ensure_result(paths)
        return
    from legato.compat.wmla.fabric.gang import variables_of_gang
    from legato.train.membership.gang import Gang, name_attempt, reserve_port

    attempt = name_attempt(Path(os.environ["LEGATO_DRIVER_FILE"]))
    num_workers = int(os.environ.get(names.NUM_NODES, "1"))
    gang = Gang(paths.result_dir / _GANGS / attempt, paths.worker, num_workers)
    # The port stays reserved until the program has ended, so that no other process gets it first.
    with reserve_port() as held:
        seat = gang.meet(f"{os.environ.get('LEGATO_HOST', '127.0.0.1')}:{held.getsockname()[1]}")
        os.environ.update(variables_of_gang(seat, for_tensorflow=framework.backend == "tensorflow"))
        _set_rank(paths, seat.rank)
        _run(program)
        gang.part()
    _ensure_result(paths)


def _ensure_result(paths: Paths) -> None:
    """Create ``RESULT_DIR/model`` if the program did not, so that its result is empty rather than missing."""
    (paths.result_dir / names.MODEL).mkdir(exist_ok=True)


def _report_objective(paths: Paths, trial: Trial) -> None:
    """Record the value of a trial's objective as a metric of the job. One worker does it, the one that wrote it."""
    model = sys.modules.get("legato.compat.wmla.fabric.model")
    run = None if model is None else model.last_run()
    is_static = os.environ.get(names.IS_ELASTIC, "true").lower() == "false"
    if (run is not None and not run.is_main) or (is_static and os.environ["IS_TASK0"] != "true"):
        return
    value = read_objective(paths.result_dir, (paths.driver_dir, paths.log_dir), trial.search)
    values = {name_metric(trial.search.metric): value}
    if run is not None:
        run.log(**values)
    elif (worker := sys.modules.get("legato.train.process.job")) is not None:
        worker.log_without_run(values)


def _set_rank(paths: Paths, rank: int) -> None:
    """Set the variables of WMLA's task by the rank, not by the worker's number; rank 0 writes the driver's files."""
    os.environ.update({"TASK_ID": str(rank), "IS_TASK0": "true" if rank == 0 else "false"})
    if rank == 0:
        copy_to_driver(paths.driver_dir)


def _run(program: Path) -> None:
    """Run a program to its end; ``sys.exit(0)`` is a normal end."""
    try:
        runpy.run_path(str(program), run_name="__main__")
    except SystemExit as ending:
        if ending.code not in (None, 0) or type(ending) is not SystemExit:
            raise


@contextlib.contextmanager
def _reporting_failures(paths: Paths) -> Iterator[None]:
    """Copy the error that ends the program to the driver's error log; the worker writes it after the launcher."""
    try:
        yield
    except SystemExit as ending:
        if type(ending) is SystemExit:
            copy_failure_to_driver(paths.driver_dir)
        raise
    except BaseException:
        copy_failure_to_driver(paths.driver_dir)
        raise


def _hide_launcher() -> None:
    """Make tracebacks begin at the program: they begin at the first frame of ``__main__``, so rename the launcher's."""
    own = (names.LAUNCHER, Path(__file__).name)
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_globals.get("__name__") == "__main__" and Path(frame.f_code.co_filename).name in own:
            frame.f_globals["__name__"] = "legato launcher"


def _warn_if_untrained(program: Path) -> None:
    model = sys.modules.get("legato.compat.wmla.fabric.model")
    if model is None or not model.has_trained():
        sys.stderr.write(f"legato: {program.name} ended without a call of FabricModel.train(): it trained nothing.\n")


def _warn_of_missing_data(environment: Mapping[str, str]) -> None:
    """Warn if the data of the submission do not exist. This is no error: the program may create them."""
    data, data_path = environment.get(names.DATA_DIRECTORY, ""), environment.get(names.DATA_PATH)
    if data_path and not Path(data).exists():
        sys.stderr.write(
            f"legato: The directory {data} (DATA_DIR, from data_path={data_path}) does not exist on this machine. Put "
            "the data there, or change data_path.\n"
        )


def _list_programs(directory: Path) -> str:
    found = sorted(path.name for path in directory.glob("*.py"))[:10] if directory.is_dir() else []
    return f" Programs there: {', '.join(found)}." if found else ""


def _user() -> str:
    try:
        return getuser()
    except (OSError, KeyError):
        return "legato"


if __name__ == "__main__":
    main(sys.argv[1:])
