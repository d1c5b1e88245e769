"""A small GPT, trained to write, then fine-tuned to classify; watched by three lines, marked below.

The text is made up here, letter by letter: short notes about the weather, money or food. Run it:
``python examples/text_classifier.py``
"""

import random

import torch
from torch import Tensor, nn
from torch.nn import functional

import surefoot as sf

WORDS = {
    "weather": ["rain", "wind", "cloud", "storm", "sunny", "snow", "mild"],
    "money": ["price", "bank", "loan", "cheap", "profit", "debt", "sale"],
    "food": ["bread", "soup", "apple", "salt", "sweet", "rice", "cheese"],
}
PLAIN = ["today", "again", "no", "more", "late", "some", "old", "new", "we", "had", "they", "saw"]
LENGTH, LETTERS = 32, " abcdefghijklmnopqrstuvwxyz"


def notes(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Letters (count, 32) and classes (count,); one note in ten is labelled at random."""
    draw = random.Random(seed)
    texts, labels = [], []
    for _ in range(count):
        label = draw.randrange(3)
        words = [draw.choice(list(WORDS.values())[label]), *draw.choices(PLAIN, k=4)]
        draw.shuffle(words)
        texts.append([LETTERS.index(letter) for letter in " ".join(words)[:LENGTH].ljust(LENGTH)])
        labels.append(label if draw.random() < 0.9 else draw.randrange(3))
    return torch.tensor(texts), torch.tensor(labels)


class Block(nn.Module):
    """Causal attention and an MLP, each after a norm and added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x: Tensor) -> Tensor:
        """(b, t, width) to the same."""
        b, t, width = x.shape
        q, k, v = self.mixed(self.first(x)).view(b, t, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(b, t, width))
        return x + self.mlp(self.second(x))


class GPT(nn.Module):
    """Letters (b, t) to what comes after each (b, t, letters); or, with a class head, to classes (b, k)."""

    def __init__(self, width: int = 32, depth: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(len(LETTERS), width), nn.Embedding(LENGTH, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, len(LETTERS))
        self.classes: nn.Linear | None = None

    def forward(self, text: Tensor) -> Tensor:
        """Logits."""
        hidden = self.norm(self.blocks(self.letters(text) + self.places.weight[: text.shape[1]]))
        return self.head(hidden) if self.classes is None else self.classes(hidden.mean(dim=1))


def pretrain(model: GPT, text: Tensor, steps: int) -> None:
    """Learn to write."""
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        rows = text[torch.randint(len(text), (32,))]
        logits = model(rows[:, :-1])
        opt.zero_grad()
        functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()).backward()
        opt.step()


def main() -> None:
    """Pre-train, fine-tune, and print how right, how sure and how sharp it was on the way."""
    torch.manual_seed(0)
    (x, y), (x_test, y_test) = notes(256, seed=1), notes(256, seed=2)
    model = GPT()
    pretrain(model, notes(1000, seed=0)[0], steps=100)

    model.classes, model.head = nn.Linear(32, 3), None  # type: ignore[assignment]
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    steps = 120
    with sf.Tracker(model, train=(x, y), test=(x_test, y_test), optimizer=opt, every=40) as tracker:  # 1
        for step in range(steps):
            rows = torch.randint(len(x), (32,))
            loss = functional.cross_entropy(model(x[rows]), y[rows])
            opt.zero_grad()
            loss.backward()
            opt.step()
            tracker.step(step)  # 2

    print(" step  train acc  test acc  test ece  sharpness")
    for r in tracker.readings:  # 3
        print(
            f"{r['step']:5d} {r['train.accuracy']:10.3f} {r['test.accuracy']:9.3f} {r['test.ece']:9.3f} "
            f"{r['sharpness']:10.2f}"
        )


if __name__ == "__main__":
    main()
