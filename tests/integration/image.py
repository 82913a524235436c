"""Runs the steps of the ``Containerfile`` in a root file system, and programs in the image that they make.

It stands for a builder and a runtime of containers where there are none. Real are the wheel, the instructions, their
order, users, variables and commands, and the packages that pip installs. In place of the base image, the root file
system gets ``/usr`` of this machine, read-only, and a fresh virtual environment of this Python.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

ENVIRONMENT: Final = "/srv/python"
_ETC: Final = ("alternatives", "default", "group", "gshadow", "hosts", "login.defs", "nsswitch.conf", "passwd")
_ETC_OF_PIP: Final = ("pip.conf", "resolv.conf", "shadow", "ssl", "xdg")
UNREACHABLE: Final = ("Failed to establish a new connection", "Temporary failure in name resolution", "timed out")
_LINKS: Final = ("bin", "lib", "lib64", "sbin")


def why_not() -> str | None:
    """Return why no image can be built here; None: it can."""
    if os.geteuid() != 0:
        return "a root file system needs root"
    missing = [name for name in ("unshare", "chroot", "useradd", "mount") if shutil.which(name) is None]
    if missing:
        return f"there is no program {missing[0]}"
    tried = subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True, text=True)
    return f"unshare fails: {tried.stderr.strip()}" if tried.returncode else None


class NoIndex(Exception):
    """pip finds no package index."""


class Image:
    """What the instructions of a Containerfile make.

    Args:
        root: of its file system, a new folder.
        context: folder from which ``COPY`` copies.

    Attributes:
        variables: that ``ENV`` has set.
        user: ``UID:GID`` of its programs.
        entrypoint: words.
        command: words.
    """

    def __init__(self, root: Path, context: Path) -> None:
        self.root, self._context = root, context
        self.variables = {"PATH": f"{ENVIRONMENT}/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
        self.user, self._folder = "0:0", "/"
        self.entrypoint: list[str] = []
        self.command: list[str] = []
        self._arguments: dict[str, str] = {}
        self._read_only = [Path("/usr"), *([Path("/opt")] if Path("/opt").exists() else ())]
        if not sys.base_prefix.startswith("/usr"):
            self._read_only.append(Path(sys.base_prefix))

    def build(self, file: Path, **arguments: str) -> None:
        """Run the instructions of a Containerfile; ``arguments``: of the build."""
        for name, rest in read_instructions(file.read_text()):
            getattr(self, f"_do_{name.lower()}")(rest, arguments)

    def _do_from(self, rest: str, arguments: Mapping[str, str]) -> None:
        release = f"{sys.version_info[0]}.{sys.version_info[1]}"
        assert rest.startswith("docker.io/library/python:"), rest
        self.root.mkdir()
        for name in ("dev", "etc", "proc", "srv", "sys", "tmp", "var/lib", "run"):
            (self.root / name).mkdir(parents=True)
        (self.root / "tmp").chmod(0o1777)
        for name in _LINKS:
            (self.root / name).symlink_to(f"usr/{name}")
        for folder in self._read_only:
            (self.root / folder.relative_to("/")).mkdir(parents=True, exist_ok=True)
        for name in (*_ETC, *_ETC_OF_PIP):
            source, target = Path("/etc") / name, self.root / "etc" / name
            if source.is_dir():
                shutil.copytree(source, target, symlinks=True)
            elif source.exists():
                shutil.copy(source, target)
        base = Path(sys.base_prefix) / f"bin/python{release}"
        (self.root / ENVIRONMENT[1:]).parent.mkdir(exist_ok=True)
        self._run([str(base), "-m", "venv", ENVIRONMENT], {})

    def _do_arg(self, rest: str, arguments: Mapping[str, str]) -> None:
        name, _, default = rest.partition("=")
        self._arguments[name] = arguments.get(name, default)

    def _do_copy(self, rest: str, arguments: Mapping[str, str]) -> None:
        *sources, target = rest.split()
        found = [path for source in sources for path in sorted(self._context.glob(source))]
        assert found and target.endswith("/"), rest
        (self.root / target[1:]).mkdir(parents=True, exist_ok=True)
        for path in found:
            shutil.copy(path, self.root / target[1:])

    def _do_run(self, rest: str, arguments: Mapping[str, str]) -> None:
        pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        # Where the index of torch cannot be reached, pip takes it from another one, and need not wait for long.
        self._run(["/bin/sh", "-c", rest], {"PIP_RETRIES": "1"} | pip | self._arguments)

    def _run(self, command: list[str], more: Mapping[str, str]) -> None:
        done = subprocess.run(self._enter(command, more), capture_output=True, text=True)
        if done.returncode and any(told in done.stderr for told in UNREACHABLE):
            raise NoIndex(done.stderr[-1000:])
        assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"

    def _do_user(self, rest: str, arguments: Mapping[str, str]) -> None:
        self.user = rest

    def _do_env(self, rest: str, arguments: Mapping[str, str]) -> None:
        self.variables |= dict(word.split("=", 1) for word in shlex.split(rest))

    def _do_workdir(self, rest: str, arguments: Mapping[str, str]) -> None:
        (self.root / rest[1:]).mkdir(parents=True, exist_ok=True)
        self._folder = rest

    def _do_expose(self, rest: str, arguments: Mapping[str, str]) -> None:
        assert rest.isdigit()

    def _do_entrypoint(self, rest: str, arguments: Mapping[str, str]) -> None:
        self.entrypoint = json.loads(rest)

    def _do_cmd(self, rest: str, arguments: Mapping[str, str]) -> None:
        self.command = json.loads(rest)

    def start(self, command: list[str], volumes: Mapping[str, Path], **options: Any) -> subprocess.Popen[str]:
        """Start a program as the user of the image; it can write into the volumes only.

        Args:
            command: whole, or words for the entrypoint.
            volumes: path in the container → folder of this machine.
            options: of Popen; ``env`` are more variables, ``entrypoint`` replaces that of the image.
        """
        more, entrypoint = options.pop("env", {}), options.pop("entrypoint", self.entrypoint)
        whole = self._enter([*entrypoint, *command], more, volumes)
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, **options}
        return subprocess.Popen(whole, text=True, stderr=subprocess.STDOUT, **options)

    def _enter(
        self, command: list[str], more: Mapping[str, str], volumes: Mapping[str, Path] | None = None
    ) -> list[str]:
        """Return the command that runs a command in the root file system, with mounts that end with it."""
        root = shlex.quote(str(self.root))
        lines = ["mount --make-rprivate /", f"mount --bind {root} {root}"]
        for folder in self._read_only:
            lines += [f"mount --bind {folder} {root}{folder}", f"mount -o remount,bind,ro {root}{folder}"]
        lines += [f"mount -t proc proc {root}/proc", f"mount --rbind /dev {root}/dev"]
        for inside, folder in (volumes or {}).items():
            lines.append(f"mount --bind {shlex.quote(str(folder))} {root}{inside}")
        if volumes is not None:
            lines.append(f"mount -o remount,bind,ro {root}")
        words = shlex.join(f"{name}={value}" for name, value in {**self.variables, **more}.items())
        inner = f'cd {self._folder} && exec "$@"'
        # The shell stays, as root: all processes end with it, and it with the one that this command starts.
        chroot = f"chroot --userspec={self.user} {root} env -i {words} /bin/sh -c {shlex.quote(inner)}"
        lines.append(f'{chroot} sh "$@" || exit $?')
        script = "\n".join(("set -eu", *lines))
        unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        return [*unshare, "/bin/sh", "-c", script, "sh", *command]


def read_instructions(text: str) -> list[tuple[str, str]]:
    r"""Return the instructions of a Containerfile: names and the rest of their lines.

    >>> read_instructions("FROM a\n# a word\nRUN b && \\\n    c\n")
    [('FROM', 'a'), ('RUN', 'b &&     c')]
    """
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", "")
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in joined.splitlines() if line.strip()]
