"""Configures TensorFlow in a worker: deterministic operations, as many threads as torch, the device of the slot.

Most settings have an effect only before TensorFlow starts, and a program builds its model before it trains. So the
launcher sets them as environment variables before it runs the program. `configure_tensorflow` imports TensorFlow, which
the program has imported before.
"""

from __future__ import annotations

from typing import Final

from legato.compat.wmla.fabric.keras_variables import tensorflow
from legato.train.process import job

_BY_DEFAULT: Final = {
    "KERAS_BACKEND": "tensorflow",
    "TF_CPP_MIN_LOG_LEVEL": "1",
    # Otherwise TensorFlow takes all memory of the GPU, and the runtime has none for its own tensors.
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",
}


def environment_for_tensorflow(num_threads: int, *, is_exact: bool = True) -> dict[str, str]:
    """Return the environment variables for TensorFlow in a worker; the caller should keep variables that are set.

    Args:
        num_threads: of a worker.
        is_exact: whether the job trains with `FabricModel`, which seeds TensorFlow. Other programs may use random
            operations without a seed, which deterministic TensorFlow refuses.

    >>> environment_for_tensorflow(1)["TF_NUM_INTRAOP_THREADS"]
    '1'
    """
    threads = str(num_threads)
    exact = {"TF_DETERMINISTIC_OPS": "1"} if is_exact else {}
    return {**_BY_DEFAULT, **exact, "TF_NUM_INTRAOP_THREADS": threads, "TF_NUM_INTEROP_THREADS": threads}


def configure_tensorflow() -> None:
    """Make TensorFlow deterministic before the run begins; if TensorFlow sees no GPU, the run stays on the CPU."""
    tf = tensorflow()
    tf.config.experimental.enable_op_determinism()
    # With determinism, random operations without a seed are an error. Each micro-batch sets its own seed later.
    tf.random.set_seed(0)
    if not tf.config.list_physical_devices("GPU"):
        # Programs for the CPU hide the GPUs with CUDA_VISIBLE_DEVICES, even if their slot has a GPU.
        job.stay_on_cpu()
