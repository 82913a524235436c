"""Checkpoint files: whole or not at all, and nothing of a damaged one is believed."""

from __future__ import annotations

import errno
import io
import json
import os
import resource
import signal
import subprocess
import sys
import textwrap
import zipfile
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import fork_server
from tests.tiers import examples, first_now
from tests.unit.train.earlier_checkpoints import make_earlier_file

import legato
from legato.core.errors import CheckpointError
from legato.train.checkpoints import checkpoint
from legato.train.checkpoints.checkpoint import Store, load, refuse_unreadable


def make_state(step: int = 0) -> dict[str, Any]:
    return {
        "model": OrderedDict(weight=torch.full((300, 7), float(step)), image=torch.rand(1, 3, 4, 4)[:, ::2]),
        "optimizer": {
            "state": {0: {"step": torch.tensor(3.0), "exp_avg": torch.rand(5)}},
            "param_groups": [{"lr": 0.1}],
        },
        "scheduler": {"milestones": Counter({3: 1}), "betas": (0.9, 0.999), "name": "mülti", "none": None, "on": True},
        "half": torch.rand(4).bfloat16(),
        "raw": b"\x00\xff",
    }


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return (
            isinstance(other, torch.Tensor)
            and one.dtype == other.dtype
            and one.stride() == other.stride()
            and torch.equal(one, other)
        )
    if isinstance(one, dict):
        return type(one) is type(other) and list(one) == list(other) and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def store(tmp_path: Path, warnings: list[str]) -> Store:
    return Store(tmp_path / "deep" / "checkpoints", 3, warnings.append)


def test_what_is_saved_comes_back(store: Store, warnings: list[str]) -> None:
    state = make_state()
    path = store.save(state, step=1234, meta={"epoch": 3, "seed": 7, "tags": ["a"]})
    assert path.name == "step-00001234.legato"
    found = store.newest()
    assert found is not None
    assert (found.path, found.step, found.meta) == (path, 1234, {"epoch": 3, "seed": 7, "tags": ["a"]})
    assert same(found.state, state)
    assert warnings == []


def test_there_may_be_nothing(store: Store) -> None:
    assert store.newest() is None


def test_a_step_may_be_written_again(store: Store) -> None:
    store.save(make_state(1), step=5, meta={})
    store.save(make_state(2), step=5, meta={})
    assert load(store.directory / "step-00000005.legato").state["model"]["weight"][0, 0] == 2


def test_the_last_k_are_kept(store: Store) -> None:
    for step in (1, 10, 2_000_000_000, 9, 11):
        store.save(make_state(), step=step, meta={})
    # The one just written is kept whatever its number is.
    assert [path.name for path in store.paths()] == [
        "step-00000010.legato",
        "step-00000011.legato",
        "step-2000000000.legato",
    ]
    store.save(make_state(), step=1, meta={})
    assert store.paths()[0].name == "step-00000001.legato"
    assert len(store.paths()) == 3


def test_other_files_are_not_touched(store: Store) -> None:
    store.directory.mkdir(parents=True)
    for name in ("notes.txt", "step-1.legato", "step-00000001.legato.bak", "best.legato"):
        (store.directory / name).write_text("mine")
    for step in range(5):
        store.save(make_state(), step=step, meta={})
    assert {path.name for path in store.directory.iterdir()} >= {"notes.txt", "step-1.legato", "best.legato"}
    assert len(store.paths()) == 3


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return Store(tmp_path_factory.mktemp("whole"), 1, print).save(make_state(7), step=7, meta={"epoch": 1}).read_bytes()


def damaged(tmp_path: Path, content: bytes) -> str:
    path = tmp_path / "step-00000007.legato"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=path.name) as caught:
        load(path)
    return str(caught.value)


def test_a_file_that_ends_too_soon_is_torn(tmp_path: Path, whole: bytes) -> None:
    room = int.from_bytes(whole[12:16], "little")
    lengths = {*range(60), *range(60, len(whole), 997), 48 + room - 1, 48 + room, 48 + room + 1, len(whole) - 1}
    for length in sorted(lengths):
        assert "incomplete or damaged" in damaged(tmp_path, whole[:length]), length


def test_a_file_with_something_behind_it_is_torn(tmp_path: Path, whole: bytes) -> None:
    assert "incomplete or damaged" in damaged(tmp_path, whole + b"\0")


def test_a_file_with_a_hole_is_torn(tmp_path: Path, whole: bytes) -> None:
    middle = len(whole) // 2
    assert "incomplete or damaged" in damaged(tmp_path, whole[:middle] + bytes(512) + whole[middle + 512 :])


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_no_flipped_bit_goes_unseen(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory, whole: bytes
) -> None:
    at = data.draw(st.integers(0, 200) | st.integers(0, len(whole) - 1))
    content = bytearray(whole)
    content[at] ^= 1 << data.draw(st.integers(0, 7))
    damaged(tmp_path_factory.getbasetemp(), bytes(content))


@pytest.mark.parametrize("version", [1, 2])
def test_a_damaged_version_is_damage(tmp_path: Path, whole: bytes, version: int) -> None:
    said = damaged(tmp_path, whole[:8] + version.to_bytes(4, "little") + whole[12:])
    assert "its state does not match its checksum" in said


def test_a_foreign_file_is_named(tmp_path: Path) -> None:
    assert "not a checkpoint of Legato" in damaged(tmp_path, b"PK\x03\x04 something else that is long enough" * 9)


def test_a_newer_form_is_named(tmp_path: Path, whole: bytes) -> None:
    said = damaged(tmp_path, whole[:8] + (4).to_bytes(4, "little") + whole[12:])
    assert "format 4" in said
    assert "Use a newer Legato" in said


@pytest.mark.parametrize("version", [1, 2])
def test_earlier_formats_are_verified_and_read(tmp_path: Path, version: int) -> None:
    state = make_state(5)
    content = make_earlier_file(version, state, step=5, meta={"epoch": 2})
    path = tmp_path / "step-00000005.legato"
    path.write_bytes(content)
    found = load(path)
    assert (found.step, found.meta) == (5, {"epoch": 2})
    assert same(found.state, state)
    changed = bytearray(content)
    changed[len(content) // 2] ^= 1
    assert "its state does not match its checksum" in damaged(tmp_path, bytes(changed))


def test_the_one_before_a_damaged_one_is_taken(store: Store, warnings: list[str]) -> None:
    for step in (1, 2, 3):
        store.save(make_state(step), step=step, meta={})
    first, second, third = store.paths()
    third.write_bytes(third.read_bytes()[:-1])
    second.write_text("something else")
    found = store.newest()
    assert found is not None
    assert found.step == 1
    assert [first.name, second.name, third.name] == [path.name for path in store.paths()]
    assert len(warnings) == 2
    assert third.name in warnings[0]
    assert "incomplete or damaged" in warnings[0]
    assert second.name in warnings[1]
    assert "not a checkpoint" in warnings[1]


class Exploding:
    def __init__(self, victim: Path) -> None:
        self.victim = victim

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.victim),))


def test_code_in_a_file_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = tmp_path / "pwned"
    monkeypatch.setattr(checkpoint, "refuse_unreadable", lambda state: None)
    path = Store(tmp_path, 1, print).save({"model": Exploding(victim)}, step=1, meta={})
    with pytest.raises(CheckpointError, match="other than tensors and plain values"):
        load(path)
    assert not victim.exists()


@pytest.mark.parametrize(
    ("bad", "where"),
    [
        (np.float64(3), r"state\['a'\]\[1\]"),
        (np.zeros(3), r"numpy\.ndarray"),
        (lambda: None, "function"),
        ({Path(): 1}, r"a key of state"),
    ],
)
def test_what_could_not_be_read_back_is_not_written(store: Store, bad: Any, where: str) -> None:
    with pytest.raises(CheckpointError, match=where):
        store.save({"a": [1, bad]}, step=1, meta={})
    assert store.paths() == []


def test_what_is_allowed_can_be_read_back(store: Store) -> None:
    state = {
        "kinds": [torch.float16, torch.device("cpu"), torch.Size([1, 2]), {1, 2}, (), [], {}, -1, 1e300, float("inf")]
    }
    refuse_unreadable(state)
    assert load(store.save(state, step=1, meta={})).state == state


def test_keep_must_be_positive(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="keep=1"):
        Store(tmp_path, 0, print)


WRITER = textwrap.dedent(
    """
    import sys, torch
    from legato.train.checkpoints import checkpoint
    from legato.train.checkpoints.checkpoint import Store

    store = Store(sys.argv[1], 3, print)
    store.save({"weight": torch.full((1000,), 1.0)}, step=1, meta={})
    num_bytes = 0
    write = checkpoint._HashingFile.write

    def stop_in_the_middle(self, data):
        global num_bytes
        written = write(self, data)
        num_bytes += written
        if num_bytes > int(sys.argv[2]):
            self._file.flush()
            print("in the middle", flush=True)
            sys.stdin.read()
        return written

    checkpoint._HashingFile.write = stop_in_the_middle
    store.save({"weight": torch.full((1_000_000,), 2.0)}, step=2, meta={})
    """
)


@pytest.mark.parametrize("num_bytes", first_now([3_900_000, 0, 1000]))
def test_a_writer_killed_in_the_middle_leaves_the_one_before(store: Store, warnings: list[str], num_bytes: int) -> None:
    command = [sys.executable, "-c", WRITER, str(store.directory), str(num_bytes)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "in the middle\n"
        unfinished = list(store.directory.glob(".*.tmp"))
        writer.send_signal(signal.SIGKILL)
    assert len(unfinished) == 1
    found = store.newest()
    assert found is not None
    assert found.step == 1
    assert found.state["weight"].eq(1.0).all()
    assert warnings == []
    store.save(make_state(), step=3, meta={})
    assert list(store.directory.glob(".*.tmp")) == []


FULL = textwrap.dedent(
    """
    import resource, sys, torch
    from legato.core.errors import CheckpointError
    from legato.train.checkpoints.checkpoint import Store

    store = Store(sys.argv[1], 3, print)
    store.save({"weight": torch.zeros(10)}, step=1, meta={})
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
    try:
        store.save({"weight": torch.zeros(1_000_000), "more": [torch.zeros(999) for _ in range(99)]}, step=2, meta={})
    except CheckpointError as error:
        print(error)
    store.save({"weight": torch.zeros(10)}, step=3, meta={})
    """
)


@pytest.mark.parametrize("limit_bytes", [4096, 100_000, 4_000_500])
def test_a_file_that_cannot_grow_leaves_nothing(tmp_path: Path, store: Store, limit_bytes: int) -> None:
    program = tmp_path / "full.py"
    program.write_text(FULL)
    command = [sys.executable, str(program), str(store.directory), str(limit_bytes)]
    environment = {**os.environ, "PYTHONPATH": str(Path(legato.__file__).parents[1])}
    done = fork_server.run(command, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "step-00000002.legato: File too large. Make room there" in done.stdout
    assert sorted(path.name for path in store.directory.iterdir()) == ["step-00000001.legato", "step-00000003.legato"]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def test_a_full_disk_is_reported(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(CheckpointError, match="No space left on device"):
        store.save(make_state(), step=2, meta={})
    assert list(store.directory.iterdir()) == []


def test_a_directory_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="Cannot write checkpoint"):
        Store(tmp_path / "file", 1, print).save(make_state(), step=2, meta={})


def test_meta_that_json_cannot_hold_leaves_nothing(store: Store) -> None:
    with pytest.raises(TypeError):
        store.save(make_state(), step=2, meta={"a": object()})
    assert list(store.directory.iterdir()) == []


def test_the_header_can_be_read_by_anyone(whole: bytes) -> None:
    room = int.from_bytes(whole[12:16], "little")
    header = json.loads(whole[48 : 48 + room])
    assert header["step"] == 7
    assert header["payload_bytes"] == len(whole) - 48 - room


def test_each_byte_has_one_checksum(whole: bytes) -> None:
    room = int.from_bytes(whole[12:16], "little")
    with zipfile.ZipFile(io.BytesIO(whole[48 + room :])) as archive:
        records = [record for record in archive.infolist() if "/data/" in record.filename]
    assert records
    assert {record.CRC for record in records} == {0}


def test_files_of_the_program_keep_their_checksums(store: Store, tmp_path: Path) -> None:
    store.save(make_state(), step=1, meta={})
    torch.save(make_state(), tmp_path / "own.pt")
    with zipfile.ZipFile(tmp_path / "own.pt") as archive:
        assert archive.testzip() is None


def test_a_state_is_written_in_pieces_with_rests_between_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "_PIECE_BYTES", 1000)
    monkeypatch.setattr(checkpoint, "_REST_EVERY_S", -1.0)
    rests: list[float] = []
    state = make_state()
    path = Store(tmp_path, 1, print).save(state, step=1, meta={}, rest=rests.append)
    assert len(rests) >= path.stat().st_size // 1000 and min(rests) >= 0
    assert same(load(path).state, state)
    rests.clear()
    monkeypatch.setattr(checkpoint, "_REST_EVERY_S", 1e6)
    Store(tmp_path, 1, print).save(state, step=2, meta={}, rest=rests.append)
    assert rests == []
