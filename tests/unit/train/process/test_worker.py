"""How a worker's program ends, and what is said of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NoReturn

import pytest
from tests.unit.train.tape import Tape

from legato.core import wire
from legato.core.errors import LegatoError
from legato.core.exits import EXIT_LOST_LINK
from legato.driver.snapshot import take_snapshot
from legato.train.membership.connection import Leave
from legato.train.process import job, worker
from legato.train.process.job import Place
from legato.train.process.program_sources import Snapshot


@pytest.fixture
def link() -> Tape:
    return Tape()


def run(tmp_path: Path, link: Tape, place: Place, program: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("sys.argv", [])
    monkeypatch.setattr("sys.path", [])
    path = tmp_path / "program.py"
    path.write_text(program)
    return worker._run([str(path)], place, link, None)


@pytest.mark.parametrize("program", ["", "raise SystemExit(0)"])
def test_who_learns_at_the_very_end_that_it_has_to_leave_has_not_failed(
    tmp_path: Path, link: Tape, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(link, None, "cpu", 1)
    ended = []

    def end() -> None:
        ended.append(len(ended))
        if len(ended) == 1:
            raise Leave(0)

    place.on_end(end)
    assert run(tmp_path, link, place, program, monkeypatch) == 0
    assert ended == [0, 1]
    assert link.said == []


def test_who_leaves_in_the_middle_has_not_finished(tmp_path: Path, link: Tape, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(link, None, "cpu", 1)
    ended = []
    place.on_end(lambda: ended.append(None))
    program = "from legato.train.membership.connection import Leave\nraise Leave(0)"
    assert run(tmp_path, link, place, program, monkeypatch) == 0
    assert len(ended) == 1
    assert link.said == []


def test_a_worker_that_no_driver_answers_does_not_blame_the_program(
    link: Tape, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def wait_in_vain() -> NoReturn:
        raise LegatoError("No driver answers.")

    def end(code: int) -> NoReturn:
        raise SystemExit(code)

    monkeypatch.setattr(link, "open", wait_in_vain)
    monkeypatch.setattr(worker, "Link", lambda *_: link)
    monkeypatch.setattr(worker, "_exit", end)
    monkeypatch.setenv("LEGATO_WORKER", "0")
    monkeypatch.setenv("LEGATO_DRIVER_FILE", "/nowhere")
    with pytest.raises(SystemExit) as ending:
        worker.main(["never.py"])
    assert ending.value.code == EXIT_LOST_LINK
    assert "No driver answers." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("program", "exit_code", "said"),
    [("", 0, wire.Finished), ("raise SystemExit(0)", 0, wire.Finished), ("raise SystemExit(3)", 3, wire.Failed)],
)
def test_a_program_that_ends_by_itself(
    tmp_path: Path, link: Tape, program: str, exit_code: int, said: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(link, None, "cpu", 1)
    ended = []
    place.on_end(lambda: ended.append(None))
    assert run(tmp_path, link, place, program, monkeypatch) == exit_code
    assert [type(message) for message in link.said] == [said]
    assert len(ended) == (exit_code == 0)


def test_the_reason_says_which_argument_a_program_does_not_accept(
    tmp_path: Path, link: Tape, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (
        "import argparse\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--lr', type=float)\n"
        "parser.parse_args(['--lr', '0.1 to 0.001'])\n"
    )
    assert run(tmp_path, link, Place(link, None, "cpu", 1), program, monkeypatch) == 2
    (said,) = link.said
    assert isinstance(said, wire.Failed)
    assert said.error == (
        "The program ended itself with exit code 2. It does not accept its arguments: argument --lr: invalid float "
        "value: '0.1 to 0.001'."
    )


@pytest.mark.parametrize(
    ("program", "want"),
    [
        ("", False),
        ("from legato.train.process.job import take_place; take_place()", True),
        ("from legato.train.process.job import expect_no_run; expect_no_run()", True),
    ],
)
def test_whether_a_program_called_legato_is_reported(
    tmp_path: Path, link: Tape, program: str, want: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(link, None, "cpu", 1)
    monkeypatch.setattr(job, "_place", place)
    assert run(tmp_path, link, place, program, monkeypatch) == 0
    assert link.said == [wire.Finished(view=0, num_rounds=0, trained=want)]
    assert getattr(link, "is_independent", False) == ("expect_no_run" in program), "each heartbeat says so"


def test_a_program_with_a_syntax_error_is_reported_as_python_reports_it(
    tmp_path: Path, link: Tape, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Place(link, None, "cpu", 1)
    assert run(tmp_path, link, place, "a = 1\n/* a comment of another language */\n", monkeypatch) == 1
    told = capsys.readouterr().err
    assert told.startswith(f'  File "{tmp_path / "program.py"}", line 2\n') and told.endswith(
        "SyntaxError: invalid syntax\n"
    )
    (failed,) = link.said
    assert isinstance(failed, wire.Failed) and failed.traceback == told
    assert failed.error == "SyntaxError: invalid syntax (program.py, line 2)"


def test_a_program_of_another_framework_is_reported_with_the_framework_to_choose(
    tmp_path: Path, link: Tape, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(tmp_path, link, Place(link, None, "cpu", 1), "import fabric_model", monkeypatch) == 1
    (failed,) = (message for message in link.said if isinstance(message, wire.Failed))
    assert "--framework edtPyTorch" in failed.error


def test_a_syntax_error_in_a_module_of_the_program_is_reported_without_frames_of_the_import(
    tmp_path: Path, link: Tape, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "program.py"
    script.write_text("import broken_helper\n")
    (tmp_path / "broken_helper.py").write_text("def f(:\n")
    monkeypatch.setattr("sys.argv", [])
    monkeypatch.setattr("sys.path", [])
    monkeypatch.setattr("sys.meta_path", list(sys.meta_path))
    found = take_snapshot(script)
    assert found is not None
    snapshot = Snapshot(found)
    snapshot.install()
    assert worker._run([str(script)], Place(link, None, "cpu", 1), link, snapshot) == 1
    assert capsys.readouterr().err == (
        "Traceback (most recent call last):\n"
        f'  File "{script}", line 1, in <module>\n'
        "    import broken_helper\n"
        f'  File "{tmp_path / "broken_helper.py"}", line 1\n'
        "    def f(:\n"
        "          ^\n"
        "SyntaxError: invalid syntax\n"
    )


def test_a_torchvision_that_does_not_fit_is_reported_with_what_to_install(
    tmp_path: Path, link: Tape, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "find_torchvision", lambda: ("0.28.0", ("torch==2.1.0",)))
    program = "raise RuntimeError('operator torchvision::nms does not exist')"
    assert run(tmp_path, link, Place(link, None, "cpu", 1), program, monkeypatch) == 1
    (failed,) = (message for message in link.said if isinstance(message, wire.Failed))
    for told in (failed.error, failed.traceback):
        assert "torchvision 0.28.0 is built for torch 2.1.0, and torch 2." in told and "pip install" in told


@pytest.mark.parametrize(
    ("line", "is_blamed"),
    [
        ("raise OSError('x.so')", True),
        ("raise KeyboardInterrupt", False),
        ("try:\n    raise OSError('x.so')\nexcept OSError as error:\n    raise ImportError('mine') from error", True),
    ],
)
def test_only_an_import_of_torchvision_that_fails_is_explained(
    tmp_path: Path, link: Tape, monkeypatch: pytest.MonkeyPatch, line: str, is_blamed: bool
) -> None:
    monkeypatch.setattr(worker, "find_torchvision", lambda: ("0.28.0", ("torch==2.1.0",)))
    (tmp_path / "torchvision.py").write_text(line)
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    assert run(tmp_path, link, Place(link, None, "cpu", 1), "import torchvision", monkeypatch) == 1
    (failed,) = (message for message in link.said if isinstance(message, wire.Failed))
    assert ("is built for torch 2.1.0" in failed.error) is is_blamed


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        ("CUDA out of memory. Tried to allocate 2.00 GiB.", "Take a smaller micro_batch_size"),
        ("Expected all tensors to be on the same device, but got mat1 is on cpu, cuda:0", "weights.to(run.device)"),
        ("Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should be", "weights.to(run.device)"),
        ("'lengths' argument should be a 1D CPU int64 tensor, but got 1D cuda:0 Long tensor", "lengths.cpu()"),
        ("cumsum_cuda_kernel does not have a deterministic implementation, but", "reduction='exact' has torch refuse"),
    ],
)
def test_what_a_gpu_cannot_do_is_reported_with_what_to_change(
    tmp_path: Path, link: Tape, monkeypatch: pytest.MonkeyPatch, error: str, advice: str
) -> None:
    assert run(tmp_path, link, Place(link, None, "cpu", 1), f"raise RuntimeError({error!r})", monkeypatch) == 1
    (failed,) = (message for message in link.said if isinstance(message, wire.Failed))
    assert failed.error.startswith(f"RuntimeError: {error}".removesuffix(".")) and advice in failed.error


@pytest.mark.parametrize(
    ("program", "advice"),
    [
        ("grad = None\nx = 2.0\nx.grad.clamp_(-1)", ""),
        ("class P:\n    grad = None\nP.grad.clamp_(-1)", "under `if run.stepped:`"),
        ("class P:\n    grad = None\nP.grad * 2", "under `if run.stepped:`"),
        ("class P:\n    data = None\nP.data * 2", ""),
        ("assert False, 'No inf checks were recorded for this optimizer.'", "Give the GradScaler to run.prepare"),
    ],
)
def test_what_a_turn_without_a_gradient_cannot_do_is_reported_with_what_to_change(
    tmp_path: Path, link: Tape, monkeypatch: pytest.MonkeyPatch, program: str, advice: str
) -> None:
    assert run(tmp_path, link, Place(link, None, "cpu", 1), program, monkeypatch) == 1
    (failed,) = (message for message in link.said if isinstance(message, wire.Failed))
    assert advice in failed.error and ("run." in failed.error) is bool(advice)
    assert ".." not in failed.error
