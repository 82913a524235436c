"""The page for users of ElasticDL names the methods, variables and functions that programs use."""

from __future__ import annotations

from pathlib import Path

from legato.compat.elasticdl import controller, data_service, horovod_names, job_environment

PAGE = (Path(__file__).parents[4] / "docs/elasticdl.md").read_text()


def test_every_method_and_variable_is_named() -> None:
    public = [
        name
        for kind in (data_service.DataShardService, data_service.RecordIndexService, controller.AllReduceController)
        for name in vars(kind)
        if not name.startswith("_")
    ]
    own = {
        "has_handed_out",
        "end_beginning",
        "plan",
        "training",
        "begin_loading",
        "is_planned",
        "records_per_task",
        "train_one_batch_with_retries",
    }
    assert [name for name in public if name not in PAGE and name not in own] == []
    variables = [value for name, value in vars(job_environment).items() if name.isupper()]
    assert [value for value in variables if value not in PAGE] == []


def test_names_of_horovod_that_do_something_are_named() -> None:
    for name in ("init", "size", "rank", "local_rank", "DistributedOptimizer", "Compression", "allreduce"):
        assert hasattr(horovod_names, name) and name in PAGE
