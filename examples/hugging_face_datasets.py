"""A small network learns to read handwritten digits, from a data set of Hugging Face `datasets`; nothing is downloaded.

Alone:  python examples/hugging_face_datasets.py
With workers:  legato run --workers 1..4 examples/hugging_face_datasets.py
It needs pip install 'legato[datasets]'.
"""

import argparse
import hashlib

import torch
from datasets import Dataset
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

import legato


def shift(samples: dict) -> dict:
    """Move each image by a pixel to some side: Legato gives each micro-batch its own random numbers."""
    images = torch.tensor(samples["image"]).reshape(-1, 1, 8, 8)
    moves = torch.randint(-1, 2, (len(images), 2)).tolist()
    moved = [image.roll(move, (1, 2)) for image, move in zip(images, moves, strict=True)]
    return {"image": moved, "digit": samples["digit"]}


parser = argparse.ArgumentParser(description="Learn to read handwritten digits.")
parser.add_argument("--epochs", type=int, default=5)
arguments = parser.parse_args()

images, digits = load_digits(return_X_y=True)
both = Dataset.from_dict({"image": (images / 16).astype("float32"), "digit": digits}).train_test_split(0.2, seed=0)
train_set = both["train"].with_transform(shift)
test_set = both["test"].with_format("torch")

run = legato.elastic(global_batch_size=64, micro_batch_size=16, seed=0)
model = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(16 * 6 * 6, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
model, optimizer = run.prepare(model, optimizer)

for _ in run.epochs(arguments.epochs):
    for batch in run.batches(train_set):
        run.backward(cross_entropy(model(batch["image"]), batch["digit"]))
        optimizer.step()
        optimizer.zero_grad()
    found = run.evaluate(
        model,
        test_set,
        lambda outputs, targets: outputs.argmax(1) == targets,
        # run.evaluate takes pairs (inputs, targets).
        collate_fn=lambda samples: (
            torch.stack([sample["image"] for sample in samples]).reshape(-1, 1, 8, 8),
            torch.stack([sample["digit"] for sample in samples]),
        ),
    )
    run.log(loss=run.epoch_loss, accuracy=found)

digest = hashlib.sha256(b"".join(tensor.cpu().numpy().tobytes() for tensor in model.state_dict().values()))
print(f"weights sha256 {digest.hexdigest()}")
