"""Paths of a container become paths of the machine: only whole paths, not texts that look similar."""

from __future__ import annotations

import pytest

from legato.compat.elasticdl.composites import Volume
from legato.compat.elasticdl.mounting import Mounts

VOLUMES = (
    Volume(host_path="/home/ann/d", mount_path="/data"),
    Volume(host_path="/mnt/x", mount_path="/data/deep", sub_path="y"),
    Volume(host_path="/same", mount_path="/same"),
)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("/data", "/home/ann/d"),
        ("--in=/data/a", "--in=/home/ann/d/a"),
        ("/data/deep/a", "/mnt/x/y/a"),
        ("/data/deeper", "/home/ann/d/deeper"),
        ("/a:/data:/data/b", "/a:/home/ann/d:/home/ann/d/b"),
        ('{"path": "/data"}', '{"path": "/home/ann/d"}'),
        ("/database", "/database"),
        ("/my/data", "/my/data"),
        ("./data", "./data"),
        ("~/data", "~/data"),
        ("a/data", "a/data"),
        ("/data.txt", "/data.txt"),
        ("https://h/data", "https://h/data"),
        ("/same/a", "/same/a"),
        ("", ""),
    ],
)
def test_what_is_replaced(text: str, want: str) -> None:
    assert Mounts(VOLUMES).replace(text) == want


def test_replaced_paths_are_reported() -> None:
    mounts = Mounts(VOLUMES)
    assert mounts.unused == ["/data", "/data/deep"]
    assert mounts.replace_all(["-m", "x", "/data/deep"]) == ("-m", "x", "/mnt/x/y")
    assert (mounts.unused, mounts.describe()) == (["/data"], "/data/deep is /mnt/x/y")
    # A replaced path is not replaced again.
    twice = Mounts([Volume(host_path="/b/a", mount_path="/a"), Volume(host_path="/c", mount_path="/b")])
    assert twice.replace("/a/b /b") == "/b/a/b /c"
    assert Mounts([Volume(host_path="/c", mount_path="/")]).replace("/x") == "/x"
