"""`ElasticImageFolder`: torchvision's ``ImageFolder`` with the numbers of a service. Needs torchvision when made."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any, Final

from legato.core.errors import DataError

IMG_EXTENSIONS: Final = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


@functools.cache
def make_class(module: str) -> type[Any]:
    """Return the class.

    Args:
        module: where programs find it; loader processes that are spawned find it there.

    Raises:
        ImportError: there is no torchvision.
    """
    from torchvision.datasets import ImageFolder
    from torchvision.datasets.folder import default_loader

    class ElasticImageFolder(ImageFolder):  # type: ignore[misc, unused-ignore]
        """Images in a folder for each class.

        Args:
            root: the folder of folders.
            transform: of images.
            target_transform: of the numbers of classes.
            loader: reads an image.
            is_valid_file: which files are images; None: by their names.

        Raises:
            DataError: there is no such folder.
        """

        def __init__(
            self,
            root: Any,
            transform: Any = None,
            target_transform: Any = None,
            loader: Any = default_loader,
            is_valid_file: Any = None,
        ) -> None:
            if not Path(root).is_dir():
                raise DataError(
                    f"There is no folder {root} of images. Check the path that the program is given, and that the "
                    "folder is on this machine."
                )
            super().__init__(root, transform, target_transform, loader, is_valid_file)
            self._data_shard_service: Any = None

        def set_data_shard_service(self, data_shard_service: Any) -> None:
            """Have a service say which images are read."""
            self._data_shard_service = data_shard_service

        def __len__(self) -> int:
            # How many images this worker will read is unknown.
            return sys.maxsize if self._data_shard_service is not None else len(self.samples)

        def __getitem__(self, index: int) -> Any:
            if self._data_shard_service is not None:
                index = self._data_shard_service.fetch_record_index()
            return super().__getitem__(index)

    ElasticImageFolder.__module__ = module
    ElasticImageFolder.__qualname__ = "ElasticImageFolder"
    return ElasticImageFolder
