"""The flags of the `elasticdl` command in all its releases: the type and the effect of each. Data only."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Kind = Literal["text", "count", "number", "switch", "level"]
Effect = Literal["used", "accepted", "refused"]

STRATEGIES: Final = ("", "Local", "ParameterServerStrategy", "AllreduceStrategy", "CustomStrategy")
LEVELS: Final = ("CRITICAL", "ERROR", "WARNING", "INFO", "DEBUG", "NOTSET")

REMOVED: Final = (
    *("tensorboard_log_dir", "evaluation_start_delay_secs", "evaluation_throttle_secs", "use_go_ps", "dataset_fn"),
    "model_params",
)
"""Flags of early releases. Later releases ignored them, and old scripts rely on that."""


class Flag(NamedTuple):
    """A flag.

    Args:
        name: without its hyphens.
        kind: how its value is read.
        default: its value if it is not given.
        effect: whether the flag has an effect here (``used``), is accepted without one (``accepted``), or stands for
            something that is not supported (``refused``).
        why: in a few words, why the flag has no effect; for a used flag, its meaning here.
        choices: the only valid values; empty if there are others.
        is_required: the command is invalid without the flag.
        is_late: the last release added the flag. A prefix that meant one older flag still means that one.
    """

    name: str
    kind: Kind
    default: str | int | float | bool | None
    effect: Effect
    why: str
    choices: tuple[str, ...] = ()
    is_required: bool = False
    is_late: bool = False


def _text(name: str, effect: Effect, why: str, default: str = "") -> Flag:
    return Flag(name, "text", default, effect, why)


_JOB_SERVICE: Final = "for programs of the Keras job service, which are not supported"
_PARAMETER_SERVER: Final = "for parameter servers, which Legato does not use"
_PODS: Final = "Legato runs jobs without a container; used only on Kubernetes"
_REPLACED: Final = "Legato always replaces a worker that dies or hangs"
_SLOT: Final = "Legato only checks the value; a worker has one slot: one GPU, or its share of the CPU"

_COMMON: Final = (
    Flag("job_name", "text", None, "used", "name of the job", is_required=True),
    _text("image_name", "accepted", _PODS),
    _text("worker_image", "accepted", _PODS),
    _text("namespace", "accepted", _PODS, "default"),
    _text("job_command", "used", "the command that each worker runs"),
    Flag(
        "distribution_strategy",
        "text",
        "ParameterServerStrategy",
        "used",
        "only AllreduceStrategy is supported",
        STRATEGIES,
    ),
    _text("envs", "used", "environment variables of the workers: NAME=VALUE,NAME=VALUE"),
    _text("populate_env_names", "accepted", "Legato has no master process to copy variables from; use --envs"),
    _text("volume", "used", "folders of this machine, each with host_path and mount_path"),
    Flag("image_pull_policy", "text", "Always", "accepted", _PODS, ("Never", "IfNotPresent", "Always")),
    Flag("restart_policy", "text", "Never", "accepted", _REPLACED, ("Never", "OnFailure", "Always")),
    _text("cluster_spec", "accepted", _PODS),
    _text("cluster_spec_json", "accepted", _PODS),
    _text("yaml", "used", "write the pod of a master on Kubernetes into this file, and submit nothing"),
    Flag("force_use_kube_config_file", "switch", False, "used", "run the job on the cluster of the kubeconfig"),
    _text("log_file_path", "accepted", "Legato keeps the logs itself; show them with 'legato logs'"),
    Flag("log_level", "level", "INFO", "accepted", "Legato has no master process with a log", LEVELS),
    _text(
        "aux_params",
        "used",
        "exact_num_workers=True and min_workers=N set the number of workers; other names have no effect",
    ),
    _text("extra_pypi_index", "accepted", "Legato installs nothing for a job"),
    Flag("num_workers", "count", 2, "used", "maximum number of workers"),
    Flag("num_ps_pods", "count", 0, "refused", _PARAMETER_SERVER),
    Flag("num_minibatches_per_task", "count", 8, "used", "mini-batches per task, if the program does not set them"),
    Flag("minibatch_size", "count", 64, "accepted", _JOB_SERVICE),
    Flag("num_epochs", "count", 1, "accepted", _JOB_SERVICE),
    Flag("max_step", "count", 0, "accepted", _JOB_SERVICE),
    _text("master_resource_request", "accepted", _SLOT, "cpu=0.1,memory=1024Mi"),
    _text("master_resource_limit", "accepted", _SLOT),
    _text("worker_resource_request", "accepted", _SLOT, "cpu=1,memory=4096Mi"),
    _text("worker_resource_limit", "used", "memory and CPU limit of each worker"),
    _text("ps_resource_request", "accepted", _PARAMETER_SERVER, "cpu=1,memory=4096Mi"),
    _text("ps_resource_limit", "accepted", _PARAMETER_SERVER),
    _text("master_pod_priority", "accepted", "Legato has no master process that needs a slot"),
    _text("worker_pod_priority", "used", "the job's priority"),
    _text("ps_pod_priority", "accepted", _PARAMETER_SERVER),
    Flag("need_pod_manager", "switch", True, "accepted", "it is always on"),
    Flag("need_task_manager", "switch", True, "accepted", "it is always on"),
    Flag("task_fault_tolerance", "switch", True, "accepted", "it is always on"),
    Flag("relaunch_timeout_worker", "switch", False, "accepted", _REPLACED),
    Flag("need_tf_config", "switch", False, "refused", "Legato does not train with TensorFlow's own strategies"),
    Flag("relaunch_on_worker_failure", "count", 1, "accepted", _REPLACED),
    _text("model_zoo", "accepted", _JOB_SERVICE),
    _text("model_def", "accepted", _JOB_SERVICE),
    _text("feed", "accepted", _JOB_SERVICE, "feed"),
    _text("loss", "accepted", _JOB_SERVICE, "loss"),
    _text("optimizer", "accepted", _JOB_SERVICE, "optimizer"),
    _text("callbacks", "accepted", _JOB_SERVICE, "callbacks"),
    _text("eval_metrics_fn", "accepted", _JOB_SERVICE, "eval_metrics_fn"),
    _text("custom_data_reader", "accepted", _JOB_SERVICE, "custom_data_reader"),
    _text("data_reader_params", "accepted", _JOB_SERVICE),
    _text("training_data", "accepted", _JOB_SERVICE),
    _text("validation_data", "accepted", _JOB_SERVICE),
    Flag("evaluation_steps", "count", 0, "accepted", _JOB_SERVICE),
    _text("output", "accepted", _JOB_SERVICE),
    Flag("checkpoint_steps", "count", 0, "accepted", _JOB_SERVICE),
    _text("checkpoint_dir", "accepted", _JOB_SERVICE),
    Flag("keep_checkpoint_max", "count", 0, "accepted", _JOB_SERVICE),
    _text("checkpoint_dir_for_init", "accepted", _JOB_SERVICE),
    Flag("log_loss_steps", "count", 100, "accepted", _JOB_SERVICE),
    Flag("grads_to_wait", "count", 1, "accepted", _PARAMETER_SERVER),
    Flag("use_async", "switch", False, "accepted", _PARAMETER_SERVER),
    Flag("lr_staleness_modulation", "switch", False, "accepted", _PARAMETER_SERVER),
    Flag("sync_version_tolerance", "count", 0, "accepted", _PARAMETER_SERVER),
    Flag("get_model_steps", "count", 1, "accepted", _PARAMETER_SERVER),
)

_CHIEF: Final = "AllreduceStrategy uses no chief and no evaluator"

_LATE: Final = tuple(
    flag._replace(is_late=True)
    for flag in (
        _text("ps_image", "accepted", _PARAMETER_SERVER),
        _text("chief_resource_request", "accepted", _CHIEF, "cpu=1,memory=4096Mi"),
        _text("chief_resource_limit", "accepted", _CHIEF),
        _text("chief_pod_priority", "accepted", _CHIEF),
        _text("evaluator_resource_request", "accepted", _CHIEF, "cpu=1,memory=4096Mi"),
        _text("evaluator_resource_limit", "accepted", _CHIEF),
        _text("evaluator_pod_priority", "accepted", _CHIEF),
        Flag("num_evaluators", "count", 0, "accepted", _CHIEF),
        Flag("ps_is_critical", "switch", True, "accepted", _PARAMETER_SERVER),
        _text("critical_worker_index", "accepted", "no worker is critical: each may join and leave", "default"),
        Flag("ps_relaunch_max_num", "count", 1, "accepted", _PARAMETER_SERVER),
        _text("launch_worker_after_ps_running", "accepted", _PARAMETER_SERVER, "default"),
        Flag("enable_automate_memory", "switch", True, "accepted", "set a memory limit with --worker_resource_limit"),
    )
)

_SERVICE: Final = Flag(
    "need_elasticdl_job_service", "switch", False, "refused", "Legato does not run programs of the Keras job service"
)


def _require(flags: tuple[Flag, ...], *names: str) -> tuple[Flag, ...]:
    return tuple(flag._replace(is_required=True) if flag.name in names else flag for flag in flags)


FLAGS: Final[dict[str, tuple[Flag, ...]]] = {
    "train": (*_COMMON, _SERVICE, *_LATE),
    "evaluate": _require((*_COMMON, *_LATE), "validation_data", "checkpoint_dir_for_init"),
    "predict": (
        *_require((*_COMMON, *_LATE), "checkpoint_dir_for_init"),
        Flag("prediction_data", "text", "", "accepted", _JOB_SERVICE, is_required=True),
        _text("prediction_outputs_processor", "accepted", _JOB_SERVICE, "PredictionOutputsProcessor"),
    ),
    "zoo init": (
        _text("base_image", "used", "base image; it must have Python 3.11 or later", "python:3.11"),
        _text("extra_pypi_index", "used", "URL of a second package index"),
        _text("cluster_spec", "used", "a file that is copied into the image"),
        _text("local_pkg_dir", "used", "a folder whose packages are installed in the image"),
        _text("model_zoo", "used", "the folder with the programs", "."),
    ),
    "zoo build": (Flag("image", "text", None, "used", "name of the image", is_required=True),),
    "zoo push": (),
    "pods": (
        _text("job_name", "used", "list only this job"),
        Flag("all", "switch", False, "used", "also list jobs that have ended"),
    ),
}
"""The flags of each command. The command `pods` exists only in Legato."""

POSITIONAL: Final[dict[str, str]] = {"zoo build": "path", "zoo push": "image"}
"""The name of a command's positional argument."""
