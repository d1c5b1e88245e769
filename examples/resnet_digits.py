"""A small residual network on the embedded digits, with momentum, batch norm and a schedule; watched by three lines.

Run it: ``python examples/resnet_digits.py``
"""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import surefoot as sf


class Block(nn.Module):
    """Two convolutions around a shortcut."""

    def __init__(self, width: int, wider: int, stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(width, wider, 3, stride, 1, bias=False),
            nn.BatchNorm2d(wider),
            nn.ReLU(),
            nn.Conv2d(wider, wider, 3, 1, 1, bias=False),
            nn.BatchNorm2d(wider),
        )
        self.short = nn.Identity() if stride == 1 else nn.Conv2d(width, wider, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Images to images."""
        return torch.relu(self.path(x) + self.short(x))


def resnet() -> nn.Module:
    """Images (b, 1, 8, 8) to logits (b, 10)."""
    stem = [nn.Conv2d(1, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU()]
    blocks = [Block(8, 8, 1), Block(8, 16, 2), Block(16, 32, 2)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


def main() -> None:
    """Train it and print how right, how sure and how sharp it was on the way, and where 2/η was."""
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16, dtype=torch.float32).view(-1, 1, 8, 8), torch.tensor(labels)
    x, x_test, y, y_test = x[:500], x[500:1500], y[:500], y[500:1500]

    model, epochs = resnet(), 8
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, epochs)
    step = 0
    with sf.Tracker(model, (x, y), (x_test, y_test), optimizer=opt, every=20, batch_size=50) as tracker:  # 1
        for _ in range(epochs):
            for rows in torch.randperm(len(x)).split(50):
                loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
                opt.zero_grad()
                loss.backward()
                opt.step()
                tracker.step(step)  # 2
                step += 1
            schedule.step()

    print(" step  train acc  test acc  test ece  sharpness   2/lr")
    for r in tracker.readings:  # 3
        print(
            f"{r['step']:5d} {r['train.accuracy']:10.3f} {r['test.accuracy']:9.3f} {r['test.ece']:9.3f} "
            f"{r['sharpness']:10.2f} {r['threshold']:6.1f}"
        )


if __name__ == "__main__":
    main()
