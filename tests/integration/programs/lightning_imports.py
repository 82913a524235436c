"""What `lightning_module.py` imports: a warm parent imports it once for all workers."""

from __future__ import annotations

from tests.torchvision_operators import make_torchvision_importable

make_torchvision_importable()

import lightning  # noqa: F401

import legato.integrations.lightning  # noqa: F401
