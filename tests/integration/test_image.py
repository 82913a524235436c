"""The image of server and agents: the steps of its Containerfile, with the real wheel; both start from it and train."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.integration.cluster_program import DIGEST, PROGRAM, train_alone
from tests.integration.image import Image, NoIndex, why_not
from tests.ports import find_port

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]

ROOT: Final = Path(__file__).parents[2]
LIMIT_S: Final = 120.0
EPOCHS: Final = 2
CPU_ONLY: Final = "https://download.pytorch.org/whl/cpu"
USER: Final = 10001


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    if reason := why_not():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("image")
    folder.chmod(0o755)
    context = folder / "context"
    context.mkdir()
    without = {} if (ROOT / "src/legato/server/pages/index.html").exists() else {"LEGATO_WITHOUT_CONSOLE": "1"}
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(context / "dist"), "."]
    subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, **without})
    shutil.copy(ROOT / "constraints.txt", context)
    made = Image(folder / "root", context)
    try:
        try:
            made.build(ROOT / "Containerfile", TORCH_INDEX=CPU_ONLY)
        except NoIndex as error:
            pytest.skip(f"pip reaches no package index: {error}")
        yield made
    finally:
        shutil.rmtree(folder / "root", ignore_errors=True)


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + LIMIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.2)
    return found


def make_volumes(folder: Path) -> dict[str, Path]:
    """Return the volumes that the manifests mount: a home, and a folder for temporary files."""
    volumes = {"/var/lib/legato": folder / "home", "/tmp": folder / "tmp"}
    for path in volumes.values():
        path.mkdir(parents=True)
        os.chown(path, USER, USER)
    return volumes


def test_the_image_has_all_that_a_server_needs_and_nothing_is_left_of_its_building(image: Image) -> None:
    assert list((image.root / "tmp").iterdir()) == []
    assert not (image.root / "etc/machine-id").exists()
    assert f"legato:x:{USER}:{USER}::/var/lib/legato:/usr/sbin/nologin" in (image.root / "etc/passwd").read_text()
    modules = "legato, torch, kubernetes_asyncio, psycopg, optuna, grpc, pynvml"
    code = f"import {modules}; print(legato.__file__, torch.__version__)"
    volumes = make_volumes(image.root.parent / "modules")
    running = image.start(["-c", code], volumes, entrypoint=["python"])
    told, _ = running.communicate(timeout=LIMIT_S)
    assert running.returncode == 0, told
    assert told.startswith("/srv/python/lib/")
    pinned = re.search(r"^torch==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned is not None
    assert told.split()[1].partition("+")[0] == pinned[1]


class Platform:
    """The server of the image, with the settings of the manifests, and its agent, each in a container of its own.

    They share the network of this machine, so the server has another address and port than in a cluster.
    """

    def __init__(self, image: Image, folder: Path) -> None:
        self._image, self._folder, self._port = image, folder, find_port()
        self._volumes = make_volumes(folder / "server")
        self._settings = {"LEGATO_PORT": str(self._port), "LEGATO_TLS": "own", "LEGATO_SLOTS": "0"}
        self._settings |= {"LEGATO_ALLOW_JOBS_AS_SERVER": "true", "LEGATO_LOG_FORMAT": "json"}
        self._running: dict[Path, subprocess.Popen[str]] = {}

    def _start(self, name: str, command: list[str], volumes: dict[str, Path], variables: dict[str, str]) -> None:
        log = self._folder / f"{name}.log"
        with log.open("wb") as stream:
            self._running[log] = self._image.start(command, volumes, env=variables, stdout=stream)

    def start_server(self) -> None:
        """Start the server by the image's own command."""
        self._start("server", self._image.command, self._volumes, self._settings)
        log = self._folder / "server.log"
        wait_until(lambda: self._live() and "answers at" in log.read_text(), "the server answers")

    def _live(self) -> bool:
        for log, process in self._running.items():
            assert process.poll() is None, log.read_text()[-3000:]
        return True

    def legato(self, *words: str) -> str:
        """Run a command in a container with the server's home, as ``kubectl exec`` does."""
        running = self._image.start(list(words), self._volumes, env={"LEGATO_PORT": str(self._port)})
        told, _ = running.communicate(timeout=LIMIT_S)
        assert running.returncode == 0, f"{words}: {told}"
        return told

    def start_agent(self) -> None:
        """Start an agent with two slots."""
        volumes = make_volumes(self._folder / "agent")
        (token,) = re.findall(r"lgj_\S+", self.legato("nodes", "token"))
        (volumes["/tmp"] / "token").write_text(token)
        os.chown(volumes["/tmp"] / "token", USER, USER)
        words = ["agent", f"--connect=https://localhost:{self._port}", "--token-file=/tmp/token", "--name=machine"]
        home = {"LEGATO_HOME": "/var/lib/legato", "LEGATO_DEVICE": "cpu"}
        self._start("agent", [*words, "--slots=2"], volumes, home)

    def train(self) -> str:
        """Train with two workers, and return the SHA-256 of the weights."""
        program = self._volumes["/var/lib/legato"] / "program/train.py"
        program.parent.mkdir()
        program.write_text(PROGRAM)
        code = "/var/lib/legato/program"
        said = self.legato("submit", "--detach", "--workers=2", f"--code={code}", f"{code}/train.py", "0", str(EPOCHS))
        job = re.findall(r"\bj-[a-z0-9]+", said)[0]
        wait_until(lambda: self._live() and '"succeeded"' in self.legato("show", job, "-o", "json"), f"{job} succeeds")
        (digest,) = set(DIGEST.findall(self.legato("logs", job)))
        return str(digest)

    def stop(self) -> None:
        for process in reversed(self._running.values()):
            process.kill()
            process.wait(LIMIT_S)


def test_server_and_agent_start_from_the_image_and_train_with_the_weights_of_this_environment(
    image: Image, tmp_path: Path
) -> None:
    platform = Platform(image, image.root.parent / "train")
    try:
        platform.start_server()
        platform.start_agent()
        assert platform.train() == train_alone(tmp_path, EPOCHS)
    finally:
        platform.stop()
