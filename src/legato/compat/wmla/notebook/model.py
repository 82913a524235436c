"""FabricModel for notebooks: ``train()`` submits a job, shows its progress, and waits for its end.

Inside of a job it does the same as the FabricModel for programs. Outside, it trains nothing in the notebook itself.
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
from legato.compat.wmla.notebook.results import load_weights, save_result
from legato.compat.wmla.notebook.screens import open_screen
from legato.compat.wmla.notebook.submitting import Platform
from legato.compat.wmla.notebook.watching import Watch
from legato.core.errors import UsageError

_FRAMEWORKS: Final = {"pytorch": "edtPyTorch", "tensorflow": "edtTensorflow"}


class FabricModel(fabric.FabricModel):
    """A model, its data, and everything else that its training needs, with the arguments of a program's FabricModel."""

    # The signature that a notebook shows as help.
    __signature__ = inspect.signature(fabric.FabricModel)

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._given = self.__signature__.bind(*given, **named).arguments
        self._job: Job | None = None

    def train(  # type: ignore[override]  # the arguments of notebooks are explicit here
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
        """Train on Legato. Returns when the job has ended and the model in the notebook has the trained weights.

        An interrupt stops the job.

        Args:
            epoch_number: this and the arguments up to ``effective_batch_size``: as for a program.
            batch_size: as above.
            engines_number: as above; also the maximum number of GPUs of the job.
            num_dataloader_threads: as above.
            validation_freq: as above.
            checkpoint_freq: as above.
            effective_batch_size: as above.
            worker_memory: accepted without effect.
            driver_memory: accepted without effect.
            hardware_spec: numbers of nodes and GPUs; has precedence over ``engines_number``.
            worker_num: number of nodes; used if neither ``hardware_spec`` nor ``engines_number`` is given.
            worker_device_num: number of GPUs of each node; used as ``worker_num`` is.

        Raises:
            UsageError: an argument cannot be used or sent.
            Unauthenticated: no server or no login is known; the message says what to do.
            TrainingFailed: the job ended without a trained model.
        """
        environment = read_environment()
        arguments = {
            "epoch_number": epoch_number,
            "batch_size": batch_size,
            "num_dataloader_threads": num_dataloader_threads,
            "validation_freq": validation_freq,
            "checkpoint_freq": checkpoint_freq,
            "effective_batch_size": effective_batch_size,
        }
        if environment.is_in_job:
            super().train(**arguments, engines_number=engines_number)  # type: ignore[arg-type]
            return
        hardware = read_hardware(
            hardware_spec=hardware_spec,
            worker_num=worker_num,
            worker_device_num=worker_device_num,
            worker_memory=worker_memory,
            driver_memory=driver_memory,
        )
        engines = hardware.choose_engines(engines_number, effective_batch_size)
        plan = read_arguments(**arguments, engines_number=engines, generation=self._extras.generation, max_workers=1)
        if hardware.notice:
            _say(hardware.notice)
        if engines_number is not None and plan.engines_number != engines_number:
            _say(
                f"engines_number={engines_number} has no effect: other arguments, which have precedence, set it to "
                f"{plan.engines_number}."
            )
        backend = _find_backend(self._given["model"])
        _log_backend(backend, os.environ.get(names.BACKEND))
        _check_device(self._given["model"])
        files = make_files(NotebookBundle(self._given, {**arguments, "engines_number": plan.engines_number}))
        platform = Platform()
        workers = hardware.choose_workers(engines_number, plan.engines_number)
        self._job = platform.submit(files, _FRAMEWORKS[backend], workers, _find_generation(self._given["model"]))
        Watch(self._job, open_screen(_say), _say).run()
        load_weights(self._job, self._given, _say)

    def download(self, out_dir: str | Path = "/tmp") -> None:  # noqa: S108 - as WMLA has it
        """Save the files of the last training as ``JOB.zip``, and print the path of the file.

        Args:
            out_dir: folder for the file.

        Raises:
            UsageError: ``train()`` was not called, or the file cannot be written.
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
    """Return the environment variable with which TensorFlow in the job uses the same Keras as in the notebook."""
    keras = keras_of(model)
    return {} if keras is None else {LEGACY: "1" if is_keras_2(keras) else "0"}


def _log_backend(backend: str, variable: str | None) -> None:
    if not variable:
        _log("WARNING", f"FABRIC_BACKEND is not set. Legato uses the model's backend, {backend}.")
    elif variable.lower() not in (backend, "keras" if backend == "tensorflow" else backend):
        _log("WARNING", f"FABRIC_BACKEND is {variable}, but the model's backend is {backend}. Legato uses {backend}.")
    _log("INFO", f"Using {backend} backend.")


def _check_device(model: Any) -> None:
    if keras_of(model) is not None:
        return
    devices = {str(part.device) for part in (*model.parameters(), *model.buffers()) if part.device.type != "cpu"}
    if devices:
        raise UsageError(
            f"The model is on {', '.join(sorted(devices))}. Create it on the CPU, without .to(device) and .cuda(), "
            "and create the optimizer after that. Legato moves the model to the GPUs."
        )


def _log(level: str, text: str) -> None:
    """Print a line in the format of WMLA's log."""
    now = time.time()
    at = f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(now))},{int(now * 1000) % 1000:03d}"
    _say(f"{at} {os.getpid()} {level} __init__.<module> - {text}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
