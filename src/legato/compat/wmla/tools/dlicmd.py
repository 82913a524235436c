#!/usr/bin/env python3
"""The command line of IBM Watson Machine Learning Accelerator, for a Legato server.

This file needs only the standard library of Python 3.8 or later. It turns a command into a few requests, and prints the
answers in the form that users of WMLA and their scripts expect. It decides nothing about jobs, never runs or imports
the code that it sends, sends a token only to the server that issued it, and writes only `~/.dlicmd` and the requested
result. It checks certificates only if DLICMD_CA_FILE names the authorities, because many servers have self-signed ones.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import difflib
import getpass
import gzip
import http.client
import io
import ipaddress
import json
import os
import re
import socket
import ssl
import stat
import sys
import tarfile
import tempfile
import time
import urllib.parse
import urllib.request
import uuid
import zipfile
from pathlib import Path
from typing import IO, Any, Callable, Iterable, Iterator, Mapping, NamedTuple, Sequence

# ---------------------------------------------------------------- exit codes and errors

DONE = 0
REFUSED = 1
MISUSED = 2
NOT_SUPPORTED = 3
NOT_LOGGED_ON = 4
NOT_REACHED = 5
NOT_FINISHED = 6
INTERRUPTED = 130

EXIT_CODES = {
    DONE: "success",
    REFUSED: "the server refused the request, or a file has a problem",
    MISUSED: "invalid command line",
    NOT_SUPPORTED: "not supported; the message says what to use instead",
    NOT_LOGGED_ON: "no token, or the server does not accept it (any more)",
    NOT_REACHED: "no server can be reached, or the connection broke",
    NOT_FINISHED: "--app-wait: the application ended in a state other than FINISHED",
    INTERRUPTED: "interrupted with Ctrl-C",
}


class Failure(Exception):
    """A command cannot be executed.

    Args:
        message: for the user, on the standard error.
        code: one of `EXIT_CODES`.
        printed: a line for the standard output that scripts look for; "": none.
    """

    def __init__(self, message: str, code: int = REFUSED, printed: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.printed = printed


class Missing(Failure):
    """The server answered 404: what the command asks for does not exist."""


class Unavailable(Failure):
    """The server does not answer now, but it may answer later."""


class Unreachable(Failure):
    """A request got no answer, or only a part of it.

    Args:
        why: the problem with the connection.
        doing: beginning of the message: what failed.
    """

    def __init__(self, why: str, doing: str) -> None:
        super().__init__(f"{doing}: {why}.", NOT_REACHED)
        self.why = why


def say(text: str) -> None:
    """Write a line to the standard output, and flush it."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def report(text: str) -> None:
    """Write a line to the standard error, so that scripts do not take it for an answer."""
    sys.stdout.flush()
    sys.stderr.write(make_plain(text) + "\n")


def make_plain(text: str) -> str:
    r"""Return a text without control characters, which could change the state of a terminal.

    >>> make_plain("a\x1b[31mb\n")
    'a?[31mb\n'
    """
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", "?", text)


# ---------------------------------------------------------------- options

API = "/platform/rest/deeplearning/v1"
CONNECTION = {
    "--rest-host": ("HOST", "host of the server; HOST:PORT and https://HOST:PORT work too"),
    "--rest-port": ("PORT", "port of the server; -1 (default): 443 and 9243 with https, then 80 and 8765 with http"),
    "--username": ("NAME", "name of the user"),
    "--password": ("TEXT", "password; safer: DLICMD_PASSWORD, or none: --logon asks for it, or reads a line of stdin"),
    "--jwt-token": ("TOKEN", "use this token instead of the one in ~/.dlicmd"),
    "--query-args": ("A=B&C=D", "further arguments for the query of the request"),
    "--debug-level": (
        "LEVEL",
        "print the requests on the standard error, unless LEVEL is 0, off, none, error, warn or info",
    ),
}
OLD_NAMES = {"--master-host": "--rest-host", "--dli-rest-port": "--rest-port"}
OUTPUT = {
    "-o": ("FORMAT", "json, or custom-columns=A,B"),
    "--output": ("FORMAT", "the same as -o"),
    "--app-search-start": ("N", "skip the N newest applications (0)"),
    "--app-search-length": ("N", "maximum number of applications (10000)"),
}
VARIABLES = {
    "DLICMD_REST_HOST": "--rest-host",
    "DLICMD_REST_PORT": "--rest-port",
    "DLICMD_USERNAME": "--username",
    "DLICMD_PASSWORD": "--password",
    "DLICMD_JWT_TOKEN": "--jwt-token",
}

_CONTAINER = "Legato does not use containers; the program runs in the server's own Python"
_NAMED = "a Python environment, if the operator has given it this name; else no effect"
_AMOUNT = "Legato does not divide memory and cores among workers"
_DRIVER = "the driver of a job needs no slot"
_PLACE = "the scheduler chooses the slots; queues limit the slots of users"
_USER = "the operator chooses the system user of jobs"

SUBMIT: dict[str, tuple[str, str, str]] = {
    # name: (its value, what it does, why Legato ignores it)
    "--model-main": (
        "FILE",
        "the program: a path in --model-dir, a file to upload, or an absolute path on the server's machines",
        "",
    ),
    "--model-dir": ("DIR", "directory with the program; it is packed and uploaded", ""),
    "--appName": ("NAME", "name of the application", ""),
    "--ig": ("GROUP", "instance group: the queue of that name", ""),
    "--consumer": ("NAME", "consumer: the queue of that name", ""),
    "--cs-datastore-meta": ("type=fs,data_path=P", "DATA_DIR of the program, relative to the root of all data", ""),
    "--numWorker": ("N", "maximum number of workers", ""),
    "--workerDeviceNum": ("N", "GPUs of each worker; Legato runs a worker for each GPU", ""),
    "--gpuPerWorker": ("N", "the same as --workerDeviceNum, in 1.2.x", ""),
    "--edt-options": ("maxWorkers=N", "maximum number of workers, in 1.2.x", ""),
    "--msd-env": ("K=V", "environment variable of the program; may be repeated", ""),
    "--msd-priority": ("INT", "priority, from 1; a higher number is a higher priority", ""),
    "--submit-user": ("NAME", "", "a job belongs to the user who is logged on"),
    "--conda-env-name": ("NAME", _NAMED, ""),
    "--python-version": ("VERSION", "", _CONTAINER),
    "--workerDeviceType": ("cpu|gpu", "", "a worker runs on the device of its slot"),
    "--workerCPU": ("N", "", _AMOUNT),
    "--workerMemory": ("SIZE", "", _AMOUNT),
    "--workerCPULimit": ("N", "maximum number of CPU cores of each worker, if the server can limit them", ""),
    "--workerGPULimit": ("N", "", _AMOUNT),
    "--workerMemoryLimit": ("SIZE", "maximum memory of each worker, if the server can limit it", ""),
    "--numPs": ("N", "", "Legato has no parameter servers; the workers sum the gradients among themselves"),
    "--numDriver": ("N", "", _DRIVER),
    "--driverDeviceType": ("cpu|gpu", "", _DRIVER),
    "--driverDeviceNum": ("N", "", _DRIVER),
    "--driverCPU": ("N", "", _DRIVER),
    "--driverMemory": ("SIZE", "", _DRIVER),
    "--driverCPULimit": ("N", "", _DRIVER),
    "--driverGPULimit": ("N", "", _DRIVER),
    "--driverMemoryLimit": ("SIZE", "", _DRIVER),
    "--exclusive": ("", "", "a slot always belongs to one worker at a time"),
    "--no-check-certificate": ("", "", "certificates are checked only if DLICMD_CA_FILE is set"),
    "--msd-attr": ("K=V", "", _PLACE),
    "--msd-label": ("K=V", "", _PLACE),
    "--msd-image-name": ("NAME", _NAMED, ""),
    "--msd-image-pull-secret": ("NAME", "", _CONTAINER),
    "--msd-image-pull-policy": ("NAME", "", _CONTAINER),
    "--msd-pull-secret": ("NAME", "", _CONTAINER),
    "--msd-pull-policy": ("NAME", "", _CONTAINER),
    "--msd-task0-node-selector": ("TEXT", "", _PLACE),
    "--msd-task12n-node-selector": ("TEXT", "", _PLACE),
    "--msd-pending-timeout": ("SECONDS", "", "a job waits until it gets slots or a user stops it"),
    "--lsf-gpu-syntax": ("TEXT", "", _PLACE),
    "--msd-podaffinity-rule": ("TEXT", "", _PLACE),
    "--msd-podaffinity-topology-key": ("TEXT", "", _PLACE),
    "--msd-topology-key": ("TEXT", "", _PLACE),
    "--msd-pack-id": ("ID", "", _PLACE),
    "--sc-runasuser": ("ID", "", _USER),
    "--sc-runasgroup": ("ID", "", _USER),
    "--sc-fsgroup": ("ID", "", _USER),
}
_FROM_FILES = (
    "programs read data on the server's machines; name the data with --cs-datastore-meta type=fs,data_path=PATH"
)

REFUSED_OPTIONS = {
    "--data-source": _FROM_FILES,
    "--cs-rmq-meta": _FROM_FILES,
    "--cs-url-meta": _FROM_FILES,
    "--cs-url-bearer": _FROM_FILES,
    "--user-cmd": "name the program with --model-main FILE, and its arguments after ' -- '",
    "--pbmodel-name": "Legato has no prebuilt models; upload your program with --model-main FILE --model-dir DIR",
    "--pbmodel-cmd": "Legato has no prebuilt models; upload your program with --model-main FILE --model-dir DIR",
}


class CommandLine(NamedTuple):
    """The parts of a command line.

    Args:
        command: the first word, such as ``--exec-get``.
        operands: of the command: ids, a framework or a name.
        options: the given options of `CONNECTION` and `OUTPUT`, by their present names.
        submission: of ``--exec-start``: the words to send to the server, without options of `CONNECTION`.
        model_dir: the value of ``--model-dir``, or None.
        model_main: the value of ``--model-main``, or None.
    """

    command: str
    operands: list[str]
    options: dict[str, str]
    submission: list[str]
    model_dir: str | None = None
    model_main: str | None = None

    def number(self, option: str, default: int) -> int:
        """Return the value of an option as a whole number."""
        text = self.options.get(option, str(default))
        if re.fullmatch(r"-?[0-9]{1,9}", text) is None:
            raise Failure(f"{option} must be a whole number, not '{text}'.", MISUSED)
        return int(text)


def read_command_line(words: Sequence[str]) -> CommandLine:
    """Read the words of a command line.

    Raises:
        Failure: there is no such command or option, or an option has no value.
    """
    command, equals, first = words[0].partition("=")
    if command not in COMMANDS:
        near = ask_whether(command, COMMANDS)
        raise Failure(
            f"'{words[0]}' is not a command.{near} The first word must be a command; --help lists all.", MISUSED
        )
    if COMMANDS[command].run is refuse:
        return CommandLine(command, [], {}, [])
    rest = [first, *words[1:]] if equals else list(words[1:])
    line = _read_submission(command, rest) if command == "--exec-start" else _read_others(command, rest)
    rule = COMMANDS[command]
    if not rule.least <= len(line.operands) <= rule.most:
        wanted = f"needs {rule.operands}" if rule.least else f"takes {rule.operands or 'no arguments'}"
        raise Failure(f"{command} {wanted}, but got {' '.join(line.operands) or 'nothing'}.", MISUSED)
    for name, runs in COMMANDS_OF_OPTIONS.items():
        is_shown = name == "--output" and line.options.get(name) == "json" and rule.run is show_path
        if name in line.options and rule.run not in runs and not is_shown:
            report(f"Notice: {name} is ignored: {command} does not use it.")
    return line


def ask_whether(word: str, known: Iterable[str]) -> str:
    """Return " Did you mean …?" with the most similar known word; "" if no word is similar.

    >>> ask_whether("--exec-gt", ["--exec-get", "--status"]), ask_whether("-x", ["--status"])
    (' Did you mean --exec-get?', '')
    """
    near = difflib.get_close_matches(word, list(known), 1, 0.8)
    return f" Did you mean {near[0]}?" if near else ""


def _read_others(command: str, words: list[str]) -> CommandLine:
    line = CommandLine(command, [], {}, [])
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        name = _name_option(word)
        if name in CONNECTION or name in OUTPUT:
            line.options["--output" if name == "-o" else name] = _take_value(word, waiting)
        elif name == "--model-dir" and COMMANDS[command].run is start_search:
            line = line._replace(model_dir=_take_value(word, waiting))
        elif name in SUBMIT:
            _take_value(word, waiting)
            report(f"Notice: {name} is ignored: {command} does not use it.")
        elif word.startswith("-"):
            near = ask_whether(name, [*CONNECTION, *OUTPUT])
            raise Failure(f"{command} has no option {name}.{near} --help lists all.", MISUSED)
        else:
            line.operands.append(word)
    return line


def _read_submission(command: str, words: list[str]) -> CommandLine:
    waiting = list(words)
    line = CommandLine(command, [waiting.pop(0)] if waiting and not waiting[0].startswith("-") else [], {}, [])
    files: dict[str, str] = {}
    while waiting:
        word = waiting.pop(0)
        name = _name_option(word)
        if word == "--":
            line.submission.extend([word, *waiting])
            break
        if name in REFUSED_OPTIONS:
            raise Failure(f"{name} is not supported: {REFUSED_OPTIONS[name]}.", NOT_SUPPORTED)
        if name in CONNECTION:
            line.options[name] = _take_value(word, waiting)
        elif name not in SUBMIT:
            line.submission.append(word)
        elif not SUBMIT[name][0]:
            line.submission.append(name)
        else:
            value = _take_value(word, waiting)
            if name in ("--model-dir", "--model-main"):
                files[name] = value
            line.submission.extend([f"{name}={value}"] if value.startswith("--") else [name, value])
    return line._replace(model_dir=files.get("--model-dir"), model_main=files.get("--model-main"))


def _name_option(word: str) -> str:
    name = word.partition("=")[0]
    return OLD_NAMES.get(name, name)


def _take_value(word: str, waiting: list[str]) -> str:
    name, equals, value = word.partition("=")
    if equals or (name in SUBMIT and not SUBMIT[name][0]):
        return value
    if not waiting or waiting[0].startswith("--"):
        raise Failure(
            f"{name} needs a value. Write {name} VALUE, or {name}=VALUE if the value begins with '--'.", MISUSED
        )
    return waiting.pop(0)


def join_arguments(words: Sequence[str]) -> str:
    r"""Return the argument string of a submission, quoted so that the server reads exactly these words from it.

    >>> print(join_arguments(["--exec-start", "edtPyTorch", "--", "--title", "it's  a test", ""]))
    --exec-start edtPyTorch -- --title 'it'"'"'s  a test' ''
    """
    return " ".join(
        word if re.fullmatch(r"[\w@%+=:,./{}\[\]-]+", word, re.ASCII) else "'" + word.replace("'", "'\"'\"'") + "'"
        for word in words
    )


# ---------------------------------------------------------------- the server


class Place(NamedTuple):
    """An address where a server may answer. ``~/.dlicmd`` keeps tokens under ``str()`` of it."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def is_here(self) -> bool:
        """Whether the host is this machine: ``localhost`` or a loopback address."""
        if self.host.lower() == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def list_places(host: str, port: int) -> list[Place]:
    """Return the addresses where the server may answer, HTTPS first.

    Args:
        host: a name, HOST:PORT, or an address with a scheme.
        port: the port; -1: not given.

    >>> [str(place) for place in list_places("gpu", 8765)]
    ['https://gpu:8765', 'http://gpu:8765']
    >>> [str(place) for place in list_places("http://gpu:1/", -1)]
    ['http://gpu:1']
    """
    scheme, separator, rest = host.rpartition("://")
    try:
        parts = urllib.parse.urlsplit(f"//{rest}")
        name, given = parts.hostname or "", parts.port
    except ValueError:
        name, given = "", None
    if not name or re.search(r"[^\w.:%-]", name) or (separator and scheme not in ("http", "https")):
        raise Failure(f"'{host}' is not a host. Write for example --rest-host gpu.example.org.", MISUSED)
    port = given if port == -1 and given is not None else port
    if not 0 < port < 65536 and port != -1:
        raise Failure(f"--rest-port must be -1 or a number from 1 to 65535, not {port}.", MISUSED)
    ports = {"https": [443, 9243], "http": [80, 8765]} if port == -1 else {"https": [port], "http": [port]}
    return [
        Place(each, name, number)
        for each in ("https", "http")
        for number in ports[each]
        if each == scheme or not separator
    ]


class Upload(NamedTuple):
    """The body of a submission: a file that is sent as a part of a form, and the field ``data`` of the form."""

    name: str
    content: IO[bytes]
    num_bytes: int
    data: str = ""


_PROBE_LIMIT_S = 10.0
_ANSWER_LIMIT_S = 120.0
_UPLOAD_LIMIT_S = 600.0
_CHUNK_BYTES = 2**18
_MAX_TRIES = 4
_MAX_PAUSE_S = 10.0


class Server:
    """Sends requests to a server, each on another connection.

    Args:
        place: address of the server.
        is_chatty: whether to print each request on the standard error.
    """

    def __init__(self, place: Place, is_chatty: bool = False) -> None:
        self.place = place
        self.authorization = ""
        self._is_chatty = is_chatty

    @contextlib.contextmanager
    def ask(
        self,
        method: str,
        path: str,
        query: Sequence[tuple[str, str]] = (),
        *,
        accept: str = "application/json",
        upload: Upload | None = None,
        authorization: str | None = None,
        limit_s: float = _ANSWER_LIMIT_S,
    ) -> Iterator[http.client.HTTPResponse]:
        """Send a request and yield its answer, whatever its status.

        Args:
            method: HTTP method.
            path: not quoted yet.
            query: names and values.
            accept: media type of the answer.
            upload: body of the request.
            authorization: replaces ``self.authorization``.
            limit_s: maximum time in seconds without data from the server.

        Raises:
            Unreachable: the connection cannot be opened, or breaks; or the answer is not HTTP.
        """
        target = urllib.parse.quote(path) + ("?" + urllib.parse.urlencode(query) if query else "")
        headers = {"Accept": accept, "User-Agent": "dlicmd"}
        authorization = authorization or self.authorization
        if authorization:
            headers["Authorization"] = authorization
        body = None
        if upload is not None:
            boundary = uuid.uuid4().hex
            body, num_bytes = _make_form(upload, boundary)
            headers["Content-Type"] = f"multipart/form-data; boundary={boundary}"
            headers["Content-Length"] = str(num_bytes)
        if self.place.scheme == "http" and find_proxy(self.place):
            target = f"{self.place}{target}"
        connection = self._connect(limit_s, headers)
        try:
            try:
                answer = _send(connection, method, target, body, headers)
            except (OSError, UnicodeError, http.client.HTTPException) as error:
                raise Unreachable(describe(error), f"The connection to {self.place} broke") from None
            if self._is_chatty:
                report(f"Debug: {method} {self.place}{path}: {answer.status}")
            yield answer
        finally:
            connection.close()

    def _connect(self, limit_s: float, headers: dict[str, str]) -> http.client.HTTPConnection:
        place = self.place
        through = find_proxy(place)
        name, port = (through.hostname or "", through.port or 80) if through else (place.host, place.port)
        pass_headers = {}
        if through and through.username:
            password = urllib.parse.unquote(through.password or "")
            pass_headers["Proxy-Authorization"] = make_basic(urllib.parse.unquote(through.username), password)
        if place.scheme == "http":
            headers.update(pass_headers)
            return http.client.HTTPConnection(name, port, timeout=limit_s)
        secure = http.client.HTTPSConnection(name, port, timeout=limit_s, context=make_tls())
        if through:
            secure.set_tunnel(place.host, place.port, pass_headers)
        return secure

    def get(
        self, method: str, path: str, query: Sequence[tuple[str, str]] = (), accept: str = "application/json"
    ) -> tuple[int, str]:
        """Send a request; return the status, which is a success, and the text of the answer.

        A GET request is repeated a few times if the server is busy.

        Raises:
            Failure: the server cannot be reached, or refuses the request.
        """
        for attempt in range(_MAX_TRIES):
            with self.ask(method, path, query, accept=accept) as answer:
                pause = answer.headers.get("Retry-After", "1")
                if answer.status not in (429, 503) or method != "GET" or attempt == _MAX_TRIES - 1:
                    check(answer)
                    return answer.status, read_text(answer)
            time.sleep(min(float(pause) if re.fullmatch("[0-9]{1,5}", pause) else 1.0, _MAX_PAUSE_S))
        raise AssertionError("the last attempt returns or raises")

    def find_user(self) -> str:
        """Return the name of the user to whom the server has given the token."""
        record = read_json(self.get("GET", "/v1/preauth/validateAuth")[1])
        if not isinstance(record, dict) or not isinstance(record.get("username"), str):
            raise Failure("The server's answer has no user name.")
        return str(record["username"])

    def get_json(self, path: str, query: Sequence[tuple[str, str]] = ()) -> Any:
        """Return the JSON answer of a GET request."""
        return read_json(self.get("GET", path, query)[1])


def find_proxy(place: Place) -> urllib.parse.SplitResult | None:
    """Return the proxy for an address from https_proxy, http_proxy and no_proxy; None: no proxy."""
    if place.is_here or urllib.request.proxy_bypass(place.host):
        return None
    proxy = urllib.request.getproxies().get(place.scheme)
    if not proxy:
        return None
    try:
        found = urllib.parse.urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        if found.hostname and found.port != 0:
            return found
    except ValueError:
        pass
    raise Failure(f"The proxy '{proxy}' cannot be used. Correct the variable {place.scheme}_proxy.", MISUSED)


def make_tls() -> ssl.SSLContext:
    """Return the TLS context. It checks certificates only if DLICMD_CA_FILE names the authorities to trust."""
    authorities = os.environ.get("DLICMD_CA_FILE")
    if authorities:
        try:
            return ssl.create_default_context(cafile=authorities)
        except OSError as error:
            raise Failure(f"Cannot read DLICMD_CA_FILE '{authorities}': {error}.", MISUSED) from None
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _send(
    connection: http.client.HTTPConnection,
    method: str,
    target: str,
    body: Iterator[bytes] | None,
    headers: Mapping[str, str],
) -> http.client.HTTPResponse:
    try:
        connection.request(method, target, body=body, headers=headers)
    except (BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
        # A server that refuses an upload may answer before it has read all of it.
        if body is None:
            raise
    return connection.getresponse()


def _make_form(upload: Upload, boundary: str) -> tuple[Iterator[bytes], int]:
    name = upload.name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
    data = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="data"\r\n\r\n{upload.data}\r\n' if upload.data else ""
    )
    head = (
        f'{data}--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n"
    ).encode("utf-8", "surrogateescape")
    tail = f"\r\n--{boundary}--\r\n".encode()

    def chunks() -> Iterator[bytes]:
        yield head
        left = upload.num_bytes
        while left:
            chunk = upload.content.read(min(left, _CHUNK_BYTES))
            if not chunk:
                raise Failure(f"{upload.name} became shorter during the upload; nothing was submitted. Try again.")
            left -= len(chunk)
            yield chunk
        yield tail

    return chunks(), len(head) + upload.num_bytes + len(tail)


_BROKEN = "The connection broke before the whole answer had arrived"
_UNKNOWN_HOST = "the host name is unknown"
_EXPLANATIONS: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str], ...]
_EXPLANATIONS = (
    ((socket.gaierror, UnicodeError), _UNKNOWN_HOST),
    ((socket.timeout, TimeoutError), "no answer in time"),
    (ConnectionRefusedError, "no program listens on this port"),
    (
        ssl.SSLCertVerificationError,
        "the server's certificate is not signed by an authority of DLICMD_CA_FILE, or is for another host",
    ),
    (ssl.SSLError, "the server does not use TLS"),
    (http.client.RemoteDisconnected, "the server closed the connection"),
    (http.client.IncompleteRead, "part of the answer is missing"),
    (http.client.HTTPException, "the answer is not HTTP"),
)


def describe(error: Exception) -> str:
    """Return an explanation of an error of a connection or a file."""
    for kind, explanation in _EXPLANATIONS:
        if isinstance(error, kind):
            return explanation
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).rstrip(".")


def read_chunks(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    """Yield the bytes of an answer.

    Raises:
        Unreachable: the connection broke before the whole answer had arrived.
    """
    promised = answer.headers.get("Content-Length", "")
    num_bytes = 0
    while True:
        try:
            chunk = answer.read(_CHUNK_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(describe(error), _BROKEN) from None
        if not chunk:
            break
        num_bytes += len(chunk)
        yield chunk
    if promised.isdigit() and num_bytes < int(promised):
        why = f"{num_bytes} of {promised} bytes arrived"
        raise Unreachable(why, _BROKEN)


def read_text(answer: http.client.HTTPResponse) -> str:
    """Return the text of an answer."""
    return b"".join(read_chunks(answer)).decode("utf-8", "replace")


def read_json(text: str) -> Any:
    """Return the value of a JSON text from the server."""
    try:
        return json.loads(text)
    except ValueError:
        raise Failure(f"The server's answer is not JSON: {shorten(text)}") from None


def shorten(text: str) -> str:
    """Return the first 300 characters of a text, on one line."""
    return " ".join(text.split())[:300]


def check(answer: http.client.HTTPResponse) -> None:
    """Raise a Failure that explains an answer, unless its status is a success."""
    if 200 <= answer.status < 300:
        return
    if 300 <= answer.status < 400:
        where = answer.headers.get("Location", "somewhere else")
        raise Failure(f"The server redirects to {where}. Give the host and port of the server itself.")
    message = explain(read_text(answer))
    denied = "Authentication error. The request was denied."
    if answer.status == 401:
        raise Failure(message or "Log on again with --logon.", NOT_LOGGED_ON, denied)
    if answer.status == 403:
        raise Failure(message or "You may not do this.", REFUSED, denied)
    if not message.startswith(f"Error {answer.status}"):
        message = f"Error {answer.status}: {message or answer.reason}"
    if answer.status == 404:
        raise Missing(message)
    if answer.status in (502, 503, 504):
        raise Unavailable(message)
    raise Failure(message, NOT_SUPPORTED if answer.status == 501 else REFUSED)


def explain(text: str) -> str:
    """Return the message of an error: the plain text, or the message in a JSON object.

    >>> explain('{"detail": "No such job."}'), explain("Error 400: no group x")
    ('No such job.', 'Error 400: no group x')
    """
    with contextlib.suppress(ValueError):
        value = json.loads(text)
        if isinstance(value, str):
            return shorten(value)
        if isinstance(value, dict):
            for key in ("detail", "message", "error", "reason"):
                if isinstance(value.get(key), str):
                    return shorten(value[key])
    return "" if text.lstrip().startswith("<") else shorten(text)


def find_server(line: CommandLine) -> Server:
    """Find the address of the server, by a request for its settings without a token.

    Addresses with a token in ``~/.dlicmd`` are tried first; otherwise HTTPS before HTTP.

    Raises:
        Failure: no host was given, or no address has WMLA's REST interface.
    """
    host = line.options.get("--rest-host", "").strip()
    if not host:
        raise Failure("No server is given. Give --rest-host HOST, or set DLICMD_REST_HOST.", MISUSED)
    level = line.options.get("--debug-level", "0").lower()
    is_chatty = level not in ("", "0", "off", "none", "error", "warn", "warning", "info")
    kept = read_keys()
    places = list_places(host, line.number("--rest-port", -1))
    found = []
    for place in sorted(places, key=lambda place: str(place) not in kept):
        server = Server(place, is_chatty)
        try:
            with server.ask("GET", f"{API}/conf", limit_s=_PROBE_LIMIT_S) as answer:
                why = find_mismatch(answer)
        except Unreachable as error:
            why = error.why
            if why == _UNKNOWN_HOST:
                raise Failure(f"Cannot reach '{place.host}': {why}. Check --rest-host.", NOT_REACHED) from None
        if not why:
            return server
        found.append(f"{place}: {why}")
    raise Unavailable(f"Cannot find the server. {'; '.join(found)}. Check --rest-host and --rest-port.", NOT_REACHED)


def find_mismatch(answer: http.client.HTTPResponse) -> str:
    """Return why an answer to the probe does not come from WMLA's REST interface; "" if it does.

    The password must not be sent to another program, so an error counts only if it has the form of WMLA or Legato.
    """
    kind = answer.headers.get("Content-Type") or ""
    if 300 <= answer.status < 400:
        return f"redirects to {answer.headers.get('Location', 'somewhere else')}"
    if answer.status == 200 and "json" in kind:
        return ""
    text = read_text(answer)
    if answer.status == 421:
        return explain(text) or "the server does not accept this host name"
    if answer.status != 404 and (text.startswith(f"Error {answer.status}") or "problem+json" in kind):
        return ""
    return f"the answer ({answer.status}) is not from WMLA's REST interface"


# ---------------------------------------------------------------- tokens


def keys_path() -> Path:
    """Return the path of the file with the tokens."""
    return Path.home() / ".dlicmd"


def read_keys() -> dict[str, str]:
    """Return the stored tokens by server; none if the file cannot be read or does not have this form."""
    try:
        kept = json.loads(keys_path().read_text(encoding="utf-8"))["tokens"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {key: value for key, value in kept.items() if isinstance(value, str)} if isinstance(kept, dict) else {}


def write_keys(keys: Mapping[str, str]) -> None:
    """Store tokens in a file that no other user can read at any time."""
    path = keys_path()
    draft = path.with_name(f".dlicmd-{uuid.uuid4().hex}")
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump({"tokens": dict(keys)}, file)
            draft.replace(path)
        except OSError:
            draft.unlink()
            raise
    except OSError as error:
        raise Failure(f"Cannot store the token in {path}: {describe(error)}.") from None


def make_basic(name: str, password: str) -> str:
    """Return the value of the Authorization header for a name and a password."""
    if ":" in name:
        raise Failure(f"The user name '{name}' contains a colon, which is not allowed.", MISUSED)
    return f"Basic {base64.b64encode(f'{name}:{password}'.encode('utf-8', 'surrogateescape')).decode()}"


def make_bearer(token: str) -> str:
    """Return the value of the Authorization header for a token."""
    if re.fullmatch("[!-~]+", token) is None:
        raise Failure("The token cannot be used: it is empty, or contains blanks or characters that are not ASCII.")
    return f"Bearer {token}"


def log_on(line: CommandLine) -> int:
    """Run ``--logon``."""
    server = find_server(line)
    if server.place.scheme == "http" and not server.place.is_here:
        report(f"Notice: The connection to {server.place} is not encrypted: others may read password and token.")
    token = line.options.get("--jwt-token")
    if token:
        server.authorization = make_bearer(token)
        server.get("GET", f"{API}/conf")
    else:
        token = fetch_token(server, line)
    write_keys({**read_keys(), str(server.place): token})
    say(f"Logged on to {server.place}.")
    return DONE


def fetch_token(server: Server, line: CommandLine) -> str:
    """Log on with a name and a password, and return the token."""
    name = line.options.get("--username") or _ask_for("Username", "--username or DLICMD_USERNAME", input)
    password = line.options.get("--password") or _ask_for("Password", "DLICMD_PASSWORD", getpass.getpass)
    with server.ask("GET", "/auth/v1/logon", authorization=make_basic(name, password)) as answer:
        check(answer)
        record = read_json(read_text(answer))
    token = record.get("accessToken") if isinstance(record, dict) else None
    if not isinstance(token, str):
        raise Failure("The server's answer has no token.")
    make_bearer(token)
    return token


def _ask_for(what: str, option: str, ask: Callable[[str], str]) -> str:
    """Ask the user in a terminal, else read a line of the standard input."""
    text = ""
    with contextlib.suppress(EOFError, UnicodeDecodeError):
        if sys.stdin is not None:
            text = ask(f"{what}: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    if not text:
        raise Failure(f"{what} is missing. Give {option}, pipe it in as a line, or run this in a terminal.", MISUSED)
    return text


def log_off(line: CommandLine) -> int:
    """Run ``--logoff``: revoke the token on the server, and remove it from ``~/.dlicmd`` in any case."""
    server = open_server(line)
    try:
        server.get("POST", "/auth/v1/logoff")
    except Failure as failure:
        if failure.code != NOT_LOGGED_ON:
            raise
    finally:
        write_keys({place: token for place, token in read_keys().items() if place != str(server.place)})
    say(f"Logged off from {server.place}.")
    return DONE


def open_server(line: CommandLine) -> Server:
    """Find the server, and set its credentials: a given token, name and password, or the stored token, in this order.

    Raises:
        Failure: the server was not found, or there are no credentials.
    """
    server = find_server(line)
    token = line.options.get("--jwt-token")
    name, password = line.options.get("--username"), line.options.get("--password")
    if token:
        server.authorization = make_bearer(token)
    elif name and password:
        server.authorization = make_basic(name, password)
    else:
        token = read_keys().get(str(server.place))
        if not token:
            missing = "Unable to find token from cookies. Please logon first."
            raise Failure(f"~/.dlicmd has no token for {server.place}.", NOT_LOGGED_ON, missing)
        server.authorization = make_bearer(token)
    return server


# ---------------------------------------------------------------- output


def say_json(value: Any) -> None:
    """Print a value as indented JSON."""
    say(json.dumps(value, indent=4))


def say_text(text: str) -> None:
    """Print a text unchanged, with a newline at its end."""
    sys.stdout.write(text if text.endswith("\n") or not text else text + "\n")
    sys.stdout.flush()


def say_answer(text: str) -> None:
    """Print an answer: JSON is indented, other texts are unchanged."""
    try:
        value = json.loads(text)
    except ValueError:
        say_text(text)
    else:
        say_json(value)


def say_rows(line: CommandLine, records: Any, columns: Mapping[str, Callable[[dict[str, Any]], Any]]) -> None:
    """Print records as a table, as JSON, or as a table of chosen columns.

    Args:
        line: has the format in ``--output``.
        records: the server's answer.
        columns: functions of a record that return a column's value, by the column's title.
    """
    form = line.options.get("--output", "")
    rows = [record for record in list_records(records) if isinstance(record, dict)]
    if form == "json":
        say_json(records)
        return
    chosen = [name for name in columns if not form]
    if form.startswith("custom-columns="):
        chosen = [name.strip() for name in form.partition("=")[2].split(",") if name.strip()]
    if not chosen:
        raise Failure(f"--output must be json or custom-columns=A,B, not '{form}'.", MISUSED)
    unknown = [name for name in chosen if name not in columns and not any(name in row for row in rows)]
    if unknown and rows:
        known = ", ".join(sorted({*columns, *(key for row in rows for key in row)}))
        raise Failure(f"There is no column {', '.join(unknown)}. The columns are {known}.", MISUSED)
    say_table([chosen, *([_cell(columns, name, row) for name in chosen] for row in rows)])


def _cell(columns: Mapping[str, Callable[[dict[str, Any]], Any]], name: str, row: dict[str, Any]) -> str:
    value = columns[name](row) if name in columns else row.get(name)
    if value is None or value == "":
        return "-"
    return make_plain(str(value) if not isinstance(value, (dict, list)) else json.dumps(value)).replace("\n", " ")


def say_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows in aligned columns."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    for row in rows:
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def list_records(value: Any) -> list[Any]:
    """Return the records in an answer: the answer itself if it is a list, or the only list in an object.

    >>> list_records([1]), list_records({"total": 1, "items": [1]}), list_records({"id": 1})
    ([1], [1], [{'id': 1}])
    """
    if isinstance(value, list):
        return value
    lists = [each for each in value.values() if isinstance(each, list)] if isinstance(value, dict) else []
    keys = set(value) if isinstance(value, dict) else set()
    return lists[0] if len(lists) == 1 and not keys & {"id", "applicationid"} else [value]


def read_time(value: Any) -> float | None:
    """Return a time in seconds since 1970, from a number of seconds or an ISO 8601 text; None if it is neither.

    >>> read_time(12), read_time("1970-01-01T00:00:12Z"), read_time("soon"), read_time(None)
    (12.0, 12.0, None, None)
    """
    if isinstance(value, bool) or not value:
        return None
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        return float(value)
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        read = datetime.datetime.fromisoformat(re.sub(r"Z$", "+00:00", str(value)))
        return (read if read.tzinfo else read.replace(tzinfo=datetime.timezone.utc)).timestamp()
    return None


def write_time(value: Any) -> str:
    """Return a time as ISO 8601 in UTC; "" if there is none.

    >>> write_time(12), write_time(None)
    ('1970-01-01T00:00:12Z', '')
    """
    seconds = read_time(value)
    if seconds is None:
        return ""
    return datetime.datetime.fromtimestamp(int(seconds), datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def write_span(begin: Any, end: Any) -> str:
    """Return the duration between two times as one word; without an end, until now; "" without a beginning.

    >>> write_span(1, 43), write_span(1, 7201), write_span(1, 90001), write_span(None, 1)
    ('42s', '2h0m', '1d1h', '')
    """
    first, last = read_time(begin), read_time(end)
    if first is None:
        return ""
    seconds = max(0, int((time.time() if last is None else last) - first))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if days:
        return f"{days}d{hours % 24}h"
    if hours:
        return f"{hours}h{minutes % 60}m"
    return f"{minutes}m{seconds % 60}s" if minutes else f"{seconds}s"


def write_size(num_bytes: int) -> str:
    """Return a number of bytes in the form ``1.9K``.

    >>> write_size(1946), write_size(10), write_size(3 * 2**30)
    ('1.9K', '10.0B', '3.0G')
    """
    size = float(num_bytes)
    for unit in "BKMG":
        if size < 1024 or unit == "G":
            break
        size /= 1024
    return f"{size:.1f}{unit}"


# ---------------------------------------------------------------- executions


def start(line: CommandLine) -> int:
    """Run ``--exec-start``: pack and upload the program, and print the id of the execution."""
    words = ["--exec-start", line.operands[0], *line.submission]
    report_ignored(line.submission)
    with contextlib.ExitStack() as stack:
        file: Path | None = None
        directory: Path | None = None
        if line.model_dir is not None:
            directory = find_directory(line.model_dir, line.model_main)
            words = replace_value(words, "--model-dir", directory.name)
        elif line.model_main is not None and not Path(line.model_main).is_absolute():
            file = Path(line.model_main).expanduser()
            words = replace_value(words, "--model-main", file.name)
        server = open_server(line)
        upload = None
        if directory or file:
            say("Copying files and directories ...")
            upload = pack(directory, stack) if directory else open_file(file or Path(), stack)
            say(f"Content size: {write_size(upload.num_bytes)}")
        record = submit(server, "/execs/", [("args", join_arguments(words)), *read_query(line)], upload)
    if not isinstance(record, dict) or not isinstance(record.get("id"), str):
        raise Failure(f"The server accepted the submission, but its answer has no id: {shorten(json.dumps(record))}")
    report_notice(str(record.get("notice") or ""), line.submission)
    say_json({"execId": record["id"], "appId": record.get("appId") or record["id"]})
    return DONE


def submit(server: Server, path: str, query: Sequence[tuple[str, str]], upload: Upload | None) -> Any:
    """Send a submission and return the record of the execution, or of the search.

    Raises:
        Failure: the server refused the submission; or the connection broke, and the command cannot know whether the
            server accepted it.
    """
    command = "--exec-get-all" if path == "/execs/" else "--hpo-get-all"
    hint = f"Check with {command} whether the server accepted the submission before you submit again."
    try:
        with server.ask("POST", f"{API}{path}", query, upload=upload, limit_s=_UPLOAD_LIMIT_S) as answer:
            check(answer)
            text = read_text(answer)
    except Unreachable as error:
        raise Failure(f"{error} {hint}", NOT_REACHED) from None
    except KeyboardInterrupt:
        raise Failure(f"Interrupted during the submission. {hint}", INTERRUPTED) from None
    return read_json(text)


def report_ignored(words: Sequence[str]) -> None:
    """Print a notice for each option without effect, with the reason."""
    end = words.index("--") if "--" in words else len(words)
    for name in dict.fromkeys(word.partition("=")[0] for word in words[:end]):
        _, does, why = SUBMIT.get(name, ("", "", ""))
        if why and not does:
            report(f"Notice: {name} is ignored: {why}.")


def report_notice(notice: str, words: Sequence[str]) -> None:
    """Print the server's notices about a submission, except those that were printed already."""
    first = re.match(r"Accepted, but without effect here: (.*?)\.(?: |$)", notice)
    if first and set(first[1].split(", ")) <= {word.partition("=")[0] for word in words}:
        notice = notice[first.end() :]
    if notice:
        report(f"Notice: {notice}")


def replace_value(words: Sequence[str], option: str, value: str) -> list[str]:
    """Return the words of a submission with another value of an option.

    >>> replace_value(["--model-dir", "../a", "--", "--model-dir", "../a"], "--model-dir", "a")
    ['--model-dir', 'a', '--', '--model-dir', '../a']
    """
    changed = list(words)
    end = changed.index("--") if "--" in changed else len(changed)
    for index, word in enumerate(changed[:end]):
        if word == option:
            changed[index + 1] = value
    return changed


def find_directory(text: str, main: str | None) -> Path:
    """Return the absolute path of the model directory.

    Raises:
        Failure: it is not a directory, or the program is not in it.
    """
    given = Path(text).expanduser()
    directory = Path(os.path.abspath(given))  # noqa: PTH100  # keeps links, so the name stays as typed
    if not directory.is_dir():
        found = "it is not a directory" if directory.exists() else "there is no such directory"
        raise Failure(f"Cannot send --model-dir '{text}': {found}.")
    if not directory.name:
        raise Failure(f"Cannot send --model-dir '{text}': it has no name. Send a subdirectory.")
    # The program's path may be relative to the directory, or begin with the directory's name.
    if main is not None and not _is_inside(directory, main):
        raise Failure(f"There is no file '{main}' in '{text}'. --model-main must be the path of a file in --model-dir.")
    return directory


def _is_inside(directory: Path, main: str) -> bool:
    path = Path(main)
    with_name = path.parts[:1] == (directory.name,) and (directory.parent / path).is_file()
    return path.is_absolute() or (directory / path).is_file() or with_name


def open_file(path: Path, stack: contextlib.ExitStack) -> Upload:
    """Open a program that is uploaded as a single file."""
    try:
        content = stack.enter_context(path.open("rb"))
    except OSError as error:
        hint = " Give the directory of the program with --model-dir." if not path.exists() else ""
        raise Failure(f"Cannot send --model-main '{path}': {describe(error)}.{hint}") from None
    about = os.fstat(content.fileno())
    if not stat.S_ISREG(about.st_mode):
        raise Failure(f"Cannot send --model-main '{path}': it is not a file.")
    return Upload(path.name, content, about.st_size)


def pack(directory: Path, stack: contextlib.ExitStack) -> Upload:
    """Pack a directory as a compressed tar file.

    The directory itself is at the top of the archive. Links are followed, and owners are removed. The same files give
    the same bytes.
    """
    content: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  # the ExitStack closes it
    try:
        zipped = gzip.GzipFile("", "wb", fileobj=content, mtime=0)
        with zipped, tarfile.open(fileobj=zipped, mode="w", dereference=True) as tar:
            for path, name in walk(directory, directory.name, ()):
                add(tar, path, name)
    except OSError as error:
        what = error.filename or directory
        raise Failure(f"Cannot pack '{what}': {describe(error)}. Nothing was submitted.") from None
    num_bytes = content.tell()
    content.seek(0)
    return Upload(f"{directory.name}.modelDir.tar", content, num_bytes)


def add(tar: tarfile.TarFile, path: Path, name: str) -> None:
    """Add a file or directory to an archive."""
    about = tar.gettarinfo(str(path), name)
    about.uid = about.gid = 0
    about.uname = about.gname = ""
    if about.isdir():
        tar.addfile(about)
    else:
        with path.open("rb") as file:
            tar.addfile(about, file)


def walk(directory: Path, name: str, above: tuple[tuple[int, int], ...]) -> Iterator[tuple[Path, str]]:
    """Yield a directory and everything in it, with their names in the archive, in the order of their names.

    Entries that are neither files nor directories, broken links and links to a parent directory are skipped, with a
    notice.
    """
    about = directory.stat()
    here = (about.st_dev, about.st_ino)
    if here in above:
        report(f"Notice: {directory} is not packed: it is a link to a directory that contains it.")
        return
    yield directory, name
    for entry in sorted(directory.iterdir()):
        inside = f"{name}/{entry.name}"
        if entry.is_dir():
            yield from walk(entry, inside, (*above, here))
        elif entry.is_file():
            yield entry, inside
        else:
            found = "a broken link" if entry.is_symlink() else "neither a file nor a directory"
            report(f"Notice: {entry} is not packed: it is {found}.")


def read_query(line: CommandLine) -> list[tuple[str, str]]:
    """Return the names and values of ``--query-args``."""
    return urllib.parse.parse_qsl(line.options.get("--query-args", "").lstrip("?&"), keep_blank_values=True)


EXEC_COLUMNS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "id": lambda record: record.get("id"),
    "submit_user": lambda record: record.get("creator") or record.get("userName"),
    "name": lambda record: record.get("appName"),
    "framework": lambda record: record.get("framework"),
    "type": lambda record: "ELASTIC" if record.get("elastic") in (True, "true") else "PARALLEL",
    "state": lambda record: record.get("state"),
    "num": lambda record: record.get("numWorker"),
    "submit_time": lambda record: write_time(record.get("createTime")),
    "age": lambda record: write_span(record.get("createTime"), None),
}


def show_execs(line: CommandLine) -> int:
    """Run ``--exec-get-all``."""
    say_rows(line, open_server(line).get_json(f"{API}/execs", read_query(line)), EXEC_COLUMNS)
    return DONE


def show_exec(line: CommandLine) -> int:
    """Run ``--exec-get``."""
    record = open_server(line).get_json(f"{API}/execs/{read_id(line)}", read_query(line))
    if line.options.get("--output", "json") == "json":
        say_json(record)
    else:
        say_rows(line, record, EXEC_COLUMNS)
    return DONE


def read_id(line: CommandLine) -> str:
    """Return the id or name in the first operand, which becomes a part of a URL's path."""
    text = line.operands[0]
    if not text or text in (".", "..") or "/" in text:
        raise Failure(f"'{text}' is not an id.", MISUSED)
    return text


def stop_exec(line: CommandLine) -> int:
    """Run ``--exec-stop``."""
    status, _ = open_server(line).get("POST", f"{API}/execs/{read_id(line)}/stop", read_query(line))
    say(f"Stop exec {read_id(line)} succeed. HTTP:{status} ")
    return DONE


def delete_exec(line: CommandLine) -> int:
    """Run ``--exec-delete``."""
    status, _ = open_server(line).get("DELETE", f"{API}/execs/{read_id(line)}", read_query(line))
    say(f"Delete exec {read_id(line)} succeed. HTTP:{status} ")
    return DONE


def delete_execs(line: CommandLine) -> int:
    """Run ``--exec-delete-all``."""
    open_server(line).get("DELETE", f"{API}/execs", read_query(line))
    say("Execs are deleted")
    return DONE


TRAINING_LOGS = {"--exec-trainlogs": "outerrlog", "--exec-trainoutlogs": "outlog", "--exec-trainerrlogs": "errlog"}


def show_training_log(line: CommandLine) -> int:
    """Run ``--exec-trainlogs``, ``--exec-trainoutlogs`` or ``--exec-trainerrlogs``."""
    query = [("logType", TRAINING_LOGS[line.command]), *read_query(line)]
    server = open_server(line)
    with server.ask("GET", f"{API}/execs/{read_id(line)}/log", query, accept="text/plain") as answer:
        check(answer)
        if "json" in (answer.headers.get("Content-Type") or ""):
            text = read_json(read_text(answer))
            say_text(text if isinstance(text, str) else json.dumps(text))
        else:
            copy_to_output(answer)
    return DONE


def copy_to_output(answer: http.client.HTTPResponse) -> None:
    """Write the bytes of an answer to the standard output."""
    out = getattr(sys.stdout, "buffer", None)
    for chunk in read_chunks(answer):
        if out is None:
            sys.stdout.write(chunk.decode("utf-8", "replace"))
        else:
            out.write(chunk)
            out.flush()


LOGS = {"launcherlogs": "launcherlog", "outlogs": "stdout", "errlogs": "stderr"}


def show_process_logs(line: CommandLine) -> int:
    """Run ``--exec-outlogs``, ``--app-outlogs`` and similar commands: print logs of the driver and of each executor."""
    server = open_server(line)
    base = f"{API}/scheduler/applications/{read_id(line)}"
    log = LOGS[line.command.rpartition("-")[2]]
    for process in ["driver", *(f"executor/{number}" for number in list_executors(server, read_id(line)))]:
        try:
            text = server.get("GET", f"{base}/{process}/logs/{log}", read_query(line), accept="text/plain")[1]
        except Missing:
            text = "(there is no such log)"
        say(f"======== {process.replace('/', ' ')} {log} ========")
        say_text(text)
    return DONE


def list_executors(server: Server, name: str) -> list[int]:
    """Return the numbers of the present and former executors of an application."""
    found = list_records(server.get_json(f"{API}/scheduler/applications", [("applicationid", name)]))
    if not found or not isinstance(found[0], dict):
        raise Failure(f"There is no application {name}.")
    executors = found[0].get("executors") or []
    ends = [re.search("[0-9]+$", str(executor.get("id"))) for executor in executors if isinstance(executor, dict)]
    numbers = [int(end[0]) for end in ends if end]
    return sorted(set(numbers)) if len(set(numbers)) == len(executors) else list(range(1, len(executors) + 1))


def fetch_result(line: CommandLine) -> int:
    """Run ``--exec-trainresult``: save the result in the working directory under the name that the server gives."""
    server = open_server(line)
    path = f"{API}/execs/{read_id(line)}/result"
    kind = "application/octet-stream"
    with server.ask("GET", path, read_query(line), accept=kind, limit_s=_UPLOAD_LIMIT_S) as answer:
        check(answer)
        name = choose_name(answer.headers.get("Content-Disposition") or "", read_id(line))
        draft = Path(f".{name}.{uuid.uuid4().hex}")
        try:
            save(answer, draft)
            if Path(name).exists():
                report(f"Notice: {name} exists and is replaced.")
            draft.replace(name)
        except OSError as error:
            raise Failure(f"Cannot save the result as '{name}': {describe(error)}.") from None
        finally:
            with contextlib.suppress(OSError):
                draft.unlink()
    say(f"Train result is saved to {name}")
    return DONE


def choose_name(disposition: str, execution: str) -> str:
    """Return the file name of a result. It is a plain name that ends in .zip, even if the server sends another one.

    >>> choose_name('attachment; filename="dlpd-model-1.zip"; size=7', "j-1")
    'dlpd-model-1.zip'
    >>> choose_name("attachment; filename=../../.bashrc;size=7", "j-1"), choose_name("", "j-1")
    ('bashrc.zip', 'dlpd-model-j-1-result.zip')
    """
    found = re.search(r'filename\s*=\s*(?:"([^"]*)"|([^;]*))', disposition, re.IGNORECASE)
    given = (found[1] or found[2] or "") if found else ""
    name = re.sub(r"[^A-Za-z0-9_.@+-]", "_", re.split(r"[/\\]", given.strip())[-1]).lstrip(".-")[:200]
    if not name:
        return f"dlpd-model-{re.sub(r'[^A-Za-z0-9_-]', '_', execution)[:100]}-result.zip"
    return name if name.endswith(".zip") else f"{name}.zip"


def save(answer: http.client.HTTPResponse, path: Path) -> None:
    """Write an answer into a new file, and check that it is a complete zip file.

    Raises:
        Failure: the connection broke, or the answer is not a zip file.
    """
    with path.open("xb") as file:
        for chunk in read_chunks(answer):
            file.write(chunk)
    if not zipfile.is_zipfile(path):
        raise Failure("The server's answer is not a zip file, or it is incomplete. Try again.")


# ---------------------------------------------------------------- applications

ACTIVE = (
    *("NEW", "SUBMITTED", "PENDING_JOB_SCHEDULER", "PENDING_CRD_SCHEDULER", "LAUNCHING", "RUNNING"),
    *("RECOVERING", "UNKNOWN"),
)
ENDED = ("FINISHED", "KILLED", "ERROR")
APPLICATIONS = f"{API}/scheduler/engine/applications"
_POLL_S = 10.0
_MAX_SILENT_POLLS = 30

_APP_COLUMNS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "id": lambda record: record.get("id"),
    "consumer": lambda record: record.get("consumer"),
    "submit_user": lambda record: record.get("submit_user"),
    "name": lambda record: record.get("name"),
    "pri": lambda record: record.get("priority"),
    "type": lambda record: record.get("type"),
    "state": lambda record: record.get("state"),
    "num": lambda record: record.get("task12n_num"),
    "gpu": lambda record: record.get("used_gpu"),
    "mem": lambda record: record.get("used_mem"),
    "cpu": lambda record: record.get("used_cpu"),
    "submit_time": lambda record: write_time(record.get("submit_time")),
    "start_time": lambda record: write_time(record.get("start_time")),
}
APP_COLUMNS = {**_APP_COLUMNS, "age": lambda record: write_span(record.get("submit_time"), record.get("end_time"))}
HISTORY_COLUMNS = {
    **_APP_COLUMNS,
    "duration": lambda record: write_span(record.get("start_time"), record.get("end_time")),
}


def query_applications(line: CommandLine, states: Sequence[str]) -> list[tuple[str, str]]:
    """Return the query for applications in some states, the newest first."""
    return [
        ("start", str(line.number("--app-search-start", 0))),
        ("length", str(line.number("--app-search-length", 10000))),
        ("sort", "-submit_time"),
        ("state", ",".join(states)),
        *read_query(line),
    ]


def show_applications(line: CommandLine) -> int:
    """Run ``--app-get-all`` or ``--app-history-get-all``."""
    is_history = line.command == "--app-history-get-all"
    states, columns = (ENDED, HISTORY_COLUMNS) if is_history else (ACTIVE, APP_COLUMNS)
    say_rows(line, open_server(line).get_json(APPLICATIONS, query_applications(line, states)), columns)
    return DONE


def show_application(line: CommandLine) -> int:
    """Run ``--app-get``."""
    record = open_server(line).get_json(f"{APPLICATIONS}/{read_id(line)}", read_query(line))
    if line.options.get("--output", "json") == "json":
        say_json(record)
    else:
        say_rows(line, record, APP_COLUMNS)
    return DONE


def wait_for_application(line: CommandLine) -> int:
    """Run ``--app-wait``: print a line every 10 seconds until the application has ended.

    If the server does not answer, also at the first request, the command tries again up to 30 times in a row.
    """
    server: Server | None = None
    num_silent = 0
    while True:
        try:
            server = server or open_server(line)
            record = server.get_json(f"{APPLICATIONS}/{read_id(line)}", read_query(line))
        except (Unavailable, Unreachable) as failure:
            num_silent += 1
            if num_silent > _MAX_SILENT_POLLS:
                raise
            report(f"Notice: {failure} The command tries again.")
        else:
            num_silent = 0
            record = record if isinstance(record, dict) else {}
            state = str(record.get("state"))
            age = write_span(record.get("submit_time"), record.get("end_time")) or "-"
            say(make_plain(f"{read_id(line)} {state} {age}"))
            if state in ENDED:
                return DONE if state == "FINISHED" else NOT_FINISHED
        time.sleep(_POLL_S)


def stop_applications(line: CommandLine) -> int:
    """Run ``--app-stop`` or ``--app-stop-all``. If the server refuses to stop one application, the others still stop.

    ``--app-stop-all`` stops only the user's own applications, even for an admin.
    """
    server = open_server(line)
    names = line.operands
    if line.command == "--app-stop-all":
        found = list_records(server.get_json(APPLICATIONS, query_applications(line, ACTIVE)))
        user = server.find_user()
        mine = [each for each in found if isinstance(each, dict) and each.get("submit_user") == user]
        names = [str(record["id"]) for record in mine if record.get("id")]
    code = DONE
    for name in names:
        read_id(line._replace(operands=[name]))
        try:
            status, _ = server.get("PUT", f"{API}/scheduler/applications/{name}/stop")
        except Failure as failure:
            if failure.code != REFUSED:
                raise
            report(f"{name}: {failure}")
            code = REFUSED
        else:
            say(f"Stop app {name} succeed. HTTP:{status} ")
    return code


def analyze(line: CommandLine) -> int:
    """Run ``--app-analyze``: print states, waiting times and run times of the applications of the last hours."""
    hours = line.operands[0] if line.operands else "2"
    if re.fullmatch(r"[0-9]{1,6}(\.[0-9]+)?", hours) is None or not float(hours):
        raise Failure(f"--app-analyze needs a number of hours, not '{hours}'.", MISUSED)
    server = open_server(line)
    since = time.time() - float(hours) * 3600
    found = list_records(server.get_json(APPLICATIONS, query_applications(line, (*ACTIVE, *ENDED))))
    recent = [each for each in found if isinstance(each, dict) and (read_time(each.get("submit_time")) or 0) >= since]
    rows = [["state", "num", "waited_mean", "waited_max", "ran_mean", "ran_max"]]
    for state in (*ACTIVE, *ENDED):
        those = [each for each in recent if each.get("state") == state]
        if those:
            waited = [_count_seconds(each, "submit_time", "start_time") for each in those]
            ran = [_count_seconds(each, "start_time", "end_time") for each in those]
            rows.append([state, str(len(those)), *_write_spans(waited), *_write_spans(ran)])
    say(f"Applications submitted in the last {hours} hours: {len(recent)}")
    if len(rows) > 1:
        say_table(rows)
    return DONE


def _count_seconds(record: dict[str, Any], begin: str, end: str) -> float | None:
    first, last = read_time(record.get(begin)), read_time(record.get(end)) or read_time(record.get("end_time"))
    return None if first is None else max(0.0, (time.time() if last is None else last) - first)


def _write_spans(seconds: Sequence[float | None]) -> list[str]:
    known = [each for each in seconds if each is not None]
    return [write_span(1, 1 + sum(known) / len(known)), write_span(1, 1 + max(known))] if known else ["-", "-"]


# ---------------------------------------------------------------- hyperparameter searches

SEARCHES = f"{API}/hypersearch"
SEARCH_COLUMNS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "name": lambda record: record.get("hpoName"),
    "creator": lambda record: record.get("creator"),
    "algorithm": lambda record: (record.get("algoDef") or {}).get("algorithm"),
    "state": lambda record: record.get("state"),
    "progress": lambda record: record.get("progress"),
    "best": lambda record: (record.get("best") or {}).get("metricVal"),
    "createtime": lambda record: record.get("createtime"),
    "duration": lambda record: record.get("duration"),
}
ALGORITHM_COLUMNS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "name": lambda record: record.get("name"),
    "type": lambda record: record.get("type"),
}
_MAX_SEARCH_BYTES = 2**20


def start_search(line: CommandLine) -> int:
    """Run ``--hpo-start``: pack and upload the program with the request in a file, and print the search's name."""
    if line.model_dir is None:
        raise Failure("--hpo-start needs --model-dir DIR, the directory of the program.", MISUSED)
    file = Path(line.operands[0]).expanduser()
    try:
        with file.open("rb") as opened:
            content = opened.read(_MAX_SEARCH_BYTES + 1)
    except OSError as error:
        raise Failure(f"Cannot read '{file}': {describe(error)}.") from None
    if len(content) > _MAX_SEARCH_BYTES:
        raise Failure(f"'{file}' has more than {_MAX_SEARCH_BYTES} bytes. It must be the request, as JSON.")
    try:
        data = json.dumps(json.loads(content.decode("utf-8")))
    except (ValueError, RecursionError) as error:
        raise Failure(
            f"'{file}' is not JSON: {error}. Write the object with modelSpec, algoDef and hyperParams."
        ) from None
    directory = find_directory(line.model_dir, None)
    server = open_server(line)
    with contextlib.ExitStack() as stack:
        say("Copying files and directories ...")
        upload = pack(directory, stack)._replace(data=data)
        say(f"Content size: {write_size(upload.num_bytes)}")
        record = submit(server, "/hypersearch", read_query(line), upload)
    name = record.get("uid") if isinstance(record, dict) else record
    if not isinstance(name, str):
        raise Failure(f"The server accepted the search, but its answer has no name: {shorten(json.dumps(record))}")
    notice = server.get_json(f"{SEARCHES}/{name}").get("notice")
    if notice:
        report(f"Notice: {notice}")
    say_json({"hpoName": name})
    return DONE


def show_searches(line: CommandLine) -> int:
    """Run ``--hpo-get-all``."""
    say_rows(line, open_server(line).get_json(SEARCHES, read_query(line)), SEARCH_COLUMNS)
    return DONE


def show_search(line: CommandLine) -> int:
    """Run ``--hpo-get``."""
    record = open_server(line).get_json(f"{SEARCHES}/{read_id(line)}", read_query(line))
    if line.options.get("--output", "json") == "json":
        say_json(record)
    else:
        say_rows(line, [record], SEARCH_COLUMNS)
    return DONE


def change_search(line: CommandLine) -> int:
    """Run ``--hpo-stop``, ``--hpo-restart`` or ``--hpo-delete``."""
    what = line.command.rpartition("-")[2]
    method, end = {"stop": ("PUT", ""), "restart": ("PUT", "/restart"), "delete": ("DELETE", "")}[what]
    status, _ = open_server(line).get(method, f"{SEARCHES}/{read_id(line)}{end}", read_query(line))
    say(f"{what.capitalize()} hpo {read_id(line)} succeed. HTTP:{status} ")
    return DONE


def delete_searches(line: CommandLine) -> int:
    """Run ``--hpo-delete-all``."""
    open_server(line).get("DELETE", SEARCHES, read_query(line))
    say("Hpos are deleted")
    return DONE


def show_algorithms(line: CommandLine) -> int:
    """Run ``--hpo-algorithm-get-all``."""
    say_rows(line, open_server(line).get_json(f"{SEARCHES}/algorithm", read_query(line)), ALGORITHM_COLUMNS)
    return DONE


def delete_algorithm(line: CommandLine) -> int:
    """Run ``--hpo-algorithm-delete``. The server refuses it, because all algorithms are built in."""
    status, _ = open_server(line).get("DELETE", f"{SEARCHES}/algorithm/{read_id(line)}", read_query(line))
    say(f"Delete hpo algorithm {read_id(line)} succeed. HTTP:{status} ")
    return DONE


# ---------------------------------------------------------------- other commands


def show_path(line: CommandLine) -> int:
    """Run a command that prints the answer of a path in `PATHS`."""
    path, query = PATHS[line.command], read_query(line)
    if line.command.startswith("--k8s-"):
        query = [("type", line.operands[0]), *(("name", name) for name in line.operands[1:]), *query]
    elif line.command == "--pj-get-all":
        query = [("type", "paralleljob"), *query]
    elif line.operands:
        path = f"{path}/{read_id(line)}"
    say_answer(open_server(line).get("GET", API + path, query)[1])
    return DONE


PATHS = {
    "--status": "/status",
    "--dl-frameworks": "/execs/frameworks",
    "--rp-get-all": "/resplans/resplantree",
    "--rp-get": "/resplans/resplan",
    "--hpo-algorithm-get": "/hypersearch/algorithm",
    "--pj-get-all": "/scheduler/kubernetesobjects",
    "--k8s-obj-get-all": "/scheduler/kubernetesobjects",
    "--k8s-obj-get": "/scheduler/kubernetesobjects",
}


def delete_plan(line: CommandLine) -> int:
    """Run ``--rp-delete``."""
    status, _ = open_server(line).get("DELETE", f"{API}/resplans/resplan/{read_id(line)}", read_query(line))
    say(f"Delete resource plan {read_id(line)} succeed. HTTP:{status} ")
    return DONE


UNSUPPORTED = {
    "--exec-deploy": "download the model with --exec-trainresult and serve it with a server of your choice",
}


def refuse(line: CommandLine) -> int:
    """Refuse a command that Legato does not support."""
    instead = next(text for beginning, text in UNSUPPORTED.items() if line.command.startswith(beginning))
    raise Failure(f"{line.command} is not supported: {instead}.", NOT_SUPPORTED)


def show_help(_: CommandLine) -> int:
    """Run ``--help``."""
    say(render_help())
    return DONE


class Command(NamedTuple):
    """A command.

    Args:
        run: runs it and returns the exit code.
        about: its description in the help.
        operands: its operands in the help.
        least: minimum number of operands.
        most: maximum number of operands.
    """

    run: Callable[[CommandLine], int]
    about: str
    operands: str = ""
    least: int = 0
    most: int = 0


_MANY = 10**6


def _of_one(run: Callable[[CommandLine], int], about: str, operand: str = "ID") -> Command:
    return Command(run, about, operand, 1, 1)


COMMANDS: dict[str, Command] = {
    "--help": Command(show_help, "show this help"),
    "-h": Command(show_help, "show this help"),
    "--logon": Command(log_on, "log on, and store the token in ~/.dlicmd"),
    "--logoff": Command(log_off, "log off, and revoke the token"),
    "--status": Command(show_path, "state of the server"),
    "--dl-frameworks": Command(show_path, "frameworks for --exec-start"),
    "--exec-start": _of_one(start, "submit a training", "FRAMEWORK"),
    "--exec-get-all": Command(show_execs, "executions that you may see, as a table"),
    "--exec-get": _of_one(show_exec, "an execution"),
    "--exec-stop": _of_one(stop_exec, "stop an execution"),
    "--exec-delete": _of_one(delete_exec, "stop an execution if it runs, and hide it"),
    "--exec-delete-all": Command(delete_execs, "stop and hide all of your executions"),
    "--exec-deploy": Command(refuse, "not supported", "ID", 0, _MANY),
    "--exec-launcherlogs": _of_one(show_process_logs, "launcher's log of each process of an execution"),
    "--exec-outlogs": _of_one(show_process_logs, "standard output of each process of an execution"),
    "--exec-errlogs": _of_one(show_process_logs, "standard error of each process of an execution"),
    "--exec-trainlogs": _of_one(show_training_log, "standard output and standard error of the program"),
    "--exec-trainoutlogs": _of_one(show_training_log, "standard output of the program"),
    "--exec-trainerrlogs": _of_one(show_training_log, "standard error of the program"),
    "--exec-trainresult": _of_one(fetch_result, "download the trained model as a zip file into this directory"),
    "--app-get-all": Command(show_applications, "applications that wait or run, as a table"),
    "--app-history-get-all": Command(show_applications, "applications that have ended, as a table"),
    "--app-get": _of_one(show_application, "an application"),
    "--app-wait": _of_one(
        wait_for_application, "wait until an application has ended; prints id, state and age every 10 s"
    ),
    "--app-stop": Command(stop_applications, "stop applications", "ID...", 1, _MANY),
    "--app-stop-all": Command(stop_applications, "stop all of your applications"),
    "--app-analyze": Command(analyze, "states and times of the applications of the last hours (2)", "[HOURS]", 0, 1),
    "--app-launcherlogs": _of_one(show_process_logs, "as --exec-launcherlogs"),
    "--app-outlogs": _of_one(show_process_logs, "as --exec-outlogs"),
    "--app-errlogs": _of_one(show_process_logs, "as --exec-errlogs"),
    "--rp-get-all": Command(show_path, "resource plans: the queues"),
    "--rp-get": _of_one(show_path, "a resource plan", "NAME"),
    "--rp-delete": _of_one(delete_plan, "delete a resource plan without jobs; only admins may", "NAME"),
    "--pj-get-all": Command(show_path, "parallel jobs"),
    "--k8s-obj-get-all": _of_one(show_path, "objects of a type: pod, paralleljob", "TYPE"),
    "--k8s-obj-get": Command(show_path, "an object of a type", "TYPE NAME", 2, 2),
    "--hpo-start": _of_one(
        start_search,
        "start a search for hyperparameters: FILE has the request as JSON, --model-dir the program",
        "FILE",
    ),
    "--hpo-get-all": Command(show_searches, "searches that you may see, as a table"),
    "--hpo-get": _of_one(show_search, "a search with its trials", "NAME"),
    "--hpo-stop": _of_one(change_search, "stop a search and its trials", "NAME"),
    "--hpo-restart": _of_one(change_search, "run a search that has ended again, from its first trial", "NAME"),
    "--hpo-delete": _of_one(change_search, "delete a search that has ended; its executions stay", "NAME"),
    "--hpo-delete-all": Command(delete_searches, "delete all of your searches that have ended"),
    "--hpo-algorithm-get-all": Command(show_algorithms, "algorithms of searches, as a table"),
    "--hpo-algorithm-get": _of_one(show_path, "an algorithm", "NAME"),
    "--hpo-algorithm-delete": _of_one(delete_algorithm, "refused by the server: all algorithms are built in", "NAME"),
}


COMMANDS_OF_OPTIONS = {
    "--output": (
        *(show_execs, show_exec, show_applications, show_application),
        *(show_searches, show_search, show_algorithms),
    ),
    "--app-search-start": (show_applications, stop_applications, analyze),
    "--app-search-length": (show_applications, stop_applications, analyze),
}
"""The commands that use each option of `OUTPUT`."""


def render_help() -> str:
    """Return the help with all commands, options, environment variables and exit codes."""
    lines = ["Usage: python3 dlicmd.py COMMAND [OPTION...]", "", "Commands:"]
    lines += [_lay_out(f"{name} {command.operands}", command.about) for name, command in COMMANDS.items()]
    lines += ["", "Options for the connection, of every command:"]
    lines += [_lay_out(f"{name} {value}", about) for name, (value, about) in CONNECTION.items()]
    lines += [_lay_out(old, f"old name of {new}") for old, new in OLD_NAMES.items()]
    lines += ["", "Options for the output:"]
    lines += [_lay_out(f"{name} {value}", about) for name, (value, about) in OUTPUT.items()]
    lines += ["", "Options of --exec-start; unknown options, and all words after ' -- ', go to the program:"]
    lines += [_lay_out(f"{name} {value}", does or f"ignored: {why}") for name, (value, does, why) in SUBMIT.items()]
    lines += [_lay_out(name, f"not supported: {why}") for name, why in REFUSED_OPTIONS.items()]
    lines += ["", "Environment variables, used if the option is not given:"]
    lines += [_lay_out(name, option) for name, option in VARIABLES.items()]
    lines += [
        _lay_out("DLICMD_CA_FILE", "file with certificates of authorities; without it, no certificate is checked")
    ]
    lines += ["", "Exit codes:", *(_lay_out(str(code), about) for code, about in EXIT_CODES.items())]
    return "\n".join(lines)


def _lay_out(left: str, right: str) -> str:
    return f"  {left.strip():<38}  {right}"


def run(words: Sequence[str]) -> int:
    """Run a command line and return its exit code.

    Raises:
        Failure: it cannot be executed.
    """
    for word in words:
        if re.search("[\ud800-\udfff]", word):
            raise Failure(f"The argument {word!a} is not UTF-8 text. Change it.", MISUSED)
    line = read_command_line(words)
    for variable, option in VARIABLES.items():
        if os.environ.get(variable):
            line.options.setdefault(option, os.environ[variable])
    return COMMANDS[line.command].run(line)


def main(words: Sequence[str]) -> int:
    """Run a command line, print errors, and return the exit code."""
    if not words:
        report(render_help())
        return MISUSED
    try:
        try:
            return run(words)
        except Failure as failure:
            if failure.printed:
                say(failure.printed)
            report(str(failure) if str(failure).startswith("Error ") else f"Error: {failure}")
            return failure.code
        except KeyboardInterrupt:
            report("Interrupted.")
            return INTERRUPTED
    except BrokenPipeError:
        # The reader of the output has closed the pipe, so stop writing, also when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE


if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(main(sys.argv[1:]))
