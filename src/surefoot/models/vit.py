"""Vision transformers (Dosovitskiy et al. 2021): ViT-S with patches of 16 or 32 pixels."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from surefoot.errors import BadInput

__all__ = ["ViT"]


class ViT(nn.Module):
    """Images (b, 3, size, size) to logits (b, k): patches, a class token, pre-norm attention blocks.

    >>> sum(p.numel() for p in ViT(16, classes=1000).parameters())
    22050664
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
        """Logits (b, k)."""
        patches = self.patches(images).flatten(2).mT
        tokens = torch.cat([self.token.expand(len(images), -1, -1), patches], dim=1) + self.places
        logits: Tensor = self.head(self.norm(self.blocks(tokens))[:, 0])
        return logits


class _Block(nn.Module):
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
        b, n, width = x.shape
        # Attention written out: curvature needs its second derivative, which the fused kernels lack.
        q, k, v = self.mixed(self.first_norm(x)).view(b, n, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        weights = torch.softmax(q @ k.mT * (width // self.heads) ** -0.5, dim=-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(b, n, width))
        found: Tensor = x + self.mlp(self.second_norm(x))
        return found
