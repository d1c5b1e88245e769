"""Residual networks (He et al. 2016), and what all convolutional networks share: memory layout and initial weights.

`CifarResNet` is Section 4.2, for 32×32 images: depth 6n + 2, widths 16, 32, 64. `ResNet` is Section 4.1: 18, 34 and 50
layers for large images, or with a small stem for 32×32 images.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, relu

from surefoot.errors import BadInput

__all__ = ["CifarResNet", "ResNet", "channels_last", "he_normal"]


class CifarResNet(nn.Module):
    """Residual network for 32×32 images; shortcuts have no parameters (option A of the paper).

    Args:
        depth: number of layers, 6n + 2 with n at least 1.
        classes: number of classes k.

    Raises:
        BadInput: when ``depth`` is not as described.

    Example:
        >>> sum(p.numel() for p in CifarResNet(20).parameters())
        269722

    References:
        He, Zhang, Ren & Sun (2016), "Deep Residual Learning for Image Recognition", Section 4.2.
    """

    def __init__(self, depth: int, classes: int = 10) -> None:
        if depth < 8 or (depth - 2) % 6:
            raise BadInput(f"depth must be 6n + 2 (20, 32, 44, 56, 110, ...); got {depth}")
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        blocks: list[nn.Module] = []
        width = 16
        for stage, wider in enumerate((16, 32, 64)):
            for place in range((depth - 2) // 6):
                blocks.append(_Block(width, wider, stride=2 if stage and not place else 1))
                width = wider
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(64, classes)
        he_normal(self)

    def forward(self, images: Tensor) -> Tensor:
        """Compute logits.

        Args:
            images: (b, 3, 32, 32).

        Returns:
            (b, k) logits.
        """
        hidden = self.blocks(relu(self.norm(self.stem(channels_last(images)))))
        logits: Tensor = self.head(hidden.mean(dim=(2, 3)))
        return logits


class _Block(nn.Module):
    """A basic block of two 3×3 convolutions."""

    def __init__(self, width: int, wider: int, stride: int) -> None:
        super().__init__()
        self.stride, self.more = stride, wider - width
        self.first = nn.Conv2d(width, wider, 3, stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(wider)
        self.second = nn.Conv2d(wider, wider, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(wider)

    def forward(self, x: Tensor) -> Tensor:
        """Path plus shortcut."""
        hidden = relu(self.first_norm(self.first(x)))
        hidden = self.second_norm(self.second(hidden))
        # Option A: the shortcut is subsampled, and new channels are zero.
        short = x[:, :, :: self.stride, :: self.stride]
        if self.more:
            short = pad(short, (0, 0, 0, 0, 0, self.more))
        return relu(hidden + short)


# depth: (number of blocks of every stage, whether blocks are bottlenecks)
_DEPTHS = {18: ((2, 2, 2, 2), False), 34: ((3, 4, 6, 3), False), 50: ((3, 4, 6, 3), True)}


class ResNet(nn.Module):
    """Residual network of 18, 34 or 50 layers.

    Args:
        depth: number of layers: 18, 34 or 50.
        classes: number of classes k.
        stem: ``"small"`` for a 3×3 convolution without pooling (32×32 images), or ``"large"`` for a 7×7 convolution
            and pooling (ImageNet).
        dropout: rate of the dropout before the last layer, in [0, 1].

    Raises:
        BadInput: when ``depth`` or ``stem`` is not as described.

    Example:
        >>> sum(p.numel() for p in ResNet(18).parameters())
        11173962

    References:
        He, Zhang, Ren & Sun (2016), "Deep Residual Learning for Image Recognition", Section 4.1.
    """

    def __init__(self, depth: int, classes: int = 10, stem: str = "small", dropout: float = 0.0) -> None:
        if depth not in _DEPTHS:
            raise BadInput(f"depth must be one of {', '.join(map(str, _DEPTHS))}; got {depth}")
        if stem not in ("small", "large"):
            raise BadInput(f"stem must be 'small' or 'large'; got {stem!r}")
        super().__init__()
        stages, bottleneck = _DEPTHS[depth]
        if stem == "small":
            self.stem = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU())
        else:
            first = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
            self.stem = nn.Sequential(first, nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        blocks: list[nn.Module] = []
        inside = 64
        for stage, count in enumerate(stages):
            for place in range(count):
                block = _LargeBlock(inside, 64 << stage, stride=2 if stage and not place else 1, bottleneck=bottleneck)
                blocks.append(block)
                inside = block.outside
        self.blocks = nn.Sequential(*blocks)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(inside, classes)
        he_normal(self)

    def forward(self, images: Tensor) -> Tensor:
        """Compute logits.

        Args:
            images: (b, 3, h, w).

        Returns:
            (b, k) logits.
        """
        hidden = self.blocks(self.stem(channels_last(images))).mean(dim=(2, 3))
        logits: Tensor = self.head(self.dropout(hidden))
        return logits


class _LargeBlock(nn.Module):
    """Two 3×3 convolutions, or a bottleneck 1×1, 3×3, 1×1 that widens fourfold; a projection where shapes differ."""

    def __init__(self, inside: int, width: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        self.outside = 4 * width if bottleneck else width
        if bottleneck:
            shapes = [(inside, width, 1, 1), (width, width, 3, stride), (width, self.outside, 1, 1)]
        else:
            shapes = [(inside, width, 3, stride), (width, width, 3, 1)]
        layers: list[nn.Module] = []
        for a, b, size, by in shapes:
            layers += [nn.Conv2d(a, b, size, by, padding=size // 2, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
        self.path = nn.Sequential(*layers[:-1])
        self.short: nn.Module = nn.Identity()
        if stride != 1 or inside != self.outside:
            projection = nn.Conv2d(inside, self.outside, 1, stride, bias=False)
            self.short = nn.Sequential(projection, nn.BatchNorm2d(self.outside))

    def forward(self, x: Tensor) -> Tensor:
        """Path plus shortcut."""
        return relu(self.path(x) + self.short(x))


def channels_last(images: Tensor) -> Tensor:
    """Store images with the channels of a pixel adjacent in memory; all later layers keep this layout.

    Convolutions of few channels train a third faster on a CPU in this layout.

    Args:
        images: (b, c, h, w).

    Returns:
        (b, c, h, w) the same numbers in ``torch.channels_last`` format.
    """
    return images.contiguous(memory_format=torch.channels_last)


def he_normal(model: nn.Module) -> None:
    """Initialise all convolutions as in He et al. (2015), in mode ``fan_out``; other layers keep torch's defaults.

    Args:
        model: the network, modified in place.

    References:
        He, Zhang, Ren & Sun (2015), "Delving Deep into Rectifiers: Surpassing Human-Level Performance on ImageNet
        Classification".
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
