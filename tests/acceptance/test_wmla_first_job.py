"""The first job on the page for WMLA's users runs as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from benchmarks.platform import Platform
from tests.acceptance.users import LIMIT_S

PAGE = Path(__file__).parents[2] / "docs/wmla.md"


def test_the_first_job_of_the_page_runs_as_it_stands(wmla: Platform, tmp_path: Path) -> None:
    text = PAGE.read_text().partition("## A first job\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (program,) = (body for language, body in blocks if language == "python")
    _, commands = (body for language, body in blocks if not language)
    (tmp_path / "digits").mkdir()
    (tmp_path / "digits" / "main.py").write_text(program)
    assert "wget -q http://localhost:8765/" in commands and "--rest-host localhost " in commands
    # The server of this test listens on another port, and fetching needs no more than Python.
    host = wmla.url.removeprefix("http://")
    commands = commands.replace("--rest-host localhost", f"--rest-host {host}")
    fetch = "import sys, urllib.request as web; web.urlretrieve(sys.argv[1], 'dlicmd.py')"
    commands = commands.replace("wget -q http://localhost:8765", f'python3 -c "{fetch}" http://{host}')
    environment = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "LEGATO_SERVER": wmla.url,
        "LEGATO_TOKEN": wmla.client.server.token or "",
    }
    done = subprocess.run(
        ["bash", "-eu", "-c", commands], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert ["digits", "bea"] in [line.split()[1:3] for line in done.stdout.splitlines()], done.stdout
    job = wmla.client.job("digits")
    assert job.wait(LIMIT_S).stage == "succeeded", job.record.reason
