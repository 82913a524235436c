"""The command that starts an agent by ssh, or in a step of Slurm, which sends its signals to this command only."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
from pathlib import Path

import msgspec

from legato.agent.starting import SIGNAL, Facts


def test_a_step_reports_signals_and_lives_on(tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    shown.write_text("{}")
    digest = hashlib.sha256(b"other").hexdigest()
    command = [sys.executable, "-m", "legato.agent.starting", "--step", "--toward", "127.0.0.1"]
    with subprocess.Popen(
        [*command, "--sees", str(shown), digest], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        facts = msgspec.json.decode(process.stdout.readline(), type=Facts)
        assert facts.error is None and facts.address == "127.0.0.1"
        assert not facts.sees_file, "the file has another content here"
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGTERM):
            process.send_signal(number)
            assert process.stdout.readline().decode().strip() == f"{SIGNAL}{number.name}"
        process.stdin.close()
        assert process.wait() == 0


def test_a_machine_that_is_known_says_its_address_and_looks_at_no_torch(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "legato.agent.starting", "--again", "--network", "127.0.0.0/8"]
    nothing = ["--python", str(tmp_path / "nothing")]
    done = subprocess.run([*command, *nothing], input=b"", capture_output=True, check=True)
    assert msgspec.json.decode(done.stdout, type=Facts) == Facts(address="127.0.0.1")
