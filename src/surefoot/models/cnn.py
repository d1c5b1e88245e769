"""Small convolutional networks: LeNet-5, and a network of three convolutions for images of any size."""

from __future__ import annotations

from torch import Tensor, nn

__all__ = ["LeNet", "SmallCNN"]


class LeNet(nn.Module):
    """LeNet-5 with ReLU and maximum pooling, for images of 28 or 32 pixels.

    Args:
        channels: number of channels of the images.
        size: height and width of the images, in pixels.
        classes: number of classes k.
        dropout: rate of the dropout before the last layer, in [0, 1].

    Example:
        >>> sum(p.numel() for p in LeNet().parameters())
        62006

    References:
        LeCun, Bottou, Bengio & Haffner (1998), "Gradient-Based Learning Applied to Document Recognition".
    """

    def __init__(self, channels: int = 3, size: int = 32, classes: int = 10, dropout: float = 0.0) -> None:
        super().__init__()
        side = ((size - 4) // 2 - 4) // 2
        self.layers = nn.Sequential(
            nn.Conv2d(channels, 6, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(16 * side * side, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(84, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Compute logits.

        Args:
            images: (b, channels, size, size).

        Returns:
            (b, k) logits.
        """
        logits: Tensor = self.layers(images)
        return logits


class SmallCNN(nn.Module):
    """Three convolutions of stride 2 with ReLU, a mean over all pixels, and a linear layer; without batch norm.

    Args:
        channels: number of channels of the images.
        classes: number of classes k.
        width: number of channels after the first convolution; every further convolution doubles the number.
        dropout: rate of the dropout before the last layer, in [0, 1].

    Example:
        >>> sum(p.numel() for p in SmallCNN().parameters())
        94538
    """

    def __init__(self, channels: int = 3, classes: int = 10, width: int = 32, dropout: float = 0.0) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inside = channels
        for outside in (width, 2 * width, 4 * width):
            layers += [nn.Conv2d(inside, outside, 3, stride=2, padding=1), nn.ReLU()]
            inside = outside
        self.features = nn.Sequential(*layers)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(inside, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Compute logits.

        Args:
            images: (b, channels, h, w).

        Returns:
            (b, k) logits.
        """
        logits: Tensor = self.head(self.dropout(self.features(images).mean(dim=(2, 3))))
        return logits
