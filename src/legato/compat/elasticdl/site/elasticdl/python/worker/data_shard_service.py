"""Services, where programs of autumn 2020 import them from."""

from legato.compat.elasticdl.data_service import DataShardService, RecordIndexService, build_data_shard_service

__all__ = ["DataShardService", "RecordIndexService", "build_data_shard_service"]
