"""All settings of the platform, in one typed object. Reads a file and the environment; decides nothing.

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

from legato.core.errors import SettingsError
from legato.core.limits import MIN_MEMORY_BYTES, Limits
from legato.core.spec import MIN_LOG_BYTES
from legato.policy.rules import Rules

PREFIX: Final = "LEGATO_"
FILE_NAME: Final = "legato.toml"

_RANGE: Final = re.compile(r"([0-9]{1,10})-([0-9]{1,10})")
_MAX_UID: Final = 2**32 - 2  # the last two numbers mean that there is no user
_RULES: Final = Rules()  # one default of each rule, wherever it is set

_file: contextvars.ContextVar[Path | None] = contextvars.ContextVar("_file", default=None)


class Settings(BaseSettings):
    """What the operator of a platform may choose. Make one with `read_settings`."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True, validate_default=True)

    # ------------------------------------------------------------ where things are

    home: Path = Field(
        default=Path("~/.local/share/legato"),
        description="directory of everything the platform keeps: jobs, uploads, the embedded database. The same that "
        "`legato run` uses, so both see the same jobs",
    )
    database_url: str | None = Field(
        default=None,
        description="where the store is: `postgresql://USER@HOST/NAME` or `sqlite:///FILE`. None: the SQLite file "
        "`legato.db` in `home`, which needs no other service; several servers need PostgreSQL",
    )

    # ------------------------------------------------------------ the door

    host: str = Field(
        default="127.0.0.1",
        description="address to listen on. The default is reached from this machine only; open it behind TLS",
    )
    port: int = Field(default=8765, ge=0, le=65535, description="port to listen on. 0: any free one")
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=("localhost", "127.0.0.1", "[::1]"),
        description="names under which the server may be addressed; requests for others are refused, so that a "
        "foreign page cannot reach it by a name of its own (DNS rebinding)",
    )
    trusted_proxies: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="addresses of proxies before the server, which are believed when they say in `X-Forwarded-For` "
        "whose request it is, and in `X-Forwarded-Proto` that it came by TLS. None are, unless named: anybody can "
        "write that line",
    )
    requests_per_s: float = Field(
        default=50,
        gt=0,
        description="requests per second of one user, in the long run. 50: far more than a person or a script needs",
    )
    requests_burst: int = Field(
        default=200, ge=1, description="requests of one user at once, before `requests_per_s` holds"
    )
    max_streams: int = Field(
        default=600,
        ge=1,
        description="streams of events and logs that one user may follow at once. 600: a job's page has two or three, "
        "a program that watches all of its jobs some hundred; each costs a connection and a little memory",
    )
    logins_per_minute: float = Field(
        default=10,
        gt=0,
        description="attempts to log in that may fail per minute, of one address for one account; an account has three "
        "times as many from all addresses, an address ten times as many for all accounts. A device from which a user "
        "has logged in before has its own. 10: a person mistypes less often, a guesser fails",
    )

    # ------------------------------------------------------------ how much a stranger may use

    max_head_bytes: int = Field(
        default=2**16,
        ge=1024,
        description="bytes of the first line and the header fields of a request. 64 KiB: many cookies and a long query",
    )
    max_head_fields: int = Field(
        default=100, ge=10, description="header fields of a request. 100: browsers and proxies send some thirty"
    )
    head_limit_s: float = Field(
        default=20,
        gt=0,
        description="seconds for the head of a request to come whole; then its connection is closed. 20: a slow line "
        "needs one",
    )
    body_limit_s: float = Field(
        default=30,
        gt=0,
        description="seconds for the body of a request to come whole; one that takes longer, such as an upload, must "
        "bring 500 bytes per second. 30: a slow line needs a few",
    )
    max_connections: int = Field(
        default=10_000,
        ge=10,
        description="connections at once. At most three quarters of the open files that the system allows. Beyond it "
        "the one that has waited longest for a request is closed",
    )
    max_connections_of_address: int = Field(
        default=2_000,
        ge=10,
        description="connections of one address at once; those of `trusted_proxies` have no such bound. 2000: three "
        "users with all their streams behind one router",
    )
    max_requests_of_address: int = Field(
        default=200,
        ge=1,
        description="requests of one address at once, as long as it is not known whose they are. 200: a proxy with "
        "many users; each is known within milliseconds",
    )
    max_requests_of_user: int = Field(
        default=100,
        ge=1,
        description="requests of one user that are being answered at once; streams are counted by `max_streams`. 100: "
        "a page asks ten at once",
    )

    # ------------------------------------------------------------ as whom jobs run

    run_jobs_as: Literal["server", "submitter", "pool"] = Field(
        default="server",
        description="the user of the system as whom the processes of jobs run. server: as the server, so whoever may "
        "submit a job can do all that the server can; submitter: as the system user that has the name of the job's "
        "owner, or that `job_users` names; pool: each user of the platform gets a number of `pool_uids`, and no system "
        "user has to be made. submitter and pool need Linux, and a server that runs as root or has the capabilities "
        "SETUID, SETGID, KILL, CHOWN and DAC_OVERRIDE",
    )
    allow_jobs_as_server: bool = Field(
        default=False,
        description="let a server that other machines can reach run jobs as itself (`run_jobs_as` server). false: such "
        "a server does not start, because everybody who may submit a job would be its operator",
    )
    job_users: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="with `run_jobs_as` submitter: `USER=SYSTEMUSER` for each user of the platform whose system user "
        "has another name",
    )
    pool_uids: str = Field(
        default="2000000000-2000065535",
        description="with `run_jobs_as` pool: the first and the last number of the users and groups as which jobs run. "
        "A number is never given to a second user. The default is a range that Linux distributions leave free; a "
        "container may know only smaller numbers (see /proc/self/uid_map)",
    )
    pool_groups: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="with `run_jobs_as` pool: groups of the system in which all jobs are, for data or devices that a "
        "group may use, such as `render`",
    )

    # ------------------------------------------------------------ who is used to something else

    compat: Annotated[tuple[Literal["wmla", "elasticdl"], ...], NoDecode] = Field(
        default=("wmla", "elasticdl"),
        description="interfaces of other systems that are answered too. wmla: the REST of IBM Watson Machine Learning "
        "Accelerator and its command; elasticdl: jobs of the command elasticdl. They give nobody more rights than "
        "Legato's own. none: no others",
    )
    wmla_data_root: Path | None = Field(
        default=None,
        description="directory below which jobs of `wmla` find their data: the variable `DATA_DIR` is it with the "
        "`data_path` of `--cs-datastore-meta` behind. None: `data` in `home`",
    )

    # ------------------------------------------------------------ the log

    log_level: Literal["debug", "info", "warning"] = Field(
        default="info", description="lines that are less than this are left out. info: changes, and whatever fails"
    )
    log_format: Literal["auto", "text", "json"] = Field(
        default="auto", description="form of the log. auto: text on a terminal, else one JSON object per line"
    )

    worker_memory_bytes: int | None = Field(
        default=None,
        ge=MIN_MEMORY_BYTES,
        description="bytes of memory of each worker, with all that it starts, of jobs that ask for no other limit. The "
        "kernel ends a worker that uses more, and nothing else. Needs control groups (cgroups) that the server may "
        "write. None: no limit",
    )
    worker_cpus: float | None = Field(
        default=None, gt=0, description="CPU cores of each worker, likewise. None: no limit; workers share all cores"
    )
    job_processes: int | None = Field(
        default=None, ge=16, description="processes and threads of one job, likewise. None: no limit"
    )
    log_max_bytes: int = Field(
        default=2**30,
        ge=MIN_LOG_BYTES,
        description="bytes of each log of a job: of each worker, and of its driver. The oldest part of a longer one is "
        "dropped, and a line says so. 1 GiB: weeks of ordinary output",
    )

    # ------------------------------------------------------------ tokens

    token_days: float = Field(
        default=90, gt=0, le=366, description="days until a new token expires if nothing else is asked. 90: a quarter"
    )
    max_token_days: float = Field(
        default=365, gt=0, le=366, description="days that may be asked for at most. 365: each token ends within a year"
    )
    login_hours: float = Field(
        default=12,
        gt=0,
        le=24 * 366,
        description="hours until a login with a password ends. 12: longer than a day at work",
    )
    local_login: bool = Field(
        default=True,
        description="whether the system user who runs the server is logged in as 'admin' on its machine, by a file in "
        "`home` that this user alone can read. Whoever can read it could read the store too",
    )

    # ------------------------------------------------------------ the pool and the policy

    slots: int | None = Field(
        default=None,
        ge=1,
        description="slots of this machine. None: one per GPU, or one per CPU core where there is no GPU. With a "
        "number, that many of the GPUs, or as many CPU slots",
    )
    policy: Literal["fair", "priority", "fifo"] = Field(
        default=_RULES.policy.value,
        description="how the pool is divided. fair: by weight; priority: higher first; fifo: in order of submission",
    )
    stability_s: float = Field(
        default=_RULES.stability_s,
        ge=0,
        description="seconds for which a growth, or a shrink for mere fairness, must have been right before it is "
        "made. 3: a job that ends and the next one in its place do not resize the others twice, and nobody notices",
    )
    cooldown_factor: float = Field(
        default=_RULES.cooldown_factor,
        ge=0,
        description="a job is not resized again, for growth or mere fairness, within this many times its own measured "
        "time of a resize. 20: resizes then cost it at most 5 % of its time",
    )
    gather_s: float = Field(
        default=_RULES.gather_s,
        ge=0,
        description="seconds that a job waits, while slots are being freed, for all of its share before it takes "
        "fewer. 10: a worker that is told to leave is gone or killed within that time",
    )
    reserve_after_s: float | None = Field(
        default=_RULES.reserve_after_s,
        ge=0,
        description="seconds; behind a job that is this old and whose minimum does not fit nobody is started any more. "
        "None: they are, and pause for it, because a pause costs seconds",
    )
    ageing_s: float | None = Field(
        default=_RULES.ageing_s,
        gt=0,
        description="seconds of waiting that weigh as much as 5000 points of priority when the policy is fair and not "
        "all minimums fit. None: priority decides, however long somebody waits",
    )
    fair_finish_s: float | None = Field(
        default=_RULES.fair_finish_s,
        gt=0,
        description="seconds; who has had less than its share for longer goes before others when the policy is "
        "fair and not all minimums fit; jobs take turns then. None: it does not count. For a full pool try 60",
    )
    default_priority: int = Field(
        default=5000,
        ge=1,
        le=10000,
        description="priority of a job that asks for none, 1 to 10000; higher is more. 5000: weight 1",
    )

    # ------------------------------------------------------------ the control loop

    loop_interval_s: float = Field(
        default=1,
        gt=0,
        description="seconds between two rounds of the control loop when nothing wakes it. 1: a round is cheap",
    )
    lease_s: float = Field(
        default=10,
        gt=0,
        description="seconds that a control loop may be silent before another server takes over. 10: longer than "
        "pauses of a healthy machine; jobs train on meanwhile",
    )

    # ------------------------------------------------------------ uploads

    upload_max_bytes: int = Field(
        default=256 * 2**20,
        ge=1,
        description="bytes of one upload of code, packed. 256 MiB: code, not data; use `.legatoignore`",
    )
    upload_max_unpacked_bytes: int = Field(
        default=2**30, ge=1, description="bytes of one upload, unpacked. 1 GiB: see `upload_max_ratio`"
    )
    upload_max_file_bytes: int = Field(
        default=128 * 2**20, ge=1, description="bytes of one file in an upload. 128 MiB: larger ones are data"
    )
    upload_max_files: int = Field(
        default=20_000, ge=1, description="files and folders in one upload. 20000: a large source tree"
    )
    upload_max_depth: int = Field(
        default=32, ge=1, description="folders inside one another in an upload. 32: no source tree is deeper"
    )
    upload_max_ratio: float = Field(
        default=100, ge=1, description="bytes unpacked per byte packed. 100: text packs 10 times; bombs 1000 times"
    )

    upload_quota_bytes: int | None = Field(
        default=10 * 2**30,
        ge=1,
        description="bytes of all uploads of one user that are kept, packed; admins have no such bound. 10 GiB: "
        "thousands of source trees. None: as many as the disk takes",
    )

    # ------------------------------------------------------------ bounds of each user

    max_queued_jobs: int | None = Field(
        default=10_000,
        ge=1,
        description="jobs of one user that may wait in queues at once; admins have no such bound. 10000: a large "
        "sweep; more make each round longer for everybody. None: any number",
    )

    max_projects: int | None = Field(
        default=200,
        ge=1,
        description="projects that one user may own; admins have no such bound. 200: years of work. None: any number",
    )
    max_in_project: int = Field(
        default=1_000,
        ge=1,
        le=10_000,
        description="training definitions that one project may have, and as many experiments, whoever makes them. "
        "1000: they are shown in one list",
    )

    # ------------------------------------------------------------ what is kept

    keep_jobs_days: float | None = Field(
        default=90,
        gt=0,
        description="days that an ended job, its events and its allocations are kept. None: for ever. Its directory "
        "goes with it",
    )
    keep_uploads_days: float | None = Field(
        default=30, gt=0, description="days that uploaded code is kept after its last use. None: for ever"
    )
    keep_keys_hours: float = Field(
        default=24,
        gt=0,
        description="hours that an idempotency key is remembered, and the token of a login after its end. 24: clients "
        "repeat a request for minutes",
    )
    request_limit_s: float = Field(
        default=60,
        gt=0,
        description="seconds after which a request that has a key but no answer is taken for dead, and may be "
        "repeated. 60: the server answers within seconds or has crashed",
    )

    @model_validator(mode="before")
    @classmethod
    def _read_texts(cls, given: dict[str, Any]) -> dict[str, Any]:
        # What neither TOML nor the environment can say: none, and (the environment) a list.
        read = dict(given)
        for name, value in given.items():
            field = cls.model_fields.get(name)
            if field is None or not isinstance(value, str):
                continue
            if value.lower() == "none" and types.NoneType in get_args(field.annotation):
                read[name] = None
            elif get_origin(field.annotation) is tuple:
                items = tuple(item.strip() for item in value.split(",") if item.strip())
                read[name] = () if value.strip().lower() == "none" else items
        return read

    @property
    def pool_range(self) -> range:
        """The numbers ``pool_uids``."""
        first, _, last = self.pool_uids.partition("-")
        return range(int(first), int(last) + 1)

    @property
    def system_users(self) -> dict[str, str]:
        """The setting ``job_users``: the name of the system's user by that of the platform's."""
        return dict(pair.split("=", 1) for pair in self.job_users)

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
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> Settings:
        if self.loop_interval_s * 2 > self.lease_s:
            raise ValueError(
                f"lease_s={self.lease_s:g} leaves no room for one late round every {self.loop_interval_s:g} s; make it "
                "at least twice loop_interval_s"
            )
        if self.upload_max_file_bytes > self.upload_max_unpacked_bytes:
            raise ValueError("upload_max_file_bytes is above upload_max_unpacked_bytes; lower it or raise the other")
        if self.token_days > self.max_token_days:
            raise ValueError("token_days is above max_token_days; lower it or raise the other")
        return self

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
    def limits(self) -> Limits:
        """What jobs may use that ask for no limits of their own."""
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
        file: TOML, which must exist. None: ``legato.toml`` in the home directory, if there is one.
        flags: what the command line said; None among them means that it said nothing.

    Raises:
        SettingsError: a setting is unknown or unusable; the message names each of them.
    """
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    found = _find_file(file, given)
    try:
        with _reading(found):
            return Settings(**given)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"Cannot read the settings in {found}: it is not TOML: {error}. Mend that line.") from None
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
    # pydantic-settings asks a class method for the sources; the file of this one call reaches it this way.
    token = _file.set(file)
    try:
        yield
    finally:
        _file.reset(token)


def _find_file(file: Path | None, flags: Mapping[str, Any]) -> Path | None:
    if file is not None:
        if not file.is_file():
            raise SettingsError(f"Cannot read the settings in {file}: there is no such file. Write it or name another.")
        return file
    home = flags.get("home") or os.environ.get(f"{PREFIX}HOME") or Settings.model_fields["home"].default
    found = Path(home).expanduser() / FILE_NAME
    return found if found.is_file() else None


def _describe(error: ValidationError, file: Path | None) -> str:
    told = []
    for problem in error.errors():
        name = str(problem["loc"][0]) if problem["loc"] else ""
        if problem["type"] == "extra_forbidden":
            near = difflib.get_close_matches(name, Settings.model_fields, n=1)
            hint = f"Did you mean {near[0]}?" if near else "'legato config show' lists all."
            told.append(f"there is no setting {name}. {hint}")
        elif name:
            told.append(f"{name}={problem['input']!r} cannot be used: {problem['msg']}.")
        else:
            told.append(f"{problem['msg'].removeprefix('Value error, ')}.")
    where = f" (file: {file})" if file else ""
    return f"Cannot use the settings{where}: " + " ".join(told)
