"""The papers' workloads, from a file with ``x_train`` (n, 32, 32, 3) uint8 and ``y_train`` (n,)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn


def workload(path: Path) -> tuple[Tensor, Tensor]:
    """5,000 flattened images, each feature centred and scaled (Cohen et al. 2021), and labels."""
    with np.load(path) as file:
        images, labels = file["x_train"][:5000], file["y_train"][:5000]
    x = images.transpose(0, 3, 1, 2).reshape(len(images), -1).astype(np.float64)
    x = (x - x.mean(0)) / np.maximum(x.std(0), 1e-12)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(labels).long()


def pictures(path: Path, n: int) -> tuple[Tensor, Tensor]:
    """n images (n, 3, 32, 32), each channel centred and scaled, and labels."""
    with np.load(path) as file:
        images, labels = file["x_train"][:n], file["y_train"][:n]
    x = torch.tensor(images.transpose(0, 3, 1, 2).copy(), dtype=torch.float32)
    x = (x - x.mean((0, 2, 3), keepdim=True)) / x.std((0, 2, 3), keepdim=True)
    return x, torch.tensor(labels).long()


def network(classes: int, seed: int, width: int = 200) -> nn.Module:
    torch.manual_seed(seed)
    layers = nn.Linear(3072, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, classes)
    return nn.Sequential(*layers)


def gradient_step(model: nn.Module, x: Tensor, y: Tensor, rate: float) -> None:
    nn.functional.cross_entropy(model(x), y).backward()
    with torch.no_grad():
        for p in model.parameters():
            if rate:  # 0: the cost of a step without moving a model whose graph is kept
                p -= rate * p.grad
            p.grad = None
