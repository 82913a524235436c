"""``RecordIOReader``: no kept library reads the format of ElasticDL's RecordIO."""

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "RecordIOReader":
        raise ImportError(
            "RecordIOReader is not supported: no maintained library reads RecordIO files of ElasticDL. Convert them to "
            "files "
            "that a torch Dataset can read by the number of a record."
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
