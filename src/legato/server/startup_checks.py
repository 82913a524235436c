"""Checks before a server starts: a home directory that only this server uses, and a port to listen on.

A failed check is an error that says what to do, and nothing was started. This module imports little, so that a server
that cannot start fails quickly.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import ipaddress
import os
import resource
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from legato.control.settings import Settings
from legato.core.errors import UsageError
from legato.driver.journal import list_platform_jobs
from legato.system.decoding import decode
from legato.system.hosts import Machine, find_this_machine

_LOCK: Final = "server.lock"
_MAX_LOCK_BYTES: Final = 4096
_OPEN_TO_OTHERS: Final = 0o066
_DATA: Final = "data"
_FOLDERS: Final = {"jobs", "code", "homes", "tls", _DATA}
_ONLY_OURS: Final = {"home-id", "legato.db", "legato.toml"}
_BACKLOG: Final = 1024
_NUM_FILES: Final = 65_536


@contextlib.contextmanager
def enter(settings: Settings) -> Iterator[list[socket.socket]]:
    """Open and lock the home directory, and yield the sockets on which the server listens.

    Raises:
        UsageError: the directory or the port cannot be used.
    """
    allow_files()
    open_home(settings.home_path)
    with contextlib.ExitStack() as stack:
        stack.enter_context(hold_home(settings.home_path, is_shared=not settings.store_url.startswith("sqlite:")))
        sockets = listen(settings)
        for opened in sockets:
            stack.callback(opened.close)
        yield sockets


def open_home(home: Path) -> None:
    """Create the home directory of the platform if it does not exist, and make sure that other users cannot read it.

    Raises:
        UsageError: the directory cannot be created or written, or it is open to other users and cannot be closed.
    """
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        close_home(home)
        with tempfile.TemporaryFile(dir=home):
            pass
    except OSError as error:
        raise UsageError(
            f"Cannot write to '{home}': {error.strerror or error}. Make it a directory that this user can "
            "write to, or name another with the setting home."
        ) from error


def close_home(home: Path) -> None:
    """Remove the access of other system users to a home and its content, if they may read or write the home.

    A home that others can only pass through, because jobs run as other users, stays as it is. The folder ``data`` also
    stays as it is, because the operator decides who may read it. A directory with files that are not Legato's, such as
    ``/srv``, is refused and not changed.

    Raises:
        UsageError: the mode cannot be changed, or the directory has files that are not Legato's.
    """
    if not home.stat().st_mode & _OPEN_TO_OTHERS:
        return
    names = {name for name in os.listdir(home) if not name.startswith(".")}
    if not names & _ONLY_OURS and not names <= _FOLDERS:
        raise UsageError(
            f"Cannot use '{home}': other users of this machine can read it, and it holds files that are not Legato's. "
            f"Name a directory of its own with the setting home, or close this one yourself: chmod go-rwx '{home}'"
        )
    try:
        home.chmod(0o700)
    except OSError as error:
        raise UsageError(
            f"Cannot use '{home}': other users of this machine can read it, and it cannot be changed "
            f"({error.strerror}). As its owner: chmod -R go-rwx '{home}'"
        ) from error
    # Its content too, because if jobs run as other users, the server lets these pass through the home again.
    with contextlib.suppress(RecursionError):  # a job has nested more folders; the ones above them are closed already
        for folder, folders, files, at in os.fwalk(home):
            if Path(folder) == home:
                folders[:] = [name for name in folders if name != _DATA]
            for name in (*folders, *files):
                with contextlib.suppress(OSError):  # the file belongs to another user, or was deleted meanwhile
                    _close(name, at)


def _close(name: str, folder: int) -> None:
    """Remove others' access to one file or folder. A job may replace it by a link, which is not followed."""
    if not os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode & _OPEN_TO_OTHERS:
        return
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.fchmod(descriptor, stat.S_IMODE(os.fstat(descriptor).st_mode) & ~_OPEN_TO_OTHERS)
    finally:
        os.close(descriptor)


def allow_files() -> int:
    """Raise the limit of open files of this process as far as the system allows, up to 65,536. Return the limit.

    Each connection needs one, and the usual 1024 are fewer than the streams of two users.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _NUM_FILES if hard == resource.RLIM_INFINITY else min(hard, _NUM_FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return _NUM_FILES if soft == resource.RLIM_INFINITY else soft
    with contextlib.suppress(OSError, ValueError):  # some systems allow less than they report
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


@contextlib.contextmanager
def hold_home(home: Path, *, is_shared: bool) -> Iterator[None]:
    """Lock a home directory against other servers during the block.

    Without ``is_shared``, the home belongs to one machine: the lock names it as long as a server or a job runs. Not all
    shared disks know locks between machines, and a machine cannot see whether the jobs of another one still run.

    Args:
        home: home directory of the platform.
        is_shared: allow other servers that share the directory too, because their store allows several servers.

    Raises:
        UsageError: another server has locked the directory; or it is in use by another machine, as far as known.
    """
    descriptor = os.open(home / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"Cannot start: another server runs on '{home}'. Use that one, stop it, or name another directory with "
                "the setting home. Several servers on one directory need PostgreSQL, all of them."
            ) from None
        if is_shared:
            yield
            return
        machine = find_this_machine()
        _check_machine(descriptor, home, machine)
        _write_machine(descriptor, msgspec.json.encode(machine))
        try:
            yield
        finally:
            if not any(job.is_locked() for job in list_platform_jobs(home)):
                _write_machine(descriptor, b"")
    finally:
        os.close(descriptor)


def _check_machine(descriptor: int, home: Path, machine: Machine) -> None:
    with contextlib.suppress(msgspec.DecodeError):  # free, or locked by an earlier release
        last = decode(os.pread(descriptor, _MAX_LOCK_BYTES, 0), Machine)
        if not last.is_same(machine):
            raise UsageError(
                f"Cannot start: '{home}' is in use by the machine {last.name}. Its server runs, or was killed, or jobs "
                "ran when it stopped; they may still run there. With SQLite, only one machine may run a server on a "
                f"home. Start the server on {last.name}, and stop it when no job runs. If {last.name} is lost, or "
                f"nothing of Legato runs there, delete '{home / _LOCK}', and start this server again. For servers on "
                "several machines that take over from one another, use PostgreSQL (database_url)."
            )


def _write_machine(descriptor: int, content: bytes) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, content, 0)


def listen(settings: Settings) -> list[socket.socket]:
    """Listen on the host and port of the settings. Return one socket for each address of the host.

    Raises:
        UsageError: the server cannot listen there.
    """
    host, port = settings.host, settings.port
    where = f"{host}:{port}"
    sockets: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        addresses = list(dict.fromkeys((family, address) for family, _, _, _, address in found))
        for family, address in addresses if port else addresses[:1]:
            sockets.append(_bind(family, address))
    except socket.gaierror as error:
        raise UsageError(
            f"Cannot listen on {where}: '{host}' is not a host name or address ({error.strerror}). Change the "
            "setting host."
        ) from None
    except OSError as error:
        for opened in sockets:
            opened.close()
        raise UsageError(f"Cannot listen on {where}: {_explain(error)}") from error
    return sockets


def is_loopback(sockets: list[socket.socket]) -> bool:
    """Return whether only programs of this machine can reach the server."""
    return all(ipaddress.ip_address(opened.getsockname()[0].partition("%")[0]).is_loopback for opened in sockets)


def find_url(settings: Settings, sockets: list[socket.socket]) -> str:
    """Return the URL by which programs on this machine reach the server."""
    family, (host, port) = sockets[0].family, sockets[0].getsockname()[:2]
    scheme = "https" if settings.has_tls else "http"
    if host in ("0.0.0.0", "::") or settings.host == "localhost":  # noqa: S104 -- compared, not bound
        return f"{scheme}://localhost:{port}"
    if settings.tls_files is not None and is_loopback(sockets[:1]):
        return f"{scheme}://localhost:{port}"  # this name has a certificate of its own
    return f"{scheme}://[{host}]:{port}" if family == socket.AF_INET6 else f"{scheme}://{host}:{port}"


def _bind(family: int, address: tuple[object, ...]) -> socket.socket:
    # With an explicit protocol, because asyncio sets TCP_NODELAY only then. Without it, small answers are 40 ms late.
    opened = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # So that the old connections of a server that was just killed do not block the port.
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        opened.bind(address)
        # Listen already here, because only this fails if another process has bound the port with the same option.
        opened.listen(_BACKLOG)
    except OSError:
        opened.close()
        raise
    return opened


def _explain(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "something else listens there. Stop it, or choose another port (0: any free one)."
    if error.errno == errno.EACCES:
        return "ports below 1024 are for the system. Choose a higher one."
    if error.errno == errno.EADDRNOTAVAIL:
        return "it is not an address of this machine. Change the setting host."
    return f"{error.strerror or error}. Change the settings host and port."
