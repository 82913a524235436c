"""Turns a submission to WMLA's interface into a job of the platform: reads it, repacks its code and submits it."""

from __future__ import annotations

import re
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping
from pathlib import PurePosixPath
from typing import IO, Any, Final, NamedTuple, cast

import httpx
import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from legato.api import WARNING
from legato.compat.wmla import names
from legato.compat.wmla.arguments import Submission, hide_secrets, read_arguments
from legato.compat.wmla.names import SUBMITTED_CODE
from legato.compat.wmla.options import REFUSED
from legato.compat.wmla.rest.bundles import Limits, Sent, hash_content, repack
from legato.compat.wmla.rest.groups import check_group
from legato.compat.wmla.rest.platform import Job, Platform
from legato.compat.wmla.rest.records import split_label
from legato.compat.wmla.rest.refusals import Refusal, refuse_as
from legato.core.errors import UsageError
from legato.uploads.receiving import Arrivals, read_promptly

NOTICE: Final = "X-WMLA-Notice"
"""Header of the answer with the notice of a submission."""

_MAX_TEXT_BYTES: Final = 2**20
_MAX_FILES: Final = 100
_MAX_FIELDS: Final = 20
_CHUNK_BYTES: Final = 2**20
_MAX_NAME_LENGTH: Final = 63
_ODD: Final = re.compile(r"[^A-Za-z0-9._-]+")


Found = tuple[str, Mapping[str, Any], str | None]
"""The argument string of a request, the JSON object of its form, and the instance group; None: it names none."""


class Prepared(NamedTuple):
    """A submission whose code is uploaded.

    Args:
        submission: what the argument string asks for.
        extra: the JSON object in the field ``data`` of the form.
        user: who sent the request.
        code: SHA-256 of the uploaded code.
        main: first argument of the launcher.
        arguments: the argument string without secrets.
    """

    submission: Submission
    extra: Mapping[str, Any]
    user: str
    code: str
    main: str
    arguments: str


class Submitter:
    """Takes submissions.

    Args:
        data_root: the directory of all data on the machines.
        limits: of an upload.
        interpreters: names of Python environments, which a submission may name as a conda environment or an image.
    """

    def __init__(self, data_root: str, limits: Limits, interpreters: Collection[str] = ()) -> None:
        self._data_root = data_root
        self._interpreters = frozenset(interpreters)
        self._limits = limits
        self._arrivals = Arrivals("submissions")

    async def submit(self, request: Request, platform: Platform) -> tuple[Job, str]:
        """Submit the job of a request.

        Returns:
            The job and its notice; "" if there is no notice.

        Raises:
            Refusal, UsageError, HTTPException: the request cannot be executed; no job was submitted.
        """
        prepared = await self.prepare(request, platform, _find_arguments)
        answer, notice = await self.post(platform, prepared, "jobs", lambda job: job)
        return await _add_warning(platform, answer, notice)

    async def prepare(
        self, request: Request, platform: Platform, find: Callable[[Request, FormData], Found]
    ) -> Prepared:
        """Read a request, and upload its code.

        Args:
            request: with a form that has the files.
            platform: with the client's token.
            find: returns the arguments of the submission, and what else the request has.

        Raises:
            Refusal, UsageError, HTTPException: as in `submit`.
        """
        user = (await platform.get("me"))["name"]
        with self._arrivals.counted(user):
            form = await _read_form(request, self._limits)
            try:
                text, extra, group = find(request, form)
                _check_sources(extra)
                submission = self._find_interpreter(_with_hardware(read_arguments(text), extra))
                if group is not None:
                    submission = msgspec.structs.replace(submission, group=group, group_kind="Instance group name")
                if submission.group is not None:
                    await check_group(platform, submission.group, submission.group_kind, 400)
                sent = [
                    Sent(one.filename or "main.py", cast("IO[bytes]", one.file))
                    for _, one in form.multi_items()
                    if isinstance(one, UploadFile)
                ]
                code, main = await self._send_code(platform, sent, submission)
            finally:
                await form.close()
        return Prepared(submission, extra, user, code, main, hide_secrets(text))

    async def post(
        self, platform: Platform, prepared: Prepared, path: str, wrap: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> tuple[httpx.Response, str]:
        """Send what was prepared to the platform; return its answer, and the notice.

        Args:
            platform: with the client's token.
            prepared: from `prepare`.
            path: of the request, below ``/api/v1/``.
            wrap: makes the body of the request from the fields of a job.

        Raises:
            Refusal: the platform refuses it.
        """
        submission, extra, user, code, main, arguments = prepared
        notice = write_notice(submission, extra, main)
        wanted = self._describe(submission, user, code, main, arguments, notice)
        if submission.data_path and names.DATA_DIRECTORY not in submission.environment:
            # The platform refuses a job with missing data, but a program for WMLA may create its data itself.
            data = str(self._find_data(submission))
            answer = await platform.ask("POST", path, json=wrap({**wanted, "data": data}), allowed=(422,))
            if answer.is_success:
                return answer, notice
            if not _misses_data(answer):
                raise refuse_as(answer)
            notice = write_notice(submission, extra, main, missing_data=data)
            wanted = self._describe(submission, user, code, main, arguments, notice)
        return await platform.ask("POST", path, json=wrap(wanted)), notice

    def _find_interpreter(self, submission: Submission) -> Submission:
        """Return the submission with the first environment that the operator has named; the others are ignored."""
        known = next((name for name in submission.environments.values() if name in self._interpreters), None)
        ignored = [option for option, name in submission.environments.items() if name != known]
        return msgspec.structs.replace(
            submission, python=known, ignored=tuple(dict.fromkeys((*submission.ignored, *ignored)))
        )

    async def _send_code(self, platform: Platform, sent: list[Sent], submission: Submission) -> tuple[str, str]:
        """Upload the code, unless the platform has it; return its SHA-256 and the launcher's first argument."""
        with tempfile.TemporaryFile() as packed:
            # The launcher sets variables that configure TensorFlow, so TensorFlow must not be loaded before.
            preloads = submission.framework.backend == "pytorch"
            main = await run_in_threadpool(
                repack, sent, submission.main, submission.model_directory, self._limits, packed, preloads=preloads
            )
            sha256 = await run_in_threadpool(hash_content, packed)
            if (await platform.ask("HEAD", f"code/{sha256}", allowed=(404,))).status_code == 404:
                await platform.ask("PUT", f"code/{sha256}", content=_read(packed))
        return sha256, main

    def _describe(
        self, submission: Submission, user: str, code: str, main: str, arguments: str, notice: str
    ) -> dict[str, Any]:
        """Return the body of the request that submits the job to the platform."""
        framework = submission.framework
        application = submission.application or f"{framework.application}-{user}"
        num_workers = submission.num_workers
        labels = {
            names.MARK_LABEL: names.MARK,
            names.FRAMEWORK_LABEL: framework.name,
            names.APPLICATION_LABEL: application[:255],
            names.MODEL_LABEL: main[:255],
            names.DEVICES_LABEL: str(submission.num_devices),
            **split_label(names.ARGUMENTS_LABEL, arguments),
            **split_label(names.NOTICE_LABEL, notice),
        }
        if submission.group is not None and submission.group_kind == "Instance group name":
            labels[names.GROUP_LABEL] = submission.group
        wanted: dict[str, Any] = {
            "name": _name_job(submission, main),
            "program": [names.LAUNCHER, main, *submission.arguments],
            "code": code,
            "is_elastic": framework.is_elastic,
            "max_workers": num_workers,
            "environment": self._find_variables(submission, user, application),
            "labels": labels,
        }
        if submission.group is not None:
            wanted["queue"] = submission.group
        limits = {"memory_bytes": submission.memory_bytes, "num_cpus": submission.num_cpus}
        if given := {name: value for name, value in limits.items() if value is not None}:
            # If the machine cannot enforce limits, the job runs without them; the notice and an event say so.
            wanted |= {**given, "must_limit": False}
        if submission.priority is not None:
            wanted["priority"] = submission.priority
        if submission.python is not None:
            wanted["python"] = submission.python
        return wanted

    def _find_data(self, submission: Submission) -> PurePosixPath:
        return PurePosixPath(self._data_root, submission.data_path or "")

    def _find_variables(self, submission: Submission, user: str, application: str) -> dict[str, str]:
        """Return the environment variables that are known at submission; the launcher sets the others."""
        framework = submission.framework
        found = {
            names.DATA_ROOT: self._data_root,
            names.DATA_DIRECTORY: str(self._find_data(submission)),
            names.DATA_PATH: submission.data_path or "",
            names.FRAMEWORK: framework.name,
            names.BACKEND: framework.backend,
            names.IS_ELASTIC: str(framework.is_elastic).lower(),
            names.USER: user,
            names.APPLICATION: application,
            names.MAX_WORKERS: str(submission.num_workers),
            names.SPACE: submission.group or names.DEFAULT_SPACE,
        }
        if submission.names_workers:
            found[names.REQUESTED_WORKERS] = str(submission.num_workers)
        found |= submission.environment
        if framework.shape == "gang":
            # The size of the gang: all workers wait for this number, even if --msd-env sets the variable.
            found |= {names.NUM_NODES: str(submission.num_workers), names.NODE_DEVICES: "1"}
        return found


def _read_job(answer: httpx.Response) -> Job:
    job: Job = answer.json()
    return job


async def _add_warning(platform: Platform, answer: httpx.Response, notice: str) -> tuple[Job, str]:
    """Return a new job and its notice; a warning of the platform is added to the notice and to the job's labels."""
    job, warning = _read_job(answer), answer.headers.get(WARNING)
    if warning is None:
        return job, notice
    notice = " ".join(part for part in (notice, warning) if part)
    labels = split_label(names.NOTICE_LABEL, notice)
    return _read_job(await platform.ask("PATCH", f"jobs/{job['id']}", json={"labels": labels})), notice


def _misses_data(answer: httpx.Response) -> bool:
    """Return whether the platform refused a submission only because its data do not exist."""
    return [error["field"] for error in answer.json().get("errors", ())] in (["body.data"], ["body.job.data"])


# ---------------------------------------------------------------- reading a request


class _Parser(MultiPartParser):
    """A parser that stores uploaded files above 64 KiB on the disk."""

    spool_max_size = 2**16


async def _read_form(request: Request, limits: Limits) -> FormData:
    """Read the body of a submission: a form with files, or JSON, which becomes the field ``data``."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    max_bytes = limits.packed_bytes if kind == "multipart/form-data" else 0
    max_bytes += _MAX_TEXT_BYTES
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length) > max_bytes:
        raise _too_large(max_bytes)
    body = _read_capped(request, max_bytes)
    if kind == "multipart/form-data":
        try:
            parser = _Parser(
                request.headers, body, max_files=_MAX_FILES, max_fields=_MAX_FIELDS, max_part_size=_MAX_TEXT_BYTES
            )
            return await parser.parse()
        except MultiPartException as error:
            raise Refusal(400, f"The form cannot be read: {error.message} Send it again.") from error
    text = b"".join([chunk async for chunk in body])
    if kind == "application/json" and text:
        return FormData([("data", text.decode(errors="replace"))])
    return FormData()


async def _read_capped(request: Request, max_bytes: int) -> AsyncGenerator[bytes, None]:
    num_bytes = 0
    async for chunk in read_promptly(request.stream()):
        num_bytes += len(chunk)
        if num_bytes > max_bytes:
            raise _too_large(max_bytes)
        yield chunk


def _too_large(max_bytes: int) -> Refusal:
    return Refusal(413, f"The upload has more than {max_bytes} bytes. Put data into the data directory instead.")


def read_data(form: FormData) -> Mapping[str, Any]:
    """Return the JSON object in the field ``data``; an empty one if there is none.

    Raises:
        UsageError: it is not a JSON object.
    """
    data = form.get("data")
    extra: Any = {}
    if isinstance(data, str) and data.strip():
        try:
            extra = msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError) as error:
            raise UsageError(f"The field 'data' is not JSON: {error}. Send one JSON object.") from error
        if not isinstance(extra, dict):
            raise UsageError("The field 'data' is not a JSON object. Send one, for example {\"dataSource\": []}.")
    found: Mapping[str, Any] = extra
    return found


def _find_arguments(request: Request, form: FormData) -> Found:
    extra = read_data(form)
    texts = (request.query_params.get("args"), form.get("args"), extra.get("args"))
    text = next((one for one in texts if isinstance(one, str) and one.strip()), None)
    if text is None:
        raise UsageError("There are no arguments. Send them in the query: ?args=--exec-start edtPyTorch …")
    return text, extra, request.query_params.get("sigName") or None


def _with_hardware(submission: Submission, extra: Mapping[str, Any]) -> Submission:
    """Return the submission with the numbers of ``hardwareSpec``, which have precedence over the arguments."""
    spec = extra.get("hardwareSpec")
    nodes = spec.get("nodes") if isinstance(spec, dict) else None
    if not isinstance(nodes, dict):
        return submission
    gpu = nodes.get("gpu")
    num_nodes, num_devices = nodes.get("num_nodes"), gpu.get("num_gpu") if isinstance(gpu, dict) else None
    if num_nodes is not None:
        submission = msgspec.structs.replace(
            submission, max_workers=None, num_nodes=_check_count(num_nodes, "num_nodes")
        )
    if num_devices:
        # 0 means a node without a GPU, but its worker needs a slot, too.
        submission = msgspec.structs.replace(submission, num_devices=_check_count(num_devices, "num_gpu"))
    return submission


def _check_count(value: Any, name: str) -> int:
    found = int(value) if isinstance(value, str) and value.isascii() and value.isdecimal() else value
    if not isinstance(found, int) or isinstance(found, bool) or not 1 <= found <= 100_000:
        raise UsageError(f"Cannot read {name} of hardwareSpec: {str(value)[:100]}. Give a whole number of at least 1.")
    return found


def _name_job(submission: Submission, main: str) -> str:
    """Return the name of the job: ``--appName``, or the name of the model directory.

    For a program on the machines, without an upload, it is ``--model-dir`` or the name of the main file.
    """
    path = PurePosixPath(main)
    folder = submission.model_directory or path.stem if path.is_absolute() else path.parts[1]
    return _ODD.sub("-", submission.application or folder)[:_MAX_NAME_LENGTH].strip("-._") or "wmla"


async def _read(file: IO[bytes]) -> AsyncIterator[bytes]:
    while chunk := await run_in_threadpool(file.read, _CHUNK_BYTES):
        yield chunk


# ------------------------------------------------------------ notices


_MAX_LENGTH: Final = 1000
_REQUESTS: Final = frozenset({"--workerMemory", "--workerCPU"})
_UNSEEN: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def _check_sources(extra: Mapping[str, Any]) -> None:
    """Raise UsageError if the JSON object of the form names data that are not files on the machines."""
    sources = extra.get("dataSource")
    for source in sources if isinstance(sources, list) else ():
        kind = source.get("type") if isinstance(source, dict) else None
        if kind not in (None, "fs"):
            raise UsageError(f"Data of type '{str(kind)[:100]}' are not supported. {REFUSED['--data-source']}")


def write_notice(
    submission: Submission,
    extra: Mapping[str, Any],
    main: str,
    *,
    missing_data: str | None = None,
) -> str:
    """Return the notice of a submission: one line, or "".

    Args:
        submission: the argument string.
        extra: the JSON object in the field ``data`` of the form.
        main: the main file, as the launcher gets it.
        missing_data: the data directory, if it does not exist.
    """
    sentences = []
    if missing_data is not None:
        sentences.append(
            f"DATA_DIR={missing_data} does not exist yet: the program must create it, or it finds no data."
        )
    ignored = list(submission.ignored)
    ignored += ["dataSource"] if extra.get("dataSource") else []
    if submission.framework.shape == "single" and (submission.num_nodes or 1) * submission.num_devices > 1:
        ignored.append("more than one worker")
    if ignored:
        sentences.append(f"Accepted, but without effect here: {', '.join(ignored)}.")
    sentences += [
        f"{word[:100]} is passed to the program; did you mean {option}?" for word, option in submission.near_misses
    ]
    if submission.main is None:
        shown = main.removeprefix(f"{SUBMITTED_CODE}/")
        sentences.append(f"Without --model-main the program is {shown}, the only one in the upload.")
    if _REQUESTS.intersection(ignored):
        sentences.append("Memory and cores are not reserved; --workerMemoryLimit and --workerCPULimit limit a worker.")
    line = _UNSEEN.sub("?", " ".join(sentences))
    # HTTP clients refuse very long headers.
    return line if len(line) <= _MAX_LENGTH else f"{line[: _MAX_LENGTH - 1]}…"
