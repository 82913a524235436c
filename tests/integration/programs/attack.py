"""Tries all that a job must not do, and prints what came of it: ``attack.py HOME SERVER_PID VICTIM VICTIM_PID``."""

import json
import os
import signal
import sqlite3
import sys
from pathlib import Path

from websockets.sync.client import connect

from legato.train.process import job

HOME, SERVER, VICTIM, VICTIM_PID = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
OWN = Path(os.environ["LEGATO_DRIVER_FILE"]).parent

done = {}


def attempt(name, action):
    try:
        done[name] = f"DONE {action()!r}"[:200]
    except BaseException as error:
        done[name] = type(error).__name__


def become_admin():
    with sqlite3.connect(HOME / "legato.db") as store:
        return store.execute("update users set role='admin'").rowcount


def read(path):
    return lambda: Path(path).read_bytes()[:40]


def command_driver(token):
    where = json.loads(Path(os.environ["LEGATO_DRIVER_FILE"]).read_text())
    url = where["url"].removesuffix("/worker") + "/client"
    with connect(url, additional_headers={"Authorization": f"Bearer {token}"}, proxy=None):
        return "connected"


def find_driver():
    for entry in Path("/proc").glob("[0-9]*"):
        words = (entry / "cmdline").read_bytes().split(b"\0") if (entry / "cmdline").exists() else []
        if b"legato.control.drivers.process" in words and str(OWN).encode() in words:
            return int(entry.name)
    return 0


DRIVER = find_driver()
assert DRIVER
attempt("becomes admin in the store", become_admin)
for folder in (HOME, HOME / "jobs", OWN, HOME / "homes", HOME / "code", OWN / "logs", HOME / "jobs" / VICTIM):
    attempt(f"lists {folder.relative_to(HOME)}", lambda folder=folder: list(folder.iterdir()))
for name in ("driver.json", "journal.json", "order.json", "events.jsonl", "engine/s"):
    attempt(f"reads own {name}", read(OWN / name))
    attempt(f"writes own {name}", lambda name=name: (OWN / name).write_text("{}"))
for name in ("order.json", "address.json", "work/train.py", "logs/worker-0.log", "run/engine.json", "checkpoints"):
    attempt(f"reads another's {name}", read(HOME / "jobs" / VICTIM / name))
for whose, pid in (("the server", SERVER), ("another job", VICTIM_PID), ("the driver", DRIVER)):
    attempt(f"reads the environment of {whose}", read(f"/proc/{pid}/environ"))
    attempt(f"reads the memory of {whose}", lambda pid=pid: os.open(f"/proc/{pid}/mem", os.O_RDONLY))
    attempt(f"signals {whose}", lambda pid=pid: os.kill(pid, signal.SIGCONT))
attempt("becomes root", lambda: os.setresuid(0, 0, 0))
attempt("commands its driver", lambda: command_driver(job._place.link._token))
attempt("replaces its log", (OWN / "logs" / "worker-0.log").unlink)
attempt("replaces its folder", lambda: (OWN / "run").rename(OWN / "ran"))

# What it may do must lead the server nowhere either.
(OWN / "checkpoints" / "step-00000009.legato").symlink_to("/etc/shadow")
(OWN / "work" / "shadow").symlink_to("/etc/shadow")
if (OWN / "run" / "engine.json").exists():
    record = json.loads((OWN / "run" / "engine.json").read_text())
    start_time = int(Path(f"/proc/{SERVER}/stat").read_text().rsplit(")", 1)[1].split()[19])
    record |= {"socket": f"{HOME}/legato.db", "pid": SERVER, "start_time": start_time}
    record["workers"] = {"7": {"pid": SERVER, "start_time": start_time}}
    (OWN / "run" / "engine.json").write_text(json.dumps(record))
status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
Path("made").touch()
about = {
    "uids": status["Uid"].split(),
    "gids": status["Gid"].split(),
    "groups": status["Groups"].split(),
    "capabilities": [status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")],
    "no_new_privs": status["NoNewPrivs"],
    "mode": oct(Path("made").stat().st_mode & 0o777),
    "home": os.environ["HOME"],
    "home_is_own": Path.home().stat().st_uid == os.getuid(),
    "user": os.environ["USER"],
    "token": os.environ.get("LEGATO_WORKER_TOKEN"),
}
print("REPORT " + json.dumps({"done": done, "about": about}), flush=True)
