"""Makes `ElasticImageFolder`: torchvision's ``ImageFolder``, with images that a data shard service chooses."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any, Final

from legato.core.errors import DataError

IMG_EXTENSIONS: Final = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


@functools.cache
def make_class(module: str) -> type[Any]:
    """Return the class. Imports torchvision only now.

    Args:
        module: name of the module from which programs, and loader processes that are spawned, import the class.

    Raises:
        ImportError: torchvision is not installed.
    """
    from torchvision.datasets import ImageFolder
    from torchvision.datasets.folder import default_loader

    class ElasticImageFolder(ImageFolder):  # type: ignore[misc, unused-ignore]
        """A data set of images, with one folder for each class.

        Args:
            root: the folder that contains the folders of the classes.
            transform: applied to each image.
            target_transform: applied to the number of each image's class.
            loader: reads an image file.
            is_valid_file: whether a path is an image; None: the name of the file decides.

        Raises:
            DataError: the folder does not exist.
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
                    f"The folder {root} with the images does not exist. Check the path that the program uses, and that "
                    "the folder is on this machine."
                )
            super().__init__(root, transform, target_transform, loader, is_valid_file)
            self._data_shard_service: Any = None

        def set_data_shard_service(self, data_shard_service: Any) -> None:
            """Set the service that chooses the images to read."""
            self._data_shard_service = data_shard_service

        def __len__(self) -> int:
            # The number of images that this worker will read is unknown.
            return sys.maxsize if self._data_shard_service is not None else len(self.samples)

        def __getitem__(self, index: int) -> Any:
            if self._data_shard_service is not None:
                index = self._data_shard_service.fetch_record_index()
            return super().__getitem__(index)

    ElasticImageFolder.__module__ = module
    ElasticImageFolder.__qualname__ = "ElasticImageFolder"
    return ElasticImageFolder
