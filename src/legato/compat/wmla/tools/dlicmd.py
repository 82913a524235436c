#!/usr/bin/env python3
"""The command line of IBM Watson Machine Learning Accelerator, spoken to Legato.

One file, the standard library, Python 3.8 or later. It turns one command into a few requests and prints the answers as
users of WMLA and their scripts expect them. It decides nothing about jobs, never runs or imports what it sends, shows a
token only to the server that gave it, and writes only `~/.dlicmd` and the requested result.
Certificates are not checked unless DLICMD_CA_FILE says against what: such servers often have made theirs themselves.
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

# ---------------------------------------------------------------- what a command can end with

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
    """A command cannot be carried out.

    Args:
        message: a sentence for the user.
        code: one of `EXIT_CODES`.
        printed: what scripts look for on the standard output, if there is such a thing.
    """

    def __init__(self, message: str, code: int = REFUSED, printed: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.printed = printed


class Missing(Failure):
    """The server knows no such thing."""


class Away(Failure):
    """The server does not answer; it may do so later."""


class Unreachable(Failure):
    """A request has had no answer, or not all of it.

    Args:
        why: what is wrong with the connection.
        doing: what was tried, at the beginning of a sentence.
    """

    def __init__(self, why: str, doing: str) -> None:
        super().__init__(f"{doing}: {why}.", NOT_REACHED)
        self.why = why


def say(text: str) -> None:
    """Write a line to the standard output, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def tell(text: str) -> None:
    """Write a line to the standard error: what scripts must not take for an answer."""
    sys.stdout.flush()
    sys.stderr.write(make_plain(text) + "\n")


def make_plain(text: str) -> str:
    r"""Return a text without characters that command a terminal.

    >>> make_plain("a\x1b[31mb\n")
    'a?[31mb\n'
    """
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", "?", text)


# ---------------------------------------------------------------- options

API = "/platform/rest/deeplearning/v1"
CONNECTION = {
    "--rest-host": ("HOST", "host of the server; HOST:PORT and https://HOST:PORT work too"),
    "--rest-port": ("PORT", "its port; -1 (default): 443 and 9243 with https, then 80 and 8765 with http"),
    "--username": ("NAME", "who logs on"),
    "--password": ("TEXT", "safer: DLICMD_PASSWORD, or none: --logon asks, or reads the line that you pipe in"),
    "--jwt-token": ("TOKEN", "use this token instead of the one in ~/.dlicmd"),
    "--query-args": ("A=B&C=D", "more arguments for the query of the request"),
    "--debug-level": (
        "LEVEL",
        "anything but 0, off, none, error, warn or info shows the requests on the standard error",
    ),
}
OLD_NAMES = {"--master-host": "--rest-host", "--dli-rest-port": "--rest-port"}
OUTPUT = {
    "-o": ("FORMAT", "json, or custom-columns=A,B"),
    "--output": ("FORMAT", "the same"),
    "--app-search-start": ("N", "leave out the N newest applications (0)"),
    "--app-search-length": ("N", "at most so many applications (10000)"),
}
VARIABLES = {
    "DLICMD_REST_HOST": "--rest-host",
    "DLICMD_REST_PORT": "--rest-port",
    "DLICMD_USERNAME": "--username",
    "DLICMD_PASSWORD": "--password",
    "DLICMD_JWT_TOKEN": "--jwt-token",
}

_CONTAINER = "there are no containers here; the program runs in the server's own Python"
_AMOUNT = "memory and cores are not divided among workers"
_DRIVER = "a driver needs no slot; worker 0 acts for the job"
_PLACE = "the scheduler chooses slots itself; queues limit the slots of users"
_USER = "the operator chooses the system user of jobs"

SUBMIT: dict[str, tuple[str, str, str]] = {
    # name: (what follows it, what it does, why it does nothing here)
    "--model-main": (
        "FILE",
        "the program: in --model-dir, or a file to send, or absolute on the server's machines",
        "",
    ),
    "--model-dir": ("DIR", "this directory is packed and sent", ""),
    "--appName": ("NAME", "name of the application", ""),
    "--ig": ("GROUP", "instance group: the queue of that name", ""),
    "--consumer": ("NAME", "consumer: the queue of that name", ""),
    "--cs-datastore-meta": ("type=fs,data_path=P", "DATA_DIR of the program", ""),
    "--numWorker": ("N", "maximum number of workers", ""),
    "--workerDeviceNum": ("N", "GPUs for each of them: it may have N times as many workers", ""),
    "--gpuPerWorker": ("N", "the same, in 1.2.x", ""),
    "--edt-options": ("maxWorkers=N", "maximum number of workers, in 1.2.x", ""),
    "--msd-env": ("K=V", "variable of the program; may be repeated", ""),
    "--msd-priority": ("INT", "priority, from 1; higher is more", ""),
    "--submit-user": ("NAME", "", "a job belongs to the user who is logged on"),
    "--conda-env-name": ("NAME", "", _CONTAINER),
    "--python-version": ("VERSION", "", _CONTAINER),
    "--data-source": ("JSON", "", "data lies on the server's machines; name it with --cs-datastore-meta"),
    "--workerDeviceType": ("cpu|gpu", "", "a worker runs on the device of its slot, as the server offers it"),
    "--workerCPU": ("N", "", _AMOUNT),
    "--workerMemory": ("SIZE", "", _AMOUNT),
    "--workerCPULimit": ("N", "CPU cores of each worker at most, where the server can limit them", ""),
    "--workerGPULimit": ("N", "", _AMOUNT),
    "--workerMemoryLimit": ("SIZE", "memory of each worker at most, where the server can limit it", ""),
    "--numPs": ("N", "", "there are no parameter servers; gradients are summed among the workers"),
    "--numDriver": ("N", "", _DRIVER),
    "--driverDeviceType": ("cpu|gpu", "", _DRIVER),
    "--driverDeviceNum": ("N", "", _DRIVER),
    "--driverCPU": ("N", "", _DRIVER),
    "--driverMemory": ("SIZE", "", _DRIVER),
    "--driverCPULimit": ("N", "", _DRIVER),
    "--driverGPULimit": ("N", "", _DRIVER),
    "--driverMemoryLimit": ("SIZE", "", _DRIVER),
    "--exclusive": ("", "", "a slot belongs to one worker at a time in any case"),
    "--no-check-certificate": ("", "", "certificates are checked only against DLICMD_CA_FILE"),
    "--cs-rmq-meta": ("TEXT", "", "there is no message queue for data"),
    "--cs-url-meta": ("TEXT", "", "the program must fetch data from addresses itself"),
    "--cs-url-bearer": ("TOKEN", "", "the program must fetch data from addresses itself"),
    "--msd-attr": ("K=V", "", _PLACE),
    "--msd-label": ("K=V", "", _PLACE),
    "--msd-image-name": ("NAME", "", _CONTAINER),
    "--msd-image-pull-secret": ("NAME", "", _CONTAINER),
    "--msd-image-pull-policy": ("NAME", "", _CONTAINER),
    "--msd-pull-secret": ("NAME", "", _CONTAINER),
    "--msd-pull-policy": ("NAME", "", _CONTAINER),
    "--msd-task0-node-selector": ("TEXT", "", _PLACE),
    "--msd-task12n-node-selector": ("TEXT", "", _PLACE),
    "--msd-pending-timeout": ("SECONDS", "", "a job waits for slots until it gets some, or is stopped"),
    "--lsf-gpu-syntax": ("TEXT", "", _PLACE),
    "--msd-podaffinity-rule": ("TEXT", "", _PLACE),
    "--msd-podaffinity-topology-key": ("TEXT", "", _PLACE),
    "--msd-topology-key": ("TEXT", "", _PLACE),
    "--msd-pack-id": ("ID", "", _PLACE),
    "--sc-runasuser": ("ID", "", _USER),
    "--sc-runasgroup": ("ID", "", _USER),
    "--sc-fsgroup": ("ID", "", _USER),
}
REFUSED_OPTIONS = {
    "--user-cmd": "name the program with --model-main FILE, and its arguments behind ' -- '",
    "--pbmodel-name": "there are no prebuilt models; send yours with --model-main FILE --model-dir DIR",
    "--pbmodel-cmd": "there are no prebuilt models; send yours with --model-main FILE --model-dir DIR",
}


class Asked(NamedTuple):
    """What a command line asks for.

    Args:
        command: its first word, such as ``--exec-get``.
        operands: what the command is about: ids, a framework, a name.
        options: those of `CONNECTION` and `OUTPUT` that were given, by their present names.
        submission: of ``--exec-start`` alone: the words to send, without options of the connection.
        model_dir: as given; None: not given.
        model_main: as given; None: not given.
    """

    command: str
    operands: list[str]
    options: dict[str, str]
    submission: list[str]
    model_dir: str | None = None
    model_main: str | None = None

    def number(self, option: str, default: int) -> int:
        """Return the whole number that an option was given."""
        text = self.options.get(option, str(default))
        if re.fullmatch(r"-?[0-9]{1,9}", text) is None:
            raise Failure(f"{option} must be a whole number, not '{text}'.", MISUSED)
        return int(text)


def read_command_line(words: Sequence[str]) -> Asked:
    """Sort the words of a command line.

    Raises:
        Failure: it names no command, or an option that the command does not have, or one without its value.
    """
    command, equals, first = words[0].partition("=")
    if command not in COMMANDS:
        near = ask_whether(command, COMMANDS)
        raise Failure(f"'{words[0]}' is no command.{near} The first word must be one; --help lists them.", MISUSED)
    if COMMANDS[command].run is refuse:
        return Asked(command, [], {}, [])
    rest = [first, *words[1:]] if equals else list(words[1:])
    asked = _read_submission(command, rest) if command == "--exec-start" else _read_others(command, rest)
    rule = COMMANDS[command]
    if not rule.least <= len(asked.operands) <= rule.most:
        wanted = f"needs {rule.operands}" if rule.least else "takes no more than that"
        raise Failure(f"{command} {wanted}; got {' '.join(asked.operands) or 'nothing'}.", MISUSED)
    for name, runs in USERS.items():
        is_shown = name == "--output" and asked.options.get(name) == "json" and rule.run is show_what_lies_there
        if name in asked.options and rule.run not in runs and not is_shown:
            tell(f"Notice: {name} is ignored: {command} has no use for it.")
    return asked


def ask_whether(said: str, known: Iterable[str]) -> str:
    """Return a question that begins with a space, for what may have been meant; nothing where nothing is near.

    >>> ask_whether("--exec-gt", ["--exec-get", "--status"]), ask_whether("-x", ["--status"])
    (' Did you mean --exec-get?', '')
    """
    near = difflib.get_close_matches(said, list(known), 1, 0.8)
    return f" Did you mean {near[0]}?" if near else ""


def _read_others(command: str, words: list[str]) -> Asked:
    asked = Asked(command, [], {}, [])
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        name = _name_option(word)
        if name in CONNECTION or name in OUTPUT:
            asked.options["--output" if name == "-o" else name] = _take_value(word, waiting)
        elif name in SUBMIT:
            _take_value(word, waiting)
            tell(f"Notice: {name} is ignored: {command} has no use for it.")
        elif word.startswith("-"):
            near = ask_whether(name, [*CONNECTION, *OUTPUT])
            raise Failure(f"{command} has no option {name}.{near} --help lists all.", MISUSED)
        else:
            asked.operands.append(word)
    return asked


def _read_submission(command: str, words: list[str]) -> Asked:
    waiting = list(words)
    asked = Asked(command, [waiting.pop(0)] if waiting and not waiting[0].startswith("-") else [], {}, [])
    files: dict[str, str] = {}
    while waiting:
        word = waiting.pop(0)
        name = _name_option(word)
        if word == "--":
            asked.submission.extend([word, *waiting])
            break
        if name in REFUSED_OPTIONS:
            raise Failure(f"{name} is not supported: {REFUSED_OPTIONS[name]}.", NOT_SUPPORTED)
        if name in CONNECTION:
            asked.options[name] = _take_value(word, waiting)
        elif name not in SUBMIT:
            asked.submission.append(word)
        elif not SUBMIT[name][0]:
            asked.submission.append(name)
        else:
            value = _take_value(word, waiting)
            if name in ("--model-dir", "--model-main"):
                files[name] = value
            asked.submission.extend([f"{name}={value}"] if value.startswith("--") else [name, value])
    return asked._replace(model_dir=files.get("--model-dir"), model_main=files.get("--model-main"))


def _name_option(word: str) -> str:
    name = word.partition("=")[0]
    return OLD_NAMES.get(name, name)


def _take_value(word: str, waiting: list[str]) -> str:
    name, equals, value = word.partition("=")
    if equals or (name in SUBMIT and not SUBMIT[name][0]):
        return value
    if not waiting or waiting[0].startswith("--"):
        raise Failure(f"{name} needs a value: {name} VALUE, or {name}=VALUE where it begins with '--'.", MISUSED)
    return waiting.pop(0)


def join_arguments(words: Sequence[str]) -> str:
    r"""Return the argument string of a submission, such that the server reads these very words from it.

    >>> print(join_arguments(["--exec-start", "edtPyTorch", "--", "--title", "it's  a test", ""]))
    --exec-start edtPyTorch -- --title 'it'"'"'s  a test' ''
    """
    return " ".join(
        word if re.fullmatch(r"[\w@%+=:,./{}\[\]-]+", word, re.ASCII) else "'" + word.replace("'", "'\"'\"'") + "'"
        for word in words
    )


# ---------------------------------------------------------------- the server


class Place(NamedTuple):
    """Where a server may answer. ``str()`` of it is what its token is kept under."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def is_here(self) -> bool:
        """Whether it is this machine, as far as its name says."""
        if self.host.lower() == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def list_places(host: str, port: int) -> list[Place]:
    """Return where to look for the server, the likeliest first.

    Args:
        host: a name, HOST:PORT, or an address with a scheme.
        port: -1: not said.

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
        raise Failure(f"'{host}' is no host. Write it as in --rest-host gpu.example.org.", MISUSED)
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
    """The body of a submission: a file as one part of a form."""

    name: str
    content: IO[bytes]
    num_bytes: int


_PROBE_LIMIT_S = 10.0
_ANSWER_LIMIT_S = 120.0
_UPLOAD_LIMIT_S = 600.0
_CHUNK_BYTES = 2**18
_MAX_TRIES = 4
_MAX_PAUSE_S = 10.0


class Server:
    """Asks one server; each request has a connection of its own.

    Args:
        place: where it is.
        is_chatty: tell each request on the standard error.
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
        """Send a request and give its answer, whatever its status.

        Args:
            method: of HTTP.
            path: not yet quoted.
            query: names and values.
            accept: which form of answer is asked for.
            upload: what to send.
            authorization: instead of the server's own.
            limit_s: seconds without a sign of the server.

        Raises:
            Unreachable: the connection cannot be made, or breaks; or what answers is no HTTP.
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
                tell(f"Debug: {method} {self.place}{path}: {answer.status}")
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
        """Send a request; return the status, which is one of success, and the text of the answer.

        A server that is busy is asked again a few times where that does no harm.

        Raises:
            Failure: it cannot be reached, or refuses.
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
        """Return the name of the user, as the server knows it."""
        told = read_json(self.get("GET", "/v1/preauth/validateAuth")[1])
        if not isinstance(told, dict) or not isinstance(told.get("username"), str):
            raise Failure("The server does not say who you are.")
        return str(told["username"])

    def get_json(self, path: str, query: Sequence[tuple[str, str]] = ()) -> Any:
        """Return what is at a path."""
        return read_json(self.get("GET", path, query)[1])


def find_proxy(place: Place) -> urllib.parse.SplitResult | None:
    """Return the proxy to a place, as https_proxy, http_proxy and no_proxy say; None: there is none."""
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
    """Return how connections are encrypted: unchecked, unless DLICMD_CA_FILE names the authorities to trust."""
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
        # A server that will not have an upload may answer before it has read all of it.
        if body is None:
            raise
    return connection.getresponse()


def _make_form(upload: Upload, boundary: str) -> tuple[Iterator[bytes], int]:
    name = upload.name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
    head = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n"
    ).encode("utf-8", "surrogateescape")
    tail = f"\r\n--{boundary}--\r\n".encode()

    def chunks() -> Iterator[bytes]:
        yield head
        left = upload.num_bytes
        while left:
            chunk = upload.content.read(min(left, _CHUNK_BYTES))
            if not chunk:
                raise Failure(f"{upload.name} became shorter while it was sent; nothing was submitted. Try again.")
            left -= len(chunk)
            yield chunk
        yield tail

    return chunks(), len(head) + upload.num_bytes + len(tail)


_UNKNOWN_HOST = "no such host is known"
_SAYINGS: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str], ...]
_SAYINGS = (
    ((socket.gaierror, UnicodeError), _UNKNOWN_HOST),
    ((socket.timeout, TimeoutError), "no answer in time"),
    (ConnectionRefusedError, "nothing listens there"),
    (
        ssl.SSLCertVerificationError,
        "its certificate is not signed by an authority of DLICMD_CA_FILE, or is another host's",
    ),
    (ssl.SSLError, "it does not speak TLS"),
    (http.client.RemoteDisconnected, "it closed the connection"),
    (http.client.IncompleteRead, "part of it is missing"),
    (http.client.HTTPException, "what answers does not speak HTTP"),
)


def describe(error: Exception) -> str:
    """Say what is wrong with a connection or a file."""
    for kind, saying in _SAYINGS:
        if isinstance(error, kind):
            return saying
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).rstrip(".")


def read_chunks(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    """Yield the bytes of an answer.

    Raises:
        Unreachable: the connection broke before they were all there.
    """
    promised = answer.headers.get("Content-Length", "")
    num_bytes = 0
    while True:
        try:
            chunk = answer.read(_CHUNK_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(describe(error), "The connection broke before all of the answer was here") from None
        if not chunk:
            break
        num_bytes += len(chunk)
        yield chunk
    if promised.isdigit() and num_bytes < int(promised):
        why = f"{num_bytes} of {promised} bytes came"
        raise Unreachable(why, "The connection broke before all of the answer was here")


def read_text(answer: http.client.HTTPResponse) -> str:
    """Return the text of an answer."""
    return b"".join(read_chunks(answer)).decode("utf-8", "replace")


def read_json(text: str) -> Any:
    """Read JSON that a server has sent."""
    try:
        return json.loads(text)
    except ValueError:
        raise Failure(f"The server's answer is not JSON: {shorten(text)}") from None


def shorten(text: str) -> str:
    """Return the beginning of a text on one line."""
    return " ".join(text.split())[:300]


def check(answer: http.client.HTTPResponse) -> None:
    """Raise what an answer means if it is not one of success."""
    if 200 <= answer.status < 300:
        return
    if 300 <= answer.status < 400:
        where = answer.headers.get("Location", "somewhere else")
        raise Failure(f"The server sends on to {where}. Name the host and port where it answers itself.")
    told = explain(read_text(answer))
    denied = "Authentication error. The request was denied."
    if answer.status == 401:
        raise Failure(told or "Log on (again) with --logon.", NOT_LOGGED_ON, denied)
    if answer.status == 403:
        raise Failure(told or "You may not do this.", REFUSED, denied)
    message = told if told.startswith(f"Error {answer.status}") else f"Error {answer.status}: {told or answer.reason}"
    if answer.status == 404:
        raise Missing(message)
    if answer.status in (502, 503, 504):
        raise Away(message)
    raise Failure(message, NOT_SUPPORTED if answer.status == 501 else REFUSED)


def explain(text: str) -> str:
    """Return what a refusal says: plain text, or the sentence inside of a JSON object.

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


def find_server(asked: Asked) -> Server:
    """Find where the server answers, by asking for its settings without a token.

    Where the user has logged on before is looked at first; then HTTPS comes before HTTP.

    Raises:
        Failure: no host was given, or WMLA's REST answers at none of the places.
    """
    host = asked.options.get("--rest-host", "").strip()
    if not host:
        raise Failure("Which server? Give --rest-host HOST, or set DLICMD_REST_HOST.", MISUSED)
    level = asked.options.get("--debug-level", "0").lower()
    is_chatty = level not in ("", "0", "off", "none", "error", "warn", "warning", "info")
    kept = read_keys()
    places = list_places(host, asked.number("--rest-port", -1))
    found = []
    for place in sorted(places, key=lambda place: str(place) not in kept):
        server = Server(place, is_chatty)
        try:
            with server.ask("GET", f"{API}/conf", limit_s=_PROBE_LIMIT_S) as answer:
                why = judge(answer)
        except Unreachable as error:
            why = error.why
            if why == _UNKNOWN_HOST:
                raise Failure(f"Cannot reach '{place.host}': {why}. Check --rest-host.", NOT_REACHED) from None
        if not why:
            return server
        found.append(f"{place}: {why}")
    told = "; ".join(found)
    raise Away(f"Cannot find the server. {told}. Check --rest-host and --rest-port.", NOT_REACHED)


def judge(answer: http.client.HTTPResponse) -> str:
    """Return why an answer to the probe is not one of WMLA's REST; empty: it is.

    The password must not go to any other program that answers there, so a refusal counts only in the form of such a
    server.
    """
    kind = answer.headers.get("Content-Type") or ""
    if 300 <= answer.status < 400:
        return f"sends on to {answer.headers.get('Location', 'somewhere else')}"
    if answer.status == 200 and "json" in kind:
        return ""
    text = read_text(answer)
    if answer.status == 421:
        return explain(text) or "it does not know this host"
    if answer.status != 404 and (text.startswith(f"Error {answer.status}") or "problem+json" in kind):
        return ""
    return f"something answers ({answer.status}), but not WMLA's REST"


# ---------------------------------------------------------------- tokens


def keys_path() -> Path:
    """Return the file that keeps tokens."""
    return Path.home() / ".dlicmd"


def read_keys() -> dict[str, str]:
    """Return the tokens that are kept, by server; none, if the file belongs to another user or program."""
    try:
        kept = json.loads(keys_path().read_text(encoding="utf-8"))["tokens"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {key: value for key, value in kept.items() if isinstance(value, str)} if isinstance(kept, dict) else {}


def write_keys(keys: Mapping[str, str]) -> None:
    """Keep these tokens, in a file that was never readable for others."""
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
        raise Failure(f"Cannot keep the token in {path}: {describe(error)}.") from None


def make_basic(name: str, password: str) -> str:
    """Return the header of HTTP's basic authentication."""
    if ":" in name:
        raise Failure(f"A user's name has no colon: '{name}'.", MISUSED)
    return f"Basic {base64.b64encode(f'{name}:{password}'.encode('utf-8', 'surrogateescape')).decode()}"


def make_bearer(token: str) -> str:
    """Return the header that shows a token."""
    if re.fullmatch("[!-~]+", token) is None:
        raise Failure("That is no token: it is empty, or has blanks or characters beyond ASCII in it.")
    return f"Bearer {token}"


def log_on(asked: Asked) -> int:
    """Carry out ``--logon``."""
    server = find_server(asked)
    if server.place.scheme == "http" and not server.place.is_here:
        tell(f"Notice: {server.place} does not encrypt; password and token can be read on their way.")
    token = asked.options.get("--jwt-token")
    if token:
        server.authorization = make_bearer(token)
        server.get("GET", f"{API}/conf")
    else:
        token = fetch_token(server, asked)
    write_keys({**read_keys(), str(server.place): token})
    say(f"Logged on to {server.place}.")
    return DONE


def fetch_token(server: Server, asked: Asked) -> str:
    """Return the token that the server gives for a name and a password."""
    name = asked.options.get("--username") or _ask_for("Username", "--username or DLICMD_USERNAME", input)
    password = asked.options.get("--password") or _ask_for("Password", "DLICMD_PASSWORD", getpass.getpass)
    with server.ask("GET", "/auth/v1/logon", authorization=make_basic(name, password)) as answer:
        check(answer)
        told = read_json(read_text(answer))
    token = told.get("accessToken") if isinstance(told, dict) else None
    if not isinstance(token, str):
        raise Failure("The server's answer holds no token.")
    make_bearer(token)
    return token


def _ask_for(what: str, option: str, ask: Callable[[str], str]) -> str:
    """Ask the user, or read a line of what is piped in."""
    told = ""
    with contextlib.suppress(EOFError, UnicodeDecodeError):
        if sys.stdin is not None:
            told = ask(f"{what}: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    if not told:
        raise Failure(f"{what}? Give {option}, pipe it in as a line, or run this where it can ask.", MISUSED)
    return told


def log_off(asked: Asked) -> int:
    """Carry out ``--logoff``: the token ends on the server, and here in any case."""
    server = open_server(asked)
    try:
        server.get("POST", "/auth/v1/logoff")
    except Failure as failure:
        if failure.code != NOT_LOGGED_ON:
            raise
    finally:
        write_keys({place: token for place, token in read_keys().items() if place != str(server.place)})
    say(f"Logged off from {server.place}.")
    return DONE


def open_server(asked: Asked) -> Server:
    """Find the server, with what it knows the user by: a token, name and password, or the token kept, in this order.

    Raises:
        Failure: there is none of them.
    """
    server = find_server(asked)
    token = asked.options.get("--jwt-token")
    name, password = asked.options.get("--username"), asked.options.get("--password")
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


# ---------------------------------------------------------------- what is printed


def say_json(value: Any) -> None:
    """Write a value as people and programs can read it."""
    say(json.dumps(value, indent=4))


def say_text(text: str) -> None:
    """Write an answer as it is, on lines of its own."""
    sys.stdout.write(text if text.endswith("\n") or not text else text + "\n")
    sys.stdout.flush()


def say_answer(text: str) -> None:
    """Write an answer: JSON laid out for reading, all else as it is."""
    try:
        value = json.loads(text)
    except ValueError:
        say_text(text)
    else:
        say_json(value)


def say_rows(asked: Asked, records: Any, columns: Mapping[str, Callable[[dict[str, Any]], Any]]) -> None:
    """Write records as a table, as JSON, or as a table of columns chosen.

    Args:
        asked: says which, with ``--output``.
        records: what the server has sent.
        columns: how the columns of the table are made of a record, by their titles.
    """
    form = asked.options.get("--output", "")
    rows = [record for record in list_records(records) if isinstance(record, dict)]
    if form == "json":
        say_json(records)
        return
    chosen = [name for name in columns if not form]
    if form.startswith("custom-columns="):
        chosen = [name.strip() for name in form.partition("=")[2].split(",") if name.strip()]
    if not chosen:
        raise Failure(f"--output is json or custom-columns=A,B, not '{form}'.", MISUSED)
    unknown = [name for name in chosen if name not in columns and not any(name in row for row in rows)]
    if unknown and rows:
        known = ", ".join(sorted({*columns, *(key for row in rows for key in row)}))
        raise Failure(f"There is no column {', '.join(unknown)}. There are {known}.", MISUSED)
    say_table([chosen, *([_cell(columns, name, row) for name in chosen] for row in rows)])


def _cell(columns: Mapping[str, Callable[[dict[str, Any]], Any]], name: str, row: dict[str, Any]) -> str:
    value = columns[name](row) if name in columns else row.get(name)
    if value is None or value == "":
        return "-"
    return make_plain(str(value) if not isinstance(value, (dict, list)) else json.dumps(value)).replace("\n", " ")


def say_table(rows: Sequence[Sequence[str]]) -> None:
    """Write rows in columns."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    for row in rows:
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def list_records(value: Any) -> list[Any]:
    """Return the list in an answer: the answer itself, or the one list of an object.

    >>> list_records([1]), list_records({"total": 1, "items": [1]}), list_records({"id": 1})
    ([1], [1], [{'id': 1}])
    """
    if isinstance(value, list):
        return value
    lists = [each for each in value.values() if isinstance(each, list)] if isinstance(value, dict) else []
    keys = set(value) if isinstance(value, dict) else set()
    return lists[0] if len(lists) == 1 and not keys & {"id", "applicationid"} else [value]


def read_time(value: Any) -> float | None:
    """Return a time in seconds since 1970, of such a number or of ISO 8601; None: it is none.

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
    """Return a time as one word that sorts.

    >>> write_time(12), write_time(None)
    ('1970-01-01T00:00:12Z', '')
    """
    seconds = read_time(value)
    if seconds is None:
        return ""
    return datetime.datetime.fromtimestamp(int(seconds), datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def write_span(begin: Any, end: Any) -> str:
    """Return the time between two times in one word; without an end until now.

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
    """Return a number of bytes as in ``1.9K``.

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


def start(asked: Asked) -> int:
    """Carry out ``--exec-start``: pack what is to be sent, send it, say which execution it became."""
    words = ["--exec-start", asked.operands[0], *asked.submission]
    tell_ignored(asked.submission)
    with contextlib.ExitStack() as stack:
        file: Path | None = None
        directory: Path | None = None
        if asked.model_dir is not None:
            directory = find_directory(asked.model_dir, asked.model_main)
            words = replace_value(words, "--model-dir", directory.name)
        elif asked.model_main is not None and not Path(asked.model_main).is_absolute():
            file = Path(asked.model_main).expanduser()
            words = replace_value(words, "--model-main", file.name)
        server = open_server(asked)
        upload = None
        if directory or file:
            say("Copying files and directories ...")
            upload = pack(directory, stack) if directory else open_file(file or Path(), stack)
            say(f"Content size: {write_size(upload.num_bytes)}")
        record = submit(server, [("args", join_arguments(words)), *read_query(asked)], upload)
    if not isinstance(record, dict) or not isinstance(record.get("id"), str):
        raise Failure(f"The server took it, but does not say under which id: {shorten(json.dumps(record))}")
    tell_others(str(record.get("notice") or ""), asked.submission)
    say_json({"execId": record["id"], "appId": record.get("appId") or record["id"]})
    return DONE


def submit(server: Server, query: Sequence[tuple[str, str]], upload: Upload | None) -> Any:
    """Send a submission and return the record of the execution.

    Raises:
        Failure: refused; or the connection broke, and it is unknown whether it was accepted.
    """
    hint = "Look with --exec-get-all whether it was taken before you submit it again."
    try:
        with server.ask("POST", f"{API}/execs/", query, upload=upload, limit_s=_UPLOAD_LIMIT_S) as answer:
            check(answer)
            text = read_text(answer)
    except Unreachable as error:
        raise Failure(f"{error} {hint}", NOT_REACHED) from None
    except KeyboardInterrupt:
        raise Failure(f"Interrupted while it was submitted. {hint}", INTERRUPTED) from None
    return read_json(text)


def tell_ignored(words: Sequence[str]) -> None:
    """Say of each option that does nothing here why that is so."""
    end = words.index("--") if "--" in words else len(words)
    for name in dict.fromkeys(word.partition("=")[0] for word in words[:end]):
        _, does, why = SUBMIT.get(name, ("", "", ""))
        if why and not does:
            tell(f"Notice: {name} is ignored: {why}.")


def tell_others(notice: str, words: Sequence[str]) -> None:
    """Print the server's notices about a submission, except those that were printed already."""
    first = re.match(r"Accepted, but without effect here: (.*?)\.(?: |$)", notice)
    if first and set(first[1].split(", ")) <= {word.partition("=")[0] for word in words}:
        notice = notice[first.end() :]
    if notice:
        tell(f"Notice: {notice}")


def replace_value(words: Sequence[str], option: str, value: str) -> list[str]:
    """Return the words with another value of an option.

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
    """Return the model directory, by a path whose last part is its name.

    Raises:
        Failure: it is none, or the program is not in it.
    """
    given = Path(text).expanduser()
    directory = Path(os.path.abspath(given))  # noqa: PTH100  # `..` goes, links stay: the name is the one that was typed
    if not directory.is_dir():
        found = "it is not a directory" if directory.exists() else "there is no such directory"
        raise Failure(f"Cannot send --model-dir '{text}': {found}.")
    if not directory.name:
        raise Failure(f"Cannot send --model-dir '{text}': it has no name. Send a directory below it.")
    # Both ways of naming it are understood: from the directory on, and with the directory's name before.
    if main is not None and not _is_inside(directory, main):
        raise Failure(f"There is no file '{main}' in '{text}'. --model-main names the program inside of --model-dir.")
    return directory


def _is_inside(directory: Path, main: str) -> bool:
    path = Path(main)
    with_name = path.parts[:1] == (directory.name,) and (directory.parent / path).is_file()
    return path.is_absolute() or (directory / path).is_file() or with_name


def open_file(path: Path, stack: contextlib.ExitStack) -> Upload:
    """Open a program that is sent alone."""
    try:
        content = stack.enter_context(path.open("rb"))
    except OSError as error:
        hint = " Give the directory that it lies in with --model-dir." if not path.exists() else ""
        raise Failure(f"Cannot send --model-main '{path}': {describe(error)}.{hint}") from None
    about = os.fstat(content.fileno())
    if not stat.S_ISREG(about.st_mode):
        raise Failure(f"Cannot send --model-main '{path}': it is not a file.")
    return Upload(path.name, content, about.st_size)


def pack(directory: Path, stack: contextlib.ExitStack) -> Upload:
    """Pack a directory: its own name on top, links as what they lead to, and nothing about whose files they are.

    The same files make the same bytes.
    """
    content: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  # the stack closes it
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
    """Put a file or directory into an archive."""
    about = tar.gettarinfo(str(path), name)
    about.uid = about.gid = 0
    about.uname = about.gname = ""
    if about.isdir():
        tar.addfile(about)
    else:
        with path.open("rb") as file:
            tar.addfile(about, file)


def walk(directory: Path, name: str, above: tuple[tuple[int, int], ...]) -> Iterator[tuple[Path, str]]:
    """Yield a directory and all in it, with their names in the archive, in one order everywhere.

    What is neither file nor directory is left out, and said; so is a link that leads nowhere, or to where it is.
    """
    about = directory.stat()
    here = (about.st_dev, about.st_ino)
    if here in above:
        tell(f"Notice: {directory} is left out: it leads back to a directory that it is in.")
        return
    yield directory, name
    for entry in sorted(directory.iterdir()):
        inside = f"{name}/{entry.name}"
        if entry.is_dir():
            yield from walk(entry, inside, (*above, here))
        elif entry.is_file():
            yield entry, inside
        else:
            found = "a link that leads nowhere" if entry.is_symlink() else "no file"
            tell(f"Notice: {entry} is left out: it is {found}.")


def read_query(asked: Asked) -> list[tuple[str, str]]:
    """Return the further arguments of the query."""
    return urllib.parse.parse_qsl(asked.options.get("--query-args", "").lstrip("?&"), keep_blank_values=True)


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


def show_execs(asked: Asked) -> int:
    """Carry out ``--exec-get-all``."""
    say_rows(asked, open_server(asked).get_json(f"{API}/execs", read_query(asked)), EXEC_COLUMNS)
    return DONE


def show_exec(asked: Asked) -> int:
    """Carry out ``--exec-get``."""
    record = open_server(asked).get_json(f"{API}/execs/{one(asked)}", read_query(asked))
    if asked.options.get("--output", "json") == "json":
        say_json(record)
    else:
        say_rows(asked, record, EXEC_COLUMNS)
    return DONE


def one(asked: Asked) -> str:
    """Return the id or name that a command is about, as one part of a path."""
    text = asked.operands[0]
    if not text or text in (".", "..") or "/" in text:
        raise Failure(f"'{text}' is no id.", MISUSED)
    return text


def stop_exec(asked: Asked) -> int:
    """Carry out ``--exec-stop``."""
    status, _ = open_server(asked).get("POST", f"{API}/execs/{one(asked)}/stop", read_query(asked))
    say(f"Stop exec {one(asked)} succeed. HTTP:{status} ")
    return DONE


def delete_exec(asked: Asked) -> int:
    """Carry out ``--exec-delete``."""
    status, _ = open_server(asked).get("DELETE", f"{API}/execs/{one(asked)}", read_query(asked))
    say(f"Delete exec {one(asked)} succeed. HTTP:{status} ")
    return DONE


def delete_execs(asked: Asked) -> int:
    """Carry out ``--exec-delete-all``."""
    open_server(asked).get("DELETE", f"{API}/execs", read_query(asked))
    say("Execs are deleted")
    return DONE


TRAINING_LOGS = {"--exec-trainlogs": "outerrlog", "--exec-trainoutlogs": "outlog", "--exec-trainerrlogs": "errlog"}


def show_training_log(asked: Asked) -> int:
    """Carry out ``--exec-trainlogs`` and those like it."""
    query = [("logType", TRAINING_LOGS[asked.command]), *read_query(asked)]
    server = open_server(asked)
    with server.ask("GET", f"{API}/execs/{one(asked)}/log", query, accept="text/plain") as answer:
        check(answer)
        if "json" in (answer.headers.get("Content-Type") or ""):
            told = read_json(read_text(answer))
            say_text(told if isinstance(told, str) else json.dumps(told))
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


def show_process_logs(asked: Asked) -> int:
    """Carry out ``--exec-outlogs``, ``--app-outlogs`` and those like them: of the driver, then of each executor."""
    server = open_server(asked)
    base = f"{API}/scheduler/applications/{one(asked)}"
    log = LOGS[asked.command.rpartition("-")[2]]
    for whose in ["driver", *(f"executor/{number}" for number in list_executors(server, one(asked)))]:
        try:
            text = server.get("GET", f"{base}/{whose}/logs/{log}", read_query(asked), accept="text/plain")[1]
        except Missing:
            text = "(there is no such log)"
        say(f"======== {whose.replace('/', ' ')} {log} ========")
        say_text(text)
    return DONE


def list_executors(server: Server, name: str) -> list[int]:
    """Return the numbers of the executors that an application has or had."""
    found = list_records(server.get_json(f"{API}/scheduler/applications", [("applicationid", name)]))
    if not found or not isinstance(found[0], dict):
        raise Failure(f"There is no application {name}.")
    executors = found[0].get("executors") or []
    ends = [re.search("[0-9]+$", str(executor.get("id"))) for executor in executors if isinstance(executor, dict)]
    numbers = [int(end[0]) for end in ends if end]
    return sorted(set(numbers)) if len(set(numbers)) == len(executors) else list(range(1, len(executors) + 1))


def fetch_result(asked: Asked) -> int:
    """Carry out ``--exec-trainresult``: a file in this directory, by the name that the server gives it."""
    server = open_server(asked)
    path = f"{API}/execs/{one(asked)}/result"
    kind = "application/octet-stream"
    with server.ask("GET", path, read_query(asked), accept=kind, limit_s=_UPLOAD_LIMIT_S) as answer:
        check(answer)
        name = choose_name(answer.headers.get("Content-Disposition") or "", one(asked))
        draft = Path(f".{name}.{uuid.uuid4().hex}")
        try:
            save(answer, draft)
            if Path(name).exists():
                tell(f"Notice: {name} was here already and is replaced.")
            draft.replace(name)
        except OSError as error:
            raise Failure(f"Cannot save the result as '{name}': {describe(error)}.") from None
        finally:
            with contextlib.suppress(OSError):
                draft.unlink()
    say(f"Train result is saved to {name}")
    return DONE


def choose_name(disposition: str, execution: str) -> str:
    """Return the name of a result: a plain name of a zip file, whatever the server says.

    >>> choose_name('attachment; filename="dlpd-model-1.zip"; size=7', "j-1")
    'dlpd-model-1.zip'
    >>> choose_name("attachment; filename=../../.bashrc;size=7", "j-1"), choose_name("", "j-1")
    ('bashrc.zip', 'dlpd-model-j-1-result.zip')
    """
    found = re.search(r'filename\s*=\s*(?:"([^"]*)"|([^;]*))', disposition, re.IGNORECASE)
    said = (found[1] or found[2] or "") if found else ""
    name = re.sub(r"[^A-Za-z0-9_.@+-]", "_", re.split(r"[/\\]", said.strip())[-1]).lstrip(".-")[:200]
    if not name:
        return f"dlpd-model-{re.sub(r'[^A-Za-z0-9_-]', '_', execution)[:100]}-result.zip"
    return name if name.endswith(".zip") else f"{name}.zip"


def save(answer: http.client.HTTPResponse, path: Path) -> None:
    """Write an answer into a new file, and see that it is whole.

    Raises:
        Failure: the connection broke on the way, or it is no zip file.
    """
    with path.open("xb") as file:
        for chunk in read_chunks(answer):
            file.write(chunk)
    if not zipfile.is_zipfile(path):
        raise Failure("What came is no zip file, or not all of one. Try again.")


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


def query_applications(asked: Asked, states: Sequence[str]) -> list[tuple[str, str]]:
    """Return the query for applications in some states, the newest first."""
    return [
        ("start", str(asked.number("--app-search-start", 0))),
        ("length", str(asked.number("--app-search-length", 10000))),
        ("sort", "-submit_time"),
        ("state", ",".join(states)),
        *read_query(asked),
    ]


def show_applications(asked: Asked) -> int:
    """Carry out ``--app-get-all`` and ``--app-history-get-all``."""
    is_history = asked.command == "--app-history-get-all"
    states, columns = (ENDED, HISTORY_COLUMNS) if is_history else (ACTIVE, APP_COLUMNS)
    say_rows(asked, open_server(asked).get_json(APPLICATIONS, query_applications(asked, states)), columns)
    return DONE


def show_application(asked: Asked) -> int:
    """Carry out ``--app-get``."""
    record = open_server(asked).get_json(f"{APPLICATIONS}/{one(asked)}", read_query(asked))
    if asked.options.get("--output", "json") == "json":
        say_json(record)
    else:
        say_rows(asked, record, APP_COLUMNS)
    return DONE


def wait_for_application(asked: Asked) -> int:
    """Carry out ``--app-wait``: a line every 10 seconds until the application has ended.

    A server that is away, at the first look as well, is asked again for a while.
    """
    server: Server | None = None
    num_silent = 0
    while True:
        try:
            server = server or open_server(asked)
            record = server.get_json(f"{APPLICATIONS}/{one(asked)}", read_query(asked))
        except (Away, Unreachable) as failure:
            num_silent += 1
            if num_silent > _MAX_SILENT_POLLS:
                raise
            tell(f"Notice: {failure} It is asked again.")
        else:
            num_silent = 0
            record = record if isinstance(record, dict) else {}
            state = str(record.get("state"))
            age = write_span(record.get("submit_time"), record.get("end_time")) or "-"
            say(make_plain(f"{one(asked)} {state} {age}"))
            if state in ENDED:
                return DONE if state == "FINISHED" else NOT_FINISHED
        time.sleep(_POLL_S)


def stop_applications(asked: Asked) -> int:
    """Carry out ``--app-stop`` and ``--app-stop-all``: one after the other, and the others too if one is refused.

    "All" never means the applications of other users, not even for an admin.
    """
    server = open_server(asked)
    names = asked.operands
    if asked.command == "--app-stop-all":
        found = list_records(server.get_json(APPLICATIONS, query_applications(asked, ACTIVE)))
        user = server.find_user()
        mine = [each for each in found if isinstance(each, dict) and each.get("submit_user") == user]
        names = [str(record["id"]) for record in mine if record.get("id")]
    code = DONE
    for name in names:
        one(asked._replace(operands=[name]))
        try:
            status, _ = server.get("PUT", f"{API}/scheduler/applications/{name}/stop")
        except Failure as failure:
            if failure.code != REFUSED:
                raise
            tell(f"{name}: {failure}")
            code = REFUSED
        else:
            say(f"Stop app {name} succeed. HTTP:{status} ")
    return code


def analyze(asked: Asked) -> int:
    """Carry out ``--app-analyze``: what became of the applications of the last hours, and how long they waited."""
    hours = asked.operands[0] if asked.operands else "2"
    if re.fullmatch(r"[0-9]{1,6}(\.[0-9]+)?", hours) is None or not float(hours):
        raise Failure(f"--app-analyze needs a number of hours, not '{hours}'.", MISUSED)
    server = open_server(asked)
    since = time.time() - float(hours) * 3600
    found = list_records(server.get_json(APPLICATIONS, query_applications(asked, (*ACTIVE, *ENDED))))
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


# ---------------------------------------------------------------- the others


def show_what_lies_there(asked: Asked) -> int:
    """Carry out commands that print what is at a path."""
    path, query = PATHS[asked.command], read_query(asked)
    if asked.command.startswith("--k8s-"):
        query = [("type", asked.operands[0]), *(("name", name) for name in asked.operands[1:]), *query]
    elif asked.command == "--pj-get-all":
        query = [("type", "paralleljob"), *query]
    elif asked.operands:
        path = f"{path}/{one(asked)}"
    say_answer(open_server(asked).get("GET", API + path, query)[1])
    return DONE


PATHS = {
    "--status": "/status",
    "--dl-frameworks": "/execs/frameworks",
    "--rp-get-all": "/resplans/resplantree",
    "--rp-get": "/resplans/resplan",
    "--pj-get-all": "/scheduler/kubernetesobjects",
    "--k8s-obj-get-all": "/scheduler/kubernetesobjects",
    "--k8s-obj-get": "/scheduler/kubernetesobjects",
}


def delete_plan(asked: Asked) -> int:
    """Carry out ``--rp-delete``."""
    status, _ = open_server(asked).get("DELETE", f"{API}/resplans/resplan/{one(asked)}", read_query(asked))
    say(f"Delete resource plan {one(asked)} succeed. HTTP:{status} ")
    return DONE


INSTEAD = {
    "--hpo": "submit one exec for each set of parameters: --exec-start ... -- --lr 0.1; they share the slots",
    "--exec-deploy": "fetch the model with --exec-trainresult and serve it with the server of your choice",
}


def refuse(asked: Asked) -> int:
    """Refuse what Legato does not have."""
    instead = next(text for beginning, text in INSTEAD.items() if asked.command.startswith(beginning))
    raise Failure(f"{asked.command} is not supported: {instead}.", NOT_SUPPORTED)


def show_help(_: Asked) -> int:
    """Carry out ``--help``."""
    say(render_help())
    return DONE


class Command(NamedTuple):
    """What is behind the first word of a command line.

    Args:
        run: carries it out and returns the exit code.
        about: for the help.
        operands: what follows it, for the help.
        least: so many operands at least.
        most: and at most.
    """

    run: Callable[[Asked], int]
    about: str
    operands: str = ""
    least: int = 0
    most: int = 0


_MANY = 10**6


def _of_one(run: Callable[[Asked], int], about: str, operand: str = "ID") -> Command:
    return Command(run, about, operand, 1, 1)


COMMANDS: dict[str, Command] = {
    "--help": Command(show_help, "this"),
    "-h": Command(show_help, "this"),
    "--logon": Command(log_on, "fetch a token and keep it in ~/.dlicmd"),
    "--logoff": Command(log_off, "end the token"),
    "--status": Command(show_what_lies_there, "state of the server"),
    "--dl-frameworks": Command(show_what_lies_there, "frameworks for --exec-start"),
    "--exec-start": _of_one(start, "submit a training", "FRAMEWORK"),
    "--exec-get-all": Command(show_execs, "executions that you may see, as a table"),
    "--exec-get": _of_one(show_exec, "an execution"),
    "--exec-stop": _of_one(stop_exec, "stop it"),
    "--exec-delete": _of_one(delete_exec, "stop it if it runs, and hide it"),
    "--exec-delete-all": Command(delete_execs, "the same with all of yours"),
    "--exec-deploy": Command(refuse, "not supported", "ID", 0, _MANY),
    "--exec-launcherlogs": _of_one(show_process_logs, "logs of the launchers of its processes"),
    "--exec-outlogs": _of_one(show_process_logs, "standard output of each of its processes"),
    "--exec-errlogs": _of_one(show_process_logs, "standard error of each of its processes"),
    "--exec-trainlogs": _of_one(show_training_log, "what the program wrote, on both"),
    "--exec-trainoutlogs": _of_one(show_training_log, "what the program wrote to its standard output"),
    "--exec-trainerrlogs": _of_one(show_training_log, "what the program wrote to its standard error"),
    "--exec-trainresult": _of_one(fetch_result, "fetch the trained model, as a zip file in this directory"),
    "--app-get-all": Command(show_applications, "applications that wait or run, as a table"),
    "--app-history-get-all": Command(show_applications, "applications that have ended, as a table"),
    "--app-get": _of_one(show_application, "an application"),
    "--app-wait": _of_one(wait_for_application, "until it has ended, a line every 10 s: id, state, age"),
    "--app-stop": Command(stop_applications, "stop them", "ID...", 1, _MANY),
    "--app-stop-all": Command(stop_applications, "stop all of yours"),
    "--app-analyze": Command(analyze, "what became of those of the last hours (2)", "[HOURS]", 0, 1),
    "--app-launcherlogs": _of_one(show_process_logs, "as --exec-launcherlogs"),
    "--app-outlogs": _of_one(show_process_logs, "as --exec-outlogs"),
    "--app-errlogs": _of_one(show_process_logs, "as --exec-errlogs"),
    "--rp-get-all": Command(show_what_lies_there, "resource plans: the queues"),
    "--rp-get": _of_one(show_what_lies_there, "a resource plan", "NAME"),
    "--rp-delete": _of_one(delete_plan, "delete a resource plan that no job is in; an admin's", "NAME"),
    "--pj-get-all": Command(show_what_lies_there, "parallel jobs"),
    "--k8s-obj-get-all": _of_one(show_what_lies_there, "objects of a type: pod, paralleljob", "TYPE"),
    "--k8s-obj-get": Command(show_what_lies_there, "one of them", "TYPE NAME", 2, 2),
    "--hpo-start": Command(refuse, "not supported", "FILE", 0, _MANY),
    "--hpo-get-all": Command(refuse, "not supported", "", 0, _MANY),
    "--hpo-get": Command(refuse, "not supported", "NAME", 0, _MANY),
    "--hpo-stop": Command(refuse, "not supported", "NAME", 0, _MANY),
    "--hpo-restart": Command(refuse, "not supported", "NAME", 0, _MANY),
    "--hpo-delete": Command(refuse, "not supported", "NAME", 0, _MANY),
    "--hpo-delete-all": Command(refuse, "not supported", "", 0, _MANY),
    "--hpo-algorithm-get-all": Command(refuse, "not supported", "", 0, _MANY),
    "--hpo-algorithm-get": Command(refuse, "not supported", "NAME", 0, _MANY),
    "--hpo-algorithm-delete": Command(refuse, "not supported", "NAME", 0, _MANY),
}


USERS = {
    "--output": (show_execs, show_exec, show_applications, show_application),
    "--app-search-start": (show_applications, stop_applications, analyze),
    "--app-search-length": (show_applications, stop_applications, analyze),
}
"""Who has a use for the options of what is printed."""


def render_help() -> str:
    """Return the help: every command, option, variable and exit code."""
    lines = ["Usage: python3 dlicmd.py COMMAND [OPTION...]", "", "Commands:"]
    lines += [_lay_out(f"{name} {command.operands}", command.about) for name, command in COMMANDS.items()]
    lines += ["", "Of the connection, with every command:"]
    lines += [_lay_out(f"{name} {value}", about) for name, (value, about) in CONNECTION.items()]
    lines += [_lay_out(old, f"old name of {new}") for old, new in OLD_NAMES.items()]
    lines += ["", "Of what is printed:"]
    lines += [_lay_out(f"{name} {value}", about) for name, (value, about) in OUTPUT.items()]
    lines += ["", "Of --exec-start; what is not known, and all after ' -- ', goes to the program:"]
    lines += [_lay_out(f"{name} {value}", does or f"ignored: {why}") for name, (value, does, why) in SUBMIT.items()]
    lines += [_lay_out(name, f"not supported: {why}") for name, why in REFUSED_OPTIONS.items()]
    lines += ["", "Variables, where an option is not given:"]
    lines += [_lay_out(name, option) for name, option in VARIABLES.items()]
    lines += [_lay_out("DLICMD_CA_FILE", "certificates of authorities; without it none are checked")]
    lines += ["", "Exit codes:", *(_lay_out(str(code), about) for code, about in EXIT_CODES.items())]
    return "\n".join(lines)


def _lay_out(left: str, right: str) -> str:
    return f"  {left.strip():<38}  {right}"


def carry_out(words: Sequence[str]) -> int:
    """Carry out a command line and return its exit code.

    Raises:
        Failure: it cannot be carried out.
    """
    for word in words:
        if re.search("[\ud800-\udfff]", word):
            raise Failure(f"{word!a} is not text in UTF-8. Rename it.", MISUSED)
    asked = read_command_line(words)
    for variable, option in VARIABLES.items():
        if os.environ.get(variable):
            asked.options.setdefault(option, os.environ[variable])
    return COMMANDS[asked.command].run(asked)


def main(words: Sequence[str]) -> int:
    """Carry out a command line, say what went wrong, and return the exit code."""
    if not words:
        tell(render_help())
        return MISUSED
    try:
        try:
            return carry_out(words)
        except Failure as failure:
            if failure.printed:
                say(failure.printed)
            tell(str(failure) if str(failure).startswith("Error ") else f"Error: {failure}")
            return failure.code
        except KeyboardInterrupt:
            tell("Interrupted.")
            return INTERRUPTED
    except BrokenPipeError:
        # Who read the output has had enough of it; nothing is written any more, at the end of the interpreter either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE


if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(main(sys.argv[1:]))
