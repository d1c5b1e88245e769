"""Residual networks for 32×32 images (He et al. 2016, Section 4.2): depth 6n + 2, widths 16, 32, 64."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import pad, relu

from surefoot.errors import BadInput
from surefoot.models.layout import channels_last
from surefoot.models.start import he_normal

__all__ = ["CifarResNet"]


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
