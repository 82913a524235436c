"""Settings of TensorFlow in a worker: deterministic, as many threads as torch, on the device of its slot.

Most of it must be said before TensorFlow does anything at all, and a program builds its model first; so it is said in
the environment, before the program begins. Imports TensorFlow only where the program has.
"""

from __future__ import annotations

from typing import Final

from legato.compat.wmla.fabric.keras_variables import tensorflow
from legato.train.process import job

_BY_DEFAULT: Final = {
    "KERAS_BACKEND": "tensorflow",
    "TF_CPP_MIN_LOG_LEVEL": "1",
    # Without it TensorFlow takes all memory of the GPU, and leaves none for the runtime's own tensors.
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",
}


def environment_for_tensorflow(num_threads: int, *, is_exact: bool = True) -> dict[str, str]:
    """Return the variables with which TensorFlow computes as the runtime needs it; what is set already should win.

    Args:
        num_threads: of a worker.
        is_exact: the job trains with `FabricModel`, which seeds TensorFlow. A program that trains by itself may draw
            without a seed, which deterministic operations refuse.

    >>> environment_for_tensorflow(1)["TF_NUM_INTRAOP_THREADS"]
    '1'
    """
    threads = str(num_threads)
    exact = {"TF_DETERMINISTIC_OPS": "1"} if is_exact else {}
    return {**_BY_DEFAULT, **exact, "TF_NUM_INTRAOP_THREADS": threads, "TF_NUM_INTEROP_THREADS": threads}


def settle() -> None:
    """Switch deterministic kernels on, before the run begins; do not touch the slot's GPU if TensorFlow has none."""
    tf = tensorflow()
    tf.config.experimental.enable_op_determinism()
    # Without it, drawing is an error then. Every micro-batch has its own.
    tf.random.set_seed(0)
    if not tf.config.list_physical_devices("GPU"):
        # Programs for the CPU hide the GPUs with CUDA_VISIBLE_DEVICES, whatever slot they run in.
        job.stay_on_cpu()
