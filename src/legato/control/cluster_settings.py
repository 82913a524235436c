"""Settings of clusters that give machines to the pool: a section of the settings file each. Decides nothing."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from legato.clusters.slurm_pool import read_time

MIN_TIME_S: Final = 600.0
_OWN_OPTIONS: Final = {
    "account": "the setting account",
    "gpus": "the setting gpus",
    "gpus-per-node": "the setting gpus",
    "gres": "the setting gres",
    "partition": "the setting partition",
    "qos": "the setting qos",
    "time": "the setting time",
    "cpus-per-task": "the setting cpus",
}
_FIXED_OPTIONS: Final = frozenset(
    (
        "array",
        "chdir",
        "cluster-constraint",
        "clusters",
        "dependency",
        "deadline",
        "error",
        "export",
        "export-file",
        "get-user-env",
        "gid",
        "help",
        "hold",
        "ignore-pbs",
        "input",
        "job-name",
        "kill-on-invalid-dep",
        "no-kill",
        "no-requeue",
        "nodes",
        "ntasks",
        "ntasks-per-core",
        "ntasks-per-gpu",
        "ntasks-per-node",
        "ntasks-per-socket",
        "open-mode",
        "output",
        "parsable",
        "quiet",
        "requeue",
        "signal",
        "test-only",
        "time-min",
        "uid",
        "usage",
        "verbose",
        "version",
        "wait",
        "wait-all-nodes",
        "wrap",
    )
)
_QUANTITY: Final = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?(m|k|M|G|T|Ki|Mi|Gi|Ti)?")
_OPTION: Final = re.compile(r"--([a-z][a-z0-9-]*)(?:=[^\x00-\x1f]*)?")


def split_list(text: str) -> tuple[str, ...]:
    """Read a list from one text, as the environment gives it."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def check_network(value: str | None) -> str | None:
    """Return a network as it is. Raises ValueError if it is none."""
    if value is not None:
        try:
            ipaddress.ip_network(value, strict=False)
        except ValueError:
            raise ValueError("write it as 10.0.0.0/24") from None
    return value


def _split(value: Any) -> Any:
    return split_list(value) if isinstance(value, str) else value


class ClusterSettings(BaseModel):
    """What the settings of all clusters have."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    min_agents: int = Field(default=0, ge=0, le=1000, description="machines that the pool keeps without any job")
    max_agents: int = Field(
        ge=1,
        le=1000,
        description="maximum number of machines. While one that reaches its time limit is replaced, both exist for "
        "some minutes",
    )
    max_waiting: int = Field(
        default=8,
        ge=1,
        le=1000,
        description="maximum number of machines that wait in the queue of the cluster; with `run_jobs_as` submitter of "
        "each user",
    )
    idle_s: float = Field(
        default=300,
        ge=10,
        description="seconds without a job after which a machine that is not needed is given back. 300: the next job "
        "of a user often comes within minutes",
    )
    url: str | None = Field(
        default=None,
        description="URL at which the machines reach the server. None: `https://` or `http://`, the first name of "
        "`allowed_hosts` that is not this machine's own, and the port",
    )
    network: str | None = Field(
        default=None,
        description="network in which the machines reach one another, such as `10.1.0.0/16`. None: that of the way to "
        "the server",
    )

    @model_validator(mode="after")
    def _are_bounds(self) -> ClusterSettings:
        if self.min_agents > self.max_agents:
            raise ValueError("min_agents is above max_agents; lower it or raise the other")
        return self

    @field_validator("url")
    @classmethod
    def _is_url(cls, value: str | None) -> str | None:
        if value is not None and (urlsplit(value).scheme not in ("http", "https") or not urlsplit(value).hostname):
            raise ValueError("write it as https://HOST:PORT")
        return None if value is None else value.rstrip("/")

    _is_network = field_validator("network")(check_network)


class SlurmSettings(ClusterSettings):
    """The section ``[slurm]``."""

    time: str = Field(
        description="time limit of each pilot job, as `sbatch --time` takes it, of 10 minutes or more, such as "
        "`8:00:00`. A pilot that reaches it is replaced before"
    )
    max_agents_per_user: int | None = Field(
        default=None,
        ge=1,
        le=1000,
        description="with `run_jobs_as` submitter: maximum number of machines of each user. None: `max_agents`, the "
        "maximum of all users together",
    )
    partition: str | None = Field(default=None, description="partition. None: the default one of Slurm")
    account: str | None = Field(
        default=None,
        description="account. None or empty: the default one of the system user as whom machines run, which is the "
        "server's, or with `run_jobs_as` submitter that of the job's owner",
    )
    qos: str | None = Field(default=None, description="quality of service. None: the default one of the account")
    gpus: int | None = Field(
        default=None, ge=1, le=64, description="GPUs of each pilot, one per slot. None: see `gres`; without both, CPUs"
    )
    gres: str | None = Field(
        default=None, description="instead of `gpus`: resources as `sbatch --gres` takes them, such as `gpu:a100:4`"
    )
    cpus: int | None = Field(
        default=None, ge=1, le=4096, description="CPU cores of each pilot. None: as many as Slurm gives by default"
    )
    slots: int = Field(default=1, ge=1, le=1024, description="slots of each pilot without GPUs")
    options: Annotated[tuple[str, ...], BeforeValidator(_split)] = Field(
        default=(), description='further options of sbatch, such as `["--constraint=icelake", "--mem=64G"]`'
    )
    setup: str = Field(
        default="",
        description="lines of the shell that each pilot runs first, such as `module load cuda`. They see no "
        "variables of the server",
    )
    python: Path | None = Field(
        default=None,
        description="Python with Legato on the machines, an absolute path. None: the path of the server's own",
    )
    folder: Path = Field(
        default=Path("/tmp"),  # noqa: S108 -- the pilot makes a folder in it, which must belong to its user
        description="folder of the machines' own disks for files of jobs, an absolute path",
    )

    @property
    def num_slots(self) -> int:
        """Slots of each pilot."""
        return self.num_gpus or self.slots

    @property
    def num_gpus(self) -> int:
        """GPUs of each pilot."""
        if self.gpus is not None:
            return self.gpus
        return sum(int(found) for found in re.findall(r"(?:^|,)gpu(?::[^:,]+)?:(\d+)", self.gres or ""))

    @property
    def time_s(self) -> float:
        """The setting ``time`` in seconds."""
        found = read_time(self.time)
        assert found is not None
        return found

    @field_validator("time", mode="before")
    @classmethod
    def _is_time(cls, value: Any) -> Any:
        text = str(value) if isinstance(value, int) else value
        found = read_time(text) if isinstance(text, str) else None
        if found is None or found < MIN_TIME_S:
            raise ValueError("write minutes, HOURS:MINUTES:SECONDS or DAYS-HOURS, and at least 10 minutes")
        return text

    @field_validator("account")
    @classmethod
    def _is_account(cls, value: str | None) -> str | None:
        return value or None

    @field_validator("partition", "account", "qos", "gres")
    @classmethod
    def _is_word(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[A-Za-z0-9_.,:=@+-]{1,200}", value):
            raise ValueError("write a name of Slurm, without spaces")
        return value

    @field_validator("gres")
    @classmethod
    def _has_gpus(cls, value: str | None) -> str | None:
        if value is not None and not re.search(r"(?:^|,)gpu(?::[^:,]+)?:[1-9]", value):
            raise ValueError("name the number of GPUs, such as gpu:4 or gpu:a100:4; other resources belong to options")
        return value

    @field_validator("python", "folder")
    @classmethod
    def _is_absolute(cls, value: Path | None) -> Path | None:
        if value is not None and not value.is_absolute():
            raise ValueError("write an absolute path")
        return value

    @field_validator("options")
    @classmethod
    def _are_options(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for option in value:
            found = _OPTION.fullmatch(option)
            if found is None:
                raise ValueError(f"'{option}' is no option: write each as --NAME or --NAME=VALUE")
            # sbatch takes the beginning of a name for the name.
            for own, where in _OWN_OPTIONS.items():
                if own.startswith(found[1]):
                    raise ValueError(f"'{option}' has a setting of its own: use {where}")
            fixed = next((name for name in sorted(_FIXED_OPTIONS) if name.startswith(found[1])), None)
            if fixed is not None:
                raise ValueError(f"'{option}' cannot be given: Legato itself decides on --{fixed} of its pilots")
        return value

    @model_validator(mode="after")
    def _is_part_of_all(self) -> SlurmSettings:
        each, most = self.max_agents_per_user, self.max_agents
        if each is not None and each > most:
            raise ValueError(
                f"max_agents_per_user ({each}) is above max_agents ({most}), the maximum of all users together; lower "
                "it or raise the other"
            )
        return self

    @model_validator(mode="after")
    def _are_resources(self) -> SlurmSettings:
        if self.gpus is not None and self.gres is not None:
            raise ValueError("gpus and gres exclude each other; leave one of them out")
        if "slots" in self.model_fields_set and self.num_gpus:
            raise ValueError("slots is for pilots without GPUs: with GPUs there is one slot for each")
        return self


class KubernetesSettings(ClusterSettings):
    """The section ``[kubernetes]``."""

    namespace: str = Field(description="namespace of the pods; the server's service account needs its role in it")
    image: str | None = Field(
        default=None, description="image of the agents, the same Legato as the server's. None: see `pod_template`"
    )
    gpus: int | None = Field(default=None, ge=1, le=64, description="GPUs of each pod, one per slot. None: CPU slots")
    gpu_resource: str = Field(
        default="nvidia.com/gpu", description="name of the GPUs as a resource of Kubernetes, such as `amd.com/gpu`"
    )
    slots: int = Field(default=1, ge=1, le=1024, description="slots of each pod without GPUs")
    cpu: str | None = Field(
        default=None, description="cores that each pod requests, such as `4`. None: the default of the namespace"
    )
    memory: str | None = Field(
        default=None,
        description="memory that each pod requests, and may use at most, such as `32Gi`. `/dev/shm` counts too. None: "
        "the default of the namespace",
    )
    pod_template: Path | None = Field(
        default=None,
        description="YAML file with a pod that Legato merges into its own: labels, scheduler, priority, tolerations, "
        "volumes ([how](kubernetes.md#your-pod-template)). None: nothing is added",
    )
    kubeconfig: Path | None = Field(
        default=None, description="file with the way to the cluster. None: that of the pod in which the server runs"
    )
    context: str | None = Field(default=None, description="context of `kubeconfig`. None: its current one")

    @property
    def num_slots(self) -> int:
        """Slots of each pod."""
        return self.gpus or self.slots

    @field_validator("cpu", "memory", mode="before")
    @classmethod
    def _is_quantity(cls, value: Any) -> Any:
        text = str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
        if isinstance(text, str) and not _QUANTITY.fullmatch(text):
            raise ValueError("write an amount of Kubernetes, such as 4, 500m or 32Gi")
        return text

    @model_validator(mode="after")
    def _are_pods(self) -> KubernetesSettings:
        if "slots" in self.model_fields_set and self.gpus:
            raise ValueError("slots is for pods without GPUs: with GPUs there is one slot for each")
        if self.context is not None and self.kubeconfig is None:
            raise ValueError("context names a part of kubeconfig; set kubeconfig too")
        return self
