"""The store of a job asks no DNS server, which may not answer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.hosts.bed import DISK, Hosts

CODE = """
import ctypes, datetime, os, socket, sys
from legato.system.resolver import use_no_dns
from legato.train import torch_private
from legato.train.process.birth import serve_store

names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
names.bind(("127.0.0.1", 53))
names.setblocking(False)
configuration = os.path.join(sys.argv[1], "resolv.conf")
with open(configuration, "w") as file:
    file.write("nameserver 127.0.0.1\\noptions timeout:1 attempts:1\\n")
libc = ctypes.CDLL(None, use_errno=True)
assert libc.unshare(0x20000) == 0
assert libc.mount(configuration.encode(), b"/etc/resolv.conf", None, 0x1000, None) == 0, ctypes.get_errno()
lifeline, hold = os.pipe()
reader, report = os.pipe()
if os.fork() == 0:
    os.close(hold)
    serve_store("127.0.0.1", lifeline, report)
os.close(report)
port = int(os.read(reader, 100).decode().rsplit(":", 1)[1])
use_no_dns()
for _ in range(2):
    store = torch_private.make_store("127.0.0.1", port, datetime.timedelta(seconds=20))
    store.set("key", "value")
    assert store.get("key") == b"value"
try:
    print("asked", names.recv(1000))
except BlockingIOError:
    print("never asked")
"""


def test_the_store_asks_no_dns_server_about_its_clients(hosts: Hosts) -> None:
    command = [sys.executable, "-c", CODE, DISK]
    with hosts.popen(1, command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True) as running:
        assert running.communicate(timeout=60)[0] == "never asked\n"
