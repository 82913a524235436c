"""``from elasticai_api.common.data_shard_service import RecordIndexService``, as programs write it."""

from legato.compat.elasticdl.data_service import DataShardService, RecordIndexService, build_data_shard_service

__all__ = ["DataShardService", "RecordIndexService", "build_data_shard_service"]
