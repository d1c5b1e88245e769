"""Small random networks of every layer that a bound is known for, in float64, and points of balls around inputs."""

import torch
from torch import nn
from torch.nn import functional

from surefoot.margins.ball import Ball
from surefoot.models import LeNet, PyramidNet, SmallCNN, WideResNet
from surefoot.models.resnet import CifarResNet


class Functional(nn.Module):
    """The forms that are not modules: arithmetic, slices, zeros around, means, views."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 6, 3, stride=2, padding=1)
        self.head = nn.Linear(6, 4)
        self.register_buffer("mean", torch.tensor([0.1, -0.2, 0.3]).reshape(1, 3, 1, 1))

    def forward(self, x):
        x = (x - self.mean) / 0.7
        hidden = torch.relu(self.first(x))
        hidden = functional.dropout(hidden, 0.5, self.training)
        short = functional.pad(hidden[:, :, ::2, ::2], (0, 0, 0, 0, 0, 2))
        hidden = functional.gelu(self.second(hidden)) - 0.5 * short
        hidden = functional.avg_pool2d(hidden, 2).tanh()
        gate = hidden.mean(dim=1, keepdim=True)
        hidden = hidden + gate.transpose(2, 3)
        return self.head(functional.adaptive_avg_pool2d(1.5 - hidden, 1).view(hidden.size(0), -1))


class Pooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding="same")
        self.head = nn.Linear(4 * 2 * 2, 4)

    def forward(self, x):
        x = functional.max_pool2d(self.stem(x), 3, 2, 1)
        return self.head(functional.max_pool2d(x, 2, 2, ceil_mode=True).flatten(1))


def _flat(*layers):
    return nn.Sequential(nn.Flatten(), *layers)


def _normed(norm):
    """A batch norm whose statistics and weights are not the initial ones."""
    with torch.no_grad():
        for values, low in ((norm.running_mean, -0.5), (norm.running_var, 0.5), (norm.weight, -1.0), (norm.bias, -0.5)):
            values.uniform_(low, low + 1.5)
    return norm


# name: (network, shape of an input)
NETS = {
    "linear": lambda: (_flat(nn.Linear(12, 4)), (3, 2, 2)),
    "relu": lambda: (_flat(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)), (5,)),
    "tanh": lambda: (_flat(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)), (5,)),
    "gelu": lambda: (_flat(nn.Linear(5, 8), nn.GELU(), nn.Linear(8, 4)), (5,)),
    "gelu by tanh": lambda: (_flat(nn.Linear(5, 8), nn.GELU(approximate="tanh"), nn.Linear(8, 4)), (5,)),
    "ends in tanh": lambda: (_flat(nn.Linear(5, 4), nn.Tanh()), (5,)),
    "starts with tanh": lambda: (nn.Sequential(nn.Tanh(), nn.Linear(5, 4)), (5,)),
    "batch norm": lambda: (
        nn.Sequential(
            nn.Conv2d(3, 4, 3, bias=False), _normed(nn.BatchNorm2d(4)), nn.ReLU(), nn.Flatten(),
            nn.Linear(36, 6), _normed(nn.BatchNorm1d(6)), nn.Tanh(), nn.Dropout(0.5), nn.Linear(6, 4),
        ),
        (3, 5, 5),
    ),
    "convolutions": lambda: (
        nn.Sequential(
            nn.Conv2d(4, 4, 3, stride=2, padding=1, groups=2), nn.ReLU(), nn.Conv2d(4, 6, 2, dilation=2, padding=1),
            nn.Tanh(), nn.AvgPool2d(2, 1), nn.Identity(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4),
        ),
        (4, 7, 7),
    ),
    "max pool": lambda: (
        nn.Sequential(nn.Conv2d(3, 4, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.Flatten(), nn.Linear(36, 4)),
        (3, 6, 6),
    ),
    "overlapping and ceil": lambda: (Pooled(), (3, 7, 7)),
    "functional": lambda: (Functional(), (3, 8, 8)),
}  # fmt: skip
# The project's own, small; their bounds are loose, and must hold all the same.
MODELS = {
    "lenet": lambda: (LeNet(size=28), (3, 28, 28)),
    "cnn": lambda: (SmallCNN(width=4), (3, 16, 16)),
    "resnet": lambda: (CifarResNet(8), (3, 16, 16)),
    "wrn": lambda: (WideResNet(10, 1), (3, 16, 16)),
    "pyramidnet": lambda: (PyramidNet(8, 6), (3, 16, 16)),
}


def net(name, n=5, seed=0):
    """The network in training mode, inputs (n, *shape) and labels (n,)."""
    torch.manual_seed(seed)
    model, shape = {**NETS, **MODELS}[name]()
    model = model.double()
    x = torch.randn(n, *shape, dtype=torch.float64)
    with torch.no_grad():
        classes = model.eval()(x).shape[1]
    return model.train(), x, torch.randint(0, classes, (n,))


def points(x, eps, norm, count, seed=0):
    """(count, n, *shape) points of the balls around x: every other one on the sphere, or in a corner of the box."""
    ball = Ball.of(eps, norm, tuple(x.shape[1:]), x.device)
    u = ball.sample(count * len(x), 0, seed)
    u[::2] = ball.project(1e9 * u[::2])
    return x + ball.radius * u.reshape(count, *x.shape)


def lowest(model, x, y, eps, norm, count=200):
    """(n,) the least margin of many points of the ball: the infimum is no larger."""
    return torch.stack([margins(model, point, y) for point in points(x, eps, norm, count)]).amin(dim=0)


def margins(model, x, y):
    """True margins (n,), plainly."""
    with torch.no_grad():
        z = model.eval()(x)
    return z.gather(1, y[:, None])[:, 0] - z.scatter(1, y[:, None], -torch.inf).amax(dim=1)


def exact_linear(weight, bias, x, y, eps, norm):
    """(n,) min_j [(w_y − w_j)·x + b_y − b_j − ‖ε (w_y − w_j)‖_dual] of a linear model; ε a number or (d,)."""
    expected = []
    for row, label in zip(x.flatten(1), y.tolist(), strict=True):
        w, b = weight[label] - weight, bias[label] - bias
        drop = torch.linalg.vector_norm(w * eps, 1 if norm == "inf" else 2, dim=1)
        expected.append(torch.cat([(w @ row + b - drop)[:label], (w @ row + b - drop)[label + 1 :]]).min())
    return torch.stack(expected)
