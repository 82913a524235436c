"""The environment variables of a job, the limits on waiting for weights, and copies of streams."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from legato.compat.wmla.fabric.copies import CopiedStream
from legato.compat.wmla.fabric.job_environment import Pulling, read_environment
from legato.compat.wmla.fabric.pulling import PullWatch
from legato.core.errors import UsageError
from legato.core.exits import EXIT_LOST_LINK


def test_the_environment_is_read() -> None:
    around = read_environment(
        {"RESULT_DIR": "/r", "LEGATO_WORKER": "3", "WMLA_MAX_WORKERS": "4", "EDT_LOSS_SCALE": "batch"}
    )
    assert (around.result_dir, around.is_in_job, around.worker, around.max_workers) == (Path("/r"), True, 3, 4)
    assert around.divides_loss and around.pulling is None and around.model_dir == Path("/r/model/train")
    alone = read_environment({})
    assert (alone.result_dir, alone.is_in_job, alone.max_workers) == (Path.cwd(), False, 1)


@pytest.mark.parametrize(
    ("said", "want"),
    [
        ({"EDT_PULL_WEIGHT_TIME_OUT": "2.5"}, Pulling(2.5, 3)),
        ({"EDT_PULL_FAILED_LIMITS": "0"}, Pulling(300.0, 0)),
        ({"EDT_PULL_WEIGHT_TIME_OUT": "60", "EDT_PULL_FAILED_LIMITS": "5"}, Pulling(60.0, 5)),
    ],
)
def test_limits_of_pulling(said: dict[str, str], want: Pulling) -> None:
    assert read_environment(said).pulling == want


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("EDT_PULL_WEIGHT_TIME_OUT", "0"),
        ("EDT_PULL_WEIGHT_TIME_OUT", "nan"),
        ("EDT_PULL_WEIGHT_TIME_OUT", "inf"),
        ("EDT_PULL_WEIGHT_TIME_OUT", "soon"),
        ("EDT_PULL_FAILED_LIMITS", "-1"),
        ("EDT_PULL_FAILED_LIMITS", "1.5"),
        ("WMLA_MAX_WORKERS", "0"),
        ("EDT_LOSS_SCALE", "sum"),
    ],
)
def test_unusable_variables_are_refused(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"{name}={value}"):
        read_environment({name: value})


def test_weights_that_do_not_arrive_stop_the_worker(capsys: pytest.CaptureFixture[str]) -> None:
    ended: list[int] = []
    PullWatch(Pulling(0.001, 2), stop=ended.append).join()
    assert ended == [EXIT_LOST_LINK]
    told = capsys.readouterr()
    assert told.out == told.err and told.out.splitlines() == [
        "PULL_FAILED: the model weights were not ready within 0.001 s (time 1, 2 allowed).",
        "PULL_FAILED: the model weights were not ready within 0.001 s (time 2, 2 allowed).",
        "PULL_FAILED: the model weights were not ready within 0.001 s (time 3, 2 allowed).",
        "PULL_FAILED more than 2 times (EDT_PULL_FAILED_LIMITS): this worker stops.",
    ]


def test_weights_that_arrive_end_the_watch(capsys: pytest.CaptureFixture[str]) -> None:
    watch = PullWatch(Pulling(60.0, 0), stop=lambda _: pytest.fail("they came"))
    watch.arrived()
    watch.join()
    assert capsys.readouterr().out == ""


def test_a_copy_has_the_text_of_the_stream(tmp_path: Path) -> None:
    stream = io.StringIO()
    copied = CopiedStream(stream, tmp_path / "copy")
    print("one", file=copied)
    copied.write("two \ud800\n")
    copied.flush()
    assert stream.getvalue() == "one\ntwo \ud800\n"
    assert (tmp_path / "copy").read_text() == "one\ntwo \\ud800\n"
    assert copied.writable() and not copied.isatty() and copied.getvalue() == stream.getvalue()
    copied.close()


def test_a_copied_stream_has_the_interface_that_libraries_expect(tmp_path: Path) -> None:
    with (tmp_path / "stream").open("w", encoding="utf-8") as stream:
        copied = CopiedStream(stream, tmp_path / "copy")
        assert (copied.encoding, copied.errors, copied.fileno()) == ("utf-8", "strict", stream.fileno())
        copied.buffer.write(b"bytes have no copy\n")
        copied.reconfigure(line_buffering=True)
        copied.writelines(["lines", " have\n"])
        copied.close()
        assert not stream.closed
    assert (tmp_path / "copy").read_text() == "lines have\n"
    assert (tmp_path / "stream").read_text() == "bytes have no copy\nlines have\n"


def test_a_copy_that_fails_does_no_harm() -> None:
    stream = io.StringIO()
    copied = CopiedStream(stream, Path("/dev/full"))
    print("one", file=copied)
    print("two", file=copied)
    copied.close()
    first, told, last = stream.getvalue().splitlines()
    assert (first, last) == ("one", "two")
    assert told.startswith("legato: Legato no longer copies the output of this process: ")
