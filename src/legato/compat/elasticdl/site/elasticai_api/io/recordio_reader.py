"""``RecordIOReader``: not supported, because no maintained library reads ElasticDL's RecordIO files."""

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "RecordIOReader":
        raise ImportError(
            "RecordIOReader is not supported: no maintained library reads RecordIO files of ElasticDL. Convert them to "
            "files that a torch Dataset can read by the number of a record."
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
