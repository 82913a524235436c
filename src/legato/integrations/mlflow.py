"""MLflow in an elastic job: one run of MLflow for a job, fed by one worker.

Programs call `start_run` and its methods on every worker. The worker that writes finds the job's run of MLflow by a
tag. Another tag has the place of the last call that was recorded; the worker that writes next continues from there.
"""

from __future__ import annotations

import os
from typing import Any, Final, Self

from legato.core.errors import UsageError
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
    job. What a method records is in the store when it returns. Where the number of workers changes, this records the
    metric ``legato/num_workers`` and the tag ``legato.resizes``.

    Attributes:
        run_id: MLflow's, on the worker that writes; None on the others, and before the first step.
    """

    name = "MLflow"
    failures = (OSError, MlflowException)

    def __init__(
        self, run: Run, *, experiment_name: str | None, run_name: str | None, tracking_uri: str | None
    ) -> None:
        if not isinstance(run, Run):
            raise UsageError(f"start_run needs the run as its first argument, not {run!r}: start_run(run).")
        self._experiment = experiment_name or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "Default"
        self._run_name = run_name
        self._uri = tracking_uri
        self._client: Any = None
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

    def log_artifact(self, local_path: str, artifact_path: str | None = None) -> None:
        """Store a file, which the worker that writes must have."""
        self._call(self._write_artifact, "log_artifact", str(local_path), artifact_path)

    def log_artifacts(self, local_dir: str, artifact_path: str | None = None) -> None:
        """Store the files of a directory, which the worker that writes must have."""
        self._call(self._write_artifact, "log_artifacts", str(local_dir), artifact_path)

    def log_text(self, text: str, artifact_file: str) -> None:
        """Store a text as a file."""
        self._call(self._write_artifact, "log_text", text, artifact_file)

    def log_dict(self, dictionary: dict[str, Any], artifact_file: str) -> None:
        """Store a dict as a file of JSON or YAML."""
        self._call(self._write_artifact, "log_dict", dictionary, artifact_file)

    def log_figure(self, figure: Any, artifact_file: str) -> None:
        """Store a picture of Matplotlib or Plotly."""
        self._call(self._write_artifact, "log_figure", figure, artifact_file)

    def end_run(self, status: str = "FINISHED") -> None:
        """End the run of MLflow, if this worker writes it. The end of the program does so, too."""
        if self._is_open and self._run.has_state and not self._is_lost and not self._is_closed:
            self._is_closed = True
            with self._guarded():
                self._client.set_terminated(self.run_id, status)

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
        self._client = client = MlflowClient(self._uri)
        experiment = client.get_experiment_by_name(self._experiment)
        number = client.create_experiment(self._experiment) if experiment is None else experiment.experiment_id
        found = client.search_runs([number], f"tags.`{_LOG}` = '{self._id}'", max_results=1)
        if not found:
            tags = resolve_tags({_LOG: self._id})
            self.run_id = client.create_run(number, tags=tags, run_name=self._run_name).info.run_id
            return None
        self.run_id, tags = found[0].info.run_id, found[0].data.tags
        self._resizes = [text for text in tags.get(_RESIZES, "").split(", ") if text]
        client.update_run(self.run_id, status="RUNNING")
        # The last worker may have died after the metrics or parameters of a call, and before the tag.
        self._is_in_doubt = True
        if _PLACE not in tags:
            return None
        step, number = tags[_PLACE].split()
        return int(step), int(number)

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
        return {point.step for point in self._client.get_metric_history(self.run_id, key)}

    def _write_params(self, params: list[Param]) -> None:
        if self._is_in_doubt:
            known = self._client.get_run(self.run_id).data.params
            params = [param for param in params if param.key not in known]
        self._write_batch(params=params)

    def _write_batch(self, tags: list[RunTag] | None = None, **records: list[Any]) -> None:
        place = RunTag(_PLACE, " ".join(map(str, self._writing)))
        self._client.log_batch(self.run_id, tags=[*(tags or []), place], **records)
        self._is_in_doubt = False

    def _write_artifact(self, name: str, *arguments: Any) -> None:
        try:
            getattr(self._client, name)(self.run_id, *arguments)
        except Exception as error:  # the stores of files have errors of their own
            raise MlflowException(f"{name}: {type(error).__name__}: {error}", INVALID_PARAMETER_VALUE) from error

    def _write_resize(self, num_workers: int) -> None:
        step = self._run.step
        self._resizes = [*self._resizes, f"step {step}: {num_workers}"][-_MAX_RESIZES:]
        self._client.log_batch(
            self.run_id,
            metrics=[Metric(_NUM_WORKERS, num_workers, get_current_time_millis(), step)],
            tags=[RunTag(_RESIZES, ", ".join(self._resizes))],
        )

    def _close(self) -> None:
        self.end_run()


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
