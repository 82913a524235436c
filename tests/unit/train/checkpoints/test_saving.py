"""Who writes a checkpoint when workers cannot ask one another."""

from __future__ import annotations

import functools
import threading
from pathlib import Path

import pytest

from legato.core import wire
from legato.core.errors import CheckpointError
from legato.train.checkpoints.saving import Saver

LIMIT_S = 20.0


def make_saver(directory: Path, said: list[wire.Message], **environment: str) -> Saver:
    return Saver(directory, None, 3, {"model": "m"}, environment, {}, said.append)


def test_a_checkpoint_of_another_environment_is_taken_with_a_warning(tmp_path: Path) -> None:
    said: list[wire.Message] = []
    there = make_saver(tmp_path, said, torch="2.13.0", **{"CPU capability": "AVX512"})
    there.save(lambda: {"step": 7}, 7)
    there.wait()
    said.clear()
    same = make_saver(tmp_path, said, torch="2.13.0", **{"CPU capability": "AVX512", "GPU": "unknown there"})
    assert same.newest() is not None and said == []
    other = make_saver(tmp_path, said, torch="2.13.0", **{"CPU capability": "AVX2"})
    assert other.newest() is not None
    (note,) = said
    assert isinstance(note, wire.Note) and note.level == "warning"
    assert "(CPU capability AVX512 there, AVX2 here). From step 7 on" in note.text


def test_a_checkpoint_is_written_unless_one_as_new_is_there(tmp_path: Path) -> None:
    said: list[wire.Message] = []
    for saver, step in ((make_saver(tmp_path / "deep", said), step) for step in (4, 3, 4, 5)):
        saver.save_unless_there(functools.partial(dict, step=step), step)
        assert (tmp_path / "deep" / f"step-{step:08}.legato").exists() == (step != 3)
    assert [message.step for message in said if isinstance(message, wire.Saved)] == [4, 5] and len(said) == 2
    found = make_saver(tmp_path / "deep", said).newest()
    assert found is not None and found.state == {"step": 5}


def test_one_at_a_time_looks_and_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[wire.Message] = []
    first, second = make_saver(tmp_path, said), make_saver(tmp_path, said)
    other = threading.Thread(target=second.save_unless_there, args=(lambda: {"by": 2}, 7), daemon=True)
    save = first.save

    def save_while_another_looks(state: dict[str, int], step: int) -> None:
        other.start()
        other.join(0.3)
        assert other.is_alive(), "it has not waited for us"
        save(state, step)

    monkeypatch.setattr(first, "save", save_while_another_looks)
    first.save_unless_there(lambda: {"by": 1}, 7)
    other.join(LIMIT_S)
    assert len(said) == 1
    found = first.newest()
    assert found is not None and found.state == {"by": 1}


def test_a_directory_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said: list[wire.Message] = []
    make_saver(tmp_path / "file", said).save_unless_there(dict, 1)
    note, unsaved = said
    assert isinstance(note, wire.Note) and note.level == "error" and "No checkpoint at step 1" in note.text
    assert unsaved == wire.Unsaved(step=1)


def test_nothing_begins_from_scratch_while_there_are_checkpoints_that_cannot_be_read(tmp_path: Path) -> None:
    said: list[wire.Message] = []
    saver = make_saver(tmp_path, said)
    assert saver.newest() is None, "there is none yet"
    for step in (4, 8):
        saver.save(lambda: {"step": 1}, step)
        saver.wait()
    for path in tmp_path.glob("step-*.legato"):
        path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(CheckpointError, match=r"none of the 2 checkpoints in .* can be read.*--no-resume"):
        saver.newest()
    assert sum("incomplete or damaged" in message.text for message in said if isinstance(message, wire.Note)) == 2


def test_a_program_that_was_edited_since_its_checkpoint_is_reported(tmp_path: Path) -> None:
    said: list[wire.Message] = []

    def saver_of(**digests: str) -> Saver:
        program = {f"file {name}.py": digest for name, digest in digests.items()}
        return Saver(tmp_path, None, 3, {"model": "m"}, {}, program, said.append)

    first = saver_of(train="1", model="1")
    first.save(lambda: {"step": 7}, 7)
    first.wait()
    said.clear()
    assert saver_of(train="1", model="1", new="1").newest() is not None and said == []
    assert saver_of(train="1", model="2").newest() is not None
    (note,) = said
    assert isinstance(note, wire.Note)
    assert note.text == "The program has changed since the checkpoint of step 7: file model.py."
