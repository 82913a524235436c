"""A small vision transformer learns to read handwritten digits, by Hugging Face's Trainer; nothing is downloaded.

Alone:  python examples/hugging_face.py    With workers:  legato run --workers 1..4 examples/hugging_face.py
With `from transformers import Trainer` it is a program without Legato. It needs pip install 'legato[transformers]'.
"""

import argparse
import hashlib

import torch
from sklearn.datasets import load_digits
from transformers import EarlyStoppingCallback, EvalPrediction, TrainingArguments, ViTConfig, ViTForImageClassification

from legato.integrations.transformers import Trainer


def make_model() -> ViTForImageClassification:
    config = ViTConfig(
        image_size=8,
        patch_size=2,
        num_channels=1,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        hidden_dropout_prob=0.1,
        num_labels=10,
    )
    return ViTForImageClassification(config)


def accuracy(found: EvalPrediction) -> dict[str, float]:
    return {"accuracy": float((found.predictions.argmax(-1) == found.label_ids).mean())}


def main() -> None:
    parser = argparse.ArgumentParser(description="Learn to read handwritten digits.")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--out", default="digits-model")
    arguments = parser.parse_args()

    images, digits = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
    images = images.float().reshape(-1, 1, 8, 8) / 16
    samples = [{"pixel_values": image, "labels": int(digit)} for image, digit in zip(images, digits, strict=True)]
    trainer = Trainer(
        model_init=make_model,
        args=TrainingArguments(
            output_dir=arguments.out,
            # A step has 4 micro-batches of 16 samples, which up to 4 workers share.
            per_device_train_batch_size=16,
            gradient_accumulation_steps=4,
            num_train_epochs=arguments.epochs,
            learning_rate=3e-3,
            warmup_steps=20,
            lr_scheduler_type="cosine",
            weight_decay=0.01,
            logging_steps=10,
            eval_strategy="epoch",
            save_strategy="epoch",
            save_total_limit=1,
            load_best_model_at_end=True,
            metric_for_best_model="accuracy",
            report_to="none",
        ),
        train_dataset=samples[:1500],
        eval_dataset=samples[1500:],
        compute_metrics=accuracy,
        callbacks=[EarlyStoppingCallback(early_stopping_patience=5)],
    )
    trainer.train()
    trainer.save_model()
    weights = b"".join(value.cpu().numpy().tobytes() for value in trainer.model.state_dict().values())
    print("weights sha256", hashlib.sha256(weights).hexdigest())


if __name__ == "__main__":
    main()
