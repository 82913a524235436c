"""What `hugging_face.py` imports: a warm parent imports it once for all workers."""

from __future__ import annotations

from typing import Final

from tests.torchvision_operators import make_torchvision_importable

make_torchvision_importable()

import peft
import transformers

from legato.integrations.transformers import Trainer

# Hugging Face loads modules when a name in them is used.
_LOADED: Final = (peft.LoraConfig, transformers.GPT2LMHeadModel, Trainer)
