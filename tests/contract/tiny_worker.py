"""A worker without torch, for the contract of engines: does what its first argument says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def main(argv: list[str]) -> int:
    match argv:
        case ["exit", code]:
            return int(code)
        case ["kill", number]:
            os.kill(os.getpid(), int(number))
        case ["raise"]:
            raise RuntimeError("as asked")
        case ["copy", path, to]:
            Path(to).write_text(Path(path).read_text())
            return 0
        case ["eat", num_bytes]:
            return len(bytearray(int(num_bytes))) and 0
        case ["quit"]:
            sys.exit("no such thing")
        case ["show", *_]:
            print("out", argv, sys.argv, os.environ["COLOUR"], Path.cwd())
            print("err", file=sys.stderr)
            print("stdin", repr(sys.stdin.read()), "session", os.getsid(0) == os.getpid())
            return 0
        case ["given", path, *names]:
            # What Python itself was started with, and what the program sees.
            first = dict(part.split("=", 1) for part in Path("/proc/self/environ").read_text().split("\0") if part)
            told = {
                "hash": hash("legato"),
                "path": sys.path,
                "at_start": {name: first.get(name) for name in names},
                "seen": {name: os.environ.get(name) for name in names},
            }
            Path(path).write_text(json.dumps(told))
            return 0
        case ["drain", path]:
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
            Path(path).write_text("ready")
        case ["family", path]:
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            Path(path).write_text(str(child.pid))
        case ["hide", path]:
            # A daemon as programs make them: a session of its own, no parent, nothing of our environment.
            hidden = "import os, sys, time; os.setsid(); pid = os.fork()\n"
            hidden += "if pid: open(sys.argv[1], 'w').write(str(pid)); os._exit(0)\ntime.sleep(600)"
            subprocess.run([sys.executable, "-c", hidden, path], env={}, check=True)
            return 0
        case ["stubborn", path]:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            Path(path).write_text("ready")
        case ["twins", path]:
            import numpy as np

            with Path(path).open("a") as file:
                file.write(f"{np.random.rand()}\n")
            return 0
    for _ in range(6_000):
        time.sleep(0.1)  # a signal that comes right before one long sleep would not end it
    return 0
