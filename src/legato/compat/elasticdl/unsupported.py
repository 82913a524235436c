"""Messages about parts of ElasticDL that are not supported."""

from __future__ import annotations

from typing import Final, NoReturn

_TENSORFLOW: Final = (
    "AdjustBackwardPassesPerStepHook",
    "DistributedOptimizer",
    "ElasticDataShardReportHook",
    "ReportModelMetricHook",
    "TensorFlowV1AllReduceController",
    "TensorFlowV2AllReduceController",
    "create_elastic_controller",
    "get_adjust_backward_passes_hooks",
)


def refuse_tensorflow(name: str) -> NoReturn:
    """Refuse a name for TensorFlow that a program imports.

    Raises:
        AttributeError: ElasticDL had no such name.
        ImportError: ElasticDL had this name.
    """
    if name not in _TENSORFLOW:
        raise AttributeError(name)
    raise ImportError(
        f"{name} for TensorFlow is not supported. Programs in PyTorch run with elasticai_api.pytorch; Keras models are "
        "trained by FabricModel (docs/wmla.md)."
    )
