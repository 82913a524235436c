"""All settings of the platform in one typed object, read from a file and the environment. Decides nothing.

A flag wins over the environment, the environment over the file, the file over the default. Each field says what it
means, in which unit, and why its default is what it is; `docs/settings.md` is made of these texts:
``python -m legato.control.settings_page docs/settings.md``.
"""

from __future__ import annotations

import contextlib
import contextvars
import difflib
import os
import re
import tomllib
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_origin

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from legato.control.cluster_settings import (
    ClusterSettings,
    KubernetesSettings,
    SlurmSettings,
    check_network,
    split_list,
)
from legato.core.errors import SettingsError
from legato.core.invalid_values import describe_value
from legato.core.limits import MIN_MEMORY_BYTES, Limits
from legato.core.spec import MIN_LOG_BYTES
from legato.policy.rules import Rules

PREFIX: Final = "LEGATO_"
FILE_NAME: Final = "legato.toml"

_RANGE: Final = re.compile(r"([0-9]{1,10})-([0-9]{1,10})")
_MAX_PORT: Final = 65535
_MAX_UID: Final = 2**32 - 2  # the two highest numbers are reserved: they mean "no user"
_RULES: Final = Rules()  # the policy's own defaults

_file: contextvars.ContextVar[Path | None] = contextvars.ContextVar("_file", default=None)


class Settings(BaseSettings):
    """The settings of a platform. Create it with `read_settings`."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True, validate_default=True)

    # ------------------------------------------------------------ where things are

    home: Path = Field(
        default=Path("~/.local/share/legato"),
        description="directory with all files of the platform: jobs, uploads, the SQLite database. `legato run` "
        "uses the same directory, so both see the same jobs",
    )
    database_url: str | None = Field(
        default=None,
        description="database: `postgresql://USER@HOST/NAME` or `sqlite:///FILE`. None: the SQLite file `legato.db`"
        " in `home`, which needs no other service. Several servers need PostgreSQL",
    )

    # ------------------------------------------------------------ connections and requests

    host: str = Field(
        default="127.0.0.1",
        description="address to listen on. Default: only this machine can connect. For any other address, use TLS "
        "(`tls`), or put a proxy with TLS in front of it",
    )
    port: int = Field(default=8765, ge=0, le=65535, description="port to listen on. 0: any free port")
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=("localhost", "127.0.0.1", "[::1]"),
        description="host names by which clients may address the server, besides `localhost` and its addresses. "
        "Requests for other names are refused, so that a foreign web page cannot reach the server under its own host "
        "name (DNS rebinding)",
    )
    trusted_proxies: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="addresses of proxies in front of the server. Only from these the server accepts `X-Forwarded-"
        "For` (the client's address) and `X-Forwarded-Proto` (whether the client used TLS)",
    )
    tls: Literal["off", "own"] = Field(
        default="off",
        description="own: the server speaks HTTPS, with a certificate of its own authority, which it makes once and "
        "keeps in `home`. Machines and users verify it by a fingerprint. off: plain HTTP, unless `tls_certificate` "
        "is set",
    )
    tls_certificate: Path | None = Field(
        default=None,
        description="file with a certificate for the server's public name and those of its issuers (PEM), from a "
        "public authority or that of a company: the server speaks HTTPS with it. It is read again when it changes. "
        "None: see `tls`",
    )
    tls_key: Path | None = Field(
        default=None, description="file with the key of `tls_certificate` (PEM, without a password). None: see `tls`"
    )
    allow_plain_agents: bool = Field(
        default=False,
        description="let machines of the pool reach the server without TLS. Everyone in their network can then read "
        "the secrets of jobs, and control them. False: refused, except on the server's own machine",
    )
    requests_per_s: float = Field(
        default=50,
        gt=0,
        description="requests per second of one user, in the long run. 50: far more than a person or a script needs",
    )
    requests_burst: int = Field(
        default=200, ge=1, description="requests of one user at once, before `requests_per_s` applies"
    )
    max_streams: int = Field(
        default=600,
        ge=1,
        description="streams of events and logs that one user may follow at once. 600: the console's page of a job "
        "follows two or three, a program that watches all jobs of its user some hundreds; each stream "
        "costs a connection and a little memory",
    )
    logins_per_minute: float = Field(
        default=10,
        gt=0,
        description="failed log-in attempts per minute of one address for one account. An account may have three "
        "times as many from all addresses, an address ten times as many for all accounts. A device from"
        " which a user has logged in before has a separate limit. 10: a person makes fewer mistakes",
    )

    # ------------------------------------------------------------ limits for unauthenticated clients

    max_head_bytes: int = Field(
        default=2**16,
        ge=1024,
        description="maximum bytes of the first line and the header fields of a request. 64 KiB: enough for many"
        " cookies and a long query",
    )
    max_head_fields: int = Field(
        default=100,
        ge=10,
        description="maximum number of header fields of a request. 100: browsers and proxies send about thirty",
    )
    head_limit_s: float = Field(
        default=20,
        gt=0,
        description="seconds within which the head of a request must arrive; then the server closes the connection."
        " 20: a slow connection needs about one",
    )
    body_limit_s: float = Field(
        default=30,
        gt=0,
        description="seconds within which the body of a request must arrive. A longer body, such as an upload, must"
        " arrive at 500 bytes per second or faster. 30: a slow connection needs a few",
    )
    max_connections: int = Field(
        default=10_000,
        ge=10,
        description="maximum number of connections; at most three quarters of the open files that the system "
        "allows. Beyond it, the server closes the connection that has waited longest for a request",
    )
    max_connections_of_address: int = Field(
        default=2_000,
        ge=10,
        description="maximum number of connections of one address; it does not apply to `trusted_proxies`. 2000: "
        "three users with all their streams behind one router",
    )
    max_requests_of_address: int = Field(
        default=200,
        ge=1,
        description="maximum number of unauthenticated requests of one address at once. 200: a proxy with many "
        "users; the server authenticates each request within milliseconds",
    )
    max_requests_of_user: int = Field(
        default=100,
        ge=1,
        description="maximum number of requests of one user that are being answered at once. Streams have their own"
        " limit, `max_streams`. 100: a page sends ten at once",
    )

    # ------------------------------------------------------------ as whom jobs run

    run_jobs_as: Literal["server", "submitter", "pool"] = Field(
        default="server",
        description="system user that runs the processes of jobs. server: the server's user, so a user who may "
        "submit a job can do everything that the server can; submitter: the system user with the name "
        "of the job's owner, or the one named in `job_users`; pool: Legato assigns each user a number "
        "of `pool_uids`, and no system user has to be created. submitter and pool need Linux, and a "
        "server that runs as root or has the capabilities SETUID, SETGID, KILL, CHOWN and DAC_OVERRIDE",
    )
    allow_jobs_as_server: bool = Field(
        default=False,
        description="allow a server that other machines can reach to run jobs as its own system user (`run_jobs_as`"
        " server). false: such a server refuses to start, because each user who may submit a job would "
        "control the server",
    )
    job_users: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="with `run_jobs_as` submitter: `USER=SYSTEMUSER` for each user of the platform whose system "
        "user has a different name",
    )
    interpreters: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="`NAME=PATH` for each Python environment that jobs may name with `python`: PATH is a Python "
        "executable, or the folder of a venv or conda environment. `wmla` and `elasticdl` jobs name them by "
        "`--conda-env-name`, `--msd-image-name` or `--worker_image`. Jobs may also give a path themselves",
    )
    pool_uids: str = Field(
        default="2000000000-2000065535",
        description="with `run_jobs_as` pool: range of user and group numbers for jobs. Legato never assigns a "
        "number to a second user. Linux distributions leave the default range free; in a container only"
        " smaller numbers may exist (see /proc/self/uid_map)",
    )
    pool_groups: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="with `run_jobs_as` pool: system groups of all jobs, for data or devices that a group may use, "
        "such as `render`",
    )

    # ------------------------------------------------------------ messages to other servers

    public_url: str | None = Field(
        default=None,
        description="URL under which users reach the server, such as `https://legato.example.org`, for links in "
        "messages of [webhooks](webhooks.md). None: made of `allowed_hosts` and `port`",
    )
    webhook_networks: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="internal networks that [webhooks](webhooks.md) may reach, such as `10.1.0.0/16`. Users choose the "
        "URLs, so by default the server calls public addresses only",
    )

    # ------------------------------------------------------------ who is used to something else

    compat: Annotated[tuple[Literal["wmla", "elasticdl"], ...], NoDecode] = Field(
        default=("wmla", "elasticdl"),
        description="interfaces of other systems that the server provides as well. wmla: the REST interface of IBM "
        "Watson Machine Learning Accelerator and its command; elasticdl: jobs of the command elasticdl."
        " They grant no additional rights. none: no others",
    )
    wmla_data_root: Path | None = Field(
        default=None,
        description="directory with data: a relative data path of a job or an experiment begins here. For `wmla` jobs, "
        "`DATA_DIR` is this directory followed by the `data_path` of `--cs-datastore-meta`. None: `data` in `home`",
    )

    # ------------------------------------------------------------ the log

    log_level: Literal["debug", "info", "warning"] = Field(
        default="info", description="lowest level of log lines that are written. info: changes, and all failures"
    )
    log_format: Literal["auto", "text", "json"] = Field(
        default="auto", description="format of the log. auto: text on a terminal, else one JSON object per line"
    )

    worker_memory_bytes: int | None = Field(
        default=None,
        ge=MIN_MEMORY_BYTES,
        description="memory limit in bytes of each worker with all its child processes, for jobs that set no limit."
        " The kernel kills only the worker that exceeds it. Needs control groups (cgroups) that the "
        "server may write. None: no limit",
    )
    worker_cpus: float | None = Field(
        default=None,
        gt=0,
        description="CPU limit in cores of each worker, for jobs that set no limit. Needs control groups. None: no "
        "limit; workers share all cores",
    )
    job_processes: int | None = Field(
        default=None,
        ge=16,
        description="maximum number of processes and threads of one job. Needs control groups. None: no limit",
    )
    log_max_bytes: int = Field(
        default=2**30,
        ge=MIN_LOG_BYTES,
        description="maximum bytes of each log of a job: one log per worker, and one of the driver. Legato drops "
        "the oldest part of a longer log and writes a line that says so. 1 GiB: weeks of ordinary "
        "output",
    )

    # ------------------------------------------------------------ tokens

    token_days: float = Field(
        default=90, gt=0, le=366, description="default lifetime of a new token, in days. 90: a quarter of a year"
    )
    max_token_days: float = Field(
        default=365,
        gt=0,
        le=366,
        description="maximum lifetime of a token, in days. 365: each token expires within a year",
    )
    login_hours: float = Field(
        default=12,
        gt=0,
        le=24 * 366,
        description="hours until a login with a password expires. 12: longer than a working day",
    )
    local_login: bool = Field(
        default=True,
        description="log the system user who runs the server in as 'admin' on its machine, by a file in `home` that"
        " only this system user can read. A process that can read this file could also read the "
        "database",
    )

    # ------------------------------------------------------------ the pool and the policy

    slots: int | None = Field(
        default=None,
        ge=0,
        description="number of slots of this machine. None: one per GPU, or one per CPU core if there is no GPU. A "
        "number: that many of the GPUs, or that many CPU slots. 0: jobs run on other machines only",
    )
    slurm: SlurmSettings | None = Field(
        default=None,
        description="the section `[slurm]` of the file: Slurm gives machines to the pool as its jobs need them "
        "([how](slurm.md#slurm-as-a-pool)). In the environment, a JSON object. None: no machines of Slurm",
    )
    kubernetes: KubernetesSettings | None = Field(
        default=None,
        description="the section `[kubernetes]` of the file: Kubernetes gives machines to the pool as its jobs need "
        "them ([how](kubernetes.md)). In the environment, a JSON object. None: no machines of Kubernetes",
    )
    network: str | None = Field(
        default=None,
        description="network in which the machines of the pool reach this one, such as `10.0.0.0/24`. None: that of "
        "`host`, or the one through which this machine reaches most of the others",
    )
    driver_ports: str | None = Field(
        default=None,
        description="ports on which drivers of jobs listen for the agents of other machines, as FIRST-LAST: one for "
        "each running job. A firewall must let the machines of the pool reach them. None: any free port",
    )
    policy: Literal["fair", "priority", "fifo", "throughput"] = Field(
        default=_RULES.policy.value,
        description="how the pool is divided. fair: by weight; priority: higher first; fifo: in order of submission; "
        "throughput: by weight, and among the jobs of a user by measured speed",
    )
    fair_by: Literal["user", "job"] = Field(
        default=_RULES.fair_by.value,
        description="what shares the slots of a queue under the policy `fair`. user: the users of the queue, then the "
        "jobs of each, so that a user with many jobs gets no more than one with one job, and priorities weigh the jobs "
        "of one user. job: all jobs of the queue by priority, so that a user with more jobs gets more",
    )
    usage_half_life_s: float | None = Field(
        default=_RULES.usage_half_life_s,
        ge=3600,
        le=30 * 24 * 3600,
        description="seconds after which the past use of slots counts half, when users of a queue share (`fair_by` is "
        "user). Who has used an equal share or more lately has half the weight, from two equal shares on a quarter, "
        "never less. None: past use does not count. As in Slurm and LSF, an admin switches it on; for Slurm's default "
        "of 7 days write 604800; at least 3600. `legato shares --over 7d` shows the use in any case",
    )
    stability_s: float = Field(
        default=_RULES.stability_s,
        ge=0,
        description="seconds that a larger or fairer share must last before a job grows, or shrinks for it. 3: when"
        " a job ends and the next one takes its place, the other jobs are not resized twice",
    )
    cooldown_factor: float = Field(
        default=_RULES.cooldown_factor,
        ge=0,
        description="minimum time between two resizes of a job for growth or fairness, as a multiple of the "
        "measured time of a resize. 20: resizes cost the job at most 5 % of its time",
    )
    gather_s: float = Field(
        default=_RULES.gather_s,
        ge=0,
        description="seconds that a job waits, while slots are being freed, for all of its share before it takes "
        "fewer. 10: a worker that has to leave is gone or killed within that time",
    )
    reserve_after_s: float | None = Field(
        default=_RULES.reserve_after_s,
        ge=0,
        description="seconds; behind a job that has waited this long and whose minimum does not fit, no other job "
        "is started. None: other jobs are started, and pause for it later, because a pause costs only "
        "seconds",
    )
    ageing_s: float | None = Field(
        default=_RULES.ageing_s,
        gt=0,
        description="seconds of waiting that count as much as 5000 points of priority, when the policy is fair and "
        "not all minimums fit. None: priority decides, regardless of the waiting time",
    )
    fair_finish_s: float | None = Field(
        default=_RULES.fair_finish_s,
        gt=0,
        description="seconds; a job that has been below its fair share for longer than this comes first, when the "
        "policy is fair and not all minimums fit, so that jobs take turns. None: the time below the fair"
        " share does not count. For a full pool try 60",
    )
    long_job_slot_s: float | None = Field(
        default=_RULES.long_job_slot_s,
        gt=0,
        description="seconds of slots (3600 per GPU and hour) after which a job is long, when the policy is fair or "
        "throughput. Long jobs that share are served one after the other: each weighs an eighth of the one before it. "
        "Few jobs then take very long; later long jobs wait for earlier ones. None: long jobs share as others do",
    )
    measured_speed_s: float | None = Field(
        default=_RULES.measured_speed_s,
        gt=0,
        le=120,
        description="seconds of training with a number of workers after which its measured speed counts: a job gets no "
        "slots with which it was slower than with fewer. None: measured speeds do not count. 60: long enough to tell a "
        "slow machine from a slow minute",
    )
    default_priority: int = Field(
        default=5000,
        ge=1,
        le=10000,
        description="priority of a job that sets none, 1 to 10000; a higher one gets a larger share. 5000: weight 1",
    )

    # ------------------------------------------------------------ the control loop

    loop_interval_s: float = Field(
        default=1,
        gt=0,
        description="maximum seconds between rounds of the control loop; more after a long one. 1: a round is cheap",
    )
    lease_s: float = Field(
        default=10,
        gt=0,
        description="seconds without a sign of life after which another server takes over the control loop. 10: "
        "longer than pauses of a healthy machine; jobs continue to train in between",
    )

    # ------------------------------------------------------------ uploads

    upload_max_bytes: int = Field(
        default=256 * 2**20,
        ge=1,
        description="maximum bytes of one upload of code, packed. 256 MiB: enough for code; leave out data with "
        "`.legatoignore`",
    )
    upload_max_unpacked_bytes: int = Field(
        default=2**30, ge=1, description="maximum bytes of one upload, unpacked. 1 GiB: see `upload_max_ratio`"
    )
    upload_max_file_bytes: int = Field(
        default=128 * 2**20, ge=1, description="maximum bytes of one file in an upload. 128 MiB: larger files are data"
    )
    upload_max_files: int = Field(
        default=20_000,
        ge=1,
        description="maximum number of files and folders in one upload. 20000: enough for a large source tree",
    )
    upload_max_depth: int = Field(
        default=32, ge=1, description="maximum nesting of folders in an upload. 32: no source tree is deeper"
    )
    upload_max_ratio: float = Field(
        default=100,
        ge=1,
        description="maximum unpacked bytes per packed byte. 100: text has about 10, an archive bomb about 1000",
    )

    upload_quota_bytes: int | None = Field(
        default=10 * 2**30,
        ge=1,
        description="maximum bytes of all uploads of one user, packed; it does not apply to admins. 10 GiB: "
        "thousands of source trees. None: limited only by the disk",
    )

    # ------------------------------------------------------------ bounds of each user

    max_queued_jobs: int | None = Field(
        default=10_000,
        ge=1,
        description="maximum number of waiting jobs of one user; it does not apply to admins. 10000: a large sweep;"
        " more jobs make each scheduling round longer for all users. None: no limit",
    )

    max_projects: int | None = Field(
        default=200,
        ge=1,
        description="maximum number of projects that one user may own; it does not apply to admins. 200: years of "
        "work. None: no limit",
    )
    max_in_project: int = Field(
        default=1_000,
        ge=1,
        le=10_000,
        description="maximum number of training definitions, and of experiments, in one project. 1000: the console "
        "shows them in one list",
    )

    # ------------------------------------------------------------ what is kept

    keep_jobs_days: float | None = Field(
        default=90,
        gt=0,
        description="days that an ended job, its events, its allocations and its directory are kept. None: forever",
    )
    keep_uploads_days: float | None = Field(
        default=30, gt=0, description="days that uploaded code is kept after its last use. None: forever"
    )
    keep_keys_hours: float = Field(
        default=24,
        gt=0,
        description="hours that an idempotency key is kept, and the token of a login after its end. 24: clients "
        "repeat a request for some minutes only",
    )
    request_limit_s: float = Field(
        default=60,
        gt=0,
        description="seconds after which a request that has a key but no answer counts as dead and may be repeated."
        " 60: the server answers within seconds or has crashed",
    )

    @model_validator(mode="before")
    @classmethod
    def _read_texts(cls, given: dict[str, Any]) -> dict[str, Any]:
        # Spellings for values that TOML or the environment cannot express: none, and (environment only) a list.
        read = dict(given)
        for name, value in given.items():
            field = cls.model_fields.get(name)
            if field is None or not isinstance(value, str):
                continue
            if value.lower() == "none" and types.NoneType in get_args(field.annotation):
                read[name] = None
            elif get_origin(field.annotation) is tuple:
                read[name] = () if value.strip().lower() == "none" else split_list(value)
        return read

    @property
    def pool_range(self) -> range:
        """The numbers ``pool_uids``."""
        first, _, last = self.pool_uids.partition("-")
        return range(int(first), int(last) + 1)

    @property
    def system_users(self) -> dict[str, str]:
        """The setting ``job_users``: name of the platform user → name of the system user."""
        return dict(pair.split("=", 1) for pair in self.job_users)

    @property
    def python_paths(self) -> dict[str, str]:
        """The setting ``interpreters``: name → path."""
        return dict(pair.split("=", 1) for pair in self.interpreters)

    @field_validator("interpreters")
    @classmethod
    def _are_interpreters(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for pair in value:
            name, _, path = pair.partition("=")
            if not name or not Path(path).is_absolute():
                raise ValueError(f"'{pair}' is not NAME=PATH with an absolute path")
        return value

    @property
    def driver_port_range(self) -> tuple[int, int] | None:
        """The ports of ``driver_ports``: the first and the last."""
        if self.driver_ports is None:
            return None
        first, _, last = self.driver_ports.partition("-")
        return int(first), int(last)

    @field_validator("driver_ports")
    @classmethod
    def _are_ports(cls, value: str | None) -> str | None:
        found = _RANGE.fullmatch(value or "1-1")
        if found is None or not 0 < int(found[1]) <= int(found[2]) <= _MAX_PORT:
            raise ValueError("write FIRST-LAST, two numbers of ports, such as 42000-42999")
        return value

    _is_network = field_validator("network")(check_network)

    @field_validator("webhook_networks")
    @classmethod
    def _are_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for network in value:
            check_network(network)
        return value

    @field_validator("public_url")
    @classmethod
    def _is_url(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("https://", "http://")):
            raise ValueError("write it as https://legato.example.org")
        return None if value is None else value.rstrip("/")

    @field_validator("pool_uids")
    @classmethod
    def _is_range(cls, value: str) -> str:
        found = _RANGE.fullmatch(value)
        if found is None or not 0 < int(found[1]) <= int(found[2]) < _MAX_UID:
            raise ValueError("write FIRST-LAST, two numbers of users above 0, such as 2000000000-2000065535")
        return value

    @field_validator("job_users")
    @classmethod
    def _are_pairs(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for pair in value:
            if not all(pair.partition("=")):
                raise ValueError(f"'{pair}' is not USER=SYSTEMUSER")
        users = [pair.partition("=")[0] for pair in value]
        if twice := [user for user in users if users.count(user) > 1]:
            raise ValueError(f"it names '{twice[0]}' twice; each user has one system user")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> Settings:
        if self.loop_interval_s * 2 > self.lease_s:
            raise ValueError(
                f"lease_s={self.lease_s:g} is too short for a late round every {self.loop_interval_s:g} s; make it "
                "at least twice loop_interval_s"
            )
        if self.upload_max_file_bytes > self.upload_max_unpacked_bytes:
            raise ValueError("upload_max_file_bytes is above upload_max_unpacked_bytes; lower it or raise the other")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key belong together; set both or none")
        if self.tls == "own" and self.tls_certificate is not None:
            raise ValueError("tls=own and tls_certificate exclude each other; leave one of them out")
        self._check_clusters()
        if self.token_days > self.max_token_days:
            raise ValueError("token_days is above max_token_days; lower it or raise the other")
        return self

    @property
    def clusters(self) -> dict[str, ClusterSettings]:
        """The sections of clusters, by name."""
        sections: dict[str, ClusterSettings | None] = {"slurm": self.slurm, "kubernetes": self.kubernetes}
        return {name: found for name, found in sections.items() if found is not None}

    def _check_clusters(self) -> None:
        for name, found in self.clusters.items():
            self._check_users(name, found)
            if self.host in ("localhost", "::1") or self.host.startswith("127."):
                raise ValueError(
                    f"[{name}] needs a server that its machines reach: set host to 0.0.0.0, or to an address of this "
                    "machine in their network"
                )
            if not self.has_tls and not self.allow_plain_agents and not (found.url or "").startswith("https:"):
                raise ValueError(
                    f"[{name}] needs TLS, because machines get secrets of jobs: set tls=own, or, on a network that you "
                    "trust, allow_plain_agents=true"
                )
            if found.url is None and self.public_host is None:
                raise ValueError(
                    f"[{name}] needs a name of this server: add one that its machines know to allowed_hosts, or set "
                    f"url in [{name}]"
                )

    def _check_users(self, name: str, found: ClusterSettings) -> None:
        """Check as whom the machines of a cluster run."""
        if self.run_jobs_as == "submitter" and name == "slurm":
            if found.min_agents:
                raise ValueError(
                    "[slurm] cannot have min_agents with run_jobs_as=submitter: each machine belongs to the user for "
                    "whose jobs it was asked for; leave min_agents out"
                )
        elif self.run_jobs_as != "server":
            also = " or run_jobs_as=submitter" if name == "slurm" else ""
            raise ValueError(
                f"[{name}] needs run_jobs_as=server{also}: its machines do not know the users as whom jobs would run"
            )
        elif isinstance(found, SlurmSettings) and found.max_agents_per_user is not None:
            raise ValueError(
                "[slurm] cannot have max_agents_per_user with run_jobs_as=server: all users share its machines; set "
                "run_jobs_as=submitter, or leave it out"
            )

    @property
    def public_host(self) -> str | None:
        """The first name of ``allowed_hosts`` by which other machines can address the server; None: there is none."""
        for name in self.allowed_hosts:
            host = name.strip("[]")
            if host not in ("*", "localhost", "::1") and not host.startswith("127."):
                return name
        return None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # not read: one file is enough
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Order the sources: flags, environment, file."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, toml_file=_file.get())

    @property
    def home_path(self) -> Path:
        """The directory ``home``, absolute."""
        return self.home.expanduser().absolute()

    @property
    def has_tls(self) -> bool:
        """Whether the server speaks HTTPS."""
        return self.tls == "own" or self.tls_certificate is not None

    @property
    def tls_files(self) -> tuple[Path, Path] | None:
        """The files ``tls_certificate`` and ``tls_key``, absolute; None: not set."""
        if self.tls_certificate is None or self.tls_key is None:
            return None
        return self.tls_certificate.expanduser().absolute(), self.tls_key.expanduser().absolute()

    @property
    def limits(self) -> Limits:
        """The limits of jobs that set none."""
        return Limits(
            memory_bytes=self.worker_memory_bytes, num_cpus=self.worker_cpus, num_processes=self.job_processes
        )

    @property
    def wmla_data_path(self) -> Path:
        """The directory ``wmla_data_root``, absolute."""
        root = self.wmla_data_root
        return self.home_path / "data" if root is None else root.expanduser().absolute()

    @property
    def store_url(self) -> str:
        """The database, spelled out."""
        return self.database_url or f"sqlite:///{self.home_path / 'legato.db'}"


def read_settings(file: Path | None = None, flags: Mapping[str, Any] | None = None) -> Settings:
    """Read the settings.

    Args:
        file: an existing TOML file. None: ``legato.toml`` in the home directory, if there is one.
        flags: values from the command line; None: not given.

    Raises:
        SettingsError: a setting is unknown or unusable; the message names each of them.
    """
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    found = _find_file(file, given)
    try:
        with _reading(found):
            return Settings(**given)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(
            f"Cannot read the settings in {found}: it is not valid TOML: {error}. Correct that line."
        ) from None
    except ValidationError as error:
        raise SettingsError(_describe(error, found)) from None


def find_origins(file: Path | None = None, flags: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Say for each setting where its value comes from: ``flag``, ``environment``, the file's path, or ``default``."""
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    found = _find_file(file, given)
    origins = dict.fromkeys(Settings.model_fields, "default")
    if found is not None:
        origins |= dict.fromkeys(tomllib.loads(found.read_text()), str(found))
    origins |= dict.fromkeys(EnvSettingsSource(Settings)(), "environment")
    return origins | dict.fromkeys(given, "flag")


@contextlib.contextmanager
def _reading(file: Path | None) -> Iterator[None]:
    # pydantic-settings asks a class method for the sources, so the file of this call is passed in a context variable.
    token = _file.set(file)
    try:
        yield
    finally:
        _file.reset(token)


def _find_file(file: Path | None, flags: Mapping[str, Any]) -> Path | None:
    if file is not None:
        if not file.is_file():
            raise SettingsError(
                f"Cannot read the settings in {file}: there is no such file. Create it, or name another file."
            )
        return file
    home = flags.get("home") or os.environ.get(f"{PREFIX}HOME") or Settings.model_fields["home"].default
    found = Path(home).expanduser() / FILE_NAME
    return found if found.is_file() else None


def _list_names() -> list[str]:
    """Return the names of all settings, those of sections with a dot."""
    sections: dict[str, type[ClusterSettings]] = {"slurm": SlurmSettings, "kubernetes": KubernetesSettings}
    parts = [f"{section}.{name}" for section, fields in sections.items() for name in fields.model_fields]
    return [*Settings.model_fields, *parts]


def _describe(error: ValidationError, file: Path | None) -> str:
    told = []
    for problem in error.errors():
        section = "".join(f"{part}." for part in problem["loc"][:1] if len(problem["loc"]) > 1)
        name = f"{section}{problem['loc'][-1]}" if problem["loc"] else ""
        if problem["type"] == "extra_forbidden":
            near = difflib.get_close_matches(name, _list_names(), n=1)
            hint = f"Did you mean {near[0]}?" if near else "'legato config show' lists all."
            told.append(f"there is no setting {name}. {hint}")
        elif name:
            told.append(f"{describe_value(name, problem['msg'])} (got {problem['input']!r}).")
        else:
            told.append(f"{problem['msg'].removeprefix('Value error, ')}.")
    where = f" (file: {file})" if file else ""
    return f"Cannot use the settings{where}: " + " ".join(told)
