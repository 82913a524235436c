"""A small transformer learns to write like Python's manual, letter by letter.

Tied embeddings, dropout, warm-up of the learning rate step by step, clipped gradients and, with ``--bf16``, mixed
precision. Alone:  python examples/tiny_gpt.py    With workers:  legato run --workers 1..4 examples/tiny_gpt.py
"""

import argparse
import hashlib
from pydoc_data.topics import topics

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.utils.data import Dataset

import legato

CONTEXT = 64  # letters that the model sees at once


class Windows(Dataset[tuple[Tensor, Tensor]]):
    """Pieces of a text, each with the letters that come next."""

    def __init__(self, letters: Tensor) -> None:
        self.letters = letters

    def __len__(self) -> int:
        return (len(self.letters) - 1) // CONTEXT

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        start = index * CONTEXT
        piece = self.letters[start : start + CONTEXT + 1]
        return piece[:-1], piece[1:]


class Block(nn.Module):
    """Attention to what came before, then a feed-forward part."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.before_attention, self.before_thought = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.merge = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.think = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for part in self.attend(self.before_attention(x)).chunk(3, dim=-1)
        )
        seen = scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.merge(seen.transpose(1, 2).flatten(-2))
        return x + self.think(self.before_thought(x))


class TinyGPT(nn.Module):
    """A language model over letters; one matrix both reads and writes them."""

    def __init__(self, num_letters: int, width: int = 64, num_blocks: int = 2, num_heads: int = 4) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(num_letters, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*(Block(width, num_heads) for _ in range(num_blocks)), nn.LayerNorm(width))
        self.write = nn.Linear(width, num_letters, bias=False)
        for embedding in (self.letters, self.places):
            nn.init.normal_(embedding.weight, std=0.02)
        self.write.weight = self.letters.weight

    def forward(self, letters: Tensor) -> Tensor:
        places = self.places(torch.arange(letters.shape[1], device=letters.device))
        return self.write(self.blocks(self.letters(letters) + places))


def per_letter(logits: Tensor, letters: Tensor) -> Tensor:
    """Return the cross entropy of each sample, in nats per letter."""
    return cross_entropy(logits.float().transpose(1, 2), letters, reduction="none").mean(dim=1)


@torch.no_grad()
def write(model: TinyGPT, alphabet: str, begin: str, num_letters: int) -> str:
    """Let the model continue with a text."""
    model.eval()
    dice, device = torch.Generator().manual_seed(0), model.letters.weight.device
    text = begin
    for _ in range(num_letters):
        seen = torch.tensor([[alphabet.index(letter) for letter in text[-CONTEXT:]]], device=device)
        chances = model(seen)[0, -1].div(0.7).softmax(0).cpu()
        text += alphabet[int(torch.multinomial(chances, 1, generator=dice))]
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description="Learn to write like Python's manual.")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--letters", type=int, default=100_000, help="of the manual, to learn from")
    parser.add_argument("--bf16", action="store_true", help="compute in bfloat16 where that is safe")
    arguments = parser.parse_args()

    manual = "\n".join(topics[name] for name in sorted(topics))[: arguments.letters]
    alphabet = "".join(sorted(set(manual)))
    letters = torch.tensor([alphabet.index(letter) for letter in manual])
    num_learned = len(letters) * 9 // 10

    run = legato.elastic(global_batch_size=16, micro_batch_size=4, seed=0)
    model = TinyGPT(len(alphabet))
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.01)
    warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 20))
    model, optimizer, warm_up = run.prepare(model, optimizer, warm_up)

    for _ in run.epochs(arguments.epochs):
        for inputs, targets in run.batches(Windows(letters[:num_learned])):
            with torch.autocast(run.device.type, torch.bfloat16, enabled=arguments.bf16):
                loss = per_letter(model(inputs), targets).mean()
            run.backward(loss)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            warm_up.step()
        run.log(nats_per_letter=run.evaluate(model, Windows(letters[num_learned:]), per_letter))

    if run.is_main:
        print(write(model, alphabet, begin="The ", num_letters=200))
        digest = hashlib.sha256(b"".join(tensor.cpu().numpy().tobytes() for tensor in model.state_dict().values()))
        print(f"weights sha256 {digest.hexdigest()}")


if __name__ == "__main__":
    main()
