"""A worker process: connects to its driver, runs the user's program as ``__main__``, and reports how it ended.

``python -m legato.train.process.worker PROGRAM ARGS...``, or forked by the warm parent. Decides nothing.
"""

from __future__ import annotations

import argparse
import atexit
import os
import runpy
import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import Final, NoReturn

from legato.core import wire
from legato.core.checkpoint_requests import DIRECTORY_VARIABLE
from legato.core.errors import LegatoError, MismatchError
from legato.core.exits import EXIT_LOST_LINK
from legato.core.torchvision_pair import explain_torchvision, find_torchvision
from legato.core.warm import NODE_VARIABLE
from legato.train.membership.connection import Leave
from legato.train.membership.link import Link
from legato.train.process import faults, job
from legato.train.process.name_services import load_name_services
from legato.train.process.output import OutputGuard
from legato.train.process.program_sources import Snapshot, compile_source, read_snapshot, run_from

EXIT_FAILED: Final = 1
_IMPORTER: Final = compile_source.__code__.co_filename  # imports the program's modules as they were at its start


def main(program: list[str]) -> NoReturn:
    """Run a program as a worker of the job that the environment names; never returns.

    Args:
        program: the script and its arguments, as in ``sys.argv``.
    """
    load_name_services()
    worker = int(os.environ["LEGATO_WORKER"])
    faults.plan(worker, os.environ.get("LEGATO_FAULTS", ""))
    # The program does not need the variable, and programs may print their environment.
    token = os.environ.pop("LEGATO_WORKER_TOKEN", None)
    host, node = os.environ.get("LEGATO_HOST", "127.0.0.1"), os.environ.get(NODE_VARIABLE, "")
    link = Link(Path(os.environ["LEGATO_DRIVER_FILE"]), worker, host, token, node)
    link.checkpoint_dir = os.environ.get(DIRECTORY_VARIABLE)
    output = OutputGuard(lambda level, text: link.send(wire.Note(level=level, text=f"worker {worker}: {text}")))
    output.install()
    try:
        settings = link.open()
    except LegatoError as error:
        # The program is not the cause: it has not begun.
        sys.stderr.write(f"legato: {error}\n")
        _exit(EXIT_LOST_LINK)
    num_threads = int(os.environ.get("LEGATO_THREADS", "1"))
    place = job.Place(link, settings, os.environ.get("LEGATO_DEVICE", "cpu"), num_threads)
    job.set_place(place)
    snapshot = read_snapshot(os.environ)
    if snapshot is not None:
        run_from(snapshot)
    code = _run(program, place, link, snapshot)
    output.close()
    link.close()
    _exit(code)


def _run(program: list[str], place: job.Place, link: Link, snapshot: Snapshot | None) -> int:
    sys.argv[:] = program
    sys.path.insert(0, str(Path(program[0]).resolve().parent))
    try:
        job.check_device(place.device, "Set CUDA_VISIBLE_DEVICES= to train on the CPU.")
        try:
            _run_script(program[0], place, snapshot)
        except Leave:
            _end(place)
            return 0
        link.phase = "finished"
        number = link.view.number if link.view else 0
        link.send(wire.Finished(view=number, num_rounds=link.num_rounds, trained=place.taken or place.is_independent))
        return 0
    except BaseException as error:  # noqa: BLE001 - the reason for the end of the program is reported once, where the user looks
        return _report_failure(error, link)


def _run_script(path: str, place: job.Place, snapshot: Snapshot | None) -> None:
    try:
        if snapshot is not None:
            snapshot.run_script(path)
        else:
            runpy.run_path(path, run_name="__main__")
    except SystemExit as ending_program:
        if isinstance(ending_program, Leave) or ending_program.code not in (None, 0):
            raise
    # This worker may learn here too that it has to leave.
    _end(place)


def _end(place: job.Place) -> None:
    for ending in place.endings:
        ending()


_FRAMEWORKS: Final = {"fabric_model": "edtPyTorch", "pyedt": "edtPyTorch", "elasticai_api": "elasticdl"}
"""Modules that exist only in jobs of a framework, and the framework."""


def advise(error: BaseException) -> str | None:
    """Return what to do about an error whose cause is not the program itself; None for all other errors."""
    if isinstance(error, ModuleNotFoundError) and error.name in _FRAMEWORKS:
        return (
            f"The program is written for another framework. Submit it with --framework {_FRAMEWORKS[error.name]}; in a "
            "training definition, leave the framework to be recognised."
        )
    told = str(error)
    if "CUDA out of memory" in told:
        return (
            "The GPU has too little memory for the model, its optimizer and one micro-batch. Take a smaller "
            "micro_batch_size; with the same global_batch_size the steps stay equally large. Other programs, or other "
            "workers, may use the same GPU: nvidia-smi shows them."
        )
    is_mixed = "all tensors to be on the same device" in told or "weight type (torch." in told
    if is_mixed and "cuda" in told:
        return (
            "run.prepare and run.batches move models and batches to the GPU, run.device. Give other models to "
            "run.prepare, and move other tensors, such as the weights of a loss, there: weights.to(run.device)."
        )
    if "lengths' argument should be a 1D CPU int64 tensor" in told:
        return "run.batches moves all tensors of a batch to the GPU, run.device. Give the lengths as lengths.cpu()."
    if "does not have a deterministic implementation" in told or "CUBLAS_WORKSPACE_CONFIG" in told:
        return (
            "On GPUs, reduction='exact' has torch refuse what gives other bits in each run. Use another operation, run "
            "this one on the CPU, or call torch.use_deterministic_algorithms(True, warn_only=True) after "
            "legato.elastic(...) if the result may differ between runs."
        )
    # Other libraries import torchvision too, and raise an error of their own.
    causes = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None and cause not in causes:
        causes.append(cause)
    return _advise_on_gradients(error) or next(filter(None, map(_explain_import_of_torchvision, causes)), None)


def _advise_on_gradients(error: BaseException) -> str | None:
    """Return what to do if the program needed a gradient in a turn that completes no step; None for other errors."""
    told = str(error)
    if isinstance(error, TypeError | AttributeError) and "NoneType" in told and ".grad" in _failed_line(error):
        return (
            "In the loop over run.batches, .grad is None until the gradient of the step is complete. Read and change "
            "gradients under `if run.stepped:`."
        )
    if "No inf checks were recorded for this optimizer" in told:
        return "Give the GradScaler to run.prepare: then it acts once per step, when the gradient is complete."
    return None


def _failed_line(error: BaseException) -> str:
    """Return the line of source in which an error was raised."""
    found = traceback.extract_tb(error.__traceback__)
    return (found[-1].line or "") if found else ""


def _explain_import_of_torchvision(error: BaseException) -> str | None:
    """Return why torchvision cannot be imported; None if the error comes from elsewhere, or has another cause."""
    told = str(error)
    importing = "torchvision::" in told or any(
        str(frame.f_globals.get("__name__")).partition(".")[0] == "torchvision" and frame.f_code.co_name == "<module>"
        for frame, _ in traceback.walk_tb(error.__traceback__)
    )
    found = find_torchvision() if importing and isinstance(error, Exception) else None
    torch = getattr(sys.modules.get("torch"), "__version__", None)
    return explain_torchvision(str(torch), *found, told) if found is not None and torch is not None else None


def _report_failure(error: BaseException, link: Link) -> int:
    code = EXIT_FAILED
    if isinstance(error, SystemExit):
        if isinstance(error.code, int):
            code = error.code
            text = f"The program ended itself with exit code {code}."
            if isinstance(error.__context__, argparse.ArgumentError):
                text = f"{text} It does not accept its arguments: {error.__context__}."
        else:
            text = str(error.code)
        told = text + "\n"
    else:
        text = "".join(traceback.format_exception_only(error)).strip()
        if isinstance(error, SyntaxError):
            # On one line. The lines with the caret are in the log.
            text = f"{type(error).__name__}: {error}"
        if (advice := advise(error)) is not None:
            text = f"{text.removesuffix('.')}. {advice}"
            error.add_note(f"legato: {advice}")
        told = "".join(traceback.format_exception(type(error), error, _frames_of_program(error) or error.__traceback__))
        if isinstance(error, LegatoError):
            # The message is meant for the user; the lines of Legato's modules are not.
            module = f"{type(error).__module__}."
            text, told = text.removeprefix(module), told.replace(f"\n{module}", "\n")
            if not _frames_of_program(error):
                told = f"{text}\n"
        elif isinstance(error, SyntaxError) and error.__context__ is None:
            told = _describe_syntax_error(error)
    sys.stderr.write(told)
    number = link.view.number if link.view else 0
    mismatch = isinstance(error, MismatchError)
    link.send(wire.Failed(view=number, error=text, traceback=told, exit_code=code, mismatch=mismatch))
    return code


def _describe_syntax_error(error: SyntaxError) -> str:
    """Return a syntax error as Python prints it: the error names the line, after the imports that led to its file."""
    found = traceback.extract_tb(_frames_of_program(error))
    frames = [
        each for each in found if not each.filename.startswith("<frozen importlib") and each.filename != _IMPORTER
    ]
    way = ["Traceback (most recent call last):\n", *traceback.format_list(frames)] if frames else []
    return "".join([*way, *traceback.format_exception_only(error)])


def _frames_of_program(error: BaseException) -> TracebackType | None:
    """Return the traceback from the user's program on; None if it has no such part."""
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_globals.get("__name__") != "__main__":
        frame = frame.tb_next
    return frame


def _exit(code: int) -> NoReturn:
    # Not sys.exit: threads of gloo may still run, and the end of the interpreter would wait for them or crash.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
