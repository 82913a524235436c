"""Channels, where programs of 2020 import them from."""

from legato.compat.elasticdl.site.elasticai_api.util.grpc_utils import build_channel, find_free_port

__all__ = ["build_channel", "find_free_port"]
