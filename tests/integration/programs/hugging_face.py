"""Hugging Face's Trainer: a tiny GPT-2 made from a configuration, tied weights, dropout, labels of which some do not
count, warm-up, clipping, evaluation with a metric, early stopping, the best model loaded at the end; V = 5.
"""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

import hugging_face_imports  # noqa: F401 - before the libraries
import peft
import torch
import transformers
from common import mark, pace, tell
from torch.utils.data import Dataset

from legato.integrations.transformers import Trainer


class Texts(Dataset[dict[str, Any]]):
    """Rows of 8 token numbers below 23; the first of them, some more in some rows, are no labels."""

    def __init__(self, num_samples: int, start: int) -> None:
        self._rows = torch.randint(23, (num_samples, 8), generator=torch.Generator().manual_seed(start))

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        row = self._rows[index]
        labels = row.clone()
        labels[: int(row[0]) % 6] = -100
        return {"input_ids": row, "labels": labels, "number": index}


class Paced(Trainer):
    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        pace(self.run)
        return super().training_step(*args, **kwargs)  # type: ignore[no-any-return]


class Watching(transformers.TrainerCallback):  # type: ignore[misc]
    """Counts the steps that it has seen, as a state that travels; draws a random number before each step."""

    num_steps = 0

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        torch.rand(1)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.num_steps += 1
        assert self.num_steps == state.global_step

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        mark(f"save-{state.global_step}")

    def state_dict(self) -> dict[str, Any]:
        return {"num_steps": self.num_steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.num_steps = state["num_steps"]


class Counting(transformers.TrainerCallback):  # type: ignore[misc]
    """Counts the steps in a plain attribute."""

    def __init__(self) -> None:
        self.num_steps = 0

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.num_steps += 1
        assert self.num_steps == state.global_step


class Told:
    """What the Trainer has recorded, without times."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def state_dict(self) -> dict[str, Any]:
        state = self._trainer.state
        lines = [
            {name: value for name, value in line.items() if not name.endswith(("_runtime", "_second", "_time"))}
            for line in state.log_history
        ]
        return {
            "lines": lines,
            "flos": state.total_flos,
            "tokens": state.num_input_tokens_seen,
            "best": state.best_metric,
        }


def accuracy(found: Any) -> dict[str, float]:
    right = found.predictions.argmax(-1)[:, :-1] == found.label_ids[:, 1:]
    return {"accuracy": float(right[found.label_ids[:, 1:] != -100].mean())}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default=None)
    parser.add_argument("--lora", action="store_true")
    parser.add_argument("--max-steps", type=int, default=-1)
    args = parser.parse_args()
    scratch = tempfile.TemporaryDirectory()
    transformers.set_seed(3)
    config = transformers.GPT2Config(
        vocab_size=23, n_positions=8, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
    )
    model: Any = transformers.GPT2LMHeadModel(config)
    if args.lora:
        model = peft.get_peft_model(model, peft.LoraConfig(r=2, lora_dropout=0.1, target_modules=["c_attn"]))
    watching = Watching()
    trainer = Paced(
        model,
        transformers.TrainingArguments(
            output_dir=args.out or scratch.name,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=5,
            num_train_epochs=5,
            max_steps=args.max_steps,
            learning_rate=1e-2,
            lr_scheduler_type="cosine",
            warmup_steps=3,
            weight_decay=0.1,
            max_grad_norm=0.5,
            bf16=args.lora,
            use_cpu=True,
            seed=4,
            logging_steps=2,
            eval_strategy="steps",
            eval_steps=3,
            save_strategy="steps",
            save_steps=3,
            save_total_limit=2,
            load_best_model_at_end=True,
            metric_for_best_model="loss",
            include_num_input_tokens_seen="all",
            report_to="none",
        ),
        train_dataset=Texts(83, 1),
        eval_dataset=Texts(20, 2),
        compute_metrics=accuracy,
        callbacks=[watching, Counting(), transformers.EarlyStoppingCallback(early_stopping_patience=20)],
    )
    trainer.train()
    trainer.save_model()
    tell(trainer.run, trainer.model, trainer.optimizer.optimizer, trainer.lr_scheduler, Told(trainer), watching)


if __name__ == "__main__":
    main()
