"""Vision transformers (Dosovitskiy et al. 2021): ViT-S with patches of 16 or 32 pixels."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from surefoot.errors import BadInput

__all__ = ["ViT"]


class ViT(nn.Module):
    """Vision transformer with a class token and pre-norm attention blocks; the defaults are ViT-S/16.

    Args:
        patch: height and width of a patch, in pixels.
        size: height and width of the images, a multiple of ``patch``.
        classes: number of classes k.
        width: width of the tokens, a multiple of ``heads``.
        depth: number of blocks.
        heads: number of attention heads.
        dropout: rate of the dropout in the two layers of every block's perceptron, in [0, 1].

    Raises:
        BadInput: when ``size`` is no multiple of ``patch``.

    Example:
        >>> sum(p.numel() for p in ViT(16, classes=1000).parameters())
        22050664

    References:
        Dosovitskiy et al. (2021), "An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale".
    """

    def __init__(
        self,
        patch: int = 16,
        size: int = 224,
        classes: int = 1000,
        width: int = 384,
        depth: int = 12,
        heads: int = 6,
        dropout: float = 0.0,
    ) -> None:
        if size % patch:
            raise BadInput(f"size must be a multiple of patch = {patch}; got {size}")
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.empty(1, (size // patch) ** 2 + 1, width).normal_(std=0.02))
        self.blocks = nn.Sequential(*(_Block(width, heads, dropout) for _ in range(depth)))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Compute logits.

        Args:
            images: (b, 3, size, size).

        Returns:
            (b, k) logits.
        """
        patches = self.patches(images).flatten(2).mT
        tokens = torch.cat([self.token.expand(len(images), -1, -1), patches], dim=1) + self.places
        logits: Tensor = self.head(self.norm(self.blocks(tokens))[:, 0])
        return logits


class _Block(nn.Module):
    """A pre-norm attention block."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.first_norm, self.second_norm = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(4 * width, width),
            nn.Dropout(dropout),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Tokens plus attention plus perceptron."""
        b, n, width = x.shape
        # Attention is written out because curvature needs its second derivative, which the fused kernels lack.
        q, k, v = self.mixed(self.first_norm(x)).view(b, n, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        weights = torch.softmax(q @ k.mT * (width // self.heads) ** -0.5, dim=-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(b, n, width))
        output: Tensor = x + self.mlp(self.second_norm(x))
        return output
