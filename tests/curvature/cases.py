"""One table of models and data for every curvature test, small enough for dense float64 matrices."""

import torch
from torch import nn


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.inner, self.head = nn.Linear(5, 4), nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        h = torch.tanh(self.first(x))
        return self.head(h + torch.relu(self.inner(h)))


class Tied(nn.Module):
    """One weight used twice: it must be counted once, and move in both places."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.head(torch.tanh(self.b(torch.tanh(self.a(x)))))


class Unused(nn.Module):
    """A parameter that the logits do not depend on."""

    def __init__(self):
        super().__init__()
        self.net, self.spare = nn.Linear(4, 3), nn.Parameter(torch.ones(2))

    def forward(self, x):
        return self.net(x)


class Once(torch.autograd.Function):
    """tanh with a backward that cannot be differentiated, but with forward mode."""

    @staticmethod
    def forward(x):
        return torch.tanh(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return grad * (1 - y**2)

    @staticmethod
    def jvp(ctx, tangent):
        (y,) = ctx.saved_tensors
        return tangent * (1 - y**2)


class OnceDifferentiable(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.head(Once.apply(self.first(x)))


def _mlp():
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3)), (5,)


def _conv():
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(12, 3)), (2, 6, 6)


def _norm():
    layers = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Tanh(), nn.Flatten(), nn.Linear(8, 3)
    model = nn.Sequential(*layers)
    with torch.no_grad():
        model[1].running_mean.normal_()
        model[1].running_var.uniform_(0.5, 2)
    return model, (1, 4, 4)


MODELS = {
    "linear": lambda: (nn.Linear(4, 3), (4,)),
    "mlp": _mlp,
    "no bias": lambda: (nn.Sequential(nn.Linear(4, 3, bias=False), nn.Tanh(), nn.Linear(3, 3, bias=False)), (4,)),
    "dropout": lambda: (nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.5), nn.GELU(), nn.Linear(5, 3)), (4,)),
    "convolution": _conv,
    "batch norm": _norm,
    "residual": lambda: (Residual(), (5,)),
    "tied": lambda: (Tied(), (4,)),
    "unused": lambda: (Unused(), (4,)),
}
LOSSES = ["ce", "mse", "mse-half", "mse-sum"]


def case(name, n=11, seed=0, dtype=torch.float64):
    """(model, inputs, labels) of a case."""
    torch.manual_seed(seed)
    model, shape = MODELS[name]() if name in MODELS else (OnceDifferentiable(), (4,))
    return model.to(dtype), torch.randn(n, *shape, dtype=dtype), torch.randint(0, 3, (n,))


def loss_values(name, logits, labels):
    onehot = torch.nn.functional.one_hot(labels, logits.shape[1]).to(logits)
    square = (logits - onehot).square()
    return {
        "ce": lambda: torch.nn.functional.cross_entropy(logits, labels, reduction="none"),
        "mse": lambda: square.mean(1),
        "mse-half": lambda: 0.5 * square.sum(1),
        "mse-sum": lambda: square.sum(1),
    }[name]()


def flat_function(model, inputs):
    """Logits as a function of one flat vector of the trainable parameters, and that vector."""
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    sizes = [p.numel() for p in parameters.values()]
    theta = torch.cat([p.detach().reshape(-1) for p in parameters.values()])

    def logits(vector):
        parts = torch.split(vector, sizes)
        values = {name: part.view_as(p) for (name, p), part in zip(parameters.items(), parts, strict=True)}
        return torch.func.functional_call(model, values, (inputs,))

    return logits, theta


def dense_gauss_newton(model, inputs, labels, loss):
    model.eval()
    logits, theta = flat_function(model, inputs)
    jacobian = torch.autograd.functional.jacobian(logits, theta)  # (n, k, d)
    total = torch.zeros(len(theta), len(theta), dtype=theta.dtype)
    for j, z, y in zip(jacobian, logits(theta), labels, strict=True):
        h = torch.autograd.functional.hessian(lambda z, y=y: loss_values(loss, z[None], y[None])[0], z.detach())
        total += j.T @ h @ j
    return total / len(inputs)


def dense_hessian(model, inputs, labels, loss):
    model.eval()
    logits, theta = flat_function(model, inputs)
    return torch.autograd.functional.hessian(lambda v: loss_values(loss, logits(v), labels).mean(), theta)
