"""``from elasticai_api.pytorch.dataset import ElasticImageFolder``, as programs write it; needs torchvision."""

from typing import Any

from legato.compat.elasticdl.image_folder import IMG_EXTENSIONS, make_class

__all__ = ["IMG_EXTENSIONS"]


def __getattr__(name: str) -> Any:
    if name == "ElasticImageFolder":
        return make_class(__name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
