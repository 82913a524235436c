"""MLflow in an elastic job: one run of MLflow for a job, fed by one worker.

Programs call `start_run` and its methods on every worker. The worker that writes finds the job's run of MLflow by a
tag. Another tag has the place of the last call that was recorded; the worker that writes next continues from there.
A thread calls MLflow. While MLflow is away, training goes on, and the calls wait in memory.
"""

from __future__ import annotations

import os
import posixpath
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Self

from legato.core.errors import UsageError
from legato.integrations.kept_files import FilesTooLarge, KeptFiles
from legato.integrations.patient_calls import Keep, KeptCall, PatientCalls, TooSlow
from legato.integrations.single_writer import MetricsCallback, Place, SingleWriter
from legato.train.loop.elastic import Run

try:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param, RunTag
    from mlflow.exceptions import INVALID_PARAMETER_VALUE, MlflowException
    from mlflow.tracking.context.registry import resolve_tags
    from mlflow.utils.time import get_current_time_millis
except ImportError as error:
    raise UsageError(
        f"legato.integrations.mlflow cannot be imported: {error}. Install the package that it needs: "
        "pip install 'legato[mlflow]'"
    ) from error

_LOG: Final = "legato.log"
_PLACE: Final = "legato.place"
_RESIZES: Final = "legato.resizes"
_NUM_WORKERS: Final = "legato/num_workers"
_MAX_RESIZES: Final = 100
_OPEN_PATIENCE_S: Final = 60.0
"""How long all workers wait for MLflow at the beginning, and after the worker that writes has died."""
_PATIENCE_S: Final = 10.0
"""How long they wait for a call."""
_FILE_PATIENCE_S: Final = 600.0
_END_PATIENCE_S: Final = 60.0
"""How long the end of the program waits for all calls."""
_LEAVE_PATIENCE_S: Final = 5.0
"""How long a worker that leaves the job waits for them: half of the time that it has (`JobSpec.grace_s`)."""
_MAX_EARLY_BYTES: Final = 2**30
"""Of files that are stored after the first step, in copies."""


def _keep_random_apart() -> None:
    """Give MLflow a generator of random numbers of its own.

    It draws pauses from the global one, at any time, because another thread than the program's calls it. The numbers
    that the program draws must not depend on that.
    """
    own = random.Random()
    for name, module in list(sys.modules.items()):
        if name.startswith(("mlflow.", "urllib3.")) and vars(module).get("random") is random:
            vars(module)["random"] = own


def start_run(
    run: Run, *, experiment_name: str | None = None, run_name: str | None = None, tracking_uri: str | None = None
) -> MlflowRun:
    """Return the job's run of MLflow; call it on every worker, before training begins.

    Args:
        run: of the program.
        experiment_name: it is created if it does not exist; None: ``MLFLOW_EXPERIMENT_NAME``, else ``Default``.
        run_name: shown by MLflow; None: MLflow invents one.
        tracking_uri: where MLflow stores runs; None: ``MLFLOW_TRACKING_URI``, else MLflow's default.

    Raises:
        ProgramError: training has begun.
    """
    return MlflowRun(run, experiment_name=experiment_name, run_name=run_name, tracking_uri=tracking_uri)


class MlflowRun(SingleWriter):
    """A run of MLflow: its methods are called on every worker and record once for the job; see `start_run`.

    The methods have the names and the main arguments of the module ``mlflow``. A step that is not given is that of the
    job. What a method records is in the store when it returns, unless MLflow is away: then it waits in memory. Where
    the number of workers changes, this records the metric ``legato/num_workers`` and the tag ``legato.resizes``.

    Attributes:
        run_id: MLflow's, on the worker that writes; None on the others, and before the first step.
    """

    name = "MLflow"
    failures = (OSError, MlflowException, TooSlow)

    def __init__(
        self, run: Run, *, experiment_name: str | None, run_name: str | None, tracking_uri: str | None
    ) -> None:
        if not isinstance(run, Run):
            raise UsageError(f"start_run needs the run as its first argument, not {run!r}: start_run(run).")
        self._experiment = experiment_name or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "Default"
        self._run_name = run_name
        self._uri = tracking_uri
        self._client: Any = None
        self._calls = PatientCalls(self.name, lambda text: run.warn(f"{self.name}: {text}"), self._report)
        self._handed_over_at: int | None = None
        self._early_bytes = _MAX_EARLY_BYTES
        self._resizes: list[str] = []
        self._is_in_doubt = False
        self._is_closed = False
        self.run_id: str | None = None
        super().__init__(run)

    # ------------------------------------------------------------ what a program calls

    def log_metric(self, key: str, value: float, step: int | None = None) -> None:
        """Record a metric."""
        self.log_metrics({key: value}, step)

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Record several metrics."""
        values = {key: float(value) for key, value in metrics.items()}
        self._call(self._write_metrics, values, self._run.step if step is None else int(step))

    def log_param(self, key: str, value: Any) -> None:
        """Record a parameter; MLflow refuses another value for the same one."""
        self.log_params({key: value})

    def log_params(self, params: dict[str, Any]) -> None:
        """Record several parameters."""
        self._call(self._write_params, [Param(key, str(value)) for key, value in params.items()])

    def set_tag(self, key: str, value: Any) -> None:
        """Set a tag."""
        self.set_tags({key: value})

    def set_tags(self, tags: dict[str, Any]) -> None:
        """Set several tags."""
        self._call(self._write_batch, tags=[RunTag(key, str(value)) for key, value in tags.items()])

    def log_artifact(self, local_path: str | Path, artifact_path: str | None = None) -> None:
        """Store a file, which the worker that writes must have, as it is now."""
        self._call(self._write_files, "log_artifact", self._keep_early(local_path), artifact_path)

    def log_artifacts(self, local_dir: str | Path, artifact_path: str | None = None) -> None:
        """Store the files of a directory, which the worker that writes must have, as they are now."""
        self._call(self._write_files, "log_artifacts", self._keep_early(local_dir), artifact_path)

    def log_text(self, text: str, artifact_file: str) -> None:
        """Store a text as a file."""
        self._log_content("log_text", text, artifact_file)

    def log_dict(self, dictionary: dict[str, Any], artifact_file: str) -> None:
        """Store a dict, as it is now, as a file of JSON or YAML."""
        self._log_content("log_dict", dictionary, artifact_file)

    def log_figure(self, figure: Any, artifact_file: str) -> None:
        """Store a picture of Matplotlib or Plotly; every worker draws it now."""
        self._log_content("log_figure", figure, artifact_file)

    def end_run(self, status: str = "FINISHED") -> None:
        """End the run of MLflow, if this worker writes it. The end of the program does so, too."""
        if self._is_open and self._run.has_state and not self._is_lost and not self._is_closed:
            self._is_closed = True
            with self._guarded():
                self._calls.settle(_END_PATIENCE_S)
                if self._calls.num_lost == 0 and not self._is_lost:
                    self._calls.send(lambda: self._client.set_terminated(self.run_id, status), _PATIENCE_S)
                self._give_up_calls()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.end_run()
        elif issubclass(kind, Exception):
            self.end_run("FAILED")
        # Otherwise this worker leaves the job, or the job stops, and may go on.

    # ------------------------------------------------------------ the worker that writes

    def _open(self) -> Place | None:
        self._client, self.run_id, tags = self._calls.ask(self._find_run, _OPEN_PATIENCE_S)
        if tags is None:
            return None
        self._resizes = [text for text in tags.get(_RESIZES, "").split(", ") if text]
        # The last worker may have died after the metrics or parameters of a call, and before the tag.
        self._is_in_doubt = True
        if _PLACE not in tags:
            return None
        step, number = tags[_PLACE].split()
        return int(step), int(number)

    def _find_run(self) -> tuple[Any, str, dict[str, str] | None]:
        """Return a client, the id of the job's run of MLflow, and its tags; None: it is a new one."""
        client = MlflowClient(self._uri)
        _keep_random_apart()
        experiment = client.get_experiment_by_name(self._experiment)
        number = client.create_experiment(self._experiment) if experiment is None else experiment.experiment_id
        found = client.search_runs([number], f"tags.`{_LOG}` = '{self._id}'", max_results=1)
        if not found:
            tags = resolve_tags({_LOG: self._id})
            return client, client.create_run(number, tags=tags, run_name=self._run_name).info.run_id, None
        client.update_run(found[0].info.run_id, status="RUNNING")
        return client, found[0].info.run_id, found[0].data.tags

    def _is_refusal(self, error: Exception) -> bool:
        is_invalid = isinstance(error, MlflowException) and error.error_code == "INVALID_PARAMETER_VALUE"
        return is_invalid or "Changing param values is not allowed" in str(error)  # stores give this one other codes

    def _write_metrics(self, metrics: dict[str, float], step: int) -> None:
        if self._is_in_doubt:
            metrics = {key: value for key, value in metrics.items() if step not in self._steps_of(key)}
        now = get_current_time_millis()
        self._write_batch(metrics=[Metric(key, value, now, step) for key, value in metrics.items()])

    def _steps_of(self, key: str) -> set[int]:
        """Return the steps at which a metric was recorded."""
        history = self._calls.ask(lambda: self._client.get_metric_history(self.run_id, key), _OPEN_PATIENCE_S)
        return {point.step for point in history}

    def _write_params(self, params: list[Param]) -> None:
        if self._is_in_doubt:
            known = self._calls.ask(lambda: self._client.get_run(self.run_id).data.params, _OPEN_PATIENCE_S)
            params = [param for param in params if param.key not in known]
        self._write_batch(params=params)

    def _write_batch(self, tags: list[RunTag] | None = None, **records: list[Any]) -> None:
        step, number = self._writing

        def write() -> None:
            if self._handed_over_at == step:
                return
            place = [RunTag(_PLACE, f"{step} {number}")] if self._handed_over_at is None else []
            self._client.log_batch(self.run_id, tags=[*(tags or []), *place], **records)

        self._calls.send(write, _PATIENCE_S)
        self._is_in_doubt = False

    def _log_content(self, name: str, content: Any, artifact_file: str) -> None:
        """Make the file now, because the program may change the dict or the figure at once."""
        self._call(self._write_content, name, _make_file(name, content, artifact_file), artifact_file)

    def _write_content(self, name: str, made: bytes | Exception, artifact_file: str) -> None:
        folder, base = posixpath.split(posixpath.normpath(artifact_file))

        def store() -> None:
            if isinstance(made, Exception):
                raise made
            with TemporaryDirectory(prefix="legato-files-") as place:
                path = Path(place, base)
                path.write_bytes(made)
                self._client.log_artifact(self.run_id, str(path), folder or None)

        num_bytes = 0 if isinstance(made, Exception) else len(made)

        def keep(room: int) -> KeptCall:
            if num_bytes > room:
                raise FilesTooLarge
            return KeptCall(store, num_bytes)

        self._send_files(name, store, keep)

    def _keep_early(self, local: str | Path) -> str | KeptFiles:
        """Copy files before the first step, because the call is written after it."""
        path = str(local)
        if self._run.step > 0:
            return path
        try:
            kept = KeptFiles(path, self._early_bytes)
        except (OSError, FilesTooLarge):
            # This worker may not write; if it does, it says what is wrong.
            return path
        self._early_bytes -= kept.num_bytes
        return kept

    def _write_files(self, name: str, given: str | KeptFiles, artifact_path: str | None) -> None:
        def store(files: str | KeptFiles) -> None:
            path = files if isinstance(files, str) else str(files.path)
            getattr(self._client, name)(self.run_id, path, artifact_path)

        def keep(room: int) -> KeptCall:
            kept = KeptFiles(given, room) if isinstance(given, str) else given
            return KeptCall(lambda: store(kept), kept.num_bytes)

        self._send_files(name, lambda: store(given), keep)

    def _send_files(self, name: str, store: Callable[[], object], keep: Keep) -> None:
        def keep_refusing(room: int) -> KeptCall:
            with _refusing(name):
                kept = keep(room)
            return KeptCall(_refusing(name)(kept.do), kept.num_bytes)

        self._calls.send(_refusing(name)(store), _FILE_PATIENCE_S, keep_refusing)

    def _write_resize(self, num_workers: int) -> None:
        step = self._run.step
        self._resizes = [*self._resizes, f"step {step}: {num_workers}"][-_MAX_RESIZES:]
        metrics = [Metric(_NUM_WORKERS, num_workers, get_current_time_millis(), step)]
        tags = [RunTag(_RESIZES, ", ".join(self._resizes))]

        def write() -> None:
            told = tags if self._handed_over_at is None else []
            self._client.log_batch(self.run_id, metrics=metrics, tags=told)

        self._calls.send(write, _PATIENCE_S)

    # ------------------------------------------------------------ the end

    def _report(self, error: BaseException) -> None:
        """Take note of the error of a call that ended late."""
        if not self._note_failure(error):
            raise error

    def _leave(self, *, others_go_on: bool) -> None:
        if others_go_on:
            # The next writer has the calls of this step too, and has a place of its own.
            self._handed_over_at = self._run.step
        self._calls.settle(_LEAVE_PATIENCE_S)
        self._give_up_calls()

    def _give_up_calls(self) -> None:
        if self._calls.num_lost > 0:
            self._is_lost = True
            self._run.warn(
                f"{self.name}: no answer until the end of this worker. {self._calls.num_lost} of its calls are lost."
            )

    def _close(self) -> None:
        self.end_run()


@contextmanager
def _refusing(name: str) -> Iterator[None]:
    """Turn all errors into those of MLflow that concern one call: the stores of files have errors of their own."""
    try:
        yield
    except FilesTooLarge:
        raise
    except Exception as error:
        raise MlflowException(f"{name}: {type(error).__name__}: {error}", INVALID_PARAMETER_VALUE) from error


class _FileMaker(MlflowClient):  # type: ignore[misc]
    """Makes the files that MLflow would store, and stores none."""

    def __init__(self) -> None:
        self.made = b""

    def log_artifact(self, run_id: str, local_path: str, artifact_path: str | None = None) -> None:  # noqa: ARG002
        """Take the file."""
        self.made = Path(local_path).read_bytes()


def _make_file(name: str, content: Any, artifact_file: str) -> bytes | Exception:
    maker = _FileMaker()
    try:
        getattr(maker, name)("", content, artifact_file)
    except Exception as error:  # noqa: BLE001 -- the worker that writes warns of it: it must not end the training
        return error
    return maker.made


class MLflowCallback(MetricsCallback):
    """Records what `legato.Trainer` trains: ``loss`` after each step; after each epoch ``epoch_loss``, ``val_...``.

    Args:
        params: recorded once.
        options: of `start_run`.
    """

    def __init__(self, params: dict[str, Any] | None = None, **options: Any) -> None:
        self._params = params or {}
        self._options = options
        self._mlflow: MlflowRun | None = None

    def begin(self, run: Run) -> None:
        """Make the run of MLflow."""
        self._mlflow = start_run(run, **self._options)
        if self._params:
            self._mlflow.log_params(self._params)

    def write(self, values: dict[str, float], step: int) -> None:
        """Record metrics."""
        assert self._mlflow is not None
        self._mlflow.log_metrics(values, step)

    def end(self) -> None:
        """End the run of MLflow."""
        assert self._mlflow is not None
        self._mlflow.end_run()
