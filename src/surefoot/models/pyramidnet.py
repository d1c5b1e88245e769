"""PyramidNet (Han et al. 2017): the width grows from block to block, by α over all blocks."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, pad, relu

from surefoot.errors import BadInput
from surefoot.models.resnet import channels_last, he_normal

__all__ = ["PyramidNet"]


class PyramidNet(nn.Module):
    """PyramidNet of basic blocks for 32×32 images; shortcuts use pooling and zero channels.

    Args:
        depth: number of layers, 6n + 2 with n at least 1.
        alpha: total increase of the width, at least 0; the first width is 16.
        classes: number of classes k.

    Raises:
        BadInput: when ``depth`` or ``alpha`` is not as described.

    Example:
        >>> sum(p.numel() for p in PyramidNet(110, 48).parameters())
        1772706

    References:
        Han, Kim & Kim (2017), "Deep Pyramidal Residual Networks".
    """

    def __init__(self, depth: int = 110, alpha: float = 270, classes: int = 10) -> None:
        if depth < 8 or (depth - 2) % 6:
            raise BadInput(f"depth must be 6n + 2 (20, 56, 110, ...); got {depth}")
        if not alpha >= 0:
            raise BadInput(f"alpha must be at least 0; got {alpha!r}")
        super().__init__()
        count = (depth - 2) // 6
        self.stem = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.stem_norm = nn.BatchNorm2d(16)
        blocks: list[nn.Module] = []
        exact, inside = 16.0, 16
        for index in range(3 * count):
            exact += alpha / (3 * count)
            outside = round(exact)
            blocks.append(_Block(inside, outside, 2 if index and index % count == 0 else 1))
            inside = outside
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
        hidden = relu(self.norm(self.blocks(self.stem_norm(self.stem(channels_last(images))))))
        logits: Tensor = self.head(hidden.mean(dim=(2, 3)))
        return logits


class _Block(nn.Module):
    """A basic block with batch norm before every convolution and after the last."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.stride, self.more = stride, outside - inside
        self.path = nn.Sequential(
            nn.BatchNorm2d(inside),
            nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(),
            nn.Conv2d(outside, outside, 3, padding=1, bias=False),
            nn.BatchNorm2d(outside),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Path plus shortcut."""
        short = avg_pool2d(x, self.stride, self.stride) if self.stride > 1 else x
        output: Tensor = self.path(x) + pad(short, (0, 0, 0, 0, 0, self.more))
        return output
