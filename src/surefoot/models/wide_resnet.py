"""Wide residual networks (Zagoruyko & Komodakis 2016): depth 6n + 4, pre-activation, widths 16, 32, 64 times w."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import relu

from surefoot.errors import BadInput
from surefoot.models.resnet import channels_last, he_normal

__all__ = ["WideResNet"]


class WideResNet(nn.Module):
    """Wide residual network for 32×32 images, with dropout inside the blocks as in the paper.

    Args:
        depth: number of layers, 6n + 4 with n at least 1.
        width: factor of the widths 16, 32, 64, at least 1.
        classes: number of classes k.
        dropout: rate of the dropout inside the blocks, in [0, 1].

    Raises:
        BadInput: when ``depth`` or ``width`` is not as described.

    Example:
        >>> sum(p.numel() for p in WideResNet(16, 1).parameters())
        175066

    References:
        Zagoruyko & Komodakis (2016), "Wide Residual Networks".
    """

    def __init__(self, depth: int = 28, width: int = 10, classes: int = 10, dropout: float = 0.0) -> None:
        if depth < 10 or (depth - 4) % 6:
            raise BadInput(f"depth must be 6n + 4 (10, 16, 22, 28, 40, ...); got {depth}")
        if width < 1:
            raise BadInput(f"width must be at least 1; got {width}")
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        blocks: list[nn.Module] = []
        inside = 16
        for stage, base in enumerate((16, 32, 64)):
            for place in range((depth - 4) // 6):
                blocks.append(_Block(inside, base * width, 2 if stage and not place else 1, dropout))
                inside = base * width
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.BatchNorm2d(inside)
        self.head = nn.Linear(inside, classes)
        he_normal(self)

    def forward(self, images: Tensor) -> Tensor:
        """Compute logits.

        Args:
            images: (b, 3, 32, 32).

        Returns:
            (b, k) logits.
        """
        hidden = relu(self.norm(self.blocks(self.stem(channels_last(images)))))
        logits: Tensor = self.head(hidden.mean(dim=(2, 3)))
        return logits


class _Block(nn.Module):
    """A pre-activation block of two 3×3 convolutions."""

    def __init__(self, inside: int, outside: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.first_norm, self.second_norm = nn.BatchNorm2d(inside), nn.BatchNorm2d(outside)
        self.first = nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False)
        self.second = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.same = inside == outside and stride == 1
        self.short: nn.Module = nn.Identity() if self.same else nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Path plus shortcut."""
        ready = relu(self.first_norm(x))
        hidden = self.second(self.dropout(relu(self.second_norm(self.first(ready)))))
        # The projection takes the activated input, the identity shortcut the raw input.
        output: Tensor = hidden + (x if self.same else self.short(ready))
        return output
