"""`elasticdl zoo`: a Dockerfile for a folder of programs, and Docker's own command to build and push its image."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path, PurePosixPath
from typing import Final

from legato.compat.elasticdl.arguments import ParsedCommand
from legato.core.errors import UsageError

_MARK: Final = "# Written by 'elasticdl zoo init'."
_OLD_PYTHON: Final = re.compile(r"python:(2|3\.(?:[0-9]|10))(?![0-9])")
_NO_DOCKER: Final = (
    "The program 'docker', which builds and pushes images, is not installed. Jobs on this machine need no image: "
    "'elasticdl train' uploads the current folder. For a cluster, install Docker and repeat this command."
)


def render_dockerfile(asked: ParsedCommand) -> str:
    """Return the Dockerfile.

    Raises:
        UsageError: a folder is not inside of the one in which Docker builds, or the index or image is no single word.
    """
    index = _check_word(asked.text("extra_pypi_index"), "extra_pypi_index")
    pip = "pip install --no-cache-dir" + (f" --extra-index-url={shlex.quote(index)}" if index else "")
    lines = [_MARK, f"FROM {_check_word(asked.text('base_image'), 'base_image')}", ""]
    packages = asked.text("local_pkg_dir")
    if packages:
        lines += [f"COPY {_inside(packages, 'local_pkg_dir')} /packages", f"RUN {pip} /packages/*"]
    lines += [f"RUN {pip} 'legato[elasticdl,kubernetes,train]'", ""]
    if asked.text("cluster_spec"):
        lines.append(f"COPY {_inside(asked.text('cluster_spec'), 'cluster_spec')} /cluster_spec/")
    lines += [
        f"COPY {_inside(asked.text('model_zoo'), 'model_zoo')} /model_zoo",
        f"RUN if [ -f /model_zoo/requirements.txt ]; then {pip} -r /model_zoo/requirements.txt; fi",
        "ENV PYTHONPATH=/model_zoo PYTHONUNBUFFERED=0",
    ]
    return "\n".join(lines) + "\n"


def write_dockerfile(asked: ParsedCommand, here: Path) -> list[str]:
    """Write ``Dockerfile`` into a folder, and return messages for the user.

    Raises:
        UsageError: the folder contains a Dockerfile that Legato did not write.
    """
    text = render_dockerfile(asked)
    file = here / "Dockerfile"
    if file.exists() and not file.read_text(errors="replace").startswith(_MARK):
        raise UsageError(f"{here} already contains a Dockerfile. Move it away, or build with it.")
    file.write_text(text)
    messages = [f"{file} is written. Build the image with: elasticdl zoo build --image=NAME ."]
    if not asked.text("local_pkg_dir"):
        messages.append(
            "pip gets Legato from your package index. If that does not contain it, put its wheel into a folder, and "
            "add --local_pkg_dir=FOLDER."
        )
    if _OLD_PYTHON.search(asked.text("base_image")):
        base = asked.text("base_image")
        messages.append(f"Legato needs Python 3.11 or later, which {base} does not have. Use python:3.11.")
    return messages


def run_docker(asked: ParsedCommand) -> int:
    """Build or push an image, and return Docker's exit code.

    Raises:
        UsageError: Docker is not installed, or the folder has no Dockerfile.
    """
    docker = shutil.which("docker")
    if docker is None:
        raise UsageError(_NO_DOCKER)
    words = ["push", asked.text("image")]
    if asked.command == "zoo build":
        folder = asked.text("path")
        # A path that is not a folder may be an address, or the standard input: Docker checks it.
        if Path(folder).is_dir() and not (Path(folder) / "Dockerfile").is_file():
            raise UsageError(f"There is no Dockerfile in folder {folder}. Write one with 'elasticdl zoo init' there.")
        words = ["build", "-t", asked.text("image"), asked.text("path")]
    return subprocess.run([docker, *words], check=False).returncode


def _check_word(said: str, flag: str) -> str:
    # A second line would be another instruction of Docker, and a second word another argument.
    if any(sign.isspace() or not sign.isprintable() for sign in said) or said.startswith("-"):
        raise UsageError(f"Cannot use --{flag}={said[:200]!r}: it must be one word, without blanks and new lines.")
    return said


def _inside(said: str, flag: str) -> str:
    path = PurePosixPath(said)
    if path.is_absolute() or ".." in path.parts or not said or any(sign in said for sign in ' \t\n"'):
        raise UsageError(
            f"Cannot use --{flag}={said[:200]}: Docker copies only from the current folder. Give a path inside of it, "
            "without blanks and quotes."
        )
    return str(path)
