"""FabricModel in a notebook: ``train()`` submits itself as a job, shows its progress, and waits for its end.

Inside of a job it is the FabricModel of programs. Trains nothing here.
"""

from __future__ import annotations

import inspect
import os
import sys
import time
from pathlib import Path
from typing import Any, Final

from legato.client.jobs import Job
from legato.compat.wmla import names
from legato.compat.wmla.fabric import model as fabric
from legato.compat.wmla.fabric.job_environment import read_environment
from legato.compat.wmla.fabric.keras_generation import LEGACY
from legato.compat.wmla.fabric.keras_variables import is_keras_2, keras_of
from legato.compat.wmla.fabric.rules import read_arguments
from legato.compat.wmla.notebook.hardware import read_hardware
from legato.compat.wmla.notebook.notebook_bundle import NotebookBundle, make_files
from legato.compat.wmla.notebook.results import bring_weights, save_result
from legato.compat.wmla.notebook.screens import open_screen
from legato.compat.wmla.notebook.submitting import Platform
from legato.compat.wmla.notebook.watching import Watch
from legato.core.errors import UsageError

_FRAMEWORKS: Final = {"pytorch": "edtPyTorch", "tensorflow": "edtTensorflow"}


class FabricModel(fabric.FabricModel):
    """A model, and what is needed to train it on the platform; all arguments as of a program's FabricModel."""

    # What a notebook shows when it is asked for help.
    __signature__ = inspect.signature(fabric.FabricModel)

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._given = self.__signature__.bind(*given, **named).arguments
        self._job: Job | None = None

    def train(  # type: ignore[override]  # here the words of notebooks have names of their own
        self,
        epoch_number: int,
        batch_size: int,
        engines_number: int | None = None,
        num_dataloader_threads: int = 4,
        validation_freq: int = 1,
        checkpoint_freq: int | None = None,
        effective_batch_size: int | None = None,
        *,
        worker_memory: Any = None,
        driver_memory: Any = None,
        hardware_spec: Any = None,
        worker_num: Any = None,
        worker_device_num: Any = None,
    ) -> None:
        """Train on the platform; returns when the training is over and the model here has the trained weights.

        An interrupt stops the job.

        Args:
            epoch_number: and those up to ``effective_batch_size``: as of a program.
            batch_size: as above.
            engines_number: as above, and the most GPUs that the job will have.
            num_dataloader_threads: as above.
            validation_freq: as above.
            checkpoint_freq: as above.
            effective_batch_size: as above.
            worker_memory: accepted.
            driver_memory: accepted.
            hardware_spec: how many nodes and GPUs; goes before ``engines_number``.
            worker_num: nodes, where neither of the two is given.
            worker_device_num: GPUs of each.

        Raises:
            UsageError: an argument cannot be used or sent, or no server is known; says what to do.
            TrainingFailed: the job ended without a trained model.
        """
        environment = read_environment()
        said = {
            "epoch_number": epoch_number,
            "batch_size": batch_size,
            "num_dataloader_threads": num_dataloader_threads,
            "validation_freq": validation_freq,
            "checkpoint_freq": checkpoint_freq,
            "effective_batch_size": effective_batch_size,
        }
        if environment.is_in_job:
            super().train(**said, engines_number=engines_number)  # type: ignore[arg-type]
            return
        hardware = read_hardware(
            hardware_spec=hardware_spec,
            worker_num=worker_num,
            worker_device_num=worker_device_num,
            worker_memory=worker_memory,
            driver_memory=driver_memory,
        )
        engines = hardware.choose_engines(engines_number, effective_batch_size)
        plan = read_arguments(**said, engines_number=engines, generation=self._extras.generation, max_workers=1)
        if hardware.notice:
            _say(hardware.notice)
        if engines_number is not None and plan.engines_number != engines_number:
            _say(
                f"engines_number={engines_number} has no effect: other arguments, which have precedence, set it to "
                f"{plan.engines_number}."
            )
        backend = _find_backend(self._given["model"])
        _tell_backend(backend, os.environ.get(names.BACKEND))
        _check_place(self._given["model"])
        files = make_files(NotebookBundle(self._given, {**said, "engines_number": plan.engines_number}))
        platform = Platform()
        workers = hardware.choose_workers(engines_number, plan.engines_number)
        self._job = platform.submit(files, _FRAMEWORKS[backend], workers, _find_generation(self._given["model"]))
        Watch(self._job, open_screen(_say), _say).run()
        bring_weights(self._job, self._given, _say)

    def download(self, out_dir: str | Path = "/tmp") -> None:  # noqa: S108 - as WMLA has it
        """Save what the last training left, as a zip file, and say where.

        Args:
            out_dir: gets ``JOB.zip``.

        Raises:
            UsageError: nothing was trained, or the folder cannot be written to.
        """
        if read_environment().is_in_job:
            super().download(out_dir)
            return
        if self._job is None:
            raise UsageError("There is nothing to download: train() was not called in this notebook. Call it first.")
        _say(f"Save model:  {save_result(self._job, Path(out_dir))}")


def _find_backend(model: Any) -> str:
    return "pytorch" if keras_of(model) is None else "tensorflow"


def _find_generation(model: Any) -> dict[str, str]:
    """Return the variable by which TensorFlow has the same Keras there as here."""
    keras = keras_of(model)
    return {} if keras is None else {LEGACY: "1" if is_keras_2(keras) else "0"}


def _tell_backend(backend: str, said: str | None) -> None:
    if not said:
        _log("WARNING", f"FABRIC_BACKEND is not set. It follows from the model: {backend}.")
    elif said.lower() not in (backend, "keras" if backend == "tensorflow" else backend):
        _log("WARNING", f"FABRIC_BACKEND is {said}, but the model is of another one. Legato uses {backend}.")
    _log("INFO", f"Using {backend} backend.")


def _check_place(model: Any) -> None:
    if keras_of(model) is not None:
        return
    elsewhere = {str(part.device) for part in (*model.parameters(), *model.buffers()) if part.device.type != "cpu"}
    if elsewhere:
        raise UsageError(
            f"The model is on {', '.join(sorted(elsewhere))}. Make it on the CPU: leave out .to(device) and .cuda(), "
            "and make the optimizer after that. The platform moves it to the GPUs."
        )


def _log(level: str, text: str) -> None:
    """Write a line as WMLA's package wrote when it was loaded."""
    now = time.time()
    at = f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(now))},{int(now * 1000) % 1000:03d}"
    _say(f"{at} {os.getpid()} {level} __init__.<module> - {text}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
